"""Train a model on text, from the files to the stored model, or search a learning rate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from seqgen import hooks, ranks, registry, store
from seqgen.engines.memory_limit import build_for_training
from seqgen.engines.precision import parameter_type, restored_randomness
from seqgen.errors import telling_if_interrupted
from seqgen.interrupts import ending_as_ctrl_c
from seqgen.models.base import LanguageModel
from seqgen.models.deferred_init import DeferredModel
from seqgen.models.mixture.members import build_members
from seqgen.presets import Preset
from seqgen.ranks.group import process_group
from seqgen.settings import conform, flatten_settings, require
from seqgen.settings.setting import checked_strings
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.torch_models import choose_products
from seqgen.text.reading import CHUNK_BYTES, is_name_of_files, joined_blocks
from seqgen.text.sources import require_equal_widths
from seqgen.text.split import held_out_path
from seqgen.text.training_files import file_notices
from seqgen.training.choosing import (
    SpeedTrial,
    choose_for_machine,
    choose_size,
    choose_window,
    may_suit_transformer,
    suits_transformer,
    trial_deadline,
)
from seqgen.training.datasets.dataset import DataFiles
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.deadline import Deadline
from seqgen.training.estimate import estimate
from seqgen.training.estimators import Estimator
from seqgen.training.events import Notice, Report, notify_if_slow
from seqgen.training.fine_tune import place_base
from seqgen.training.plan import (
    Plan,
    check_members,
    check_regimes,
    plan_of,
    preset_of,
    why_not_mixable,
)
from seqgen.training.reload import data_warnings
from seqgen.training.resume import resume
from seqgen.training.session import (
    AddedOptions,
    RunOptions,
    Session,
    TrainingResult,
    build_unfilled,
    has_checkpoint_of_restart,
    telling_how_to_resume,
    write_new,
)
from seqgen.training.width_search import prepare_width_search, with_parameters
from seqgen.training.with_ngram import add_ngrams, count_ngrams, finish, order_of
from seqgen.wording import plural

# A name that is made has so many characters of the file's.
MOST_OF_STEM = 100


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Request of a training run: the settings and the data.

    Attributes:
        data: files, folders of files or patterns, joined in this order; or one token file.
        targets: of an architecture that reads pairs: the files whose line n is the target of line
            n of `data`, or of source n of the file of vectors that `data` is. Without them each
            line of `data` is source, tab, target.
        architecture: a name in the registry. None is that of the preset or the configuration file,
            else "auto": an lstm, or a transformer for a large text and a long budget, mixed with
            an n-gram model where that helps. Given by name, "auto" of pairs is the translator
            that suits the budget.
        task: "classify" or "tag": learn labels on the features of the architecture; birnn is its
            default then.
        preset: a name in `presets`; the configuration file's if None.
        settings: fields of `DataConfig`, `TrainingConfig` or the architecture's configuration,
            by name; what is not given comes from `config`, then from the preset, then from the
            architecture's recipe.
        config: a configuration file as nested tables, see `settings.read_config`.
        parameters: choose the width, `hidden_size`, at which the model has about so many.
    """

    data: Sequence[str | Path]
    targets: Sequence[str | Path] = ()
    architecture: str | None = None
    task: str | None = None
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None

    @classmethod
    def of(cls, data: Sequence[str | Path], **asked: Any) -> RunRequest:
        """Make a request from its fields and from single settings, all by name."""
        own = {name: asked.pop(name) for name in cls.__dataclass_fields__ if name in asked}
        own["settings"] = {**own.get("settings", {}), **asked}
        own["parameters"] = conform("parameters", own.get("parameters"), int | None)
        return cls(data=data, **own)

    @property
    def flags(self) -> list[str]:
        """Settings that the user gave."""
        return [name for name, value in self.settings.items() if value is not None]

    @property
    def adds_ngrams(self) -> bool:
        """Whether an n-gram model is added to the network where that is possible and helps."""
        if self.architecture is not None:
            return self.architecture == registry.AUTO and not self.chooses_translator
        return registry.UNLESS_TOLD == registry.AUTO and not (self._is_fixed or self._has_pairs)

    @property
    def is_text_of_pairs(self) -> bool:
        """Whether the data are pairs, read as text because no architecture is chosen."""
        return self.architecture is None and self._has_pairs and not self._is_fixed

    @property
    def chooses_translator(self) -> bool:
        """Whether `--model auto` has pairs, and so chooses a translator."""
        return self.architecture == registry.AUTO and self._has_pairs and not self._is_fixed

    @property
    def _has_pairs(self) -> bool:
        """Whether the data are pairs: target files, or only .tsv files."""
        return bool(self.targets) or all(Path(name).suffix == ".tsv" for name in self.data)

    @property
    def _is_fixed(self) -> bool:
        """Whether the architecture follows from other settings."""
        fixed = map(self.settings.get, ("labels", "init_from", "features"))
        return any((self.task, self.beneath, "architecture" in self.config, *fixed))

    @cached_property
    def beneath(self) -> Preset | None:
        """The preset that the settings build on, if any."""
        architecture = None if self.architecture == registry.AUTO else self.architecture
        return preset_of(self.preset, architecture, self.config)

    def plan(self, instead: str | None = None) -> Plan:
        """Make the plan before any data is read; for pairs with "auto", a transformer's.

        Args:
            instead: an architecture that is chosen for the data.
        """
        auto = "seq2seq-transformer" if self.chooses_translator else self.architecture
        preset, architecture = self.beneath, registry.architecture_to_train(instead or auto)
        plan = plan_of(architecture, preset, self.settings, self.config, self.flags, self.task)
        counts = plan.is_estimated or self.adds_ngrams or plan.training.with_ngram is not None
        limited = plan.training.memory is not None
        require(
            counts or not limited, "--memory is for counting n-grams: --model ngram or --with-ngram"
        )
        return plan


