"""Training a model on text, from the files to the stored model; and going on with it later."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqgen import __version__, registry, store
from seqgen.configs import (
    BUDGETS,
    RESUMABLE,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    require,
    resolve,
    settings_of,
    with_default_budget,
)
from seqgen.data.batches import training_batches
from seqgen.data.split import split_text
from seqgen.data.text import Text, text_files
from seqgen.errors import SeqgenError
from seqgen.metrics.perplexity import LN2, Totals
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.precision import choose_device, choose_precision, parameter_type
from seqgen.scoring import add_up, parallel_rows, score_corpus
from seqgen.store import Metrics, StoredModel
from seqgen.tasks.loaded import LoadedModel, load_stored
from seqgen.tasks.perplexity import score_text
from seqgen.tasks.prepare import Prepared, encode_parts, prepare, read
from seqgen.tasks.sample import first_line
from seqgen.tokenizers import Tokenizer
from seqgen.training.events import Event, Notice, Report, SampleLine, Started, Validated
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
    steps: int
    tokens: int
    train_loss: float | None
    val_loss: float | None
    val_bits_per_char: float | None
    val_bits_per_byte: float | None
    seconds: float
    validation_seconds: float
    tokens_per_second: float | None
    stopped: str
    seed: int


def train(
    data: Sequence[str | Path],
    *,
    architecture: str = registry.DEFAULT,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    stop_after: int | None = None,
    report: Report = lambda event: None,
) -> TrainingResult:
    """Train a language model on text and store it.

    Args:
        data: files, or folders of files, joined in this order.
        architecture: a name in the registry.
        name: what to call the model; made from the data's name if None.
        settings: fields of `DataConfig`, `TrainingConfig` or the architecture's configuration,
            by name; what is not given comes from `config`, then from the architecture's recipe.
        config: a configuration file as nested tables, see `configs.read_config`.
        device: auto, cpu, cuda or mps.
        overwrite: replace a model of that name.
        stop_after: stop after so many steps, as if interrupted there; no part of the settings.
        report: takes events while training goes on.

    Raises:
        UsageError: a setting is unknown or wrong, or the name is in use.
        SeqgenError: the data cannot be read, or the model not be written.
    """
    kind = registry.architecture(architecture)
    config_class = kind.load_config()
    given = _override(settings_of(config or {}, config_class), settings or {})
    shares = resolve(
        {**config_class.recipe, **given}, architecture, (config_class, TrainingConfig, DataConfig)
    )
    data_config, training = DataConfig(**shares[2]), TrainingConfig(**shares[1])
    # Built once for its checks alone, before any text is read.
    _model_config(config_class, shares[0], 1, training)
    store.check_free(name, overwrite)
    place = choose_device(device)

    prepared = prepare(Text(text_files(data), data_config.newlines), data_config)
    training = _fitted(with_default_budget(training), prepared, given, place, report)
    vocab_size = prepared.tokenizer.vocab_size
    model_config = _model_config(config_class, shares[0], vocab_size, training)
    stored = store.create(name, f"{Path(data[0]).stem}-{architecture}", overwrite)
    with torch.random.fork_rng(), stored.locked():
        torch.manual_seed(training.seed)
        model = kind.load_model()(model_config)
        model.to(device=place, dtype=parameter_type(training.precision))
        stored.write_config(
            architecture,
            model=model_config.to_dict(),
            training=training.to_dict(),
            data=data_config.to_dict(),
        )
        prepared.tokenizer.save(stored.path / "tokenizer")
        if prepared.split.val:
            stored.write_validation(prepared.split.val())
        stored.write_weights(model)
        loaded = LoadedModel(stored, model, prepared.tokenizer, data_config)
        return Session(loaded, prepared, training, stop_after, report).run()


def resume(
    name: str | Path | None = None,
    *,
    data: Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    stop_after: int | None = None,
    changed_data: bool = False,
    report: Report = lambda event: None,
) -> TrainingResult:
    """Go on with a run that was stopped, as if it had not been.

    Args:
        name: the model: a name, a path, or None for the latest.
        data: where its text is now; it is looked for where it was if empty.
        settings: a longer budget, `checkpoint_every`; nothing else can change.
        device: auto, cpu, cuda or mps.
        stop_after: stop after so many steps in all.
        changed_data: go on although the text is another one.
        report: takes events while training goes on.

    Raises:
        UsageError: a setting that cannot change.
        SeqgenError: there is no such model, its text is gone or another, its checkpoint is
            damaged, or another run is at it.
    """
    stored = store.find(name)
    place = choose_device(device)
    given = {k: v for k, v in (settings or {}).items() if v is not None}
    for key in given:
        require(key in RESUMABLE, f"a resumed run keeps its {key}; give a budget or nothing")
    with torch.random.fork_rng(), stored.locked():
        config = stored.config
        training = TrainingConfig(**_override(config["training"], given))
        model, tokenizer = stored.load()
        data_config = DataConfig(**config["data"])
        prepared = _again(stored, data, data_config, tokenizer, changed_data)
        model.to(device=place, dtype=parameter_type(training.precision))
        loaded = LoadedModel(stored, model, tokenizer, data_config)
        session = Session(loaded, prepared, training, stop_after, report)
        if given:
            groups = {part: config[part] for part in ("model", "data")}
            stored.write_config(config["architecture"], training=training.to_dict(), **groups)
            report(Notice(text=f"the schedule is fitted to {_budget(training)} from here"))
        return session.run(checkpoint=stored.read_checkpoint())


def _budget(training: TrainingConfig) -> str:
    return f"{getattr(training, training.budget):g} {training.budget}"


def _again(
    stored: StoredModel,
    data: Sequence[str | Path],
    config: DataConfig,
    tokenizer: Tokenizer,
    changed_data: bool,
) -> Prepared:
    """Read a stored model's text again, and split it as it was split."""
    known = stored.record["data"]
    paths = text_files(data) if data else store.text_of(known)
    text = Text(paths, config.newlines)
    facts = read(text)
    if facts.sha256 != known["sha256"] and not changed_data:
        raise SeqgenError(
            f"{', '.join(map(str, paths))} is not the text {stored.name} was trained on; "
            "give --data FILE, or --changed-data to go on with this one"
        )
    split = split_text(text, facts, config, tokenizer)
    if stored.validation_text is not None:
        # What was held out then, wherever it came from, and though the text has changed.
        split = replace(split, val=Text((stored.validation_text,)).chunks)
    return encode_parts(text, facts, split, tokenizer, config)


