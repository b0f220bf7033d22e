"""Help pages: options in panels, full sentences, three examples; and the manual page.

`-h` shows the examples first, and then what most runs need; `--help` shows everything.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from seqgen import __version__, hooks
from seqgen.cli.shell.flags import fill_in_numbers, parse_without_pydantic
from seqgen.cli.shell.model_arguments import MODEL_FLAG
from seqgen.cli.shell.other_tools import (
    UsageProblem,
    expand_command,
    too_many_arguments,
    unknown_command,
    with_own_options,
)
from seqgen.cli.shell.output import is_terminal, standard_output
from seqgen.errors import UsageError
from seqgen.settings import PANELS, Panel, parse_toml

if TYPE_CHECKING:
    from rich.console import Console

# Panels of commands, in order.
TRAIN, WRITE, MEASURE, TEXTS, STORED = "Train", "Write", "Measure", "Text", "Models"
ABOUT = "Help"
COMMAND_PANELS = (TRAIN, WRITE, MEASURE, TEXTS, STORED, ABOUT, "Commands")
WIDEST, USUAL = 100, 80
# The short help of a command with at most so many options lists them all.
MOST_SHORT = 24
# The file of examples and topics.
HELP = "help.toml"
HELP_NAMES = ("help", "short_help")
# Columns of an option's name and value.
NAME_WIDTH = 29

Rows = list[tuple[str, str]]


@functools.cache
def help_texts() -> dict[str, Any]:
    """Collect the examples and notes of each command and the topics, of the core and of plugins.

    Each has its own in a file `help.toml`.
    """
    texts = parse_toml(Path(__file__).with_name(HELP).read_text(encoding="utf-8"))
    for plugin in hooks.plugins():
        path = plugin.folder / HELP
        if path.exists():
            with plugin.guarded(HELP):
                added = parse_toml(path.read_text(encoding="utf-8"))
                for kind, known in texts.items():
                    texts[kind] = {**known, **added.get(kind, {}), **known}
    return texts


class _Help:
    """Mixin for Click commands that replaces Typer's help pages and argument parsing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command-line arguments without pydantic; see `parse_without_pydantic`.

        Raises:
            UsageProblem: they are wrong; of one that is missing, the message has its help.
        """
        parse_without_pydantic(self.get_params(ctx))
        try:
            args = args if ctx.resilient_parsing else self.checked(ctx, args)
            return super().parse_args(ctx, args)
        except UsageProblem as error:
            if type(error).__name__ == "MissingParameter":
                name = error.param.metavar if error.param.opts[0][0] != "-" else error.param.opts[0]
                ctx.fail(f"{name} is missing: {error.param.help}")
            error.ctx = error.ctx or ctx  # which tells whose help to read
            raise

    def checked(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace other tools' names for options; see `with_own_options`."""
        return with_own_options(self, ctx, args)

    _short: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        """List the command's parameters with -h for short help and --help for all options."""
        *params, whole = super().get_params(ctx)
        if self._short is None:
            whole.help = "Show all options, and exit."
            self._short = copy.copy(whole)  # made by a class that differs between versions of Typer
            self._short.name, self._short.opts = "short_help", ["-h"]
            self._short.callback = _show_short
            self._short.help = "Show the options that most runs need, and exit."
        return [*params, self._short, whole]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the full help: in boxes on a terminal, otherwise as plain text."""
        _put_page(self, ctx)


def _show_short(ctx: Any, parameter: Any, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        _put_page(ctx.command, ctx, short=True)
        ctx.exit()


def width_of(stream: IO[str] | None) -> int:
    """Compute the width in columns of help and messages on a stream."""
    columns = shutil.get_terminal_size((USUAL, 24)).columns
    return min(columns, WIDEST) if is_terminal(stream) else USUAL


@contextlib.contextmanager
def _page() -> Iterator[tuple[Console, bool]]:
    """Open a console that buffers a help page; prints it at the end."""
    from rich.console import Console

    terminal = is_terminal(sys.stdout)
    out = Console(
        file=io.StringIO(),
        width=width_of(sys.stdout),
        force_terminal=terminal,
        markup=False,
        highlight=False,
        emoji=False,
    )
    yield out, terminal
    lines = out.file.getvalue().lstrip("\n").splitlines()
    screen = standard_output()  # whose styles `put` would escape
    screen.write("".join(line.rstrip() + "\n" for line in lines))
    screen.flush()


def put_panels(panels: Iterable[tuple[str, Rows]]) -> None:
    """Print titled lists of names with their descriptions."""
    with _page() as (out, terminal):
        for title, rows in panels:
            _print_panel(out, title, rows, terminal)


def _put_page(command: Any, ctx: Any, short: bool = False) -> None:
    about, examples = paragraphs(command.help), help_texts()["examples"].get(_name(ctx), ())
    with _page() as (out, terminal):
        out.print(f"Usage: {ctx.command_path} {usage(command)}", soft_wrap=True)
        for paragraph in about[:1] if short else about:
            out.print()
            out.print(paragraph)
        if short:
            _print_examples(out, examples)
        for title, rows in [*command_rows(command, ctx), *option_rows(command, ctx, short)]:
            _print_panel(out, title, rows, terminal)
        if not short:
            _print_examples(out, examples)
            return
        if note := help_texts()["notes"].get(_name(ctx)):
            out.print(f"\n{note}")
        number = sum(one.param_type_name == "option" for one in command.get_params(ctx))
        what = "lists the options" if number <= MOST_SHORT else f"lists all {number} options"
        out.print(f"\n{ctx.command_path} --help {what}.")


class CommandWithHelp(_Help, TyperCommand):
    """Click command with seqgen's help, and options whose number may be omitted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fill in omitted numbers, then parse the command-line arguments."""
        return super().parse_args(ctx, fill_in_numbers(args))

    def checked(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace other tools' names for options.

        Raises:
            UsageError: several models are named where one is meant.
            UsageProblem: there are too many arguments.
        """
        args = super().checked(ctx, args)
        values, extra, given = self.make_parser(ctx).parse_args(list(args))
        if extra:
            named = any(MODEL_FLAG in one.opts for one in given)
            first = (values[one.name] for one in given if one.param_type_name == "argument")
            every = [text for one in first for text in ([one] if isinstance(one, str) else one)]
            ctx.fail(too_many_arguments(self, [] if named else [*every, *extra], extra))
        models = [one for one in given if one.name == "model" and not one.multiple]
        if len(models) > 1:
            raise UsageError(f"{max(models[0].opts, key=len)} is given twice; it takes one name")
        return args


class CommandGroup(_Help, TyperGroup):
    """Click group with seqgen's help, and other tools' names for its commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is called, under its own name or another tool's.

        Raises:
            UsageError: there is none.
        """
        if not ctx.resilient_parsing:
            args = expand_command(args, self.commands, _name(ctx))
            if args and args[0] not in self.commands and not args[0].startswith("-"):
                raise unknown_command(args[0], self.commands, _name(ctx))
        return super().resolve_command(ctx, args)


def _name(ctx: Any) -> str:
    """Name a command without the program: "models show"; "" for the program itself."""
    return ctx.command_path.partition(" ")[2]


def paragraphs(text: str | None) -> list[str]:
    """Split a docstring into paragraphs, each joined into one line."""
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n") if part]


def usage(command: Any) -> str:
    """Format a command's usage without its name, as `[OPTIONS] DATA...`."""
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


def command_rows(command: Any, ctx: Any) -> list[tuple[str, Rows]]:
    """Build the help panels of a group: each subcommand with its summary."""
    rows: dict[str, Rows] = {}
    for name in command.list_commands(ctx) if isinstance(command, TyperGroup) else ():
        subcommand = command.get_command(ctx, name)
        panel = getattr(subcommand, "rich_help_panel", None)
        summary = next(iter(paragraphs(subcommand.help)), "")
        rows.setdefault(panel if panel in COMMAND_PANELS else "Commands", []).append(
            (name, summary)
        )
    return [(title, rows[title]) for title in COMMAND_PANELS if title in rows]


def option_rows(command: Any, ctx: Any, short: bool = False) -> list[tuple[str, Rows]]:
    """Build the help panels of a command: each argument and option with its description.

    The short help has the common options alone, in one panel, with the first sentence of each.
    """
    rows: dict[str, Rows] = {}
    known = _common_options(command)
    options = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    whole = not known or len(options) <= MOST_SHORT
    for parameter in options:
        if parameter.param_type_name == "argument":
            row = parameter.metavar or parameter.name.upper(), parameter.help or ""
            rows.setdefault(Panel.ARGUMENTS, []).append(row)
        elif not short or parameter.name in known or (whole and parameter.name not in HELP_NAMES):
            panel = getattr(parameter, "rich_help_panel", None)
            row = _names(parameter), _with_default(parameter, short)
            rows.setdefault(panel if panel in PANELS else Panel.OTHER, []).append(row)
    panels = [(title, rows[title]) for title in PANELS if title in rows]
    if not short:
        return panels
    flat = [row for title, panel in panels if title != Panel.ARGUMENTS for row in panel]
    arguments = [(title, panel) for title, panel in panels if title == Panel.ARGUMENTS]
    return [*arguments, ("Options", flat)] if flat and known else arguments


def _common_options(command: Any) -> set[str]:
    """List the names of the options shown in a command's short help."""
    groups = getattr(command.callback, "groups", ())
    return {name for one in groups for name, f, _ in one.flags() if f.metadata["flag"].common}


def _names(option: Any) -> str:
    """Format the spellings of an option: "-m, --model NAME", "    --greedy"."""
    longs = [name for name in option.opts if name.startswith("--")]
    long = " / ".join([*longs[:1], *option.secondary_opts])  # further ones are old spellings
    short = "".join(f"{name}, " for name in option.opts if name not in longs)
    short = short if long else f"  {short.removesuffix(', ')}"
    return f"{short:>4}{long}" + ("" if option.is_flag else f" {option.metavar or 'VALUE'}")


def _with_default(parameter: Any, short: bool = False) -> str:
    """Append the default to an option's help, unless it is off or empty."""
    shown, default = parameter.show_default, parameter.default
    text = parameter.help or ""
    text = re.split(r"(?<=[\w)])[.;] ", text)[0].removesuffix(".") + "." if short else text
    if isinstance(shown, str):
        value = shown
    elif shown is False or parameter.is_flag or default is None or callable(default):
        return text
    else:
        value = str(default)
    return f"{text} [default: {value}]"


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
    if examples:
        out.print("\nExamples:")
    for line, comment in examples:
        out.print(f"  # {comment}", style="dim")
        out.print(f"  {line}")


def manual_page(tree: Any) -> str:
    """Write the manual page as troff source (man macros).

    Args:
        tree: the commands, of Click.
    """
    top = _context(tree, None, "seqgen")
    lines = [
        f'.TH SEQGEN 1 "" "seqgen {__version__}" "User Commands"',
        ".SH NAME",
        "seqgen \\- train, sample and score language models of text",
        ".SH SYNOPSIS",
        ".B seqgen",
        ".I COMMAND",
        "[options] [arguments]",
        ".SH DESCRIPTION",
        _troff(tree.help),
        *_examples(""),
    ]
    for title, rows in command_rows(tree, top):
        lines += [f'.SH "{title.upper()} COMMANDS"']
        for name, _ in rows:
            lines += _command(tree.get_command(top, name), top, name)
    for name, topic in help_texts()["topics"].items():
        about = topic["about"]
        lines += [f'.SH "{name.upper()}"', _troff(about[0].upper() + about[1:] + ".")]
        lines += _as_typed(topic["text"].splitlines())
    return "\n".join(lines) + "\n"


def _context(command: Any, parent: Any, name: str) -> Any:
    return command.make_context(name, [], parent=parent, resilient_parsing=True)


def _command(command: Any, parent: Any, name: str) -> Iterator[str]:
    """Yield the troff lines for a command and its subcommands."""
    ctx = _context(command, parent, name)
    yield f'.SS "{_troff(ctx.command_path)} {_troff(usage(command))}"'
    for paragraph in paragraphs(command.help):
        yield from (".PP", _troff(paragraph))
    for _, rows in option_rows(command, ctx):
        for option, text in rows:
            if option.strip() not in ("-h", "--help"):
                yield from (".TP", f".B {_troff(option.strip())}", _troff(text))
    yield from _examples(_name(ctx))
    for inner in command.list_commands(ctx) if isinstance(command, TyperGroup) else ():
        yield from _command(command.get_command(ctx, inner), ctx, inner)


def _examples(name: str) -> Iterator[str]:
    for line, comment in help_texts()["examples"].get(name, ()):
        yield from (".PP", _troff(comment), *_as_typed([line], 2))


def _as_typed(lines: list[str], indent: int = 0) -> Iterator[str]:
    """Yield troff lines for text shown verbatim, indented by a number of columns."""
    yield from (f".RS {indent - 7}n", ".nf", *map(_troff, lines), ".fi", ".RE")


def _troff(text: str) -> str:
    """Escape text for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    text = text.replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    return f"\\&{text}" if text.startswith(".") else text
