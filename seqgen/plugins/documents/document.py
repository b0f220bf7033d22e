"""A document: its text, and what was taken from the file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from seqgen.errors import SeqgenError
from seqgen.wording import plural

# An archive may expand to so many bytes in all, or to so many times its size.
MOST_BYTES, MOST_EXPANSION = 1 << 26, 200
# What no text has: control characters, and characters that UTF-8 cannot encode.
_FOREIGN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n{3,}")


class Unreadable(SeqgenError):  # noqa: N818
    """Error: why a document cannot be read, as a phrase that follows its name."""


@dataclass(frozen=True)
class Document:
    """The text of a document.

    Attributes:
        text: it, with a newline at its end.
        parts: how many parts of which kind were read, such as pages.
        without_text: how many of them have no text.
        noun: what one of them is called.
    """

    text: str
    parts: int = 0
    without_text: int = 0
    noun: str = "page"

    @property
    def taken(self) -> str:
        """Summary of the extracted text: "12 pages, 34,567 characters, 2 pages without text"."""
        said = [plural(self.parts, self.noun)] if self.parts else []
        said.append(plural(len(self.text), "character"))
        if self.without_text:
            said.append(f"{plural(self.without_text, self.noun)} without text")
        return ", ".join(said)


def clean(text: str) -> str:
    """Remove control characters, white space at the ends of lines, and long runs of empty lines."""
    text = _FOREIGN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")
    return _BLANK_LINES.sub("\n\n", text) + "\n" if text.strip() else ""
