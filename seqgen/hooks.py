"""Plugin hooks: what plugins can add to seqgen, and how plugins are discovered.

A plugin is a module with a `PLUGIN`, of the class `Plugin`; the module's docstring says what it is.

    from seqgen.hooks import Command, Plugin

    PLUGIN = Plugin(
        commands={"count": Command("command:count", panel="Text")},
    )

The plugins of seqgen are the folders of `seqgen/plugins`. Other distributions name theirs in their
`pyproject.toml`:

    [project.entry-points."seqgen.plugins"]
    count = "seqgen_count"

Everything that a plugin adds is named by strings, "module:name" with a module of the plugin, and is
imported when it is used. So a command pays for the plugins that it needs, and for no other. A
plugin that cannot be imported, or that is for another version of these hooks, is left out with one
line of warning (`new_problems`); so is any one thing of a plugin that cannot be imported.

Examples of a plugin's commands, for their help, stand beside it in a file `help.toml`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from seqgen import __version__
from seqgen.errors import UsageError

# The version of what this module offers. A plugin for another one is not used.
VERSION = 1
GROUP = "seqgen.plugins"
# What installs this package, whose name differs.
DISTRIBUTION = "seqgen-lm"


@dataclass(frozen=True)
class Command:
    """A command that a plugin adds.

    Attributes:
        target: "module:name" of the function, or of the Typer application of a command that has
            commands of its own.
        panel: the heading that `seqgen --help` lists it under.
        work: what it does most of the time, for the set-up of the process: "tokens" if it reads or
            writes one token after another, "steps" if it trains or scores, "reads" if it may read
            large files for long; "" for anything else.
    """

    target: str
    panel: str
    work: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelFormat:
    """A model format of another tool that `seqgen import` reads or `seqgen export` writes.

    What its functions are called with, and what they return, is in `seqgen.store.formats`. So a
    plugin adds fastText's files of vectors:

        formats={
            "fasttext": ModelFormat(
                form="file", importer="reading:read_model", recogniser="reading:is_fasttext"
            ),
        }

    Attributes:
        form: what a model is in it: a "folder"; a "file", which the importer opens; or "lines", a
            file that is read line by line, which may be compressed or piped in.
        importer: "module:name" of a `FolderImporter`, or of a `LineImporter` for "lines"; "" if
            the format is not imported.
        recogniser: "module:name" of the function that says whether something is in this format. It
            is called with the path of a folder or a file or, for "lines", with the first line. The
            first format that recognises what is imported reads it; and an export replaces only a
            file that its own format recognises.
        exporter: "module:name" of an `Exporter`, or of a `FolderExporter` for a "folder"; "" if
            the format is not exported.
        noun: what messages call a file in it, such as "an ARPA file".
        files: the names of the files and folders in an exported folder. An export replaces a folder
            that has no others.
    """

    form: Literal["folder", "file", "lines"]
    importer: str = ""
    recogniser: str = ""
    exporter: str = ""
    noun: str = "a file of that format"
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Route:
    """An address of `seqgen serve` that accepts POST requests with a JSON object.

    So a plugin adds `/v1/lengths`, in a module `routes`:

        routes={"/v1/lengths": Route("routes:lengths", ("texts",))}

        def lengths(loaded, texts):
            for text in texts:
                yield {"tokens": len(loaded.ids(text))}

    Attributes:
        target: "module:name" of a generator function. It is called with the model that the request
            names (`seqgen.store.loaded.LoadedModel`), and with all fields by their names; those
            that the request lacks are None. The records that it yields are sent as "data", in a
            list. Between two records the server works for other clients; a `SeqgenError` is sent
            as the reason why the request is refused.
        fields: the fields that a request may have besides "model".
    """

    target: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """Everything that one plugin adds. Targets are "module:name" within the plugin's package.

    Attributes:
        version: of these hooks, that the plugin was written for.
        commands: by name; "models sizes" is the command `sizes` of `seqgen models`.
        former_flags: flags of other commands that are commands of this plugin now: by command and
            flag, the command, and the flag that it has instead ("" for none).
        tasks: kinds of task (`seqgen.tasks.task.Task`): what its models learn. The rows of its
            architectures are in a file `architectures.json` beside the plugin, their settings and
            defaults in `defaults.json`, and presets of them in `presets.toml`.
        options: groups of options (`seqgen.settings.options.Options`) that commands of the core
            take besides their own, by the place where they are added. Each place takes a class,
            whose methods say what is called when: "train"
            (`seqgen.settings.listening.ListenerOptions`); "eval"
            (`seqgen.settings.scoring.AddedMeasure`); "writing" for `sample` and `beam-search`, and
            "sample" or "beam-search" for one of them, where it replaces the plugin's group of
            "writing" (`seqgen.settings.filters.FilterOptions`); "perplexity" (`TextSet`, there),
            "scoring" (`AdaptiveScoring`, there; of `perplexity` and `seqgen.score`), "view"
            (`ViewOptions`, there; of commands that load language models) and "fill" (`WordFilter`,
            there). Those at "recipe" (of `train`, `tune` and `sweep`) need no
            methods: each option gives the setting of its name.
        formats: of other tools, that models are imported from and exported to, by name.
        model_sources: functions that find or import a model from elsewhere, for `--init-from`, by
            what its address begins with: "hf" for `hf:OWNER/NAME`. Each is called with the address
            and with a function that takes lines to be shown, and returns the
            `seqgen.store.StoredModel`.
        tokenizers: kinds of tokenizer, by the name that `--tokenizer` and stored models give them:
            classes derived from `seqgen.text.tokenizers.Tokenizer`, whose `kind` is that name.
        stored_tokenizers: kinds of tokenizer that only stored models have, since they are imported
            and not trained, in the same form.
        tokenizer_readers: functions that open tokenizers of other tools. Each is called with the
            path that `--tokenizer` names, a file or a folder, until one returns a `Tokenizer`; it
            returns None for a path that is none of its own.
        document_readers: of files that hold text in another form, by the ending of their names in
            lower case, such as ".pdf" or ".tar.gz". Each is called with the path of a file, and
            yields its text in pieces; commands then read such files as they read texts. What a
            generator returns says what was taken from the file, such as "12 pages". A
            `SeqgenError`, which begins with the path, says why a file cannot be read; in a folder,
            that file is left out.
        record_readers: of tables, by the ending of their names, such as ".csv". Each is called with
            the path of a file, what errors call it, the names of the columns that are needed, and a
            list that it fills with the names of all columns. It yields the number of each row, from
            1, and its values by column. `--field` then takes such files.
        datasets: other kinds of data that models of text learn from: classes derived from
            `seqgen.training.datasets.dataset.Dataset`. Two class methods recognise them: `reads`
            says whether a file of records, given by its path, is of this kind; `suits`, which is
            called with what `Dataset.open` is called with but the flags, whether the data is. A
            third, `to_score`, reads such a file for `perplexity` and `eval`: see `read_examples`.
        methods: ways of doing what an option of the core names, by the kind of method and by name:
            "regime" (`seqgen.training.regimes.base.Regime`), "smoothing"
            (`seqgen.training.counting.Smooth`), "cache" (`--cache`), "search" (`--stochastic`,
            `--exhaustive`), "input" (`input=char-cnn`), "optimizer" (`eps_inside`), "output"
            (`--explain`, `tokenize --stats`) and "embedding" (vectors of texts, for `embed` in
            Python and `/v1/embeddings`). Which names there are is said where the option is
            declared.
        listeners: to training: functions that are called when a run begins, each with the
            `seqgen.training.listeners.RunFacts`; each returns a `seqgen.training.run.Listener`, or
            None. A listener that fails is left out with a warning, and training goes on.
        sections: of the page that `seqgen report` writes about models of text: objects of the
            class `seqgen.cli.shell.page.ReportSection`, which says when which method is called.
        routes: of `seqgen serve`, by their paths.
        chat_models: classes of models that answer the conversations of `seqgen serve`; the first is
            used. `of(loaded, instead=...)` makes such a model, or raises a `SeqgenError` that says
            what to do instead; `read_prompt(messages)` checks the messages of a request and returns
            the `seqgen.generation.prompts.Prompt`; `loaded` writes the answer, which ends at a text
            of `stop`. `answer(messages, options)` does all of that for `chat` in Python: it returns
            a `seqgen.generation.sample.Sample`, of a list of messages or of a question.
        views: of a loaded language model, by what follows its name in `-m NAME:VIEW` or
            `-m NAME:VIEW=OPTION`. Each is called with the `seqgen.store.loaded.LoadedModel` and the
            option, "" for none, and returns another.
        device_steps: functions that are called with each torch model (`seqgen.models.base`) that
            is loaded, on its device. They may replace its `step` by one that gives the same logits
            in less time there.
    """

    version: int = VERSION
    commands: Mapping[str, Command] = field(default_factory=dict)
    former_flags: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, ModelFormat] = field(default_factory=dict)
    model_sources: Mapping[str, str] = field(default_factory=dict)
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    stored_tokenizers: Mapping[str, str] = field(default_factory=dict)
    tokenizer_readers: tuple[str, ...] = ()
    document_readers: Mapping[str, str] = field(default_factory=dict)
    record_readers: Mapping[str, str] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    methods: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    listeners: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=dict)
    chat_models: tuple[str, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    device_steps: tuple[str, ...] = ()

    def check(self) -> None:
        """Check the type of each field.

        Raises:
            AttributeError, TypeError: a field is missing, or is of another type.
        """
        for each in fields(Plugin):
            kind = {"int": int, "tuple[str, ...]": tuple}.get(each.type, Mapping)
            if not isinstance(getattr(self, each.name), kind):
                raise TypeError(f"{each.name} is not a {kind.__name__}")


@dataclass(frozen=True)
class InstalledPlugin:
    """A discovered plugin, with its package and version.

    Attributes:
        name: what it is called.
        module: of its `PLUGIN`.
        distribution: what installed it.
        release: the version of that.
        plugin: what it adds.
    """

    name: str
    module: str
    distribution: str
    release: str
    plugin: Plugin

    def load(self, target: str) -> Any:
        """Import a "module:name" of this plugin and return the object."""
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(f"{self.module}.{module}"), name)

    def load_all(self, targets: Iterable[str]) -> list[Any]:
        """Import several targets; skip those that fail with a warning each."""
        objects = []
        for target in targets:
            with self.guarded(target):
                objects.append(self.load(target))
        return objects

    @contextlib.contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Turn an error into a warning that names the skipped part of the plugin."""
        try:
            yield
        except FAULTS as error:
            note_problem(self.problem(what, error))

    def problem(self, what: str, error: BaseException) -> str:
        """Format the warning that a part of the plugin is skipped, with the reason."""
        return f"plugin {self.title}: {what} is left out: {format_fault(error)}"

    @property
    def title(self) -> str:
        """Name and distribution of the plugin, for warnings."""
        return f"{self.name} ({self.distribution} {self.release})"

    @property
    def folder(self) -> Path:
        """Folder of the plugin's files."""
        return Path(sys.modules[self.module].__file__ or "").parent

    @property
    def summary(self) -> str:
        """One-line summary: the first line of the plugin's docstring."""
        return (sys.modules[self.module].__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True)
