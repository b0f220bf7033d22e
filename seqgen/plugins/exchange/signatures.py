"""How files of other tools begin, which tells what they are."""

from __future__ import annotations

from pathlib import Path

from seqgen.files import begins_with


def is_gguf(path: Path) -> bool:
    """Return whether a file begins as a GGUF file does."""
    return begins_with(path, b"GGUF")


def begins_arpa(line: bytes) -> bool:
    """Return whether a first line is that of an ARPA file."""
    return line.startswith(b"\\data\\")
