"""Registry of architectures: those of the core's model families, and those of plugins.

A family, a folder of `models/`, has a file `architectures.json` with a row for each of its
architectures; so has a plugin that adds some.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seqgen import hooks
from seqgen.errors import UsageError, look_up
from seqgen.settings.other_tools import pretrained_hint
from seqgen.tasks.language_modeling import LANGUAGE_MODELING
from seqgen.tasks.task import Task
from seqgen.tasks.translation import TRANSLATION

HERE = Path(__file__).parent
# The rows of a family or a plugin; and the settings of each architecture with their defaults, which
# `python docs/settings.py` writes: those of the core beside this file, those of a plugin in it.
ROWS, DEFAULTS = "architectures.json", "defaults.json"
# The order of history, in which architectures are listed. Other families come after these.
FAMILIES = ("ngram", "hmm", "window", "recurrent", "linear-recurrent", "transformer", "seq2seq")


@dataclass(frozen=True)
class Architecture:
    """A registered architecture: name, classes, summary and tasks.

    `model` and `config` are "module:Class", imported only when used, so that listing
    architectures loads no torch. The configuration of a class X is XConfig beside it, unless
    `config` says otherwise. `tasks` are those that it can serve, the first by default. `estimator`
    is the "module:name" of the `Estimator` of one that is not trained by gradients, `arrays` the
    "module:Class" of its `ArrayModel`, if it has one. `folder` has the file of its defaults;
    `family` is the folder of the rows, or one of `FAMILIES` to be listed with; `is_cell` says that
    it is a recurrent cell, which `RecurrentLM` runs.
    """

    name: str
    model: str
    summary: str
    tasks: tuple[Task, ...]
    config: str | None = None
    estimator: str | None = None
    arrays: str | None = None
    folder: Path = HERE
    family: str | None = None
    is_cell: bool = False

    @property
    def task(self) -> Task:
        """The task that its models learn."""
        return self.tasks[0]

    @property
    def plugin(self) -> str | None:
        """The plugin that the architecture needs, if any."""
        return hooks.plugin_of(self.config or self.model)

    @property
    def is_encoder(self) -> bool:
        """Whether it only computes features, so that its models need a head."""
        return self.task.head is not None

    def load_model(self) -> Any:
        """Import the LanguageModel class."""
        return load_object(self.model)

    def load_config(self) -> Any:
        """Import the ModelConfig class."""
        return load_object(self.config or f"{self.model}Config")

    def load_arrays(self) -> Any:
        """Import the ArrayModel class; None if there is none."""
        return self.arrays and load_object(self.arrays)

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Return the default settings without importing the model's code or torch.

        `model` has all settings that a user may set, `training` those of its own recipe, and
        `settings` what there is to say of each of the former. One that no file has the defaults of
        loads its code for them, and has no `settings`.
        """
        path = self.folder / DEFAULTS
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return stored.get(self.name) or self._defaults_in_code()

    def _defaults_in_code(self) -> dict[str, dict[str, Any]]:
        config = self.load_config()
        fields = config.fields()
        model = {
            name: None if field.default is dataclasses.MISSING else field.default
            for name, field in fields.items()
        }
        return {"model": model, "training": dict(config.recipe)}

    def for_task(self, task: str) -> Architecture:
        """Return the architecture that learns a task of `ON_FEATURES` on this one's features.

        Raises:
            UsageError: there is no such task, or it has no features to learn from.
        """
        chosen = task_on_features(task)
        if chosen not in self.tasks:
            more = " with --features" if self.task.gives_features else ""
            raise UsageError(
                f"--task is for encoders and for networks that model text, and {self.name} is "
                f"neither; try --model {chosen.default_trunk}{more}"
            )
        summary = f"{chosen.called} on the features of {self.name}"
        about = f"{self.name}-{chosen.called}", self.model, summary, (chosen,)
        return TaskArchitecture(*about, trunk=self)


