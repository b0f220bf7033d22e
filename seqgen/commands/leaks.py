"""Held-out text that a model is also trained on."""

from __future__ import annotations

from collections.abc import Iterator

from seqgen import store
from seqgen.commands.training.reload import reload_stored_data, tokens_of
from seqgen.configs import DataConfig
from seqgen.errors import SeqgenError
from seqgen.store import StoredModel
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.tasks.datasets.text import LARGE
from seqgen.tokenizers import load_tokenizer

# What determines the split of given data.
SPLIT = ("documents", "labels", "newlines", "split_seed", "val")


def leak(prepared: Prepared, data: DataConfig) -> str | None:
    """Say in one line how much of the held-out part is in the training part too, if anything.

    Large texts are not read again for this.
    """
    overlap = None if prepared.facts.bytes >= LARGE else prepared.overlap(data)
    return overlap and overlap.warning("the training part")


def leaks_of_origin(prepared: Prepared, data: DataConfig, origin: StoredModel) -> Iterator[str]:
    """Say in one line each how much of the held-out part older models were trained on, if anything.

    Nothing is said of a model whose data is gone, large or of another kind.

    Args:
        prepared: what a new model learns from.
        data: how it is read.
        origin: the model that training starts from; those that it started from follow.
    """
    if prepared.facts.bytes >= LARGE:
        return
    for older in _with_ancestors(origin):
        trained_on = _data_of(older, prepared, data)
        overlap = trained_on and prepared.overlap_with(trained_on)
        if overlap and (warning := overlap.warning(f"the training part of {older.name}")):
            yield warning


def _with_ancestors(model: StoredModel) -> list[StoredModel]:
    """Return a model and all that it started from, each once, also where records go in a circle."""
    found = {model.path: model}
    waiting = [model]
    while waiting:
        origins = filter(None, store.origins_of(waiting.pop()).values())
        new = {older.path: older for older in origins if older.path not in found}
        found |= new
        waiting += new.values()
    return list(found.values())


def _data_of(stored: StoredModel, prepared: Prepared, data: DataConfig) -> Prepared | None:
    """Return what a model was trained on; None if it is gone, large or divided like other data."""
    try:
        known, config = store.data_of(stored.record), stored.settings("data", DataConfig)
        if known.get("bytes", LARGE) >= LARGE:
            return None
        same_split = all(getattr(config, name) == getattr(data, name) for name in SPLIT)
        if same_split and known["sha256"] == prepared.facts.sha256:
            return None  # both models have the same training part
        tokenizer = load_tokenizer(stored.path / store.TOKENIZER)
        return reload_stored_data(stored, config, tokens_of(stored, tokenizer))
    except (SeqgenError, OSError, LookupError, TypeError):  # gone or damaged
        return None
