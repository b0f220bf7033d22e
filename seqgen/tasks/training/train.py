"""Training a model on text, from the files to the stored model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from seqgen import registry, store
from seqgen.configs import (
    ModelConfig,
    TrainingConfig,
    require,
)
from seqgen.models.base import LanguageModel
from seqgen.models.precision import choose_device, own_randomness, parameter_type
from seqgen.models.room import to_train
from seqgen.presets import Preset
from seqgen.store import StoredModel
from seqgen.tasks.interrupts import ending_as_ctrl_c
from seqgen.tasks.leaks import leak
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.machine import choose_products
from seqgen.tasks.training.board import require_tensorboard
from seqgen.tasks.training.choosing import (
    choose_compilation,
    choose_size,
    choose_training_precision,
)
from seqgen.tasks.training.estimate import Estimator, estimate
from seqgen.tasks.training.plan import Plan, plan_of, preset_of
from seqgen.tasks.training.prepare import Prepared
from seqgen.tasks.training.prepare_data import prepare_data
from seqgen.tasks.training.prepare_examples import prepare_examples
from seqgen.tasks.training.prepare_labels import prepare_labels
from seqgen.tasks.training.prepare_pairs import PairFiles, prepare_pairs
from seqgen.tasks.training.session import Session, TrainingResult
from seqgen.tasks.training.width import with_open_width, with_parameters
from seqgen.training.events import Notice, Report


@ending_as_ctrl_c()
def train(
    data: Sequence[str | Path],
    *,
    targets: Sequence[str | Path] = (),
    architecture: str | None = None,
    task: str | None = None,
    preset: str | None = None,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    parameters: int | None = None,
    stop_after: int | None = None,
    tensorboard: bool = False,
    diagnose: bool = False,
    report: Report = lambda event: None,
) -> TrainingResult:
    """Train a language model on text and store it.

    Args:
        data: files, folders of files or patterns, joined in this order; or one token file.
        targets: of an architecture that reads pairs: the files whose line n is the target of line
            n of `data`, or of source n of the file of vectors that `data` is. Without them each
            line of `data` is source, tab, target.
        architecture: a name in the registry; the preset's, the configuration file's or lstm if
            None.
        task: "classify" or "tag": learn labels on the features of the architecture; birnn is its
            default then.
        preset: a name in `presets`; the configuration file's if None.
        name: what to call the model; made from the data's name if None.
        settings: fields of `DataConfig`, `TrainingConfig` or the architecture's configuration,
            by name; what is not given comes from `config`, then from the preset, then from the
            architecture's recipe.
        config: a configuration file as nested tables, see `configs.read_config`.
        device: auto, cpu, cuda or mps.
        overwrite: replace a model of that name, once the new one has its first trained weights.
        parameters: choose the width, `hidden_size`, at which the model has about so many.
        stop_after: stop after so many steps, as if interrupted there; no part of the settings.
        tensorboard: log for TensorBoard too, into the model's folder.
        diagnose: also report, and log, how every layer is doing.
        report: takes events while training goes on.

    Raises:
        Interrupted: before the first step; nothing is saved.
        UsageError: a setting is unknown or wrong, the preset is unknown or of another
            architecture, the name is in use, or no width has so many parameters.
        SeqgenError: the data cannot be read, or the model not be written.
    """
    if tensorboard:
        require_tensorboard()
    store.check_free(name, overwrite)
    place = choose_device(device)
    chosen = architecture, task, preset, settings or {}, config or {}, parameters
    ready = prepare_run(data, targets, *chosen, place, report)
    plan, training, prepared = ready.plan, ready.training, ready.prepared
    estimator = Estimator.of(plan.architecture)
    if estimator is not None and (notice := estimator.ignored(ready.flags)):
        report(notice)
    model_config = plan.model_config(prepared.vocab_sizes, training.seq_len)
    with own_randomness(place), contextlib.ExitStack() as held:
        model = _initial_model(plan, model_config, training, prepared)
        model.to(device=place, dtype=parameter_type(training.precision))
        # Created only now, so that a model too large for this machine leaves no folder behind.
        stem = f"{Path(data[0]).stem}-{plan.architecture}"
        stored = held.enter_context(store.building(name, stem, overwrite))
        _write_settings(stored, plan, ready.preset, model_config, training)
        _write_data(stored, prepared)
        tokenizers = prepared.tokenizer, plan.data, prepared.source_tokenizer
        loaded = LoadedModel(stored, model, *tokenizers)
        if estimator is not None:
            return estimate(loaded, prepared, training, report)
        looks = stop_after, tensorboard, diagnose
        return Session(loaded, prepared, training, *looks, report).run()


@dataclass(frozen=True)
class ReadyRun:
    """What a new run needs before its model is made.

    Attributes:
        plan: with every setting of model and data.
        preset: that it builds on, if any.
        flags: the settings that the user gave.
        training: every setting of training; of a counted model, what was given.
        prepared: the data.
    """

    plan: Plan
    preset: Preset | None
    flags: list[str]
    training: TrainingConfig
    prepared: Prepared

    def initial_model(self) -> LanguageModel:
        """Return the model before its first step; see `_initial_model`."""
        config = self.plan.model_config(self.prepared.vocab_sizes, self.training.seq_len)
        return _initial_model(self.plan, config, self.training, self.prepared)


def prepare_run(
    data: Sequence[str | Path],
    targets: Sequence[str | Path],
    architecture: str | None,
    task: str | None,
    preset: str | None,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    parameters: int | None,
    device: torch.device,
    report: Report,
) -> ReadyRun:
    """Read what a new model learns from, and settle how it is trained; see `train`."""
    flags = [name for name, value in settings.items() if value is not None]
    beneath = preset_of(preset, architecture, config)
    plan = plan_of(architecture, beneath, settings, config, flags, task)
    if parameters is None:
        plan.check_shape()
    else:
        plan = with_open_width(plan, flags)
    prepared, plan = prepare_plan(plan, data, targets, flags, report)
    if parameters is not None:
        plan = solve_width(plan, prepared, parameters, device)
    plan, training = _choose(plan, prepared, device, report)
    return ReadyRun(plan, beneath, flags, training, prepared)


def prepare_plan(
    plan: Plan,
    data: Sequence[str | Path],
    targets: Sequence[str | Path],
    flags: Sequence[str],
    report: Report,
) -> tuple[Prepared, Plan]:
    """Read what a new model learns from; see `train`.

    Returns:
        The data, and the plan with the settings that follow from it.
    """
    if plan.reads == "pairs":
        files = PairFiles.of(data, targets)
        prepared, settled = prepare_pairs(files, plan.data, plan.given.keys(), report)
    elif plan.reads in registry.TASKS:
        require(not targets, f"{plan.architecture} takes no --target: labels are in the data")
        known = plan.origin and plan.origin.classes
        asked = plan.reads, plan.data, plan.given.keys(), known
        prepared, settled = prepare_examples(data, *asked, report)
    elif plan.data.labels:
        require(not targets, "--labels takes label<TAB>text lines: it takes no --target")
        known = plan.origin and plan.origin.source_tokenizer
        prepared, settled = prepare_labels(data, plan.data, known), plan.data
    else:
        require(not targets, f"{plan.architecture} learns from a text: it takes no --target")
        prepared, settled = prepare_data(data, plan.data, set(flags), report)
    plan = replace(plan, data=settled)
    if warning := leak(prepared, plan.data):
        report(Notice(text=warning))
    return prepared, plan


def solve_width(plan: Plan, prepared: Prepared, parameters: int, device: torch.device) -> Plan:
    """Return the plan with the width for so many parameters; see `with_parameters`."""
    seq_len = plan.resolve(prepared, device, lambda event: None).seq_len
    return with_parameters(plan, parameters, prepared.vocab_sizes, seq_len)


def _choose(
    plan: Plan, prepared: Prepared, device: torch.device, report: Report
) -> tuple[Plan, TrainingConfig]:
    """Decide what the user left open; without gradients that is the seed alone."""
    if plan.model_class.counted:
        return plan, replace(plan.training, seed=plan.seed())
    choose_products(device)  # trials are to measure what will run
    plan = choose_size(plan, prepared, device, report)
    training = plan.resolve(prepared, device, report)
    training = choose_training_precision(plan, training, prepared, device, report)
    return plan, choose_compilation(plan, training, prepared, device, report)


def _initial_model(
    plan: Plan, config: ModelConfig, training: TrainingConfig, prepared: Prepared
) -> LanguageModel:
    """Return the model before its first step: drawn from the seed, or fine-tuning's origin."""
    torch.manual_seed(training.seed)
    model = to_train(plan.model_class, config)
    model.spell(prepared.spellings(), prepared.tokenizer.kind in ("char", "byte"))
    prepared.show(model)
    if plan.origin is not None:
        plan.origin.require_sources(prepared.vocab_sizes.source_features)
        plan.origin.begin(model, prepared)
    return model


def _write_settings(
    stored: StoredModel,
    plan: Plan,
    preset: Preset | None,
    config: ModelConfig,
    training: TrainingConfig,
) -> None:
    """Write the resolved settings into a model's folder; a counted model has none of training."""
    stored.write_config(
        plan.architecture,
        preset=preset and preset.name,
        model=config.to_dict(),
        training={} if plan.model_class.counted else training.to_dict(),
        data=plan.data.to_dict(),
    )


def _write_data(stored: StoredModel, prepared: Prepared) -> None:
    """Write the tokenizers and the held-out part into a model's folder."""
    with stored.writing(store.TOKENIZER):
        prepared.tokenizer.save(stored.path / store.TOKENIZER)
        if prepared.classes is not None:
            prepared.classes.save(stored.path / store.TOKENIZER)
    if prepared.source_tokenizer not in (None, prepared.tokenizer):
        with stored.writing(store.SOURCE_TOKENIZER):
            prepared.source_tokenizer.save(stored.path / store.SOURCE_TOKENIZER)
    with stored.writing("validation"):
        prepared.keep_validation(stored)
