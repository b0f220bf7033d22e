"""Detection of copying: passages of a text that occur in a model's training text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from seqgen import store
from seqgen.errors import SeqgenError
from seqgen.generation.sample import sample
from seqgen.plugins.novelty.suffix_index import MOST, SuffixIndex, kept_index
from seqgen.settings import DataConfig
from seqgen.settings.generation import SampleOptions
from seqgen.store.loaded import LoadedModel
from seqgen.text.reading import Surveyor, Text, decode_file, document_ending, join_files
from seqgen.text.split import held_out_fraction, held_out_lines, held_out_path, split_text
from seqgen.text.tokenfile import is_token_file
from seqgen.training.datasets.prepared import survey_text
from seqgen.wording import column

# The lengths of n-grams whose share is reported.
LENGTHS = (5, 10, 15, 20, 30, 50)
# The settings that decide which part of a text a model is trained on.
SPLIT = ("documents", "newlines", "split_seed", "val")
# Characters of a copied part that a table shows.
SHOWN = 50
# n-grams by their unit ("characters" or "tokens") and n; None where no text has so many.
Shares = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Copied:
    """Record of a text in `seqgen novelty --json`; its keys in order.

    Attributes:
        index: which text it is.
        longest: characters of its longest part that occurs in the known text.
        start: where that part begins in the text, in characters.
        file: where it occurs for the first time; None if nothing is copied.
        line: of that file, counted from 0.
        source_start: where it begins in that line, in characters.
        share: of n-grams that occur in the known text.
        copied: the part.
    """

    index: int = column("text", "count")
    longest: int = column("copied", "count")
    start: int
    file: str | None = column("place", shown="place")
    line: int | None
    source_start: int | None
    share: Shares
    copied: str = column("text copied", "one_line", shown="excerpt")

    @property
    def place(self) -> str:
        """File and line, from 1, where the part occurs; a dash if nothing is copied."""
        return "-" if self.file is None else f"{self.file}:{self.line + 1}"

    @property
    def excerpt(self) -> str:
        """Beginning of the part, for a table."""
        return self.copied[:SHOWN]


@dataclass(frozen=True)
class Copies:
    """Copied passages of some texts, and their shares of known n-grams.

    Attributes:
        texts: what each of them has.
        share: of the n-grams of all of them.
    """

    texts: list[Copied]
    share: Shares

    @property
    def longest(self) -> Copied:
        """Text with the longest copied passage; the first of equals."""
        return max(self.texts, key=lambda one: one.longest)

    def figures(self) -> dict[str, Any]:
        """Collect the longest copied passage, its place, and the shares."""
        keys = ("longest", "file", "line", "copied")
        return {key: getattr(self.longest, key) for key in keys} | {"share": self.share}


@dataclass(frozen=True)
class KnownText:
    """Indexed text that others may have copied from.

    Attributes:
        index: of its bytes.
        files: each with the number of lines of all files before it.
        kept: the numbers of its lines in those files, where it has only some; else None.
        ends: gives where the tokens of a text end, in bytes; None for a text without a model.
    """

    index: SuffixIndex
    files: Sequence[tuple[str, int]]
    kept: np.ndarray | None
    ends: Callable[[str], np.ndarray] | None

    def place(self, at: int) -> tuple[str, int, int]:
        """Convert a byte offset to file, line and column in characters."""
        before = self.index.text[:at]
        number = int(np.count_nonzero(before == ord("\n")))
        begins = self.index.bytes_at(max(0, at - (1 << 20)), min(at, 1 << 20)).rpartition(b"\n")[2]
        line = number if self.kept is None else int(self.kept[number])
        name, first = next(one for one in reversed(self.files) if one[1] <= line)
        return name, line - first, len(begins.decode("utf-8", "ignore"))


def _training_text(loaded: LoadedModel) -> tuple[Text, Callable[[], Iterator[str]], int]:
    """Find a model's training text: the text, a reader of the training part, and its lines.

    Raises:
        SeqgenError: it is not known, is gone, or has changed; says so.
    """
    stored, known = loaded.stored, _known(loaded.stored)
    try:
        paths = store.text_of(known)
    except SeqgenError:
        raise SeqgenError(f"the training text of {stored.name} is gone") from None
    if is_token_file(paths[0]):
        raise SeqgenError(f"{stored.name} was trained on a token file")
    config = loaded.data
    text = Text(paths, config.newlines, document_ending(config.documents), config.as_text)
    facts = survey_text(text)
    if facts.sha256 != known["sha256"]:  # earlier versions joined the files
        text = replace(text, ending="")
        facts = survey_text(text)
    if facts.sha256 != known["sha256"]:
        raise SeqgenError(f"{', '.join(map(str, paths))} has changed since {stored.name} read it")
    if held_out_path(config.val) is not None:
        config = replace(config, val="none")  # a file of its own is held out, perhaps gone
    return text, split_text(text, facts, config, loaded.tokenizer).train, facts.lines


def _known(stored: store.StoredModel) -> dict:
    """Read the record of a model's training text; all parts of a mixture must agree."""
    if isinstance(stored, store.StoredMixture):
        known = [(_known(part), part.settings("data", DataConfig)) for part in stored.parts]
        read = {(text["sha256"], *(getattr(c, name) for name in SPLIT)) for text, c in known}
        if len(read) > 1:
            raise SeqgenError(f"the parts of {stored.name} were trained on different texts")
        return known[0][0]
    found = stored.record.get("data")
    if not isinstance(found, dict) or not {"files", "sha256"} <= found.keys():
        raise SeqgenError(f"no training text of {stored.name} is known")
    return found