@dataclass(frozen=True)
class TaskArchitecture(Architecture):
    """An architecture that predicts labels from the features of another, its `trunk`."""

    trunk: Architecture | None = None
    is_encoder: ClassVar[bool] = False

    @property
    def plugin(self) -> str | None:
        return hooks.plugin_of(self.task.head) or self.trunk.plugin

    def load_model(self) -> Any:
        """Import the class of models with a head on the trunk."""
        return load_object(self.task.head)(self.trunk.load_model())

    def load_arrays(self) -> Any:
        """Import the ArrayModel class of the head on the trunk; None if there is none."""
        trunk = self.trunk.load_arrays()
        return trunk and load_object(self.task.array_head)(trunk)

    def load_config(self) -> Any:
        """Import the configuration class of the head on the trunk."""
        return load_object(self.task.head_config)(self.trunk.load_config())

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Return the default settings of head and trunk without importing their code."""
        model = {**self.trunk.defaults()["model"], **self.task.head_settings}
        training = self.trunk.defaults()["training"] if self.trunk.is_encoder else None
        return {"model": model, "training": training or dict(self.task.head_recipe)}


def load_object(target: str) -> Any:
    """Import a "module:name" and return the object."""
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)


TASKS: dict[str, Task] = {
    task.name: task for task in (LANGUAGE_MODELING, TRANSLATION, *hooks.load_all("tasks"))
}
# What is learned on the features of an architecture (`--task`).
ON_FEATURES = tuple(task for task in TASKS.values() if task.head)


def _architectures() -> dict[str, Architecture]:
    """Collect the architectures by family, those of the core first; the first of a name counts.

    Rows of a plugin that are wrong are left out with a warning.
    """
    known: dict[str, Architecture] = {}
    for path in sorted((HERE / "models").glob(f"*/{ROWS}")):
        rows = _rows(path.parent, f"seqgen.models.{path.parent.name}", HERE)
        known |= {row.name: row for row in rows}
    for plugin in hooks.plugins():
        with plugin.guarded(ROWS):
            for row in _rows(plugin.folder, plugin.module, plugin.folder):
                with plugin.guarded(f"its architecture {row.name}"):
                    if row.name in known:
                        raise UsageError("there is another one of this name")
                    known[row.name] = row
    places = {family: place for place, family in enumerate(FAMILIES)}
    rows = sorted(known.values(), key=lambda row: places.get(row.family, len(places)))
    return {row.name: row for row in rows}


def architectures_of(plugin: hooks.InstalledPlugin) -> list[str]:
    """List the names of the architectures that a plugin adds."""
    return [row.name for row in ARCHITECTURES.values() if row.folder == plugin.folder]


def _rows(folder: Path, package: str, of_defaults: Path) -> Iterator[Architecture]:
    """Yield the architectures declared in a folder.

    A row has the fields of an `Architecture`, `tasks` by their names: without them, it is a
    language model, whose features others may learn from. A module that begins with a dot is one of
    the package. A recurrent network may have its `cell` alone: the configuration that names its
    equation, in a file of the architecture's name unless it is "module:name".

    Args:
        folder: that may have a file of rows.
        package: of the modules in it.
        of_defaults: where the file of its defaults is.
    """
    if not (folder / ROWS).exists():
        return
    for name, row in json.loads((folder / ROWS).read_text(encoding="utf-8")).items():
        if cell := row.pop("cell", None):
            place = f".{cell}" if ":" in cell else f".cells.{name}:{cell}"
            row |= RECURRENT | {"config": place, "is_cell": True}
        row.setdefault("family", folder.name)
        parts = {
            key: package + value if key in TARGETS and value.startswith(".") else value
            for key, value in row.items()
        }
        names = parts.pop("tasks", None)
        known = [task for task in (TASKS.get(one) for one in names or ()) if task is not None]
        tasks = (LANGUAGE_MODELING, *ON_FEATURES) if names is None else tuple(known)
        yield Architecture(name, **parts, tasks=tasks, folder=of_defaults)


TARGETS = ("model", "config", "arrays", "estimator")
# What all recurrent cells are run by.
RECURRENT = {
    "model": "seqgen.models.recurrent.model:RecurrentLM",
    "arrays": "seqgen.models.recurrent.arrays:RecurrentArrays",
    "family": "recurrent",
}
ARCHITECTURES: dict[str, Architecture] = _architectures()
DEFAULT = "lstm"
# The name of no architecture: `train` is to choose what suits the text, as it does unless told.
AUTO = "auto"
LISTING = "seqgen models --architectures"
UNLESS_TOLD = AUTO


def task_on_features(name: str) -> Task:
    """Look up the task of `ON_FEATURES` called `name`.

    Raises:
        UsageError: there is none; names the nearest, or the plugin that is missing.
    """
    hooks.require_plugin(name, f"--task {name}")
    return look_up("task", name, {task.name: task for task in ON_FEATURES})


def missing_plugin(architecture: str) -> str | None:
    """Name the seqgen plugin that an architecture needs but is not installed, if any."""
    parts = architecture, architecture.rpartition("-")[2]
    return next(filter(None, map(hooks.missing_plugin, parts)), None)


def architecture(name: str) -> Architecture:
    """Look up an architecture by name, including heads on another such as lstm-tagger.

    Raises:
        UsageError: there is none; names the nearest, or the plugin that is missing.
    """
    trunk, _, ending = str(name).rpartition("-")
    task = next((task for task in ON_FEATURES if task.called == ending), None)
    if task is not None and trunk in ARCHITECTURES:
        return ARCHITECTURES[trunk].for_task(task.name)
    for part in () if name in ARCHITECTURES else (str(name), ending):
        hooks.require_plugin(part, name)
    return look_up("architecture", name, ARCHITECTURES, LISTING)


def known_architecture(name: str) -> Architecture | None:
    """Look up an architecture by name; None if it is unknown."""
    try:
        return architecture(name)
    except UsageError:
        return None


def unit_of(name: str) -> str:
    """Name the unit that an architecture's loss is averaged over; "token" if it is unknown."""
    return row.task.unit if (row := known_architecture(name)) else "token"


