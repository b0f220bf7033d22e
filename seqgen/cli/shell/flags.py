"""Command-line flags made from option dataclasses, with checks between them.

    @takes_options
    def sample(prompts: GivenPrompts, sampling: SampleOptions, out: Output) -> None: ...

A parameter that is a group of `Options` stands on the command line as the flags of its fields.
Help, default, bounds, choices and completion are those of the fields: each flag is declared once.
How typed values are read, and what records say of settings, follows from the fields as well.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from seqgen import hooks
from seqgen.cli.shell import completion, recording
from seqgen.cli.shell.inputs import file_name, file_path
from seqgen.cli.shell.model_arguments import explaining_model_argument
from seqgen.cli.shell.output import unescape
from seqgen.cli.shell.process import use_threads
from seqgen.errors import UsageError
from seqgen.settings import (
    NO_BOUNDS,
    Flag,
    check_rules,
    conform,
    is_group,
    parse_count,
    require,
)

# What turns typed text into a value, by the name that a setting has for it.
READERS: dict[str, Callable[[str], Any]] = {
    "escapes": unescape,
    "file": file_name,
    "path": file_path,
    "threads": use_threads,
}
# What a shell completes, likewise.
COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "models": completion.models,
    "architectures": completion.architectures,
    "tasks": completion.tasks,
    "presets": completion.preset_names,
    "tokenizers": completion.tokenizers,
    "devices": completion.devices,
}
# What stands for a value in help: by how it is read or completed, else by its type.
METAVARS = {"file": "FILE", "path": "FILE", "models": "NAME", "presets": "NAME"}
METAVARS_OF_TYPES = {int: "N", float: "X", str: "TEXT"}


def takes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: each field of its option-group parameters becomes a flag.

    Parameters of other types stay as they are.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    groups = {name: hints[name] for name in own if is_group(hints[name])}
    parameters = [
        flag
        for name in own
        for flag in (
            [parameter(*option) for option in groups[name].flags()]
            if name in groups
            else [own[name].replace(annotation=hints[name])]
        )
    ]

    parameters = _first_of_each_name(parameters)

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        if values.get("record_run"):
            recording.run.take({k: v for k, v in values.items() if k not in own or k in groups})
        given = {name: value for name, value in values.items() if value is not None}
        filled = {name: group.take(given) for name, group in groups.items()}
        own_values = {name: values[name] for name in own if name not in groups}
        with explaining_model_argument(filled.values()):
            check_rules(*filled.values())
            return command(**filled, **own_values)

    del run.__wrapped__  # which Typer would read in its place
    order = {inspect.Parameter.POSITIONAL_OR_KEYWORD: 0, inspect.Parameter.KEYWORD_ONLY: 1}
    run.__signature__ = inspect.Signature(sorted(parameters, key=lambda p: order[p.kind]))
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.groups = tuple(groups.values())  # for the documentation
    return run


def _first_of_each_name(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Drop parameters with duplicate names, which plugins may have added."""
    found: dict[str, inspect.Parameter] = {}
    for one in parameters:
        if one.name in found:
            hooks.note_problem(f"of two options {one.name}, the one that a plugin adds is left out")
        found.setdefault(one.name, one)
    return [*found.values()]


def parameter(name: str, field: dataclasses.Field, kind: Any) -> inspect.Parameter:
    """Make the signature parameter, with Typer metadata, for one option.

    Args:
        name: the option's.
        field: its default, help, bounds and flag.
        kind: its type.
    """
    flag: Flag = field.metadata["flag"]
    several = get_origin(kind) is tuple and not flag.listed
    leaf = str if flag.listed else _leaf(kind)
    default = field.default
    if default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    elif several:
        default = list(default) or None
    elif flag.listed:
        default = ",".join(map(str, default)) or None
    info = _typer_info(name, field, kind)
    typed = bool if leaf is bool else leaf if leaf in (int, float) else str
    annotation: Any = list[typed] if several else typed
    if default is None:
        annotation = annotation | None
    positional, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(
        name,
        positional if flag.positional else by_name,
        default=default,
        annotation=Annotated[annotation, info],
    )


