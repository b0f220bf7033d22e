"""A trained model in memory, with what is needed to read and write text with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from seqgen.configs import DataConfig, Documents, require
from seqgen.configs.cache import CacheConfig
from seqgen.data.corpus import Corpus
from seqgen.data.framing import Framing
from seqgen.data.labels import Labels, joined
from seqgen.data.pairs import Tokenizers, encode_sources
from seqgen.data.sources import (
    Sources,
    Vectors,
    VectorSources,
    features_of,
    require_equal_widths,
)
from seqgen.decoding.backward import BackwardContinuation, BackwardDecoder
from seqgen.decoding.continuation import Continuation
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import LanguageModel
from seqgen.models.continuous_cache import parts_of
from seqgen.models.mixture import Mixture
from seqgen.models.scores import Want
from seqgen.scoring import Scored, score_corpus
from seqgen.store import StoredMixture, StoredModel
from seqgen.tokenizers import Decoder, Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer, and the way it was trained.

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
    """

    stored: StoredModel
    model: LanguageModel
    tokenizer: Tokenizer
    data: DataConfig
    source_tokenizer: Tokenizer | Labels | None = None
    cache: CacheConfig | None = None
    label: str | None = None
    own_framing: Framing | None = None
    title: str | None = None

    @property
    def name(self) -> str:
        """What tables and records call it."""
        return self.title or self.stored.name

    @property
    def labels(self) -> Labels | None:
        """The labels that it was trained with; None for any other model."""
        return self.source_tokenizer if isinstance(self.source_tokenizer, Labels) else None

    @property
    def reads_pairs(self) -> bool:
        """Whether it scores texts given something: a source each, or labels."""
        return self.source_tokenizer is not None or self.source_features is not None

    @property
    def reads_sources(self) -> bool:
        """Whether it writes from sources, which stand where others have prompts."""
        return self.reads_pairs and self.labels is None

    def with_labels(self, names: Sequence[str]) -> LoadedModel:
        """Return the model told which labels the texts have that it is to write or to score.

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
        label = joined(names)
        self.labels.ids(label)
        return replace(self, label=label)

    def require_label(self) -> None:
        """Refuse to write with a model that was trained with labels, and was told none.

        Raises:
            UsageError: names those that it knows.
        """
        if self.labels is not None and self.label is None:
            known = self.labels.listed
            raise UsageError(f"{self.stored.name} writes texts with labels: give --label ({known})")

    def given_labels(self) -> Sources:
        """Return the labels that the model was told, as its one source; see `require_label`."""
        self.require_label()
        return self.labels.sources([self.label])

    @property
    def source_features(self) -> int | None:
        """The width of its sources, if they are vectors; None for a model of text or of tokens."""
        model = self.model.components[0] if isinstance(self.model, Mixture) else self.model
        return getattr(model.config, "source_features", None)

    @property
    def tokenizers(self) -> Tokenizers:
        """Those of both sides, of a model that writes from sources."""
        return Tokenizers(self.tokenizer, self.source_tokenizer)

    def require_sources(self, features: int | None) -> None:
        """Refuse sources that the model does not read.

        Args:
            features: the width of sources that are vectors; None for text.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """
        require_equal_widths(self.stored.name, self.source_features, features)

    def require_vectors(self) -> None:
        """Refuse a model that does not write from vectors.

        Raises:
            SeqgenError: it does not.
        """
        if self.source_features is None:
            raise SeqgenError(f"{self.stored.name} reads text, not vectors")

    def encode_sources(self, sources: Sequence[str | Vectors]) -> Sources:
        """Return sources as the model reads them.

        Args:
            sources: lines without newlines; or vectors.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """
        for source in sources:
            self.require_sources(features_of(source))
        if self.source_features is not None:
            return VectorSources.join([vectors.values for vectors in sources])
        return encode_sources((f"{line}\n" for line in sources), self.source_tokenizer)

    def unknown_in(self, values: np.ndarray) -> int:
        """Return how many values of sources are `<unk>`; none of vectors."""
        if self.source_tokenizer is None:
            return 0
        return int(np.count_nonzero(values == self.source_tokenizer.unk_id))

    def require_text(self, what: str) -> None:
        """Refuse a model that writes from sources.

        Args:
            what: is for models of text alone, such as a command or a flag.

        Raises:
            UsageError: it does.
        """
        name, given = self.stored.name, "sources" if self.labels is None else "labels"
        require(not self.reads_pairs, f"{what} is for models of text; {name} writes from {given}")

    def require_reads_sources(self, what: str) -> None:
        """Refuse a model of text, also one of text with labels.

        Args:
            what: is for models that write from sources alone, such as a flag.

        Raises:
            UsageError: it is one.
        """
        kind = "a model of text" if self.labels is None else "a model of text with labels"
        require(
            self.reads_sources,
            f"{what} is for models that write from sources; {self.stored.name} is {kind}",
        )

    @property
    def framing(self) -> Framing:
        """How its documents start and end."""
        return self.own_framing or Framing.of(self.tokenizer, self.data.documents)

    def framing_of(self, documents: Documents) -> Framing:
        """How texts that are read as `documents` start and end for this model."""
        return self.framing.as_documents(self.tokenizer, self.data.documents, documents)

    @property
    def never(self) -> tuple[int, ...]:
        """The ids that are never written."""
        if self.labels is None:
            return self.framing.never
        labels = range(self.labels.first, self.labels.first + len(self.labels))
        return (*self.framing.never, *labels)

    @property
    def architecture(self) -> str | None:
        """Its name in the registry; None for a mixture."""
        mixed = isinstance(self.stored, StoredMixture)
        return None if mixed else self.stored.config["architecture"]

    @property
    def precision(self) -> str:
        """The type that it computes in; that of its matrices, if they are kept in fewer bits."""
        reduced = {getattr(part, "reduced", None) for part in parts_of(self.model)} - {None}
        if reduced:
            return {"bf16": "bfloat16"}.get(*reduced, *reduced)
        tensors = itertools.chain(self.model.parameters(), self.model.buffers())
        kinds = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
        return str(next(kinds, torch.float32)).removeprefix("torch.")

    @property
    def backward(self) -> bool:
        """Whether it reads and writes from right to left."""
        return self.data.direction == "backward"

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text as the model reads them; unknown ones may be among them."""
        ids = self.tokenizer.encode(text)
        return tuple((ids[::-1] if self.backward else ids).tolist())

    def decoder(self, history: Sequence[int]) -> Decoder:
        """Return what decodes the tokens that the model writes after those of `history`."""
        if self.backward:
            return BackwardDecoder(self.tokenizer, history)
        return self.tokenizer.decoder(history)

    def continuation(
        self, decoder: Decoder, stops: Sequence[str], max_tokens: int, min_tokens: int = 0
    ) -> Continuation:
        """Open a text over a decoder; see `Continuation`."""
        kind = BackwardContinuation if self.backward else Continuation
        return kind(decoder, stops, max_tokens, self.framing.stops, min_tokens)

    def echoed(self, prompt: str, text: str) -> str:
        """Return a text with its prompt where that belongs."""
        return text + prompt if self.backward else prompt + text

    def score(
        self, corpus: Corpus, batch_size: int, stride: int | None = None, want: Want = "hits"
    ) -> Iterator[Scored]:
        """Score a corpus in the direction that the model reads in; see `score_corpus`."""
        return score_corpus(self.model, corpus, batch_size, stride, want, self.data.direction)
