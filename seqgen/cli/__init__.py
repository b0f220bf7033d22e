"""The command line: one module per subcommand. Imports torch only when a command needs it."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import typer

from seqgen import __version__, _interrupted_line, hooks, ranks
from seqgen.cli.shell import recording
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import (
    ABOUT,
    MEASURE,
    STORED,
    TEXTS,
    TRAIN,
    WRITE,
    CommandGroup,
    CommandWithHelp,
    manual_page,
    width_of,
)
from seqgen.cli.shell.other_tools import (
    UsageProblem,
    expand_command,
    flags_of,
    option_hint,
    unknown_command,
)
from seqgen.cli.shell.output import announce, forget_announced, is_terminal, put, say, say_announced
from seqgen.cli.shell.process import prepare
from seqgen.errors import Interrupted, SeqgenError, UsageError, first_line, ran_out_of_memory
from seqgen.hooks import Command
from seqgen.registry import load_object
from seqgen.settings import Options, Panel, setting

# Characters of a message, which may name a file or repeat an argument.
LONGEST = 1000
# A variable of the environment that a report of a fault is written with.
SHOW_TRACEBACK = "SEQGEN_TRACEBACK"

# A variable that a shell sets when it asks for completions.
COMPLETION = "_SEQGEN_COMPLETE"

# The commands of the core. Those of plugins stand beside them; only what is called is imported.
COMMANDS = {
    "train": Command("train:train", TRAIN, work="steps"),
    "mix": Command("mix:mix", TRAIN),
    "sample": Command("sample:sample", WRITE, work="tokens"),
    "beam-search": Command("beam_search:beam_search", WRITE, work="tokens"),
    "perplexity": Command("perplexity:perplexity", MEASURE, work="steps"),
    "eval": Command("evaluate:evaluate", MEASURE, work="steps"),
    "compare": Command("compare:compare", MEASURE, work="steps"),
    "bleu": Command("bleu:bleu", MEASURE),
    "tokenize": Command("tokenize:tokenize", TEXTS, work="reads"),
    "models": Command("models:app", STORED),
    "plugins": Command("plugins:plugins", ABOUT),
    "help": Command("help:help_", ABOUT),
}


def all_commands() -> dict[str, Command]:
    """List the commands of the core and of plugins, by name.

    The target of each is "module:name", with the whole name of the module.
    """
    core = {name: replace(one, target=f"seqgen.cli.{one.target}") for name, one in COMMANDS.items()}
    added = {}
    for name, (plugin, one) in hooks.by_name("commands").items():
        if name in core:
            hooks.note_problem(
                f"plugin {plugin.title}: its command {name} is left out: seqgen has one of this "
                "name"
            )
        elif " " not in name:  # else of a group, which adds it; see `make_app`
            added[name] = replace(one, target=f"{plugin.module}.{one.target}")
    return core | added


class ProgramOptions(Options, panel=Panel.OTHER):
    """Options of `seqgen` itself, given without a command: --version and --man."""

    version: bool = setting("Print the version.")
    man: bool = setting("Print the manual page: `seqgen --man > seqgen.1 && man ./seqgen.1`.")


@takes_options
def _program(asked: ProgramOptions) -> None:
    """Train a language model on your text, write with it, and score text with it."""


class AllCommands(CommandGroup):
    """Top-level Click group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Handle --version and --man, or run the command."""
        if ctx.params["version"]:
            put(f"seqgen {__version__}\n")
        elif ctx.params["man"]:
            put(manual_page(_tree(None)))
        else:
            return super().invoke(ctx)


def make_app(only: str | None = None) -> typer.Typer:
    """Build the Typer application with one command or with all of them.

    Args:
        only: the one command to make; None for all.
    """
    app = typer.Typer(
        name="seqgen",
        cls=AllCommands,
        help="Train a language model on your text, write with it, and score text with it.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)
    for name, row in all_commands().items():
        if only in (None, name) and (command := _loaded(name, row, only)) is not None:
            if isinstance(command, typer.Typer):
                _add_subcommands(command, name)
                app.add_typer(command, name=name, rich_help_panel=row.panel)
            else:
                app.command(name, cls=CommandWithHelp, rich_help_panel=row.panel)(command)
    return app


def _add_subcommands(group: typer.Typer, name: str) -> None:
    """Add the commands that plugins add to a group, such as `models`."""
    known = {"", *(one.name or one.callback.__name__ for one in group.registered_commands)}
    for whole, (_, row) in hooks.by_name("commands").items():
        outer, _, inner = whole.partition(" ")
        if outer != name or inner in known:
            continue
        if (command := _loaded(whole, row, None)) is not None:
            group.command(inner, cls=CommandWithHelp)(command)


def _loaded(name: str, row: Command, only: str | None) -> Any:
    """Import the function of a command; return None for a plugin's that cannot be imported.

    Raises:
        SeqgenError: the same, and it is the one that is called.
    """
    if name in COMMANDS:
        return load_object(row.target)
    plugin, command = hooks.by_name("commands")[name]
    try:
        return plugin.load(command.target)
    except hooks.FAULTS as error:
        if only is not None and _shows_tracebacks():
            raise
        problem = plugin.problem(f"its command {name}", error)
        if only is not None:
            raise SeqgenError(problem) from None
        hooks.note_problem(problem)
        return None


@functools.cache
def _tree(only: str | None) -> Any:
    """Build the tree of Click commands, cached; building all of them takes a tenth of a second."""
    return typer.main.get_command(make_app(only))


def command_tree_for(arguments: list[str]) -> Any:
    """Build the command tree for these arguments: one command, or all for help or a wrong name."""
    first = next(iter(arguments), None)
    if first is not None and not first.startswith("-") and first not in all_commands():
        raise unknown_command(first, all_commands())
    known = first in {"--version", "--man", *all_commands()}
    return _tree(first if known else None)


def outputs_of(name: str) -> dict[str, str]:
    """List a command's flags that name output files, by option name."""
    command = load_object(all_commands()[name].target)
    return {
        name: f"--{name.replace('_', '-')}"
        for group in command.groups
        for name, field, _ in group.flags()
        if field.metadata["flag"].writes
    }


