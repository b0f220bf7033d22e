"""Stored model: settings, weights, tokenizers, checkpoints, held-out data, references."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seqgen import __version__, hooks
from seqgen.errors import MissingPlugin, SeqgenError, UsageError, first_line
from seqgen.files import json_bytes, tensor_header
from seqgen.settings import Config, shorten
from seqgen.store import layout
from seqgen.store.folder import MetricsLog, TrainingFolder, has_declared_length, tensor_pieces
from seqgen.store.layout import models_folder
from seqgen.store.manifest import CHEAP, digest_of_files
from seqgen.store.ownership import delete_parts

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from seqgen.engines.blocks import BlockMatrix
    from seqgen.models.arrays import ArrayNetwork
    from seqgen.models.base import LanguageModel
    from seqgen.registry import Architecture
    from seqgen.settings import ModelConfig
    from seqgen.tasks.task import Task
    from seqgen.text.framing import Framing
    from seqgen.text.labels import Labels
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Reference:
    """Reference from a model's configuration to another model; see `StoredModel.referred`.

    Attributes:
        name: what the other was called.
        digest: its hash, see `StoredModel.digest`.
        path: where it is, if it is not in the models' folder; in the owner's folder relative.
        view: how it is presented; see `StoredModel`.
    """

    name: str
    digest: str
    path: str | None = None
    view: str | None = None

    @classmethod
    def read(cls, fact: Any, file: Path, role: str) -> Reference:
        """Parse a reference to another model from a configuration.

        Args:
            fact: its entry there.
            file: the configuration.
            role: what the other is to its owner, for a message, such as "a part".

        Raises:
            SeqgenError: it is no reference.
        """
        names = cls.__dataclass_fields__
        if not isinstance(fact, dict) or not fact.keys() <= names.keys():
            fact = {}
        known = {key: value for key, value in fact.items() if isinstance(value, str)}
        if not {"name", "digest"} <= known.keys():
            raise SeqgenError(f"{file} is damaged: {role} has no name or no hash")
        return cls(**known)

    @property
    def inside(self) -> bool:
        """Whether the referenced model is a copy inside the folder of the referring one."""
        above = self.path is None or ".." in Path(self.path).parts
        return not above and self.path.startswith(f"{layout.PARTS}/")

    def to_dict(self) -> dict[str, str]:
        """Convert the reference to an entry of a configuration."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Adapter:
    """Table `adapter` of a configuration: low-rank adapters and a reference to their base.

    The `model.safetensors` beside it holds the adapters alone.

    Attributes:
        base: the model whose matrices have adapters.
        rank: r.
        alpha: the scale; see `models.low_rank`.
    """

    base: Reference
    rank: int
    alpha: float

    @classmethod
    def read(cls, config: Mapping[str, Any], file: Path) -> Adapter:
        """Parse the table `adapter` of a configuration file.

        Raises:
            SeqgenError: it is damaged.
        """
        table = config.get("adapter")
        table = table if isinstance(table, dict) else {}
        rank, alpha = table.get("rank"), table.get("alpha")
        if type(rank) is not int or type(alpha) is not float or not (rank > 0 and alpha > 0):
            raise SeqgenError(f"{file} is damaged: adapter has no rank or no alpha")
        return cls(Reference.read(table.get("base"), file, "the base"), rank, alpha)

    def to_dict(self) -> dict[str, Any]:
        """Convert to the table `adapter` of a configuration."""
        return {"base": self.base.to_dict(), "rank": self.rank, "alpha": self.alpha}

    @property
    def decisive(self) -> list[Any]:
        """Hash of the base, rank and scale, for the model's digest."""
        return [self.base.digest, self.rank, self.alpha]


T = TypeVar("T")
Settings = TypeVar("Settings", bound=Config)
# What a message says of the base of adapters that is gone, and what to do.
ROLE = "holds low-rank adapters, and their base"
REMEDY = "restore it, or train the adapters again on another with --init-from"


