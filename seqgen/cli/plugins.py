"""`seqgen plugins`: list installed plugins, their origin, and load errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from seqgen import hooks, registry
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.tables import MISSING, declared_columns, put_columns
from seqgen.settings import Options, Panel, setting
from seqgen.wording import column

# Fields of a `hooks.Plugin` that say something else than what it adds.
ABOUT = ("version", "former_flags")


class PluginSelection(Options, panel=Panel.OUTPUT):
    """Options of `seqgen plugins`: which plugins to list."""

    others: bool = setting("List only those of other distributions, and those that are left out.")


@takes_options
def plugins(chosen: PluginSelection, out: Output) -> None:
    """List plugins: what each is, where it is from, and what it adds.

    A plugin that cannot be used is listed with the reason.
    """
    rows = [*map(_record, hooks.plugins()), *map(_left_out, hooks.left_out)]
    records = [
        one
        for one in rows
        if not chosen.others or one.problem or one.distribution != hooks.DISTRIBUTION
    ]
    if out.records(records):
        return
    if records:
        columns = declared_columns(records, ("name", "distribution", "adds", "summary"))
        put_columns(columns, records, left=len(columns))
    else:
        out.notice("there are no plugins of other distributions")


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """Record of a plugin in `seqgen plugins --json`; its keys in order.

    `problem` says why it is left out; None if it is used.
    """

    name: str = column("name")
    version: str
    distribution: str = column("from", shown="origin")
    summary: str = column("what it is", shown="summary_or_problem")
    adds: dict[str, list[str]] = column("adds", shown="added")
    problem: str | None = None

    @property
    def origin(self) -> str:
        """Distribution and version."""
        return f"{self.distribution} {self.version}"

    @property
    def added(self) -> str:
        """Description of everything that the plugin adds."""
        return "; ".join(_in_words(self.adds)) or MISSING

    @property
    def summary_or_problem(self) -> str:
        """The plugin's summary, or the problem for which it is left out."""
        return f"left out: {self.problem}" if self.problem else self.summary


def _record(plugin: hooks.InstalledPlugin) -> PluginRecord:
    """Describe an installed plugin: origin, version and additions."""
    return PluginRecord(
        name=plugin.name,
        version=plugin.release,
        distribution=plugin.distribution,
        summary=plugin.summary,
        adds=additions(plugin),
    )


def _left_out(plugin: hooks.SkippedPlugin) -> PluginRecord:
    """Describe a plugin that could not be loaded, with the reason."""
    return PluginRecord(
        name=plugin.name,
        version=plugin.release,
        distribution=plugin.distribution,
        summary="",
        adds={},
        problem=plugin.reason,
    )


def additions(plugin: hooks.InstalledPlugin) -> dict[str, list[str]]:
    """List what a plugin adds, by hook: names of commands, models and so on; flags of options."""
    kinds = [one.name for one in dataclasses.fields(plugin.plugin) if one.name not in ABOUT]
    added = {kind: list(getattr(plugin.plugin, kind)) for kind in kinds}
    added["tasks"] = [task.name for task in plugin.load_all(plugin.plugin.tasks)]
    added["methods"] = list(chain.from_iterable(plugin.plugin.methods.values()))
    added["options"] = list(dict.fromkeys(_flags(plugin)))
    return {"architectures": registry.architectures_of(plugin), **added}


def _flags(plugin: hooks.InstalledPlugin) -> Iterator[str]:
    """Yield the flags that a plugin adds to commands of the core."""
    for group in plugin.load_all(plugin.plugin.options.values()):
        for name, field, _ in group.flags():
            flag = field.metadata["flag"]
            yield flag.names[0].partition("/")[0] if flag.names else f"--{name.replace('_', '-')}"


def _in_words(adds: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield phrases that describe a plugin's additions: "commands fill, predict"."""
    for kind, names in adds.items():
        if names:
            word = kind.replace("_", " ")
            yield f"{word if len(names) > 1 else word.removesuffix('s')} {', '.join(names)}"