def main() -> int:
    """Run the command in sys.argv and return the exit code."""
    arguments = expand_command(sys.argv[1:], all_commands())
    called = all_commands().get(next(iter(arguments), ""))
    prepare(called.work if called else "")
    return run(arguments)


def run(arguments: list[str], tree: Any = None, name: str = "seqgen") -> int:
    """Run one command, print any error as one line on standard error, and return the exit code.

    Args:
        arguments: what was typed after the program's name.
        tree: the commands, of Click; those of seqgen if None.
        name: the program's.
    """
    try:
        if tree is None:
            arguments = expand_command(arguments, all_commands())
        arguments = translate_former_spelling(arguments)
        recording.begin(arguments)
        command = command_tree_for(arguments) if tree is None else tree
        _say_problems_of_plugins(arguments)
        code = command(arguments, prog_name=name, standalone_mode=False)
        say_announced()
        if sys.stdout is not None:
            sys.stdout.flush()
        code = code if isinstance(code, int) else 0
        if code == Interrupted.exit_code:  # newer versions of Typer make an exit of the interrupt
            say(f"seqgen: {_interrupted_line(arguments)}")
        return code
    except SeqgenError as error:
        _say_problems_of_plugins(arguments)
        # Of several processes, all find the same fault with their arguments: the first says it.
        if ranks.is_leader() or not isinstance(error, UsageError):
            message = _vanished(error) or _with_flags(error, arguments)
            _say_problem(f"seqgen: {_line(message)}")
        return error.exit_code
    except (BrokenPipeError, SystemExit) as error:
        # Typer makes an exit with 1 of a closed pipe, whatever its mode.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # Whoever read the output has seen enough. Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UsageProblem as error:
        if ranks.is_leader():
            _show_usage_problem(error)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say(f"seqgen: {_interrupted_line(arguments)}")
        return Interrupted.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say_problem(f"seqgen: {_line(_vanished(error) or f'{where}{error.strerror or error}')}")
        return 1
    except Exception as error:
        if _shows_tracebacks():
            raise
        say(f"seqgen: {_unforeseen(error)}")
        return 1
    finally:
        _say_problems_of_plugins(arguments)
        forget_announced()


