"""Documents as texts: each is extracted once, and its text is kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from seqgen.errors import SeqgenError, first_line
from seqgen.packages import require_packages
from seqgen.plugins.documents.deadline import (
    VARIABLE,
    OutOfTimeError,
    processor_time_at_most,
    seconds_for,
)
from seqgen.plugins.documents.document import Document, Unreadable, clean
from seqgen.plugins.documents.html import read_html
from seqgen.plugins.documents.office import read_docx, read_epub, read_odt
from seqgen.plugins.documents.pdf import read_pdf
from seqgen.store.cache import kept_index_files
from seqgen.text.reading import decode_blocks
from seqgen.wording import plural

# Counts up when the same file gives another text.
VERSION = 2
BLOCK = 1 << 20


def read_rtf(file: IO[bytes]) -> Document:
    """Extract the text of an RTF document.

    Raises:
        Unreadable: it is none, is damaged or has no text.
    """
    from striprtf.striprtf import rtf_to_text

    raw = file.read()
    if not raw.startswith(b"{\\rtf"):
        raise Unreadable("is no RTF document")
    try:
        text = clean(rtf_to_text(raw.decode("latin-1"), errors="replace"))
    except Exception as error:  # whatever a damaged file makes of striprtf
        raise Unreadable(f"is damaged: {first_line(error)}") from None
    if not text:
        raise Unreadable("has no text")
    return Document(text)


READERS: dict[str, Callable[[IO[bytes]], Document]] = {
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".odt": read_odt,
    ".epub": read_epub,
    ".rtf": read_rtf,
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
}
# Packages that read documents of these endings.
PACKAGES = {".pdf": "pypdf", ".rtf": "striprtf"}


def read_document(path: Path) -> Generator[str, None, str]:
    """Yield the text of a document; return what was taken from it.

    Raises:
        SeqgenError: the document cannot be read.
    """
    ending = path.suffix.lower()
    if ending in PACKAGES:
        require_packages(str(path), PACKAGES[ending])

    def extract() -> Generator[str, None, str]:
        with path.open("rb") as file:
            document = open_document(file, ending, str(path))
        yield document.text
        return document.taken

    return (yield from read_kept(path, ending, extract))


def read_kept(
    path: Path, ending: str, extract: Callable[[], Generator[str, None, str]]
) -> Generator[str, None, str]:
    """Yield the text of a file, which is extracted once and kept; return what was taken from it.

    Args:
        path: of the file.
        ending: what decides how it is read.
        extract: yields the text in pieces, and returns what was taken from the file.

    Raises:
        SeqgenError: the file cannot be read.
    """
    with path.open("rb") as file:
        about = {"document": _sha256(file), "ending": ending, "version": VERSION}
    about |= {"packages": _versions(ending)}
    taken: str | None = None

    with tempfile.TemporaryFile() as file:  # the text of an archive may be large

        def content() -> dict[str, list[Any]]:
            nonlocal taken
            taken = _write_all(file, extract())
            return {"document": [_Blocks(file)], "taken": [taken.encode()]}

        try:
            text, kept = kept_index_files(about, content, "document", "taken")
        except (SeqgenError, OSError):
            if taken is None:
                raise
            yield from decode_blocks(_Blocks(file).pieces(), str(path))
            return taken  # the cache cannot be written
    with text.open("rb") as file:
        yield from decode_blocks(_Blocks(file).pieces(), str(path))
    return kept.read_text(encoding="utf-8")


def _write_all(file: IO[bytes], pieces: Generator[str, None, str]) -> str:
    """Write what a generator yields to a file; return what it returns."""
    taken = ""

    def noting() -> Generator[str, None, None]:
        nonlocal taken
        taken = yield from pieces

    file.writelines(piece.encode() for piece in noting())
    return taken


@dataclass(frozen=True)
class _Blocks:
    """Content of an open file, in blocks; see `seqgen.files.Parts`."""

    file: IO[bytes]

    def pieces(self) -> Iterator[bytes]:
        """Yield the blocks."""
        self.file.seek(0)
        yield from iter(lambda: self.file.read(BLOCK), b"")


def _versions(ending: str) -> dict[str, str]:
    """List the versions of the packages that read files of an ending; of archives, all."""
    names = [PACKAGES[ending]] if ending in PACKAGES else []
    if ending not in READERS:
        names = sorted(PACKAGES.values())
    versions = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def open_document(file: IO[bytes], ending: str, name: str) -> Document:
    """Extract the text of an open file.

    Args:
        file: its bytes.
        ending: which of `READERS` reads it.
        name: what errors call it.

    Raises:
        SeqgenError: it cannot be read.
    """
    try:
        return extract_in_time(file, ending)
    except Unreadable as error:
        raise SeqgenError(f"{name} {error}") from None


def extract_in_time(file: IO[bytes], ending: str) -> Document:
    """Extract the text of an open file within the time that its size allows.

    Raises:
        Unreadable: it cannot be read, or takes too long.
    """
    seconds = seconds_for(file.seek(0, io.SEEK_END))
    file.seek(0)
    try:
        with processor_time_at_most(seconds):
            return READERS[ending](file)
    except OutOfTimeError:
        most = plural(round(seconds), "second")
        raise Unreadable(f"takes more than {most} to read; {VARIABLE} raises the limit") from None


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(BLOCK), b""):
        digest.update(block)
    return digest.hexdigest()