class SkippedPlugin:
    """A discovered plugin that cannot be used, with the reason.

    Attributes:
        name: what it is called.
        distribution: what installed it.
        release: the version of that.
        reason: why it cannot be used.
    """

    name: str
    distribution: str
    release: str
    reason: str


# What a stranger's module may raise when it is imported; an interrupt is none of it.
FAULTS = (Exception, SystemExit)
left_out: list[SkippedPlugin] = []
_problems: list[str] = []
_waiting: list[str] = []


def note_problem(problem: str) -> None:
    """Record a warning about a plugin, unless it was recorded before."""
    if problem not in _problems:
        _problems.append(problem)
        _waiting.append(problem)


def new_problems() -> list[str]:
    """Return the warnings recorded since the last call."""
    problems = [*_waiting]
    _waiting.clear()
    return problems


def format_fault(error: BaseException) -> str:
    """Format an error as part of a one-line message."""
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


@functools.cache
def plugins() -> tuple[InstalledPlugin, ...]:
    """Discover all plugins: seqgen's own by name, then those of other distributions."""
    by_plugin_name: dict[str, InstalledPlugin] = {}
    for name, module, distribution, release in (*_own_plugins(), *_third_party_plugins()):
        plugin, reason = _import_plugin(module)
        if name in by_plugin_name:
            reason = f"{by_plugin_name[name].title} has the same name"
        if plugin is None or reason:
            left_out.append(SkippedPlugin(name, distribution, release, reason))
            note_problem(f"plugin {name} ({distribution} {release}) is left out: {reason}")
        else:
            by_plugin_name[name] = InstalledPlugin(name, module, distribution, release, plugin)
    return tuple(by_plugin_name.values())


