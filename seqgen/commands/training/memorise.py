"""Storing lines in an associative memory, and what is said of how full it is."""

from __future__ import annotations

import time

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.training.count import impossible
from seqgen.commands.training.estimate import Estimate, Estimator
from seqgen.configs import TrainingConfig
from seqgen.models.memory.hopfield import CAPACITY
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.training.events import Notice, Report
from seqgen.training.storing import fit
from seqgen.wording import plural


def memorise(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> Estimate:
    """Store the lines of the training part; see `Estimator.run`."""
    began = time.perf_counter()
    framing, units = loaded.framing, loaded.model.config.units
    never = impossible(prepared.tokenizer, framing)
    stored = fit(loaded.model, prepared.train, never, framing.end, training.seed)
    load = f"{plural(stored, 'pattern')} in {plural(units, 'unit')}, {stored / units:.3f} per unit"
    full = stored > CAPACITY * units
    more = f"; above {CAPACITY:g}, few are restored: raise bits" if full else ""
    report(Notice(text=load + more))
    return Estimate(
        seconds=time.perf_counter() - began,
        tokens=int(prepared.train.tokens.size),
        seed=training.seed,
        facts=lambda: {"patterns": stored},
    )


STORING = Estimator(
    memorise, "associative memories", ("stored", "in one pass"), frozenset({"seed"})
)