def known_to(loaded: LoadedModel) -> KnownText:
    """Index the training part of a model's text; the index is cached.

    Raises:
        SeqgenError: the text is not known, or there is no index and it is gone or has changed; or
            the model learns from pairs or labels.
    """
    if loaded.conditioning.is_source or loaded.labels is not None:
        raise SeqgenError(f"{loaded.stored.name} does not learn from text alone")
    data, known = loaded.data, _known(loaded.stored)

    def read() -> tuple[bytes, dict]:
        text, part, lines = _training_text(loaded)
        # As far as the beginning of the next file.
        whole = (
            join_files([decode_file(path, text.as_text), ["."]], text.ending) for path in text.paths
        )
        files = list(zip(map(str, text.paths), map(_newlines, whole), strict=True))
        return "".join(part()).encode(), {"files": _with_lines_before(files), "lines": lines}

    about = {"sha256": known["sha256"], "files": known["files"], "tokens": loaded.tokenizer.kind}
    about |= {name: getattr(data, name) for name in SPLIT}
    index, facts = kept_index(about, read)
    share = None if data.val == "none" else held_out_fraction(data.val)
    kept = None
    if data.documents == "line" and share is not None:
        kept = np.flatnonzero(~held_out_lines(facts["lines"], share, data.split_seed))
    return KnownText(index, facts["files"], kept, loaded.tokenizer.byte_ends)


def known_files(files: Iterable[tuple[str, Callable[[], Iterator[str]]]]) -> KnownText:
    """Index several files as one text; the index is cached.

    Args:
        files: the name of each, and how to read it.
    """
    files, surveyor = list(files), Surveyor()
    counted = [(name, _newlines(surveyor.watch(chunks()))) for name, chunks in files]

    def read() -> tuple[bytes, dict]:
        return "".join(chunk for _, chunks in files for chunk in chunks()).encode(), {}

    index, _ = kept_index({"sha256": surveyor.facts.sha256}, read)
    return KnownText(index, _with_lines_before(counted), None, None)


def _newlines(chunks: Iterable[str]) -> int:
    return sum(chunk.count("\n") for chunk in chunks)


def _with_lines_before(files: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    before = np.cumsum([0, *(lines for _, lines in files)]).tolist()
    return [(name, first) for (name, _), first in zip(files, before, strict=False)]


def novelty(known: KnownText, texts: Sequence[str]) -> Copies:
    """Find the passages of texts that occur in a known text."""
    raw = [text.encode() for text in texts]
    copied, counts = [], {}
    matches = known.index.matches(raw)
    for number, (text, content, lengths) in enumerate(zip(texts, raw, matches, strict=True)):
        own = _counts(known, text, content, lengths)
        for key, count in own.items():
            counts[key] = counts.get(key, 0) + count
        start, part = _longest(known.index, content, lengths)
        at = known.index.first(part.encode()) if part else None
        place = (None, None, None) if at is None else known.place(at)
        copied.append(Copied(number, len(part), start, *place, _shares(own), part))
    return Copies(copied, _shares(counts))


def _longest(index: SuffixIndex, content: bytes, lengths: np.ndarray) -> tuple[int, str]:
    """Find the longest known passage of a text; return its start and characters.

    Of parts of `MOST` bytes and more it is the longest in bytes.
    """
    ends = _character_ends(content)
    begins = np.append(0, ends)[: ends.size]
    if lengths.size and lengths[begins].max() >= MOST:
        starts = np.zeros_like(lengths)
        starts[begins] = lengths[begins]
        begin, size = index.longest(content, starts)
        start = int(np.searchsorted(begins, begin))
    else:  # a match may end within a character
        characters = np.searchsorted(ends, begins + lengths[begins], "right") - np.arange(ends.size)
        start = int(characters.argmax()) if ends.size else 0
        begin = int(begins[start]) if ends.size else 0
        size = int(lengths[begin]) if ends.size else 0
    return start, content[begin : begin + size].decode("utf-8", "ignore")


def _character_ends(content: bytes) -> np.ndarray:
    """Compute the end offset of each character of a UTF-8 text, (N,)."""
    begins = np.flatnonzero((np.frombuffer(content, np.uint8) & 0xC0) != 0x80)
    return np.append(begins[1:], len(content)) if content else begins


def _counts(
    known: KnownText, text: str, content: bytes, lengths: np.ndarray
) -> dict[tuple[str, int], np.ndarray]:
    """Count the known n-grams and all n-grams of a text, (2,), by unit and n."""
    units = {"characters": _character_ends(content)}
    if known.ends is not None:
        units["tokens"] = known.ends(text)
    counts = {}
    for unit, ends in units.items():
        begins = np.append(0, ends)[: ends.size]
        for n in LENGTHS:
            last = ends[n - 1 :]
            first = begins[: last.size]
            found = lengths[first] >= last - first
            for at in np.flatnonzero((last - first > MOST) & (lengths[first] >= MOST)).tolist():
                found[at] = known.index.first(content[first[at] : last[at]]) is not None
            counts[unit, n] = np.array([np.count_nonzero(found), last.size])
    return counts


def _shares(counts: dict[tuple[str, int], np.ndarray]) -> Shares:
    shares: Shares = {}
    for (unit, n), (found, count) in counts.items():
        shares.setdefault(unit, {})[str(n)] = float(found / count) if count else None
    return shares


def like_lengths(text: str, others: Sequence[str]) -> list[str]:
    """Cut consecutive pieces from a text with the lengths of other texts."""
    ends = np.cumsum([0, *map(len, others)]).tolist()
    return [text[begin:end] for begin, end in pairwise(ends) if text[begin:end]]


def sample_fixed_texts(loaded: LoadedModel) -> list[str]:
    """Sample 16 texts from the start of a text, with a fixed seed."""
    options = SampleOptions(num_samples=16, max_tokens=200, seed=0)
    return [record.text for record in sample(loaded, [""], options)]