@dataclass(frozen=True)
class Destination:
    """Name and folder of a new model.

    Attributes:
        name: the user's, or None for one that is made.
        stem: the beginning of one that is made.
        overwrite: it may replace a model of that name.
        folder: that it is in; None for the models' folder.
    """

    name: str | None
    stem: str
    overwrite: bool
    folder: Path | None

    def make(self, architecture: str, held: contextlib.ExitStack) -> StoredModel:
        """Make the locked folder of a new model; only rank 0 writes it."""
        if not ranks.is_leader():
            return store.ReadOnlyModel(Path(ranks.broadcast("")))
        stem = f"{self.stem}-{architecture}"
        stored = held.enter_context(store.building(self.name, stem, self.overwrite, self.folder))
        ranks.broadcast(str(stored.place))
        return stored


def train_given(
    data: str | Path | Sequence[str | Path] | Iterable[Any],
    text: str | Iterable[str] | None,
    field: str | None,
    **options: Any,
) -> TrainingResult:
    """Train a model on files, on strings or on records; see `seqgen.train`."""
    names = [data] if isinstance(data, str | Path) else () if data is None else data
    if isinstance(names, list | tuple) and all(isinstance(name, str | Path) for name in names):
        files = list(names)
        require(bool(files) or text is not None, "give data or text to train on")
        require(not files or text is None, "give data or text to train on, not both")
        require(field is None, "field is for records, such as the rows of a data set")
        if text is None:
            are_texts = len(files) > 1 and not any(map(is_name_of_files, files))
            require(not are_texts, f"there is no file {files[0]!s:.100}; give texts as text=[...]")
            return train(files, **options)
        texts = checked_strings(text)
    else:
        require(text is None, "give data or text to train on, and not both")
        load = hooks.load_method("records", "python-objects", "data of Python objects")
        texts = load(data, field, options)
    kept = store.keep_text(joined_blocks((piece.encode() for piece in texts), CHUNK_BYTES))
    return train([kept], **{"stem": "text", **options})


