"""Write `settings.md`: every setting of `--set` and `--config`, from its documentation in the code.

    python docs/settings.py

It also writes the defaults of each architecture into the package (`registry.DEFAULTS`). A test
fails if either is not what this script makes.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from collections.abc import Container, Iterable
from pathlib import Path
from types import UnionType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seqgen import registry
from seqgen.cli import beam_search, bleu, perplexity, sample, train
from seqgen.cli.shell.known_settings import describe_settings
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.plugins.labels.settings import LabellingConfig
from seqgen.plugins.tune import command as tune
from seqgen.plugins.tune import sweep_command as sweep
from seqgen.settings import Config, DataConfig
from seqgen.settings.options import Options
from seqgen.settings.setting import NO_BOUNDS
from seqgen.settings.training import TrainingConfig

# The commands whose options the page lists.
DOCUMENTED = {
    "train": train.train,
    "tune": tune.tune,
    "sweep": sweep.sweep,
    "sample": sample.sample,
    "beam-search": beam_search.beam_search,
    "bleu": bleu.bleu,
    "perplexity": perplexity.perplexity,
}
CELLS = "all cells"
PAGE = Path(__file__).with_suffix(".md")
HEAD = """# Settings

*For anyone who looks up a setting. Read [Train](training.md) first.*

<!-- Written by `python docs/settings.py`; do not edit. -->

