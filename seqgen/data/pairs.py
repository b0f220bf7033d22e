"""Reading pairs of a source and a target: from one file with tabs, or from two files."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.encoding import Sampling
from seqgen.data.framing import Framing
from seqgen.data.labels import Labels
from seqgen.data.sources import Sources, TokenSources, Vectors
from seqgen.data.text import Survey, lines, survey
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides; the same object for both if the vocabulary is joint.

    Attributes:
        target: that of the targets.
        source: that of the sources; None for vectors, which have no tokens; the labels of texts
            that are written from those.
    """

    target: Tokenizer
    source: Tokenizer | Labels | None

    @property
    def joint(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source is self.target


class Readable(Protocol):
    """A text that can be read any number of times, such as `data.text.Text`."""

    def chunks(self) -> Iterator[str]:
        """Yield it from the start, in pieces."""


class Pairs(ABC):
    """Pairs that can be read any number of times: lines, without their newlines.

    Only `\\n` ends a line, as everywhere; either side may be empty. Sources may also be vectors
    (`data.vector_pairs`).
    """

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str | Vectors, str]]:
        """Yield every source and its target.

        Raises:
            SeqgenError: a line is no pair; names it.
        """

    def sources(self) -> Iterator[str]:
        """Yield every source as a line, newline included."""
        return (source + "\n" for source, _ in self)

    def targets(self) -> Iterator[str]:
        """Yield every target as a line, newline included."""
        return (target + "\n" for _, target in self)

    @property
    def source_features(self) -> int | None:
        """The width of sources that are vectors; None for text."""
        return None

    def encoded_sources(
        self, tokenizer: Tokenizer | Labels | None, sampling: Sampling | None
    ) -> Sources:
        """Return every source as a model reads it; see `encode_sources`."""
        return encode_sources(self.sources(), tokenizer, sampling)

    def some(self, keep: np.ndarray) -> Pairs:
        """Return some of the pairs.

        Args:
            keep: which, a bool for each.
        """
        return SomePairs(self, keep)

    def survey(self) -> Survey:
        """Return the characters, bytes, lines and hash of the pairs as lines with a tab."""
        return survey(f"{source}\t{target}\n" for source, target in self)


@dataclass(frozen=True)
class TabPairs(Pairs):
    """One pair per line: source, tab, target. Only the first tab separates; others are text.

    Args:
        text: the file or files.
        name: what an error calls it.
    """

    text: Readable
    name: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines(self.text.chunks(), self.name), start=1):
            source, tab, target = line.removesuffix("\n").partition("\t")
            if not tab:
                raise SeqgenError(
                    f"{self.name}, line {number} has no tab; each line is source<TAB>target "
                    "(for two files give --source and --target)"
                )
            yield source, target


@dataclass(frozen=True)
class FilePairs(Pairs):
    """Line n of one text with line n of another. Tabs are text.

    Args:
        source, target: the texts.
        names: what an error calls them.
    """

    source: Readable
    target: Readable
    names: tuple[str, str]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        texts = (self.source, self.target)
        sides = tuple(
            lines(text.chunks(), name) for text, name in zip(texts, self.names, strict=True)
        )
        for count, (source, target) in enumerate(itertools.zip_longest(*sides)):
            if source is None or target is None:
                raise self._unequal(count, source is None, sides)
            yield source.removesuffix("\n"), target.removesuffix("\n")

    def _unequal(
        self, count: int, source_ended: bool, sides: tuple[Iterator[str], Iterator[str]]
    ) -> SeqgenError:
        """Return the error that one side has `count` lines; the other's next has been read."""
        more = count + 1 + sum(1 for _ in sides[source_ended])
        counts = (count, more) if source_ended else (more, count)
        of_each = (f"{name} has {n:,} lines" for name, n in zip(self.names, counts, strict=True))
        return SeqgenError(
            f"{' and '.join(of_each)}; line n of one must be the translation of line n of the other"
        )


@dataclass(frozen=True)
class SomePairs(Pairs):
    """Some of the pairs of others.

    Args:
        pairs: all of them.
        keep: which are taken, a bool for each.
    """

    pairs: Pairs
    keep: np.ndarray

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return itertools.compress(self.pairs, self.keep)


@dataclass(frozen=True)
class Fitting:
    """A corpus without the pairs that are too long, and how many those were."""

    corpus: Corpus
    dropped: int


def encode_pairs(pairs: Pairs, tokenizers: Tokenizers, sampling: Sampling | None = None) -> Corpus:
    """Encode pairs: targets as documents, BOS before and EOS after; sources with EOS at the end.

    Args:
        pairs: read twice.
        tokenizers: of both sides.
        sampling: draw the segmentation of both sides.

    Raises:
        SeqgenError: as reading the pairs does.
    """
    targets = encode_corpus(pairs.targets(), tokenizers.target, "line", sampling)
    return replace(targets, sources=pairs.encoded_sources(tokenizers.source, sampling))


def encode_sources(
    source_lines: Iterable[str], tokenizer: Tokenizer | Labels, sampling: Sampling | None = None
) -> TokenSources:
    """Encode sources, one per line: texts with EOS at the end, so that none is empty; or labels.

    See `Tokenizer.as_source` for what they begin with.
    """
    if isinstance(tokenizer, Labels):
        return tokenizer.sources(source_lines)
    framing = Framing.of(tokenizer, "line")
    read = encode_corpus(source_lines, tokenizer, "line", sampling, framing)
    if tokenizer.source_bos_id is None:
        return TokenSources(read.tokens, read.ends, read.oov)
    tokens = np.insert(read.tokens, read.starts, tokenizer.source_bos_id)
    ends = read.ends + np.arange(1, read.ends.size + 1)
    return TokenSources(tokens, ends, read.oov, framing=2)


def drop_long(corpus: Corpus, max_source_len: int | None, max_target_len: int | None) -> Fitting:
    """Drop the pairs with a side that is too long; nothing is truncated.

    Args:
        corpus: with sources.
        max_source_len: the most tokens or vectors of a source, EOS not counted; None for any.
        max_target_len: the most tokens of a target, EOS not counted; None for any.
    """
    kept = fitting(corpus, max_source_len, max_target_len)
    dropped = int(np.count_nonzero(~kept))
    return Fitting(corpus.take(np.flatnonzero(kept)) if dropped else corpus, dropped)


def fitting(corpus: Corpus, max_source_len: int | None, max_target_len: int | None) -> np.ndarray:
    """Return which pairs have no side that is too long, (D,) of bool; see `drop_long`."""
    kept = np.ones(len(corpus.ends), dtype=bool)
    sides = (
        (corpus.sources.lengths - corpus.sources.framing, max_source_len),
        (corpus.ends - corpus.starts - 1, max_target_len),
    )
    for lengths, most in sides:
        if most is not None:
            kept &= lengths <= most
    return kept
