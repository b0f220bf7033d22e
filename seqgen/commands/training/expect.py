"""Estimating hidden Markov models: iterations of EM under a budget, logged and reported."""

from __future__ import annotations

import dataclasses

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.training.count import impossible
from seqgen.commands.training.estimate import Estimate, Estimator
from seqgen.configs import TrainingConfig
from seqgen.store import METRICS
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.training.baum_welch import Pass, fit
from seqgen.training.events import Iteration, Report
from seqgen.training.run import Budget, Run


def expect(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> Estimate:
    """Fill the model by EM, an iteration a step and an epoch; see `Estimator.run`."""
    corpus, stored = prepared.as_read(prepared.train, loaded.data), loaded.stored
    size, budget = int(corpus.tokens.size), Budget.of(training, steps_per_epoch=1)

    with stored.log(METRICS) as metrics:

        def enough(done: Pass) -> str | None:
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

        never = impossible(prepared.tokenizer, loaded.framing)
        fit_result = fit(loaded.model, corpus, never, training.seed, enough)
    last = fit_result.passes[-1]
    return Estimate(
        seconds=last.seconds,
        tokens=last.number * size,
        steps=last.number,
        train_loss=last.nats_per_token,
        stopped=fit_result.stopped,
        seed=training.seed,
    )


EXPECTATION = Estimator(
    expect,
    "hidden Markov models",
    ("estimated", "by EM"),
    frozenset({"seed", "steps", "epochs", "minutes"}),
)
