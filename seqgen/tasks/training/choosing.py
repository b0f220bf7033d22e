"""Settings that follow from the minutes there are, the machine and the text.

What decides is measured in a second of training each, and only where something is left open.
What the rules rest on is in README, "Recipes".
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from seqgen import registry
from seqgen.configs import ModelConfig, Size, TrainingConfig
from seqgen.data.batches import Batches
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.precision import own_randomness, parameter_type
from seqgen.models.room import to_train
from seqgen.store.machine import keep_measurement, kept_measurement
from seqgen.tasks.training.plan import Plan
from seqgen.tasks.training.prepare import Prepared, VocabSizes
from seqgen.training.events import Notice, Report
from seqgen.training.speed import (
    bf16_speedup,
    compiled_speedup,
    faster_precision,
    speed_at_first,
    times_as_fast,
)
from seqgen.wording import plural

# More rows in a step, if they train so much faster and leave so many steps, each row with at
# least so many windows to go on through. Twice the rows take a rate higher by the root of two.
LEAST_GAIN, LEAST_STEPS, LEAST_WINDOWS = 1.2, 800, 16
# From this ratio on (`ModelConfig.regularised`) a model may overfit whatever its dropout: training
# stops after this many validations, of at most 20, without improvement.
STOPS_FROM_RATIO, PATIENCE = 200, 8
# Schedules whose gain comes late, when the rate drops: no validation before says much.
LATE = ("step", "wsd")
# A network with fewer tokens of training than this, and than the text has more, hardly does better
# than n-grams that are counted in seconds.
LEAST_TOKENS = 1.5e6
# Compiling takes up to a minute: from so many minutes of training on, if steps are so much faster.
COMPILED_FROM_MINUTES, LEAST_SPEEDUP = 10, 1.03


@dataclass(frozen=True)
class Trial:
    """A plan that is tried out on its text, on a device.

    Attributes:
        plan: what is tried.
        training: how it would train, with nothing left open.
        prepared: the text.
        device: where.
    """

    plan: Plan
    training: TrainingConfig
    prepared: Prepared
    device: torch.device

    @classmethod
    def of(cls, plan: Plan, prepared: Prepared, device: torch.device) -> Trial:
        """Return the trial of a plan, settled as it would be."""
        trial = cls(plan, plan.resolve(prepared, device, lambda event: None), prepared, device)
        return replace(trial, training=precise(trial)[0])

    def with_settings(self, settings: Mapping[str, Any]) -> Trial:
        """Return the trial of the plan with `settings` over those that are given."""
        return Trial.of(self.plan.with_settings(settings), self.prepared, self.device)

    def model(self) -> NeuralLanguageModel:
        """Return the model it begins with."""
        torch.manual_seed(self.training.seed)
        shape = self.plan.model_config(self.prepared.vocab_sizes, self.training.seq_len)
        model = to_train(self.plan.model_class, shape)
        return model.to(device=self.device, dtype=parameter_type(self.training.precision))

    def batches(self) -> Batches:
        """Return what it would train on, cut in one way only."""
        data = replace(self.plan.data, subword_sampling=None)
        return self.prepared.batches(self.training, data, self.plan.model_class.carries_state)

    def bf16_speedup(self) -> float:
        """Return how many times as fast it trains in bf16; measured once on this machine."""
        shape = self.plan.model_config(self.prepared.vocab_sizes, self.training.seq_len)
        settings = ("batch_size", "seq_len", "accumulate", "optimizer")
        about = {
            "question": "training in bf16",
            "architecture": self.plan.architecture,
            "model": {k: v for k, v in shape.to_dict().items() if "dropout" not in k},
            "training": {name: getattr(self.training, name) for name in settings},
            "documents": self.plan.data.documents,
        }
        known = kept_measurement(about)
        if known is None:
            with own_randomness(self.device):
                found = bf16_speedup(self.model(), self.batches(), self.training)
            known = {"times_as_fast": found}
            known = keep_measurement(about, known) or known
        return known["times_as_fast"]

    def measure(self) -> tuple[float, int]:
        """Return how many tokens it trains on in the time there is, and its parameters."""
        with own_randomness(self.device):
            model = self.model()
            speed = speed_at_first(model, self.batches(), self.training)
        return 60 * self.training.minutes * speed, model.parameter_count()

    @cached_property
    def measured(self) -> tuple[float, int]:
        """What was measured first."""
        return self.measure()

    @property
    def tokens(self) -> float:
        """How many tokens it trains on in the time there is."""
        return self.measured[0]

    @property
    def steps(self) -> float:
        """How many steps that is."""
        return self.tokens / (self.training.batch_size * self.training.seq_len)

    @property
    def passes(self) -> float:
        """How many passes over the text that is."""
        return self.tokens / self.prepared.train.tokens.size

    @property
    def overfitting_ratio(self) -> float:
        """Passes over the text, times parameters for each of its tokens."""
        return self.passes * self.measured[1] / self.prepared.train.tokens.size

    def gains(self, other: Trial) -> bool:
        """Return whether this trains so much faster than `other` that more rows are worth it."""
        if self.tokens < LEAST_GAIN * other.tokens:
            return False
        # Once more, in turn: the first figures are some seconds apart.
        return times_as_fast(lambda: self.measure()[0], lambda: other.measure()[0]) >= LEAST_GAIN


def choose_size(plan: Plan, prepared: Prepared, device: torch.device, report: Report) -> Plan:
    """Return the plan with the settings that suit the minutes there are; what is given stays."""
    config_class = registry.architecture(plan.architecture).load_config()
    sized, regularised = config_class.sizes[0].settings, config_class.regularised(1.0)
    left_open = {*sized, *regularised, "batch_size", "patience"} - plan.given.keys()
    if plan.training.minutes is None or plan.origin is not None or not left_open:
        return plan
    chosen, trial = _sized(Trial.of(plan, prepared, device), config_class)
    more, trial = _with_more_rows(trial, chosen)
    chosen |= more
    chosen |= _regularised(trial, config_class)
    tokens = plural(round(trial.tokens), "token")
    fits = f"{tokens}, {trial.passes:.1f} passes over the text, fit the time"
    settings = ", ".join(f"{name} {_short(value)}" for name, value in chosen.items())
    so_that = f" with {settings}, so that" if chosen else ":"
    report(Notice(text=f"{plan.architecture}{so_that} {fits}"))
    counts = plan.reads == "text"  # n-grams know no sources
    if counts and trial.tokens < LEAST_TOKENS + prepared.train.tokens.size:
        order = 6 if prepared.tokenizer.kind in ("char", "byte") else 3
        hint = "n-grams, counted in seconds, may do better than so little training"
        report(Notice(text=f"{hint}: --model ngram --order {order}"))
    return plan.with_settings(chosen)


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _sized(first: Trial, config_class: type[ModelConfig]) -> tuple[dict[str, Any], Trial]:
    """Return the largest size that text and time are enough for, else the last; and its trial."""
    text = first.prepared.train.tokens.size
    for size in _possible(first.plan, config_class):
        trial = first.with_settings(size.settings)
        if text >= size.text and trial.tokens >= size.tokens:
            break
    return dict(size.settings), trial


def _possible(plan: Plan, config_class: type[ModelConfig]) -> list[Size]:
    """Return what the sizes leave open, but for those that what is given does not allow.

    Of sizes that are one then, the least demands count.
    """
    found: dict[tuple[Any, ...], Size] = {}
    for size in config_class.sizes:
        size = replace(size, settings=plan.only_unset(size.settings))
        with contextlib.suppress(UsageError):
            plan.with_settings(size.settings).model_config(VocabSizes(), plan.training.seq_len)
            found[tuple(size.settings.items())] = size
    return list(found.values())


def _with_more_rows(trial: Trial, size: dict[str, Any]) -> tuple[dict[str, Any], Trial]:
    """Return rows and rate if more rows in a step are worth it, and the trial with them."""
    # The rows of documents follow from their lengths; who accumulates has no memory for more.
    given = {"batch_size", "accumulate"} & trial.plan.given.keys()
    chosen: dict[str, Any] = {}
    if given or trial.plan.data.documents != "stream":
        return chosen, trial
    while trial.steps >= LEAST_STEPS:
        rows, rate = 2 * trial.training.batch_size, math.sqrt(2) * trial.training.lr
        more = trial.plan.only_unset({"batch_size": rows, "lr": rate})
        roomier = trial.with_settings({**size, **more})
        if trial.prepared.train.tokens.size < LEAST_WINDOWS * rows * trial.training.seq_len:
            break
        try:
            gains = roomier.gains(trial)
        except (torch.OutOfMemoryError, SeqgenError):  # no room for them, or too high a rate
            break
        if not gains or roomier.steps < LEAST_STEPS:
            break
        chosen, trial = more, roomier
    return chosen, trial


def _regularised(trial: Trial, config_class: type[ModelConfig]) -> dict[str, Any]:
    """Return what keeps the text from being learned by heart, as far as it is left open."""
    plan, found = trial.plan, config_class.regularised(trial.overfitting_ratio)
    training, validates = trial.training, trial.plan.data.val != "none"
    evenly = training.validate_every is None and training.schedule not in LATE
    by_heart = plan.reads == "text" and trial.overfitting_ratio >= STOPS_FROM_RATIO
    if by_heart and validates and evenly:
        found["patience"] = PATIENCE
    return plan.only_unset(found)


def precise(trial: Trial) -> tuple[TrainingConfig, float | None]:
    """Settle the precision of training; return the settings, and bf16's speed if that decided."""
    if trial.training.precision != "auto":
        return trial.training, None
    speedup = trial.bf16_speedup()
    return replace(trial.training, precision=faster_precision(speedup)), speedup


