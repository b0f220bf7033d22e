"""A trained model in memory with its tokenizers, and the conditioning of its texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqgen.engines.choice import EngineChoice
from seqgen.errors import SeqgenError
from seqgen.models.inference import InferenceModel
from seqgen.settings import WHOLE_NUMBERS, DataConfig, Documents, require
from seqgen.settings.scoring import CacheConfig
from seqgen.store import layout
from seqgen.store.mixtures import StoredMixture
from seqgen.text.corpus import Corpus, Unknowns, encode_corpus
from seqgen.text.framing import Framing
from seqgen.text.labels import Labels, join_labels
from seqgen.text.pairs import (
    LabelledLines,
    LinesOfLabel,
    Pairs,
    Readable,
    TabPairs,
    Tokenizers,
    encode_sources,
)
from seqgen.text.sources import (
    Sources,
    Vectors,
    VectorSources,
    deduplicate_sources,
    features_of,
    require_equal_widths,
)
from seqgen.text.tokenizers import Tokenizer
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.models.base import LanguageModel
    from seqgen.models.state import Opens
    from seqgen.store.model import StoredModel

    Source = Sequence[int] | Vectors
    Opening = tuple[Opens | None, list[int]]


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, configuration and stored files.

    Attributes:
        stored: where it came from.
        model: in evaluation mode.
        tokenizer: its ids.
        data: how its text was read: `documents`, `newlines`.
        source_tokenizer: the ids of its sources, or its labels; None for a model of text, or of
            vectors.
        cache: the continuous cache beside it, or beside the parts of a mixture that can have one.
        label: what it is to write texts of; None where nothing was asked for.
        own_framing: how its texts begin and end; None where that follows from the tokenizer.
        title: what tables and records call it; None for its name.
        engine: what runs it, and why; None where nothing was chosen.
    """

    stored: StoredModel
    model: InferenceModel
    tokenizer: Tokenizer
    data: DataConfig
    source_tokenizer: Tokenizer | Labels | None = None
    cache: CacheConfig | None = None
    label: str | None = None
    own_framing: Framing | None = None
    title: str | None = None
    engine: EngineChoice | None = None

    @property
    def name(self) -> str:
        """Name of the model in tables and records."""
        return self.title or self.stored.name

    def __repr__(self) -> str:
        parameters = sum(part.parameter_count() for part in self.model.parts)
        about = f"{self.architecture or layout.MIXTURE}, {plural(parameters, 'parameter')}"
        return f"<seqgen model {self.name!r}: {about}>"

    @property
    def labels(self) -> Labels | None:
        """Labels that the model was trained with; None for models without labels."""
        return self.source_tokenizer if isinstance(self.source_tokenizer, Labels) else None

    @property
    def conditioning(self) -> Conditioning:
        """Kind of input that texts are conditioned on: none, labels, or sources."""
        features = getattr(self.model.parts[0].config, "source_features", None)
        if self.labels is not None:
            return LabelConditioning(self.stored.name, self.labels, self.label)
        if features is not None:
            return VectorConditioning(self.stored.name, features)
        if self.source_tokenizer is not None:
            return TokenConditioning(self.stored.name, self.source_tokenizer)
        return Unconditional(self.stored.name)

    def network_for(self, what: str) -> LoadedModel:
        """Return the one network in the model; see `StoredModel.network_for`."""
        stored = self.stored.network_for(what)
        if stored is self.stored:
            return self
        return replace(self, stored=stored, model=self.model.parts[0])

    def with_labels(self, names: Sequence[str]) -> LoadedModel:
        """Set the labels of the texts to generate or score.

        Args:
            names: one or several; none leaves the model as it is.

        Raises:
            UsageError: it knows no labels, or not this one.
        """
        if not names:
            return self
        require(
            self.labels is not None,
            f"{self.stored.name} was trained without labels, so that it takes no --label",
        )
        label = join_labels(names)
        self.labels.ids(label)
        return replace(self, label=label)

    @property
    def tokenizers(self) -> Tokenizers:
        """Source and target tokenizers of a translation model."""
        return Tokenizers(self.tokenizer, self.source_tokenizer)

    @property
    def framing(self) -> Framing:
        """Start and end tokens of its documents."""
        return self.own_framing or Framing.of(self.tokenizer, self.data.documents)

    def framing_of(self, documents: Documents) -> Framing:
        """Return the start and end tokens of texts in a given document mode."""
        return self.framing.as_documents(self.tokenizer, self.data.documents, documents)

    def with_newlines(self, text: str, line: bool = False) -> str:
        """Convert CRLF to LF if the model was trained that way.

        Args:
            text: a text or line for the model.
            line: the text is a line without its LF.
        """
        if self.data.newlines != "lf" or "\r" not in text:
            return text
        return (text + "\n").replace("\r\n", "\n")[:-1] if line else text.replace("\r\n", "\n")

    def encode(
        self,
        chunks: Iterable[str],
        documents: Documents | None = None,
        unknowns: Unknowns | None = None,
    ) -> Corpus:
        """Tokenize a text that comes in pieces, by default as in training."""
        documents = documents or self.data.documents
        framing = self.framing_of(documents)
        return encode_corpus(chunks, self.tokenizer, documents, framing=framing, unknowns=unknowns)

    @property
    def never(self) -> tuple[int, ...]:
        """Ids that are never generated."""
        if self.labels is None:
            return self.framing.never
        labels = range(self.labels.first, self.labels.first + len(self.labels))
        return (*self.framing.never, *labels)

    @property
    def architecture(self) -> str | None:
        """Names of its architecture and its n-gram part; None for a mixture of other models."""
        mixed = isinstance(self.stored, StoredMixture) and self.stored.ngram is None
        return None if mixed else self.stored.kind

    @property
    def precision(self) -> str:
        """Type of its computations, or of its quantized matrices."""
        kinds = [part.precision for part in self.model.parts]
        return next((kind for kind in kinds if kind in (*WHOLE_NUMBERS, "bfloat16")), kinds[0])

    @property
    def backward(self) -> bool:
        """Whether it reads and generates from right to left."""
        return self.data.direction == "backward"

    def ids(self, text: str) -> tuple[int, ...]:
        """Tokenize a text, possibly with unknown ids."""
        ids = self.tokenizer.encode(text)
        return tuple((ids[::-1] if self.backward else ids).tolist())

    def echoed(self, prompt: str, text: str) -> str:
        """Join a prompt and its continuation, in the model's direction."""
        return text + prompt if self.backward else prompt + text


