"""Commands that treat a kind of model in another way, as its task says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature

import typer

from seqgen import store
from seqgen.errors import UsageError
from seqgen.registry import load_object


@dataclass(frozen=True)
class OwnWay:
    """What a command does for a kind of model; `Task.serves` names one.

    Attributes:
        put: does it; takes those options of the command that have a meaning.
        models: what such models are called.
    """

    put: Callable[..., None]
    models: str

    def __call__(self, context: typer.Context) -> None:
        """Do it with the options of a command.

        Raises:
            UsageError: names the first option that was given and has no meaning.
        """
        meant = signature(self.put).parameters
        for name in typed(context):
            if name not in meant:
                flag = name.rstrip("_").replace("_", "-")
                raise UsageError(f"--{flag} has no meaning for {self.models}")
        self.put(**{name: context.params[name] for name in meant})


def served(context: typer.Context, names: Sequence[str | None]) -> bool:
    """Serve models in a way of their own, if their task has one for this command.

    Args:
        context: of the command.
        names: of the models; None for the latest.

    Returns:
        Whether they were served.

    Raises:
        UsageError: they are, and others are of another kind; or an option has no meaning.
    """
    tasks = {store.find_all(name).task: name for name in names}
    ways = [task.serves[context.info_name] for task in tasks if context.info_name in task.serves]
    if ways and len(tasks) > 1:
        different = " and ".join(str(name) for name in list(tasks.values())[:2])
        raise UsageError(f"{different} are models of different kinds; measure each by itself")
    for way in ways:
        load_object(way)(context)
    return bool(ways)


def typed(context: typer.Context) -> list[str]:
    """Return the names of the parameters that the user gave, in the order of the command's."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
