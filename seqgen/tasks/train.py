"""Training a model on text, from the files to the stored model; and going on with it later."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from seqgen import registry, store
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
from seqgen.data.text import text_files
from seqgen.errors import SeqgenError
from seqgen.models.precision import choose_device, choose_precision, parameter_type
from seqgen.store import StoredModel
from seqgen.tasks.count import count, ignored
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.prepare import Prepared, again, prepare_data
from seqgen.tasks.session import Session, TrainingResult
from seqgen.tokenizers import Tokenizer
from seqgen.training.events import Notice, Report


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
        data: files, folders of files or patterns, joined in this order; or one token file.
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

    model_class = kind.load_model()
    flags = [name for name, value in (settings or {}).items() if value is not None]
    prepared, data_config = prepare_data(data, data_config, set(flags), report)
    if not model_class.counted:
        training = _fitted(with_default_budget(training), prepared, given, place, report)
    elif notice := ignored(flags):
        report(notice)
    vocab_size = prepared.tokenizer.vocab_size
    model_config = _model_config(config_class, shares[0], vocab_size, training)
    with torch.random.fork_rng(), contextlib.ExitStack() as held:
        torch.manual_seed(training.seed)
        model = model_class(model_config)
        model.to(device=place, dtype=parameter_type(training.precision))
        # Not before there is a model: one too large for the machine leaves no folder behind.
        stored = store.create(name, f"{Path(data[0]).stem}-{architecture}", overwrite)
        held.enter_context(stored.locked())
        held.enter_context(store.removed_if_stillborn(stored))
        stored.write_config(
            architecture,
            model=model_config.to_dict(),
            training={} if model.counted else training.to_dict(),
            data=data_config.to_dict(),
        )
        prepared.tokenizer.save(stored.path / "tokenizer")
        prepared.keep_validation(stored)
        loaded = LoadedModel(stored, model, prepared.tokenizer, data_config)
        if model.counted:
            return count(loaded, prepared, report)
        stored.write_weights(model)
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
    config = stored.config
    require(
        not registry.architecture(config["architecture"]).load_model().counted,
        f"{stored.name} was counted in one pass: there is nothing to go on with; train it again",
    )
    with torch.random.fork_rng(), stored.locked():
        checkpoint = stored.read_checkpoint()
        result = stored.record.get("result")
        finished = checkpoint[1]["run"]["stopped"] in BUDGETS and result
        if finished and not given:
            report(Notice(text=f"{stored.name} has finished; give a longer budget to go on"))
            return TrainingResult(**result)
        training = TrainingConfig(**_override(config["training"], given))
        done = checkpoint[1]["run"]
        spent = {"steps": done["step"], "minutes": done["seconds"] / 60}.get(training.budget, 0)
        budget = getattr(training, training.budget)
        require(
            not given or spent < budget,
            f"{stored.name} has spent {spent:g} {training.budget} already; give a longer budget",
        )
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
        return session.run(checkpoint)


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
    known = stored.record.get("data")
    if not isinstance(known, dict) or not {"files", "sha256"} <= known.keys():
        raise SeqgenError(f"{stored.path / store.RECORD} is damaged: it does not name the text")
    paths = text_files(data) if data else store.text_of(known)
    prepared = again(paths, config, tokenizer, stored.validation_text)
    if prepared.facts.sha256 != known["sha256"] and not changed_data:
        raise SeqgenError(
            f"{', '.join(map(str, paths))} is not the text {stored.name} was trained on; "
            "give --data FILE, or --changed-data to go on with this one"
        )
    return prepared


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
        # Documents shorter than the window: more of them, so that a step has as many tokens;
        # but not so many that a small corpus is through in a few steps.
        mean = min(training.seq_len, corpus.tokens.size / corpus.ends.size)
        rows = round(training.batch_size * training.seq_len / mean)
        settled["batch_size"] = max(training.batch_size, min(rows, corpus.ends.size // 16))
    if given.get("seed") is None:
        settled["seed"] = secrets.randbelow(1 << 31)
    return replace(training, **settled)
