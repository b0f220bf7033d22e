"""Options that are settings: their help is the setting's own documentation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import typer

from seqgen import registry
from seqgen.configs import Config, DataConfig, TrainingConfig
from seqgen.configs.config_files import no_such_setting
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


# Flags whose name is not the setting's.
SETTING_OF = {"layers": "num_layers", "heads": "num_heads"}


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

    The architecture's own come from `registry.DEFAULTS`, so that its code, and torch, is not
    loaded.

    Args:
        name: of the architecture.
        only: the one setting to return.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    stored = registry.architecture(name).defaults()
    groups = {
        "model": stored["settings"],
        "training": described(TrainingConfig),
        "data": described(DataConfig),
    }
    chosen = None if only is None else only.replace("-", "_")
    known = [setting for group in groups.values() for setting in group]
    if chosen is not None and chosen not in known:
        raise no_such_setting(chosen, name, known)
    recipe = stored["training"]
    return [
        {"architecture": name, "group": group, "setting": setting}
        | {**facts, "default": recipe.get(setting, facts["default"])}
        for group, settings in groups.items()
        for setting, facts in settings.items()
        if chosen in (None, setting)
    ]


def described(config: type[Config]) -> dict[str, dict[str, Any]]:
    """Return what records say of each setting of a configuration, by its name."""
    kinds = config.types()
    return {
        name: {
            "doc": field.metadata["doc"],
            "type": _type_name(kinds[name]),
            "choices": list(choices_of(kinds[name])) or None,
            "default": None if field.default is dataclasses.MISSING else field.default,
            "bounds": str(field.metadata["bounds"].without_sanity_limit()) or None,
        }
        for name, field in config.fields().items()
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
