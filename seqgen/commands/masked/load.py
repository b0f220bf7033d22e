"""Loading a masked model."""

from __future__ import annotations

from pathlib import Path

from seqgen import store
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.loading import load_stored, require_language_model
from seqgen.errors import UsageError
from seqgen.models.engines.precision import Precision, choose_device
from seqgen.store import StoredMixture


def load_masked(
    name: str | Path | None = None, device: str = "auto", precision: Precision = "auto"
) -> LoadedModel:
    """Load a masked model.

    Args:
        name: a name, a path, or None for the latest model.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32.

    Raises:
        UsageError: it is another kind of model.
        SeqgenError: there is no such model, or it is damaged.
    """
    place = choose_device(device)
    stored = store.find_all(name)
    if isinstance(stored, StoredMixture):
        for part in stored.parts:
            require_language_model(part)
    if isinstance(stored, StoredMixture) or "fill" not in stored.task.serves:
        raise UsageError(
            f"{stored.name} is no masked model: give one of seqgen train TEXT --model bert"
        )
    return load_stored(stored, place, precision)