All settings of `seqgen train`, and the options of [some other commands](#options-of-commands).
Give a setting as `--set key=value` or in a `--config` file; the common ones also have
a flag of their own (`seqgen train --help`). `seqgen models --architectures NAME` lists the settings
of one architecture in the terminal.

A `--config` file is TOML (its tables only group settings) or the `config.json` of a trained model.
Flags and `--set` take precedence over the file, the file over a preset, and a preset over the
architecture's own training settings, which the table of [architectures](#architectures) lists.

The default "none" means that nothing is set. The description, or [training.md](training.md), says
what then happens. `none` can also be given as a value. Values outside the bounds are refused, and
so is a model that is too large for this machine's memory.
"""
TYPES = {int: "integer", float: "number", bool: "`true`, `false`", str: "text", Path: "file"}


def type_of(kind: Any) -> str:
    """Return a field's type or its choices, as the page shows them."""
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return type_of(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, UnionType):
        options = typing.get_args(kind)
        names = ["`none`" if part is type(None) else type_of(part) for part in options]
        return " or ".join(dict.fromkeys(names))
    return TYPES[kind]


def value_of(value: Any) -> str:
    """Return a setting's value as `--set` takes it."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def table(config: type[Config]) -> list[str]:
    """Return the lines of a configuration's table, a row a setting."""
    types = config.types()
    lines = ["| setting | type | bounds | default | meaning |", "|---|---|---|---|---|"]
    for name, field in config.fields().items():
        default = "required" if field.default is dataclasses.MISSING else value_of(field.default)
        text = field.metadata["doc"].replace("|", "\\|")
        bounds = str(field.metadata["bounds"].without_sanity_limit())
        cells = [f"`{name}`", type_of(types[name]), bounds, default, text]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def recurrent() -> list[str]:
    """Return the names of the recurrent networks, whose settings are mostly the same."""
    rows = registry.ARCHITECTURES.values()
    return [row.name for row in rows if issubclass(row.load_config(), RecurrentConfig)]


def models_table() -> list[str]:
    """Return the lines of a table of the architectures' settings, each once by what it means."""
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for row in registry.ARCHITECTURES.values():
        config = row.load_config()
        types = config.types()
        for name, field in config.fields().items():
            default = field.default
            shown = "required" if default is dataclasses.MISSING else value_of(default)
            bounds = str(field.metadata["bounds"].without_sanity_limit())
            text = field.metadata["doc"].replace("|", "\\|")
            key = f"`{name}`", type_of(types[name]), bounds, text
            rows.setdefault(key, {}).setdefault(shown, []).append(row.name)
    cells = frozenset(recurrent())
    lines = ["| setting | type | bounds | meaning | default |", "|---|---|---|---|---|"]
    for key, defaults in sorted(rows.items(), key=lambda item: item[0][0]):
        whose = []
        for shown, names in defaults.items():
            if cells <= {*names}:
                names = [f"*{CELLS}*", *(name for name in names if name not in cells)]
            whose.append(f"{shown} ({', '.join(names)})")
        lines.append(f"| {' | '.join([*key, '; '.join(whose)])} |")
    return lines


def options_table(groups: Iterable[type[Options]], known: Container[str] = ()) -> list[str]:
    """Return the lines of a table of groups of options, a row a flag; `known` ones are left out."""
    lines = ["| option | type | bounds | default | meaning |", "|---|---|---|---|---|"]
    for group in groups:
        for name, field, kind in group.flags():
            flag = field.metadata["flag"]
            if not flag.positional and name not in known:
                names = flag.names or (f"--{name.replace('_', '-')}",)
                cells = ", ".join(f"`{one}`" for one in names), *option_cells(field, kind)
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def option_cells(field: dataclasses.Field, kind: Any) -> tuple[str, str, str, str]:
    """Return the type, the bounds, the default and the meaning of an option."""
    flag, default = field.metadata["flag"], field.default
    typed = "flag" if kind is bool else type_of(kind).removesuffix(" or `none`")
    bounds = str(field.metadata.get("bounds", NO_BOUNDS).without_sanity_limit())
    if flag.reads == "threads":
        bounds = "at least 1"  # how many more depends on the machine
    nothing = default in (None, (), "") or default is False
    required = default is dataclasses.MISSING
    shown = "required" if required else flag.without or ("" if nothing else value_of(default))
    return typed, bounds, shown, field.metadata["doc"].replace("|", "\\|")


def page() -> str:
    """Return the whole page."""
    lines = [HEAD, "## Text", "", *table(DataConfig), "", "## Training", ""]
    lines += ["For networks. `ngram` ignores these settings, `hmm` all but budget and seed, and"]
    lines += ["`hopfield` all but the seed.", ""]
    lines += [*table(TrainingConfig), ""]
    lines += ["## Architectures", ""]
    lines += ["Each with the training settings that are its own defaults.", ""]
    lines += ["| `--model` | what it is | training settings |", "|---|---|---|"]
    for row in registry.ARCHITECTURES.values():
        recipe = row.load_config().recipe
        own = ", ".join(f"`{name}={value}`" for name, value in recipe.items())
        lines.append(f"| `{row.name}` | {row.summary} | {own} |")
    lines += ["", "## Models", ""]
    lines += ["Settings of the architecture itself, with the default of each that has it.", ""]
    lines += [f"*{CELLS}* stands for {', '.join(recurrent())}.", ""]
    lines += [*models_table(), ""]
    lines += ["## Classifiers and taggers", ""]
    lines += ["With `--task`, an architecture has these settings besides its own.", ""]
    lines += [*table(LabellingConfig), ""]
    own = ", ".join(f"`{name}={value}`" for name, value in LabellingConfig.recipe.items())
    lines += [f"On a language model, the training settings are those of encoders: {own}.", ""]
    lines += ["## Options of commands", ""]
    lines += ["A keyword of the [Python API](python.md) has the name of its flag: `top_p` for"]
    lines += ["`--top-p`. An option without a default is off, or nothing, until it is given.", ""]
    known = {*TrainingConfig.fields(), *DataConfig.fields()}
    for name, command in DOCUMENTED.items():
        trains = name in ("train", "tune", "sweep")
        lines += [f"### seqgen {name}", ""]
        if trains:
            lines += ["Besides flags of the settings above:", ""]
        lines += [*options_table(command.groups, known if trains else ()), ""]
    return "\n".join(lines)


def defaults(folder: Path) -> str:
    """Return the file of settings and defaults that a folder has, a line for each architecture."""
    lines = []
    for row in registry.ARCHITECTURES.values():
        if row.folder != folder:
            continue
        config = row.load_config()
        model = {name: field.default for name, field in config.fields().items()}
        training, settings = dict(config.recipe), describe_settings(config)
        groups = {"model": model, "training": training, "settings": settings}
        lines.append(f"{json.dumps(row.name)}: {json.dumps(groups)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def folders() -> list[Path]:
    """Return the folders that have such a file: the package, and its plugins with architectures."""
    return sorted({row.folder for row in registry.ARCHITECTURES.values()})


if __name__ == "__main__":
    for folder in folders():
        (folder / registry.DEFAULTS).write_text(defaults(folder), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
