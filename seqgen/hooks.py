"""What a plugin may add to seqgen, and how plugins are found.

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
line of warning (`problems`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from seqgen import __version__

# The version of what this module offers. A plugin for another one is not used.
VERSION = 1
GROUP = "seqgen.plugins"
Row = TypeVar("Row")


@dataclass(frozen=True)
class Command:
    """A command of a plugin.

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
    """A format of another tool, which `seqgen import` reads, `seqgen export` writes, or both do.

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


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """All that one plugin adds. Targets are "module:name", of modules in the plugin's package.

    Attributes:
        version: of these hooks, that the plugin was written for.
        commands: by name.
        former_flags: flags of other commands that are commands of this plugin now: by command and
            flag, the command, and the flag that it has instead ("" for none).
        tasks: kinds of task (`seqgen.tasks.task.Task`): what its models learn. The rows of its
            architectures are in a file `architectures.json` beside the plugin, their settings and
            defaults in `defaults.json`, and presets of them in `presets.toml`.
        options: groups of options (`seqgen.settings.options.Options`) that commands of the core
            take besides their own, by the place where they are added: "eval"
            (`seqgen.settings.scoring.TextMeasure`); "writing" for `sample` and `beam-search`, and
            "sample" or "beam-search" for one of them, where it replaces the plugin's group of
            "writing" (`seqgen.settings.filters.FilterOptions`); "perplexity" (`TextSet`, there)
            and "fill" (`WordFilter`, there); "train"
            (`seqgen.settings.listening.ListenerOptions`); those at "recipe" (of `train`, `tune` and
            `sweep`) need no methods: each option gives the setting of its name.
        listeners: to training: functions that are called when a run begins, each with the
            `seqgen.training.listeners.RunFacts`; each returns a `seqgen.training.run.Listener`, or
            None. A listener that fails is left out with a warning, and training goes on.
        sections: of the page that `seqgen report` writes about models of text: objects of the
            class `seqgen.cli.shell.page.ReportSection`, which says when which method is called.
        formats: of other tools, that models are imported from and exported to, by name.
        tokenizers: kinds of tokenizer, by the name that `--tokenizer` and stored models give them:
            classes derived from `seqgen.text.tokenizers.Tokenizer`, whose `kind` is that name.
        tokenizer_readers: functions that open tokenizers of other tools. Each is called with the
            path that `--tokenizer` names, a file or a folder, until one returns a `Tokenizer`; it
            returns None for a path that is none of its own.
    """

    version: int = VERSION
    commands: Mapping[str, Command] = field(default_factory=dict)
    former_flags: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    listeners: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    formats: Mapping[str, ModelFormat] = field(default_factory=dict)
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    tokenizer_readers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installed:
    """A plugin that was found.

    Attributes:
        name: what it is called.
        module: of its `PLUGIN`.
        distribution: what installed it, with its version.
        plugin: what it adds.
    """

    name: str
    module: str
    distribution: str
    plugin: Plugin

    def load(self, target: str) -> Any:
        """Import a "module:name" of this plugin, and return what it names."""
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(f"{self.module}.{module}"), name)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(sys.modules[self.module].__file__ or "").parent

    @property
    def summary(self) -> str:
        """What it is, in one line: the first of its docstring."""
        return (sys.modules[self.module].__doc__ or "").strip().partition("\n")[0]


# What was wrong with plugins that are left out, a line each.
problems: list[str] = []


@functools.cache
def plugins() -> tuple[Installed, ...]:
    """Return all plugins: those of seqgen by name, then those of other distributions."""
    found = [*_own(), *_of_others()]
    return tuple(one for one in (_opened(*about) for about in found) if one is not None)


def _own() -> Iterator[tuple[str, str, str]]:
    """Yield the name, module and distribution of each plugin of this package."""
    package = importlib.import_module("seqgen.plugins")
    for folder in package.__path__:
        for path in sorted(Path(folder).glob("*/__init__.py")):
            name = path.parent.name
            yield name, f"seqgen.plugins.{name}", f"seqgen {__version__}"


def _of_others() -> Iterator[tuple[str, str, str]]:
    """Yield the same of the plugins that other distributions have.

    The library that reads entry points takes 20 ms to load: only if some distribution has any.
    """
    if not any(map(_names_plugins, sys.path)):
        return
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        about = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
        yield entry.name, entry.value, about


def _names_plugins(folder: str) -> bool:
    """Return whether a distribution in a folder of `sys.path` has plugins of seqgen."""
    mark = f"[{GROUP}]".encode()
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder or "."):
            if entry.name.endswith(("dist-info", "egg-info")):
                with (
                    contextlib.suppress(OSError),
                    open(f"{entry.path}/entry_points.txt", "rb") as f,  # noqa: PTH123
                ):
                    if mark in f.read():
                        return True
    return False


def _opened(name: str, module: str, distribution: str) -> Installed | None:
    """Return a plugin, or None if it cannot be used; then `problems` says why."""
    try:
        plugin = importlib.import_module(module).PLUGIN
        version = plugin.version
    except Exception as error:  # whatever a stranger's module raises
        about = f"{type(error).__name__}: {error}".partition("\n")[0]
        problems.append(f"plugin {name} ({distribution}) is left out: {about}")
        return None
    if version != VERSION:
        problems.append(
            f"plugin {name} ({distribution}) is left out: it is for version {version} of seqgen's "
            f"hooks, and this is {VERSION}"
        )
        return None
    return Installed(name, module, distribution, plugin)


@functools.cache
def commands() -> Mapping[str, tuple[Installed, Command]]:
    """Return the commands of all plugins, by name; of two with one name, the first counts."""
    return _by_name("command", ((one, one.plugin.commands) for one in plugins()))


def _by_name(
    noun: str, added: Iterable[tuple[Installed, Mapping[str, Row]]]
) -> dict[str, tuple[Installed, Row]]:
    """Return what plugins add, with its plugin, by name; `problems` says which names are taken."""
    found: dict[str, tuple[Installed, Row]] = {}
    for one, rows in added:
        for name, row in rows.items():
            if name in found:
                other = found[name][0].name
                problems.append(f"plugin {one.name}: its {noun} {name} is one of {other} already")
            else:
                found[name] = one, row
    return found


def former_flags() -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return the flags that have become commands of plugins."""
    return {key: now for one in plugins() for key, now in one.plugin.former_flags.items()}


