"""State of a run: progress, budget, loss windows, and hooks of the caller."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seqgen import ranks
from seqgen.errors import SeqgenError
from seqgen.settings.training import FINISHED, TrainingConfig
from seqgen.training.events import Event, Report

if TYPE_CHECKING:
    from seqgen.text.batches import Batch
    from seqgen.training.parts import CheckpointPart

# The number of validations during a run: the most, and with a budget in minutes the first comes
# after this many seconds.
STEPPED_VALIDATIONS, TIMED_VALIDATIONS, FIRST_AFTER = 10, 20, 15.0
# A validation comes after so many times the seconds, or the steps, that the last one took; one that
# takes seconds, after more steps.
SECONDS_BETWEEN, STEPS_BETWEEN, STEPS_BETWEEN_LONG = 50, 10, 50

# Of a budget in minutes, this share and so many seconds, but at most a tenth, are kept for what
# comes after the last step: the final validation, the weights of an n-gram part, the last files.
SHARE_OF_END, SECONDS_OF_END, MOST_OF_END = 0.04, 1.5, 0.1
# The shares of a budget in minutes at which settings are chosen again for the speed so far.
REVISED_AT = (0.03, 0.1)

# Why a run ends.
INTERRUPTED = "interrupted"
REASONS = (None, *FINISHED, "stop-after", INTERRUPTED)


class Diverged(SeqgenError):  # noqa: N818
    """Error: the loss or a gradient diverged; diverged weights are not saved."""


@dataclass
class Losses:
    """Running sums of step losses, weighted by tokens.

    Attributes:
        tokens: of all the steps.
        nats: the sum of the losses.
        squares: the sum of their squares.
    """

    tokens: int = 0
    nats: float = 0.0
    squares: float = 0.0

    def add(self, loss: float, tokens: int) -> None:
        """Add a step: its loss in nats per token, and its number of tokens."""
        self.tokens += tokens
        self.nats += loss * tokens
        self.squares += loss * loss * tokens

    @property
    def mean(self) -> float:
        """Mean loss in nats per token."""
        return self.nats / self.tokens

    @property
    def std(self) -> float:
        """Standard deviation of the losses of the steps that were added."""
        return math.sqrt(max(0.0, self.squares / self.tokens - self.mean**2))


@dataclass
class Run:
    """Progress of a run, as stored in a checkpoint.

    Attributes:
        step: steps done.
        tokens: tokens seen.
        seconds: training time, including validations during training.
        setup_seconds: time before the first step: reading, choosing settings, loading; of all
            commands that the run has had.
        best_loss: the lowest validation loss so far, nats per token.
        best_step: the step of that validation.
        last_loss: the last validation loss.
        last_validated: the step of that validation.
        validation_seconds: how long it took.
        validated_at_seconds: the value of `seconds` when it was over.
        worse: validations since the best.
        train_loss: nats per token over the last logged steps.
        epoch: the losses since the last whole epoch.
        epoch_loss: nats per token over that one.
        epoch_loss_std: the standard deviation of its steps' losses.
        stopped: why the run ended, or None.
        revisable: what `Hooks.revise` needs to choose settings again; None if nothing is open.
        revised: at how many of `REVISED_AT` it has.
        validation_length: tokens in each row of a validation, where they follow from the speed.
        warmed: whether the learning rate's warm-up is over; a longer budget does not begin another.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float | None = None
    best_step: int | None = None
    last_loss: float | None = None
    last_validated: int | None = None
    validation_seconds: float = 0.0
    validated_at_seconds: float = 0.0
    worse: int = 0
    train_loss: float | None = None
    epoch: Losses = field(default_factory=Losses)
    epoch_loss: float | None = None
    epoch_loss_std: float | None = None
    stopped: str | None = None
    revisable: dict[str, Any] | None = None
    revised: int = 0
    warmed: bool = False
    setup_seconds: float = 0.0
    validation_length: int | None = None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Run:
        """Load the progress stored in a checkpoint; older checkpoints have no epoch."""
        return cls(**{**facts, "epoch": Losses(**facts.get("epoch", {}))})


class Listener:
    """Base of training listeners: gets events and steps of a run; this one ignores them."""

    def updating(self, run: Run, batch: Batch) -> AbstractContextManager[None]:
        """Return a context manager around an update, from gradients to new weights.

        Args:
            run: before the step.
            batch: what the gradients are of.
        """
        return contextlib.nullcontext()

    def stepped(self, run: Run, loss: float, norm: float) -> None:
        """Receive a step's loss in nats per token, and the gradient norm before clipping."""

    def take(self, event: Event) -> None:
        """Receive an event of the run."""

    def parts(self) -> Mapping[str, CheckpointPart]:
        """Return the checkpoint parts that a resumed run needs, by name.

        A name is a word that no other part of a checkpoint has, such as the plugin's.
        """
        return {}

    def close(self) -> None:
        """Release resources when training ends or fails."""


