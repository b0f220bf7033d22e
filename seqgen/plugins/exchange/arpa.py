"""N-gram models as ARPA files, the text format that SRILM and KenLM read and write.

    \\data\\
    ngram 1=4

    \\1-grams:
    -0.5<tab>word<tab>-0.3

    \\end\\

A line is the log10 of a probability, the n-gram, and the log10 of its backoff weight: 0 where it
is left out. -99 stands for the logarithm of 0.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import whitespace
from typing import Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.models.ngram.arrays import NOTHING, Level
from seqgen.models.ngram.look_ups import look_up
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.plugins.exchange.blank import BlankTokenizer
from seqgen.settings import DataConfig, Documents
from seqgen.store.formats import ImportedModel, ModelToExport
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.word import WhitespaceTokenizer

LN10 = math.log(10)
ZERO = -99.0
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
UNK_OF_CMU = "<UNK>"
# How far the probabilities after a context may be from 1 in sum: files have rounded logarithms.
MOST_OFF = 0.01
# Logarithms past this are of no probability, and leave float32 on the way to nats.
LARGEST = 1e30
# What a file of any disk may promise.
MOST_NGRAMS = 1 << 48
# What KenLM gives an unknown word where a file has no <unk>.
NO_UNKNOWN = -100.0


@dataclass(frozen=True)
class NGramSection:
    """The n-grams of one order in an ARPA file.

    Attributes:
        words: (M, n) int64, numbers in the file's list of words.
        log_probs: (M,) log10.
        backoffs: (M,) log10.
        line: the number of the first n-gram's line.
    """

    words: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray
    line: int


@dataclass(frozen=True)
class Arpa:
    """Contents of an ARPA file: the words in order, and one section per n-gram order."""

    words: list[str]
    sections: list[NGramSection]


def write(model: NGram, words: Sequence[str | None]) -> Iterator[str]:
    """Yield the text of an ARPA file for an n-gram model, piece by piece.

    Args:
        model: any but add-delta's.
        words: what each id is called; None for an id that is left out.

    Raises:
        SeqgenError: the model has no backoff weights.
    """
    if model.config.smoothing == "add-delta":
        raise SeqgenError(
            "add-delta gives all words unseen after a context the same probability, which the "
            "backoff weights of an ARPA file cannot say; export another smoothing"
        )
    levels = model.levels
    written = np.array([word is not None for word in words])
    sizes = [int(written.sum())] + [level.keys.size for level in levels[1:]]
    yield "\\data\\\n" + "".join(f"ngram {n}={size}\n" for n, size in enumerate(sizes, 1))
    texts = [word or "" for word in words]
    for n, level in enumerate(levels, start=1):
        if n > 1:
            parents, last = np.divmod(level.keys, len(words))
            pairs = zip(parents.tolist(), last.tolist(), strict=True)
            texts = [f"{texts[parent]} {words[word]}" for parent, word in pairs]
        shown = texts if n > 1 else [text for text, yes in zip(texts, written, strict=True) if yes]
        kept = written if n == 1 else slice(None)
        columns = [_log10(level.log_probs[kept]), shown]
        if n < len(levels):
            columns.append(_log10(level.backoffs[kept]))
        yield f"\n\\{n}-grams:\n"
        rows = map("\t".join, zip(*columns, strict=True))
        while piece := list(islice(rows, 1 << 16)):
            yield "\n".join(piece) + "\n"
    yield "\n\\end\\\n"


def _log10(nats: np.ndarray) -> list[str]:
    """Format natural logarithms as log10 with enough digits to restore the same float32 values."""
    values = np.where(nats == -np.inf, ZERO, nats / LN10)
    return [f"{value:.9g}" for value in values.tolist()]


def read(lines: Iterable[bytes], name: str) -> Arpa:
    """Parse an ARPA file whose fields are separated by tabs or spaces.

    Args:
        lines: with or without their ends.
        name: what to call the file.

    Raises:
        SeqgenError: it is broken; names the line.
    """
    return _Reader(lines, name).read()


class _Reader:
    """Line-by-line parser of an ARPA file that tracks the current line number for errors."""

    def __init__(self, lines: Iterable[bytes], name: str) -> None:
        self.lines, self.name, self.number = iter(lines), name, 0
        self.line = b""

    def read(self) -> Arpa:
        self._skip_to(b"\\data\\")
        sizes = self._sizes()
        sections: list[NGramSection] = []
        index: dict[bytes, int] = {}
        for n, size in enumerate(sizes, start=1):
            if self.line != b"\\%d-grams:" % n:
                raise self._error(f"\\{n}-grams: was expected, not {self._shown()}")
            sections.append(self._section(n, size, index, last=n == len(sizes)))
            self._next_filled()
        if self.line != b"\\end\\":
            raise self._error(f"\\end\\ was expected, not {self._shown()}")
        try:
            words = [word.decode() for word in index]
        except UnicodeDecodeError as error:
            at = list(index).index(error.object) + sections[0].line
            raise self._error("the word is not UTF-8", at) from None
        if UNK_OF_CMU in words and UNK not in words:
            words[words.index(UNK_OF_CMU)] = UNK
        return Arpa(words, sections)

    def _error(self, what: str, number: int | None = None) -> SeqgenError:
        return SeqgenError(f"{self.name}, line {number or self.number}: {what}")

    def _shown(self) -> str:
        return repr(self.line[:60].decode(errors="replace")) if self.line else "the end of the file"

    def _advance(self) -> bool:
        line = next(self.lines, None)
        self.number += 1
        self.line = (line or b"").strip()
        return line is not None

    def _next_filled(self) -> None:
        while self._advance():
            if self.line:
                return

    def _skip_to(self, heading: bytes) -> None:
        while self._advance():
            if self.line == heading:
                return
        raise self._error(
            f"there is no {heading.decode()}, so this is not an ARPA file; "
            "to train on a text: seqgen train FILE",
            1,
        )

    def _sizes(self) -> list[int]:
        """Parse the header lines `ngram N=COUNT` into the number of n-grams per order."""
        sizes: list[int] = []
        self._next_filled()
        while self.line.startswith(b"ngram"):
            order, _, size = self.line[5:].partition(b"=")
            try:
                number, count = int(order), int(size)
            except ValueError:
                raise self._error(f"ngram N=COUNT was expected, not {self._shown()}") from None
            if number != len(sizes) + 1 or not 0 <= count <= MOST_NGRAMS:
                raise self._error(f"ngram {len(sizes) + 1}=COUNT was expected")
            sizes.append(count)
            self._next_filled()
        if not sizes:
            raise self._error(f"ngram 1=COUNT was expected, not {self._shown()}")
        return sizes

    def _section(self, n: int, size: int, index: dict[bytes, int], last: bool) -> NGramSection:
        first = self.number + 1
        rows: list[list[bytes]] = []
        for line in islice(self.lines, size):
            rows.append(line.split())
            if len(rows[-1]) not in (n + 1, n + 2):
                raise self._no_row(n, size, rows[-1], len(rows) - 1)
        if len(rows) < size:
            raise self._error(
                f"the file ends {self._promised(n, size, len(rows))}", first + len(rows)
            )
        self.number += size
        log_probs = self._numbers([row[0] for row in rows], first)
        positive = np.flatnonzero(log_probs > 0)
        if positive.size:
            raise self._error("a log-probability is above 0", first + int(positive[0]))
        backoffs = [row[n + 1] if len(row) == n + 2 else b"0" for row in rows]
        if n == 1:
            index.update((row[1], i) for i, row in enumerate(rows))
            if len(index) < size:
                seen: set[bytes] = set()
                twice = next(i for i, r in enumerate(rows) if r[1] in seen or seen.add(r[1]))
                raise self._error("the word occurs twice", first + twice)
        try:
            words = [index[word] for row in rows for word in row[1 : n + 1]]
        except KeyError as error:
            strange = error.args[0]
            at = next(i for i, row in enumerate(rows) if strange in row[1 : n + 1])
            shown = repr(strange.decode(errors="replace"))
            raise self._error(f"{shown} is not among the 1-grams", first + at) from None
        table = np.array(words, dtype=np.int64).reshape(size, n)
        # The highest order has no use for backoffs.
        return NGramSection(table, log_probs, self._numbers([] if last else backoffs, first), first)

    def _no_row(self, n: int, size: int, row: list[bytes], at: int) -> SeqgenError:
        """Build the error for a line that is not an n-gram, after `at` valid n-grams."""
        self.line = b" ".join(row)
        shown = "an empty line" if not row else self._shown()
        number = self.number + 1 + at
        if not row or self.line.startswith(b"\\"):
            return self._error(f"{shown} {self._promised(n, size, at)}", number)
        return self._error(
            f"a probability, {n} words and perhaps a backoff were expected, not {shown}", number
        )

    def _promised(self, n: int, size: int, at: int) -> str:
        return f"after {at} {n}-grams of the {size} that \\data\\ promises"

    def _numbers(self, texts: list[bytes], first: int) -> np.ndarray:
        try:
            values = np.array(list(map(float, texts)))
        except ValueError:
            values = np.array([0.0 if _is_number(text) else math.nan for text in texts])
        wrong = np.flatnonzero(np.isnan(values) | (np.abs(values) > LARGEST) & (values != -np.inf))
        if wrong.size:
            shown = repr(texts[int(wrong[0])].decode(errors="replace"))
            raise self._error(f"{shown} is not a number", first + int(wrong[0]))
        return values


def _is_number(text: bytes) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return True
    return False


def model_of(arpa: Arpa, ids: Mapping[str, int], vocab_size: int, unk_id: int, name: str) -> NGram:
    """Build an n-gram model from a parsed ARPA file.

    As in KenLM, a file without `<unk>` gives it 10^-100. An n-gram whose first n - 1 words are not
    there as an n-gram of their own is kept: they are added, with the probability that they have
    without it.

    Args:
        arpa: what was read.
        ids: of every word of it.
        vocab_size: V; ids that stand for no word of the file get no probability.
        unk_id: the unknown word's id.
        name: what to call the file.

    Raises:
        SeqgenError: an n-gram occurs twice; names the line.
    """
    number = np.array([ids[word] for word in arpa.words])
    order = len(arpa.sections)
    grams = [number[section.words] for section in arpa.sections]
    log_probs = [_nats(section.log_probs) for section in arpa.sections]
    backoffs = [_nats(section.backoffs) for section in arpa.sections]
    backoffs[-1] = np.zeros(log_probs[-1].size)
    levels: list[Level] = []
    while len(levels) < order:
        n = len(levels) + 1
        if n == 1:
            levels.append(_unigrams(grams[0], log_probs[0], backoffs[0], vocab_size))
            if UNK not in arpa.words:
                levels[0].log_probs[unk_id] = NO_UNKNOWN * LN10
            continue
        parents = _nodes(levels, grams[n - 1][:, :-1], vocab_size)
        absent = np.unique(grams[n - 1][parents == NOTHING, :-1], axis=0)
        if absent.size:
            # Added below; then everything is numbered afresh.
            grams[n - 2] = np.concatenate([grams[n - 2], absent])
            log_probs[n - 2] = np.append(log_probs[n - 2], np.full(len(absent), np.nan))
            backoffs[n - 2] = np.append(backoffs[n - 2], np.zeros(len(absent)))
            levels = []
            continue
        keys = parents * vocab_size + grams[n - 1][:, -1]
        at = np.argsort(keys, kind="stable")
        twice = np.flatnonzero(np.diff(keys[at]) == 0)
        if twice.size:
            line = arpa.sections[n - 1].line + int(at[twice + 1].min())
            raise SeqgenError(f"{name}, line {line}: the {n}-gram occurs twice")
        levels.append(Level(keys[at], log_probs[n - 1][at], backoffs[n - 1][at]))
    _fill_gaps(levels, vocab_size)
    model = NGram(NGramConfig(vocab_size=vocab_size, order=order, smoothing=None))
    model.fill(levels)
    return model


def _nats(log10: np.ndarray) -> np.ndarray:
    return np.where(log10 == ZERO, -np.inf, log10 * LN10)


def _unigrams(words: np.ndarray, log_probs: np.ndarray, backoffs: np.ndarray, size: int) -> Level:
    level = Level(np.arange(size), np.full(size, -np.inf), np.zeros(size))
    level.log_probs[words[:, 0]] = log_probs
    level.backoffs[words[:, 0]] = backoffs
    return level


def _nodes(levels: Sequence[Level], words: np.ndarray, size: int) -> np.ndarray:
    """Look up the ids of n-grams (M, n) in their level; `NOTHING` for those not stored."""
    ids = words[:, 0]
    for n in range(1, words.shape[1]):
        keys = levels[n].keys
        sought = np.where(ids == NOTHING, NOTHING, ids * size + words[:, n])
        at = np.searchsorted(keys, sought)
        inside = at < keys.size
        at[~inside] = 0
        present = inside & (keys[at] == sought) if keys.size else inside
        ids = np.where(present, at, NOTHING)
    return ids


def _words_of(levels: Sequence[Level], n: int, size: int) -> np.ndarray:
    """Reconstruct the word ids (M, n) of all stored n-grams of order n."""
    if n == 1:
        return levels[0].keys[:, None]
    parents, last = np.divmod(levels[n - 1].keys, size)
    return np.column_stack([_words_of(levels, n - 1, size)[parents], last])


def _fill_gaps(levels: Sequence[Level], size: int) -> None:
    """Assign backed-off probabilities to the n-grams that were added as missing contexts."""
    for n, level in enumerate(levels, start=1):
        gaps = np.flatnonzero(np.isnan(level.log_probs))
        if gaps.size:
            words = _words_of(levels, n, size)[gaps]
            level.log_probs[gaps] = _backed_off(levels, words, size)


def _backed_off(levels: Sequence[Level], words: np.ndarray, size: int) -> np.ndarray:
    """Compute the log-probabilities (M,) of unstored n-grams (M, n) by backing off."""
    contexts, shorter = _nodes(levels, words[:, :-1], size), levels[words.shape[1] - 2]
    weights = look_up(shorter.backoffs, contexts, 0.0)
    return weights + _log_probs(levels, words[:, 1:], size)


def _log_probs(levels: Sequence[Level], words: np.ndarray, size: int) -> np.ndarray:
    """Compute the log-probability (M,) of the last word of each n-gram (M, n) given the rest."""
    at = _nodes(levels, words, size)
    log_probs = look_up(levels[words.shape[1] - 1].log_probs, at, 0.0)
    unseen = at == NOTHING
    if unseen.any():
        log_probs[unseen] = _backed_off(levels, words[unseen], size)
    return log_probs


def sums_of(levels: Sequence[Level], size: int) -> list[np.ndarray]:
    """Sum the probabilities after each stored context of 0 to N - 1 words.

    Where s is what those after the shorter context sum to, those after a context with the backoff
    weight b sum to b s, and for each n-gram that is stored p more, less b times what it would have
    had by backing off.
    """
    sums = [np.exp(levels[0].log_probs).sum(keepdims=True)]
    for n in range(2, len(levels) + 1):
        contexts, words = (_words_of(levels, m, size) for m in (n - 1, n))
        shorter = np.full(len(contexts), sums[0][0])
        for m in range(1, n - 1):
            at = _nodes(levels, contexts[:, -m:], size)
            shorter = look_up(sums[m], at, shorter)
        parents, weights = levels[n - 1].keys // size, np.exp(levels[n - 2].backoffs)
        unstored = weights[parents] * np.exp(_log_probs(levels, words[:, 1:], size))
        more = np.exp(levels[n - 1].log_probs) - unstored
        sums.append(weights * shorter + np.bincount(parents, more, len(contexts)))
    return sums


def _sums(levels: Sequence[Level], size: int, words: list[int]) -> dict[str, Any]:
    """Report how many contexts have probabilities that do not sum to 1.

    Args:
        levels: the n-grams.
        size: V.
        words: the ids that the file has.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = sums_of(levels, size)
        found[1:2] = [sums[words] for sums in found[1:2]]
        sums = np.nan_to_num(np.concatenate(found))
    off = int(np.count_nonzero(~(np.abs(sums - 1) <= MOST_OFF)))
    ends = {"least": float(sums.min()), "most": float(sums.max())}
    return {"probability_sums": {"contexts": sums.size, "off": off, **ends}} if off else {}