def _typer_info(name: str, field: dataclasses.Field, kind: Any) -> Any:
    flag: Flag = field.metadata["flag"]
    leaf, choices = _leaf(kind), choices_of(kind)
    nothing = field.default in (None, "", (), dataclasses.MISSING) or field.default is False
    shown: str | bool = flag.without or not nothing
    doc = field.metadata["doc"]
    if flag.metavar and "|" not in flag.metavar and not all(one in doc for one in choices):
        doc += f" One of: {', '.join(choices)}."
    common = {"help": doc, "show_default": shown, "hidden": flag.hidden}
    names = flag.names or (f"--{name.replace('_', '-')}",)
    if leaf is bool:
        return typer.Option(*names, rich_help_panel=flag.panel, **common)
    common |= {
        "metavar": flag.metavar or "|".join(choices) or _metavar(flag, leaf),
        "parser": (_reader_of_list if flag.listed else _reader)(names[0], field, kind),
        "autocompletion": completion.one_of(*choices)
        if choices
        else COMPLETIONS.get(flag.completes),
    }
    if flag.positional:
        return typer.Argument(**common)
    return typer.Option(*names, rich_help_panel=flag.panel, **common)


def _metavar(flag: Flag, kind: Any) -> str:
    named = METAVARS.get(flag.reads) or METAVARS.get(flag.completes)
    return named or METAVARS_OF_TYPES.get(kind, "TEXT")


def _reader(flag_name: str, field: dataclasses.Field, kind: Any) -> Callable[[str], Any] | None:
    """Make the parser of a flag's value; None for plain text."""
    flag: Flag = field.metadata["flag"]
    if flag.reads == "count":
        return functools.partial(parse_count, flag_name)
    used = READERS.get(flag.reads)
    if _leaf(kind) not in (int, float) and not choices_of(kind):
        return used

    def read(text: str) -> Any:
        value = conform(flag_name, text, _leaf(kind))
        field.metadata.get("bounds", NO_BOUNDS).check(flag_name, value)
        return value if used is None else used(value)

    return read


def _reader_of_list(
    flag_name: str, field: dataclasses.Field, kind: Any
) -> Callable[[str], tuple[Any, ...]]:
    """Make the parser of a flag with comma-separated values."""
    read = _reader(flag_name, field, kind) or str

    def read_all(text: str) -> tuple[Any, ...]:
        parts = [part.strip() for part in text.split(",")]
        require(all(parts), f"{flag_name} takes a list with commas between, not {text!r}")
        return tuple(map(read, parts))

    return read_all


def choices_of(kind: Any) -> tuple[str, ...]:
    """List the choices of a Literal type as strings; empty for other types."""
    choices = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return tuple(map(str, choices[0])) if choices else ()


def _leaf(kind: Any) -> Any:
    """Strip Optional and containers from a type: `tuple[int, ...] | None` gives int."""
    parts = [part for part in get_args(kind) if part not in (NoneType, Ellipsis)]
    if get_origin(kind) is Literal or not parts:
        return kind
    return _leaf(parts[0])


class TypedOption:
    """Replacement for Typer's pydantic-based parameter parser, which is slow to load.

    Typer would have pydantic call the parser, which takes a tenth of a second to load and to set
    up. `get_runtime_param` of a parameter returns such an object.
    """

    def __init__(self, parser: Any) -> None:
        self._read = parser or (lambda text: text)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parse an option's value, or its list of values.

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


def parse_without_pydantic(parameters: Iterable[Any]) -> None:
    """Make a command's parameters use `TypedOption` instead of pydantic where possible.

    Releases of Typer that know no pydantic have nothing to replace.
    """
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param"):
            about = parameter.type_descriptor
            parser = about.parameter_info.parser
            if parser is not None or about.annotation in (str, str | None, list[str], bool):
                parameter.get_runtime_param = functools.partial(TypedOption, parser)


# Options whose number may be left out, and what stands for it then.
WITHOUT_NUMBER = {"--with-ngram": "0"}


def fill_in_numbers(arguments: Sequence[str]) -> list[str]:
    """Add the default number after options such as --with-ngram that are given without one."""
    filled: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return filled + list(arguments[at:])
        following = next(iter(arguments[at + 1 : at + 2]), "")
        alone = argument in WITHOUT_NUMBER and not following.removeprefix("-").isdecimal()
        filled.append(f"{argument}={WITHOUT_NUMBER[argument]}" if alone else argument)
    return filled


# Flags whose name is not the setting's.
SETTING_OF = {"layers": "num_layers", "heads": "num_heads"}


def assignment(text: str) -> tuple[str, str]:
    """Split the KEY=VALUE of a `--set` into its key and value.

    Raises:
        UsageError: it is not KEY=VALUE.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip().replace("-", "_"), value.strip()
