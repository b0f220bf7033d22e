"""Arguments that name a stored model where `-m NAME` is meant: `seqgen sample play "The king"`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from seqgen.cli.shell.output import Output, announce
from seqgen.errors import Interrupted, SeqgenError, UsageError
from seqgen.settings import Flag, Options
from seqgen.settings.setting import OptionValue

# The option that names the stored model of a command.
MODEL_FLAG = "-m"


def model_among(arguments: Iterable[str]) -> str:
    """Write which option the first argument that names a stored model is for; empty if none does.

    Args:
        arguments: of a command that takes a model, and for which none is given.
    """
    from seqgen import store

    name = next(filter(store.is_stored, arguments), None)
    return "" if name is None else f"{name} is a stored model: {MODEL_FLAG} {name}"


@contextlib.contextmanager
def explaining_model_argument(groups: Collection[Options]) -> Iterator[None]:
    """Say before the results, or with an error, that an argument is the name of a stored model.

    Args:
        groups: all options and arguments of a call.

    Raises:
        UsageError: the argument is a file, and there is none of that name.
        SeqgenError: the command's own error, with what was to be said.
    """
    said = _explanation([option for group in groups for option in group.values()])
    if said and not any(isinstance(group, Output) and group.quiet for group in groups):
        announce(said)
    try:
        yield
    except SeqgenError as error:
        if not said or isinstance(error, Interrupted):
            raise
        raise type(error)(f"{error}; {said}") from error


def _explanation(options: Sequence[OptionValue]) -> str:
    """Write which argument names a stored model though none is given by option; else empty."""
    if not any(MODEL_FLAG in _flag(one).names and not one.is_given for one in options):
        return ""
    for one in options:
        flag = _flag(one)
        if not flag.positional or flag.completes == "models" or not one.is_given:
            continue
        given = [name for name in one.each if not (flag.reads and Path(name).exists())]
        if (said := model_among(given)) and flag.reads:
            raise UsageError(f"there is no file {said.partition(' ')[0]}; {said}")
        if said:
            return f"{said} (here it is a {one.flag})"
    return ""


def _flag(option: OptionValue) -> Flag:
    return option.field.metadata["flag"]
