"""Numbers on the command line: read in one way, and refused in seqgen's own words."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from typer.models import ParameterInfo

from seqgen.cli.tables import count
from seqgen.configs import Bounds, conform, require

# Options whose number may be left out, and what stands for it then.
WITHOUT_NUMBER = {"--with-ngram": "0"}


def read_numbers(app: typer.Typer) -> None:
    """Give each number that a command of `app` takes a parser with the number's name and bounds.

    Without one the libraries below Typer refuse a number, in words that differ by version.
    """
    for group in app.registered_groups:
        read_numbers(group.typer_instance)
    for command in app.registered_commands:
        hints = typing.get_type_hints(command.callback, include_extras=True)
        for parameter, hint in hints.items():
            for info in _infos(hint):
                kind = next((kind for kind in (int, float) if kind in _leaves(hint)), None)
                if kind is not None and info.parser is None:
                    info.parser = number(_flag(parameter, info), kind, info.min, info.max)
        # Typer would read the annotations, which are text, anew.
        command.callback.__annotations__ = hints


def fill_in_numbers(arguments: Sequence[str]) -> list[str]:
    """Return arguments with a number after each option that may stand without one."""
    filled: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return filled + list(arguments[at:])
        following = next(iter(arguments[at + 1 : at + 2]), "")
        alone = argument in WITHOUT_NUMBER and not following.removeprefix("-").isdecimal()
        filled.append(f"{argument}={WITHOUT_NUMBER[argument]}" if alone else argument)
    return filled


def number(flag: str, kind: type, low: float | None, high: float | None) -> Callable[[str], Any]:
    """Return what reads a number of type `kind`, and raises UsageError for any other text."""

    def read(text: str) -> Any:
        value = conform(flag, text, kind)
        Bounds(low=low, high=high).check(flag, value)
        return value

    return read


def listed_numbers(flag: str, text: str, most: int, example: str) -> list[int]:
    """Return numbers from 1 on that stand with commas between them.

    Args:
        flag: the option, for a message.
        text: its value.
        most: the largest.
        example: of such a value.

    Raises:
        UsageError: it is another text, or one of them is larger.
    """
    parts = [part.strip() for part in text.split(",")]
    # Python refuses to read numbers of thousands of digits.
    digits = [p.lstrip("0") if p.isdecimal() else "" for p in parts]
    fitting = all(0 < len(p) <= len(str(most)) and int(p) <= most for p in digits)
    require(fitting, f"{flag} is numbers from 1 to {count(most)} with commas, such as {example}")
    return [int(p) for p in digits]


def _infos(hint: Any) -> Iterator[ParameterInfo]:
    """Yield what Typer was told of a parameter, which Python 3.10 may wrap in an Optional."""
    told = getattr(hint, "__metadata__", ())
    yield from (part for part in told if isinstance(part, ParameterInfo))
    for part in typing.get_args(hint):
        yield from _infos(part)


def _leaves(hint: Any) -> Iterator[Any]:
    """Yield the types that a type hint is made of."""
    parts = typing.get_args(hint)
    if not parts:
        yield hint
    for part in parts:
        yield from _leaves(part)


def _flag(parameter: str, info: ParameterInfo) -> str:
    """Return an option as it is typed."""
    names = [name for name in info.param_decls or () if name.startswith("--")]
    return names[0] if names else f"--{parameter.replace('_', '-')}"
