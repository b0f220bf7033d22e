"""A trained model in memory, with what is needed to read and write text with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from seqgen import registry, store
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
from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.models.continuous_cache import Cached, parts_of
from seqgen.models.mixture import Mixture
from seqgen.models.mixture_by_order import MixtureByOrder
from seqgen.models.precision import Precision, choose_device, in_precision
from seqgen.models.scores import Want
from seqgen.scoring import Scored, score_corpus
from seqgen.store import StoredMixture, StoredModel
from seqgen.tasks.machine import choose_products
from seqgen.tasks.mixable import require_alike
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
        return kind(decoder, stops, max_tokens, self.framing.stop, min_tokens)

    def echoed(self, prompt: str, text: str) -> str:
        """Return a text with its prompt where that belongs."""
        return text + prompt if self.backward else prompt + text

    def score(
        self, corpus: Corpus, batch_size: int, stride: int | None = None, want: Want = "hits"
    ) -> Iterator[Scored]:
        """Score a corpus in the direction that the model reads in; see `score_corpus`."""
        return score_corpus(self.model, corpus, batch_size, stride, want, self.data.direction)


def load(
    name: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    cache: CacheConfig | None = None,
) -> LoadedModel:
    """Load a trained model.

    Args:
        name: a name, a path, or None for the latest written; a mixture such as A:0.7+B:0.3.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32: decoding and scoring never round more than they must. bf16
            and int8 keep matrices in fewer bits.
        cache: a continuous cache to put beside it.

    Raises:
        UsageError: the model, or the device, has no int8.
        SeqgenError: there is no such model, or it is damaged, or it can have no cache.
    """
    place = choose_device(device)
    stored = store.find_all(name)
    if isinstance(stored, StoredMixture):
        loaded = load_mixture(stored, place, precision)
    else:
        _require_language_model(stored)
        loaded = load_stored(stored, place, precision)
    if precision == "int8":
        _require_int8(loaded)
    return loaded if cache is None else with_cache(loaded, cache)


def _require_language_model(stored: StoredModel) -> None:
    """Refuse a model that is none.

    Raises:
        UsageError: says what it is, and which command is for it.
    """
    row = registry.known_architecture(stored.config["architecture"])
    if row is not None and row.no_language_model:
        raise UsageError(f"{stored.name} {row.no_language_model}")


def with_cache(loaded: LoadedModel, cache: CacheConfig) -> LoadedModel:
    """Return a model with a continuous cache beside it.

    In a mixture, each part that has features to look up gets one.

    Raises:
        UsageError: the model writes from sources.
        SeqgenError: it is estimated from counts.
    """
    loaded.require_text("--cache")
    parts = parts_of(loaded.model)
    cached = [Cached(p, cache) if isinstance(p, NeuralLanguageModel) else p for p in parts]
    if not any(isinstance(part, Cached) for part in cached):
        raise SeqgenError(
            f"{loaded.stored.name} has no hidden vectors, which --cache compares; give a neural "
            "model, or a mixture with one"
        )
    model = cached[0]
    if isinstance(loaded.stored, StoredMixture):
        model = mixture_of(cached, loaded.stored)
    return replace(loaded, model=model.eval(), cache=cache)


def load_stored(stored: StoredModel, device: torch.device, precision: Precision) -> LoadedModel:
    """Load what `stored` holds; see `load`."""
    model, tokenizer = stored.load()
    source_tokenizer = stored.load_source_tokenizer(tokenizer)
    labels = source_tokenizer if isinstance(source_tokenizer, Labels) else ()
    if model.vocab_size != tokenizer.vocab_size + len(labels):
        raise SeqgenError(
            f"{stored.path} is damaged: its model has {model.vocab_size} tokens and its "
            f"tokenizer {tokenizer.vocab_size + len(labels)}"
        )
    choose_products(device)
    joint = labels or source_tokenizer is None or source_tokenizer is tokenizer
    source_size = None if joint else source_tokenizer.vocab_size
    if source_size != getattr(model.config, "source_vocab_size", None):
        raise SeqgenError(
            f"{stored.path} is damaged: its model and the tokenizer of its sources do not fit"
        )
    data = stored.settings("data", DataConfig)
    model = in_precision(model.to(device), precision)
    framing = stored.framing(tokenizer)
    return LoadedModel(stored, model, tokenizer, data, source_tokenizer, own_framing=framing)


def _require_int8(loaded: LoadedModel) -> None:
    """Refuse int8 where no part of a model has it.

    Raises:
        UsageError: says what can be done.
    """
    name = loaded.stored.name
    require(
        loaded.precision == "int8",
        f"--precision int8 is for transformers and recurrent models of text, on a CPU; {name} is "
        f"none on {loaded.model.device.type}: leave it out, or give --device cpu",
    )


def load_mixture(stored: StoredMixture, device: torch.device, precision: Precision) -> LoadedModel:
    """Load models that read text alike, as one; see `load`.

    Raises:
        UsageError: one of them is no language model.
        SeqgenError: two of them have different tokens, or different ends of a text.
    """
    for part in stored.parts:
        _require_language_model(part)
    parts = [load_stored(part, device, precision) for part in stored.parts]
    first = parts[0]
    for other in parts[1:]:
        require_alike(first, other)
    model = mixture_of([part.model for part in parts], stored)
    return replace(first, stored=stored, model=model.eval())


def mixture_of(parts: Sequence[LanguageModel], stored: StoredMixture) -> Mixture:
    """Return models as one, with the weights that a mixture is stored with.

    Raises:
        SeqgenError: there are weights for other orders than the n-gram part has.
    """
    if not stored.by_order:
        return Mixture(parts, stored.weights)
    try:
        return MixtureByOrder(parts, stored.weights, stored.by_order)
    except ValueError as error:
        raise SeqgenError(f"{stored.path} is damaged: {error}") from None
