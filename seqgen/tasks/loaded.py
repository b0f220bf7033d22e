"""A trained model in memory, with what is needed to read and write text with it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import torch

from seqgen import store
from seqgen.configs import DataConfig, Documents
from seqgen.data.corpus import Framing
from seqgen.errors import SeqgenError
from seqgen.models.base import LanguageModel
from seqgen.models.mixture import Mixture
from seqgen.models.precision import Precision, choose_device, parameter_type
from seqgen.store import StoredMixture, StoredModel
from seqgen.tasks.machine import settle_products
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

    def framing_of(self, documents: Documents) -> Framing:
        """How texts that are read as `documents` start and end for this model.

        A model of a stream knows no BOS and no EOS: a line of its own starts after a newline,
        and ends with one.
        """
        if documents == "line" and self.data.documents == "stream":
            return Framing(self.tokenizer.newline_id, self.tokenizer.newline_id)
        return Framing.of(self.tokenizer, documents)

    @property
    def never(self) -> tuple[int, ...]:
        """The ids that are never written."""
        special = (self.tokenizer.pad_id, self.tokenizer.bos_id, self.tokenizer.unk_id)
        # A stream has no end; a line, which ends with EOS, holds no newline.
        stream = self.framing.end is None
        return (*special, self.tokenizer.eos_id if stream else self.tokenizer.newline_id)

    @property
    def architecture(self) -> str | None:
        """Its name in the registry; None for a mixture."""
        mixed = isinstance(self.stored, StoredMixture)
        return None if mixed else self.stored.config["architecture"]

    @property
    def precision(self) -> str:
        """The type that it computes in."""
        tensors = itertools.chain(self.model.parameters(), self.model.buffers())
        kinds = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
        return str(next(kinds, torch.float32)).removeprefix("torch.")

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text, which may have unknown ones among them."""
        return tuple(self.tokenizer.encode(text).tolist())


def load(
    name: str | Path | None = None, device: str = "auto", precision: Precision = "auto"
) -> LoadedModel:
    """Load a trained model.

    Args:
        name: a name, a path, or None for the latest written; a mixture such as A:0.7+B:0.3.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32: decoding and scoring never round more than they must.

    Raises:
        SeqgenError: there is no such model, or it is damaged.
    """
    place = choose_device(device)
    stored = store.find_all(name)
    if isinstance(stored, StoredMixture):
        return load_mixture(stored, place, precision)
    return load_stored(stored, place, precision)


def load_stored(stored: StoredModel, device: torch.device, precision: Precision) -> LoadedModel:
    """Load what `stored` holds; see `load`."""
    model, tokenizer = stored.load()
    if model.vocab_size != tokenizer.vocab_size:
        raise SeqgenError(
            f"{stored.path} is damaged: its model has {model.vocab_size} tokens and its "
            f"tokenizer {tokenizer.vocab_size}"
        )
    settle_products(device)
    dtype = torch.bfloat16 if precision == "bf16" else parameter_type(precision)
    data = stored.settings("data", DataConfig)
    return LoadedModel(stored, model.to(device=device, dtype=dtype), tokenizer, data)


def load_mixture(stored: StoredMixture, device: torch.device, precision: Precision) -> LoadedModel:
    """Load models that read text alike, as one; see `load`.

    Raises:
        SeqgenError: two of them have different tokens, or different ends of a text.
    """
    parts = [load_stored(part, device, precision) for part in stored.parts]
    first = parts[0]
    for other in parts[1:]:
        names = f"{first.stored.name} and {other.stored.name}"
        if _vocabulary(other) != _vocabulary(first):
            raise SeqgenError(f"{names} have different tokens, so that they cannot be mixed")
        if other.framing != first.framing:
            raise SeqgenError(f"{names} differ in --documents, so that they cannot be mixed")
    model = Mixture([part.model for part in parts], stored.weights)
    return LoadedModel(stored, model.eval(), first.tokenizer, first.data)


def _vocabulary(loaded: LoadedModel) -> tuple[str, dict]:
    return loaded.tokenizer.kind, loaded.tokenizer.facts()