@ending_as_ctrl_c()
def train(
    data: Sequence[str | Path],
    *,
    name: str | None = None,
    stem: str | None = None,
    overwrite: bool = False,
    folder: Path | None = None,
    device: str = "auto",
    stop_after: int | None = None,
    shard: bool = False,
    timeout: float | None = None,
    began: float | None = None,
    scores_all: bool = False,
    report: Report = lambda event: None,
    **asked: Any,
) -> TrainingResult:
    """Train a language model on text and store it.

    Processes that torchrun has started train it together. Only rank 0 writes and reports; all
    return the same result.

    Args:
        data: the files, see `RunRequest`.
        name: what to call the model; made from `stem` if None.
        stem: what the data is called; the name of its first file if None.
        overwrite: replace a model of that name, once the new one has its first checkpoint.
        folder: where the model goes; the models' folder if None.
        device: auto, cpu, cuda or mps.
        stop_after: stop after so many steps, as if interrupted there; no part of the settings.
        shard: on several processes, divide parameters and the states of optimisers among them.
        timeout: seconds that a process waits for another one before it gives up.
        began: when the command began, in seconds of `time.monotonic`, from which a budget in
            minutes counts; now if None.
        scores_all: see `RunOptions`.
        report: takes events while training goes on.
        asked: other fields of `RunRequest`: `architecture`, `settings`, `preset` and so on;
            options that plugins add to `seqgen train`, such as `diagnose` and `tensorboard`; and
            single settings by name.

    Raises:
        Interrupted: before the first step; nothing is saved.
        UsageError: a setting is unknown or wrong, the preset is unknown or of another
            architecture, the name is in use, or no width has so many parameters.
        SeqgenError: the data cannot be read, or the model not be written.
    """
    added = AddedOptions.take(asked)
    request = RunRequest.of(data, **asked)
    stem = (stem or Path(data[0]).stem)[:MOST_OF_STEM]
    destination = Destination(name, stem, overwrite, folder)
    with process_group(timeout):
        limits = {"stop_after": stop_after, "began": began, "scores_all": scores_all}
        options = RunOptions.of(device, report, added=added, shard=shard, **limits)
        if ranks.run_on_leader(lambda: has_checkpoint_of_restart(name)):
            return resume(
                name,
                device=device,
                report=options.report,
                shard=shard,
                **limits,
                **added.keywords,
            )
        options.check()
        if ranks.is_leader():
            store.check_free(name, overwrite)

        def check(plan: Plan) -> None:
            options.require_model(plan.task, not plan.is_estimated)
            if plan.training.with_ngram is not None:
                why_not = why_not_mixable(plan.architecture, plan.training, plan.data)
                require(why_not is None, f"--with-ngram {why_not}")

        ready = prepare_run(request, options.place, options.report, check, tries=not shard)
        result = _train_and_store(ready, destination, options)
    with telling_if_interrupted(f"{result.name} is saved"):
        options.conclude(result.name)
    return result


def _train_and_store(
    ready: ReadyRun, destination: Destination, options: RunOptions
) -> TrainingResult:
    """Train or estimate the model of a prepared run, and store it."""
    name = destination.name
    if ready.training.lora is not None and name is not None:
        ready.plan.origin.refuse_replacing(name)
    with restored_randomness(options.place), contextlib.ExitStack() as held:
        if ready.plan.is_estimated:
            architecture, alone = ready.plan.architecture, ranks.world_size() == 1
            require(alone, f"{architecture} is not trained by gradients: train it without torchrun")
            if notice := Estimator.of(architecture).ignored(ready.request.flags):
                options.report(notice)
            loaded = _make_new_model(ready, destination, options, held)
            return estimate(loaded, ready.prepared, ready.training, options.report)
        options.check_divisible(ready.training)
        unfilled = build_unfilled(ready.training, ready.initial_model) if options.shard else None
        loaded = _make_new_model(ready, destination, options, held, unfilled)
        session = Session(
            loaded,
            ready.prepared,
            ready.training,
            options,
            unfilled=unfilled,
            origins=ready.plan.origins(),
            inherited=ready.plan.inherited_facts(),
            regularisation=ready.plan.regularisation,
        )
        ranks.run_on_leader(lambda: count_ngrams(session))
        with telling_how_to_resume(loaded.stored):
            ended = ranks.broadcast(session.run())
            _remember_speed(ready, options)
            return ranks.run_on_leader(lambda: finish(session, ended))


def _remember_speed(ready: ReadyRun, options: RunOptions) -> None:
    """Keep the speed of a timed run, which later runs on this machine choose their sizes by.

    That is the highest of any second: the mean of a run beside other work would keep its size from
    being tried again.
    """
    if ready.training.minutes is None or not options.report.fastest:
        return
    trial = SpeedTrial(ready.plan, ready.training, ready.prepared, options.place, Deadline())
    trial.keep_speeds({ready.training.row_threads: options.report.fastest})


