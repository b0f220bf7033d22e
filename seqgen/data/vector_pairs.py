"""Pairs whose sources are vectors: source n of a file of vectors with line n of a text."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqgen.data.encoding import Sampling
from seqgen.data.pairs import FilePairs, Pairs, Readable, TabPairs
from seqgen.data.sources import Vectors, VectorSources, content_of
from seqgen.data.text import Survey, Text, lines, survey
from seqgen.data.vector_files import VectorFile, is_vector_file, open_vectors
from seqgen.errors import SeqgenError, UsageError
from seqgen.tokenizers import Tokenizer


@dataclass(frozen=True)
class VectorPairs(Pairs):
    """Source n of a file of vectors with line n of a text.

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
        """Yield nothing that has letters: vectors have no text to learn tokens from."""
        return iter(())

    def targets(self) -> Iterator[str]:
        return (target + "\n" for target in self._targets())

    def _targets(self) -> Iterator[str]:
        """Yield the targets that are taken, without newlines.

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
        """The sources of the pairs that are taken."""
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
        """Survey the targets; the hash is that of both sides."""
        digest = hashlib.sha256()
        for source, target in self:
            digest.update(f"{content_of(source)}\t{target}\n".encode())
        return replace(survey(self.targets()), sha256=digest.hexdigest())


def open_pairs(sources: Sequence[Path], targets: Sequence[Path], newlines: str = "keep") -> Pairs:
    """Return the pairs in some files.

    Args:
        sources: files with tabs; or of the sources, where there are `targets`: texts, or one file
            of vectors.
        targets: files of the targets, or none.
        newlines: see `DataConfig`.

    Raises:
        UsageError: vectors come without targets, or in several files.
        SeqgenError: the file of vectors is damaged.
    """
    name = ", ".join(map(str, sources))
    if any(map(is_vector_file, sources)):
        if len(sources) > 1 or not targets:
            raise UsageError(f"{name}: give one file of vectors, and their targets by --target")
        file = open_vectors(sources[0])
        return VectorPairs(file, Text(tuple(targets), newlines), ", ".join(map(str, targets)))
    text = Text(tuple(sources), newlines)
    if not targets:
        return TabPairs(text, name)
    other = Text(tuple(targets), newlines)
    return FilePairs(text, other, (name, ", ".join(map(str, targets))))