NEWLINE = "\\n"
# How characters that separate words are written, for tokens that may contain them.
ESCAPES = {"\\": "\\\\", "\n": NEWLINE, " ": "\\s", "\t": "\\t", "\r": "\\r"}


def read_model(
    lines: Iterable[bytes], path: Path, like: tuple[Tokenizer, DataConfig] | None
) -> ImportedModel:
    """Import an n-gram model from an ARPA file; see `store.formats.LineImporter`.

    Without `like`, tokens are what white space separates, and documents are lines (or a stream,
    if the file knows a newline but no end).
    """
    content = read(lines, str(path))
    tokenizer, data = like or _tokens_of(content)
    ids = _ids(content, names_of(tokenizer, data.documents), path)
    size = tokenizer.vocab_size
    model = model_of(content, ids, size, tokenizer.unk_id, str(path))
    ngrams = [
        {"order": n, "stored": len(section.words), "possible": size**n}
        | {"held_out_unseen": None, "discounts": []}
        for n, section in enumerate(content.sections, start=1)
    ]
    framing = Framing.of(tokenizer, data.documents)
    facts = {"ngrams": ngrams, **_sums(model.levels, size, [*ids.values()])}
    return ImportedModel("ngram", model, tokenizer, data, framing, facts)


def write_model(exported: ModelToExport) -> Iterator[bytes]:
    """Export an n-gram model as pieces of an ARPA file; see `store.formats.Exporter`."""
    if exported.model.orders is None:
        raise SeqgenError(f"{exported.name} is not an n-gram model; ARPA files hold only those")
    words: list[str | None] = [None] * exported.model.vocab_size
    for word, token in names_of(exported.tokenizer, exported.documents).items():
        words[token] = word
    return (chunk.encode() for chunk in write(exported.model, words))


