"""How help looks: options in panels, whole sentences, three examples; it fits the terminal."""

from __future__ import annotations

import inspect
import io
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from seqgen.cli.help_examples import EXAMPLES
from seqgen.cli.numbers import fill_in_numbers
from seqgen.cli.output import is_terminal, put
from seqgen.configs.options import ARGUMENTS, OTHER, PANELS
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

# Panels of commands, in order.
TRAIN, WRITE, MEASURE, TEXTS, STORED = "Train", "Write", "Measure", "Text", "Models"
COMMAND_PANELS = (TRAIN, WRITE, MEASURE, TEXTS, STORED, "Commands")
WIDEST, USUAL = 100, 80
# Columns of an option's name and value.
NAME_WIDTH = 29

Rows = list[tuple[str, str]]


class _Help:
    """Help of a command, in the place of Typer's."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help: to a terminal in boxes, elsewhere plainly."""
        from rich.console import Console

        terminal = is_terminal(sys.stdout)
        columns = shutil.get_terminal_size((USUAL, 24)).columns
        out = Console(
            file=io.StringIO(),
            width=min(columns, WIDEST) if terminal else USUAL,
            force_terminal=terminal,
            markup=False,
            highlight=False,
            emoji=False,
        )
        out.print(f"Usage: {ctx.command_path} {_usage(self)}", soft_wrap=True)
        for paragraph in _paragraphs(self.help):
            out.print()
            out.print(paragraph)
        for title, rows in [*_commands(self, ctx), *_options(self, ctx)]:
            _print_panel(out, title, rows, terminal)
        if examples := EXAMPLES.get(_name(ctx)):
            _print_examples(out, examples)
        lines = out.file.getvalue().splitlines()
        put("".join(line.rstrip() + "\n" for line in lines))


class Command(_Help, TyperCommand):
    """A command with this help, whose options may leave out their numbers; see `numbers`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments of the command line.

        Raises:
            UsageError: several models are named where one is meant.
        """
        args = fill_in_numbers(args)
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            models = [one for one in given if one.name == "model" and not one.multiple]
            if len(models) > 1:
                raise UsageError(
                    f"{max(models[0].opts, key=len)} is given twice; it takes one name"
                )
        return super().parse_args(ctx, args)


class Group(_Help, TyperGroup):
    """A command that has commands of its own."""


def _name(ctx: Any) -> str:
    """Return a command's name without that of the program: "models show", "" for the program."""
    return ctx.command_path.partition(" ")[2]


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n") if part]


def _usage(command: Any) -> str:
    """Return what follows a command's name: its options, arguments and commands."""
    parts = ["[OPTIONS]"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
            name = name if parameter.required or name[0] == "[" else f"[{name}]"
            parts.append(name + ("..." if parameter.nargs == -1 and name[-3:] != "..." else ""))
    if isinstance(command, TyperGroup):
        parts.append("[COMMAND]" if command.invoke_without_command else "COMMAND")
        parts.append("[ARGS]...")
    return " ".join(parts)


def _commands(command: Any, ctx: Any) -> list[tuple[str, Rows]]:
    """Return the panels of a group's commands: each command, and what it does."""
    rows: dict[str, Rows] = {}
    for name in command.list_commands(ctx) if isinstance(command, TyperGroup) else ():
        subcommand = command.get_command(ctx, name)
        panel = getattr(subcommand, "rich_help_panel", None)
        summary = next(iter(_paragraphs(subcommand.help)), "")
        rows.setdefault(panel if panel in COMMAND_PANELS else "Commands", []).append(
            (name, summary)
        )
    return [(title, rows[title]) for title in COMMAND_PANELS if title in rows]


def _options(command: Any, ctx: Any) -> list[tuple[str, Rows]]:
    """Return the panels of a command's arguments and options: each name, and what it means."""
    rows: dict[str, Rows] = {}
    for parameter in command.get_params(ctx):
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            row = parameter.metavar or parameter.name.upper(), parameter.help or ""
            rows.setdefault(ARGUMENTS, []).append(row)
            continue
        panel = getattr(parameter, "rich_help_panel", None)
        row = _names(parameter), _with_default(parameter)
        rows.setdefault(panel if panel in PANELS else OTHER, []).append(row)
    return [(title, rows[title]) for title in PANELS if title in rows]


def _names(option: Any) -> str:
    """Return an option as it is typed: "-m, --model NAME", "    --greedy"."""
    names = [*option.opts, *option.secondary_opts]
    short = "".join(f"{name}, " for name in names if not name.startswith("--"))
    long = " / ".join(name for name in names if name.startswith("--"))
    return f"{short:>4}{long}" + ("" if option.is_flag else f" {option.metavar or 'VALUE'}")


def _with_default(parameter: Any) -> str:
    """Return an option's help with its default, unless that is off or nothing."""
    shown, default = parameter.show_default, parameter.default
    if isinstance(shown, str):
        value = shown
    elif shown is False or parameter.is_flag or default is None or callable(default):
        return parameter.help or ""
    else:
        value = str(default)
    return f"{parameter.help or ''} [default: {value}]"


def _print_panel(out: Console, title: str, rows: Rows, terminal: bool) -> None:
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    width = min(NAME_WIDTH, max(len(name) for name, _ in rows))
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(width=width, style="bold cyan" if terminal else "", overflow="fold")
    grid.add_column(ratio=1, overflow="fold")
    for name, text in rows:
        if len(name) > width:
            # Only the value's choices are too long: they go below the name.
            name, _, choices = name.rpartition(" ")
            name = f"{name}\n{'':6}{choices}"
        grid.add_row(Text(name), Text(text))
    if terminal:
        out.print(Panel(grid, title=title, title_align="left", border_style="dim"))
        return
    out.print()
    out.print(f"{title}:")
    out.print(Padding(grid, (0, 0, 0, 2)))


def _print_examples(out: Console, examples: Iterable[tuple[str, str]]) -> None:
    out.print("\nExamples:")
    for line, comment in examples:
        out.print(f"  # {comment}", style="dim")
        out.print(f"  {line}")
