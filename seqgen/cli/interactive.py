"""`seqgen sample --interactive`: reads one prompt per line, with history; loads the model once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator

from seqgen.cli.output import is_terminal, put, say
from seqgen.errors import SeqgenError, UsageError

PROMPT = "> "
# Stands for a line that Ctrl-C discarded. Nobody can type it: a typed line has no newline.
DISCARDED = "\n"
# (prompt, its number in the session from 0) -> the pieces of the text that continues it.
Write = Callable[[str, int], Iterable[str]]


def check_terminal() -> None:
    """Refuse to start where nobody can type a prompt.

    Raises:
        UsageError: standard input or standard output is no terminal.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError("--interactive needs a terminal; pipe prompts in without it, one a line")


def converse(write: Write, quiet: bool) -> None:
    """Continue each prompt that is typed, until Ctrl-D.

    Ctrl-C stops the text that is being written, or discards the line that is being typed.

    Args:
        write: returns the pieces of a text.
        quiet: do not explain the keys.
    """
    if not quiet:
        say("Type a prompt. Ctrl-C stops a text; Ctrl-D ends.")
    for number, prompt in enumerate(_prompts()):
        try:
            for piece in write(prompt, number):
                put(piece)
        except KeyboardInterrupt:
            pass  # back to the prompt
        except SeqgenError as error:  # such as an unknown character; the session goes on
            say(f"seqgen: {error}")
        put("\n")


def _prompts() -> Iterator[str]:
    """Yield the lines that are typed; the arrow keys bring back earlier ones."""
    with contextlib.suppress(ImportError):  # Windows has history without it
        import readline  # noqa: F401
    while (line := _typed()) is not None:
        if line != DISCARDED:
            yield line


def _typed() -> str | None:
    """Return the next line: None for Ctrl-D, and `DISCARDED` for Ctrl-C."""
    try:
        return input(PROMPT)
    except KeyboardInterrupt:
        put("\n")
        return DISCARDED
    except EOFError:
        put("\n")
        return None
