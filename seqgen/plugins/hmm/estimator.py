"""The estimator of hidden Markov models: EM over the training part."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from seqgen.plugins.hmm import baum_welch
from seqgen.settings.training import TrainingConfig
from seqgen.store import METRICS
from seqgen.training.estimators import EstimationResult, Estimator, impossible_ids
from seqgen.training.events import Iteration, Report
from seqgen.training.run import Budget, Run

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.training.datasets.prepared import Prepared


def run_em(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> EstimationResult:
    """Fit the model by EM; each iteration counts as a step and an epoch. See `Estimator.run`."""
    corpus, stored = prepared.as_read(prepared.train), loaded.stored
    size, budget = int(corpus.tokens.size), Budget.of(training, steps_per_epoch=1)

    with stored.log(METRICS) as metrics:

        def enough(done: baum_welch.EMIteration) -> str | None:
            share = budget.share(Run(step=done.number, seconds=done.seconds))
            event = Iteration(
                step=done.number,
                share=share,
                seconds=done.seconds,
                tokens=done.number * size,
                train_loss=done.nats_per_token,
                tokens_per_second=done.number * size / done.seconds,
            )
            metrics.write(dataclasses.asdict(event))
            report(event)
            return training.budget if share >= 1 else None

        never = impossible_ids(prepared.tokenizer, loaded.framing)
        last, stopped = baum_welch.fit(loaded.model, corpus, never, training.seed, enough)
    return EstimationResult(
        seconds=last.seconds,
        tokens=last.number * size,
        steps=last.number,
        train_loss=last.nats_per_token,
        stopped=stopped,
        seed=training.seed,
    )


EXPECTATION = Estimator(
    run_em,
    "hidden Markov models",
    ("estimated", "by EM"),
    frozenset({"seed", "steps", "epochs", "minutes"}),
)