def tasks() -> list[Any]:
    """Return the kinds of task of all plugins."""
    return [one.load(target) for one in plugins() for target in one.plugin.tasks]


def plugin_of(target: str) -> str | None:
    """Return the plugin that a "module:name" is of; None if it is of no plugin."""
    owned = (one for one in plugins() if target.startswith((f"{one.module}.", f"{one.module}:")))
    return next((one.name for one in owned), None)


def missing_plugin(name: str) -> str | None:
    """Return the plugin of seqgen that an architecture or a task needs and that is not installed.

    None if it needs none, or is unknown.
    """
    brought = importlib.import_module("seqgen.plugins").BROUGHT
    owner = next((plugin for plugin, names in brought.items() if name in names), None)
    return None if owner in {one.name for one in plugins()} else owner


def options(place: str) -> dict[str, Any]:
    """Return the groups of options that plugins add at a place, by the plugin's name."""
    return {
        one.name: one.load(one.plugin.options[place])
        for one in plugins()
        if place in one.plugin.options
    }


def listeners() -> list[tuple[str, Any]]:
    """Return the functions of all plugins that make listeners, each with its plugin's name."""
    return [(one.name, one.load(target)) for one in plugins() for target in one.plugin.listeners]


def sections() -> list[Any]:
    """Return the sections of a report that all plugins add."""
    return [one.load(target) for one in plugins() for target in one.plugin.sections]


@functools.cache
def formats() -> Mapping[str, tuple[Installed, ModelFormat]]:
    """Return the formats of all plugins, by name; of two with one name, the first counts."""
    return _by_name("format", ((one, one.plugin.formats) for one in plugins()))


@functools.cache
def tokenizers() -> Mapping[str, tuple[Installed, str]]:
    """Return the kinds of tokenizer of all plugins, by name: the plugin, and its class there."""
    return _by_name("tokenizer", ((one, one.plugin.tokenizers) for one in plugins()))


def tokenizer_readers() -> Iterator[Callable[[Path], Any]]:
    """Yield what opens tokenizers of other tools, of all plugins."""
    for one in plugins():
        yield from map(one.load, one.plugin.tokenizer_readers)
