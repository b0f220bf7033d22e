"""The training loop: windows, gradients, updates and validations until the budget is spent."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.configs import TrainingConfig
from seqgen.data.batches import IGNORED, Batch, Batches
from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel, load_weights, weights_of
from seqgen.models.precision import arithmetic
from seqgen.models.state import State
from seqgen.training.events import Progress, Report, Validated
from seqgen.training.optimizers import Rule
from seqgen.training.schedules import rate

LOG_SECONDS = 1.0
CHECKPOINT_SECONDS = 120.0


@dataclass
class Run:
    """Where a run stands: all of its numbers, which a checkpoint holds.

    Attributes:
        step: steps done.
        tokens: tokens seen.
        seconds: training time, validations in passing included.
        best_loss: the best validation in passing, nats per token.
        best_step: when that was.
        last_loss: the last one.
        train_loss: nats per token over the last logged steps.
        stopped: why the run ended, or None.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float | None = None
    best_step: int | None = None
    last_loss: float | None = None
    train_loss: float | None = None
    stopped: str | None = None


@dataclass(kw_only=True)
class Hooks:
    """What the loop asks of whoever runs it; it knows neither disk nor decoding.

    Attributes:
        validate: returns the validation loss of the model as it is, nats per token.
        keep_best: called when the model is the one to keep: the best so far by validation.
        checkpoint: called when all that resuming needs should be written.
        report: takes events.
        stop: why to stop before the budget is spent, if at all.
    """

    validate: Callable[[], float] | None = None
    keep_best: Callable[[], None]
    checkpoint: Callable[[], None]
    report: Report
    stop: Callable[[Run], str | None] = lambda run: None


@dataclass
class Budget:
    """When training ends, and how far through it is.

    A budget in steps or epochs is a number of steps; one in minutes is wall time, of which the
    time of the last validation is kept back.
    """

    steps: int | None
    seconds: float | None

    @classmethod
    def of(cls, config: TrainingConfig, steps_per_epoch: int) -> Budget:
        """Return the budget that `config` names."""
        if config.minutes is not None:
            return cls(None, 60 * config.minutes)
        if config.epochs is not None:
            return cls(max(1, math.ceil(config.epochs * steps_per_epoch)), None)
        return cls(config.steps, None)

    def share(self, run: Run) -> float:
        """Return how much of the budget is spent, 0 to 1."""
        spent = run.step / self.steps if self.steps else run.seconds / self.seconds
        return min(1.0, spent)

    def validations(self) -> int:
        """Return how many validations in passing suit the budget."""
        return 10 if self.steps else min(20, max(2, math.ceil(self.seconds / 30)))


@dataclass
class Window:
    """What has been measured since the last logged step."""

    nats: float = 0.0
    tokens: int = 0
    since: float = field(default_factory=time.monotonic)


