"""Restoration of corrupted lines by an associative memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqgen import store
from seqgen.engines.ops import ops_of
from seqgen.errors import SeqgenError
from seqgen.plugins.hopfield.arrays import recall
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import Work, load_any, require_served
from seqgen.wording import ShortRepr


@dataclass(frozen=True, repr=False)
class Restored(ShortRepr):
    """Record of one line from `seqgen restore --json`.

    Attributes:
        index: of the line.
        prompt: the line as it was given.
        text: what the network settled in, as text.
        energies: of the network, at first and after each sweep.
        changed: units that differ from those that the line began from.
        ended: "stable", "cycle" or "limit".
        model: its name.
    """

    index: int
    prompt: str
    text: str
    energies: list[float]
    changed: int
    ended: str
    model: str


def load_memory(name: str | Path | None = None) -> LoadedModel:
    """Load an associative memory.

    Args:
        name: a name, a path, or None for the latest model.

    Raises:
        UsageError: it is another kind of model.
        SeqgenError: there is no such model, or it is damaged.
    """
    otherwise = (
        "is not an associative memory, which restore needs: give a model of seqgen train LINES "
        "--model hopfield"
    )
    stored = store.find_all(name)
    require_served("restore", stored, otherwise)
    return load_any(stored, "cpu", work=Work())


def restore(
    memory: LoadedModel, lines: Iterable[str], *, synchronous: bool = False, seed: int = 0
) -> Iterator[Restored]:
    """Restore corrupted lines, yielding each as soon as it is read.

    Args:
        memory: the memory.
        lines: without their newlines; a character that it does not know stands for any.
        synchronous: update all units at once, not one after the other.
        seed: of the order of updates.

    Raises:
        SeqgenError: a line is longer than the patterns.
    """
    model, tokenizer = memory.model, memory.tokenizer
    threshold = np.asarray(model.config.threshold)
    weights = ops_of(model.weights).array(model.weights).astype(np.float64)
    for index, line in enumerate(lines):
        ids = tokenizer.encode(line).tolist()
        most = model.config.length
        if len(ids) > most:
            raise SeqgenError(
                f"line {index + 1} has {len(ids):,} tokens; {memory.stored.name} stores lines of "
                f"at most {most:,}"
            )
        units = model.encode(ids, tokenizer.unk_id)
        recalled = recall(weights, units, synchronous=synchronous, seed=seed, threshold=threshold)
        text = tokenizer.decode(model.decode(recalled.units, tokenizer.eos_id))
        known = units != 0
        yield Restored(
            index=index,
            prompt=line,
            text=text,
            energies=recalled.energies,
            changed=int(np.count_nonzero(recalled.units[known] != units[known])),
            ended=recalled.ended,
            model=memory.stored.name,
        )
