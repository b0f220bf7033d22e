"""Training without gradients: estimate a model, store it and score the held-out part."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from seqgen import store
from seqgen.errors import telling_if_interrupted
from seqgen.scoring.perplexity import for_model, protocol
from seqgen.training.estimators import EstimationResult, Estimator
from seqgen.training.events import Notice, Report
from seqgen.training.session import TrainingResult, load_best, validation_figures, write_record
from seqgen.training.validating import final_validation

if TYPE_CHECKING:
    from seqgen.settings.training import TrainingConfig
    from seqgen.store.loaded import LoadedModel
    from seqgen.training.datasets.prepared import Prepared


def store_estimate(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> tuple[EstimationResult, dict[str, Any]]:
    """Estimate a model, store and publish it, with a record that has no result yet.

    Args:
        loaded: the model, in a folder that has its configuration and tokenizer.
        prepared: the text.
        training: of which the architecture's estimator says what it follows.
        report: takes events.

    Returns:
        What came of the estimation, and the facts of the record.
    """
    started, stored = store.now(), loaded.stored
    estimator = Estimator.of(stored.config["architecture"])
    estimated = estimator.run(loaded, prepared, training, report)
    facts = {"created": started, "seed": estimated.seed, "tokens": estimated.tokens}
    stored.write_weights(loaded.model)
    write_record(loaded, prepared, **facts, result=None)
    stored.seal()
    stored.publish()
    facts |= estimated.facts()
    write_record(loaded, prepared, **facts, result=None)
    return estimated, facts


def estimate(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> TrainingResult:
    """Estimate a model, store it, and score the held-out part; see `store_estimate`."""
    estimated, facts = store_estimate(loaded, prepared, training, report)
    stored = loaded.stored
    totals, seconds = None, 0.0
    if prepared.val is not None:
        with telling_if_interrupted(f"{stored.name} is saved, but its held-out text not scored"):
            totals, seconds = final_validation(load_best(loaded))
    if totals is not None and not math.isfinite(totals.nll_nats):
        report(Notice(text="the held-out text has tokens of probability 0: its loss is infinite"))
        totals = None
    result = TrainingResult(
        name=stored.name,
        path=str(stored.path),
        architecture=stored.config["architecture"],
        parameters=loaded.model.parameter_count(),
        steps=estimated.steps,
        tokens=estimated.tokens,
        train_loss=estimated.train_loss,
        **validation_figures(totals and totals.nats_per_token, prepared),
        seconds=estimated.seconds,
        validation_seconds=seconds,
        tokens_per_second=estimated.tokens / estimated.seconds,
        stopped=estimated.stopped,
        seed=estimated.seed,
        protocol=protocol(loaded, for_model(loaded)) if totals else None,
    )
    write_record(loaded, prepared, **facts, result=dataclasses.asdict(result))
    return result
