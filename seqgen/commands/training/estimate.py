"""Training without gradients, from the prepared text to the stored model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqgen import registry, store
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.scoring.perplexity import for_model, protocol
from seqgen.commands.training.session import (
    TrainingResult,
    as_stored,
    validation_figures,
    write_record,
)
from seqgen.commands.training.validating import final_validation
from seqgen.configs import TrainingConfig
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.training.events import Notice, Report


@dataclass(frozen=True)
class Estimate:
    """What came of an estimation; None where a figure has no meaning.

    Attributes:
        seconds: how long it took.
        tokens: how many tokens were read, over all passes.
        steps: passes over the text, of an iterative estimation.
        train_loss: nats per token of the training part.
        stopped: why the passes ended.
        seed: what it drew its random numbers from.
        facts: returns what else belongs in the model's record.
    """

    seconds: float
    tokens: int
    steps: int | None = None
    train_loss: float | None = None
    stopped: str | None = None
    seed: int | None = None
    facts: Callable[[], dict[str, Any]] = field(default=dict)


@dataclass(frozen=True)
class Estimator:
    """How the models of one architecture are estimated; `Architecture.estimator` names one.

    Attributes:
        run: fills a model, in a folder that has its configuration and tokenizer.
        models: what such models are called, in the plural.
        done: what was done to them, and how: "counted", "in one pass".
        heeds: the settings of `TrainingConfig` that it follows; it ignores the others.
    """

    run: Callable[[LoadedModel, Prepared, TrainingConfig, Report], Estimate]
    models: str
    done: tuple[str, str]
    heeds: frozenset[str] = frozenset()

    @classmethod
    def of(cls, architecture: str) -> Estimator | None:
        """Return an architecture's; None for one that is trained by gradients."""
        target = registry.architecture(architecture).estimator
        return None if target is None else registry.load_object(target)

    def ignored(self, settings: Sequence[str]) -> Notice | None:
        """Return a notice that names given settings of gradient training, which are ignored."""
        names = [n for n in settings if n in TrainingConfig.fields() and n not in self.heeds]
        text = f"{self.models} are {' '.join(self.done)}; ignored: {', '.join(names)}"
        return Notice(text=text) if names else None


def estimate(
    loaded: LoadedModel,
    prepared: Prepared,
    training: TrainingConfig,
    report: Report,
    about: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Estimate a model, store and publish it, and score the held-out part.

    Args:
        loaded: the model, in a folder that has its configuration and tokenizer.
        prepared: the text.
        training: of which the architecture's estimator says what it follows.
        report: takes events.
        about: what else belongs in the model's record.
    """
    started = store.now()
    stored = loaded.stored
    estimator = Estimator.of(stored.config["architecture"])
    estimated = estimator.run(loaded, prepared, training, report)
    facts = {"created": started, "seed": estimated.seed, **(about or {})}
    stored.write_weights(loaded.model)
    write_record(loaded, prepared, **facts, result=None)
    stored.seal()
    stored.publish()
    totals, seconds = None, 0.0
    if prepared.val is not None:
        totals, seconds = final_validation(as_stored(loaded))
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
    facts |= {"result": dataclasses.asdict(result)}
    write_record(loaded, prepared, **facts, **estimated.facts())
    return result
