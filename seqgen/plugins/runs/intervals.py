"""Bits per byte of the text that several models held out, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seqgen.cli.shell.pairs import as_pairs, check_one_kind, held_out_input
from seqgen.errors import SeqgenError
from seqgen.metrics.bootstrap import p_value, percentile_interval
from seqgen.scoring.compare import (
    as_read,
    bootstrap_bits_per_byte,
    common_text,
    score_each_line,
    whole_of,
)
from seqgen.scoring.perplexity import for_model
from seqgen.store import StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import is_language_model, load
from seqgen.text.pairs import Pairs


@dataclass(frozen=True, kw_only=True)
class HeldOutScore:
    """Bits per byte of the shared held-out text under one model.

    Intervals are of 95 %; those of one model and p-values are None if the text is too short to be
    resampled, or if a model gives a token of it the probability 0.

    Attributes:
        bytes: of the text.
        bits_per_byte: of the whole text.
        low: the interval of `bits_per_byte`, from here ...
        high: ... to here.
        best: the name of the model with the least bits per byte.
        is_best: whether this is that model.
        difference: of `bits_per_byte` from that of the best model.
        difference_low: the interval of `difference`, from here ...
        difference_high: ... to here.
        p_value: of no difference, by the paired bootstrap; None for the best model.
    """

    bytes: int
    bits_per_byte: float
    low: float | None = None
    high: float | None = None
    best: str
    is_best: bool
    difference: float
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None


def score_held_out(stored: Sequence[StoredModel]) -> dict[str, HeldOutScore]:
    """Score the text that all models held out; return the scores by the models' names.

    All models are resampled on the same blocks of lines, as by `seqgen compare`.

    Raises:
        SeqgenError: they held out different texts or none, or are not all language models.
    """
    others = [model.name for model in stored if not is_language_model(model)]
    if others:
        raise SeqgenError(f"{others[0]} is not a language model; seqgen compare has its figures")
    models = [load(model) for model in stored]
    text = _held_out_by_all(models)
    texts = [as_read(loaded, text) for loaded in models]
    scores = [
        score_each_line(loaded, own, for_model(loaded, None))
        for loaded, own in zip(models, texts, strict=True)
    ]
    samples = bootstrap_bits_per_byte(scores, [whole_of(own) for own in texts])
    totals = [score.totals.bits_per_byte for score in scores]
    best = min(range(len(totals)), key=totals.__getitem__)
    found = {}
    for i, model in enumerate(stored):
        intervals = {}
        if samples is not None and math.isfinite(totals[i]):
            intervals["low"], intervals["high"] = percentile_interval(samples[:, i])
            if i != best:
                differences = samples[:, i] - samples[:, best]
                low, high = percentile_interval(differences)
                intervals |= {"difference_low": low, "difference_high": high}
                intervals["p_value"] = p_value(differences)
        found[model.name] = HeldOutScore(
            bytes=scores[i].totals.bytes,
            bits_per_byte=totals[i],
            best=stored[best].name,
            is_best=i == best,
            difference=totals[i] - totals[best],
            **intervals,
        )
    return found


def _held_out_by_all(models: Sequence[LoadedModel]) -> str | Pairs:
    """Open the text or the pairs that all models held out.

    Raises:
        SeqgenError: they held out different ones, or none.
    """
    if not check_one_kind(models):
        return common_text(models)
    newlines = "lf" if all(loaded.data.newlines == "lf" for loaded in models) else "keep"
    held_out = held_out_input(models, quiet=True)
    pairs, *_ = [as_pairs(loaded, held_out, newlines) for loaded in models]
    return pairs