def _make_new_model(
    ready: ReadyRun,
    destination: Destination,
    options: RunOptions,
    held: contextlib.ExitStack,
    unfilled: DeferredModel | None = None,
) -> LoadedModel:
    """Make a new model and its locked folder.

    One that is divided among ranks is `unfilled` already, and gets no content.
    """
    plan, training, prepared = ready.plan, ready.training, ready.prepared
    if unfilled is not None:
        model = unfilled.shell(options.place)
    else:
        model = ready.initial_model()
        if plan.origin is not None:
            plan.origin.forget_weights()
        if training.lora is None:
            model.to(device=options.place, dtype=parameter_type(training.precision))
        else:
            place_base(model, training, plan.origin.stored, options.place)
    if training.lora is not None:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        adapters = f"the adapters that are trained have {plural(trained, 'number')}"
        options.report(Notice(text=adapters))
    # Created only now, so that a model too large for this machine leaves no folder behind.
    stored = destination.make(plan.architecture, held)
    tokenizers = prepared.tokenizer, plan.data, prepared.source_tokenizer
    framing = plan.framing(prepared.tokenizer)
    loaded = LoadedModel(stored, model, *tokenizers, own_framing=framing)
    kept = None if plan.is_estimated else training
    base, preset = plan.origin and plan.origin.stored, ready.request.beneath
    write_new(loaded, prepared, plan.architecture, kept, preset and preset.name, base)
    return loaded


@dataclass(frozen=True)
class ReadyRun:
    """A prepared run: its data and settings, before the model is built.

    Attributes:
        request: what was asked for.
        plan: with every setting of model and data.
        training: every setting of training; of a counted model, what was given.
        prepared: the data.
    """

    request: RunRequest
    plan: Plan
    training: TrainingConfig
    prepared: Prepared

    def initial_model(self, machines: int | None = None) -> LanguageModel:
        """Build the model before its first step: random, or from another model.

        Args:
            machines: how many the model is divided among; None if it is not divided.
        """
        plan, prepared, training = self.plan, self.prepared, self.training
        config = plan.model_config(prepared.vocab_sizes, training.seq_len)

        def make() -> LanguageModel:
            if machines is None and plan.continues_weights:
                return plan.origin.continued(config)
            model = build_for_training(plan.model_class, config, machines or 1)
            model.spell(prepared.spellings(), prepared.spelled)
            return model

        model = build_members(make, training.members, training.seed)
        prepared.show(model)
        if plan.origin is not None:
            plan.origin.begin(model, prepared)
        if plan.features is not None:
            plan.features.begin(model)
        if training.lora is not None:
            plan.origin.adapt(model, training)
        return model


def prepare_run(
    request: RunRequest,
    device: torch.device,
    report: Report,
    check: Callable[[Plan], None] = lambda plan: None,
    tries: bool = True,
) -> ReadyRun:
    """Read the data of a new model and choose its settings; see `train`.

    `check` may refuse the plan, before any data is read and once more if the data change it. Only
    if it `tries`, models are trained for a moment to choose what is left open: one that is to be
    divided may fit nowhere as a whole.
    """
    request = import_origin(request, report)
    plan = checked_plan(request, check)
    prepared, plan = prepare_plan(plan, request, report)
    deadline = trial_deadline(plan.training) if tries else None
    with notify_if_slow(report, "choosing settings by how fast this machine trains"):
        if (other := _other_architecture(plan, request, prepared)) is not None:
            other = checked_plan(request, check, other)
            other = replace(other, data=plan.data).for_text(prepared.read_tokens)
            transformer, recurrent = (plan, other) if request.chooses_translator else (other, plan)
            suits = tries and suits_transformer(transformer, prepared, device, deadline)
            plan = transformer if suits else recurrent
        if request.adds_ngrams and plan.origin is None:
            plan = add_ngrams(plan, prepared, report, detail=request.architecture is None)
        if request.parameters is not None:
            plan = solve_width(plan, prepared, request.parameters, device)
        plan, training = _choose_open_settings(plan, prepared, device, report, deadline)
    return ReadyRun(request, plan, training, prepared)


def _other_architecture(plan: Plan, request: RunRequest, prepared: Prepared) -> str | None:
    """Name the architecture that may suit the budget better than the plan's; None if none may."""
    if request.chooses_translator:
        return "seq2seq"
    leaves_open = request.adds_ngrams and request.parameters is None
    return "transformer" if leaves_open and may_suit_transformer(plan, prepared) else None


