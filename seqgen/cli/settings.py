"""Options that are settings: their help is the setting's own documentation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import typer

from seqgen import registry
from seqgen.configs import Config, DataConfig, TrainingConfig, resolve
from seqgen.errors import UsageError
from seqgen.registry import SHARED_DOCS

# Settings that seqgen chooses for the architecture, the text and the budget unless they are given.
CHOSEN = frozenset(
    {
        *("num_layers", "hidden_size", "num_heads", "dropout", "optimizer", "lr", "batch_size"),
        *("seq_len", "weight_decay", "compile", "precision", "seed"),
    }
)
NAMES_OF_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text"}
GROUPS: tuple[type[Config], ...] = (TrainingConfig, DataConfig)


def doc_of(name: str) -> str:
    """Return the documentation of a training or data setting, or of one architectures share."""
    for group in GROUPS:
        if name in group.fields():
            return group.fields()[name].metadata["doc"]
    return SHARED_DOCS[name]


def type_of(name: str) -> Any:
    """Return the type of a setting of training or data; None for one of an architecture."""
    return next((g.types()[name] for g in GROUPS if name in g.fields()), None)


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values that a setting of this type may have, if they can be listed."""
    choices = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return tuple(map(str, choices[0])) if choices else ()


def option(
    name: str,
    metavar: str,
    panel: str,
    *flags: str,
    default: str | None = None,
    choices: Sequence[str] = (),
    complete: Callable[[str], list[str]] | None = None,
    parser: Callable[[str], Any] | None = None,
) -> Any:
    """Return a Typer option for the setting `name`.

    Args:
        name: the setting's.
        metavar: what stands for its value.
        panel: of the help.
        flags: as they are typed, if they do not follow from the parameter's name.
        default: text for the default, if the setting's own default is not to be shown.
        choices: its values, if the setting belongs to an architecture.
        complete: returns the values that begin with what was typed.
        parser: reads what was typed.
    """
    choices = choices or choices_of(type_of(name))
    doc = doc_of(name)
    known = "|" in metavar or all(choice in doc for choice in choices)
    return typer.Option(
        *flags,
        help=doc if known else f"{doc} One of: {', '.join(choices)}.",
        metavar=metavar,
        rich_help_panel=panel,
        show_default=default or default_of(name) or False,
        autocompletion=complete,
        parser=parser,
    )


def default_of(name: str) -> str | None:
    """Return a setting's default as help shows it; None for nothing to show."""
    if name in CHOSEN:
        return "chosen"
    for group in GROUPS:
        if name in group.fields():
            value = group.fields()[name].default
            return None if value is None or value is False else f"{value}"
    return None


def settings_of(name: str, only: str | None = None) -> list[dict[str, Any]]:
    """Return every setting that `train --model NAME` takes, as `models --architectures` shows it.

    Loads the architecture's code, and so torch.

    Args:
        name: of the architecture.
        only: the one setting to return.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    kind = registry.architecture(name).load_config()
    groups = {"model": kind, "training": TrainingConfig, "data": DataConfig}
    setting_name = None if only is None else only.replace("-", "_")
    if setting_name is not None:
        resolve({setting_name: None}, name, groups.values())  # refuses one that there is not
    return [
        _describe(name, group, config, field, kind.recipe)
        for group, config in groups.items()
        for field in config.fields().values()
        if setting_name in (None, field.name)
    ]


def _describe(
    architecture: str,
    group: str,
    config: type[Config],
    field: dataclasses.Field,
    recipe: Mapping[str, Any],
) -> dict[str, Any]:
    kind = config.types()[field.name]
    choices = choices_of(kind)
    default = None if field.default is dataclasses.MISSING else field.default
    return {
        "architecture": architecture,
        "group": group,
        "setting": field.name,
        "doc": field.metadata["doc"],
        "type": _type_name(kind),
        "choices": list(choices) or None,
        "default": recipe.get(field.name, default),
        "bounds": str(field.metadata["bounds"].without_sanity_limit()) or None,
    }


def _type_name(kind: Any) -> str:
    """Return the name of a type for help; for `T | None`, that of T."""
    base = next((part for part in get_args(kind) if part in NAMES_OF_TYPES), kind)
    return "choice" if choices_of(kind) else NAMES_OF_TYPES[base]


def facts_line(setting: Mapping[str, Any]) -> str:
    """Return a setting in a sentence: what it means, its allowed values, and its default."""
    choices = setting["choices"]
    allowed = f"one of {', '.join(choices)}" if choices else setting["type"]
    bounds = f", {setting['bounds']}" if setting["bounds"] else ""
    default = setting["default"]
    shown = str(default).lower() if default is None or isinstance(default, bool) else default
    return f"{setting['doc']} ({allowed}{bounds}) [default: {shown}]"


def assignment(text: str) -> tuple[str, str]:
    """Return the name and the value of a `--set`.

    Raises:
        UsageError: it is not KEY=VALUE.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip().replace("-", "_"), value.strip()
