"""Estimating a model from counts, from the prepared text to the stored model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from seqgen import store
from seqgen.configs import TrainingConfig
from seqgen.data.corpus import Framing
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.training.prepare import Prepared
from seqgen.tasks.training.session import (
    TrainingResult,
    as_stored,
    final_validation,
    validation_figures,
    write_record,
)
from seqgen.tokenizers import Tokenizer
from seqgen.training.counting import Fit, fit, unseen_shares
from seqgen.training.events import Notice, Report


def count(loaded: LoadedModel, prepared: Prepared, report: Report) -> TrainingResult:
    """Estimate a model from counts, store and publish it, and score the held-out part.

    Args:
        loaded: the model, in a folder that has its configuration and tokenizer.
        prepared: the text.
        report: takes notices.
    """
    started = store.now()
    stored, corpus = loaded.stored, prepared.as_read(prepared.train, loaded.data)
    found = fit(loaded.model, corpus, impossible(prepared.tokenizer, loaded.framing))
    if found.fallbacks:
        report(_announced(found))
    facts = {"created": started, "seed": None}
    stored.write_weights(loaded.model)
    write_record(loaded, prepared, **facts, result=None)
    stored.seal()
    stored.publish()
    totals, seconds = final_validation(as_stored(loaded))
    if totals is not None and not math.isfinite(totals.nll_nats):
        report(Notice(text="the held-out text has tokens of probability 0: its loss is infinite"))
        totals = None
    result = TrainingResult(
        name=stored.name,
        path=str(stored.path),
        architecture=stored.config["architecture"],
        parameters=loaded.model.parameter_count(),
        steps=None,
        tokens=int(corpus.tokens.size),
        train_loss=None,
        **validation_figures(totals and totals.nats_per_token, prepared),
        seconds=found.seconds,
        validation_seconds=seconds,
        tokens_per_second=corpus.tokens.size / found.seconds,
        stopped=None,
        seed=None,
    )
    facts |= {"result": dataclasses.asdict(result)}
    write_record(loaded, prepared, **facts, ngrams=_ngrams(loaded, prepared, found))
    return result


def impossible(tokenizer: Tokenizer, framing: Framing) -> list[int]:
    """Return the ids that cannot occur in a text; they get no probability."""
    never = [tokenizer.pad_id, tokenizer.bos_id]
    # A line's newline is its end; a stream's ends are newlines.
    never.append(tokenizer.eos_id if framing.end is None else tokenizer.newline_id)
    return never


def ignored(settings: Sequence[str]) -> Notice | None:
    """Return a notice that names given settings of gradient training, which are ignored."""
    names = [name for name in settings if name in TrainingConfig.fields()]
    return (
        Notice(text=f"n-gram models are counted in one pass; ignored: {', '.join(names)}")
        if names
        else None
    )


def _announced(found: Fit) -> Notice:
    """Return one notice that names all orders with fallback discounts."""
    runs: list[list[int]] = []
    for n in found.fallbacks:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    orders = [f"{run[0]}-" + (f" to {run[-1]}-" if len(run) > 1 else "") for run in runs]
    used = ", ".join(f"{d:g}" for d in found.discounts[found.fallbacks[0] - 1])
    why = "give no discounts (too little text, or too few types)"
    return Notice(text=f"the counts of {', '.join(orders)}grams {why}: {used} instead")


def _ngrams(loaded: LoadedModel, prepared: Prepared, found: Fit) -> list[dict[str, Any]]:
    """Return the facts that `models show` prints about each order."""
    unseen: list[float | None] = [None] * len(found.ngrams)
    if prepared.val is not None:
        parts = (prepared.as_read(part, loaded.data) for part in (prepared.val, prepared.train))
        unseen = unseen_shares(loaded.model, *parts)
    discounts = found.discounts or [[]] * len(found.ngrams)
    return [
        {"order": n, "stored": stored, "possible": loaded.model.vocab_size**n}
        | {"held_out_unseen": share, "discounts": amounts}
        for n, (stored, share, amounts) in enumerate(
            zip(found.ngrams, unseen, discounts, strict=True), start=1
        )
    ]
