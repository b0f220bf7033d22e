"""Reading and writing of files that may be compressed by gzip."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from seqgen.errors import SeqgenError, reporting_unreadable
from seqgen.files import replacing
from seqgen.limits import byte_lines

GZIP = b"\x1f\x8b"


@contextlib.contextmanager
def open_packed(path: Path) -> Iterator[Iterable[bytes]]:
    """Open a file, decompressing gzip, to read it line by line.

    Raises:
        SeqgenError: it cannot be read, or a line is longer than `limits.max_line_bytes`.
    """
    try:
        with reporting_unreadable(path), path.open("rb") as file:
            packed = file.peek(2)[:2] == GZIP  # a pipe cannot be wound back
            if packed:
                with gzip.open(file) as unpacked:
                    yield byte_lines(unpacked, str(path))
            else:
                yield byte_lines(file, str(path))
    except (EOFError, zlib.error) as error:
        raise SeqgenError(f"{path} cannot be read: {error}") from None


def write_packed(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file atomically, compressed if its name ends in `.gz`."""
    with replacing(path) as file:
        if path.suffix != ".gz":
            file.writelines(chunks)
            return
        # Without name and time, so that the same model gives the same bytes; at gzip's own level,
        # as Python's makes a file smaller by 1 % in three times the time.
        with gzip.GzipFile(
            filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0
        ) as packed:
            packed.writelines(chunks)
