"""Estimators of models without gradients, and that of n-gram models: counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seqgen import registry
from seqgen.engines.memory_limit import memory
from seqgen.settings.training import TrainingConfig
from seqgen.training import counting
from seqgen.training.events import Notice, Report

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.framing import Framing
    from seqgen.text.tokenizers import Tokenizer
    from seqgen.training.datasets.prepared import Prepared

# Counting an n-gram model takes about so many bytes for each token and order. What would take more
# than half of the memory goes to temporary files.
BYTES_COUNTED = 16


@dataclass(frozen=True)
class EstimationResult:
    """Result of an estimation; figures that do not apply are None.

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
    """Base of the estimators; `Architecture.estimator` names one.

    Attributes:
        run: fills a model, in a folder that has its configuration and tokenizer.
        models: what such models are called, in the plural.
        done: what was done to them, and how: "counted", "in one pass".
        heeds: the settings of `TrainingConfig` that it follows; it ignores the others.
    """

    run: Callable[[LoadedModel, Prepared, TrainingConfig, Report], EstimationResult]
    models: str
    done: tuple[str, str]
    heeds: frozenset[str] = frozenset()

    @classmethod
    def of(cls, architecture: str) -> Estimator | None:
        """Load the estimator of an architecture; None if it is trained by gradients."""
        target = registry.architecture(architecture).estimator
        return None if target is None else registry.load_object(target)

    def ignored(self, settings: Sequence[str]) -> Notice | None:
        """Write a notice that lists given settings of gradient training, which are ignored."""
        names = [n for n in settings if n in TrainingConfig.fields() and n not in self.heeds]
        text = f"{self.models} are {' '.join(self.done)}; ignored: {', '.join(names)}"
        return Notice(text=text) if names else None


def count_ngrams(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> EstimationResult:
    """Count the n-grams of the training part and fill the model; see `Estimator.run`."""
    corpus = prepared.as_read(prepared.train)
    never = impossible_ids(prepared.tokenizer, loaded.framing)
    most, half = training.most_bytes, memory() // 2
    if most is None and BYTES_COUNTED * loaded.model.config.order * corpus.tokens.size > half:
        most = half
    fit_result = counting.fit(loaded.model, corpus, never, most)
    if fit_result.fallbacks:
        report(_fallback_notice(fit_result))
    return EstimationResult(
        seconds=fit_result.seconds,
        tokens=int(corpus.tokens.size),
        facts=lambda: {"ngrams": _order_facts(loaded, prepared, fit_result)},
    )


COUNTING = Estimator(
    count_ngrams, "n-gram models", ("counted", "in one pass"), frozenset({"memory"})
)


def impossible_ids(tokenizer: Tokenizer, framing: Framing) -> list[int]:
    """List the ids that cannot occur in a text and get probability zero."""
    return [token for token in framing.never if token != tokenizer.unk_id]


def _fallback_notice(fit_result: counting.NGramFit) -> Notice:
    """Write one notice that names all orders with fallback discounts."""
    runs: list[list[int]] = []
    for n in fit_result.fallbacks:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    orders = [f"{run[0]}-" + (f" to {run[-1]}-" if len(run) > 1 else "") for run in runs]
    used = ", ".join(f"{d:g}" for d in fit_result.discounts[fit_result.fallbacks[0] - 1])
    grams = f"{', '.join(orders)}grams"
    return Notice(text=f"too few counts to estimate discounts for {grams}; using {used}")


def _order_facts(
    loaded: LoadedModel, prepared: Prepared, fit_result: counting.NGramFit
) -> list[dict[str, Any]]:
    """Collect the facts about each order that `models show` prints."""
    unseen: list[float | None] = [None] * len(fit_result.ngrams)
    if prepared.val is not None:
        parts = (prepared.as_read(part) for part in (prepared.val, prepared.train))
        unseen = counting.unseen_fractions(loaded.model, *parts)
    discounts = fit_result.discounts or [[]] * len(fit_result.ngrams)
    return [
        {"order": n, "stored": stored, "possible": loaded.model.vocab_size**n}
        | {"held_out_unseen": unseen_of_order, "discounts": amounts}
        for n, (stored, unseen_of_order, amounts) in enumerate(
            zip(fit_result.ngrams, unseen, discounts, strict=True), start=1
        )
    ]
