"""One training run of a stored model: folder, logs, hooks, final validation and record."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from seqgen import __version__, ranks, store
from seqgen.engines.memory_limit import return_freed_memory
from seqgen.engines.precision import choose_device, parameter_type
from seqgen.errors import Interrupted, SeqgenError
from seqgen.generation.sample import fixed_sample
from seqgen.interrupts import Interruption
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import load_weights
from seqgen.models.deferred_init import DeferredModel
from seqgen.models.mixture.members import Members, members_of
from seqgen.models.network import Network
from seqgen.registry import load_object
from seqgen.scoring.evaluate import held_out_text
from seqgen.settings import require
from seqgen.settings.options import Options, added_options
from seqgen.settings.training import FINISHED, TrainingConfig
from seqgen.store import METRICS, SAMPLES, MetricsLog, StoredMixture, StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import load_mixture, load_stored
from seqgen.store.model import Adapter
from seqgen.store.torch_models import choose_products
from seqgen.tasks.task import Task
from seqgen.text.batches import Batches
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.deadline import Deadline
from seqgen.training.events import (
    Event,
    Notice,
    Report,
    SampleLine,
    Started,
    Validated,
    notify_if_slow,
)
from seqgen.training.listeners import LastEvents, Listeners, RunFacts
from seqgen.training.loop import Trainer
from seqgen.training.regimes.base import TextRules
from seqgen.training.regularising import Regularisation, take_dropout
from seqgen.training.run import INTERRUPTED, Budget, Diverged, Hooks, Listener, Run
from seqgen.training.scored_part import (
    affordable_share,
    begin_of_part,
    faster_threads,
    fit_on_first_half,
    score_alone,
)
from seqgen.training.validating import SAMPLE_TOKENS, Validation
from seqgen.wording import ShortRepr, format_settings

# What an interrupted run says whose current step takes long.
FINISHING = "finishing this step before saving; Ctrl-C again stops without saving it"

# The share of the time left that the final validation may take: of a network; of one with members
# or an n-gram part, which are then scored alone too; and of one with both.
FINAL_SHARES = 0.7, 0.45, 0.3
# Before it, the weights of members are fitted in this share.
FIT_SHARE_OF_MEMBERS = 0.3
# A sample may take as long as a validation in a timed run, within these limits in seconds.
SHORTEST_SAMPLE, LONGEST_SAMPLE = 1.0, 10.0
# The options that plugins add to `train`, groups of the class `ListenerOptions`.
AddedOptions = added_options("train")


@dataclass(frozen=True, repr=False)
class TrainingResult(ShortRepr):
    """The keys of the final record of `seqgen train --json`, in order."""

    name: str
    path: str
    architecture: str
    parameters: int
    steps: int | None
    tokens: int
    train_loss: float | None
    val_loss: float | None
    val_bits_per_char: float | None
    val_bits_per_byte: float | None
    seconds: float
    validation_seconds: float
    tokens_per_second: float | None
    stopped: str | None
    seed: int | None
    best_step: int | None = None
    protocol: str | None = None
    sample: str | None = None
    epoch_loss: float | None = None
    epoch_loss_std: float | None = None
    val_accuracy: float | None = None
    epochs: float | None = None
    mixture: dict[str, Any] | None = None
    members: dict[str, Any] | None = None
    val_perplexities: dict[str, float] | None = None
    layer_weights: dict[str, float] | None = None
    val_oov_bits_per_byte: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of how a run is executed: device, reporting, sharding and plugins.

    Attributes:
        place: the device.
        report: takes events; on rank 0 alone.
        shard: divide parameters and the states of optimisers among the processes.
        stop_after: stop after so many steps in all, if given.
        began: when the command began, in seconds of `time.monotonic`; of a resumed run, earlier by
            all that it has taken before.
        scores_all: score all that is held out after a timed run too, however long it takes, so that
            its figures compare with those of other runs.
        added: the options that plugins add.
    """

    place: torch.device
    report: LastEvents
    shard: bool = False
    stop_after: int | None = None
    began: float = field(default_factory=time.monotonic)
    scores_all: bool = False
    added: Options = field(default_factory=AddedOptions)

    @classmethod
    def of(
        cls, device: str, report: Report, began: float | None = None, **options: Any
    ) -> RunOptions:
        """Make the options for this process of a run, which begins now if `began` is None."""
        if began is not None:
            options["began"] = began
        heard = LastEvents(report if ranks.is_leader() else lambda event: None)
        return cls(place=choose_device(device), report=heard, **options)

    def check(self) -> None:
        """Refuse sharding with one process, and invalid plugin options."""
        require(
            not self.shard or ranks.world_size() > 1,
            "--shard divides a model among processes: start several, as in torchrun "
            "--nproc-per-node 2 -m seqgen train DATA --shard",
        )
        for group in self.added.groups:
            group.require_possible(self.shard)

    def require_model(self, task: Task, by_gradients: bool = True) -> None:
        """Refuse plugin options that do not apply to the task's models."""
        models_text = by_gradients and task.model_is is None and not task.takes_targets
        for group in self.added.groups:
            group.require_model(models_text)

    def check_divisible(self, training: TrainingConfig) -> None:
        """Refuse settings that a sharded run does not support.

        Raises:
            UsageError: says what to leave out.
        """
        name = "unfreeze" if training.unfreeze else "lora" if training.lora is not None else None
        require(
            not (self.shard and name), f"--shard does not go with {name}: leave out one of them"
        )

    def conclude(self, model: str) -> None:
        """Let plugins write their outputs after a run."""
        for group in self.added.groups if ranks.is_leader() else ():
            group.conclude(model, self.report.events)


