"""The text of HTML pages, by the parser of the standard library."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from html.parser import HTMLParser
from typing import IO

from seqgen.plugins.documents.document import Document, Unreadable, clean

# Elements whose text is not shown, or that lead to other pages.
HIDDEN = {"script", "style", "template", "noscript", "nav", "svg", "annotation", "iframe"}
HIDDEN |= {"object", "select", "textarea", "title"}
# Elements with an empty line before and after them, and those that are lines of their own.
PARAGRAPHS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "ul", "ol", "dl"}
PARAGRAPHS |= {"table", "figure"}
LINES = {"address", "article", "aside", "body", "caption", "dd", "details", "div", "dt", "footer"}
LINES |= {"fieldset", "figcaption", "form", "header", "hr", "legend", "li", "main", "section"}
LINES |= {"summary", "tr"}
CELLS = {"td", "th"}
CDATA = "<![CDATA["
# How a page names its encoding near its start, as HTML and XML do.
_ENCODING = re.compile(
    rb"""<(?:meta[^>]*?charset|\?xml[^>]*?encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)
_DECLARED_WITHIN = 2048
# Codecs of Python alone.
NO_CODECS_OF_PAGES = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
# The codecs that browsers use in place of those that pages declare. A page whose declaration can be
# read as ASCII is not in UTF-16.
LARGER_CODECS = {
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "utf-8"),
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **{"big5": "big5hkscs", "euc_kr": "cp949", "iso8859-9": "cp1254", "shift_jis": "cp932"},
}
_SPACES = re.compile(r"[ \t\n\r\f]+")
_COMMENT = re.compile(r"<!--(?:-?>|.*?--(?:!|\s*)>)", re.DOTALL)
_MARKUP = re.compile(r"<[a-zA-Z/!?]")


def read_html(file: IO[bytes]) -> Document:
    """Extract the text of a page.

    Raises:
        Unreadable: it has no text.
    """
    page = decode_html(file.read())
    text = text_of_html(page, is_xhtml=page.lstrip().startswith("<?xml"))
    if not text:
        raise Unreadable("has no text besides its tags")
    return Document(text)


def decode_html(raw: bytes) -> str:
    """Decode a page: by its byte order mark, or as UTF-8, as it declares, or as Windows-1252.

    In a page that declares its encoding, damaged bytes become U+FFFD; if half or more of its
    characters beyond ASCII would, the page is read as Windows-1252.
    """
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, "replace")
    if (text := _decoded(raw, "utf-8")) is not None:
        return text
    found = _ENCODING.search(raw[:_DECLARED_WITHIN])
    declared = _codec_of(found[1].decode("ascii")) if found else None
    if declared is not None:
        if (text := _decoded(raw, declared)) is not None:
            return text
        text = raw.decode(declared, "replace")
        if 2 * text.count("\ufffd") < sum(not c.isascii() for c in text):
            return text
    return raw.decode("cp1252", "replace")


def _decoded(raw: bytes, encoding: str) -> str | None:
    """Decode bytes; None if they are not in this encoding."""
    try:
        return raw.decode(encoding)
    except ValueError:
        return None


def _codec_of(label: str) -> str | None:
    """Name the codec that browsers use for a label (WHATWG Encoding, 4.2); None if there is none.

    Many labels mean a larger encoding: pages that claim to be in Latin-1 are in Windows-1252.
    """
    try:
        codec = codecs.lookup(label.lower().removeprefix("x-"))
        codec.decode(b"", "replace")
    except (LookupError, ValueError):
        return None
    is_text = getattr(codec, "_is_text_encoding", True) and codec.name not in NO_CODECS_OF_PAGES
    return LARGER_CODECS.get(codec.name, codec.name) if is_text else None


def text_of_html(page: str, is_xhtml: bool = False) -> str:
    """Return the text of a page; paragraphs and the like are lines of their own.

    Args:
        page: the page.
        is_xhtml: CDATA sections are text, as in XML; in HTML they are comments.

    Raises:
        Unreadable: it has the number of a character in thousands of digits.
    """
    parser = _TextParser(is_xhtml)
    try:
        parser.feed(page)
        parser.close()
    except ValueError as error:
        raise Unreadable(f"is damaged: {error}") from None
    return clean("".join(parser.pieces))


class _TextParser(HTMLParser):
    """Collects the text of a page in `pieces`, in time proportional to its length.

    Tags, comments and declarations that the end of the page cuts off are dropped, as in HTML
    (WHATWG, 13.2.5). `HTMLParser.close` reads the rest again from each of them in some versions of
    Python.
    """

    def __init__(self, is_xhtml: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._is_xhtml = is_xhtml
        self.pieces: list[str] = []
        self._hidden: list[str] = []
        self._count_hidden: Counter[str] = Counter()
        self._kept_spaces = 0

    def close(self) -> None:
        """Read what is left of the page, unless it is an unfinished tag or hidden."""
        if not self.cdata_elem and not _MARKUP.match(self.rawdata):
            super().close()

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Return where the comment at `i` ends; -1 if it does not."""
        found = _COMMENT.match(self.rawdata, i)
        return found.end() if found else -1

    def parse_html_declaration(self, i: int) -> int:
        """Return where the declaration at `i` ends; Python's versions differ in CDATA sections."""
        if self.rawdata.startswith(CDATA, i):
            return self.parse_marked_section(i)
        return super().parse_html_declaration(i)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Return where the section at `i` ends, such as `<![if IE]>`; -1 if it does not."""
        is_text = self.rawdata.startswith(CDATA, i)
        end = self.rawdata.find("]]>" if is_text else ">", i)
        if is_text and self._is_xhtml and end >= 0:
            self.handle_data(self.rawdata[i + len(CDATA) : end])
        return -1 if end < 0 else self.rawdata.index(">", end) + 1

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in HIDDEN:
            self._hidden.append(tag)
            self._count_hidden[tag] += 1
        elif tag == "br":
            self._write("\n")
        elif tag in PARAGRAPHS or tag in LINES:
            self._break_line(1 + (tag in PARAGRAPHS))
        elif tag in CELLS and self.pieces and not self.pieces[-1].endswith("\n"):
            self._write("\t")
        self._kept_spaces += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag not in HIDDEN:  # <script/> of XHTML is empty
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._count_hidden[tag]:
            while (last := self._hidden.pop()) != tag:
                self._count_hidden[last] -= 1
            self._count_hidden[tag] -= 1
        elif tag in PARAGRAPHS or tag in LINES:
            self._break_line(1 + (tag in PARAGRAPHS))
        self._kept_spaces = max(0, self._kept_spaces - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._kept_spaces:
            self._write(data)
            return
        text = _SPACES.sub(" ", data)
        at_start = not self.pieces or self.pieces[-1].endswith(("\n", " ", "\t"))
        if text := text.removeprefix(" ") if at_start else text:
            self._write(text)

    def _write(self, text: str) -> None:
        if text and not self._hidden:
            self.pieces.append(text)

    def _break_line(self, newlines: int) -> None:
        """End the line, with an empty line after it if `newlines` is 2."""
        tail = "".join(piece[-2:] for piece in self.pieces[-2:])[-2:] if self.pieces else "\n\n"
        ended = len(tail) - len(tail.rstrip("\n"))
        self._write("\n" * (newlines - ended))
