"""`seqgen sample --interactive`: a prompt a line, with history; the model is loaded once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator

from seqgen.cli.output import is_terminal, put, say
from seqgen.errors import SeqgenError, UsageError

PROMPT = "> "
# No line that can be typed.
FORGOTTEN = "\n"
# Returns the pieces of a text: of a prompt, the n-th one of the session.
Write = Callable[[str, int], Iterable[str]]


def check_terminal() -> None:
    """Refuse to ask where nobody can answer.

    Raises:
        UsageError: standard input or standard output is no terminal.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError("--interactive needs a terminal; pipe prompts in without it, one a line")


def converse(write: Write, quiet: bool) -> None:
    """Continue each prompt that is typed, until Ctrl-D.

    Ctrl-C stops the text that is being written, or forgets the line that is being typed.

    Args:
        write: writes a text, piece by piece.
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
        except SeqgenError as error:  # such as an unknown character: the next prompt may do
            say(f"seqgen: {error}")
        put("\n")


def _prompts() -> Iterator[str]:
    """Yield the lines that are typed; the arrow keys bring back earlier ones."""
    with contextlib.suppress(ImportError):  # Windows has history without it
        import readline  # noqa: F401
    while (line := _typed()) is not None:
        if line != FORGOTTEN:
            yield line


def _typed() -> str | None:
    """Return the next line: None for Ctrl-D, and `FORGOTTEN` for Ctrl-C."""
    try:
        return input(PROMPT)
    except KeyboardInterrupt:
        put("\n")
        return FORGOTTEN
    except EOFError:
        put("\n")
        return None
