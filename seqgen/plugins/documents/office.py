"""The text of Word documents, OpenDocument texts and e-books: XML files in a zip archive."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, ClassVar
from urllib.parse import unquote
from xml.parsers import expat

from seqgen.plugins.documents.document import (
    MOST_BYTES,
    MOST_EXPANSION,
    Document,
    Unreadable,
    clean,
)
from seqgen.plugins.documents.html import decode_html, text_of_html

# The namespace of titles and descriptions of pictures; other titles are text.
SVG = "xmlns:svg-compatible:1.0"
OLD_WORD = b"\xd0\xcf\x11\xe0"
_SPACES = re.compile(r"[ \t\n\r]+")
Attributes = dict[str, str]


class ZipParts:
    """The parts of a zip archive, read one by one within a limit of their sizes.

    Args:
        file: the archive.

    Raises:
        Unreadable: it is none, or is encrypted.
    """

    def __init__(self, file: IO[bytes]) -> None:
        head = file.read(len(OLD_WORD))
        if head == OLD_WORD:
            raise Unreadable("is encrypted, or a document of an old Word: save it as .docx")
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise Unreadable(f"is damaged: {error}") from None
        size = file.seek(0, 2)
        self._left = max(MOST_BYTES, MOST_EXPANSION * size)
        self.names = set(self._archive.namelist())

    def read(self, name: str) -> bytes:
        """Read a part.

        Raises:
            Unreadable: it is missing, damaged, encrypted or expands too far.
        """
        try:
            facts = self._archive.getinfo(name)
        except KeyError:
            raise Unreadable(f"is damaged: it has no part {name}") from None
        if facts.flag_bits & 1:
            raise Unreadable("is encrypted: remove its password first")
        self._left -= facts.file_size
        if self._left < 0:
            raise Unreadable("expands far beyond its size, as a zip bomb does")
        try:
            return self._archive.read(facts)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
            raise Unreadable(f"is damaged: {error}") from None


def parse_xml(
    raw: bytes,
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] = lambda name: None,
    text: Callable[[str], None] = lambda data: None,
) -> None:
    """Parse XML and call functions for its elements, by local name; `SVG` ones have a prefix.

    Raises:
        Unreadable: it is not well-formed, or declares entities, which may expand without end or
            name other files.
    """

    def refuse(*declared: object) -> None:
        raise Unreadable("declares XML entities, which are not read")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = lambda name, attributes: start(
        _local(name), {_local(key): value for key, value in attributes.items()}
    )
    parser.EndElementHandler = lambda name: end(_local(name))
    parser.CharacterDataHandler = text
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        raise Unreadable(f"is damaged: its XML has an error ({error})") from None


def _local(name: str) -> str:
    space, _, local = name.rpartition(" ")
    return f"svg {local}" if space.endswith(SVG) else local


class _TextOfXml:
    """Collects the text of paragraphs and tables; subclasses know the names of elements.

    Attributes:
        pieces: the text so far.
    """

    # Elements that are skipped with all that is in them.
    skipped: frozenset[str] = frozenset()
    # Elements that end a line; a cell of a table and its row.
    paragraphs: frozenset[str] = frozenset()
    cell, row = "", ""
    # What an element stands for.
    characters: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._skipping = self._cells = 0

    def read(self, raw: bytes) -> str:
        """Return the text of a part."""
        parse_xml(raw, self._start, self._end, self._text)
        return clean("".join(self.pieces))

    def _start(self, name: str, attributes: Attributes) -> None:
        if self._skipping or name in self.skipped:
            self._skipping += 1
            return
        self._cells += name == self.cell
        if name in self.characters:
            self.pieces.append(self.characters[name] * _repeated(attributes))

    def _end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
        elif name in self.paragraphs:
            self.pieces.append(" " if self._cells else "\n")
        elif name == self.cell:
            self._cells -= 1
            if self.pieces[-1:] == [" "]:
                self.pieces.pop()
            self.pieces.append("\t")
        elif name == self.row:
            self.pieces.append("\n")

    def _text(self, data: str) -> None:
        if not self._skipping and self._is_text():
            self.pieces.append(data)

    def _is_text(self) -> bool:
        return True


def _repeated(attributes: Attributes) -> int:
    """Return how many spaces an element of OpenDocument stands for."""
    count = attributes.get("c", "1")
    return min(int(count), 1000) if count.isdecimal() else 1


class _WordText(_TextOfXml):
    """Text of a part of a Word document: runs `t` of paragraphs `p`."""

    # Text boxes come twice, the second time for older versions; `rPr` and such have no text.
    skipped = frozenset({"Fallback", "del", "moveFrom"})
    paragraphs, cell, row = frozenset({"p"}), "tc", "tr"
    characters: ClassVar[dict[str, str]] = {
        "tab": "\t",
        "br": "\n",
        "cr": "\n",
        "noBreakHyphen": "-",
    }

    def __init__(self) -> None:
        super().__init__()
        self._texts = self._properties = 0

    def _start(self, name: str, attributes: Attributes) -> None:
        self._properties += name == "pPr"
        self._texts += name == "t"
        if not self._properties:  # where a tab is a place for tabs
            super()._start(name, attributes)

    def _end(self, name: str) -> None:
        if not self._properties:
            super()._end(name)
        self._properties -= name == "pPr"
        self._texts -= name == "t"

    def _is_text(self) -> bool:
        return self._texts > 0


class _OpenText(_TextOfXml):
    """Text of an OpenDocument text, with white space in paragraphs collapsed; then its notes."""

    skipped = frozenset({"tracked-changes", "annotation", "font-face-decls", "automatic-styles"})
    skipped |= {"note-citation", "svg title", "svg desc"}
    paragraphs, cell, row = frozenset({"p", "h"}), "table-cell", "table-row"
    characters: ClassVar[dict[str, str]] = {"tab": "\t", "line-break": "\n", "s": " "}

    def __init__(self) -> None:
        super().__init__()
        self._paragraphs, self._notes = 0, []
        self._around: list[tuple[list[str], int]] = []

    def read(self, raw: bytes) -> str:
        text = super().read(raw)
        return "\n".join(filter(None, [text, clean("".join(self._notes))]))

    def _start(self, name: str, attributes: Attributes) -> None:
        if name == "note":  # within a sentence, and perhaps within the cell of a table
            self._around.append((self.pieces, self._cells))
            self.pieces, self._cells = [], 0
        self._paragraphs += name in self.paragraphs
        super()._start(name, attributes)

    def _end(self, name: str) -> None:
        super()._end(name)
        self._paragraphs -= name in self.paragraphs
        if name == "note":
            self._notes += self.pieces
            self.pieces, self._cells = self._around.pop()

    def _text(self, data: str) -> None:
        super()._text(_SPACES.sub(" ", data))

    def _is_text(self) -> bool:
        return self._paragraphs > 0


def read_docx(file: IO[bytes]) -> Document:
    """Extract the text of a Word document, then its footnotes and endnotes.

    Raises:
        Unreadable: it is damaged, encrypted or has no text.
    """
    parts = ZipParts(file)
    document = _main_part(parts)
    folder = posixpath.dirname(document)
    notes = (posixpath.join(folder, name) for name in ("footnotes.xml", "endnotes.xml"))
    names = [document, *(name for name in notes if name in parts.names)]
    return _joined(_WordText().read(parts.read(name)) for name in names)


def _main_part(parts: ZipParts) -> str:
    """Return the name of a Word document's main part, as its relationships tell it."""
    found = []

    def start(name: str, attributes: Attributes) -> None:
        if attributes.get("Type", "").endswith("/officeDocument"):
            found.append(attributes.get("Target", "").lstrip("/"))

    parse_xml(parts.read("_rels/.rels"), start)
    return next(iter(found), "word/document.xml")