def choose_training_precision(
    plan: Plan, training: TrainingConfig, prepared: Prepared, device: torch.device, report: Report
) -> TrainingConfig:
    """Settle the precision of training: bf16 where a trial shows that it is faster by a tenth."""
    training, speedup = precise(Trial(plan, training, prepared, device))
    if speedup is not None:
        found = f"bf16 is {speedup:.2f} times as fast as float32 here"
        report(Notice(text=f"training in {training.precision}: {found}"))
    return training


def choose_compilation(
    plan: Plan, training: TrainingConfig, prepared: Prepared, device: torch.device, report: Report
) -> TrainingConfig:
    """Settle whether steps are compiled: in long runs, where a trial shows that it pays."""
    if training.compile is not None:
        return training
    long = training.minutes is not None and training.minutes >= COMPILED_FROM_MINUTES
    # Documents of many lengths would need code for each, and so would layers that thaw.
    same = plan.data.documents == "stream" and not training.unfreeze
    if not (long and same and plan.model_class.over_tensors):
        return replace(training, compile=False)
    trial = Trial(plan, training, prepared, device)
    report(Notice(text="compiling for a trial, which takes up to a minute"))
    with own_randomness(device):
        times, why_not = compiled_speedup(trial.model(), trial.batches(), training)
    pays = times >= LEAST_SPEEDUP
    found = f"{times:.2f} times as fast" if why_not is None else why_not
    report(Notice(text=f"steps are {'' if pays else 'not '}compiled: {found}"))
    return replace(training, compile=pays)
