"""`seqgen --man`: the manual page, made of the help of all commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqgen import __version__
from seqgen.cli.help import command_rows, help_texts, option_rows, paragraphs, usage


def page(tree: Any) -> str:
    """Return the manual page in the language of man(7).

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
        _text(tree.help),
        *_examples(""),
    ]
    for title, rows in command_rows(tree, top):
        lines += [f'.SH "{title.upper()} COMMANDS"']
        for name, _ in rows:
            lines += _command(tree.get_command(top, name), _context(tree, top, name, inner=True))
    for name, topic in help_texts()["topics"].items():
        about = topic["about"]
        lines += [f'.SH "{name.upper()}"', _text(about[0].upper() + about[1:] + ".")]
        lines += _as_typed(topic["text"].splitlines())
    return "\n".join(lines) + "\n"


def _context(tree: Any, parent: Any, name: str, inner: bool = False) -> Any:
    command = tree.get_command(parent, name) if inner else tree
    return command.make_context(name, [], parent=parent, resilient_parsing=True)


def _command(command: Any, ctx: Any) -> Iterator[str]:
    """Yield the lines of a command, and of its own commands."""
    yield f'.SS "{_text(ctx.command_path)} {_text(usage(command))}"'
    for paragraph in paragraphs(command.help):
        yield from (".PP", _text(paragraph))
    for _, rows in option_rows(command, ctx):
        for name, text in rows:
            if name.strip() in ("-h", "--help"):
                continue
            yield from (".TP", f".B {_text(name.strip())}", _text(text))
    yield from _examples(ctx.command_path.partition(" ")[2])
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        yield from _command(
            command.get_command(ctx, name), _context(command, ctx, name, inner=True)
        )


def _examples(name: str) -> Iterator[str]:
    for line, comment in help_texts()["examples"].get(name, ()):
        yield from (".PP", _text(comment), *_as_typed([line], 2))


def _as_typed(lines: list[str], indent: int = 0) -> Iterator[str]:
    """Yield lines as they are, not filled, from a column on: the widest fit 80 columns."""
    yield from (f".RS {indent - 7}n", ".nf", *map(_text, lines), ".fi", ".RE")


def _text(text: str) -> str:
    """Return text that troff shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    text = text.replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    return f"\\&{text}" if text.startswith(".") else text