def read_odt(file: IO[bytes]) -> Document:
    """Extract the text of an OpenDocument text.

    Raises:
        Unreadable: it is damaged, encrypted or has no text.
    """
    parts = ZipParts(file)
    if "META-INF/manifest.xml" in parts.names:
        elements: list[str] = []
        parse_xml(parts.read("META-INF/manifest.xml"), lambda name, _: elements.append(name))
        if "encryption-data" in elements:
            raise Unreadable("is encrypted: remove its password first")
    return _joined([_OpenText().read(parts.read("content.xml"))])


def read_epub(file: IO[bytes]) -> Document:
    """Extract the text of an e-book, chapter by chapter in the order of reading.

    Raises:
        Unreadable: it is damaged, protected or has no text.
    """
    parts = ZipParts(file)
    chapters = list(_chapters(parts))
    if _protected(parts) & {*chapters}:
        raise Unreadable("is protected against copying (DRM)")
    texts = [text_of_html(decode_html(parts.read(name)), is_xhtml=True) for name in chapters]
    return _joined(texts, len(texts), "chapter")


def _chapters(parts: ZipParts) -> Iterator[str]:
    """Yield the names of an e-book's chapters, in the order of its spine."""
    packages, items, spine = [], {}, []

    def container(name: str, attributes: Attributes) -> None:
        if name == "rootfile":
            packages.append(attributes.get("full-path", ""))

    def package(name: str, attributes: Attributes) -> None:
        if name == "item":
            items[attributes.get("id", "")] = attributes
        elif name == "itemref":
            spine.append(attributes.get("idref", ""))

    parse_xml(parts.read("META-INF/container.xml"), container)
    if not packages:
        raise Unreadable("is damaged: it names no contents")
    parse_xml(parts.read(packages[0]), package)
    for item in filter(None, map(items.get, spine)):
        if "html" in item.get("media-type", "html"):
            folder = posixpath.dirname(packages[0])
            yield posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))


def _protected(parts: ZipParts) -> set[str]:
    """Return the names of an e-book's encrypted parts, which may be no more than its fonts."""
    names: set[str] = set()
    if "META-INF/encryption.xml" in parts.names:
        parse_xml(
            parts.read("META-INF/encryption.xml"),
            lambda _, attributes: names.add(unquote(attributes.get("URI", ""))),
        )
    return names


def _joined(texts: Iterator[str] | list[str], count: int = 0, noun: str = "page") -> Document:
    """Join the texts of parts.

    Raises:
        Unreadable: there is none.
    """
    found = list(texts)
    text = "\n".join(filter(None, found))
    if not text:
        raise Unreadable("has no text")
    return Document(text, count, sum(not one for one in found) if count else 0, noun)
