"""Self-contained HTML page: no network access, light and dark themes, printable.

Everything that comes from a text or a model passes through `escape`. The page's policy lets its
one script run, by its hash, and nothing else; it lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from seqgen import __version__, wording
from seqgen.files import write_bytes

if TYPE_CHECKING:
    from seqgen.scoring.passages import Passages
    from seqgen.store.loaded import LoadedModel

Found = TypeVar("Found")

# By which a page of seqgen is known, so that nothing else is replaced by one.
MARK = '<meta name="generator" content="seqgen'
# What a page has within it, from the files beside this one.
STYLE, SCRIPT = (
    "\n" + Path(__file__).with_name(f"page.{kind}").read_text(encoding="utf-8")
    for kind in ("css", "js")
)


@dataclass(frozen=True)
class PageSection:
    """Section of an HTML page.

    Attributes:
        title: its heading, as plain text.
        body: HTML.
    """

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """Id of the section, for links."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


class ReportSection(Generic[Found]):
    """Section of the page that `seqgen report` writes; plugins add their own.

    Plugins offer objects of subclasses; see `hooks.Plugin.sections`. A page has the section once,
    with a part for each model.

    Attributes:
        title: its heading, as plain text.
        after: the heading of the section that it follows; without that one it comes last.
        absence: what it says, as plain text, where `look` finds nothing.
        key: of its figures in the records of `seqgen report --json`; "" for none.
    """

    title: str
    after: str
    absence: str = ""
    key: str = ""

    def look(self, loaded: LoadedModel, passages: Passages) -> Found | None:
        """Analyse how a model treats some passages.

        Args:
            loaded: the model, of text.
            passages: the text's first tokens, 1,000 to 20,000 if it is long enough.

        Returns:
            What the other methods show of it; None if the section does not apply to the model.

        Raises:
            SeqgenError: it cannot be known; the section then says why.
        """
        raise NotImplementedError

    def body(self, found: Found) -> str:
        """Render the results as HTML."""
        raise NotImplementedError

    def commands(self, found: Found, model: str, file: str) -> list[str]:
        """List command lines that reproduce the section.

        Args:
            found: what was found.
            model: what to write after -m, quoted for a shell.
            file: the text file that was looked at, quoted; "" for the model's held-out text.
        """
        return []

    def record(self, found: Found) -> Any:
        """Return the results as figures for the JSON record."""
        return None


def page(title: str, sections: Sequence[PageSection], reload: int = 0) -> str:
    """Render an HTML page of sections.

    Args:
        title: its heading, as plain text.
        sections: its parts; with more than two there is a table of contents.
        reload: after how many seconds a browser reads the page again; 0 for never.
    """
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none';style-src 'unsafe-inline';script-src 'sha256-{digest}'"
    links = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>' for section in sections
    )
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(sections) > 2 else ""
    body = "".join(
        f'<section id="{section.anchor}" aria-label="{escape(section.title)}">'
        f"<h2>{escape(section.title)}</h2>{section.body}</section>"
        for section in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'{MARK} {__version__}"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f'<body data-reload="{reload}"><header><h1>{escape(title)}</h1></header>{contents}'
        f"<main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def figure(caption: str, label: str, body: str, kinds: str = "walk", tag: str = "div") -> str:
    """Render an HTML figure; the arrow keys step through its parts of class `v`.

    Args:
        caption: as HTML.
        label: is read out for it, as plain text.
        body: as HTML.
        kinds: its classes.
        tag: of the element that holds the body.
    """
    return (
        f'<figure><figcaption>{caption}</figcaption><{tag} class="{kinds}" tabindex="0" '
        f'role="group" aria-label="{escape(label)}">{body}</{tag}>'
        '<p class="readout" aria-live="polite"></p></figure>'
    )


def visible(text: str) -> str:
    """Replace control characters in a text, except newlines, by visible ones."""
    return wording.replace_unprintable(text, kept="\n\t") or "\u2205"


def write_page(path: Path, html: str) -> None:
    """Write an HTML page to a file atomically."""
    write_bytes(path, html.encode("utf-8", "replace"))


def is_page(path: Path) -> bool:
    """Check whether a file is an HTML page written by seqgen."""
    with path.open("rb") as file:
        return MARK.encode() in file.read(1024)


def table(names: Sequence[str], rows: Iterable[Sequence[str]], caption: str, left: int = 1) -> str:
    """Render an HTML table; the first `left` columns are left-aligned text.

    Args:
        names: of the columns.
        rows: cells as plain text.
        caption: what the table shows.
        left: columns that are text.
    """

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = (
            (' scope="col"' if tag == "th" else "") + ("" if i < left else ' class="n"')
            for i in range(len(row))
        )
        return "".join(
            f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{cells('th', names)}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def side_by_side(parts: Iterable[str]) -> str:
    """Lay out HTML parts side by side if the window is wide enough."""
    return f'<div class="beside">{"".join(f"<div>{part}</div>" for part in parts)}</div>'
