"""Pairs of source and target: from tab-separated files, two files, vectors, or labels."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from seqgen.errors import SeqgenError, UsageError
from seqgen.text.corpus import Corpus, encode_corpus
from seqgen.text.framing import Framing
from seqgen.text.labels import Labels, names_of
from seqgen.text.reading import LINE_END, Survey, Text, lines, survey
from seqgen.text.sources import Sources, TokenSources, Vectors, VectorSources, content_of
from seqgen.text.vector_files import VectorFile, is_vector_file, open_vectors

if TYPE_CHECKING:
    from seqgen.text.encoding import Sampling
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Tokenizers:
    """Source and target tokenizer; the same object if the vocabulary is joint.

    Attributes:
        target: that of the targets.
        source: that of the sources; None for vectors, which have no tokens; the labels of texts
            that are written from those.
    """

    target: Tokenizer
    source: Tokenizer | Labels | None

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source is self.target


class Readable(Protocol):
    """Protocol of a text that can be read repeatedly, such as `text.reading.Text`."""

    def chunks(self) -> Iterator[str]:
        """Yield the text in pieces, from the start."""


class Pairs(ABC):
    """Base class of source and target lines that can be read repeatedly.

    Only `\\n` ends a line, as everywhere; either side may be empty. Sources may also be vectors
    (`VectorPairs`).
    """

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str | Vectors, str]]:
        """Yield every source and its target.

        Raises:
            SeqgenError: a line is no pair; names it.
        """

    def sources(self) -> Iterator[str]:
        """Yield every source as a line with its newline."""
        return (source + "\n" for source, _ in self)

    def targets(self) -> Iterator[str]:
        """Yield every target as a line with its newline."""
        return (target + "\n" for _, target in self)

    @property
    def source_features(self) -> int | None:
        """Width of vector sources; None for text."""
        return None

    def encoded_sources(
        self, tokenizer: Tokenizer | Labels | None, sampling: Sampling | None
    ) -> Sources:
        """Encode every source as model input; see `encode_sources`."""
        return encode_sources(self.sources(), tokenizer, sampling)

    def some(self, keep: np.ndarray) -> Pairs:
        """Select pairs by a mask.

        Args:
            keep: which, a bool for each.
        """
        return PairSubset(self, keep)

    def survey(self) -> Survey:
        """Count characters, bytes and lines of the pairs as tab-separated lines, and hash them."""
        return survey(f"{source}\t{target}\n" for source, target in self)


def split_at_tab(text: Readable, name: str, form: str) -> Iterator[tuple[str, str]]:
    """Split each line at its first tab; `form` describes a valid line in the error.

    Raises:
        SeqgenError: a line has none.
    """
    for number, line in enumerate(lines(text.chunks(), name), start=1):
        before, tab, after = line.removesuffix("\n").partition("\t")
        if not tab:
            raise SeqgenError(f"{name}, line {number} has no tab; each line is {form}")
        yield before, after


@dataclass(frozen=True)
class TabPairs(Pairs):
    """Pairs in one file: source, tab, target. Only the first tab separates.

    Args:
        text: the file or files.
        name: what an error calls it.
    """

    text: Readable
    name: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        form = "source<TAB>target (for two files give --source and --target)"
        return split_at_tab(self.text, self.name, form)


@dataclass(frozen=True)
class FilePairs(Pairs):
    """Pairs in two files: line n of one with line n of the other. Tabs are text.

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
        """Build the error that the two files have different numbers of lines."""
        more = count + 1 + sum(1 for _ in sides[source_ended])
        counts = (count, more) if source_ended else (more, count)
        of_each = (f"{name} has {n:,} lines" for name, n in zip(self.names, counts, strict=True))
        return SeqgenError(
            f"{' and '.join(of_each)}; line n of one must be the translation of line n of the other"
        )


@dataclass(frozen=True)
class PairSubset(Pairs):
    """A subset of pairs, selected by a mask.

    Args:
        pairs: all of them.
        keep: which are taken, a bool for each.
    """

    pairs: Pairs
    keep: np.ndarray

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return itertools.compress(self.pairs, self.keep)


def encode_pairs(pairs: Pairs, tokenizers: Tokenizers, sampling: Sampling | None = None) -> Corpus:
    """Encode pairs: targets between BOS and EOS, sources followed by EOS.

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
    """Encode sources, one per line: texts followed by EOS, or labels.

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


def drop_long(corpus: Corpus, max_source_len: int | None, max_target_len: int | None) -> Corpus:
    """Drop pairs with a side over its length limit; nothing is truncated.

    Args:
        corpus: with sources.
        max_source_len: the most tokens or vectors of a source, EOS not counted; None for any.
        max_target_len: the most tokens of a target, EOS not counted; None for any.
    """
    kept = mask_fitting_pairs(corpus, max_source_len, max_target_len)
    return corpus if kept.all() else corpus.take(np.flatnonzero(kept))