class Trainer:
    """Trains one model once.

    Args:
        model: on its device, in its parameters' type.
        batches: the training part.
        config: with a budget, and a precision that is not "auto".
        hooks: what to call along the way.
    """

    def __init__(
        self, model: NeuralLanguageModel, batches: Batches, config: TrainingConfig, hooks: Hooks
    ) -> None:
        self.model, self.batches, self.config, self.hooks = model, batches, config, hooks
        self.rule = Rule(model, config)
        self.budget = Budget.of(config, batches.steps_per_epoch)
        self.run = Run()
        self.state: State | None = None
        self._carries = model.carries_state and not config.reset_state
        self._validation_seconds = 0.0
        self._validations_done = 0

    def train(self) -> Run:
        """Train until the budget is spent or the user interrupts.

        Raises:
            SeqgenError: the loss or a gradient is no longer finite; the last checkpoint stays.
        """
        run, window, validated = self.run, Window(), None
        began = time.monotonic() - run.seconds
        saved = logged = time.monotonic()
        self.model.train()
        while not self._over():
            loss, norm, tokens = self._step(run.step)
            self._require_finite(loss, norm)
            run.step += 1
            run.tokens += tokens
            window.nats += loss * tokens
            window.tokens += tokens
            run.seconds = time.monotonic() - began
            if self._over() or time.monotonic() - logged >= LOG_SECONDS:
                self._log(window, norm)
                window, logged = Window(), time.monotonic()
            # In its place also where the run is cut short: going on would not make up for it.
            if self._validation_is_due():
                self._validate()
                validated, run.seconds = run.step, time.monotonic() - began
                window.since += self._validation_seconds
            if self._checkpoint_is_due(saved):
                self._checkpoint()
                saved = time.monotonic()
        # A run cut short adds no validation: it is to go on as if it had not been.
        if run.stopped == self.config.budget and validated != run.step:
            self._validate()
            run.seconds = time.monotonic() - began
        self._checkpoint()
        return run

    def _over(self) -> bool:
        run = self.run
        if reason := self.hooks.stop(run):
            run.stopped = reason
        elif self.budget.steps is not None and run.step >= self.budget.steps:
            run.stopped = self.config.budget
        elif self.budget.seconds is not None and self._time_is_up():
            run.stopped = "minutes"
        return run.stopped is not None

    def _time_is_up(self) -> bool:
        step = self.run.seconds / self.run.step if self.run.step else 0.0
        return self.run.seconds + self._validation_seconds + step > self.budget.seconds

    def _step(self, number: int) -> tuple[float, float, int]:
        """Take one step; return the loss in nats per token, the gradient's norm and the tokens."""
        config, batch = self.config, self.batches.batch(number)
        loss = self._loss(batch)
        for parameter in self.model.parameters():
            parameter.grad = None
        loss.backward()
        limit = config.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.rule.step(rate(config, self.budget.share(self.run)))
        return loss.item(), norm.item(), batch.count

    def _loss(self, batch: Batch) -> Tensor:
        """Return the mean of the batch's negative log-probabilities, in nats."""
        device = self.model.device
        tokens = torch.from_numpy(batch.tokens).to(device)  # (B, T)
        targets = torch.from_numpy(batch.targets).to(device)
        past = None if batch.fresh or not self._carries else self.state.detach()
        with arithmetic(self.config.precision, device):
            logits, after = self.model(tokens, past)  # (B, T, V)
        self.state = after if self._carries else None
        nats = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return nats / batch.count

    @torch.no_grad()
    def _loss_again(self) -> float:
        """Return the last batch's loss after its update: it may have broken the weights."""
        state = self.state
        self.model.eval()  # draws no dropout, so that a checkpoint changes nothing
        loss = self._loss(self.batches.batch(max(0, self.run.step - 1))).item()
        self.model.train()
        self.state = state
        return loss

    def _require_finite(self, *numbers: float) -> None:
        if not all(map(math.isfinite, numbers)):
            raise SeqgenError(
                f"the loss is no longer finite after step {self.run.step}; try a smaller --lr "
                "(the last checkpoint, if there is one, is kept)"
            )

    def _log(self, window: Window, norm: float) -> None:
        run = self.run
        now = time.monotonic()
        run.train_loss = window.nats / window.tokens
        share = self.budget.share(run)
        self.hooks.report(
            Progress(
                step=run.step,
                share=share,
                seconds=run.seconds,
                tokens=run.tokens,
                train_loss=run.train_loss,
                lr=rate(self.config, share),
                grad_norm=norm,
                tokens_per_second=window.tokens / max(now - window.since, 1e-9),
            )
        )

    def _validation_is_due(self) -> bool:
        if self.hooks.validate is None:
            return False
        if self.config.validate_every:
            return self.run.step % self.config.validate_every == 0
        if self.budget.steps:
            return self.run.step % max(1, self.budget.steps // self.budget.validations()) == 0
        return self.budget.share(self.run) * self.budget.validations() >= self._validations_done + 1

    def _validate(self) -> None:
        run, hooks = self.run, self.hooks
        if hooks.validate is None:
            hooks.keep_best()
            return
        began = time.monotonic()
        self.model.eval()
        loss = hooks.validate()
        self._require_finite(loss)
        self.model.train()
        self._validations_done = int(self.budget.share(run) * self.budget.validations())
        run.last_loss = loss
        best = run.best_loss is None or loss < run.best_loss
        if best:
            run.best_loss, run.best_step = loss, run.step
            hooks.keep_best()
        hooks.report(Validated(step=run.step, seconds=run.seconds, val_loss=loss, best=best))
        self._validation_seconds = time.monotonic() - began

    def _checkpoint_is_due(self, saved: float) -> bool:
        every = self.config.checkpoint_every
        at_step = every is not None and self.run.step % every == 0
        return at_step or time.monotonic() - saved > CHECKPOINT_SECONDS

    def _checkpoint(self) -> None:
        self._require_finite(self._loss_again())
        if self.run.best_loss is None:
            self.hooks.keep_best()
        self.hooks.checkpoint()

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that `restore` needs: tensors by name, and plain facts."""
        tensors = {f"model.{n}": t for n, t in weights_of(self.model).items()}
        tensors |= {f"optimizer.{n}": t for n, t in self.rule.tensors().items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.model.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.model.device)
        if self.state is not None:
            tensors |= {f"state.{i}": t for i, t in enumerate(self.state.detach().tensors())}
        return tensors, {"run": dataclasses.asdict(self.run)}

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Stand where `snapshot` was taken: what follows is what would have followed then.

        Raises:
            RuntimeError, KeyError, TypeError: the snapshot is of another model.
        """
        load_weights(self.model, _part(tensors, "model."))
        self.rule.restore(_part(tensors, "optimizer."))
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.model.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.model.device)
        state = _part(tensors, "state.")
        if state:
            in_order = iter([state[str(i)].to(self.model.device) for i in range(len(state))])
            self.state = self.model.start(1).map(lambda _: next(in_order))
        self.run = Run(**facts["run"])
        self.run.stopped = None
        self._validations_done = int(self.budget.share(self.run) * self.budget.validations())


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
