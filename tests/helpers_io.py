"""What several test files share: awkward texts, and ways to cut them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from examples import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# The machine that runs these may be busy: no test fails for being slow.
quick = settings(
    deadline=None,
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

AWKWARD = (
    "\n",
    "\r",
    "\r\n",
    " ",
    "   ",
    "\t",
    "\0",
    "\u2581",  # what sentencepiece writes for a space
    "\u00a0",
    "\u2028",
    "\x85",
    "\x1c",
    "\ufeff",
    "\ufffd",
    "e\u0301",  # a combining accent
    "\u0627\u0644\u0633",  # right to left
    "\u200f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family, joined
    "\U0001f1e9\U0001f1ea",
    "don't",
    "l\u2019eau",
    "''",
    "x_1",
    "3.14",
    "<unk>",
    "<pad>",
    "hello",
    "\u65e5\u672c\u8a9e",
)

characters = st.characters(exclude_categories=("Cs",))
texts = st.lists(
    st.one_of(st.sampled_from(AWKWARD), st.text(characters, max_size=6)), max_size=12
).map("".join)
plain_texts = st.text(st.sampled_from("ab '.\n"), max_size=30)


def cut(text: str, places: Iterable[int]) -> list[str]:
    """Cut a text at places taken modulo its length; some pieces may be empty."""
    ends = [0, *sorted(p % (len(text) + 1) for p in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(ends)]


def cut_bytes(raw: bytes, places: Sequence[int]) -> list[bytes]:
    """The same for bytes, without empty pieces, which mean the end to a reader of blocks."""
    ends = [0, *sorted(p % (len(raw) + 1) for p in places), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(ends) if a < b]


places = st.lists(st.integers(0, 10_000), max_size=6)


def state(*folders: Path) -> dict[str, tuple]:
    """Return all that can be seen of what is in some folders, links not followed."""
    seen = {}
    for path in (p for folder in folders for p in (folder, *folder.rglob("*"))):
        about = path.lstat()
        content = path.readlink() if path.is_symlink() else None
        if content is None and path.is_file():
            content = path.read_bytes()
        seen[str(path)] = (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, content)
    return seen