def _override(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of both; those above win, and any budget above drops those below."""
    if any(above.get(name) is not None for name in BUDGETS):
        below = {name: value for name, value in below.items() if name not in BUDGETS}
    return {**below, **above}


def _model_config(
    config_class: type[ModelConfig],
    share: Mapping[str, Any],
    vocab_size: int,
    training: TrainingConfig,
) -> ModelConfig:
    """Return the model's configuration, with what follows from the text and from training."""
    follows = {"vocab_size": vocab_size, "window": training.seq_len}
    derived = {name: follows[name] for name in config_class.derived}
    return config_class(**derived, **share)


def _fitted(
    training: TrainingConfig,
    prepared: Prepared,
    given: Mapping[str, Any],
    device: torch.device,
    report: Report,
) -> TrainingConfig:
    """Settle what depends on the text and the machine, so that it is written down once."""
    corpus = prepared.train
    settled: dict[str, Any] = {"precision": choose_precision(training.precision, device)}
    if training.seq_len > corpus.tokens.size:
        settled["seq_len"] = int(corpus.tokens.size)
        report(Notice(text=f"the text has {corpus.tokens.size} tokens, so --seq-len is that"))
    if "batch_size" not in given and corpus.ends.size > 1:
        # Documents shorter than the window: more of them, so that a step has as many tokens.
        mean = min(training.seq_len, corpus.tokens.size / corpus.ends.size)
        rows = min(8.0, training.seq_len / mean) * training.batch_size
        settled["batch_size"] = round(rows)
    if given.get("seed") is None:
        settled["seed"] = secrets.randbelow(1 << 31)
    return replace(training, **settled)


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
        batches = training_batches(
            prepared.train,
            self.loaded.data.documents,
            model.carries_state and not config.reset_state,
            config.batch_size,
            config.seq_len,
            config.seed,
        )

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
        totals, seconds = self._final_validation(run)
        val_loss = run.last_loss if totals is None else totals.nats_per_token
        per_char = per_byte = None
        if val_loss is not None:
            facts, tokens = self.prepared.val_facts, self.prepared.val.tokens.size
            per_char = val_loss * tokens / facts.characters / LN2
            per_byte = val_loss * tokens / facts.bytes / LN2
        return TrainingResult(
            name=self.stored.name,
            path=str(self.stored.path),
            architecture=self.stored.config["architecture"],
            parameters=self.loaded.model.parameter_count(),
            steps=run.step,
            tokens=run.tokens,
            train_loss=run.train_loss,
            val_loss=val_loss,
            val_bits_per_char=per_char,
            val_bits_per_byte=per_byte,
            seconds=run.seconds,
            validation_seconds=seconds,
            tokens_per_second=run.tokens / run.seconds if run.seconds else None,
            stopped=str(run.stopped),
            seed=self.training.seed,
        )

    def _final_validation(self, run: Run) -> tuple[Totals | None, float]:
        """Score the whole held-out part with the model as it is stored: `perplexity`'s figure."""
        if run.stopped not in BUDGETS or self.stored.validation_text is None:
            return None, 0.0
        began = time.monotonic()
        kept = load_stored(self.stored, self.loaded.model.device, "auto")
        text = Text((self.stored.validation_text,))
        totals = score_text(kept, text.chunks(), kept.data.documents)
        return totals, time.monotonic() - began

    def _write_record(self, result: dict[str, Any] | None) -> None:
        """Write down what was trained, on what and where, and how it ended."""
        prepared = self.prepared
        self.stored.write_record(
            created=self.started,
            seqgen_version=__version__,
            parameters=self.loaded.model.parameter_count(),
            data={
                "files": [str(path.resolve()) for path in prepared.text.paths],
                **dataclasses.asdict(prepared.facts),
            },
            split={"val": self.loaded.data.val, "seed": self.loaded.data.split_seed},
            seed=self.training.seed,
            result=result,
            machine={
                "platform": platform.platform(),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "device": str(self.loaded.model.device),
            },
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