def _own_plugins() -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, module, distribution and version of each plugin of this package."""
    package = importlib.import_module("seqgen.plugins")
    for folder in package.__path__:
        for path in sorted(Path(folder).glob("*/__init__.py")):
            name = path.parent.name
            yield name, f"seqgen.plugins.{name}", DISTRIBUTION, __version__


def _third_party_plugins() -> list[tuple[str, str, str, str]]:
    """Find the name, module, distribution and version of third-party plugins.

    `importlib.metadata`, which also reads entry points, takes 20 ms to load.
    """
    mark = f"[{GROUP}]".encode()
    rows_by_distribution: dict[str, list[tuple[str, str, str, str]]] = {}
    for folder in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder or "."):
                if entry.name.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError):
                        content = _content(f"{entry.path}/entry_points.txt")
                        if mark in content:
                            about = _read_metadata(entry.path)
                            rows = [(*names, *about) for names in _parse_entry_points(content)]
                            rows_by_distribution.setdefault(about[0], rows)
    return [row for name in sorted(rows_by_distribution) for row in rows_by_distribution[name]]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123  (a Path takes as long as the reading)
        return file.read()


def _read_metadata(folder: str) -> tuple[str, str]:
    """Read the name and version of a distribution from its metadata folder."""
    name = "METADATA" if folder.endswith(".dist-info") else "PKG-INFO"
    text = _content(f"{folder}/{name}").decode(errors="replace")
    lines = [line.partition(": ") for line in text.partition("\n\n")[0].splitlines()]
    values = {key: value.strip() for key, _, value in lines}
    return values.get("Name", "unknown"), values.get("Version", "unknown")


def _parse_entry_points(content: bytes) -> Iterator[tuple[str, str]]:
    """Parse `entry_points.txt`; yield the names and modules of seqgen plugins."""
    section = ""
    for line in map(str.strip, content.decode(errors="replace").splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == GROUP and "=" in line and line[0] not in "#;":
            name, _, module = line.partition("=")
            yield name.strip(), module.strip()


def _import_plugin(module: str) -> tuple[Plugin | None, str]:
    """Import a plugin's module; return the plugin, or None and the reason that it fails."""
    try:
        plugin = importlib.import_module(module).PLUGIN
        if (version := plugin.version) != VERSION:
            return None, f"it is for version {version} of seqgen's hooks, and this is {VERSION}"
        Plugin.check(plugin)
    except FAULTS as error:
        return None, format_fault(error)
    return plugin, ""


