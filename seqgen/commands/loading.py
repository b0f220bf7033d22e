"""Loading trained models, and mixtures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from seqgen import registry, store
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.machine import choose_products
from seqgen.commands.mixable import require_alike
from seqgen.configs import DataConfig, require
from seqgen.configs.scoring import CacheConfig
from seqgen.data.labels import Labels
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.models.engines.precision import Precision, choose_device, in_precision
from seqgen.models.memory.continuous_cache import Cached, parts_of
from seqgen.models.mixture.by_order import MixtureByOrder
from seqgen.models.mixture.model import Mixture
from seqgen.store import StoredMixture, StoredModel


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
        require_language_model(stored)
        loaded = load_stored(stored, place, precision)
    if precision == "int8":
        require_int8(loaded)
    return loaded if cache is None else with_cache(loaded, cache)


def require_language_model(stored: StoredModel) -> None:
    """Refuse a model that is none.

    Raises:
        UsageError: says what it is, and which command is for it.
    """
    row = registry.known_architecture(stored.config["architecture"])
    if row is not None and row.task.model_is is not None:
        raise UsageError(f"{stored.name} {row.task.model_is}")


def with_cache(loaded: LoadedModel, cache: CacheConfig) -> LoadedModel:
    """Return a model with a continuous cache beside it.

    In a mixture, each part that has features to look up gets one.

    Raises:
        UsageError: the model writes from sources.
        SeqgenError: it is estimated from counts.
    """
    loaded.given.require_nothing("--cache")
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
    sizes = {None} if joint else {source_tokenizer.vocab_size}
    if not joint and source_tokenizer.vocab_size == tokenizer.vocab_size:
        sizes.add(None)  # two ways of cutting texts into the same tokens, as Marian's
    if getattr(model.config, "source_vocab_size", None) not in sizes:
        raise SeqgenError(
            f"{stored.path} is damaged: its model and the tokenizer of its sources do not fit"
        )
    data = stored.settings("data", DataConfig)
    model = in_precision(model.to(device), precision)
    framing = stored.framing(tokenizer)
    return LoadedModel(stored, model, tokenizer, data, source_tokenizer, own_framing=framing)


def require_int8(loaded: LoadedModel) -> None:
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
        require_language_model(part)
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
