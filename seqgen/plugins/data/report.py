"""Statistics of a text, and warnings about what in it would hurt training.

The text is read as a stream, and what is kept of its words and lines is bounded: see `counting`.
"""

from __future__ import annotations

import contextlib
import re
import textwrap
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.files import input_title
from seqgen.plugins.data.counting import MOST_WORDS, Curve, LineCounts, WordCounts
from seqgen.settings import DataConfig
from seqgen.text.overlap import LEAST, Overlap, overlap_of_lines
from seqgen.text.reading import Surveyor, Text, decode_file, document_facts, lines
from seqgen.text.split import split_text
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.wording import ShortRepr, plural

# Lines that repeat so often are boilerplate, as are those with such words, in whatever case.
OFTEN = 5
PHRASES = (
    "project gutenberg",
    "all rights reserved",
    "terms of use",
    "terms of service",
    "privacy policy",
    "accept cookies",
    "enable javascript",
    "lorem ipsum",
)
# UTF-8 that was read as Windows-1252: the first byte of a character, and what follows it.
MOJIBAKE = re.compile(
    "[\u00c2-\u00f4][\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160"
    "\u2039\u0152\u017d\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153"
    "\u017e\u0178]+"
)
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Near-copies: distinct lines whose n-grams of characters are so alike, by so many hashes.
GRAM, ALIKE, HASHES, MOST_LINES = 5, 0.8, 64, 50_000
# Parts of the text that are compared with each other, and the words of one to say anything.
PARTS, ENOUGH_WORDS = 10, 200
# Characters of a line that is shown; points of a curve; the ranks that Zipf's law is fitted to.
SHOWN, POINTS, RANKS = 60, 40, (10, 1000)
# What is worth a warning: shares of lines, and how much more often the end has words of its own.
MUCH, FOREIGN = 0.01, 1.5


@dataclass(frozen=True, repr=False)
class DataReport(ShortRepr):
    """Record of `seqgen data --json`.

    Lines that are compared have `LEAST` characters and more, or phrases of web pages and licences;
    words are what white space separates. Figures about copies of lines and about words are
    estimates if a text has more of them than `counting` keeps.

    Attributes:
        files: names.
        documents: what was taken from each file that is no plain text, by its name.
        samples: the beginning of the text that was taken from each of them, by its name.
        left_out: why each file of a folder or pattern that is left out is not read, by its name.
        bytes: of UTF-8.
        characters: code points.
        lines: all of them.
        empty_lines: those of white space.
        crlf_lines: those that end with CRLF.
        words: how many.
        vocabulary: distinct words.
        alphabet: distinct characters.
        rare_characters: those of them that occur once.
        median_line: characters of the median line that is not empty.
        longest_lines: number from 0, characters and beginning of three.
        repeated_lines: share of the compared lines that occurred before.
        near_copies: share of their distinct ones that are nearly an earlier one, and how many were
            looked at; None without datasketch.
        boilerplate: share of the compared lines that occur `OFTEN` times or have phrases of web
            pages and licences, with the most frequent of them.
        scripts: share of letters of each script.
        zipf: the exponent of frequency by rank (Zipf 1935), and points (rank, frequency).
        heaps: the exponent of the vocabulary by words read, and points (words, vocabulary).
        held_out: the compared lines of what `train` would hold out (of documents, all lines), and
            how many are trained on.
        unseen_words: of each tenth of the text, the share of words that the others do not have.
        mojibake: places where UTF-8 was read as Windows-1252, or was not readable (U+FFFD).
        control_characters: how many.
        warnings: what would hurt training, a line each.
    """

    files: list[str]
    documents: dict[str, str]
    samples: dict[str, str]
    left_out: dict[str, str]
    bytes: int
    characters: int
    lines: int
    empty_lines: int
    crlf_lines: int
    words: int
    vocabulary: int
    alphabet: int
    rare_characters: int
    median_line: int
    longest_lines: list[dict[str, Any]]
    repeated_lines: float
    near_copies: dict[str, float] | None
    boilerplate: dict[str, Any]
    scripts: dict[str, float]
    zipf: dict[str, Any]
    heaps: dict[str, Any]
    held_out: dict[str, float] | None
    unseen_words: list[float]
    mojibake: int
    control_characters: int
    warnings: list[str]