@dataclass(frozen=True)
class Conditioning(ABC):
    """Base: what texts are conditioned on (nothing, labels, token or vector sources).

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
        """Whether texts are scored as pairs of condition and text."""
        return self.each is not None

    @abstractmethod
    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        """Convert sources or labels to the model's input.

        Args:
            sources: lines without newlines; or vectors.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """

    def opens(self, model: LanguageModel, sources: Sequence[Source]) -> Opening:
        """Make a function that opens states for sources; return each prompt's handle too.

        None for a model of text, whose handles mean nothing.
        """
        joined, handles = deduplicate_sources(sources)
        return model.opens(joined), handles

    def read(self, text: Readable, title: str) -> Pairs:
        """Open the pairs of a file."""
        return TabPairs(text, title)

    def unknown_in(self, values: np.ndarray) -> int:
        """Count the source values that are unknown to the model."""
        return 0

    def check(self, features: int | None) -> None:
        """Refuse sources of another kind than the model's.

        Args:
            features: the width of sources that are vectors; None for text.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """
        require_equal_widths(self.name, self.features, features)

    def require_chosen(self) -> None:  # noqa: B027
        """Refuse to generate if the shared condition, such as a label, is not set.

        Raises:
            UsageError: says what can be chosen.
        """

    def require_vectors(self) -> None:
        """Refuse a model whose sources are not vectors.

        Raises:
            SeqgenError: it does not.
        """
        if self.features is None:
            raise SeqgenError(f"{self.name} reads text, not vectors")

    def require_nothing(self, what: str) -> None:
        """Refuse a model whose texts are conditioned on anything.

        Args:
            what: is for models of text alone, such as a command or a flag.

        Raises:
            UsageError: it is one.
        """
        reason = f"{what} is for models of text; {self.name} writes from {self.written_from}"
        require(not self.in_pairs, reason)

    def require_sources(self, what: str | None) -> None:
        """Refuse a model without sources, such as one with labels.

        Args:
            what: is for models that write from sources alone, such as a flag; None for nothing.

        Raises:
            UsageError: it is one.
        """
        other = f"{what} is for models that write from sources; {self.name} is {self.model_is}"
        require(what is None or self.is_source, other)


@dataclass(frozen=True)
class Unconditional(Conditioning):
    """No conditioning: a plain text model."""

    noun, model_is, each, signature = "text", "a model of text", None, None
    prompt, is_source = "prompt", False

    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        raise AssertionError(f"{self.name} reads no sources")

    def opens(self, model: LanguageModel, sources: Sequence[Source]) -> Opening:
        return None, [0] * len(sources)


@dataclass(frozen=True)
class LabelConditioning(Conditioning):
    """Conditioning on labels, shared by all generated texts.

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
class TokenConditioning(Conditioning):
    """Conditioning on one token sequence per text.

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
class VectorConditioning(Conditioning):
    """Conditioning on vectors, such as image features."""

    features: int

    def encode(self, sources: Sequence[str | Vectors]) -> Sources:
        for source in sources:
            self.check(features_of(source))
        return VectorSources.join([vectors.values for vectors in sources])