def import_origin(request: RunRequest, report: Report) -> RunRequest:
    """Replace an address in `init_from`, such as hf:OWNER/NAME, by the stored model that it names.

    Args:
        request: what was asked for.
        report: takes a notice of what is downloaded and imported.

    Raises:
        SeqgenError: it cannot be imported.
    """
    address = {**flatten_settings(request.config), **request.settings}.get("init_from")
    prefix, colon, _ = str(address).partition(":")
    if not colon or prefix not in hooks.by_name("model_sources"):
        hooks.require_plugin(f"{prefix}:", str(address))
        return request
    plugin, target = hooks.by_name("model_sources")[prefix]

    def find() -> str:
        stored = plugin.load(target)(address, lambda said: report(Notice(text=said)))
        return store.model_argument(stored)

    settings = {**request.settings, "init_from": ranks.run_on_leader(find)}
    return replace(request, settings=settings)


def checked_plan(
    request: RunRequest, check: Callable[[Plan], None], instead: str | None = None
) -> Plan:
    """Make and check the plan before any data is read; see `RunRequest.plan`."""
    plan = request.plan(instead)
    check_members(plan.row, plan.training, plan.task)
    check(plan)
    if request.parameters is not None:
        return prepare_width_search(plan, request.flags)
    plan.check_shape()
    return plan


def prepare_plan(plan: Plan, request: RunRequest, report: Report) -> tuple[Prepared, Plan]:
    """Read and tokenize the data of a plan; see `train`.

    Returns:
        The data, and the plan with the settings that follow from it.
    """
    task, origin = plan.task, plan.origin
    about = f"{plan.architecture} learns from {task.learns}"
    require(task.takes_targets or not request.targets, f"{about}: it takes no --target")
    files = DataFiles.of(request.data, request.targets, plan.data.as_text)
    held_out = [] if held_out_path(plan.data.val) is None else [plan.data.val]
    for text in file_notices([*request.data, *request.targets, *held_out], plan.data.as_text):
        report(Notice(text=text))
    if request.is_text_of_pairs and task.beside_ngrams:
        names = ", ".join(map(str, request.data))
        report(Notice(text=f"{names}: read as text; --model auto trains a translator of its pairs"))
    open_dataset = registry.load_object(task.dataset).open
    dataset = open_dataset(files, plan.data, origin and origin.tokens, request.flags)
    prepared = dataset.prepare(plan.given.keys(), report)
    plan = replace(plan, data=prepared.config).for_text(prepared.read_tokens)
    if origin is not None:
        origin.report_ngram_left_out(report)
        width = getattr(origin.model.config, "source_features", None)
        require_equal_widths(origin.stored.name, width, prepared.vocab_sizes.source_features)
    for warning in data_warnings(prepared, origin and origin.stored):
        report(Notice(text=warning))
    return prepared, plan


def solve_width(plan: Plan, prepared: Prepared, parameters: int, device: torch.device) -> Plan:
    """Choose the width for a number of parameters; see `with_parameters`."""
    seq_len = plan.resolve(prepared, device, lambda event: None).seq_len
    return with_parameters(plan, parameters, prepared.vocab_sizes, seq_len)


def _choose_open_settings(
    plan: Plan,
    prepared: Prepared,
    device: torch.device,
    report: Report,
    deadline: Deadline | None,
) -> tuple[Plan, TrainingConfig]:
    """Choose the settings that the user left open; for counted models only the seed.

    Models are trained for a moment to choose them until the deadline; not at all if that is None.
    """
    if plan.is_estimated:
        return plan, replace(plan.training, seed=plan.seed())
    choose_products(device)  # trials are to measure what will run
    if plan.training.with_ngram is not None:
        order = order_of(plan.architecture, plan.training, prepared, report)
        plan = plan.with_given({"with_ngram": order})
    if deadline is not None:
        plan = choose_window(plan, prepared, device, report, deadline)
        plan = choose_size(plan, prepared, device, report, deadline)
    training = plan.resolve(prepared, device, report)
    check_regimes(plan, training, report)
    if deadline is None:
        plain = {"precision": "float32"} if training.precision == "auto" else {}
        return plan, replace(training, compile=False, row_threads=1, **plain)
    trial = SpeedTrial(plan, training, prepared, device, deadline)
    return plan, choose_for_machine(trial, report)
