"""A trained model in memory, with what is needed to read and write text with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seqgen.commands.given import Given, GivenLabels, GivenTokens, GivenVectors, Nothing
from seqgen.configs import DataConfig, Documents, require
from seqgen.configs.scoring import CacheConfig
from seqgen.data.corpus import Corpus
from seqgen.data.framing import Framing
from seqgen.data.labels import Labels, joined
from seqgen.data.pairs import Tokenizers
from seqgen.decoding.backward import BackwardContinuation, BackwardDecoder
from seqgen.decoding.continuation import Continuation, EndIds
from seqgen.models.reader import Reader
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
    model: Reader
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
    def given(self) -> Given:
        """What its texts are given."""
        features = getattr(self.model.parts[0].config, "source_features", None)
        if self.labels is not None:
            return GivenLabels(self.stored.name, self.labels, self.label)
        if features is not None:
            return GivenVectors(self.stored.name, features)
        if self.source_tokenizer is not None:
            return GivenTokens(self.stored.name, self.source_tokenizer)
        return Nothing(self.stored.name)

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

    @property
    def tokenizers(self) -> Tokenizers:
        """Those of both sides, of a model that writes from sources."""
        return Tokenizers(self.tokenizer, self.source_tokenizer)

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
        kinds = [part.precision for part in self.model.parts]
        return next((kind for kind in kinds if kind in ("int8", "bfloat16")), kinds[0])

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
        self,
        decoder: Decoder,
        stops: Sequence[str],
        max_tokens: int,
        min_tokens: int = 0,
        ends: EndIds = None,
    ) -> Continuation:
        """Open a text over a decoder; see `Continuation`. Without `ends`, the model's end it."""
        kind = BackwardContinuation if self.backward else Continuation
        return kind(decoder, stops, max_tokens, ends or self.framing.stops, min_tokens)

    def echoed(self, prompt: str, text: str) -> str:
        """Return a text with its prompt where that belongs."""
        return text + prompt if self.backward else prompt + text

    def score(
        self, corpus: Corpus, batch_size: int, stride: int | None = None, want: Want = "hits"
    ) -> Iterator[Scored]:
        """Score a corpus in the direction that the model reads in; see `score_corpus`."""
        return score_corpus(self.model, corpus, batch_size, stride, want, self.data.direction)
