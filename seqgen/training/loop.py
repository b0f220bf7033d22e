"""Training loop: windows, gradients, updates and validations until the budget is spent."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from seqgen import ranks
from seqgen.engines.arrays import products_in_use
from seqgen.engines.precision import restored_randomness, step_arithmetic
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.deferred_init import DeferredModel, lend_memory
from seqgen.models.mixture.members import Members, members_of
from seqgen.models.state import State
from seqgen.settings import MOST_NATS
from seqgen.settings.regimes import READING_REGIMES
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batch, Batches, Portion, portions
from seqgen.training.events import Progress, Validated
from seqgen.training.members import JointObjective, MemberThreads
from seqgen.training.objective import Objective
from seqgen.training.optimizers import Average, UpdateRule, clip_gradients, rate
from seqgen.training.parallel import Parallel
from seqgen.training.parts import CarriedState, CheckpointPart, ModelWeights, RandomStates
from seqgen.training.regimes.base import StepProgress, TextRules
from seqgen.training.row_threads import RowThreads, ThreadWork, can_divide_rows
from seqgen.training.run import (
    INTERRUPTED,
    REVISED_AT,
    Budget,
    Decision,
    Diverged,
    Hooks,
    Losses,
    LossWindow,
    Run,
)
from seqgen.training.sharding import Shards

LOG_SECONDS = 1.0
CHECKPOINT_SECONDS = 120.0


class Trainer:
    """Trains one model in one run.

    Args:
        model: on its device, in its parameters' type.
        batches: the training part.
        config: with a budget, and a precision that is not "auto".
        hooks: functions to call during training.
        text_rules: how texts are decoded and ended that some regimes let the model write; if it is
            None, as where only time is measured, costs compare ids.
        unfilled: the model without content, to be divided among the ranks (`Shards`); `model` is
            its shell.
    """

    def __init__(
        self,
        model: NeuralLanguageModel,
        batches: Batches,
        config: TrainingConfig,
        hooks: Hooks,
        text_rules: TextRules | None = None,
        unfilled: DeferredModel | None = None,
    ) -> None:
        whole, model = model, model if unfilled is None else unfilled.model
        if config.checkpointing is not None:
            for part in model.modules():
                if hasattr(part, "checkpointing"):
                    part.checkpointing = config.checkpointing
        self.model, self.batches, self.config, self.hooks = model, batches, config, hooks
        self._text_rules = text_rules or TextRules()
        kind = JointObjective if isinstance(model, Members) else Objective
        self.objective = kind(model, config, self._text_rules)
        self.objective.regimes.to(whole.device)
        writes = any(phase.regime not in READING_REGIMES for phase in config.phases)
        shards = unfilled and Shards(self.objective, unfilled, whole, writes)
        self.parallel = Parallel(self.objective, shards)
        self.threads = self._threads()
        self._members_parameters = [[*one.parameters()] for one in members_of(model)]
        self.rule = UpdateRule(model, config)
        self.average = Average(model, config.ema) if config.ema else None
        self._steps_per_epoch = batches.steps_per_epoch
        self.budget = Budget.of(config, self._steps_per_epoch)
        self.run = Run()
        self.carried = CarriedState(whole, model.device, config.accumulate)
        self._whole, self._carries = whole, model.carries_state and not config.reset_state
        self._has_checkpoint = False
        self._saved_at = self._logged_at = time.monotonic()

    def _threads(self) -> RowThreads | MemberThreads | None:
        if isinstance(self.objective, JointObjective):
            return MemberThreads(self.objective) if self.model.device.type == "cpu" else None
        several = (self.config.row_threads or 1) > 1 and can_divide_rows(self.model, self.config)
        return RowThreads(self.objective, self.config, self._text_rules) if several else None

    def compile(self) -> str | None:
        """Compile the model's `over_tensors`.

        Return why it cannot be compiled, or None. Random states are unchanged.
        """
        state, device = self.carried.state, self.model.device
        progress = StepProgress(0, self.budget.share(self.run))
        self._thaw(progress.share)
        self.objective.train()
        self.model.compile_training()
        try:
            with restored_randomness(device), step_arithmetic(self.config.precision, device):
                for loss, _ in self._losses(self.batches.batch(0), progress):
                    loss.backward()
        except Exception as error:  # torch documents no exception: a compiler is missing, or fails
            self.model.forget_compiled()
            first_line, *_ = str(error).strip().split("\n")
            return f"{type(error).__name__}: {first_line}"
        finally:
            self.carried.state = state
        return None

    def train(self) -> Run:
        """Train until the budget is spent or the user interrupts.

        Raises:
            Diverged: the loss or a gradient grew without bounds; the last checkpoint stays.
        """
        run, window = self.run, LossWindow()
        self._began = time.monotonic() - run.seconds
        self._saved_at = self._logged_at = time.monotonic()
        self.objective.train()
        if self._validation_was_interrupted():
            self._validate()
        decision = self._decide()
        while decision.stop is None:
            loss, norm, tokens = self._step(StepProgress(run.step, decision.share))
            self._require_sane(loss, norm)
            self._count(loss, tokens)
            self.hooks.listener.stepped(run, loss, norm)
            window.losses.add(loss, tokens)
            run.seconds = time.monotonic() - self._began
            decision = self._decide()
            self._revise(decision.share)
            if decision.log:
                self._log(window, norm)
                window, self._logged_at = LossWindow(), time.monotonic()
            # If the run stops by itself here, too; an interrupted run validates when it resumes.
            if decision.validate and decision.stop != INTERRUPTED:
                self._validate()
                window.since += run.validation_seconds
            if decision.log or decision.validate:
                # It took time, a signal may have come, and patience may be over.
                decision = self._decide()
            # At the end of a run, the checkpoint after the last validation suffices.
            if decision.stop is None and decision.checkpoint:
                self._checkpoint()
                self._saved_at = time.monotonic()
        run.stopped = decision.stop
        if window.losses.tokens:
            self._log(window, norm)
        self._finish()
        return run

    def _finish(self) -> None:
        """Validate and save after the last step of a run."""
        run = self.run
        # An interrupted run does not validate here: it must resume as if it had never stopped.
        if run.stopped == self.config.budget and run.last_validated != run.step:
            self._validate()
            if self.hooks.validate is not None and run.last_validated != run.step:
                run.stopped = INTERRUPTED
        if run.step:  # nothing to save before the first step
            self._checkpoint()

    def _count(self, loss: float, tokens: int) -> None:
        run = self.run
        run.step += 1
        run.tokens += tokens
        run.epoch.add(loss, tokens)
        if run.step % self._steps_per_epoch == 0:
            run.epoch_loss, run.epoch_loss_std = run.epoch.mean, run.epoch.std
            run.epoch = Losses()

    def _revise(self, share: float) -> None:
        """Choose the revisable settings again for the measured speed, if that is due."""
        run, due = self.run, sum(share >= at for at in REVISED_AT)
        if self.budget.seconds is None or run.revisable is None or due <= run.revised:
            return
        run.revised = due
        config = self.hooks.revise(run, run.tokens / share)
        if config is not None:
            self.config = config
            self.rule.take_rates(UpdateRule(self.model, config))
            self.threads = self._threads()  # their copies of the model have its dropout

    def _decide(self) -> Decision:
        """Decide whether to stop, log, validate or save now, for all ranks."""
        stop = self._reason_to_stop()
        decision = Decision(
            share=self.budget.share(self.run),
            stop=stop,
            log=stop is not None or time.monotonic() - self._logged_at >= LOG_SECONDS,
            validate=self._validation_is_due(),
            checkpoint=self._checkpoint_is_due(),
        )
        return decision.agreed()

    def _reason_to_stop(self) -> str | None:
        run, config = self.run, self.config
        if reason := self.hooks.stop(run):
            return reason
        if self.budget.steps is not None and run.step >= self.budget.steps:
            return config.budget
        if self.budget.seconds is not None and self._time_is_up():
            return "minutes"
        worst = config.patience is not None and run.worse >= config.patience
        return "patience" if worst else None

    def _time_is_up(self) -> bool:
        run = self.run
        if not run.step:
            return False
        step, hooks = run.seconds / run.step, self.hooks
        expected = min(hooks.validation_steps * step, self.budget.validation_seconds)
        validation = run.validation_seconds or expected
        soon = run.seconds + (1 + hooks.final_validations()) * validation + step
        return soon > self.budget.training_seconds(run)

    def _step(self, progress: StepProgress) -> tuple[float, float, int]:
        """Take one step; return the loss in nats per token, the gradient's norm and the tokens."""
        batch = self.batches.batch(progress.step)
        self._thaw(progress.share)
        self.objective.begin_step()
        with step_arithmetic(self.config.precision, self.model.device):
            total = self._add_gradients(batch, progress)
        self.parallel.add_up_others()
        with self.hooks.listener.updating(self.run, batch):
            each = [clip_gradients(part, self.config) for part in self._members_parameters]
            norm = torch.stack(each).max()
            self.rule.step(self.rate(progress.share, progress.step))
        self.objective.end_step()
        if self.average is not None:
            self.average.update(progress.step)
        return ranks.total(total.item()), norm.item(), batch.count

    def _add_gradients(self, batch: Batch, progress: StepProgress) -> Tensor:
        """Accumulate the gradients of this rank's rows; return their share of the loss."""
        total: Tensor | float = 0.0
        if self.threads is None:
            for loss, nats in self._losses(batch, progress):
                loss.backward()
                total = total + nats.detach()
            return total
        pieces = self.threads.portions(len(batch.tokens), self.config.accumulate)
        pairs = self._with_pasts(batch, [portion for piece in pieces for portion in piece])
        states: list[State | None] = []
        for piece in pieces:
            parts = [ThreadWork(*pair, progress) for pair in itertools.islice(pairs, len(piece))]
            for loss in self.threads.add_gradients(batch, parts):
                total = total + loss.nats / batch.count
                states.append(loss.state)
        self._carry(batch, states)
        return total

    def _thaw(self, share: float) -> None:
        if self.rule.thaw(share):
            self.parallel.begin_anew()

    def _losses(self, batch: Batch, progress: StepProgress) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the loss and the plain nats of each piece of this rank's rows.

        Both are divided by the targets of the whole batch, so that the gradients of the pieces
        add up to that of the batch. Afterwards the carried state is the one after the batch.
        """
        chosen = portions(
            len(batch.tokens), self.config.accumulate, ranks.rank(), ranks.world_size()
        )
        states: list[State | None] = []
        for portion, past in self._with_pasts(batch, chosen):
            place = dataclasses.replace(progress, first_row=portion.rows.start)
            with self.parallel.computing(portion, last=portion is chosen[-1]):
                loss, nats, after = self.parallel(portion.of(batch), past, place)
            states.append(after)
            if portion.blank:
                loss, nats = 0.0 * loss, 0.0 * nats
            yield loss / self.parallel.divisor(batch.count), nats / batch.count
        self._carry(batch, states)

    def _with_pasts(
        self, batch: Batch, chosen: Sequence[Portion]
    ) -> Iterator[tuple[Portion, State | None]]:
        """Yield this rank's portions of a batch, each with its recurrent state."""
        past = None if batch.fresh or not self._carries else self.carried.state.detach()
        begin = 0
        for portion in chosen:
            own = slice(begin, begin + portion.count)
            begin = own.stop
            divided = past is not None and len(chosen) > 1
            yield portion, past.map(lambda x, own=own: x[own]) if divided else past

    def _carry(self, batch: Batch, states: Sequence[State | None]) -> None:
        """Keep the recurrent states after a batch for the next one."""
        self.carried.rows = len(batch.tokens)
        carried = self._carries and states[0] is not None
        if carried and len(states) > 1:
            states = [type(states[0]).cat([state.detach() for state in states])]
        self.carried.state = states[0] if carried else None

    def rate(self, share: float, step: int) -> float:
        """Compute the learning rate relative to its peak; see `optimizers.rate`."""
        self.run.warmed = self.run.warmed or share >= self.config.warmup
        return rate(self.config, share, step, self.run.warmed)

    @torch.no_grad()
    def _loss_after_update(self) -> float:
        """Compute the last batch's loss after its update, to detect divergence."""
        state, step = self.carried.state, max(0, self.run.step - 1)
        # Without dropout, so that a checkpoint does not change the random states.
        self.objective.eval()
        progress = StepProgress(step, self.budget.share(self.run))
        loss = sum(nats.item() for _, nats in self._losses(self.batches.batch(step), progress))
        loss = ranks.total(loss)
        self.objective.train()
        self.parallel.end_forward()
        self.carried.state = state
        return loss

    def _require_sane(self, loss: float, norm: float = 0.0) -> None:
        if not (loss <= MOST_NATS and math.isfinite(norm)):
            raise Diverged(
                f"training has diverged after step {self.run.step} (loss {loss:.3g}, gradient's "
                f"norm {norm:.3g}); try a smaller --lr"
            )

    def _log(self, window: LossWindow, norm: float) -> None:
        run = self.run
        now = time.monotonic()
        run.train_loss = window.losses.mean
        share = self.budget.share(run)
        self.hooks.report(
            Progress(
                step=run.step,
                share=share,
                seconds=run.seconds,
                tokens=run.tokens,
                train_loss=run.train_loss,
                train_loss_std=window.losses.std,
                epoch_loss=run.epoch_loss,
                epoch_loss_std=run.epoch_loss_std,
                lr=self.rate(share, run.step),
                grad_norm=norm,
                tokens_per_second=window.losses.tokens / max(now - window.since, 1e-9),
                figures=self.objective.figures(),
            )
        )

    def _validation_is_due(self) -> bool:
        run, hooks = self.run, self.hooks
        if hooks.validate is None:
            return False
        if self.config.validate_every:
            return run.step % self.config.validate_every == 0
        cost = run.validation_seconds, hooks.validation_steps, hooks.validation_is_long
        interval = self.budget.until_validation(*cost)
        if self.budget.steps:
            return run.step % interval == 0
        return run.seconds - run.validated_at_seconds >= interval

    def _validation_was_interrupted(self) -> bool:
        """Check whether a resumed run was interrupted before the validation of its last step."""
        run = self.run
        return bool(run.step) and run.last_validated != run.step and self._validation_is_due()

    def _validate(self) -> None:
        run, hooks, began = self.run, self.hooks, time.monotonic()
        if hooks.validate is not None:
            self.objective.eval()
            with self.as_saved():
                loss = ranks.run_on_leader(hooks.validate)
                if loss is not None:
                    self._take_validation(loss)
            self.objective.train()
            run.validation_seconds = time.monotonic() - began
            run.validated_at_seconds = run.seconds + run.validation_seconds
        elif run.best_loss is None:  # weights chosen by a validation are not replaced
            with self.as_saved():
                hooks.keep_best()
        run.seconds = time.monotonic() - self._began

    def _take_validation(self, loss: float) -> None:
        """Keep the weights if this validation loss is the best so far, and report it."""
        run, hooks = self.run, self.hooks
        self._require_sane(loss)
        run.last_loss, run.last_validated = loss, run.step
        best = run.best_loss is None or loss < run.best_loss
        run.worse = 0 if best else run.worse + 1
        if best:
            run.best_loss, run.best_step = loss, run.step
            hooks.keep_best()
        hooks.report(
            Validated(
                step=run.step,
                seconds=run.seconds,
                val_loss=loss,
                best=best,
                figures=hooks.figures(),
            )
        )

    def as_saved(self) -> AbstractContextManager[None]:
        """Swap in the weights to validate and save, such as the moving average."""
        if self.parallel.shards is not None:
            return self.parallel.shards.whole_filled(self.average and self.average.means)
        return contextlib.nullcontext() if self.average is None else self.average.in_place()

    def _checkpoint_is_due(self) -> bool:
        # A model is published with its first checkpoint, as soon as it has weights worth keeping.
        first = self.run.best_loss is not None and not self._has_checkpoint
        every = self.config.checkpoint_every
        at_step = every is not None and self.run.step % every == 0
        return first or at_step or time.monotonic() - self._saved_at > CHECKPOINT_SECONDS

    def _checkpoint(self) -> None:
        self._require_sane(self._loss_after_update())
        if self.run.best_loss is None:
            with self.as_saved():
                self.hooks.keep_best()
        self.hooks.checkpoint()
        self._has_checkpoint = True

    def _parts(self) -> dict[str, CheckpointPart]:
        """Collect all checkpoint parts by name."""
        parts: dict[str, CheckpointPart] = {
            "model": self.parallel.shards or ModelWeights(self.model),
            "optimizer": self.rule,
            "state": self.carried,
        }
        if self.average is not None:
            parts["average"] = self.average
        # Random states last, so that restoring another part could draw without harm.
        parts |= self.objective.parts() | {"random": RandomStates(self.model.device)}
        return {**self.hooks.listener.parts(), **parts}

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Collect the contents of a checkpoint: tensors by name, and facts for JSON.

        The parts that last; the run's progress, from which the place in the text and the schedule
        follow; and how products are asked for, since each way rounds differently.
        """
        tensors = {
            f"{name}.{key}": tensor
            for name, part in self._parts().items()
            for key, tensor in part.tensors().items()
        }
        facts: dict[str, Any] = {"run": dataclasses.asdict(self.run)}
        facts["products"] = dataclasses.asdict(products_in_use())
        if ranks.world_size() > 1:
            facts["ranks"] = ranks.world_size()
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Restore a `snapshot`, so that training continues as if it had not stopped.

        Raises:
            RuntimeError, KeyError, TypeError: the snapshot is of another model.
        """
        lent = self.parallel.shards is not None
        # A carried state is made by the model, whatever its parameters hold.
        with lend_memory(self._whole) if lent else contextlib.nullcontext():
            for name, part in self._parts().items():
                part.restore(_part(tensors, f"{name}."))
        self.run = Run.of(facts["run"])
        self.run.stopped = None
        self._has_checkpoint = True


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