def data_report(text: Text, config: DataConfig, left_out: Mapping[str, str]) -> DataReport:
    """Read a text and compute its statistics and warnings.

    Args:
        text: it.
        config: what `train` would hold out of it.
        left_out: why files beside it are not read, by name.

    Raises:
        SeqgenError: it is empty, cannot be read, or is no UTF-8.
    """
    surveyor = Surveyor()
    alphabet, lengths = Counter(), Counter()
    words, copies, heaps = WordCounts(), LineCounts(), Curve()
    longest: list[tuple[int, int, str]] = []
    crlf = mojibake = control = 0
    for number, line in enumerate(lines(surveyor.watch(text.chunks()), text.name)):
        alphabet.update(line)
        crlf += line.endswith("\r\n")
        content = line.rstrip("\r\n")
        mojibake += _mojibake(content)
        control += 0 if content.isprintable() else len(CONTROL.findall(content))
        lengths[len(content) if content.strip() else 0] += 1
        if len(longest) < 3 or len(content) > longest[-1][0]:
            longest = sorted([*longest, (len(content), -number, content[:SHOWN])], reverse=True)[:3]
        has_phrase = _has_phrase(content)
        if len(content) >= LEAST or has_phrase:
            copies.add(content, has_phrase)
        words.add(content.split())
        heaps.add(words.read, words.distinct)
    copies.finish()
    facts = surveyor.facts
    if facts.characters == 0:
        raise SeqgenError(f"{text.name} contains no text")
    split = split_text(text, facts, config, CharTokenizer)
    least = 1 if config.documents == "line" else LEAST
    held_out = None if split.val is None else overlap_of_lines(split.train, split.val, least)
    again = _SecondPass(text, words, copies)
    report = DataReport(
        files=[input_title(str(path)) for path in text.paths],
        documents=(documents := dict(_documents(text))),
        samples={name: _sample(Path(name)) for name in documents},
        left_out=dict(left_out),
        bytes=facts.bytes,
        characters=facts.characters,
        lines=facts.lines,
        empty_lines=lengths[0],
        crlf_lines=crlf,
        words=words.read,
        vocabulary=words.distinct,
        alphabet=len(alphabet),
        rare_characters=sum(count == 1 for count in alphabet.values()),
        median_line=_median(lengths),
        longest_lines=[{"line": -n, "characters": size, "text": t} for size, n, t in longest],
        repeated_lines=_share(copies.total - copies.counts.size, copies.total),
        near_copies=again.near_copies,
        boilerplate=again.boilerplate,
        scripts=_scripts(alphabet),
        zipf=_power(_by_rank(words.highest()), *RANKS),
        heaps=_power(heaps.spread(POINTS), first=RANKS[1]),
        held_out=None
        if held_out is None
        else {"lines": held_out.items, "trained_on": held_out.shared},
        unseen_words=again.unseen_words,
        mojibake=mojibake,
        control_characters=control,
        warnings=[],
    )
    return replace(report, warnings=list(_warnings(report, held_out, config)))


def _documents(text: Text) -> Iterator[tuple[str, str]]:
    """Yield the names of the files that are documents, and what was taken from each."""
    for path in text.paths:
        facts = document_facts(path)
        if facts is not None and facts.taken:
            yield str(path), facts.taken


def _sample(path: Path) -> str:
    """Return the beginning of a document's text on one line, in about `SHOWN` characters."""
    begin = next(filter(None, map(str.lstrip, decode_file(path))), "")[: 10 * SHOWN]
    return textwrap.shorten(begin, SHOWN, placeholder=" ...") or begin[:SHOWN]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _mojibake(line: str) -> int:
    """Count encoding errors in a line: UTF-8 decoded as Windows-1252, and U+FFFD."""
    if line.isascii():
        return 0
    return line.count("\ufffd") + sum(map(_is_mojibake, MOJIBAKE.findall(line)))


