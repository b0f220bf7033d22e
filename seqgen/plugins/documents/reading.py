"""Documents as texts: each is extracted once, and its text is kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from importlib import metadata
from pathlib import Path
from typing import IO

from seqgen.errors import SeqgenError, first_line
from seqgen.packages import require_packages
from seqgen.plugins.documents.document import Document, Unreadable, clean
from seqgen.plugins.documents.html import read_html
from seqgen.plugins.documents.office import read_docx, read_epub, read_odt
from seqgen.plugins.documents.pdf import read_pdf
from seqgen.store.cache import kept_index_files

# Counts up when the same file gives another text.
VERSION = 1
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
    with path.open("rb") as file:
        about = {"document": _sha256(file), "ending": ending, "version": VERSION}
    if ending in PACKAGES:
        require_packages(str(path), PACKAGES[ending])
        about |= {"package": metadata.version(PACKAGES[ending])}

    extracted: list[Document] = []

    def content() -> dict[str, list[bytes]]:
        with path.open("rb") as file:
            document = open_document(file, ending, str(path))
        extracted.append(document)
        return {"document": [document.text.encode()], "taken": [document.taken.encode()]}

    try:
        text, taken = (
            kept.read_text(encoding="utf-8")
            for kept in kept_index_files(about, content, "document", "taken")
        )
    except (SeqgenError, OSError):
        if not extracted:
            raise
        text, taken = extracted[0].text, extracted[0].taken  # the cache cannot be written
    yield text
    return taken


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
        return READERS[ending](file)
    except Unreadable as error:
        raise SeqgenError(f"{name} {error}") from None


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(BLOCK), b""):
        digest.update(block)
    return digest.hexdigest()
