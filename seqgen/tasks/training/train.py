"""Training a model on text, from the files to the stored model; and going on with it later."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from seqgen import registry, store
from seqgen.configs import (
    FINISHED,
    RESUMABLE,
    DataConfig,
    TrainingConfig,
    require,
)
from seqgen.data.pairs import Tokenizers
from seqgen.data.text import text_files
from seqgen.errors import SeqgenError
from seqgen.models.precision import choose_device, own_randomness, parameter_type
from seqgen.models.room import to_train
from seqgen.store import StoredModel
from seqgen.tasks.interrupts import ending_as_ctrl_c
from seqgen.tasks.leaks import leak
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.training.board import require_tensorboard
from seqgen.tasks.training.choosing import (
    choose_compilation,
    choose_size,
    choose_training_precision,
)
from seqgen.tasks.training.count import count, ignored
from seqgen.tasks.training.plan import override, plan_of, preset_of
from seqgen.tasks.training.prepare import Prepared, prepare_data, reload_data
from seqgen.tasks.training.prepare_pairs import PairFiles, prepare_pairs, reload_pairs
from seqgen.tasks.training.session import Session, TrainingResult
from seqgen.training.events import Notice, Report
from seqgen.training.run import Run
from seqgen.wording import plural


@ending_as_ctrl_c()
def train(
    data: Sequence[str | Path],
    *,
    targets: Sequence[str | Path] = (),
    architecture: str | None = None,
    preset: str | None = None,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    stop_after: int | None = None,
    tensorboard: bool = False,
    report: Report = lambda event: None,
) -> TrainingResult:
    """Train a language model on text and store it.

    Args:
        data: files, folders of files or patterns, joined in this order; or one token file.
        targets: of an architecture that reads pairs: the files whose line n is the target of line
            n of `data`. Without them each line of `data` is source, tab, target.
        architecture: a name in the registry; the preset's, the configuration file's or lstm if
            None.
        preset: a name in `presets`; the configuration file's if None.
        name: what to call the model; made from the data's name if None.
        settings: fields of `DataConfig`, `TrainingConfig` or the architecture's configuration,
            by name; what is not given comes from `config`, then from the preset, then from the
            architecture's recipe.
        config: a configuration file as nested tables, see `configs.read_config`.
        device: auto, cpu, cuda or mps.
        overwrite: replace a model of that name, with the first weights worth keeping.
        stop_after: stop after so many steps, as if interrupted there; no part of the settings.
        tensorboard: log for TensorBoard too, into the model's folder.
        report: takes events while training goes on.

    Raises:
        Interrupted: before the first step, so that there is nothing to keep.
        UsageError: a setting is unknown or wrong, the preset is unknown or of another
            architecture, or the name is in use.
        SeqgenError: the data cannot be read, or the model not be written.
    """
    if tensorboard:
        require_tensorboard()
    flags = [name for name, value in (settings or {}).items() if value is not None]
    beneath = preset_of(preset, architecture, config or {})
    plan = plan_of(architecture, beneath, settings or {}, config or {}, flags)
    store.check_free(name, overwrite)
    place = choose_device(device)

    if plan.reads == "pairs":
        prepared = prepare_pairs(PairFiles.of(data, targets), plan.data, report)
        settled = plan.data
    else:
        require(not targets, f"{plan.architecture} learns from a text: it takes no --target")
        prepared, settled = prepare_data(data, plan.data, set(flags), report)
    if warning := leak(prepared, settled):
        report(Notice(text=warning))
    plan = replace(plan, data=settled)
    training = plan.training
    if not plan.model_class.counted:
        plan = choose_size(plan, prepared, place, report)
        training = plan.resolve(prepared, place, report)
        training = choose_training_precision(plan, training, prepared, place, report)
        training = choose_compilation(plan, training, prepared, place, report)
    elif notice := ignored(flags):
        report(notice)
    model_config = plan.model_config(prepared.vocab_sizes, training.seq_len)
    with own_randomness(place), contextlib.ExitStack() as held:
        torch.manual_seed(training.seed)
        model = to_train(plan.model_class, model_config)
        if plan.origin is not None:
            plan.origin.begin(model, prepared.tokenizer, prepared.source_tokenizer)
        model.to(device=place, dtype=parameter_type(training.precision))
        # Not before there is a model: one too large for the machine leaves no folder behind.
        stem = f"{Path(data[0]).stem}-{plan.architecture}"
        stored = held.enter_context(store.building(name, stem, overwrite))
        stored.write_config(
            plan.architecture,
            preset=beneath and beneath.name,
            model=model_config.to_dict(),
            training={} if model.counted else training.to_dict(),
            data=plan.data.to_dict(),
        )
        with stored.writing(store.TOKENIZER):
            prepared.tokenizer.save(stored.path / store.TOKENIZER)
        if prepared.vocab_sizes.source is not None:
            with stored.writing(store.SOURCE_TOKENIZER):
                prepared.source_tokenizer.save(stored.path / store.SOURCE_TOKENIZER)
        with stored.writing("validation"):
            prepared.keep_validation(stored)
        tokenizers = prepared.tokenizer, plan.data, prepared.source_tokenizer
        loaded = LoadedModel(stored, model, *tokenizers)
        if model.counted:
            return count(loaded, prepared, report)
        return Session(loaded, prepared, training, stop_after, tensorboard, report).run()


@ending_as_ctrl_c()
def resume(
    name: str | Path | None = None,
    *,
    data: Sequence[str | Path] = (),
    targets: Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    stop_after: int | None = None,
    changed_data: bool = False,
    tensorboard: bool = False,
    report: Report = lambda event: None,
) -> TrainingResult:
    """Go on with a run that was stopped, as if it had not been.

    Args:
        name: the model: a name, a path, or None for the latest.
        data: where its text is now; it is looked for where it was if empty.
        targets: where the targets of its pairs are now, if they came in files of their own.
        settings: a longer budget, `checkpoint_every`; nothing else can change.
        device: auto, cpu, cuda or mps.
        stop_after: stop after so many steps in all.
        changed_data: go on although the text is another one.
        tensorboard: log for TensorBoard too, into the model's folder.
        report: takes events while training goes on.

    Raises:
        UsageError: a setting that cannot change.
        SeqgenError: there is no such model, its text is gone or another, its checkpoint is
            damaged, or another run is at it.
    """
    if tensorboard:
        require_tensorboard()
    store.clean()
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
    with own_randomness(place), stored.locked():
        checkpoint = stored.read_checkpoint(lambda text: report(Notice(text=text)))
        done, result = checkpoint[1]["run"], stored.record.get("result")
        if done["stopped"] in FINISHED and result and not given:
            report(Notice(text=f"{stored.name} has finished; give a longer budget to go on"))
            # The model may have been renamed or moved since.
            named = {"name": stored.name, "path": str(stored.path)}
            return TrainingResult(**{**result, **named})
        trained = stored.settings("training", TrainingConfig)
        training = TrainingConfig(**override(trained.to_dict(), given))
        if done["step"] and not any(name.startswith("state.") for name in checkpoint[0]):
            # It has carried no state so far, as the window model of version 0.1.0.
            training = replace(training, reset_state=True)
        _ = training.budget  # one that has none is refused before anything is changed
        model, tokenizer = stored.load()
        source_tokenizer = stored.load_source_tokenizer(tokenizer)
        stored.check()
        stored.keep_current_hashes()
        data_config = stored.settings("data", DataConfig)
        found = _found(stored, data, targets)
        if source_tokenizer is None:
            prepared = reload_data(found.sources, data_config, tokenizer, stored.validation_text)
        else:
            tokenizers = Tokenizers(tokenizer, source_tokenizer)
            prepared = reload_pairs(found, data_config, tokenizers, stored.validation_pairs)
        _require_same(stored, prepared, changed_data)
        model.to(device=place, dtype=parameter_type(training.precision))
        loaded = LoadedModel(stored, model, tokenizer, data_config, source_tokenizer)
        created = stored.record.get("created", store.now())
        session = Session(loaded, prepared, training, stop_after, tensorboard, report, created)
        if given:
            require(
                session.budget.share(Run.of(done)) < 1,
                f"{stored.name} has spent {_budget(training)} already; give a longer budget",
            )
            if done["stopped"] in FINISHED:  # whoever goes on has more patience
                done["worse"] = 0
            groups = {part: config.get(part) for part in ("preset", "model", "data")}
            stored.write_config(config["architecture"], training=training.to_dict(), **groups)
            report(Notice(text=f"the schedule is fitted to {_budget(training)} from here"))
        return session.run(checkpoint)


def _budget(training: TrainingConfig) -> str:
    return plural(getattr(training, training.budget), training.budget.removesuffix("s"))


def _found(
    stored: StoredModel, data: Sequence[str | Path], targets: Sequence[str | Path]
) -> PairFiles:
    """Return where a stored model's data is: where the user says, or where it was.

    Raises:
        UsageError: targets are given without their sources, or for a text.
        SeqgenError: it is gone, or the model's record is damaged.
    """
    known = stored.record.get("data")
    if not isinstance(known, dict) or not {"files", "sha256"} <= known.keys():
        raise SeqgenError(f"{stored.path / store.RECORD} is damaged: it does not name the text")
    require(not targets or "target_files" in known, f"{stored.name} learned from a text")
    require(bool(data) or not targets, "give the files of the sources, too")
    if data:
        return PairFiles(text_files(data), text_files(targets))
    paths = store.text_of(known)
    apart = len(paths) - known.get("target_files", 0)
    return PairFiles(paths[:apart], paths[apart:])


def _require_same(stored: StoredModel, prepared: Prepared, changed_data: bool) -> None:
    """Refuse another text than a model was trained on, unless that is wanted.

    Raises:
        SeqgenError: it is another.
    """
    if prepared.facts.sha256 != stored.record["data"]["sha256"] and not changed_data:
        paths = ", ".join(map(str, prepared.text.paths))
        raise SeqgenError(
            f"{paths} is not the text {stored.name} was trained on; "
            "give --data FILE, or --changed-data to go on with this one"
        )