@dataclass(frozen=True)
class Session:
    """One training run on a stored model, which it keeps locked.

    Attributes:
        loaded: the model.
        prepared: its data.
        training: the complete training settings.
        options: how it is carried out.
        unfilled: the model without content, to be divided among the ranks; `loaded` has its shell.
        created: when its training first began.
        origins: the models that it began from, by setting, as the record keeps them.
        inherited: facts of the record that the model has from the one that it began from.
        regularisation: of a new run, the settings that are chosen again during it, if any are.
    """

    loaded: LoadedModel
    prepared: Prepared
    training: TrainingConfig
    options: RunOptions
    unfilled: DeferredModel | None = None
    created: str = field(default_factory=store.now)
    origins: Mapping[str, Any] = field(default_factory=dict)
    inherited: Mapping[str, Any] = field(default_factory=dict)
    regularisation: Regularisation | None = None

    @property
    def stored(self) -> StoredModel:
        """The stored model."""
        return self.loaded.stored

    @property
    def report(self) -> Report:
        """The receiver of events."""
        return self.options.report

    @property
    def deadline(self) -> Deadline:
        """The end of a budget in minutes; no deadline for other budgets."""
        minutes = self.training.minutes
        return Deadline() if minutes is None else Deadline(self.options.began + 60 * minutes)

    @property
    def is_language_model(self) -> bool:
        """Whether the task makes the model a language model."""
        return self.stored.task.model_is is None

    def run(
        self, checkpoint: tuple[dict[str, Tensor], dict[str, Any]] | None = None
    ) -> TrainingResult | None:
        """Train, from a checkpoint if given; validate the best weights and write the record.

        A new model is published with its first checkpoint. Only rank 0 writes, reports and
        has a result.

        Raises:
            Interrupted: before the first step, when nothing is saved, or after the last, when the
                weights are.
            Diverged: the loss or a gradient has grown without bounds.
            SeqgenError: the folder cannot be written.
        """
        of_run = checkpoint[1].get("products") if checkpoint else None
        choose_products(self.loaded.model.device, of_run)
        interruption = Interruption(lambda: self.report(Notice(text=FINISHING)))
        step = checkpoint[1]["run"]["step"] if checkpoint else 0
        self.stored.rewind(step)
        with self._listening(step) as (report, listener):
            trainer = self._trainer(report, listener, interruption)
            if checkpoint is not None:
                self._restore(trainer, *checkpoint)
                self._report_changed_ranks(checkpoint[1], report)
            elif self.regularisation is not None and self.unfilled is None:
                trainer.run.revisable = dataclasses.asdict(self.regularisation)
            if self.training.compile and self.unfilled is None:
                self.report(Notice(text="compiling, which takes up to a minute"))
                if why_not := trainer.compile():
                    self.report(Notice(text=f"steps are not compiled: {why_not}"))
            self.write_record(result=None)
            self.stored.seal()
            prepared, model = self.prepared, trainer.model
            started = Started(
                name=self.stored.name,
                parameters=model.parameter_count(),
                architecture=self.stored.config["architecture"],
                vocab_size=model.vocab_size,
                source_vocab_size=getattr(model.config, "source_vocab_size", None),
                train_tokens=prepared.train.scored,
                val_tokens=prepared.val.scored if prepared.val else 0,
                val_totals=prepared.val_totals if self.is_language_model else ScoreTotals(),
                training=self.training,
                device=str(model.device),
                unit=self.stored.task.unit,
            )
            report(started)
            if checkpoint is None:
                with trainer.as_saved():
                    self._show_sample(step, report)
            with interruption.handling():
                run = self._run_loop(trainer)
            if step and run.step == step and run.stopped == "minutes":
                self.report(Notice(text="there was no time left to train: give more --minutes"))
            if self.prepared.val is None and run.stopped in FINISHED:
                with trainer.as_saved():
                    self._show_sample(run.step, report)
        if not ranks.is_leader():
            return None
        try:
            result = self._result(run)
        except KeyboardInterrupt:
            resume = f"seqgen train --resume {self.stored.name}"
            raise Interrupted(
                f"stopped before the final validation; resume with: {resume}"
            ) from None
        self.write_record(result)
        return result

    def _report_changed_ranks(self, facts: dict[str, Any], report: Report) -> None:
        """Report that a run resumes with another number of processes."""
        before, now = facts.get("ranks", 1), ranks.world_size()
        if before != now:
            processes = "1 process" if now == 1 else f"{now} processes"
            text = f"resuming with {processes}; the checkpoint was written by {before}"
            report(Notice(text=text))

    def _run_loop(self, trainer: Trainer) -> Run:
        run = trainer.run
        run.setup_seconds = time.monotonic() - self.options.began - run.seconds
        try:
            run = trainer.train()
        except Diverged as error:
            raise Diverged(f"{error} ({self.stored.kept})") from None
        if not self.stored.published:
            raise Interrupted("interrupted; nothing saved yet")
        return run

    @contextlib.contextmanager
    def _listening(self, step: int) -> Iterator[tuple[Report, Listener]]:
        """Open the logs and listeners of a run at `step`.

        Yield a function that logs, reports and passes on events; and the listeners as one.
        """
        if not ranks.is_leader():
            yield (lambda event: None), Listener()
            return
        with contextlib.ExitStack() as logs:
            metrics = logs.enter_context(self.stored.log(METRICS))
            samples = logs.enter_context(self.stored.log(SAMPLES))

            def report(event: Event) -> None:
                log: MetricsLog = samples if isinstance(event, SampleLine) else metrics
                if not isinstance(event, Notice | Started):  # a record is of a step
                    log.write(dataclasses.asdict(event))
                self.report(event)
                if isinstance(event, Validated):
                    self._show_sample(event.step, report)
                listeners.take(event)

            listeners = Listeners(report)
            logs.callback(listeners.close)
            listeners.open(lambda plugin: self._run_facts(plugin, report, step))
            yield report, listeners

    def _run_facts(self, plugin: str, report: Report, step: int) -> RunFacts:
        """Collect the facts about this run for a plugin's listener."""
        return RunFacts(
            stored=self.stored,
            model=self.loaded.model if self.unfilled is None else None,
            config=self.training,
            budget=self.budget,
            report=report,
            corpus=self._batches.corpus,
            unit=self.stored.task.unit,
            step=step,
            options=getattr(self.options.added, f"of_{plugin}", None),
        )

    def _show_sample(self, step: int, report: Report) -> None:
        """Report a sample of the current model, if it can generate text."""
        model = self.loaded.model
        if not self.is_language_model or not ranks.is_leader():
            return
        training = model.training
        model.eval()
        prompt = self.prepared.sample_prompt
        text = fixed_sample(self.loaded, prompt, SAMPLE_TOKENS, self._sample_seconds)
        model.train(training)
        for part in model.modules():
            if isinstance(part, ArraySteps):  # a copy of the weights, which training changes
                part.forget_prepared()
        return_freed_memory()
        report(SampleLine(step=step, text=text))

    @property
    def budget(self) -> Budget:
        """The training budget."""
        return Budget.of(self.training, self._batches.steps_per_epoch)

    def _validation_of(self, loaded: LoadedModel) -> Validation:
        validation = load_object(self.stored.task.validation)(loaded, self.prepared)
        validation.sample_seconds = self._sample_seconds
        return validation

    @property
    def _sample_seconds(self) -> float:
        """Time that one sample may take."""
        return min(LONGEST_SAMPLE, max(SHORTEST_SAMPLE, self.budget.validation_seconds))

    @cached_property
    def _batches(self) -> Batches:
        return self.prepared.batches_for(self.loaded.model, self.training)

    def _trainer(self, report: Report, listener: Listener, interruption: Interruption) -> Trainer:
        model, config = self.loaded.model, self.training
        assert isinstance(model, Network)

        def checkpoint() -> None:
            self.stored.write_checkpoint(*trainer.snapshot(), config.keep)
            self.stored.publish()

        def validate() -> float | None:
            if self.training.minutes is not None and not self.options.scores_all:
                run, seconds = trainer.run, self.budget.validation_seconds
                run.validation_length = validation.fit(seconds, run.validation_length)
            return interruption.break_off(validation.quick)

        validation = self._validation_of(self.loaded)
        tokens_per_step = self.prepared.train.scored / self._batches.steps_per_epoch
        hooks = Hooks(
            validate=None if self.prepared.val is None else validate,
            validation_steps=validation.steps(tokens_per_step, sample=self.is_language_model),
            validation_is_long=validation.is_long,
            final_validations=lambda: validation.finals,
            figures=lambda: validation.figures,
            keep_best=lambda: self.stored.write_weights(model),
            checkpoint=checkpoint,
            report=report,
            listener=listener,
            stop=lambda run: self._reason_to_stop(run, interruption),
            revise=lambda run, tokens: self._revise_regularisation(run, trainer.config, tokens),
        )
        loaded = self.loaded
        text_rules = TextRules(loaded.tokenizer.decode, loaded.framing.stop, loaded.never)
        trainer = Trainer(model, self._batches, config, hooks, text_rules, self.unfilled)
        return trainer

    def _revise_regularisation(
        self, run: Run, training: TrainingConfig, tokens: float
    ) -> TrainingConfig | None:
        """Choose regularisation again for the measured speed; return training settings.

        Args:
            run: with what may be chosen.
            training: the settings so far.
            tokens: how many the budget is enough for.
        """
        model, prepared = self.loaded.model, self.prepared
        passes = tokens / prepared.train.scored
        ratio = passes * members_of(model)[0].parameter_count() / prepared.read_tokens
        changes = Regularisation(**run.revisable).changes(model, training, ratio)
        of_model, of_training = changes
        if not any(changes):
            return None
        if of_model:
            take_dropout(model, **of_model)
        training = replace(training, **of_training)
        keep_settings(self.stored, training, model=model.config.to_dict())
        enough = f"at this speed the budget is enough for {passes:.1f} passes over the text"
        named = {k: "none" if v is None else v for k, v in (of_model | of_training).items()}
        self.report(Notice(text=f"{format_settings(named)} from here on: {enough}", detail=True))
        return training

    def _restore(self, trainer: Trainer, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Restore model and loop from a checkpoint.

        Raises:
            SeqgenError: it is of another model, which only a folder without a manifest can hold.
        """
        try:
            trainer.restore(tensors, facts)
        except (RuntimeError, LookupError, TypeError, ValueError) as error:
            raise SeqgenError(
                f"the checkpoint of {self.stored.name} does not fit its model, so it cannot be "
                f"resumed; the model itself is usable ({str(error).splitlines()[0]})"
            ) from None

    def _reason_to_stop(self, run: Run, interruption: Interruption) -> str | None:
        if interruption.is_heeded():
            return INTERRUPTED
        enough = self.options.stop_after is not None and run.step >= self.options.stop_after
        return "stop-after" if enough else None

    def _result(self, run: Run) -> TrainingResult:
        finished = run.stopped in FINISHED
        members = self._fit_members() if finished else None
        result = TrainingResult(
            name=self.stored.name,
            path=str(self.stored.path),
            architecture=self.stored.config["architecture"],
            parameters=self.loaded.model.parameter_count(),
            steps=run.step,
            tokens=run.tokens,
            train_loss=run.train_loss,
            **self._figures(run.last_loss),
            seconds=run.seconds,
            validation_seconds=0.0,
            tokens_per_second=run.tokens / run.seconds if run.seconds else None,
            stopped=str(run.stopped),
            seed=self.training.seed,
            best_step=run.best_step,
            epochs=run.step / self._batches.steps_per_epoch,
            epoch_loss=run.epoch_loss,
            epoch_loss_std=run.epoch_loss_std,
            members=members,
        )
        # With an n-gram part, what is stored is measured once that is there.
        if not finished or self.training.with_ngram is not None:
            return result
        with self.scoring_threads():
            return self.validated(result)

    def scoring_threads(self) -> AbstractContextManager[None]:
        """Use as many threads as score faster at the end of a timed run; see `faster_threads`."""
        if self.unfilled is not None or (text := self._held_out_text(self.loaded)) is None:
            return contextlib.nullcontext()
        self.loaded.model.eval()
        return faster_threads(self.loaded, text, self.deadline.left)

    def _held_out_text(self, loaded: LoadedModel) -> str | None:
        """Read the held-out text of a language model; None where there is none, or no text."""
        val, in_pairs = self.prepared.val, loaded.conditioning.in_pairs
        of_text = val is not None and val.counted is None and self.is_language_model
        known = of_text and not in_pairs and self.prepared.knows_val_text
        return held_out_text(loaded, whole=True) if known else None

    def validated(self, result: TrainingResult, again: bool = False) -> TrainingResult:
        """Add the final validation of what is stored, with its best weights, to a result.

        Args:
            result: of the run.
            again: on the same part of the held-out text as before.
        """
        with notify_if_slow(self.report, "scoring the held-out text with the best weights"):
            kept = load_best(self.loaded)
            if not again:
                self._choose_scored_part(kept)
            final = self._validation_of(kept).final()
            members = result.members and self._with_losses(result.members, kept, final.loss)
        figures = {} if final.loss is None else self._figures(final.loss)
        if final.totals is not None:  # of a part of what is held out
            figures |= store.bits_record(final.totals)
        figures |= {"members": members, "validation_seconds": final.seconds}
        return replace(result, **figures, **final.about)

    def _choose_scored_part(self, kept: LoadedModel) -> None:
        """Store which part of the held-out text is scored: what a timed run can pay for.

        That is of what no weights were fitted on.
        """
        if self.options.scores_all or (text := self._held_out_text(kept)) is None:
            return
        stored = self.stored
        fitted = (stored.ngram is not None) + bool(stored.members)
        first, time_share = stored.scored_from if fitted else 0, FINAL_SHARES[fitted]
        text = text[first:]
        share = affordable_share(kept, text, time_share * self.deadline.left)
        begin = first + begin_of_part(text, share, kept.data.documents)
        if begin != stored.scored_from:
            keep_settings(stored, scored_from=begin or None)

    def _fit_members(self) -> dict[str, Any] | None:
        """Fit the members' weights on the first half of the held-out text, and store them.

        Without that text, as with a token file that has lost it, they are equal.
        """
        if not isinstance(self.loaded.model, Members) or not self.prepared.knows_val_text:
            return None
        kept = load_best(replace(self.loaded, stored=self.stored.networks))
        seconds = FIT_SHARE_OF_MEMBERS * self.deadline.left
        fitted, half = fit_on_first_half(kept, kept.model.parts, seconds)
        if fitted is None:
            return None
        members = {"weights": list(fitted.weights), "gate": list(map(list, fitted.gate)) or None}
        stored_members = {name: value for name, value in members.items() if value is not None}
        keep_settings(self.stored, members=stored_members, scored_from=half)
        return members

    def _with_losses(
        self, members: dict[str, Any], kept: LoadedModel, loss: float
    ) -> dict[str, Any]:
        """Add the loss of each member, and of all, on the part of the text that is scored.

        Args:
            members: their weights.
            kept: what is stored; perhaps with an n-gram part.
            loss: of that.
        """
        parts = kept.model.parts[: len(members["weights"])]
        totals = score_alone([replace(kept, model=one) for one in parts], self.stored.scored_from)
        losses = [one.nats_per_token for one in totals]
        return {**members, "tokens": totals[0].tokens, "losses": losses, "loss": loss}

    def _figures(self, loss: float | None) -> dict[str, float | None]:
        """Convert a validation loss to its units; without a text length there is only the loss."""
        if self.is_language_model:
            return validation_figures(loss, self.prepared)
        known = self.prepared.val is not None
        return validation_figures(None, self.prepared) | {"val_loss": loss if known else None}

    def write_record(self, result: TrainingResult | None) -> None:
        """Write the record of the run: model, data, machine and result.

        Until the mixture with an n-gram part is fitted, nothing has measured what is stored, so
        the record has no figures.
        """
        if not ranks.is_leader():
            return
        mixes = result and result.stopped in FINISHED and self.training.with_ngram is not None
        if result and result.protocol is None and (mixes or self.stored.ngram is not None):
            result = replace(result, **self._figures(None))
        facts = {"created": self.created, "seed": self.training.seed, **self.inherited}
        facts["result"] = None if result is None else dataclasses.asdict(result)
        if self.origins:
            facts["origins"] = dict(self.origins)
        if ranks.is_launched():
            facts["launcher"] = ranks.launch_id()
        write_record(self.loaded, self.prepared, **facts)


@contextlib.contextmanager
def telling_how_to_resume(stored: StoredModel) -> Iterator[None]:
    """Tell how to resume if the user interrupts the block once the model is published.

    Raises:
        Interrupted: instead of a KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not stored.published or not ranks.is_leader():
            raise
        resume = f"seqgen train --resume {stored.name}"
        raise Interrupted(f"interrupted; resume from the last checkpoint with: {resume}") from None


def load_best(loaded: LoadedModel) -> LoadedModel:
    """Load the model from disk with its best weights."""
    stored = store.with_parts(loaded.stored)
    if isinstance(stored, StoredModel) and stored.is_adapter:  # the base stays where it is
        load_weights(loaded.model, stored.own_tensors())
        loaded.model.eval()
        return loaded
    load = load_mixture if isinstance(stored, StoredMixture) else load_stored
    return load(stored, loaded.model.device, "auto")


def validation_figures(loss: float | None, prepared: Prepared) -> dict[str, float | None]:
    """Convert a validation loss to the units of the training record, by name."""
    if loss is None or prepared.val is None:
        return {"val_loss": None, **store.bits_record(ScoreTotals())}
    return {"val_loss": loss, **store.bits_record(prepared.val_totals.with_loss(loss))}


def write_record(loaded: LoadedModel, prepared: Prepared, **facts: Any) -> None:
    """Write `training.json`: given facts, data, versions and machine."""
    loaded.stored.write_record(
        seqgen_version=__version__,
        parameters=loaded.model.parameter_count(),
        data=prepared.about,
        split={"val": loaded.data.val, "seed": loaded.data.split_seed},
        machine={
            "platform": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": str(loaded.model.device),
        },
        **facts,
    )


def write_new(
    loaded: LoadedModel,
    prepared: Prepared,
    architecture: str,
    training: TrainingConfig | None = None,
    preset: str | None = None,
    base: StoredModel | None = None,
) -> None:
    """Write a new model's folder except weights: settings, tokenizers, held-out part.

    Args:
        loaded: the model, in its folder.
        prepared: its data.
        architecture: its name.
        training: None for a counted model.
        preset: the name of the preset beneath the settings, if any.
        base: the model that it begins from, which its adapters are of, if it has any.
    """
    stored, groups = loaded.stored, {}
    if training is not None and training.lora is not None:
        adapter = Adapter(base.reference, training.lora, training.lora_alpha)
        groups["adapter"] = adapter.to_dict()
    if training is not None and training.members is not None:
        groups["members"] = {"weights": [1 / training.members] * training.members}
    stored.write_config(
        architecture,
        preset=preset,
        model=loaded.model.config.to_dict(),
        training={} if training is None else training.to_dict(),
        data=loaded.data.to_dict(),
        framing=loaded.framing.to_dict(),
        **groups,
    )
    if not ranks.is_leader():
        return
    with stored.writing(store.TOKENIZER):
        prepared.tokenizer.save(stored.path / store.TOKENIZER)
        if prepared.classes is not None:
            prepared.classes.save(stored.path / store.TOKENIZER)
    if prepared.source_tokenizer not in (None, prepared.tokenizer):
        with stored.writing(store.SOURCE_TOKENIZER):
            prepared.source_tokenizer.save(stored.path / store.SOURCE_TOKENIZER)
    with stored.writing("validation"):
        prepared.keep_validation(stored)


def keep_settings(
    stored: StoredModel, training: TrainingConfig | None = None, **changed: Any
) -> None:
    """Store new training settings, if any, and the groups that changed, without None."""
    config = stored.config
    settings = config["training"] if training is None else training.to_dict()
    kept = ("preset", "model", "data", "framing", "adapter", "members", "ngram", "scored_from")
    groups = {part: config[part] for part in kept if part in config} | changed
    groups = {name: it for name, it in groups.items() if it is not None or name == "preset"}
    stored.write_config(config["architecture"], training=settings, **groups)


def build_unfilled(training: TrainingConfig, make: Callable[[int], nn.Module]) -> DeferredModel:
    """Build a model that will be sharded, without allocating its weights.

    Args:
        training: says what type its parameters have.
        make: builds it to be divided among so many machines.
    """
    kind = parameter_type(training.precision)
    return DeferredModel.build(lambda: make(ranks.machine_count()).to(dtype=kind))


def has_checkpoint_of_restart(name: str | None) -> bool:
    """Check whether torchrun restarted this run and its model has a checkpoint.

    Raises:
        UsageError: torchrun may do so, and the run has no name to be found by.
    """
    if not ranks.restarts_are_allowed():
        return False
    require(
        name is not None,
        "give --name: by it a run that torchrun restarts (--max-restarts) finds its model",
    )
    if not ranks.restart_count():
        return False
    try:
        return store.find(name).record.get("launcher") == ranks.launch_id()
    except SeqgenError:
        return False
