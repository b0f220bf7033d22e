"""Models that a command treats in another way, and the options that have no meaning for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import typer

from seqgen import store
from seqgen.cli import options
from seqgen.errors import UsageError


def all_read(names: Sequence[str] | None, kinds: Collection[str]) -> bool:
    """Return whether models read one of some kinds of data, all of the same kind.

    Args:
        names: of the models; None for the latest.
        kinds: what they may read, see `registry.Architecture`.

    Raises:
        UsageError: some do, and others are of another kind.
    """
    read = {store.find_all(name).reads: name for name in names or [None]}
    if not read.keys() & set(kinds):
        return False
    if len(read) > 1:
        different = " and ".join(str(name) for name in list(read.values())[:2])
        raise UsageError(f"{different} are models of different kinds; measure each by itself")
    return True


def refuse_others(context: typer.Context, meant: Collection[str], models: str) -> None:
    """Refuse options that have no meaning for a kind of model.

    Args:
        context: of the command.
        meant: the names of the parameters that have one.
        models: what such models are called.

    Raises:
        UsageError: names the first that was given.
    """
    for name in options.typed(context):
        if name not in meant:
            raise UsageError(f"--{name.replace('_', '-')} has no meaning for {models}")