def _is_mojibake(part: str) -> bool:
    # Bytes that Windows-1252 does not have are read as the control characters of Latin-1.
    raw = b"".join(c.encode("cp1252" if ord(c) > 0x9F else "latin-1") for c in part)
    try:
        decoded = raw.decode()
    except UnicodeDecodeError:
        return False
    return len(decoded) < len(part) and min(decoded) > "\x9f"


def _scripts(alphabet: Counter[str]) -> dict[str, float]:
    """Compute the share of letters by script, the first word of a letter's Unicode name."""
    scripts: Counter[str] = Counter()
    for character, count in alphabet.items():
        if character.isalpha():
            scripts[unicodedata.name(character, "UNNAMED").split()[0].lower()] += count
    return {name: _share(count, scripts.total()) for name, count in scripts.most_common()}


def _has_phrase(line: str) -> bool:
    """Check whether a line has a phrase of licences and web pages."""
    folded = line.lower()
    return any(phrase in folded for phrase in PHRASES)


def _median(lengths: Counter[int]) -> int:
    """Compute the median length of the lines that are not empty, rounded down."""
    sizes = sorted(length for length in lengths if length)
    before = np.cumsum([lengths[size] for size in sizes])
    if not sizes:
        return 0
    middle = (before[-1] - 1) // 2, before[-1] // 2
    low, high = (sizes[int(np.searchsorted(before, place, "right"))] for place in middle)
    return (low + high) // 2


class _NearCopies:
    """Finds near-copies among lines, by MinHash (Broder 1997) and LSH.

    Raises:
        ImportError: datasketch is not installed.
    """

    def __init__(self) -> None:
        from datasketch import MinHash, MinHashLSH

        self._new, self._index = MinHash, MinHashLSH(threshold=ALIKE, num_perm=HASHES)
        self._lines = self._found = 0

    def look_at(self, line: str) -> None:
        """Look at the next line, which no earlier one is equal to."""
        hashes = self._new(HASHES, hashfunc=zlib.crc32)
        hashes.update_batch({line[i : i + GRAM].encode() for i in range(len(line) - GRAM + 1)})
        self._found += bool(self._index.query(hashes))
        self._index.insert(self._lines, hashes)
        self._lines += 1

    @property
    def facts(self) -> dict[str, float]:
        """Number of lines examined, and the share of near-duplicates among them."""
        return {"lines": self._lines, "share": _share(self._found, self._lines)}


