"""What the texts of a model are given: nothing but a prompt, labels, or a source each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqgen.configs import require
from seqgen.data.labels import Labels
from seqgen.data.pairs import LabelledLines, LinesOfLabel, Pairs, Readable, TabPairs, encode_sources
from seqgen.data.sources import (
    Sources,
    Vectors,
    VectorSources,
    features_of,
    handles_of,
    require_equal_widths,
)
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer

if TYPE_CHECKING:
    from seqgen.decoding.sampling import Opens
    from seqgen.models.base import LanguageModel

    # What a prompt has been made of, where texts have sources: ids, or vectors.
    Source = Sequence[int] | Vectors
    Opening = tuple[Opens | None, list[int]]


@dataclass(frozen=True)
class Given(ABC):
    """What the texts of one model are given.

    Attributes:
        name: the model's.
        noun: what the model scores.
        model_is: what it is, for those that ask for another.
        written_from: what it writes from.
        each: what is scored given what, in a protocol; None where all of a text is scored.
        signature: what stands for that in a signature.
        prompt: what stands where a prompt can stand.
        is_source: that is a source, which is also written in records.
        features: the width of sources that are vectors; None of all others.
    """

    name: str
    noun: ClassVar[str] = "pairs"
    model_is: ClassVar[str] = "a model of pairs"
    written_from: ClassVar[str] = "sources"
    each: ClassVar[str | None] = "target given its source"
    signature: ClassVar[str | None] = "pairs"
    prompt: ClassVar[str] = "source"
    is_source: ClassVar[bool] = True
    features: ClassVar[int | None] = None

    @property
    def in_pairs(self) -> bool:
        """Whether a text is scored together with something that it is given."""
        return self.each is not None

    @abstractmethod
    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        """Return what texts are given as the model reads it.

        Args:
            sources: lines without newlines; or vectors.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """

    def opens(self, model: LanguageModel, sources: Sequence[Source]) -> Opening:
        """Return a function that opens states for sources, and the handle of each prompt's source.

        None for a model of text, whose handles mean nothing.
        """
        joined, handles = handles_of(sources)
        return model.opens(joined), handles

    def read(self, text: Readable, title: str) -> Pairs:
        """Return the pairs of a file."""
        return TabPairs(text, title)

    def unknown_in(self, values: np.ndarray) -> int:
        """Return how many values of sources the model does not know."""
        return 0

    def check(self, features: int | None) -> None:
        """Refuse sources that the model does not read.

        Args:
            features: the width of sources that are vectors; None for text.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """
        require_equal_widths(self.name, self.features, features)

    def require_chosen(self) -> None:  # noqa: B027
        """Refuse to write where all texts are given the same, and it was not chosen.

        Raises:
            UsageError: says what can be chosen.
        """

    def require_vectors(self) -> None:
        """Refuse a model that does not write from vectors.

        Raises:
            SeqgenError: it does not.
        """
        if self.features is None:
            raise SeqgenError(f"{self.name} reads text, not vectors")

    def require_nothing(self, what: str) -> None:
        """Refuse a model whose texts are given something.

        Args:
            what: is for models of text alone, such as a command or a flag.

        Raises:
            UsageError: it is one.
        """
        written = f"{what} is for models of text; {self.name} writes from {self.written_from}"
        require(not self.in_pairs, written)

    def require_sources(self, what: str) -> None:
        """Refuse a model of text, also one of text with labels.

        Args:
            what: is for models that write from sources alone, such as a flag.

        Raises:
            UsageError: it is one.
        """
        other = f"{what} is for models that write from sources; {self.name} is {self.model_is}"
        require(self.is_source, other)


@dataclass(frozen=True)
class Nothing(Given):
    """A model of text."""

    noun, model_is, each, signature = "text", "a model of text", None, None
    prompt, is_source = "prompt", False

    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        raise AssertionError(f"{self.name} reads no sources")

    def opens(self, model: LanguageModel, sources: Sequence[Source]) -> Opening:
        return None, [0] * len(sources)


@dataclass(frozen=True)
class GivenLabels(Given):
    """Labels, the same for all texts that are written.

    Attributes:
        labels: those that the model knows.
        label: those of the texts that it is to write or to score; None where none were asked for.
    """

    labels: Labels
    label: str | None
    noun, model_is = "labelled lines", "a model of text with labels"
    written_from, each, signature = "labels", "line given its labels", "labels"
    prompt, is_source = "prompt", False

    def require_chosen(self) -> None:
        known = self.labels.listed
        writes = f"{self.name} writes texts with labels: give --label ({known})"
        require(self.label is not None, writes)

    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        return self.labels.sources(sources)

    def opens(self, model: LanguageModel, sources: Sequence[Source]) -> Opening:
        self.require_chosen()
        return model.opens(self.labels.sources([self.label])), [0] * len(sources)

    def read(self, text: Readable, title: str) -> Pairs:
        if self.label is not None:
            return LinesOfLabel(text, self.label)
        return LabelledLines(text, title, self.labels)


@dataclass(frozen=True)
class GivenTokens(Given):
    """A source of tokens each.

    Attributes:
        tokenizer: makes them.
    """

    tokenizer: Tokenizer

    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        for source in sources:
            self.check(features_of(source))
        return encode_sources((f"{line}\n" for line in sources), self.tokenizer)

    def unknown_in(self, values: np.ndarray) -> int:
        return int(np.count_nonzero(values == self.tokenizer.unk_id))


@dataclass(frozen=True)
class GivenVectors(Given):
    """Vectors each."""

    features: int

    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        for source in sources:
            self.check(features_of(source))
        return VectorSources.join([vectors.values for vectors in sources])
