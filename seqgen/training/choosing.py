"""Choose settings by measurement, for a time budget in minutes.

Each candidate trains for about a second at most, and only if the user has left something open. The
highest speeds that this machine has shown are kept.
docs/evidence/experiments.md has the experiments behind the rules.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from seqgen import ranks
from seqgen.engines.memory_limit import BYTES, build_for_training, memory, parameter_count
from seqgen.engines.precision import parameter_type, restored_randomness
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.low_rank import add_adapters
from seqgen.models.mixture.members import build_members
from seqgen.settings import DataConfig, ModelConfig, Size
from seqgen.settings.training import RESUMABLE, TrainingConfig
from seqgen.store.cache import keep_measurement, kept_measurement, replace_measurement
from seqgen.text.batches import Batches
from seqgen.training.datasets.prepared import Prepared, VocabSizes
from seqgen.training.deadline import Deadline
from seqgen.training.events import Notice, Report
from seqgen.training.plan import Plan
from seqgen.training.regularising import Regularisation
from seqgen.training.run import Budget
from seqgen.training.speed import (
    bf16_speedup,
    compiled_speedup,
    faster_precision,
    speed_ratio,
    speeds_by_threads,
)
from seqgen.wording import format_settings, plural

# The number of rows is doubled if that trains at least `LEAST_GAIN` times as fast and leaves at
# least `LEAST_STEPS` steps, and each row at least `LEAST_WINDOWS` windows of text. The learning
# rate is then multiplied by the square root of two, but by at most `MOST_RATE_GAIN` in all: higher
# rates were no better. So where overfitting raises the rate itself, rows stay as they are.
LEAST_GAIN, LEAST_STEPS, LEAST_WINDOWS, MOST_RATE_GAIN = 1.2, 800, 16, 2.0
# Under these schedules the loss falls late, when the rate drops: earlier validations say little.
LATE = ("step", "wsd")
# A text that has been read so many times has little more to teach: no run got better beyond that.
MOST_PASSES = 100
# With fewer, some of the pairs or examples are never seen.
LEAST_PASSES = 1
# A transformer that trains on fewer training tokens is behind the recurrent network, or was not
# compared: tokens of targets for translators, characters or bytes for language models.
TRANSFORMER_FROM_TOKENS = {"seq2seq-transformer": 5e6, "transformer": 2.5e6}
# Language models were compared on texts of at least this many characters. Only settings listed here
# may be given; any other fixes the architecture.
LARGE_TEXT = 5e6
SETTINGS_OF_ANY_ARCHITECTURE = {*DataConfig.fields(), *RESUMABLE, "seed", "precision", "memory"}
# Compiling takes up to a minute, so it is tried only in runs of at least this many minutes, and
# kept if steps are at least `LEAST_SPEEDUP` times as fast.
COMPILED_FROM_MINUTES, LEAST_SPEEDUP = 30, 1.03
# What the speed decides is chosen again during runs of at least so many minutes.
REVISED_FROM_MINUTES = 0.5
# Rows are divided among threads in runs of at least so many operations, or in minutes, unless that
# trains less than so many times as fast as dividing each operation. Beside other work, threads that
# meet once a step are nearly twice as fast.
TRIED_FROM_OPERATIONS, LEAST_ROW_SPEEDUP = 1e12, 0.95
# Trials take at most this share of a budget in minutes. What they find is kept for later runs.
TRIAL_SHARE = 0.03
# Where that is less than so many seconds, nothing is tried: unless a speed is known, a machine is
# taken to compute so many operations a second, which decides for the smallest size.
SHORTEST_TRIALS, USUAL_OPERATIONS = 0.5, 1e10
# From so many minutes on, a moment is taken even then: to measure the speed of the smallest size,
# and for bf16, which may be twice as fast.
MEASURED_FROM_MINUTES, BF16_TRIAL_SECONDS = 0.75, 1.5
# An imported model is tried with windows of so many tokens, and given no shorter ones unless it has
# them itself; longer ones are to leave so many steps.
TRIED_WINDOW, LEAST_TUNING_STEPS = 64, 100
# The work on a token is about proportional to the parameters. Larger models do more of it in a
# second, because their products are larger: about so many times as much as the smallest size.
EFFICIENCY_GAIN = 1.5


@dataclass(frozen=True)
class SpeedTrial:
    """A plan that trains for a moment on its text, to measure its speed.

    The highest speeds are kept for this machine, of trials and of whole runs, so that what is
    chosen depends little on what else the machine does at the time.

    Attributes:
        plan: the plan.
        training: its complete training settings.
        prepared: the text.
        device: where to train.
        deadline: of all trials; afterwards nothing more is measured if there is an estimate.
        estimate: the speed to expect, in tokens per second; None if only a trial can tell.
    """

    plan: Plan
    training: TrainingConfig
    prepared: Prepared
    device: torch.device
    deadline: Deadline
    estimate: float | None = None

    @classmethod
    def of(
        cls, plan: Plan, prepared: Prepared, device: torch.device, deadline: Deadline
    ) -> SpeedTrial:
        """Make the trial of a plan, with its resolved training settings."""
        training = plan.resolve(prepared, device, lambda event: None)
        trial = cls(plan, training, prepared, device, deadline)
        return replace(trial, training=choose_trial_precision(trial)[0])

    def with_settings(self, settings: Mapping[str, Any]) -> SpeedTrial:
        """Make the trial of the plan with additional settings."""
        plan = self.plan.with_settings(settings)
        return SpeedTrial.of(plan, self.prepared, self.device, self.deadline)

    @cached_property
    def shape(self) -> ModelConfig:
        """Configuration of the model."""
        return self.plan.model_config(self.prepared.vocab_sizes, self.training.seq_len)

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of the model; of members, of each."""
        return parameter_count(self.plan.model_class, self.shape)

    def model(self) -> NeuralLanguageModel:
        """Build the untrained model."""
        make = functools.partial(build_for_training, self.plan.model_class, self.shape)
        model = build_members(make, self.training.members, self.training.seed)
        self.prepared.show(model)
        if self.training.lora is not None:
            add_adapters(model, self.training.lora, self.training.lora_alpha)
        return model.to(device=self.device, dtype=parameter_type(self.training.precision))

    def batches(self) -> Batches:
        """Make the training batches, without subword sampling."""
        plain = replace(self.prepared.config, subword_sampling=None)
        prepared = replace(self.prepared, config=plain)
        return prepared.batches_for(self.plan.model_class, self.training)

    def _about(self, question: str) -> dict[str, Any]:
        """Describe a measurement: what its result depends on besides the machine."""
        settings = ("batch_size", "seq_len", "accumulate", "optimizer")
        about = {
            "question": question,
            "architecture": self.plan.architecture,
            "device": self.device.type,
            "model": {k: v for k, v in self.shape.to_dict().items() if k != "dropout"},
            "training": {name: getattr(self.training, name) for name in settings},
            "documents": self.plan.data.documents,
        }
        several = {"members": self.training.members, "ranks": ranks.world_size()}
        return about | {name: number for name, number in several.items() if number not in (None, 1)}

    def _known(self, question: str) -> dict[str, Any] | None:
        """Load an earlier result of this machine; None if there is none."""
        return ranks.run_on_leader(lambda: kept_measurement(self._about(question)))

    @cached_property
    def bf16_speedup(self) -> float | None:
        """Training speed in bf16 relative to float32; None if unknown, with no time to try."""
        question = "training in bf16, as fast and as well"
        if (known := self._known(question)) is not None:
            return known["times_as_fast"]
        if self.deadline.is_over:
            return None
        with restored_randomness(self.device):
            trained = self.model(), self.batches(), self.training
            speedup, measured = bf16_speedup(*trained, self.deadline)
        for way, speed in measured:
            replace(self, training=way).keep_speeds({way.row_threads or 1: speed})
        found = {"times_as_fast": speedup}
        kept = ranks.run_on_leader(lambda: keep_measurement(self._about(question), found))
        return (kept or found)["times_as_fast"]

    @property
    def _speed_question(self) -> str:
        return f"tokens a second in {self.training.precision}"

    @property
    def known_speeds(self) -> dict[int | None, float]:
        """Highest speeds seen here, in tokens per second, by number of row threads; may be empty.

        If the number is given, no other counts.
        """
        kept = self._known(self._speed_question) or {"speeds": []}
        speeds = dict(kept["speeds"])
        given = self.training.row_threads
        return speeds if given is None else {k: v for k, v in speeds.items() if k == given}

    def measure(self) -> dict[int | None, float]:
        """Measure tokens per second by number of row threads, and keep the highest."""
        with restored_randomness(self.device):
            speeds = speeds_by_threads(self.model(), self.batches(), self.training, self.deadline)
        self.keep_speeds(speeds)
        return speeds

    def keep_speeds(self, speeds: Mapping[int | None, float]) -> None:
        """Keep speeds of a trial or a whole run for later runs, where none as high is known."""
        known = replace(self, training=replace(self.training, row_threads=None)).known_speeds
        higher = {k: v for k, v in speeds.items() if v > known.get(k, 0.0)}
        if higher and ranks.is_leader():
            found = {"speeds": [*(known | higher).items()]}
            replace_measurement(self._about(self._speed_question), found)

    @cached_property
    def speed(self) -> float:
        """Tokens per second in the faster way to divide the rows.

        That is the highest seen so far, also now if there is time: an earlier trial may have been
        slowed down by other work.
        """
        known = self.known_speeds
        if self.deadline.is_over and (known or self.estimate is not None):
            return max(known.values(), default=self.estimate)
        return max(*known.values(), *self.measure().values(), 0.0)

    @property
    def tokens(self) -> float:
        """Number of tokens that the model can train on within the budget."""
        return 60 * self.training.minutes * self.speed

    @property
    def steps(self) -> float:
        """Number of steps within the budget."""
        return self.tokens / (self.training.batch_size * self.training.seq_len)

    @property
    def passes(self) -> float:
        """Number of passes over the training text within the budget."""
        return self.tokens / self.prepared.train.scored

    @property
    def overfitting_ratio(self) -> float:
        """Passes over the text times parameters per training token."""
        return self.passes * self.parameters / self.prepared.read_tokens

    def gains(self, other: SpeedTrial) -> bool:
        """Check whether this trial is at least `LEAST_GAIN` times as fast as `other`."""
        unknown = self.deadline.is_over and not self.known_speeds
        if unknown or self.speed < LEAST_GAIN * other.speed:
            return False
        if self.deadline.is_over:
            return True
        # The first two measurements were some seconds apart, so measure again in alternation.
        both = [lambda one=one: max(one.measure().values()) for one in (self, other)]
        return speed_ratio(*both, self.deadline) >= LEAST_GAIN

    def estimated_speed_of(self, larger: SpeedTrial) -> float:
        """Estimate the speed of a larger model from the speed of this one."""
        return self.speed * min(1.0, EFFICIENCY_GAIN * self.parameters / larger.parameters)