class _SecondPass:
    """Facts of a second pass over a text, for which its words and lines have been counted.

    Attributes:
        near_copies: see `DataReport`.
        boilerplate: see `DataReport`.
        unseen_words: see `DataReport`.
    """

    def __init__(self, text: Text, words: WordCounts, copies: LineCounts) -> None:
        often = (copies.counts >= OFTEN) | copies.marked
        counts, first = copies.counts[often], copies.first[often]
        most = np.argsort(-counts, kind="stable")[:5]
        self._shown = dict.fromkeys(first[most].tolist(), "")
        self._copies, self._place, self._near = copies, 0, None
        with contextlib.suppress(ImportError):
            self._near = _NearCopies()
        every = -(-copies.first.size // MOST_LINES) or 1
        self._looked = iter(copies.first[::every].tolist())
        self._next = next(self._looked, None)
        self.unseen_words = self._read(text, words)
        self.near_copies = self._near and self._near.facts
        self.boilerplate = {
            "share": _share(int(counts.sum()), copies.total),
            "most_frequent": [
                {"count": count, "text": shown}
                for count, shown in zip(counts[most].tolist(), self._shown.values(), strict=True)
            ],
        }

    def _read(self, text: Text, words: WordCounts) -> list[float]:
        """Read the text; compute the share of each tenth's words that no other tenth contains."""
        size = max(1, -(-words.read // PARTS))
        homes: dict[str, int | None] = dict.fromkeys(words.sampled())
        part, number, left = set(), 0, size
        for line in lines(text.chunks(), text.name):
            self._look_at(line.rstrip("\r\n"))
            found = line.split()
            while len(found) >= left:
                part.update(found[:left])
                _note_homes(homes, part, number)
                found, part, number, left = found[left:], set(), number + 1, size
            part.update(found)
            left -= len(found)
            if len(part) > MOST_WORDS:
                _note_homes(homes, part, number)
                part = set()
        _note_homes(homes, part, number)
        own = [0] * (number + (left < size))
        for word, home in homes.items():
            if home is not None and home >= 0:
                own[home] += words.counts[word]
        sizes = [min(size, words.read - n * size) for n in range(len(own))]
        return [_share(n / words.share, whole) for n, whole in zip(own, sizes, strict=True)]

    def _look_at(self, line: str) -> None:
        """Look at a line, if it is one of those that were chosen."""
        compared = len(line) >= LEAST or _has_phrase(line)
        if not compared or not self._copies.is_sampled(line):
            return
        if self._place in self._shown:
            self._shown[self._place] = line[:SHOWN]
        if self._place == self._next:
            if self._near is not None:
                self._near.look_at(line)
            self._next = next(self._looked, None)
        self._place += 1


def _note_homes(homes: dict[str, int | None], part: Iterable[str], number: int) -> None:
    """Note for each word of a part whether it is in this part alone; -1 if it is in several."""
    for word in part:
        home = homes.get(word, -1)
        if home != -1:
            homes[word] = number if home in (None, number) else -1


def _by_rank(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Choose some ranks at equal distances of their logarithms, from 1; return each with its count.

    Args:
        counts: the highest first.
    """
    ranks = np.unique(np.geomspace(1, max(1, len(counts)), POINTS).astype(int))
    return [(rank, counts[rank - 1]) for rank in ranks.tolist()] if counts else []


def _power(
    some: Sequence[tuple[int, int]], first: float = 1, last: float = np.inf
) -> dict[str, Any]:
    """Fit the exponent of a power law to points, for x from `first` to `last`.

    It is fitted by least squares of the logarithms.
    """
    fitted = np.array([point for point in some if first <= point[0] <= last], float)
    enough = len(fitted) > 2
    exponent = float(np.polyfit(*np.log(fitted).T, 1)[0]) if enough else None
    return {"exponent": exponent, "points": some}


def _warnings(report: DataReport, held_out: Overlap | None, config: DataConfig) -> Iterable[str]:
    """Yield warnings about what would hurt training, one per line."""
    if held_out is not None and held_out.shared > MUCH * held_out.items:
        yield held_out.warning("the training part")
    *before, end = report.unseen_words
    usual = float(np.median(before)) if before else 0.0
    cut = config.val != "none" and config.documents == "stream"
    if cut and report.words >= ENOUGH_WORDS * PARTS and end > FOREIGN * usual:
        yield (
            f"the end is unlike the rest: {end:.1%} of its words occur nowhere else, of other "
            f"tenths {usual:.1%}; a held-out end measures another author or subject: shuffle "
            "whole documents, or give --val FILE"
        )
    if report.mojibake:
        yield (
            f"UTF-8 read as Windows-1252, or U+FFFD, in {plural(report.mojibake, 'place')}: the "
            "text was damaged before; decode it again"
        )
    if report.repeated_lines > 0.1:
        yield f"{report.repeated_lines:.1%} of the longer lines are copies of earlier ones"
    if report.near_copies and report.near_copies["share"] > 0.1:
        yield f"{report.near_copies['share']:.1%} of the distinct longer lines are near-copies"
    if report.boilerplate["share"] > MUCH:
        first = report.boilerplate["most_frequent"][0]["text"]
        share = report.boilerplate["share"]
        yield f"{share:.1%} of the compared lines are boilerplate, such as {first!r}"
    if 0 < report.crlf_lines < report.lines - 1:
        yield (
            f"{report.crlf_lines:,} of {report.lines:,} lines end with CRLF and others with LF: "
            "train with --newlines lf"
        )
    if report.control_characters:
        yield f"{plural(report.control_characters, 'control character')}: each is its own token"
    if report.rare_characters > 0.2 * report.alphabet:
        yield (
            f"{report.rare_characters:,} of {report.alphabet:,} characters occur once: "
            "--tokenizer byte or bpe spends nothing on them"
        )