def names_of(tokenizer: Tokenizer, documents: Documents) -> dict[str, int]:
    """Map the ARPA name of every token that can occur to its id.

    Raises:
        SeqgenError: two tokens have the same name.
    """
    ids = [i for i in range(tokenizer.vocab_size) if i != tokenizer.pad_id]
    if documents == "line":
        ids.remove(tokenizer.newline_id)
    special = {tokenizer.bos_id: BOS, tokenizer.eos_id: EOS, tokenizer.unk_id: UNK}
    # Tokens that never hold white space stand as they are, for other tools read the same text.
    escapes = str.maketrans(ESCAPES if tokenizer.lossless else {"\n": NEWLINE})
    visible = _visible if tokenizer.lossless else _visible_ascii
    names: dict[str, int] = {}
    for i, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        text = special.get(i) or "".join(map(visible, piece.translate(escapes)))
        if names.setdefault(text, i) != i:
            raise SeqgenError(f"two tokens are {text!r} in an ARPA file, which has words only")
    return names


def _visible(character: str) -> str:
    """Escape a white-space character as its code, such as \\x0b for a vertical tab."""
    return f"\\x{ord(character):02x}" if character.isspace() else character


def _visible_ascii(character: str) -> str:
    """Escape a white-space character only if it separates words in an ARPA file."""
    return _visible(character) if character in whitespace else character