def trial_deadline(training: TrainingConfig) -> Deadline:
    """Set the deadline of all trials before a run: none where the budget is not in minutes."""
    if training.minutes is None:
        return Deadline()
    seconds = TRIAL_SHARE * 60 * training.minutes
    return Deadline.after(seconds if seconds >= SHORTEST_TRIALS else 0.0)


def choose_size(
    plan: Plan, prepared: Prepared, device: torch.device, report: Report, deadline: Deadline
) -> Plan:
    """Choose the settings that the user left open for a budget in minutes."""
    config_class = plan.config_class
    sized, regularised = config_class.sizes[0].settings, config_class.regularised(1.0)
    left_open = {*sized, *regularised, "batch_size", "patience"} - plan.given.keys()
    if plan.training.minutes is None or plan.origin is not None or not left_open:
        return plan
    chosen, trial = _largest_size(plan, prepared, device, deadline)
    more, trial = _find_batch_size(trial, chosen)
    chosen |= more
    rule = _regularisation(trial)
    chosen |= rule.settings(config_class, trial.overfitting_ratio)
    tokens = plural(round(trial.tokens), plan.task.unit)
    settings = f" with {format_settings(chosen)};" if chosen else ":"
    enough = f"the budget is enough for up to {tokens}, {trial.passes:.1f} passes over the text"
    report(Notice(text=f"{plan.architecture}{settings} {enough}", detail=True))
    if plan.task.model_is is None and plan.task.stops_early and trial.passes > MOST_PASSES:
        report(Notice(text=_repetition_notice(trial)))
    if not plan.task.beside_ngrams and trial.passes < LEAST_PASSES:
        report(Notice(text=_undertraining_notice(trial)))
    # The first steps of a shorter run say less of its speed than the trial.
    again = rule if plan.training.minutes >= REVISED_FROM_MINUTES else None
    return replace(plan.with_settings(chosen), regularisation=again)


