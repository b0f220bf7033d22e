"""Fine-tuning: training that starts from the weights or the features of another model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from seqgen import registry, store
from seqgen.engines.memory_limit import build_uninitialized, return_freed_memory
from seqgen.engines.precision import parameter_type
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import take_weights, weights_of
from seqgen.models.low_rank import add_adapters, convert_stored, share_stored, store_frozen
from seqgen.models.network import Network
from seqgen.models.recurrent.settings import CELL_REGULARISERS
from seqgen.settings import Documents, ModelConfig, conform, require
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.text.framing import Framing
from seqgen.text.labels import Classes, Labels
from seqgen.text.pairs import Tokenizers
from seqgen.text.tokenizers import Tokenizer
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.estimators import Estimator
from seqgen.training.events import Notice, Report

if TYPE_CHECKING:
    from typing_extensions import Self

# Model settings that do not affect the shapes of the weights, so fine-tuning may change them.
FREE = frozenset(
    {"dropout", "input_dropout", "output_dropout", "word_dropout", "pooling", "mask"}
    | set(CELL_REGULARISERS)
)
TOKENIZER = ("tokenizer", "source_tokenizer", "vocab_size", "min_count")


@dataclass(frozen=True)
class InitialModel:
    """A trained model whose weights initialize a new one.

    Attributes:
        stored: where it is.
        model: its weights.
        tokenizer: its tokens, which the new model has too.
        source_tokenizer: those of its sources, or its labels; None for a model of text alone.
    """

    stored: StoredModel
    model: Network
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer | Labels | None

    @classmethod
    def load(cls, name: str, keeps_types: bool = False) -> InitialModel:
        """Load the model named by `--init-from`.

        Args:
            name: of the model.
            keeps_types: of its matrices, for adapters; see `StoredModel.load`.

        Raises:
            SeqgenError: there is none, it is damaged, or it was counted.
        """
        stored = store.find(name).network_for("--init-from")
        model, tokenizer = stored.load(keeps_types)
        if estimator := Estimator.of(stored.config["architecture"]):
            done, _ = estimator.done
            raise SeqgenError(f"{stored.name} was {done}: it has no weights to begin from")
        place = type(stored)(stored.path.resolve())
        return cls(place, model, tokenizer, place.load_source_tokenizer(tokenizer))

    def report_ngram_left_out(self, report: Report) -> None:
        """Report that the n-gram model is left out if there is one beside the network."""
        whole = StoredModel(self.stored.path)
        whole.networks_for("--init-from", lambda said: report(Notice(text=said)))

    @property
    def tokens(self) -> Tokenizers:
        """Its tokenizers and labels, in the form that its dataset uses."""
        return registry.load_object(self.stored.task.dataset).tokens_of(self.stored, self.tokenizer)

    @property
    def classes(self) -> Classes | None:
        """Labels that it predicts; None for a language model."""
        labels = "classes" in self.model.config.derived
        return Classes.load(self.stored.path / store.TOKENIZER) if labels else None

    @property
    def architecture(self) -> str:
        """Name of its architecture."""
        return self.stored.config["architecture"]

    @property
    def _model_settings(self) -> dict[str, Any]:
        fields = type(self.model.config).fields()
        return {k: v for k, v in self.model.config.to_dict().items() if k in fields}

    @property
    def training_window(self) -> int | None:
        """Longest training window that the model can read; None if any is possible."""
        window, start = self.model.window, getattr(self.model.config, "decoder_start", None)
        return window if window is None or start is None else window - 1

    def refuse_fixed(self, architecture: str | None, flags: Collection[str]) -> None:
        """Refuse flags for what the initial model determines, such as the architecture.

        Raises:
            UsageError: names the flag.
        """
        require(
            architecture is None,
            f"--model is fixed by --init-from: the architecture of {self.stored.name} is "
            f"{self.architecture}",
        )
        settled = {*self._model_settings, *TOKENIZER} - FREE
        for name in sorted(settled & set(flags)):
            require(False, f"{name} is fixed by --init-from: {self.stored.name} has its own")

    def settings(self, given: Mapping[str, Any], row: registry.Architecture) -> dict[str, Any]:
        """Merge the given settings with those that follow from the initial model.

        Args:
            given: by name.
            row: the architecture of the new model: the origin's, or one for a task on it.

        Raises:
            UsageError: a configuration file wants another architecture than the origin's.
        """
        inherited_model = self._model_settings
        kind = row.load_config()
        overridden = {
            name: given[name] for name in inherited_model if name in given and name not in FREE
        }
        known = kind.derived & self.model.config.derived
        derived = {name: getattr(self.model.config, name) for name in known}
        agreed = kind(**derived, **{**inherited_model, **overridden}).to_dict()
        for name in overridden:
            unchanged = agreed[name] == inherited_model[name]
            require(
                unchanged,
                f"{name} is {inherited_model[name]} in {self.stored.name}, not {agreed[name]}",
            )
        data, training = self.stored.config["data"], self.stored.config["training"]
        direction = data.get("direction", "forward")
        require(
            given.get("direction", direction) == direction,
            f"--direction is fixed by --init-from: {self.stored.name} reads {direction}",
        )
        require(
            direction == row.task.fixed.get("direction", direction),
            f"{self.stored.name} reads from right to left, and --task is for models that read "
            "from left to right",
        )
        labels = isinstance(self.source_tokenizer, Labels)
        require(
            not labels or row.task.labelled is not None,
            f"{self.stored.name} writes texts given their labels, and --task is for encoders and "
            "for networks that model text alone",
        )
        wants = conform("labels", given.get("labels", labels), bool)
        require(
            labels or not wants, f"{self.stored.name} has learned no labels: leave out --labels"
        )
        require(wants or not labels, f"{self.stored.name} has labels: labels=false has no meaning")
        inherited = {"documents": data.get("documents", "stream")}
        inherited |= {"direction": direction, "labels": labels}
        inherited |= {
            name: data[name] for name in ("max_source_len", "max_target_len") if name in data
        }
        # An imported model has no training window yet, nor has one of whole conversations.
        if "seq_len" in training and data.get("loss_on") is None:
            inherited["seq_len"] = training["seq_len"]
        if row.task.head is not None and self.model.window is not None:
            inherited[row.task.longest] = self.model.window - 1
        place = store.model_argument(self.stored)
        settled = {**tokenizer_of(self.stored), "source_tokenizer": None}
        if not labels and self.source_tokenizer not in (None, self.tokenizer):
            settled["source_tokenizer"] = str(self.stored.path / store.SOURCE_TOKENIZER)
        return {**inherited, **inherited_model, **given, **settled, "init_from": place}

    def config(
        self, architecture: str, settings: Mapping[str, Any], seq_len: int, classes: int
    ) -> ModelConfig:
        """Make the new model's configuration: the initial model's, but for what may change.

        Args:
            architecture: of the new model.
            settings: those that are given.
            seq_len: the training window; of pairs, the longest target and its EOS; of texts with
                labels, the longest text and its start symbol.
            classes: how many labels it predicts.

        Raises:
            UsageError: the training window, or the longest source, is longer than the origin's.
        """
        longest, most = settings.get("max_source_len"), self.model.source_window
        begin = getattr(self.source_tokenizer, "source_bos_id", None) is not None
        most = None if most is None else most - 1 - begin
        require(
            longest is None or most is None or longest <= most,
            f"--max-source-len must be at most that of {self.stored.name}, {most}",
        )
        window = self.training_window
        name, most = "--seq-len", window
        row = registry.architecture(architecture)
        if row.task.longest is not None:
            name, most = f"--{row.task.longest.replace('_', '-')}", window and window - 1
        require(
            window is None or seq_len <= window,
            f"{name} must be at most the window of {self.stored.name}, {most}",
        )
        free = {name: settings[name] for name in FREE if name in settings}
        config_class = row.load_config()
        if "classes" in config_class.derived:
            free["classes"] = classes
        return config_class(**{**self.model.config.to_dict(), **free})

    def framing(self, documents: Documents) -> Framing:
        """Return the start and end tokens of texts for the new model."""
        unchanged = documents == self.stored.config["data"].get("documents", "stream")
        framing = Framing.of(self.tokenizer, documents)
        return self.stored.framing(self.tokenizer) if unchanged else framing

    def begin(self, model: Network, prepared: Prepared) -> None:
        """Copy the initial model's weights into a new model.

        Args:
            model: the new one.
            prepared: its data.

        Raises:
            SeqgenError: the text came as tokens of another tokenizer.
        """
        inherited = fingerprints(self.tokenizer, self.source_tokenizer)
        if fingerprints(prepared.tokenizer, prepared.source_tokenizer) != inherited:
            raise SeqgenError(
                f"the data has other tokens than {self.stored.name}: give the text itself"
            )
        if not shares_weights(model, self.model):
            convert_stored(self.model)
            model.begin_from(self.model, self.classes == prepared.classes)

    def continued(self, config: ModelConfig) -> Network:
        """Build a model of the same class that has its weights, in the same memory."""
        model = build_uninitialized(type(self.model), config)
        take_weights(model, weights_of(self.model))
        share_stored(model, self.model)
        return model

    def forget_weights(self) -> None:
        """Let go of its weights once a new model has them."""
        self.model.to("meta")
        return_freed_memory()

    def adapt(self, model: Network, training: TrainingConfig) -> None:
        """Add trainable low-rank adapters to a model initialized from this one.

        Raises:
            UsageError: it has no matrices for them.
        """
        try:
            add_adapters(model, training.lora, training.lora_alpha)
        except ValueError as error:
            raise UsageError(f"lora has no meaning: in {self.stored.name} {error}") from None

    def refuse_replacing(self, name: str) -> None:
        """Refuse adapters that would overwrite the model they depend on.

        Raises:
            UsageError: says what to do.
        """
        replaced = store.models_folder() / name
        require(
            replaced.resolve() != self.stored.path,
            f"adapters need their base, {self.stored.name}: choose another --name",
        )


def shares_weights(model: Network, other: Network) -> bool:
    """Check whether the weights of two networks are in the same memory."""
    first, second = (next(network.parameters()) for network in (model, other))
    return first.data_ptr() == second.data_ptr() and first.numel() > 0


# Types of frozen matrices, by their names in settings and in files of weights.
FROZEN_TYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
FROZEN_TYPES |= {"BF16": torch.bfloat16, "F16": torch.float16}


def keeps_types(settings: Mapping[str, Any]) -> bool:
    """Check whether the matrices of a base are loaded in the types of their file."""
    return settings.get("lora") is not None and settings.get("lora_base") != "float32"


def place_base(
    model: Network, training: TrainingConfig, base: StoredModel, device: torch.device
) -> None:
    """Bring a model with adapters to its device, and its frozen matrices to their type there.

    That is the type asked for, or that of their file; blocks of few bits stay so on a CPU.

    Args:
        model: on the CPU.
        training: its settings.
        base: the model that the adapters are of.
        device: of the model.
    """
    if device.type != "cpu" or training.precision == "float64":
        convert_stored(model)
    model.to(device=device, dtype=parameter_type(training.precision))
    if training.lora_base == "bf16":
        convert_stored(model, torch.bfloat16)
    stored = "bf16" if training.precision == "bf16" else next(iter(base.reduced_types), "")
    kind = FROZEN_TYPES.get(training.lora_base or stored)
    if kind is not None:
        store_frozen(model, kind)
        return_freed_memory()


def architecture_of(
    origin: InitialModel | None,
    architecture: str | None,
    config: Mapping[str, Any],
    task: str | None,
) -> str:
    """Choose the architecture: the user's, the file's, the origin's, or the default.

    Args:
        origin: what is fine-tuned, if anything.
        architecture: the user's, or the preset's.
        config: the file.
        task: what its features are for, which has a default of its own.

    Raises:
        UsageError: a configuration file has another than the origin.
    """
    named = architecture or config.get("architecture")
    if origin is None:
        return named or default_architecture(task)
    agrees = named is None or registry.feature_architecture(named) == registry.feature_architecture(
        origin.architecture
    )
    require(
        agrees, f"the architecture of {origin.stored.name} is {origin.architecture}, not {named}"
    )
    return named or origin.architecture


def default_architecture(task: str | None) -> str:
    """Return the default architecture of a task.

    Raises:
        UsageError: there is no such task.
    """
    chosen = None if task is None else registry.task_on_features(task)
    return (chosen and chosen.default_trunk) or registry.DEFAULT


def tokenizer_of(stored: StoredModel) -> dict[str, Any]:
    """Make the data settings that reuse a stored model's tokenizer."""
    return {"tokenizer": str(stored.path), "vocab_size": None, "min_count": 1}