@dataclass(frozen=True)
class StoredModel(TrainingFolder):
    """A model in its folder, which can be copied to any machine.

    Attributes:
        view: how it is presented once it is loaded, such as "bytes"; see `hooks.Plugin.views`.
    """

    view: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        """Name of the model: its folder's name, and its view if it has one."""
        return f"{super().name}:{self.view}" if self.view else super().name

    @property
    def config(self) -> dict[str, Any]:
        """Contents of `config.json`: architecture, configuration, versions.

        Raises:
            SeqgenError: it is missing, damaged, or of a later format.
        """
        config = self.read_table(layout.CONFIG)
        if config.get("format") != layout.FORMAT:
            reason = f"{self.path} has format {config.get('format')!r}"
            raise SeqgenError(f"{reason}, and this seqgen reads {layout.FORMAT}")
        for name, missing in {"model": None, "data": None, "training": {}}.items():
            if not isinstance(config.get(name, missing), dict):
                raise self._damaged(f"it has no table {name!r}")
        if not isinstance(config.get("architecture"), str):
            raise self._damaged("it names no architecture")
        return config

    def _damaged(self, why: object) -> SeqgenError:
        """Make the error for a damaged `config.json`, with the reason."""
        return SeqgenError(f"{self.path / layout.CONFIG} is damaged: {why}")

    @property
    def is_mixture(self) -> bool:
        """Whether it has several parts: a mixture of others, `members`, or an n-gram part.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        config = self.config
        several = "members" in config or "ngram" in config
        return several or config["architecture"] == layout.MIXTURE

    @property
    def members(self) -> tuple[float, ...]:
        """Weights of jointly trained networks; empty for other models.

        Member k's tensors are in the folder's `model.safetensors` under the names of a mixture.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        weights = self.config.get("members", {"weights": []})
        try:
            weights = tuple(map(float, weights["weights"]))
            if weights and not (len(weights) > 1 and min(weights) >= 0 < sum(weights)):
                raise ValueError
        except (TypeError, LookupError, ValueError):
            raise self._damaged("its members have no weights") from None
        return weights

    def table_of(self, group: str, name: str) -> tuple[tuple[float, ...], ...]:
        """Read a table of weights or coefficients from a group of `config.json`; () without one.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        try:
            return tuple(tuple(map(float, row)) for row in self.config[group].get(name) or ())
        except (TypeError, ValueError):
            raise self._damaged(f"its {group} has no {name}") from None

    @property
    def ngram(self) -> StoredModel | None:
        """The n-gram model in the folder, which the networks are mixed with; None without one.

        Raises:
            SeqgenError: the configuration is missing or damaged, or the n-gram model is gone.
        """
        if (reference := self._ngram_reference) is None:
            return None
        part = StoredModel(self.path / reference.path)
        if not part.path.is_dir():
            gone = f"the n-gram model of {self.name} is gone ({part.path})"
            raise SeqgenError(f"{gone}: restore it, or train again with --overwrite")
        return part

    def part(self, name: str) -> StoredModel:
        """Return the model of that name inside the folder, whether or not it exists."""
        return StoredModel(self.path / layout.PARTS / name)

    def new_part(self, name: str) -> StoredModel:
        """Create the folder of a model that is a part of this one.

        Raises:
            SeqgenError: it cannot be made.
        """
        part = self.part(name)
        with self.writing(layout.PARTS):
            self.refuse_link(layout.PARTS)
            part.path.mkdir(parents=True)
        return part

    def delete_parts(self) -> None:
        """Delete the models inside the folder; files that seqgen did not write are kept.

        Raises:
            SeqgenError: they cannot be deleted.
        """
        with self.writing(layout.PARTS):
            delete_parts(self.path)

    @property
    def _ngram_reference(self) -> Reference | None:
        config = self.config
        if "ngram" not in config:
            return None
        table = config["ngram"] if isinstance(config["ngram"], dict) else {}
        reference = Reference.read(table.get("part"), self.path / layout.CONFIG, "the n-gram part")
        if not reference.inside:
            raise self._damaged("its n-gram part is not in the folder")
        return reference

    @property
    def networks(self) -> StoredModel:
        """The model without its n-gram part; itself if it has none."""
        return self if self.ngram is None else Networks(self.path)

    def networks_for(self, what: str, notice: Callable[[str], None]) -> StoredModel:
        """Return the model without its n-gram part, and say so if it has one; see `network_for`."""
        if self.ngram is not None:
            notice(f"{what} takes the network in {self.name}, without its n-gram model")
        return self.networks

    @property
    def kind(self) -> str:
        """Names of the architecture and the n-gram part, such as "lstm + 6-gram"."""
        architecture, ngram = self.config["architecture"], self.ngram
        if ngram is None:
            return architecture
        return f"{architecture} + {ngram.config['model'].get('order')}-gram"

    @property
    def scored_from(self) -> int:
        """Where the part of the held-out text begins that the model's figures are about.

        A number of characters; of tokens if a token file is held out whose text is lost.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        begin = self.config.get("scored_from", 0)
        if type(begin) is not int or begin < 0:
            raise self._damaged("scored_from is no number of characters")
        return begin

    def network_for(
        self, what: str, notice: Callable[[str], None] = lambda text: None
    ) -> StoredModel:
        """Return the one network that a command needs, without an n-gram part.

        Args:
            what: needs it, such as "--init-from".
            notice: takes a line that says so if there is an n-gram part.

        Raises:
            UsageError: there are several; names them if they can be given instead.
        """
        if self.members:
            each = f"{self.name} is a mixture of {len(self.members)} networks trained together"
            raise UsageError(f"{each}: {what} takes one network, trained without --members")
        if self.ngram is None and (names := self.part_names):
            parts = " or ".join(names)
            raise UsageError(f"{self.name} is a mixture: {what} takes one of its parts, {parts}")
        return self.networks_for(what, notice)

    @property
    def part_names(self) -> list[str]:
        """Names of a mixture's parts; empty for other models.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        return [part.name for part in self.part_references]

    @property
    def part_references(self) -> list[Reference]:
        """References to the parts of a saved mixture, two or more; else empty.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        config = self.config
        if config["architecture"] != layout.MIXTURE:
            return []
        facts = config.get("parts")
        if not isinstance(facts, list) or len(facts) < 2:
            raise self._damaged("it names no parts")
        return [Reference.read(fact, self.path / layout.CONFIG, "a part") for fact in facts]

    @property
    def record(self) -> dict[str, Any]:
        """Read `training.json`: data and hashes, seeds, best figures, time, machine."""
        return self.read_table(layout.RECORD)

    @property
    def validation_text(self) -> Path | None:
        """Path of the held-out text or token file, if any."""
        paths = (self.path / part for part in (layout.VALIDATION, layout.VALIDATION_TOKENS))
        return next((path for path in paths if path.exists()), None)

    @property
    def validation_pairs(self) -> tuple[Path, Path] | None:
        """Paths of the held-out sources and targets, if any.

        Sources that are vectors are in a file of vectors.
        """
        source, target = (self.path / part for part in layout.VALIDATION_PAIRS)
        vectors = self.path / layout.VALIDATION_VECTORS
        source = vectors if vectors.exists() else source
        return (source, target) if source.exists() and target.exists() else None

    @property
    def holds_out(self) -> bool:
        """Whether there is a held-out part."""
        return self.validation_text is not None or self.validation_pairs is not None

    @property
    def loadable(self) -> bool:
        """Whether the folder has all files that a model needs; checked without torch."""
        from seqgen.text.tokenizers import load_tokenizer

        try:
            _ = self.config
            self.load_source_tokenizer(load_tokenizer(self.path / layout.TOKENIZER))
            ngram = self.ngram
            whole = has_declared_length(self.path / layout.WEIGHTS)
            return whole and (ngram is None or ngram.loadable)
        except (SeqgenError, OSError) as error:
            if isinstance(error, MissingPlugin):
                hooks.note_problem(str(error))
            return False

    @property
    def size(self) -> int:
        """Bytes on disk that the model needs, without checkpoints and held-out text."""
        size = sum(part.stat().st_size for part in self._own_files())
        ngram = self.ngram
        return size if ngram is None else size + ngram.size

    @property
    def files(self) -> list[Path]:
        """All files that affect the model's output, including the base of adapters.

        Raises:
            SeqgenError: the configuration is missing or damaged, or the base is gone.
        """
        ngram = self.ngram
        beside = [] if ngram is None else ngram.files
        return self._own_files() + beside + (self.base.files if self.is_adapter else [])

    def _own_files(self) -> list[Path]:
        return [self.path / layout.CONFIG, self.path / layout.WEIGHTS, *self._tokenizer_files()]

    def _tokenizer_files(self) -> list[Path]:
        folders = (self.path / layout.TOKENIZER, self.path / layout.SOURCE_TOKENIZER)
        return [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]

    @property
    def written(self) -> float:
        """Time when the weights were last written, in seconds since the epoch."""
        return (self.path / layout.WEIGHTS).stat().st_mtime

    @cached_property
    def digest(self) -> str:
        """Hash of everything that affects the model's output, 64 hexadecimal digits.

        Equal models have equal digests, whatever their names and folders. That of a large model is
        kept in the cache until a file has another size or time, so that it is read for it once.
        """
        config = self.config
        decisive = [config["architecture"], config["model"], config["data"].get("documents")]
        if parts := self.part_references:
            decisive.append([part.digest for part in parts])
        if self.members:
            decisive.append(self.members)
            decisive += self.table_of("members", "gate")
        if "ngram" in config:
            part, tables = self._ngram_reference, ("weights", "by_order", "gate")
            decisive.append(["ngram", part.digest, *map(config["ngram"].get, tables)])
        if "adapter" in config:
            decisive.append(self.adapter.decisive)
        if config["data"].get("direction", "forward") != "forward":
            decisive.append(config["data"]["direction"])
        if "framing" in config:  # not in models of versions that derived it from the tokenizer
            decisive.append(config["framing"])
        if self.view:
            decisive.append(["view", self.view])
        first = json.dumps(decisive, sort_keys=True).encode()
        return digest_of_files(first, [*self._tokenizer_files(), self.path / layout.WEIGHTS])

    def settings(self, part: str, kind: type[Settings]) -> Settings:
        """Load a group of `config.json` as its configuration class.

        Raises:
            SeqgenError: the table is missing, or is no such configuration.
        """
        try:
            return kind.read(self.config.get(part))
        except UsageError as error:
            raise self._damaged(f"{part}: {error}") from None

    def framing(self, tokenizer: Tokenizer) -> Framing:
        """Return the start and end tokens of the model's texts.

        Models stored before `config.json` said so follow their tokenizer.

        Args:
            tokenizer: the model's.

        Raises:
            SeqgenError: what is stored is damaged.
        """
        from seqgen.text.framing import Framing

        if "framing" not in self.config:
            return Framing.of(tokenizer, self.config["data"].get("documents", "stream"))
        try:
            return Framing.read(self.config["framing"], tokenizer.vocab_size)
        except ValueError as error:
            raise self._damaged(error) from None

    def load(self, keeps_types: bool = False) -> tuple[LanguageModel, Tokenizer]:
        """Build the model, in evaluation mode on the CPU, and its tokenizer.

        Args:
            keeps_types: matrices stay in the types of the file, for adapters alone; see `fill`.

        Raises:
            SeqgenError: a part is missing or damaged, or does not fit the others.
        """
        return self._load_from(self, keeps_types)

    def _load_from(self, source: StoredModel, keeps_types: bool) -> tuple[LanguageModel, Tokenizer]:
        """Load the model, with its own weights or those of its base, and its tokenizer."""
        from seqgen.store.torch_models import fill
        from seqgen.text.tokenizers import load_tokenizer

        model = fill(*self.shape(), source.weights, self.path, keeps_types)
        tokenizer = load_tokenizer(self.path / layout.TOKENIZER)
        self.check(largest=CHEAP)
        return model.eval(), tokenizer

    def load_arrays(self, whole: bool = False) -> tuple[ArrayNetwork, Tokenizer] | None:
        """Load the array model and its tokenizer, without PyTorch.

        None where its architecture, settings or types have no array model.

        Args:
            whole: see `mapped_tensors`.

        Raises:
            SeqgenError: see `load`.
        """
        import numpy as np

        from seqgen.engines.weights import Weights
        from seqgen.text.tokenizers import load_tokenizer

        kind = self.architecture.load_arrays()
        if kind is None or self.is_adapter:
            return None
        config = self.settings("model", self.architecture.load_config())
        if not kind.suits(config):
            return None
        weights = self.path / layout.WEIGHTS
        try:
            arrays = self.arrays(whole)
            if arrays is None:
                return None
            if not kind.reads_blocks:
                arrays = {name: np.asarray(array) for name, array in arrays.items()}
            fitting = Weights(arrays).fitting(kind.shapes(config), kind.shared(config))
            model = kind(config, fitting)
        except (OSError, ValueError) as error:
            raise SeqgenError(f"{weights} is missing or damaged: {first_line(error)}") from None
        tokenizer = load_tokenizer(self.path / layout.TOKENIZER)
        self.check(largest=CHEAP)
        return model, tokenizer

    def load_to_train(self, keeps_types: bool = False) -> tuple[LanguageModel, Tokenizer]:
        """Build the model for training, with adapters kept separate from the base.

        Args:
            keeps_types: of the base; see `load`.

        Raises:
            SeqgenError: see `load`.
        """
        if self.members:
            return self._load_members()
        if not self.is_adapter:
            return self.load()
        from seqgen.models.base import load_weights
        from seqgen.models.low_rank import add_adapters

        model, tokenizer = self._load_from(self.base, keeps_types)
        add_adapters(model, self.adapter.rank, self.adapter.alpha)
        load_weights(model, self.own_tensors())
        return model.eval(), tokenizer

    def _load_members(self) -> tuple[LanguageModel, Tokenizer]:
        from seqgen.models.mixture.members import Members

        each = members_of(self)
        networks, (tokenizer, *_) = zip(*(member.load() for member in each), strict=True)
        return Members(networks, self.members).eval(), tokenizer

    def shape(self) -> tuple[type[LanguageModel], ModelConfig]:
        """Look up the model class, and load its configuration.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        kind = self.architecture
        return kind.load_model(), self.settings("model", kind.load_config())

    @property
    def architecture(self) -> Architecture:
        """Its row in the registry of architectures.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        try:
            return self._known_architecture()
        except UsageError as error:
            raise self._damaged(error) from None

    def _known_architecture(self) -> Architecture:
        """Look up its row in the registry of architectures.

        Raises:
            UsageError: the registry has none.
            MissingPlugin: it needs a plugin that is not installed.
        """
        from seqgen.registry import architecture, missing_plugin

        config = self.config
        name = config["architecture"]
        try:
            return architecture(name)
        except UsageError:
            plugin = config.get("plugin") or missing_plugin(name)
            if plugin is None or plugin in {one.name for one in hooks.plugins()}:
                raise
            needs = f"{self.name} needs the plugin {shorten(plugin)}, which is not installed"
            raise MissingPlugin(needs) from None

    def weights(self, keeps_blocks: bool = False) -> dict[str, Tensor | BlockMatrix]:
        """Load all weights by name; adapters come with the weights of their base.

        Args:
            keeps_blocks: matrices in blocks of few bits stay so, if no adapters change them.

        Raises:
            OSError, SafetensorError, ValueError: the file is missing or damaged.
            SeqgenError: the base is gone, or damaged.
        """
        if not self.is_adapter:
            return self.own_tensors(keeps_blocks)
        from seqgen.models.low_rank import merge_adapters

        base, adapter = self.base.weights(), self.adapter
        return merge_adapters(base, self.own_tensors(), adapter.alpha, adapter.rank)

    def own_tensors(self, keeps_blocks: bool = False) -> dict[str, Tensor | BlockMatrix]:
        """Load the tensors of `model.safetensors`; see `weights`."""
        from seqgen.store.torch_models import read_tensors

        return read_tensors(self.path / layout.WEIGHTS, keeps_blocks)

    def arrays(self, whole: bool = False) -> dict[str, np.ndarray] | None:
        """Memory-map the arrays of `model.safetensors`; see `mapped_arrays`."""
        from seqgen.engines.weights import mapped_arrays

        return mapped_arrays(self.path / layout.WEIGHTS, whole)

    @cached_property
    def reduced_types(self) -> list[str]:
        """Types of weights that are in fewer bits than float32, those with the most bytes first."""
        sizes: Counter[str] = Counter()
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            for about in tensor_header(self.path / layout.WEIGHTS)[1].values():
                begin, end = about["data_offsets"]
                kinds = about.get("rows", about["dtype"]).split(", ")
                for kind in kinds:
                    sizes[kind.partition(" ")[0]] += (end - begin) / len(kinds)
        return [kind for kind, _ in sizes.most_common() if kind not in layout.UNREDUCED]

    def describe_conversion(self) -> str | None:
        """Say what converting the weights to float32 takes; None if they are in float32."""
        if not self.reduced_types:
            return None
        megabytes = 4 * (self.record.get("parameters") or 0) / 1e6
        return (
            f"{self.name}: PyTorch converts the {self.reduced_types[0]} weights to float32, which "
            f"takes {megabytes:,.0f} MB of memory"
        )

    @property
    def is_adapter(self) -> bool:
        """Whether the folder contains low-rank adapters and a reference to their base.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        return "adapter" in self.config

    @cached_property
    def base(self) -> StoredModel:
        """Base model of these adapters, whose hash is then computed once.

        Raises:
            SeqgenError: it is gone, or has changed.
        """
        return self.referred(self.adapter.base, ROLE, REMEDY)

    @property
    def adapter(self) -> Adapter:
        """Table `adapter` of `config.json`: base, rank and scale.

        Raises:
            SeqgenError: it is damaged.
        """
        return Adapter.read(self.config, self.path / layout.CONFIG)

    @property
    def reference(self) -> Reference:
        """Make a reference to this model for another model's configuration."""
        path = self.path.resolve()
        inside = path.parent == models_folder().resolve()
        return Reference(path.name, self.digest, None if inside else str(path), self.view or None)

    @property
    def single_models(self) -> list[StoredModel]:
        """The models in the folder that others may refer to; empty for a mixture of others.

        Raises:
            SeqgenError: the configuration is missing or damaged.
        """
        if not self.is_mixture:
            return [self]
        ngram = self.ngram
        each = [] if ngram is None else [self.networks, ngram]
        return [part for part in each if not part.is_mixture]

    def referred(self, reference: Reference, role: str, remedy: str) -> StoredModel:
        """Find the model that this one refers to, even if it was renamed.

        Args:
            reference: to it.
            role: what it is to this one, for a message, such as "is a mixture, and its part".
            remedy: what to do if there is none, as the end of that message.

        Raises:
            SeqgenError: it is gone, has been trained again, or is a mixture.
        """
        path, digest = reference.path, reference.digest
        other = StoredModel(models_folder() / reference.name if path is None else self.path / path)
        there = other.loadable
        for model in chain([other] * there, models_of(models_folder())):
            with contextlib.suppress(SeqgenError, OSError):
                for part in model.single_models:
                    part = replace(part, view=reference.view or "")
                    if part.digest == digest:
                        return part
        happened = "has changed since" if there else "is gone"
        happened = "is a mixture itself" if there and not other.single_models else happened
        raise SeqgenError(f"{self.name} {role} {reference.name} {happened}: {remedy}")

    def load_source_tokenizer(self, target: Tokenizer) -> Tokenizer | Labels | None:
        """Load the source tokenizer or the labels; None without either.

        Args:
            target: the model's, which is that of its sources too unless they have their own.

        Raises:
            SeqgenError: it is damaged.
        """
        from seqgen.text.tokenizers import load_tokenizer

        if self.config["data"].get("labels"):
            from seqgen.text.labels import Labels

            return Labels.load(self.path / layout.SOURCE_TOKENIZER)
        if self.config["model"].get("source_features") is not None or not self.task.takes_targets:
            return None
        folder = self.path / layout.SOURCE_TOKENIZER
        return load_tokenizer(folder) if folder.is_dir() else target

    @property
    def task(self) -> Task:
        """Kind of task that the model was trained for; for a mixture, that of its parts.

        Raises:
            SeqgenError: its architecture is not known, or needs a plugin that is not installed.
        """
        from seqgen.registry import task_of_mixture

        config = self.config
        mixed = config["architecture"] == layout.MIXTURE
        stored_as = config["model"].get("reads")
        task = task_of_mixture(stored_as) if mixed else self._known_architecture().task
        return task.of(labels=bool(config["data"].get("labels")))

    def write_config(self, architecture: str, preset: str | None = None, **groups: Any) -> None:
        """Write `config.json`: architecture name and resolved settings by group.

        The name of the plugin that it needs stands beside it, if it needs one.

        Args:
            architecture: its name.
            preset: the name of the preset beneath the settings, if any.
            groups: the settings; of a mixture, also its parts.
        """
        from seqgen.registry import known_architecture

        about = {"format": layout.FORMAT, "seqgen_version": __version__}
        about |= {"architecture": architecture, "preset": preset}
        if (row := known_architecture(architecture)) is not None and row.plugin is not None:
            about["plugin"] = row.plugin
        self.replace_part(layout.CONFIG, json_bytes({**about, **groups}))

    def write_weights(self, model: LanguageModel) -> None:
        """Replace `model.safetensors` atomically by the model's weights.

        Raises:
            SeqgenError: it cannot be written; what was there stays.
        """
        from seqgen.models.base import weights_of

        self.replace_part(
            layout.WEIGHTS, *tensor_pieces(weights_of(model), columns=getattr(model, "columns", {}))
        )

    def publish(self) -> None:
        """Make a new model visible under its name; does nothing for existing models."""

    def write_record(self, **facts: Any) -> None:
        """Write `training.json`."""
        self.replace_part(layout.RECORD, json_bytes(facts))


