"""The values of options as they are read here, without the pydantic that Typer would load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer


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