@dataclass(kw_only=True)
class Hooks:
    """Callbacks that connect the training loop to disk and decoding.

    Attributes:
        validate: returns the validation loss of the model as it is, nats per token; None if the
            run was interrupted.
        validation_steps: how many steps take as long as a validation. By no clock, since a resumed
            run is to validate at the same steps.
        validation_is_long: a validation takes seconds, and more time than a step.
        final_validations: returns how many validations take as long as the final one after
            training.
        figures: returns what the last validation has found besides the loss, by name.
        keep_best: called when the current model is the best so far by validation.
        checkpoint: called when a checkpoint should be written, after `keep_best` has been called;
            first at the first validation at the latest.
        report: takes events.
        stop: returns a reason to stop before the budget is spent, or None.
        listener: sees every step; events that it takes are passed on by the caller.
        revise: takes a run and the tokens that its budget is enough for at the speed so far;
            returns other settings to go on with, of its learning rate or patience, or None.
    """

    validate: Callable[[], float | None] | None = None
    validation_steps: float = 0.0
    validation_is_long: bool = False
    final_validations: Callable[[], float] = lambda: 0.0
    figures: Callable[[], Mapping[str, float]] = dict
    keep_best: Callable[[], None] = lambda: None
    checkpoint: Callable[[], None] = lambda: None
    report: Report = lambda event: None
    stop: Callable[[Run], str | None] = lambda run: None
    listener: Listener = field(default_factory=Listener)
    revise: Callable[[Run, float], TrainingConfig | None] = lambda run, tokens: None


@dataclass
class Budget:
    """Training budget: steps, minutes or epochs, and how much of it is spent.

    A budget in steps or epochs is a number of steps. One in minutes is the wall time of the whole
    command: what comes before the first step and after the last one is part of it.
    """

    steps: int | None
    seconds: float | None

    @classmethod
    def of(cls, config: TrainingConfig, steps_per_epoch: int) -> Budget:
        """Make the budget that a configuration names."""
        if config.minutes is not None:
            return cls(None, 60 * config.minutes)
        if config.epochs is not None:
            return cls(max(1, math.ceil(config.epochs * steps_per_epoch)), None)
        return cls(config.steps, None)

    def share(self, run: Run) -> float:
        """Compute the share of the training that is done, 0 to 1."""
        if self.steps:
            return min(1.0, run.step / self.steps)
        seconds = self.training_seconds(run)
        return min(1.0, run.seconds / seconds) if seconds > 0 else float(run.step > 0)

    def training_seconds(self, run: Run) -> float:
        """Compute the time that a budget in minutes leaves for training steps and validations."""
        end = min(MOST_OF_END * self.seconds, SHARE_OF_END * self.seconds + SECONDS_OF_END)
        return self.seconds - end - run.setup_seconds

    @property
    def validation_seconds(self) -> float:
        """Time that one validation may take: infinite but for a budget in minutes."""
        return math.inf if self.seconds is None else self.seconds / SECONDS_BETWEEN

    def until_validation(self, cost: float, steps: float = 0.0, is_long: bool = False) -> float:
        """Compute the number of steps or seconds between validations.

        Args:
            cost: the seconds that the last one took, 0 before the first. It is taken where the
                budget is in minutes: validations take a fiftieth of the time at most.
            steps: see `Hooks.validation_steps`. They are taken where the budget is in steps:
                validations take about a tenth of the time at most, besides the last one.
            is_long: then they take a fiftieth.
        """
        if self.steps:
            between = STEPS_BETWEEN_LONG if is_long else STEPS_BETWEEN
            return max(1, self.steps // STEPPED_VALIDATIONS, math.ceil(between * steps))
        wait = SECONDS_BETWEEN * cost if cost else FIRST_AFTER
        return max(self.seconds / TIMED_VALIDATIONS, wait)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision of the training loop after a step: stop, validate, save or choose settings again.

    Attributes:
        share: how much of the budget is spent, 0 to 1.
        stop: why the run ends here, or None.
        log: a record of the steps since the last one is due.
        validate: a validation is due.
        checkpoint: a checkpoint is due.
    """

    share: float
    stop: str | None
    log: bool
    validate: bool
    checkpoint: bool

    def agreed(self) -> Decision:
        """Broadcast rank 0's decision; a signal on any rank interrupts all."""
        if ranks.world_size() == 1:
            return self
        reason = REASONS.index(self.stop)
        flags = self.log, self.validate, self.checkpoint
        everywhere = ranks.all_gather_numbers([self.share, reason, *flags])
        share, reason, *flags = everywhere[0]
        stop = REASONS[int(reason)]
        if any(REASONS[int(facts[1])] == INTERRUPTED for facts in everywhere):
            stop = INTERRUPTED
        log, validate, checkpoint = map(bool, flags)
        return Decision(
            share=share,
            stop=stop,
            log=log or stop is not None,
            validate=validate,
            checkpoint=checkpoint,
        )


@dataclass
class LossWindow:
    """Losses and times since the last logged step."""

    losses: Losses = field(default_factory=Losses)
    since: float = field(default_factory=time.monotonic)