@dataclass(frozen=True)
class Networks(StoredModel):
    """View of a model without the n-gram part that is in its folder."""

    @property
    def config(self) -> dict[str, Any]:
        config = super().config
        # The weights of members were fitted on held-out text, too.
        beside = ("ngram",) if "members" in config else ("ngram", "scored_from")
        return {name: group for name, group in config.items() if name not in beside}


@dataclass(frozen=True)
class Member(Networks):
    """One of several jointly trained networks that share a folder.

    Attributes:
        number: which, from 0 on.
    """

    number: int = 0

    @property
    def name(self) -> str:
        return f"{super().name}-{self.number + 1}"

    @property
    def config(self) -> dict[str, Any]:
        config = super().config
        del config["members"]
        config.pop("scored_from", None)
        config["training"]["members"] = None
        return config

    @property
    def size(self) -> int:
        return super().size // len(Networks(self.path).members)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{Networks(self.path).digest} {self.number}".encode()).hexdigest()

    def own_tensors(self, keeps_blocks: bool = False) -> dict[str, Tensor | BlockMatrix]:
        return self._own(super().own_tensors(keeps_blocks))

    def arrays(self, whole: bool = False) -> dict[str, np.ndarray] | None:
        arrays = super().arrays(whole)
        return arrays if arrays is None else self._own(arrays)

    def _own(self, tensors: Mapping[str, T]) -> dict[str, T]:
        prefix = f"components.{self.number}."
        names = [name for name in tensors if name.startswith(prefix)]
        return {name.removeprefix(prefix): tensors[name] for name in names}


def members_of(stored: StoredModel) -> tuple[Member, ...]:
    """Return the jointly trained networks of a model; none for other models."""
    return tuple(Member(stored.path, number) for number in range(len(stored.members)))


def models_of(folder: Path) -> Iterator[StoredModel]:
    """Yield the loadable models in a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.name.startswith(".") and (model := StoredModel(path)).loadable:
            yield model


@dataclass(frozen=True)
class ReadOnlyModel(StoredModel):
    """Read-only view of a model, for the ranks that do not write.

    Attributes:
        known: the tables of its configuration that this process would have written.
    """

    known: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return self.known or super().config

    def write_config(self, architecture: str, preset: str | None = None, **groups: Any) -> None:
        self.known.update({"architecture": architecture, "preset": preset, **groups})

    def replace_part(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: only rank 0 writes."""

    write_weights = write_checkpoint = rewind = seal = keep_current_hashes = replace_part

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: only rank 0 locks."""
        yield

    @contextlib.contextmanager
    def log(self, part: str) -> Iterator[MetricsLog]:
        """Open a log that discards everything."""
        with Path(os.devnull).open("wb", buffering=0) as file:
            yield MetricsLog(file, self.writing)