def choose_window(
    plan: Plan, prepared: Prepared, device: torch.device, report: Report, deadline: Deadline
) -> Plan:
    """Choose the training window of an imported model: its own, or what time and memory allow."""
    whole = plan.origin and plan.origin.training_window
    if not whole or "seq_len" in plan.given or plan.task.longest is not None:
        return plan
    rows, text = plan.training.batch_size, prepared.train.tokens.size
    if not prepared.in_windows:
        rows = plan.given.get("batch_size", prepared.default_batch_size(plan.training))
        text = prepared.longest_row
    in_memory = _window_in_memory(plan.origin.model.config, rows, device)
    limits = {"the text is not longer": text, "more may not fit in memory": in_memory}
    if plan.training.minutes is not None and prepared.in_windows:
        short = plan.with_settings({"seq_len": min(whole, text, TRIED_WINDOW)})
        tokens = SpeedTrial.of(short, prepared, device, deadline).tokens
        limits["the budget is too short for more"] = int(tokens / (rows * LEAST_TUNING_STEPS))
    why, most = min(limits.items(), key=lambda limit: limit[1])
    length = min(whole, text)
    while length > max(most, TRIED_WINDOW):
        length = max(length // 2, TRIED_WINDOW)
    plan = plan.with_given({"seq_len": length})
    if not prepared.in_windows:
        return plan
    about = "all that it can read" if length == whole else f"of {whole:,} that it can read: {why}"
    name = plan.origin.stored.name
    windows = f"{name} is trained on windows of {plural(length, 'token')}, {about}"
    report(Notice(text=f"{windows}; --seq-len sets another length"))
    return plan


def _window_in_memory(config: ModelConfig, rows: int, device: torch.device) -> int:
    """Estimate the longest window whose activations fit in half of the memory.

    In float32 a layer keeps about 68 bytes for each token and unit, without attention weights
    (Korthikanti et al. 2022, equation 2), and the loss keeps logits, probabilities and gradients.
    """
    units = 68 * config.num_layers * config.hidden_size + 3 * BYTES * config.vocab_size
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory()
    return free // (2 * rows * units)


def _repetition_notice(trial: SpeedTrial) -> str:
    """Write a notice on the number of minutes after which the text repeats too often."""
    enough = trial.training.minutes * MOST_PASSES / trial.passes
    when = plural(round(enough), "minute") if enough >= 1 else plural(round(60 * enough), "second")
    read = f"this text is used up after about {MOST_PASSES} passes, {when} here"
    return f"{read}: more minutes would hardly help, and more text would"


def _undertraining_notice(trial: SpeedTrial) -> str:
    """Write a notice on how long one pass over the data takes, for budgets below that."""
    minutes = trial.training.minutes / trial.passes
    long = minutes >= 1.5
    once = plural(round(minutes), "minute") if long else plural(round(60 * minutes), "second")
    return (
        f"the model will see less than all of its data once, which takes about {once} here: give "
        "more --minutes, or make it smaller (--hidden-size)"
    )


def _largest_size(
    plan: Plan, prepared: Prepared, device: torch.device, deadline: Deadline
) -> tuple[dict[str, Any], SpeedTrial]:
    """Find the largest size that text and budget support, else the smallest, and its trial."""

    def trial_of(size: Size) -> SpeedTrial:
        return SpeedTrial.of(plan.with_settings(size.settings), prepared, device, deadline)

    *larger, smallest = _allowed_sizes(plan, prepared)
    least = trial_of(smallest)
    if deadline.is_over and plan.training.minutes < MEASURED_FROM_MINUTES:
        least = replace(least, estimate=USUAL_OPERATIONS / (6 * least.parameters))
    for size in larger:
        # No larger model is faster. So most need no trial, which may take them minutes.
        if prepared.train.tokens.size < size.text or least.tokens < size.tokens:
            continue
        try:
            trial = trial_of(size)
            trial = replace(trial, estimate=least.estimated_speed_of(trial))
            if trial.tokens >= size.tokens:
                return dict(size.settings), trial
        except (torch.OutOfMemoryError, SeqgenError):  # too large for this machine
            continue
    return dict(smallest.settings), least


def may_suit_transformer(plan: Plan, prepared: Prepared) -> bool:
    """Check whether a transformer may predict this text better than `lstm` within the budget."""
    leaves_open = (
        plan.training.minutes is not None and plan.given.keys() <= SETTINGS_OF_ANY_ARCHITECTURE
    )
    stream = plan.data.documents == "stream" and prepared.spelled
    return leaves_open and stream and prepared.train.tokens.size >= LARGE_TEXT


def suits_transformer(
    plan: Plan, prepared: Prepared, device: torch.device, deadline: Deadline
) -> bool:
    """Check whether the budget is long enough for a transformer to beat the recurrent network.

    Args:
        plan: of the transformer.
        prepared: the text or pairs.
        device: where to train.
        deadline: of all trials.
    """
    least = TRANSFORMER_FROM_TOKENS[plan.architecture]
    if plan.training.minutes is not None:
        _, trial = _largest_size(plan, prepared, device, deadline)
        return trial.tokens >= least
    training = plan.resolve(prepared, device, lambda event: None)
    in_epoch = prepared.batches_for(plan.model_class, training).steps_per_epoch
    return Budget.of(training, in_epoch).steps / in_epoch * prepared.train.scored >= least


def _allowed_sizes(plan: Plan, prepared: Prepared) -> list[Size]:
    """List the preset sizes that the given settings allow, with those settings removed.

    If two sizes become the same, the one that demands less counts. If none is left, the settings
    that are not given keep their defaults.
    """
    sizes: dict[tuple[Any, ...], Size] = {}
    for size in plan.config_class.sizes_for(prepared.vocab_sizes.target, plan.given.keys()):
        size = replace(size, settings=plan.only_unset(size.settings))
        with contextlib.suppress(UsageError):
            plan.with_settings(size.settings).model_config(VocabSizes(), plan.training.seq_len)
            sizes[tuple(size.settings.items())] = size
    return list(sizes.values()) or [Size({})]


def _find_batch_size(trial: SpeedTrial, size: dict[str, Any]) -> tuple[dict[str, Any], SpeedTrial]:
    """Find a larger batch size and its learning rate if they train faster; return the trial too."""
    first_rate = trial.training.lr
    # With documents the number of rows follows from their lengths; a user who accumulates
    # gradients has no memory for more rows.
    given = {"batch_size", "accumulate"} & trial.plan.given.keys()
    chosen: dict[str, Any] = {}
    if given or trial.plan.data.documents != "stream":
        return chosen, trial
    while trial.steps >= LEAST_STEPS:
        kind, ratio = trial.plan.config_class, trial.overfitting_ratio
        if "lr" in _regularisation(trial).settings(kind, ratio):
            break
        rows = 2 * trial.training.batch_size
        rate = min(math.sqrt(2) * trial.training.lr, MOST_RATE_GAIN * first_rate)
        larger = trial.plan.only_unset({"batch_size": rows, "lr": rate})
        if trial.prepared.train.tokens.size < LEAST_WINDOWS * rows * trial.training.seq_len:
            break
        roomier = trial.with_settings({**size, **larger})
        try:
            gains = roomier.gains(trial)
        except (torch.OutOfMemoryError, SeqgenError):  # out of memory, or the rate is too high
            break
        if not gains or roomier.steps < LEAST_STEPS:
            break
        chosen, trial = larger, roomier
    return chosen, trial


def _regularisation(trial: SpeedTrial) -> Regularisation:
    """Collect the regularisation settings that the user left open."""
    plan, training, spelled = trial.plan, trial.training, trial.prepared.spelled
    config_class = plan.config_class
    left_open = set(config_class.regularised(1.0)) - plan.given.keys()
    own_rule = training.optimizer == config_class.recipe.get("optimizer")
    if own_rule and {"lr", "muon_lr"}.isdisjoint(plan.given):
        fast = config_class.regularised(0.0, spelled=True, rate_is_open=True)
        left_open |= {"lr", *fast} - plan.given.keys()
    evenly = training.validate_every is None and training.schedule not in LATE
    stops = plan.task.stops_early and plan.data.val != "none" and evenly
    if stops and "patience" not in plan.given:
        left_open.add("patience")
    return Regularisation(left_open=sorted(left_open), lr=training.lr, spelled=spelled)


def choose_trial_precision(trial: SpeedTrial) -> tuple[TrainingConfig, float | None]:
    """Choose the precision; return its settings, and the bf16 speedup if that was measured."""
    if trial.training.precision != "auto":
        return trial.training, None
    speedup = trial.bf16_speedup
    return replace(trial.training, precision=faster_precision(speedup or 0.0)), speedup


def choose_for_machine(trial: SpeedTrial, report: Report) -> TrainingConfig:
    """Choose precision, row threads and compilation by the speed of this machine."""
    for choose in (
        _choose_checkpointing,  # first, since trials need memory too
        _choose_precision,
        _choose_row_threads,
        _choose_compilation,
    ):
        trial = replace(trial, training=choose(trial, report))
    return trial.training


def _choose_precision(trial: SpeedTrial, report: Report) -> TrainingConfig:
    """Choose bf16 if a trial shows that it trains at least a tenth faster, else float32."""
    if trial.deadline.is_over and (trial.training.minutes or 0) >= MEASURED_FROM_MINUTES:
        trial = replace(trial, deadline=Deadline.after(BF16_TRIAL_SECONDS))
    training, speedup = choose_trial_precision(trial)
    if speedup is not None:
        fast = f"bf16 is {speedup:.2f} times as fast as float32 here"
        measured = fast if speedup else "in bf16 the first steps reach higher losses"
        report(Notice(text=f"training in {training.precision}: {measured}", detail=True))
    return training


def _choose_checkpointing(trial: SpeedTrial, report: Report) -> TrainingConfig:
    """Choose to compute activations of a transformer again if they may not fit in memory."""
    training = trial.training
    if training.checkpointing is not None or not hasattr(trial.plan.model_class, "checkpointing"):
        return training
    length = min(training.seq_len, trial.prepared.longest_row)
    rows = -(-training.batch_size // training.accumulate) * (training.members or 1)
    short = length > _window_in_memory(trial.shape, rows, trial.device)
    if short:
        why = f"activations of {rows:,} rows of {length:,} tokens may not fit in memory"
        report(Notice(text=f"checkpointing=true: {why}"))
    return replace(training, checkpointing=short)


def _choose_row_threads(trial: SpeedTrial, report: Report) -> TrainingConfig:
    """Choose, in long runs, whether to divide the rows of a step among threads.

    A trial may show that it is slower. Without one they are divided, where that is possible.
    """
    threads, training = torch.get_num_threads(), trial.training
    if training.row_threads is not None or training.members is not None:
        return training
    alone = trial.device.type == "cpu" and ranks.world_size() == 1
    if not (alone and threads > 1 and _is_long(trial)):
        return replace(training, row_threads=1)
    both, speeds = {1, threads}, trial.known_speeds
    if not both <= speeds.keys() and not trial.deadline.is_over:
        with contextlib.suppress(SeqgenError):  # training diverges
            speeds = {threads: 0.0, **trial.measure()}  # 0 where rows cannot be divided
    tried = both <= speeds.keys()
    times = speeds[threads] / speeds[1] if tried else speeds.get(threads, 1.0)
    if times < LEAST_ROW_SPEEDUP:
        return replace(training, row_threads=1)
    if tried:
        faster = f"{times:.2f} times as fast as dividing each operation"
        report(Notice(text=f"rows are divided among {threads} threads: {faster}", detail=True))
    return replace(training, row_threads=threads)


def _is_long(trial: SpeedTrial) -> bool:
    """Check whether a run is long enough for a trial of some seconds."""
    training = trial.training
    if training.minutes is not None:
        return True
    steps = Budget.of(training, trial.batches().steps_per_epoch).steps
    tokens = steps * training.batch_size * training.seq_len
    return 6 * trial.parameters * tokens >= TRIED_FROM_OPERATIONS


def _choose_compilation(trial: SpeedTrial, report: Report) -> TrainingConfig:
    """Choose whether to compile the training steps: in long runs, if a trial shows a gain."""
    plan, training = trial.plan, trial.training
    if training.compile is not None:
        return training
    long = training.minutes is not None and training.minutes >= COMPILED_FROM_MINUTES
    # Documents of different lengths would each need compiled code, as would unfrozen layers.
    fixed_shapes = plan.data.documents == "stream" and not training.unfreeze
    fixed_shapes = fixed_shapes and training.members is None and not training.checkpointing
    if not (long and fixed_shapes and plan.model_class.over_tensors):
        return replace(training, compile=False)
    report(Notice(text="compiling for a trial, which takes up to a minute"))
    with restored_randomness(trial.device):
        times, why_not = compiled_speedup(trial.model(), trial.batches(), training)
    pays = times >= LEAST_SPEEDUP
    training = replace(training, row_threads=1) if pays else training
    measured = f"{times:.2f} times as fast" if why_not is None else why_not
    report(Notice(text=f"steps are {'' if pays else 'not '}compiled: {measured}", detail=True))
    return replace(training, compile=pays)
