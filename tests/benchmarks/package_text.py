"""Texts of tens of megabytes from what installed packages ship: documentation or source code.

    python -m tests.benchmarks.package_text docs 10000000 docs.txt
    python -m tests.benchmarks.package_text source 100000000 source.txt /usr/lib/python3 FOLDER ...

The files lie in the folders given, else in Python's library, its packages and /usr/share. They come
in an order that their contents decide, each once, whole, and a blank line between two, so that one
machine always makes the same text. Another machine has other packages: its figures are compared
among themselves.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

KINDS = {
    "docs": {".rst", ".md", ".txt", "copyright"},
    "source": {".py"},
}
# Word lists and tables of data are no text that anybody writes.
LARGEST, SHORTEST = 200_000, 500


def texts(kind: str, folders: Iterable[Path]) -> Iterator[str]:
    """Yield the texts of a kind under some folders, each once, in the order of their hashes."""
    found: dict[bytes, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if (path.suffix or path.name) not in KINDS[kind] or not path.is_file():
                continue
            if SHORTEST <= path.stat().st_size <= LARGEST:
                found.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
    for _, path in sorted(found.items()):
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            yield text.replace("\r\n", "\n").rstrip("\n") + "\n\n"


def write(kind: str, size: int, out: Path, folders: Iterable[Path]) -> int:
    """Write texts until there are `size` bytes; return how many there are."""
    written = 0
    with out.open("w", encoding="utf-8", newline="\n") as file:
        for text in texts(kind, folders):
            file.write(text)
            written += len(text.encode())
            if written >= size:
                break
    return written


if __name__ == "__main__":
    kind, size, out, *given = sys.argv[1:]
    usual = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr/share"]
    made = write(kind, int(size), Path(out), map(Path, given or usual))
    if made < int(size):
        sys.exit(f"the packages here have only {made:,} bytes of {kind}")
