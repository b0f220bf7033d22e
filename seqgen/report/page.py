"""A self-contained page: no network, light and dark, readable on a phone and on paper.

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

from seqgen import __version__
from seqgen.errors import UsageError
from seqgen.files import write_bytes

# By which a page of seqgen is known, so that nothing else is replaced by one.
MARK = '<meta name="generator" content="seqgen'
STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--faint:#595959;--rule:#d0d0d0;
--c0:#0b57d0;--c1:#b3261e;--c2:#146c2e;--c3:#7a4a00;--c4:#6a1b9a;--c5:#00696d;--panel:#f4f5f7}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--paper:#151719;--faint:#b4b4b4;
--rule:#45484c;--c0:#8ab4f8;--c1:#ff9d94;--c2:#84d39a;--c3:#f0c070;--c4:#d9a6f2;--c5:#7fd6da;
--panel:#212427}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;
max-width:70rem;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2}h2{border-top:1px solid var(--rule);padding-top:1rem;
margin-top:2rem}h3{margin-bottom:.3rem}a{color:var(--c0)}
.beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem}
.one{white-space:nowrap}.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top;
overflow-wrap:break-word}
td.n,th.n{text-align:right}caption,figcaption{text-align:left;color:var(--faint)}
figure{margin:1rem 0}pre,.tokens{font:14px/1.7 ui-monospace,monospace;white-space:pre-wrap;
background:var(--panel);padding:.6rem;border-radius:4px;margin:.3rem 0;max-height:30rem;
overflow:auto}.tokens span{color:#000;border-radius:2px}.tokens span.word{outline:2px solid #000}
.at{outline:2px solid var(--c4)!important}circle.at,rect.at{stroke:var(--c4);stroke-width:4}
.readout{min-height:1.5em;margin:.2rem 0;color:var(--faint)}
:focus-visible{outline:3px solid var(--c0);outline-offset:2px}
svg{max-width:min(100%,46rem);height:auto;font:12px system-ui,sans-serif;fill:var(--ink)}
@media(max-width:34rem){.chart{font-size:21px}.chart circle{r:5px}}
svg .axis{stroke:var(--faint);fill:none}svg .grid{stroke:var(--rule);fill:none}
.key{display:inline-block;border:1px solid var(--faint);width:1.2em;height:.7em;margin:0 .3em 0 1em}
@media print{.tokens,pre{max-height:none}.readout{display:none}
.tokens span{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
SCRIPT = """
for(const box of document.querySelectorAll('.walk')){
const all=[...box.querySelectorAll('.v')],out=box.parentElement.querySelector('.readout');let at=-1;
const show=i=>{if(at>=0)all[at].classList.remove('at');at=Math.max(0,Math.min(all.length-1,i));
const one=all[at];one.classList.add('at');out.textContent=one.dataset.t};
box.addEventListener('keydown',e=>{const by={ArrowRight:1,ArrowLeft:-1,ArrowDown:10,ArrowUp:-10};
if(!all.length||!(e.key in by||e.key==='Home'||e.key==='End'))return;e.preventDefault();
show(e.key==='Home'?0:e.key==='End'?all.length-1:at+by[e.key]);
all[at].scrollIntoView({block:'nearest'})});
box.addEventListener('mouseover',e=>{const i=all.indexOf(e.target.closest('.v'));if(i>=0)show(i)})}
const wait=Number(document.body.dataset.reload);
if(wait)setTimeout(()=>location.reload(),1000*wait);
"""


@dataclass(frozen=True)
class PageSection:
    """A part of a page.

    Attributes:
        title: its heading, as plain text.
        body: HTML.
    """

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The name by which a link finds it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


def page(title: str, sections: Sequence[PageSection], reload: float = 0) -> str:
    """Return a page as HTML.

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
        f'<body data-reload="{reload:g}"><header><h1>{escape(title)}</h1></header>{contents}'
        f"<main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def write_page(path: Path, html: str) -> None:
    """Replace a file by a page, in one step."""
    write_bytes(path, html.encode("utf-8", "replace"))


def is_page(path: Path) -> bool:
    """Return whether a file is a page that seqgen has written."""
    with path.open("rb") as file:
        return MARK.encode() in file.read(1024)


def check_page(path: Path, flag: str) -> None:
    """Refuse a name that is not that of an HTML file.

    Raises:
        UsageError: it has another ending.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{flag} writes .html files: give {path} such a name")


def table(names: Sequence[str], rows: Iterable[Sequence[str]], caption: str, left: int = 1) -> str:
    """Return a table as HTML; the first `left` columns are text, the others figures.

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


def commands(lines: Iterable[str]) -> str:
    """Return command lines as HTML."""
    text = escape(chr(10).join(lines))
    return f'<pre tabindex="0" role="group" aria-label="Commands">{text}</pre>'


def beside(parts: Iterable[str]) -> str:
    """Return parts side by side, where the window is wide enough."""
    return f'<div class="beside">{"".join(f"<div>{part}</div>" for part in parts)}</div>'