@functools.cache
def by_name(field: str) -> Mapping[str, tuple[InstalledPlugin, Any]]:
    """Collect what a field of all plugins has, by name, each with its plugin.

    The first of a name counts.

    Args:
        field: of `Plugin`, such as "commands" or "formats".
    """
    rows: dict[str, tuple[InstalledPlugin, Any]] = {}
    for one in plugins():
        for name, row in getattr(one.plugin, field).items():
            if name in rows:
                noun, other = field.removesuffix("s").replace("_", " "), rows[name][0].name
                note_problem(
                    f"plugin {one.title}: its {noun} {name} is left out: "
                    f"plugin {other} has one of this name"
                )
            else:
                rows[name] = one, row
    return rows


def former_flags() -> Mapping[tuple[str, str], tuple[str, str]]:
    """Collect the flags that have become commands of plugins."""
    return {key: now for one in plugins() for key, now in one.plugin.former_flags.items()}


def load_all(field: str) -> list[Any]:
    """Load all that a field of the plugins lists, such as "tasks" or "datasets"."""
    return [loaded for _, loaded in _load_field(field)]


def _load_field(field: str) -> list[tuple[str, Any]]:
    """Load the targets in a field of every plugin, each with its plugin's name."""
    return [
        (one.name, loaded)
        for one in plugins()
        for loaded in one.load_all(getattr(one.plugin, field))
    ]


