"""Training a model on text, from the files to the stored model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from seqgen import ranks, registry, store
from seqgen.commands.interrupts import ending_as_ctrl_c
from seqgen.commands.leaks import leak, leaks_of_origin
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.machine import choose_products
from seqgen.commands.training.board import require_tensorboard
from seqgen.commands.training.choosing import (
    choose_compilation,
    choose_size,
    choose_training_precision,
    with_open_width,
    with_parameters,
)
from seqgen.commands.training.estimate import Estimator, estimate
from seqgen.commands.training.family import check_mixable, check_names_beside, family_to_join
from seqgen.commands.training.plan import Plan, check_regimes, plan_of, preset_of
from seqgen.commands.training.resume import resume
from seqgen.commands.training.session import (
    Session,
    TrainingResult,
    is_begun,
    report_of_first,
    require_divisible,
    require_parallel,
    unfilled_for,
    write_data,
    write_settings,
)
from seqgen.commands.training.with_ngram import finish, for_small_text, order_of
from seqgen.configs import (
    TrainingConfig,
    require,
)
from seqgen.data.framing import Framing
from seqgen.models.base import LanguageModel
from seqgen.models.engines.deferred_init import Unfilled
from seqgen.models.engines.memory_limit import to_train
from seqgen.models.engines.precision import choose_device, parameter_type, restored_randomness
from seqgen.presets import Preset
from seqgen.ranks.group import together
from seqgen.store import StoredModel
from seqgen.tasks.datasets.dataset import DataFiles
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.tokenizers import Tokenizer
from seqgen.training.events import Notice, Report
from seqgen.wording import plural

# A name that is made has so many characters of the file's.
MOST_OF_STEM = 100
# Where a new model goes: its name, the beginning of one that is made, whether it may replace
# another, and the folder that it is in if that is not the models' folder.
Where = tuple[str | None, str, bool, Path | None]


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
    folder: Path | None = None,
    shard: bool = False,
    timeout: float | None = None,
    report: Report = lambda event: None,
) -> TrainingResult:
    """Train a language model on text and store it.

    Processes that torchrun has started train it together. Only rank 0 writes and reports; all
    return the same result.

    Args:
        data: files, folders of files or patterns, joined in this order; or one token file.
        targets: of an architecture that reads pairs: the files whose line n is the target of line
            n of `data`, or of source n of the file of vectors that `data` is. Without them each
            line of `data` is source, tab, target.
        architecture: a name in the registry; the preset's, the configuration file's or lstm if
            None or "auto", which also mixes the network with an n-gram model if the text is small.
        task: "classify" or "tag": learn labels on the features of the architecture; birnn is its
            default then.
        preset: a name in `presets`; the configuration file's if None.
        name: what to call the model; made from the data's name if None.
        settings: fields of `DataConfig`, `TrainingConfig` or the architecture's configuration,
            by name; what is not given comes from `config`, then from the preset, then from the
            architecture's recipe.
        config: a configuration file as nested tables, see `configs.read_config`.
        device: auto, cpu, cuda or mps.
        overwrite: replace a model of that name, once the new one has its first checkpoint.
        parameters: choose the width, `hidden_size`, at which the model has about so many.
        stop_after: stop after so many steps, as if interrupted there; no part of the settings.
        tensorboard: log for TensorBoard too, into the model's folder.
        diagnose: also report, and log, how every layer is doing.
        folder: where the model goes; the models' folder if None.
        shard: on several processes, divide parameters and the states of optimisers among them.
        timeout: seconds that a process waits for another one before it gives up.
        report: takes events while training goes on.

    Raises:
        Interrupted: before the first step; nothing is saved.
        UsageError: a setting is unknown or wrong, the preset is unknown or of another
            architecture, the name is in use, or no width has so many parameters.
        SeqgenError: the data cannot be read, or the model not be written.
    """
    if tensorboard:
        require_tensorboard()
    chosen = architecture, task, preset, settings or {}, config or {}, parameters
    during = {"stop_after": stop_after, "tensorboard": tensorboard, "diagnose": diagnose}
    where = name, Path(data[0]).stem[:MOST_OF_STEM], overwrite, folder
    with together(timeout):
        report = report_of_first(report)
        if ranks.from_first(lambda: is_begun(name)):
            return resume(name, device=device, shard=shard, report=report, **during)
        require_parallel(shard)
        if ranks.leads():
            store.check_free(name, overwrite)

        def check(plan: Plan) -> None:
            if plan.training.with_ngram is not None:
                check_mixable(plan.architecture, plan.training, plan.data, name=name)
                if name is not None and ranks.leads():
                    check_names_beside(name, overwrite)

        place = choose_device(device)
        ready = prepare_run(data, targets, *chosen, place, report, check, tries=not shard)
        if ready.training.lora is not None and name is not None:
            ready.plan.origin.refuse_replacing(name)
        if Estimator.of(ready.plan.architecture) is not None:
            return _estimate(ready, where, place, report)
        with restored_randomness(place), contextlib.ExitStack() as held:
            if shard:
                require_divisible(ready.training, diagnose)
            unfilled = unfilled_for(ready.training, ready.initial_model) if shard else None
            loaded = _begin(ready, where, place, held, report, unfilled)
            during |= {"report": report, "unfilled": unfilled, "origins": ready.plan.origins()}
            during |= {"family": family_to_join(name, overwrite)}
            session = Session(loaded, ready.prepared, ready.training, **during)
            ended = session.run()
            return ranks.from_first(lambda: finish(session, ended))


def _estimate(
    ready: ReadyRun, where: Where, device: torch.device, report: Report
) -> TrainingResult:
    """Count or estimate a model that is not trained by gradients."""
    estimator = Estimator.of(ready.plan.architecture)
    require(
        ranks.world() == 1,
        f"{ready.plan.architecture} is not trained by gradients: train it without torchrun",
    )
    if notice := estimator.ignored(ready.flags):
        report(notice)
    with restored_randomness(device), contextlib.ExitStack() as held:
        loaded = _begin(ready, where, device, held, report)
        return estimate(loaded, ready.prepared, ready.training, report)


def _begin(
    ready: ReadyRun,
    where: Where,
    device: torch.device,
    held: contextlib.ExitStack,
    report: Report,
    unfilled: Unfilled | None = None,
) -> LoadedModel:
    """Make a new model, and its folder, which is locked and lasts as long as `held`.

    One that is divided among ranks is `unfilled` already, and gets no content.
    """
    plan, training, prepared = ready.plan, ready.training, ready.prepared
    if unfilled is not None:
        model = unfilled.shell(device)
    else:
        model = ready.initial_model()
        model.to(device=device, dtype=parameter_type(training.precision))
    if training.lora is not None:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        report(Notice(text=f"the adapters that are trained have {plural(trained, 'number')}"))
    # Created only now, so that a model too large for this machine leaves no folder behind.
    stored = _new_folder(where, plan.architecture, held)
    kept = None if plan.model_class.counted else training
    preset_name = ready.preset and ready.preset.name
    framing = framing_of(plan, prepared.tokenizer)
    settled = plan.architecture, model.config, plan.data, framing, kept, preset_name
    write_settings(stored, *settled, base=plan.origin and plan.origin.stored)
    if ranks.leads():
        write_data(stored, prepared)
    tokenizers = prepared.tokenizer, plan.data, prepared.source_tokenizer
    return LoadedModel(stored, model, *tokenizers, own_framing=framing)


def _new_folder(where: Where, architecture: str, held: contextlib.ExitStack) -> StoredModel:
    """Return the folder of a new model: rank 0 makes it and writes it."""
    name, stem, overwrite, folder = where
    if not ranks.leads():
        return store.ReadOnlyModel(Path(ranks.broadcast("")))
    stem = f"{stem}-{architecture}"
    stored = held.enter_context(store.building(name, stem, overwrite, folder))
    ranks.broadcast(str(stored.place))
    return stored


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

    def initial_model(self, machines: int = 1) -> LanguageModel:
        """Return the model before its first step: drawn from the seed, or fine-tuning's origin.

        Args:
            machines: how many the model is divided among.
        """
        plan, prepared = self.plan, self.prepared
        torch.manual_seed(self.training.seed)
        config = plan.model_config(prepared.vocab_sizes, self.training.seq_len)
        model = to_train(plan.model_class, config, machines)
        model.spell(prepared.spellings(), prepared.tokenizer.kind in ("char", "byte"))
        prepared.show(model)
        if plan.origin is not None:
            plan.origin.begin(model, prepared)
        if plan.features is not None:
            plan.features.begin(model)
        if self.training.lora is not None:
            plan.origin.adapt(model, self.training)
        return model


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
    check: Callable[[Plan], None] = lambda plan: None,
    tries: bool = True,
) -> ReadyRun:
    """Read the data of a new model, and choose its settings; see `train`.

    `check` may refuse the plan, before any data is read and once more if the data change it. Only
    if it `tries`, models are trained for a moment to choose what is left open: one that is to be
    divided may fit nowhere as a whole.
    """
    flags = [name for name, value in settings.items() if value is not None]
    chooses = architecture == registry.AUTO
    beneath = preset_of(preset, None if chooses else architecture, config)
    architecture = registry.to_train(architecture)
    plan = plan_of(architecture, beneath, settings, config, flags, task)
    check(plan)
    if parameters is None:
        plan.check_shape()
    else:
        plan = with_open_width(plan, flags)
    prepared, plan = prepare_plan(plan, data, targets, flags, report)
    if chooses:
        plan = for_small_text(plan, prepared, report)
        check(plan)
    if parameters is not None:
        plan = solve_width(plan, prepared, parameters, device)
    plan, training = _choose(plan, prepared, device, report, tries)
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
    task = plan.task
    about = f"{plan.architecture} learns from {task.learns}"
    require(task.takes_targets or not targets, f"{about}: it takes no --target")
    known = plan.origin and plan.origin.tokens
    files = DataFiles.of(data, targets)
    dataset = registry.load_object(task.dataset).open(files, plan.data, known, flags)
    prepared, settled = dataset.prepare(plan.given.keys(), report)
    plan = replace(plan, data=settled)
    if plan.origin is not None:
        plan.origin.require_sources(prepared.vocab_sizes.source_features)
    if warning := leak(prepared, plan.data):
        report(Notice(text=warning))
    if plan.origin is not None:
        for warning in leaks_of_origin(prepared, plan.data, plan.origin.stored):
            report(Notice(text=warning))
    return prepared, plan


def solve_width(plan: Plan, prepared: Prepared, parameters: int, device: torch.device) -> Plan:
    """Return the plan with the width for so many parameters; see `with_parameters`."""
    seq_len = plan.resolve(prepared, device, lambda event: None).seq_len
    return with_parameters(plan, parameters, prepared.vocab_sizes, seq_len)


def _choose(
    plan: Plan, prepared: Prepared, device: torch.device, report: Report, tries: bool
) -> tuple[Plan, TrainingConfig]:
    """Decide what the user left open; without gradients that is the seed alone."""
    if plan.model_class.counted:
        return plan, replace(plan.training, seed=plan.seed())
    choose_products(device)  # trials are to measure what will run
    if plan.training.with_ngram is not None:
        order = order_of(plan.architecture, plan.training, prepared, plan.data, report)
        plan = plan.with_given({"with_ngram": order})
    if tries:
        plan = choose_size(plan, prepared, device, report)
    training = plan.resolve(prepared, device, report)
    check_regimes(plan, training, report)
    if not tries:
        plain = {"precision": "float32"} if training.precision == "auto" else {}
        return plan, replace(training, compile=False, **plain)
    training = choose_training_precision(plan, training, prepared, device, report)
    return plan, choose_compilation(plan, training, prepared, device, report)


def framing_of(plan: Plan, tokenizer: Tokenizer) -> Framing:
    """Return how texts begin and end for the new model: as for its origin, if it has one."""
    if plan.origin is not None:
        return plan.origin.framing(plan.data.documents)
    return Framing.of(tokenizer, plan.data.documents)
