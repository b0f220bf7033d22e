"""Options that are settings: their help is the setting's own documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import typer

from seqgen.configs import SHARED_DOCS, Config, DataConfig, TrainingConfig

# Settings that are chosen for the architecture, the text and the budget where they are not given.
CHOSEN = frozenset(
    {
        *("num_layers", "hidden_size", "num_heads", "dropout", "optimizer", "lr", "batch_size"),
        *("seq_len", "weight_decay", "compile", "precision", "seed"),
    }
)
GROUPS: tuple[type[Config], ...] = (TrainingConfig, DataConfig)


def doc_of(name: str) -> str:
    """Return what a setting means: of training, of data, or one that architectures share."""
    for group in GROUPS:
        if name in group.fields():
            return group.fields()[name].metadata["doc"]
    return SHARED_DOCS[name]


def type_of(name: str) -> Any:
    """Return the type of a setting of training or data; None for one of an architecture."""
    return next((g.types()[name] for g in GROUPS if name in g.fields()), None)


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values that a setting of this type may have, if they can be listed."""
    found = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return tuple(map(str, found[0])) if found else ()


def option(
    name: str,
    metavar: str,
    panel: str,
    *flags: str,
    default: str | None = None,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return a Typer option for the setting `name`.

    Args:
        name: the setting's.
        metavar: what stands for its value.
        panel: of the help.
        flags: as they are typed, where they are not made of the parameter's name.
        default: what happens without it, where the setting's own default does not say.
        complete: returns the values that begin with what was typed.
    """
    choices = choices_of(type_of(name))
    listed = f" One of: {', '.join(choices)}." if choices and "|" not in metavar else ""
    return typer.Option(
        *flags,
        help=doc_of(name) + listed,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=default or default_of(name) or False,
        autocompletion=complete,
    )


def default_of(name: str) -> str | None:
    """Return a setting's default as help shows it; None for nothing to show."""
    if name in CHOSEN:
        return "chosen for the model"
    for group in GROUPS:
        if name in group.fields():
            value = group.fields()[name].default
            return None if value is None or value is False else f"{value}"
    return None