def architecture_to_train(name: str | None) -> str | None:
    """Look up the architecture that `train --model` names; None to let `train` choose.

    Raises:
        UsageError: there is none; names the nearest, which may be `AUTO`.
    """
    if name is None or name == AUTO:
        return None
    if known_architecture(name) is None and missing_plugin(name) is None:
        if hint := pretrained_hint(name):
            raise UsageError(f"no architecture is called {name!r}{hint}")
        look_up("architecture", name, {**ARCHITECTURES, AUTO: None}, LISTING)
    return name


def feature_architecture(name: str) -> Architecture:
    """Look up the architecture that computes the features: itself, or its trunk."""
    return getattr(row := architecture(name), "trunk", row)


def for_task(name: str, task: str | None) -> Architecture:
    """Look up an architecture by name, with a head if there is a task.

    Args:
        name: of an architecture, or already of one with a head.
        task: the name of one of `ON_FEATURES`; None leaves it as it is.

    Raises:
        UsageError: the task is unknown or missing, or is not for this architecture.
    """
    row = architecture(name)
    if task is not None:
        return feature_architecture(name).for_task(task)
    if row.is_encoder:
        tasks = " or ".join(each.name for each in row.tasks)
        raise UsageError(f"{name} is an encoder, which learns labels: give --task {tasks}")
    return row


def task_of_mixture(stored_as: str | None) -> Task:
    """Find the task of a mixture's parts, which its configuration names."""
    tasks = (row.task for row in ARCHITECTURES.values())
    return next((task for task in tasks if task.stored_as == stored_as), LANGUAGE_MODELING)


def architectures_with(setting: str) -> list[str]:
    """List the architectures that have their own setting called `setting`."""
    return [row.name for row in ARCHITECTURES.values() if setting in row.load_config().fields()]


# What settings of several architectures mean, and those with a flag in `train`: help needs no more.
SHARED_DOCS = {
    "num_layers": "Number of stacked layers.",
    "hidden_size": "Width of each layer, in units.",
    "num_heads": "Number of attention heads; it must divide the hidden size.",
    "dropout": "Probability of dropping each unit in training.",
    "order": "Length of the longest n-grams, in tokens.",
    "smoothing": "How an n-gram model assigns probability to n-grams it has not seen.",
}