def _tokens_of(content: Arpa) -> tuple[Tokenizer, DataConfig]:
    """Build the tokenizer and the data settings that fit the words of an ARPA file."""
    documents = _documents(content)
    special = {BOS, EOS, UNK} | ({NEWLINE} if documents == "stream" else set())
    words = [word for word in content.words if word not in special]
    # Only ASCII white space separates words here, as in KenLM; in other texts, Unicode's does.
    one_each = all(len(word.split()) == 1 for word in words)
    tokenizer = (WhitespaceTokenizer if one_each else BlankTokenizer)(words)
    return tokenizer, DataConfig(tokenizer=tokenizer.kind, documents=documents, val="none")


def _documents(content: Arpa) -> Documents:
    """Choose "stream" for a file with a newline word but no end symbol, else "line"."""
    if NEWLINE not in content.words:
        return "line"
    log_probs = dict(zip(content.words, content.sections[0].log_probs, strict=True))
    return "stream" if log_probs.get(EOS, ZERO) == ZERO else "line"


def _ids(content: Arpa, names: Mapping[str, int], path: Path) -> dict[str, int]:
    """Map every word of an ARPA file to its token id.

    Raises:
        SeqgenError: the tokenizer has no such token; names the line.
    """
    for i, word in enumerate(content.words):
        if word not in names:
            line = content.sections[0].line + i
            raise SeqgenError(f"{path}, line {line}: the tokenizer has no token {word!r}")
    return {word: names[word] for word in content.words}