def mask_fitting_pairs(
    corpus: Corpus, max_source_len: int | None, max_target_len: int | None
) -> np.ndarray:
    """Mark the pairs whose sides are within the length limits, (D,) of bool; see `drop_long`."""
    kept = np.ones(len(corpus.ends), dtype=bool)
    sides = (
        (corpus.sources.lengths - corpus.sources.framing, max_source_len),
        (corpus.ends - corpus.starts - 1, max_target_len),
    )
    for lengths, most in sides:
        if most is not None:
            kept &= lengths <= most
    return kept


@dataclass(frozen=True)
class VectorPairs(Pairs):
    """Pairs of vectors and text: source n of a vector file with line n of a text.

    Args:
        file: the sources.
        target: the targets.
        name: what an error calls the targets.
        keep: which of the pairs are taken, a bool for each; None for all.
    """

    file: VectorFile
    target: Readable
    name: str
    keep: np.ndarray | None = None

    def __iter__(self) -> Iterator[tuple[Vectors, str]]:
        numbers = self._chosen(range(len(self.file)))
        return zip(map(self.file.vectors, numbers), self._targets(), strict=True)

    def sources(self) -> Iterator[str]:
        """Yield nothing: vectors have no text to train a tokenizer on."""
        return iter(())

    def targets(self) -> Iterator[str]:
        return (target + "\n" for target in self._targets())

    def _targets(self) -> Iterator[str]:
        """Yield the selected targets, without newlines.

        Raises:
            SeqgenError: there are more or fewer of them than sources.
        """
        return self._chosen(line.removesuffix("\n") for line in self._counted())

    def _counted(self) -> Iterator[str]:
        count = 0
        for line in lines(self.target.chunks(), self.name):
            count += 1
            if count <= len(self.file):
                yield line
        if count != len(self.file):
            raise SeqgenError(
                f"{self.file.path} has {len(self.file):,} sources and {self.name} has {count:,} "
                "lines; line n must be the target of source n"
            )

    def _chosen(self, items: Iterator) -> Iterator:
        return iter(items) if self.keep is None else itertools.compress(items, self.keep)

    @property
    def source_features(self) -> int:
        return self.file.sources.features

    @property
    def vectors(self) -> VectorSources:
        """The sources of the selected pairs."""
        vectors = self.file.sources
        return vectors if self.keep is None else vectors.take(np.flatnonzero(self.keep))

    def encoded_sources(
        self, tokenizer: Tokenizer | None, sampling: Sampling | None
    ) -> VectorSources:
        return self.vectors

    def some(self, keep: np.ndarray) -> VectorPairs:
        if self.keep is not None:
            every = self.keep.copy()
            every[self.keep] = keep
            keep = every
        return replace(self, keep=keep)

    def survey(self) -> Survey:
        """Count characters, bytes and lines of the targets, and hash the pairs."""
        digest = hashlib.sha256()
        for source, target in self:
            digest.update(f"{content_of(source)}\t{target}\n".encode())
        return replace(survey(self.targets()), sha256=digest.hexdigest())


def open_pairs(
    sources: Sequence[Path],
    targets: Sequence[Path],
    newlines: str = "keep",
    ending: str = LINE_END,
) -> Pairs:
    """Open the pairs in one file or in two.

    Args:
        sources: files with tabs; or of the sources, where there are `targets`: texts, or one file
            of vectors.
        targets: files of the targets, or none.
        newlines: see `DataConfig`.
        ending: see `Text`.

    Raises:
        UsageError: vectors come without targets, or in several files.
        SeqgenError: the file of vectors is damaged.
    """
    name = ", ".join(map(str, sources))
    if any(map(is_vector_file, sources)):
        if len(sources) > 1 or not targets:
            raise UsageError(f"{name}: give one file of vectors, and their targets by --target")
        file = open_vectors(sources[0])
        return VectorPairs(
            file, Text(tuple(targets), newlines, ending), ", ".join(map(str, targets))
        )
    text = Text(tuple(sources), newlines, ending)
    if not targets:
        return TabPairs(text, name)
    other = Text(tuple(targets), newlines, ending)
    return FilePairs(text, other, (name, ", ".join(map(str, targets))))


@dataclass(frozen=True)
class LabelledLines(Pairs):
    """Labelled texts, one per line: labels, tab, text. Only the first tab separates.

    Args:
        text: the file or files.
        name: what an error calls it.
        labels: those that a line may have; any if None.
    """

    text: Readable
    name: str
    labels: Labels | None = None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        check = names_of if self.labels is None else self.labels.ids
        known: set[str] = set()
        every = split_at_tab(self.text, self.name, "label<TAB>text")
        for number, (field, text) in enumerate(every, start=1):
            if field not in known:
                try:
                    check(field)
                except UsageError as error:
                    raise SeqgenError(f"{self.name}, line {number}: {error}") from None
                known.add(field)
            yield field, text


@dataclass(frozen=True)
class LinesOfLabel(Pairs):
    """The lines of a plain text, all with the same labels.

    Args:
        text: the file or files.
        field: the labels.
    """

    text: Readable
    field: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((self.field, line.removesuffix("\n")) for line in lines(self.text.chunks()))

    def survey(self) -> Survey:
        """Survey the lines without their labels."""
        return survey(self.targets())
