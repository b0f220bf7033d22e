"""Estimating n-gram models: counts of the training part, and what the record tells of them."""

from __future__ import annotations

from typing import Any

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.training.estimate import Estimate, Estimator
from seqgen.configs import TrainingConfig
from seqgen.data.framing import Framing
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.tokenizers import Tokenizer
from seqgen.training.counting import Fit, fit, unseen_fractions
from seqgen.training.events import Notice, Report


def count(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> Estimate:
    """Count the n-grams of the training part and fill the model; see `Estimator.run`."""
    corpus = prepared.as_read(prepared.train, loaded.data)
    fit_result = fit(loaded.model, corpus, impossible(prepared.tokenizer, loaded.framing))
    if fit_result.fallbacks:
        report(_announced(fit_result))
    return Estimate(
        seconds=fit_result.seconds,
        tokens=int(corpus.tokens.size),
        facts=lambda: {"ngrams": _ngrams(loaded, prepared, fit_result)},
    )


COUNTING = Estimator(count, "n-gram models", ("counted", "in one pass"))


def impossible(tokenizer: Tokenizer, framing: Framing) -> list[int]:
    """Return the ids that cannot occur in a text; they get no probability."""
    return [token for token in framing.never if token != tokenizer.unk_id]


def _announced(fit_result: Fit) -> Notice:
    """Return one notice that names all orders with fallback discounts."""
    runs: list[list[int]] = []
    for n in fit_result.fallbacks:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    orders = [f"{run[0]}-" + (f" to {run[-1]}-" if len(run) > 1 else "") for run in runs]
    used = ", ".join(f"{d:g}" for d in fit_result.discounts[fit_result.fallbacks[0] - 1])
    why = "give no discounts (too little text, or too few types)"
    return Notice(text=f"the counts of {', '.join(orders)}grams {why}: {used} instead")


def _ngrams(loaded: LoadedModel, prepared: Prepared, fit_result: Fit) -> list[dict[str, Any]]:
    """Return the facts that `models show` prints about each order."""
    unseen: list[float | None] = [None] * len(fit_result.ngrams)
    if prepared.val is not None:
        parts = (prepared.as_read(part, loaded.data) for part in (prepared.val, prepared.train))
        unseen = unseen_fractions(loaded.model, *parts)
    discounts = fit_result.discounts or [[]] * len(fit_result.ngrams)
    return [
        {"order": n, "stored": stored, "possible": loaded.model.vocab_size**n}
        | {"held_out_unseen": unseen_of_order, "discounts": amounts}
        for n, (stored, unseen_of_order, amounts) in enumerate(
            zip(fit_result.ngrams, unseen, discounts, strict=True), start=1
        )
    ]
