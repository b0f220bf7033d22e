"""Statistics of a text, and warnings about what in it would hurt training."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.settings import DataConfig
from seqgen.text.overlap import LEAST, Overlap, overlap_of_lines
from seqgen.text.reading import Surveyor, Text, document_facts, lines
from seqgen.text.split import split_text
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.wording import ShortRepr, plural

# Lines that repeat so often are boilerplate, as are those with such words.
OFTEN = 5
PHRASES = re.compile(
    r"project gutenberg|all rights reserved|terms of (?:use|service)|privacy policy|accept cookies"
    r"|enable javascript|lorem ipsum",
    re.IGNORECASE,
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
    words are what white space separates.

    Attributes:
        files: names.
        documents: what was taken from each file that is no plain text, by its name.
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
    alphabet, words, repeats = Counter(), Counter(), Counter()
    lengths: list[int] = []
    longest: list[tuple[int, int, str]] = []
    heaps: list[tuple[int, int]] = []
    crlf = mojibake = control = read = 0
    for number, line in enumerate(lines(surveyor.watch(text.chunks()), text.name)):
        alphabet.update(line)
        crlf += line.endswith("\r\n")
        content = line.rstrip("\r\n")
        mojibake += _mojibake(content)
        control += 0 if content.isprintable() else len(CONTROL.findall(content))
        lengths.append(len(content) if content.strip() else 0)
        if len(longest) < 3 or len(content) > longest[-1][0]:
            longest = sorted([*longest, (len(content), -number, content[:SHOWN])], reverse=True)[:3]
        if len(content) >= LEAST or PHRASES.search(content):
            repeats[content] += 1
        words.update(found := content.split())
        read += len(found)
        heaps.append((read, len(words)))
    facts = surveyor.facts
    if facts.characters == 0:
        raise SeqgenError(f"{text.name} contains no text")
    split = split_text(text, facts, config, CharTokenizer)
    least = 1 if config.documents == "line" else LEAST
    held_out = None if split.val is None else overlap_of_lines(split.train, split.val, least)
    report = DataReport(
        files=[str(path) for path in text.paths],
        documents=dict(_documents(text)),
        left_out=dict(left_out),
        bytes=facts.bytes,
        characters=facts.characters,
        lines=facts.lines,
        empty_lines=lengths.count(0),
        crlf_lines=crlf,
        words=words.total(),
        vocabulary=len(words),
        alphabet=len(alphabet),
        rare_characters=sum(count == 1 for count in alphabet.values()),
        median_line=int(np.median([n for n in lengths if n] or [0])),
        longest_lines=[{"line": -n, "characters": size, "text": t} for size, n, t in longest],
        repeated_lines=_share(repeats.total() - len(repeats), repeats.total()),
        near_copies=_near_copies(list(repeats)),
        boilerplate=_boilerplate(repeats),
        scripts=_scripts(alphabet),
        zipf=_power(list(enumerate(sorted(words.values(), reverse=True), start=1)), *RANKS),
        heaps=_power(heaps, first=RANKS[1]),
        held_out=None
        if held_out is None
        else {"lines": held_out.items, "trained_on": held_out.shared},
        unseen_words=_unseen_words(text, read),
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


def _near_copies(distinct: Sequence[str]) -> dict[str, float] | None:
    """Estimate the share of near-duplicate lines by MinHash (Broder 1997) and LSH."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        return None
    looked = distinct[:: -(-len(distinct) // MOST_LINES) or 1]
    index, found = MinHashLSH(threshold=ALIKE, num_perm=HASHES), 0
    for number, line in enumerate(looked):
        hashes = MinHash(HASHES, hashfunc=zlib.crc32)
        hashes.update_batch({line[i : i + GRAM].encode() for i in range(len(line) - GRAM + 1)})
        found += bool(index.query(hashes))
        index.insert(number, hashes)
    return {"lines": len(looked), "share": _share(found, len(looked))}


def _boilerplate(repeats: Counter[str]) -> dict[str, Any]:
    found = [(n, line) for line, n in repeats.items() if n >= OFTEN or PHRASES.search(line)]
    most = sorted(found, key=lambda pair: -pair[0])[:5]
    return {
        "share": _share(sum(n for n, _ in found), repeats.total()),
        "most_frequent": [{"count": n, "text": line[:SHOWN]} for n, line in most],
    }


def _power(
    points: Sequence[tuple[int, int]], first: float = 1, last: float = np.inf
) -> dict[str, Any]:
    """Fit the exponent of a power law for x from `first` to `last`; also return some points.

    It is fitted by least squares of the logarithms of points at equal distances of these.
    """
    points = [point for point in points if point[0]]
    places = np.unique(np.geomspace(1, max(1, len(points)), POINTS).astype(int)) - 1
    some = [points[place] for place in places.tolist()] if points else []
    fitted = np.array([point for point in some if first <= point[0] <= last], float)
    enough = len(fitted) > 2
    exponent = float(np.polyfit(*np.log(fitted).T, 1)[0]) if enough else None
    return {"exponent": exponent, "points": some}


def _unseen_words(text: Text, words: int) -> list[float]:
    """Compute, for each tenth of a text, the share of words that no other tenth contains."""
    size = max(1, -(-words // PARTS))
    home: dict[str, int] = {}
    parts = list(_parts(text, size))
    for number, part in enumerate(parts):
        for word in part:
            home[word] = number if home.get(word, number) == number else -1
    return [
        _share(sum(n for word, n in part.items() if home[word] == number), part.total())
        for number, part in enumerate(parts)
    ]


def _parts(text: Text, size: int) -> Iterator[Counter[str]]:
    """Yield the word counts of consecutive parts of `size` words; the last may be shorter."""
    part: Counter[str] = Counter()
    left = size
    for line in lines(text.chunks(), text.name):
        words = line.split()
        while len(words) >= left:
            part.update(words[:left])
            yield part
            words, part, left = words[left:], Counter(), size
        part.update(words)
        left -= len(words)
    if part:
        yield part


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
