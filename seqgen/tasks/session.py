"""One run of training on a stored model: the loop's hooks, the final validation, the record."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from seqgen import __version__, store
from seqgen.configs import BUDGETS, TrainingConfig
from seqgen.data.batches import Batches, SampledBatches, training_batches
from seqgen.data.corpus import Corpus
from seqgen.data.encoding import Sampling
from seqgen.metrics.perplexity import LN2, Totals
from seqgen.models.base import NeuralLanguageModel
from seqgen.scoring import add_up, parallel_rows, score_corpus
from seqgen.store import Metrics, StoredModel
from seqgen.tasks.loaded import LoadedModel, load_stored
from seqgen.tasks.perplexity import score_held_out
from seqgen.tasks.prepare import Prepared
from seqgen.tasks.sample import first_line
from seqgen.training.events import Event, Report, SampleLine, Started, Validated
from seqgen.training.loop import Hooks, Run, Trainer

# What a validation in passing scores: this many rows, this many tokens over all of them.
VALIDATION_ROWS, VALIDATION_TOKENS = 32, 32768


@dataclass(frozen=True)
class TrainingResult:
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


@dataclass(frozen=True)
class Session:
    """One run of training on a stored model that is locked for it."""

    loaded: LoadedModel
    prepared: Prepared
    training: TrainingConfig
    stop_after: int | None
    report: Report
    started: str = field(default_factory=store.now)

    @property
    def stored(self) -> StoredModel:
        """Where the model is kept."""
        return self.loaded.stored

    def run(
        self, checkpoint: tuple[dict[str, Tensor], dict[str, Any]] | None = None
    ) -> TrainingResult:
        """Train, from a checkpoint on if given; validate what was kept; write the record of it."""
        stop = threading.Event()
        with self.stored.metrics() as metrics, interruptible(stop):
            trainer = self._trainer(metrics, stop)
            if checkpoint is not None:
                trainer.restore(*checkpoint)
            self._write_record(result=None)
            self.report(Started(**self._facts(trainer)))
            run = trainer.train()
        result = self._result(run)
        self._write_record(result=dataclasses.asdict(result))
        return result

    def _facts(self, trainer: Trainer) -> dict[str, Any]:
        return {
            "name": self.stored.name,
            "parameters": trainer.model.parameter_count(),
            "architecture": self.stored.config["architecture"],
            "vocab_size": trainer.model.vocab_size,
            "train_tokens": int(self.prepared.train.tokens.size),
            "val_tokens": int(self.prepared.val.tokens.size) if self.prepared.val else 0,
            "tokens_per_char": self.prepared.val_tokens_per_char,
            "training": self.training,
            "device": str(trainer.model.device),
        }

    def _trainer(self, metrics: Metrics, stop: threading.Event) -> Trainer:
        model, config, prepared = self.loaded.model, self.training, self.prepared
        assert isinstance(model, NeuralLanguageModel)
        documents, carries = self.loaded.data.documents, model.carries_state
        alpha = self.loaded.data.subword_sampling

        def batches_of(corpus: Corpus) -> Batches:
            return training_batches(
                corpus,
                documents,
                carries and not config.reset_state,
                config.batch_size,
                config.seq_len,
                config.seed,
            )

        def cut_anew(epoch: int) -> Batches:
            return batches_of(prepared.sampled(Sampling(alpha, config.seed, epoch), documents))

        batches = batches_of(prepared.train) if alpha is None else SampledBatches(cut_anew)

        def report(event: Event) -> None:
            metrics.write(dataclasses.asdict(event))
            self.report(event)
            if isinstance(event, Validated):
                model.eval()
                self.report(SampleLine(step=event.step, text=first_line(self.loaded)))
                model.train()

        hooks = Hooks(
            validate=self._validation(model),
            keep_best=lambda: self.stored.write_weights(model),
            checkpoint=lambda: self.stored.write_checkpoint(*trainer.snapshot()),
            report=report,
            stop=lambda run: self._reason_to_stop(run, stop),
        )
        trainer = Trainer(model, batches, config, hooks)
        return trainer

    def _reason_to_stop(self, run: Run, interrupted: threading.Event) -> str | None:
        if interrupted.is_set():
            return "interrupted"
        enough = self.stop_after is not None and run.step >= self.stop_after
        return "stop-after" if enough else None

    def _validation(self, model: NeuralLanguageModel) -> Callable[[], float] | None:
        """Return what measures the loss in passing: over a small, fixed part."""
        if self.prepared.val is None:
            return None
        corpus = parallel_rows(self.prepared.val, VALIDATION_ROWS, VALIDATION_TOKENS)

        def validate() -> float:
            scored = score_corpus(model, corpus, VALIDATION_ROWS)
            totals = add_up(scored, self.prepared.tokenizer)
            return totals.nll_nats / totals.tokens

        return validate

    def _result(self, run: Run) -> TrainingResult:
        totals, seconds = None, 0.0
        if run.stopped in BUDGETS:
            totals, seconds = final_validation(self.loaded)
        val_loss = run.last_loss if totals is None else totals.nats_per_token
        return TrainingResult(
            name=self.stored.name,
            path=str(self.stored.path),
            architecture=self.stored.config["architecture"],
            parameters=self.loaded.model.parameter_count(),
            steps=run.step,
            tokens=run.tokens,
            train_loss=run.train_loss,
            **validation_figures(val_loss, self.prepared),
            seconds=run.seconds,
            validation_seconds=seconds,
            tokens_per_second=run.tokens / run.seconds if run.seconds else None,
            stopped=str(run.stopped),
            seed=self.training.seed,
        )

    def _write_record(self, result: dict[str, Any] | None) -> None:
        """Write down what was trained, on what and where, and how it ended."""
        facts = {"created": self.started, "seed": self.training.seed, "result": result}
        write_record(self.loaded, self.prepared, **facts)


def final_validation(loaded: LoadedModel) -> tuple[Totals | None, float]:
    """Score the whole held-out part with the model as it is stored: `perplexity`'s figure.

    Returns:
        Its totals, or None where nothing was held out; and the seconds it took.
    """
    if loaded.stored.validation_text is None:
        return None, 0.0
    began = time.monotonic()
    kept = load_stored(loaded.stored, loaded.model.device, "auto")
    totals = score_held_out(kept)
    return totals, time.monotonic() - began


def validation_figures(loss: float | None, prepared: Prepared) -> dict[str, float | None]:
    """Return a validation loss, nats per token, by its names in the record of training."""
    if loss is None:
        return dict.fromkeys(("val_loss", "val_bits_per_char", "val_bits_per_byte"))
    facts, bits = prepared.val_facts, loss * prepared.val.tokens.size / LN2
    return {
        "val_loss": loss,
        "val_bits_per_char": bits / facts.characters,
        "val_bits_per_byte": bits / facts.bytes,
    }


def write_record(loaded: LoadedModel, prepared: Prepared, **facts: Any) -> None:
    """Write a model's `training.json`: the given facts, its data, its versions, the machine."""
    loaded.stored.write_record(
        seqgen_version=__version__,
        parameters=loaded.model.parameter_count(),
        data={
            "files": [str(path.resolve()) for path in prepared.text.paths],
            **dataclasses.asdict(prepared.facts),
            "train_oov": prepared.train.oov,
            "val_oov": prepared.val.oov if prepared.val else None,
        },
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


@contextlib.contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C or a polite kill set `stop`; a second one ends the program as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in signals]

    def handle(number: int, frame: object) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)

    for number in signals:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