def fingerprints(target: Tokenizer, source: Tokenizer | Labels | None) -> list[str | None]:
    """Fingerprint the target and source tokenizers of a model."""
    return [tokenizer and tokenizer.fingerprint for tokenizer in (target, source)]


@dataclass(frozen=True)
class FeatureSource(ABC):
    """A trained model whose features a new model reads besides tokens; see `Task.features`.

    Attributes:
        stored: where it is.
        about: what the configuration of the new model keeps of it, as its `feature_model`.
    """

    stored: StoredModel
    about: dict[str, Any]

    @classmethod
    @abstractmethod
    def load(cls, name: str) -> Self:
        """Load the model named by `--features`.

        Raises:
            UsageError: it makes no features that can be read.
            SeqgenError: there is none, or it is damaged.
        """

    @abstractmethod
    def settings(
        self, given: Mapping[str, Any], row: registry.Architecture, flags: Collection[str]
    ) -> dict[str, Any]:
        """Merge the given settings with those that follow from this model.

        Args:
            given: by name.
            row: the architecture of the new model.
            flags: the names of the settings that the user gave.

        Raises:
            UsageError: the new model can read no features, or a flag contradicts them.
        """

    @abstractmethod
    def begin(self, model: Network) -> None:
        """Copy the feature weights into a new model."""


def feature_source(name: str, row: registry.Architecture) -> FeatureSource:
    """Load the model whose features a new one is to read; None without `--features`.

    Args:
        name: what `--features` names.
        row: the architecture of the new model.

    Raises:
        UsageError: the new model reads none, or that model makes none.
        SeqgenError: there is no such model, or it is damaged.
    """
    if row.task.features is None:
        readers = [task for task in registry.ON_FEATURES if task.features is not None]
        kinds = " and ".join(f"{task.called}s" for task in readers)
        names = " or ".join(task.name for task in readers)
        require(not readers, f"--features is for {kinds}: give --task {names}")
        require(False, "features is a setting of a plugin that is not installed")
    return registry.load_object(row.task.features).load(name)
