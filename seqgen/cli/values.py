"""How the values of options are read: without pydantic, left out, or listed with commas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from seqgen.cli.tables import count
from seqgen.configs import require


class OwnValue:
    """What a parameter of Typer makes of its text: what its parser returns, or the text itself.

    Typer would have pydantic call the parser, which takes a tenth of a second to load and to set
    up. It keeps such an object with a parameter once the first value is read.
    """

    def __init__(self, parser: Any) -> None:
        self._read = parser or (lambda text: text)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value, or a list of several, as the command takes it.

        Raises:
            BadParameter: the parser refuses it.
        """
        several = getattr(param, "multiple", False) or param.nargs != 1
        try:
            if value is None:
                return () if several else None
            return [self._read(one) for one in value] if several else self._read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def read_here(parameters: Iterable[Any]) -> None:
    """Have the parameters of a command read without pydantic: those with a parser, text, flags.

    Releases of Typer that know no pydantic have nothing to replace.
    """
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", 0) is None:
            about = parameter.type_descriptor
            parser = about.parameter_info.parser
            if parser is not None or about.annotation in (str, str | None, list[str], bool):
                parameter._runtime_param = OwnValue(parser)


# Options whose number may be left out, and what stands for it then.
WITHOUT_NUMBER = {"--with-ngram": "0"}


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
