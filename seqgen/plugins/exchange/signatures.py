"""Detection of file formats by the first bytes of a file."""

from __future__ import annotations

from pathlib import Path

from seqgen.files import begins_with


def is_gguf(path: Path) -> bool:
    """Check whether a file starts with the GGUF signature."""
    return begins_with(path, b"GGUF")


def begins_arpa(line: bytes) -> bool:
    """Check whether a first line is the start of an ARPA file."""
    return line.startswith(b"\\data\\")
