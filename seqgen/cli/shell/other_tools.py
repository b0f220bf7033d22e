"""Commands and options under the names that other tools have for them, and hints for wrong ones.

The names are in `seqgen.settings.other_tools`. The table is read only if a name is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from seqgen import hooks
from seqgen.cli.shell.flags import SETTING_OF
from seqgen.cli.shell.model_arguments import MODEL_FLAG, model_among
from seqgen.errors import UsageError, closest
from seqgen.settings.other_tools import Word, find_setting, settings_elsewhere, words_elsewhere
from seqgen.wording import first_names

# The base of every wrong-usage error, wherever this version of Typer keeps it.
UsageProblem = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
# Programs of other tools are called so, with a command after it.
PROGRAMS = re.compile(r"^(ct2|fairseq|hf|litgpt|llama|mlx-lm|onmt|transformers)[-.](?=.)")
# An option of more than one letter after a single dash.
LONG = re.compile(r"-[^-=][^=]")
SHORT_WORD = 4
# A hint names so many commands that have an option.
MOST_OWNERS = 2


def expand_command(arguments: list[str], known: Collection[str], group: str = "") -> list[str]:
    """Replace another tool's name for a command, if it means exactly the same as one of ours.

    Args:
        arguments: what was typed, the command first.
        known: the commands there are.
        group: the command that these belong to, such as models.
    """
    typed = next(iter(arguments), "-")
    if typed.startswith("-") or typed in known:
        return arguments
    name = _command_name(typed)
    same = [name, *_command_word(group, name).same]
    targets = [target.removeprefix(group).split() for target in same]
    own = next((one for one in targets if one[0] in known or one[0].startswith("-")), None)
    return arguments if own is None else [*own, *arguments[1:]]


def _command_name(typed: str) -> str:
    """Fold a command as typed: `onmt_train` and `llama-server` are train and server."""
    return PROGRAMS.sub("", typed.lower().replace("_", "-"))


def _command_word(group: str, name: str) -> Word:
    return words_elsewhere("commands").get(f"{group} {name}".strip(), Word())


def unknown_command(typed: str, known: Iterable[str], group: str = "") -> UsageError:
    """Build the error for an unknown command: what to do instead, or the closest name.

    Args:
        typed: the unknown command.
        known: the commands there are.
        group: the command that these belong to, such as models.
    """
    whole = f"{group} {typed}".strip()
    hooks.require_plugin(f"seqgen {whole}")
    if model_among([typed]):
        said = f"{typed} is a stored model: seqgen sample -m {typed} writes with it"
        return UsageError(f"there is no command {whole!r}; {said}")
    # A misspelled word of another tool, too: `fintune`. Short ones are close to anything.
    name, words = _command_name(typed), [w for w in words_elsewhere("commands") if w[SHORT_WORD:]]
    word = _command_word(group, closest(name, [*known, *words]) or name)
    if says := _command_word(group, name).says or word.says:
        return UsageError(f"there is no command {whole!r}: {says}")
    near = closest(typed, known)
    hint = "" if near is None else f"; did you mean {f'{group} {near}'.strip()!r}?"
    return UsageError(
        f"there is no command {whole!r}{hint} (try {f'seqgen {group}'.strip()} --help)"
    )


def with_own_options(command: Any, context: Any, arguments: Sequence[str]) -> list[str]:
    """Replace other tools' names for options that mean exactly the same as options of a command.

    Args:
        command: a command of Click.
        context: its context.
        arguments: what follows the command.

    Raises:
        UsageProblem: there is no such option; `option_name` is what was typed.
    """
    arguments = _with_two_dashes(arguments, {*flags_of(command)})
    while (error := _unknown_option(command, context, arguments)) is not None:
        typed = _typed(arguments, error.option_name)
        replaced = _replaced(command, arguments, typed)
        if replaced is None:
            error.message, error.possibilities = f"No such option: {typed}", None
            error.option_name = typed
            raise error
        arguments = replaced
    return arguments


def _with_two_dashes(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """Write `-model` and `-mix-lm` with two dashes: Click would read `-m odel` and `-m ix-lm`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    named = ((one, f"-{one}".partition("=")[0]) for one in arguments[:at])
    long = (
        f"-{one}" if LONG.match(one) and (name in flags or _is_known_elsewhere(name)) else one
        for one, name in named
    )
    return [*long, *arguments[at:]]


def _is_known_elsewhere(option: str) -> bool:
    words = (*words_elsewhere("options"), *settings_elsewhere())
    return _name(option) in {_name(word.split()[-1]) for word in words}


def _unknown_option(command: Any, context: Any, arguments: Sequence[str]) -> Any:
    """Return Click's error for the first unknown option; None if all are known."""
    try:
        command.make_parser(context).parse_args(list(arguments))
    except UsageProblem as error:
        # Other problems are reported when Click parses the arguments.
        return error if hasattr(error, "possibilities") else None
    return None


