"""Training plan: the user's settings merged with what follows from text and machine."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from seqgen import hooks, presets, ranks, registry
from seqgen.engines.precision import choose_precision
from seqgen.models.base import LanguageModel
from seqgen.settings import (
    DEFAULT_REGIME,
    READING_REGIMES,
    DataConfig,
    ModelConfig,
    RegimeConfig,
    conform,
    flatten_settings,
    require,
    resolve,
)
from seqgen.settings.training import BUDGETS, TrainingConfig, adapt_recipe, with_default_budget
from seqgen.store.formats import facts_of_chat
from seqgen.tasks.task import Task
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer
from seqgen.training.datasets.prepared import Prepared, VocabSizes
from seqgen.training.events import Notice, Report
from seqgen.training.fine_tune import (
    FeatureSource,
    InitialModel,
    architecture_of,
    feature_source,
    keeps_types,
)
from seqgen.training.regularising import Regularisation
from seqgen.wording import plural


def override(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings; `above` wins, and any budget in `above` replaces all budgets in `below`."""
    if any(above.get(name) is not None for name in BUDGETS):
        below = {name: value for name, value in below.items() if name not in BUDGETS}
    return {**below, **above}


@dataclass(frozen=True)
class Plan:
    """Architecture, task and settings of a model to train, before any text is read.

    Attributes:
        row: the architecture.
        origin: the model that is fine-tuned, if any.
        given: all settings by name, except those of the architecture's recipe.
        model: those of the model.
        training: how it is trained.
        data: how text is read.
        recipe: the architecture's training settings, which hold where none is given.
        features: the model whose features are read beside the tokens, if any.
        regularisation: what may be chosen again once training has shown its speed, if anything.
    """

    row: registry.Architecture
    origin: InitialModel | None
    given: dict[str, Any]
    model: dict[str, Any]
    training: TrainingConfig
    data: DataConfig
    recipe: Mapping[str, Any]
    features: FeatureSource | None = None
    regularisation: Regularisation | None = None

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        return self.row.name

    @property
    def task(self) -> Task:
        """Task, such as language modelling or translation."""
        return self.row.task.of(self.data.labels)

    @property
    def is_estimated(self) -> bool:
        """Whether the model is counted or estimated by EM, not trained by gradients."""
        return self.row.estimator is not None

    @property
    def model_class(self) -> type[LanguageModel]:
        """Class of the model."""
        return self.row.load_model()

    @property
    def config_class(self) -> type[ModelConfig]:
        """Class of the model's configuration."""
        return self.row.load_config()

    def origins(self) -> dict[str, dict[str, str]]:
        """Models that training starts from, by setting, in the form kept in records."""
        used = {"init_from": self.origin, "features": self.features}
        return {name: one.stored.reference.to_dict() for name, one in used.items() if one}

    def inherited_facts(self) -> dict[str, Any]:
        """Facts of the model that training starts from which hold for the new model, too."""
        return {} if self.origin is None else facts_of_chat(self.origin.stored.record)

    def model_config(self, sizes: VocabSizes, seq_len: int) -> ModelConfig:
        """Make the model's configuration for these vocabulary sizes and this sequence length.

        Args:
            sizes: of the vocabulary, or of both.
            seq_len: the training window; where nothing is cut into windows, it decides nothing.
        """
        # A target's EOS, and a source's, come on top of its longest; so does a start symbol.
        longest = self.task.longest
        window = seq_len if longest is None else getattr(self.data, longest) + 1
        if self.origin is not None:
            return self.origin.config(self.architecture, self.given, window, sizes.classes)
        follows = {
            "vocab_size": sizes.target,
            "window": window,
            "source_vocab_size": sizes.source,
            "source_features": sizes.source_features,
            "source_window": self.data.max_source_len + 1,
            "classes": sizes.classes,
            "feature_model": self.features and self.features.about,
            "decoder_start": None,
        }
        derived = {name: follows[name] for name in self.config_class.derived}
        return self.config_class(**derived, **self.model).as_new(self.given)

    @property
    def continues_weights(self) -> bool:
        """Whether the new model has all weights of the fine-tuned one, and no others."""
        origin = self.origin
        alone = self.features is None and self.training.members is None
        return alone and origin is not None and type(origin.model) is self.model_class

    def check_shape(self) -> None:
        """Refuse contradictory model settings before any text is read.

        Raises:
            UsageError: says which.
        """
        sizes = VocabSizes(source=None if self.data.source_tokenizer is None else 1)
        self.model_config(sizes, self.training.seq_len)

    def with_given(self, settings: Mapping[str, Any]) -> Plan:
        """Copy the plan with `settings` added as if the user had given them."""
        return replace(self, given={**self.given, **settings}).with_settings({})

    def with_settings(self, settings: Mapping[str, Any]) -> Plan:
        """Copy the plan with `settings` of model and training added.

        Raises:
            UsageError: they contradict one another.
        """
        given = {**self.given, **settings}
        model, training, _ = _groups(self.row, given, self.recipe)
        return replace(self, model=model, training=training)

    def for_text(self, tokens: int) -> Plan:
        """Copy the plan with the recipe for a training text of so many tokens."""
        recipe = _recipe(self.config_class.recipe_for(tokens), self.origin)
        return replace(self, recipe=recipe).with_settings({})

    def only_unset(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Keep those of `settings` that the user has not given."""
        return {name: value for name, value in settings.items() if name not in self.given}

    def resolve(self, prepared: Prepared, device: torch.device, report: Report) -> TrainingConfig:
        """Complete the training settings: open ones follow from text and machine.

        The precision stays "auto" if it takes a trial to choose it
        (`choosing.choose_for_machine`).
        """
        training, given, corpus = self.training, self.given, prepared.train
        settled: dict[str, Any] = {}
        if self.task.longest is not None:
            # Nothing is cut, and rows are whole pairs: for estimates alone.
            settled["seq_len"] = max(1, round(prepared.read_tokens / corpus.ends.size))
        elif training.seq_len > corpus.tokens.size:
            settled["seq_len"] = int(corpus.tokens.size)
            size = plural(int(corpus.tokens.size), "token")
            report(Notice(text=f"--seq-len is reduced to the length of the text, {size}"))
        if not {"batch_size", "batch_tokens"} & given.keys():
            settled["batch_size"] = prepared.default_batch_size(training)
        keeps = device.type == "cpu" and keeps_types(vars(training))
        if self.origin and not keeps and (said := self.origin.stored.describe_conversion()):
            report(Notice(text=said))
        if training.init_from is not None and prepared.train.oov:
            unknown = plural(prepared.train.oov, "token")
            report(Notice(text=f"{training.init_from} does not know {unknown} of the text"))
        settled["seed"] = self.seed()
        training = replace(training, **settled)
        if device.type == "cpu" and (read := training.batch_size * training.seq_len) >= LONG_STEP:
            slow = "may take minutes; a smaller --seq-len or --batch-size makes steps shorter"
            report(Notice(text=f"a step reads {plural(read, 'token')} and {slow}"))
        if left_out := prepared.left_out_notice(training, self.model_class.carries_state):
            report(Notice(text=left_out))
        shape = self.model_config(VocabSizes(), training.seq_len)
        large = shape.suits_bf16(training.batch_size, training.seq_len)
        precision = choose_precision(self.training.precision, device, large)
        return replace(training, precision=precision)

    def framing(self, tokenizer: Tokenizer) -> Framing:
        """Return the start and end tokens of texts for the new model."""
        documents = self.data.documents
        if self.origin:
            return self.origin.framing(documents)
        return Framing.of_new_model(tokenizer, documents)

    def seed(self) -> int:
        """The user's seed, or a random one."""
        given = self.given.get("seed")
        return ranks.run_on_leader(lambda: secrets.randbelow(1 << 31)) if given is None else given


def preset_of(
    name: str | None, architecture: str | None, config: Mapping[str, Any]
) -> presets.Preset | None:
    """Return the preset named by the user or the configuration file, if any.

    Raises:
        UsageError: there is none of that name, it is of another architecture, or given as one.
    """
    is_preset = architecture in presets.PRESETS and architecture not in registry.ARCHITECTURES
    require(not is_preset, f"{architecture} is a preset: give --preset {architecture}")
    in_file = conform("preset", config.get("preset"), str | None)
    name = in_file if name is None else name
    if name is None:
        return None
    require(in_file in (None, name), f"--preset {name}: the configuration file has {in_file}")
    preset = presets.preset(name)
    named = architecture or config.get("architecture")
    agrees = named in (None, preset.architecture)
    require(agrees, f"the preset {name} is for --model {preset.architecture}, not {named}")
    return preset


def plan_of(
    architecture: str | None,
    preset: presets.Preset | None,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    flags: Collection[str],
    task: str | None = None,
) -> Plan:
    """Merge settings of user, file, preset, initial model and recipe into a plan.

    Args:
        architecture: the user's; None for that of the preset, the file, the origin, or the default.
        preset: the user's or the file's.
        settings: the user's.
        config: the file's.
        flags: the names of the settings that the user gave.
        task: what its features are for; None for an architecture as it is.

    Raises:
        UsageError: a setting is unknown or wrong, or contradicts the preset or the origin.
        SeqgenError: there is no such model to begin from.
    """
    asked = {**flatten_settings(config), **settings}
    begun = asked.get("init_from")
    origin = None if begun is None else InitialModel.load(begun, keeps_types(asked))
    if preset is not None:
        needed = preset.needs_origin and origin is None
        require(not needed, f"--preset {preset.name} fine-tunes a model: add --init-from")
    if origin is not None:
        origin.refuse_fixed(architecture, flags)
    named = architecture or (preset and preset.architecture)
    row = registry.for_task(architecture_of(origin, named, config, task), task)
    config_class = row.load_config()
    given = override(preset.settings if preset else {}, flatten_settings(config, config_class))
    given = override(given, settings)
    if origin is not None:
        given = origin.settings(given, row)
    named = given.get("features")
    features = None if named is None else feature_source(named, row)
    if features is not None:
        given = features.settings(given, row, flags)
    recipe = _recipe(config_class.recipe, origin)
    plan = Plan(row, origin, given, *_groups(row, given, recipe), recipe, features)
    _require_sense(plan)
    _require_meaning(plan, flags)
    _require_regime(plan, flags)
    return plan


def _recipe(recipe: Mapping[str, Any], origin: InitialModel | None) -> Mapping[str, Any]:
    """Put the window of the model that is fine-tuned into a recipe."""
    window = origin and origin.training_window
    return {**recipe, "seq_len": window} if window else recipe


def _groups(
    row: registry.Architecture, given: Mapping[str, Any], recipe: Mapping[str, Any]
) -> tuple[dict[str, Any], TrainingConfig, DataConfig]:
    """Sort settings and recipe into the groups model, training and data."""
    recipe = adapt_recipe(given, recipe) | row.task.data_defaults
    model, training, data = resolve(
        {**recipe, **given},
        row.name,
        (row.load_config(), TrainingConfig, DataConfig),
        registry.architectures_with,
    )
    read = _with_labels(DataConfig(**data), given, row)
    return model, with_default_budget(TrainingConfig(**training)), read


def _with_labels(
    data: DataConfig, given: Collection[str], row: registry.Architecture
) -> DataConfig:
    """Set labelled texts to be read line by line; other data settings stay as they are.

    Raises:
        UsageError: the model takes no labels, or the text is to be one stream.
    """
    if not data.labels:
        return data
    learns = f"{row.name} learns from {row.task.learns}"
    require(row.task.labelled is not None, f"--labels is for models of text, and {learns}")
    by_gradients = row.estimator is None
    require(by_gradients, "--labels is for models that are trained by gradients, not counted ones")
    one_by_one = data.documents == "line" or "documents" not in given
    require(one_by_one, "--documents stream has no meaning with --labels: each line is a text")
    return replace(data, documents="line")


# Tokens of a step that is slow on a CPU.
LONG_STEP = 1 << 18
# Regimes that look at what a model computes before its softmax layer.
OF_FEATURES = ("professor-forcing",)
# Regimes whose gradient is about differences between texts of the model's own.
OF_TRAINED_MODELS = ("minimum-risk", "decoding")


def _require_meaning(plan: Plan, flags: Collection[str]) -> None:
    """Refuse settings that do not apply to the task.

    Raises:
        UsageError: names the setting.
    """
    task = plan.task
    because = f"has no meaning: {plan.architecture} learns from {task.learns}"
    require(plan.training.lora is None or task.model_is is None, f"lora {because}")
    for name in task.meaningless:
        require(name not in flags, f"{name} {because}")
    for name, only in task.fixed.items():
        value = getattr(plan.data, name)
        inherited = name in task.inherits and name not in flags
        require(value == only or inherited, f"{name}={value} {because}")


def _require_sense(plan: Plan) -> None:
    """Refuse settings that contradict those of other groups.

    Raises:
        UsageError: names the setting.
    """
    training, data = plan.training, plan.data
    carries = plan.model_class.carries_state and not training.reset_state
    require(
        training.k2 is None or carries,
        "k2 needs a model that carries its state from window to window",
    )
    require(
        training.windows == "random" or (data.documents == "stream" and not carries),
        "windows=sequential is for a stream whose windows carry no state: add --reset-state, or "
        "give windows=random",
    )
    validates = data.val != "none"
    require(training.patience is None or validates, "patience needs validation: no --val none")
    compiles = not plan.is_estimated and plan.model_class.over_tensors is not None
    require(
        not training.compile or compiles,
        "compile=true is for the transformer; other models have nothing to compile",
    )
    recomputes = not plan.is_estimated and hasattr(plan.model_class, "checkpointing")
    require(
        not training.checkpointing or recomputes,
        "checkpointing=true is for the transformer; other models have no blocks to compute again",
    )
    require(
        not (training.checkpointing and training.compile),
        "give compile=true or checkpointing=true, not both",
    )


def _require_regime(plan: Plan, flags: Collection[str]) -> None:
    """Refuse training regimes, and their settings, that cannot train the model.

    Raises:
        UsageError: names the setting, or the regime.
    """
    given = [name for name in RegimeConfig.fields() if name in flags]
    if plan.is_estimated:
        require(
            not given,
            f"{plan.architecture} is counted and not trained by gradients: leave out "
            f"{', '.join(given)}",
        )
        return
    for phase in plan.training.phases:
        require(
            plan.task.model_is is None or phase.regime == DEFAULT_REGIME,
            f"--regime {phase.regime} is for language models; {plan.architecture} is none",
        )
        if phase.regime != DEFAULT_REGIME:
            hooks.load_method("regime", phase.regime)  # before the work
        featureless = phase.regime in OF_FEATURES and not hasattr(plan.model_class, "hidden")
        require(
            not featureless,
            f"--regime {phase.regime} needs a model with hidden features; {plan.architecture} "
            "has none",
        )


def check_regimes(plan: Plan, training: TrainingConfig, report: Report) -> None:
    """Check training regimes once initial weights and window length are known.

    Raises:
        UsageError: the prefix leaves no token of a window for the model to write.
    """
    prefix, length = training.prefix, training.seq_len
    require(
        prefix is None or plan.data.documents != "stream" or prefix < length,
        f"prefix must be smaller than the window, which has {length} tokens (--seq-len), not "
        f"{prefix}",
    )
    first = training.phases[0].regime
    if plan.origin is None and first in OF_TRAINED_MODELS:
        report(
            Notice(
                text=f"--regime {first} learns little from a model that cannot write yet: train "
                "one first and give it as --init-from NAME"
            )
        )


def why_not_mixable(
    architecture: str,
    training: TrainingConfig,
    data: DataConfig,
    prepared: Prepared | None = None,
) -> str | None:
    """Explain why a network cannot be mixed with an n-gram model of its text; None if it can.

    Args:
        architecture: of the network.
        training: its training settings.
        data: how it reads text.
        prepared: its text; None before that is read.
    """
    row = registry.architecture(architecture)
    if row.estimator is not None:
        return f"is for networks, which {architecture} is not"
    if not row.task.of(data.labels).beside_ngrams:
        return "is for models of text; n-grams know no sources and no labels"
    if data.loss_on is not None:
        return "counts the n-grams of a text, not of conversations"
    if data.val == "none":
        return "fits the weights of a mixture on held-out text: leave out --val none"
    if training.lora is not None:
        return (
            "needs a whole network, and adapters (lora) need their base: leave out either, or "
            "count an n-gram model and use seqgen mix"
        )
    if prepared is None:
        return None
    val = prepared.val
    if val is None or val.tokens.size < 2 or (val.end is not None and val.ends.size < 2):
        return "needs two held-out tokens or lines, or more: hold out more with --val"
    if not prepared.knows_val_text:
        return "needs the held-out text, which this token file has lost: train on the text itself"
    return None


def check_members(row: registry.Architecture, training: TrainingConfig, task: Task) -> None:
    """Refuse `members` where they do not apply.

    Args:
        row: their architecture.
        training: the settings.
        task: what they learn.

    Raises:
        UsageError: says why.
    """
    if training.members is None:
        return
    reads = all(phase.regime in READING_REGIMES for phase in training.phases)
    refused = {
        f"is for networks, which {row.name} is not": row.estimator is not None,
        "is for models of text": not task.beside_ngrams,
        "trains new networks: leave out --init-from": training.init_from is not None,
        "is for regimes that only read texts": not reads,
        "trains in one process: leave out torchrun": ranks.world_size() > 1,
    }
    why = next((why for why, is_so in refused.items() if is_so), None)
    require(why is None, f"--members {why}")