def plugin_of(target: str) -> str | None:
    """Find the plugin that contains a "module:name" target; None if none does."""
    owned = (one for one in plugins() if target.startswith((f"{one.module}.", f"{one.module}:")))
    return next((one.name for one in owned), None)


def missing_plugin(name: str) -> str | None:
    """Name the missing plugin of something in the table `seqgen.plugins.BROUGHT`.

    None if the plugin is installed, if it needs none, or is unknown.
    """
    brought = importlib.import_module("seqgen.plugins").BROUGHT
    owner = next((plugin for plugin, names in brought.items() if name in names), None)
    return None if owner in {one.name for one in plugins()} else owner


def require_plugin(name: str, what: str = "") -> None:
    """Refuse something whose plugin is not installed; see `missing_plugin`.

    Args:
        name: as the table has it.
        what: how messages call it, if that is not its name.

    Raises:
        UsageError: names the plugin.
    """
    if (plugin := missing_plugin(name)) is not None:
        raise UsageError(f"{what or name} needs the plugin {plugin}, which is not installed")


def options(place: str) -> dict[str, Any]:
    """Collect the groups of options that plugins add at a place, by plugin name."""
    return {
        one.name: group
        for one in plugins()
        if place in one.plugin.options
        for group in one.load_all([one.plugin.options[place]])
    }


def read_examples(loaded: Any, content: Any, tell: Callable[[str], object] = str) -> Any:
    """Read examples as a model learns from them, as a `TokenFile`; None if they are none.

    Args:
        loaded: the `LoadedModel` that is to score them.
        content: a path, or a `seqgen.cli.shell.inputs.Pipe`.
        tell: takes lines about what was found.

    Raises:
        SeqgenError: the model cannot read them, or they are damaged.
    """
    read = (kind.to_score(loaded, content, tell) for kind in load_all("datasets"))
    return next(filter(None, read), None)


def load_method(kind: str, name: str, option: str = "") -> Any:
    """Load a method that a plugin adds; see `Plugin.methods`.

    Args:
        kind: of method, as "regime".
        name: of the method.
        option: what asks for it; by default the option of that kind, as "--regime scheduled".

    Raises:
        UsageError: its plugin is not installed.
    """
    for one in plugins():
        if name in one.plugin.methods.get(kind, ()):
            return one.load(one.plugin.methods[kind][name])
    option = option or f"--{kind} {name}"
    raise UsageError(f"{option} needs the plugin {missing_plugin(name)}, which is not installed")


def chat_model() -> Any | None:
    """Load the class of models that answer conversations; None if no plugin has one."""
    return next(iter(load_all("chat_models")), None)


def listeners() -> list[tuple[str, Any]]:
    """Load the plugins' factories of training listeners, each with its plugin's name."""
    return _load_field("listeners")


def speed_up_steps(model: Any) -> None:
    """Let plugins replace the step of a torch model; see `Plugin.device_steps`."""
    for replace_step in load_all("device_steps"):
        replace_step(model)