def _typed(arguments: Sequence[str], option: str) -> str:
    """Return the unknown option as typed: `-ngl`, which Click parses as `-n` and more."""
    flags = [argument.partition("=")[0] for argument in arguments]
    long = (flag for flag in flags if len(option) == 2 and flag.startswith(option))
    return option if option in flags else next(long, option)


def _replaced(command: Any, arguments: list[str], typed: str) -> list[str] | None:
    """Replace one option by ours; None if the command has none that means the same."""
    at = next((n for n, one in enumerate(arguments) if one.partition("=")[0] == typed), None)
    target = _same_option(command, typed)
    if at is None or target is None:
        return None
    _, equals, value = arguments[at].partition("=")
    before, after = arguments[:at], arguments[at + 1 :]
    if target.startswith("-"):
        return [*before, *target.split(), *([value] if equals else []), *after]
    if not equals:
        if not after:
            raise UsageError(f"{typed} needs a value")
        value, *after = after
    rest = [*before, *after]
    return [*rest, *([] if "--" in rest else ["--"]), value]  # which may begin with a dash


def _same_option(command: Any, typed: str) -> str | None:
    """Find the option or the argument of a command that means exactly what was typed."""
    flags = flags_of(command)
    arguments = [one.metavar for one in command.params if one.param_type_name == "argument"]
    known = {*flags, *((name or "").strip("[]").removesuffix("...") for name in arguments)}
    name = _name(typed)
    same = [f"--{name}", *_option_word(typed, command.name).same, _flag(find_setting(name))]
    return next((one for one in same if one.split()[0] in known), None)


def flags_of(command: Any) -> list[str]:
    """List the flags of a command of Click."""
    return [flag for one in command.params for flag in one.opts if flag.startswith("-")]


def too_many_arguments(command: Any, arguments: Sequence[str], extra: Sequence[str]) -> str:
    """Write that a command takes no further arguments, and which option they may be meant for.

    Args:
        command: of Click.
        arguments: what may be the name of a model: all arguments, unless a model is given.
        extra: the arguments too many.
    """
    what = f"unexpected argument{'s'[: len(extra) - 1]}: {' '.join(extra)}"
    flags = flags_of(command)
    if said := model_among(arguments) if MODEL_FLAG in flags else "":
        return f"{what}; {said}"
    if says := _option_word("argument", command.name).says:
        return f"{what}; {says}"
    return f"{what}; did you mean --out {extra[0]}?" if "--out" in flags else what


def _name(typed: str) -> str:
    name = typed.lstrip("-").replace("_", "-").removeprefix("train.")
    return name if len(name) == 1 else name.lower()


def _option_word(typed: str, command: str | None) -> Word:
    """Look up an option of other tools: as it is in one command of ours, or anywhere."""
    words, name = words_elsewhere("options"), _name(typed)
    return words.get(f"{command} {name}") or words.get(name, Word())


def _flag(setting: str) -> str:
    """Name the flag of a setting."""
    short = {setting: flag for flag, setting in SETTING_OF.items()}.get(setting, setting)
    return f"--{short.replace('_', '-')}"


def option_hint(
    command: Any, typed: str, commands: Callable[[], Mapping[str, Sequence[str]]]
) -> str:
    """Write what to give instead of an option that a command does not have.

    Args:
        command: of Click.
        typed: the option.
        commands: returns the flags of all commands, by name.
    """
    from seqgen.registry import architectures_with
    from seqgen.settings import DataConfig
    from seqgen.settings.training import BUDGETS, TrainingConfig

    if Path(typed).exists():
        return f"; the file of this name is ./{typed}"
    if plugin := hooks.missing_plugin(typed):
        return f"; it belongs to the plugin {plugin}, which is not installed"
    flags = flags_of(command)
    word, meant = _option_word(typed, command.name), find_setting(_name(typed))
    near = [*word.near, _flag(meant)]
    if meant in BUDGETS:  # which are no settings where a command has budgets of its own
        near += [flag for name in BUDGETS for flag in flags if flag.endswith(f"-{name}")]
    if flag := next((flag for flag in near if flag.split()[0] in flags), None):
        return f"; did you mean {flag}?"
    settings = {*TrainingConfig.fields(), *DataConfig.fields()}
    if "--set" in flags and (meant in settings or architectures_with(meant)):
        return f"; set it by --set {meant}=VALUE"
    if word.says and "--man" not in flags:
        return f"; {word.says}"
    if close := closest(typed, [flag for flag in flags if flag.startswith("--")]):
        return f"; did you mean {close}?"
    if "--man" in flags:  # those of the program itself
        return "; options come after a command: seqgen sample PROMPT -m NAME"
    for flag in (*word.same, *word.near, _flag(meant)):
        owners = [name for name, own in commands().items() if flag.split()[0] in own]
        if owners:
            return f"; {flag} is an option of seqgen {first_names(owners, MOST_OWNERS)}"
    return ""
