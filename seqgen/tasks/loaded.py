"""A trained model in memory, with what is needed to read and write text with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from seqgen import store
from seqgen.configs import DataConfig
from seqgen.data.corpus import Framing
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import LanguageModel
from seqgen.models.precision import Precision, choose_device, parameter_type
from seqgen.store import StoredModel
from seqgen.tokenizers import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer, and the way it was trained.

    Attributes:
        stored: where it came from.
        model: in evaluation mode.
        tokenizer: its ids.
        data: how its text was read: `documents`, `newlines`.
    """

    stored: StoredModel
    model: LanguageModel
    tokenizer: Tokenizer
    data: DataConfig

    @property
    def framing(self) -> Framing:
        """How its documents start and end."""
        return Framing.of(self.tokenizer, self.data.documents)


def load(
    name: str | Path | None = None, device: str = "auto", precision: Precision = "auto"
) -> LoadedModel:
    """Load a trained model.

    Args:
        name: a name, a path, or None for the latest written.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32: decoding and scoring never round more than they must.

    Raises:
        SeqgenError: there is no such model, or it is damaged.
    """
    place = choose_device(device)
    return load_stored(store.find(name), place, precision)


def load_stored(stored: StoredModel, device: torch.device, precision: Precision) -> LoadedModel:
    """Load what `stored` holds; see `load`."""
    model, tokenizer = stored.load()
    if model.vocab_size != tokenizer.vocab_size:
        raise SeqgenError(
            f"{stored.path} is damaged: its model has {model.vocab_size} tokens and its "
            f"tokenizer {tokenizer.vocab_size}"
        )
    dtype = torch.bfloat16 if precision == "bf16" else parameter_type(precision)
    try:
        data = DataConfig(**stored.config["data"])
    except (KeyError, TypeError, UsageError) as error:
        raise SeqgenError(f"{stored.path / store.CONFIG} is damaged: {error}") from None
    return LoadedModel(stored, model.to(device=device, dtype=dtype), tokenizer, data)