def _say_problems_of_plugins(arguments: list[str]) -> None:
    """Print warnings about faulty plugins once each, unless --quiet is given."""
    quiet = bool({"-q", "--quiet"} & {*arguments}) or COMPLETION in os.environ
    for problem in hooks.new_problems():
        if not quiet and ranks.is_leader():
            say(f"seqgen: {_line(problem)}")


def translate_former_spelling(arguments: list[str]) -> list[str]:
    """Translate the former spelling of a command to the current one, and announce the new spelling.

    `help COMMAND` is COMMAND --help.
    """
    command, *rest = arguments or [""]
    if command == "help" and rest and rest[0] in all_commands():
        return [*rest, "--help"]
    for at, (flag, equals, value) in enumerate(one.partition("=") for one in rest):
        if flag == "--":
            break
        if (command, flag) in hooks.former_flags():
            name, renamed = hooks.former_flags()[command, flag]
            if not {"-q", "--quiet"} & {*rest}:
                announce(
                    f"seqgen {command} {flag} is now seqgen {f'{name} {renamed}'.strip()}; "
                    "the old spelling is for this release alone"
                )
            rest[at : at + 1] = [renamed + equals + value] if renamed else []
            return [name, *rest]
    return arguments


def _say_problem(line: str) -> None:
    """Print an error message: wrapped at words on a terminal, otherwise on one line."""
    wrapped = is_terminal(sys.stderr)
    say(textwrap.fill(line, width_of(sys.stderr), break_on_hyphens=False) if wrapped else line)


def _line(message: str) -> str:
    """Escape newlines in a message and shorten it if it is too long."""
    message = message.replace("\n", "\\n").replace("\r", "\\r")
    if len(message) <= LONGEST:
        return message
    return f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"


def _vanished(error: BaseException | None) -> str | None:
    """Explain a missing file if its model's folder was removed during the command; else None."""
    while error is not None and not (isinstance(error, FileNotFoundError) and error.filename):
        error = error.__context__
    if error is None:
        return None
    from seqgen.store import layout

    path = Path(os.fsdecode(error.filename))
    parts = {PurePath(file).parts[0] for file in layout.known_files()}
    for folder in path.parents:
        if path.relative_to(folder).parts[0] in parts and not folder.exists():
            return (
                f"{folder} was removed or renamed while it was in use; seqgen models lists the "
                "stored models"
            )
    return None


def _shows_tracebacks() -> bool:
    return os.environ.get(SHOW_TRACEBACK, "0") not in ("", "0")


def _unforeseen(error: Exception) -> str:
    """Format an unexpected exception as one line: out of memory, or an internal error."""
    if ran_out_of_memory(error):
        return "out of memory; try a smaller model, or smaller batches and windows"
    return (
        f"internal error, which is a fault of seqgen: {type(error).__name__}: "
        f"{first_line(error)} (with {SHOW_TRACEBACK}=1 it shows where)"
    )


def _with_flags(error: SeqgenError, arguments: list[str]) -> str:
    """Replace setting names in an error message by the flags that the user typed."""
    from seqgen.cli.shell.flags import SETTING_OF
    from seqgen.settings.other_tools import find_setting

    message = str(error)
    if not isinstance(error, UsageError):
        return message
    options = itertools.takewhile(lambda argument: argument != "--", arguments)
    for flag in (argument.partition("=")[0] for argument in options):
        name = flag.removeprefix("--").replace("-", "_")
        name = find_setting(SETTING_OF.get(name, name))
        if flag.startswith("--") and "_" in name:
            message = re.sub(rf"(?<!--set )(?<![\w/.-]){re.escape(name)}(?![\w/-])", flag, message)
    return message


def _flags_of_commands() -> dict[str, list[str]]:
    """List the flags of all commands, by name."""
    return {name: flags_of(command) for name, command in _tree(None).commands.items()}


def _show_usage_problem(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    if hasattr(error, "possibilities") and context:
        error.message += option_hint(context.command, error.option_name, _flags_of_commands)
    if is_terminal(sys.stderr):
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().rstrip("\n"))
        return
    command = context.command_path if context else "seqgen"
    message = " ".join(error.format_message().split())
    if not message:  # help was shown instead
        return
    say(f"{command}: {_line(message)} (try {command} --help)")
