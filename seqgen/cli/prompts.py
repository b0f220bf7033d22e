"""What a command that writes goes on from: arguments, a file, or standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from seqgen.cli.inputs import Inputs, input_bytes, piped_input
from seqgen.cli.output import say
from seqgen.errors import UsageError


def check_prompts(prompts: list[str] | None, prompt_file: str | None) -> None:
    """Refuse prompts from two places.

    Raises:
        UsageError: there are both.
    """
    if prompts and prompt_file:
        raise UsageError("give prompts or --prompt-file, not both")


def given_or_piped(
    prompts: list[str] | None, prompt_file: str | None, quiet: bool
) -> tuple[Iterable[str], bool]:
    """Return the prompts, and whether they come by standard input, a line each.

    Given ones are a sequence: the default prompt, which is empty, if there is none.
    """
    if not prompts and not prompt_file and piped_input() is not None:
        return _piped(quiet), True
    return _given(prompts, prompt_file), False


def _given(prompts: list[str] | None, prompt_file: str | None) -> Sequence[str]:
    if prompt_file:
        return [Inputs().open_one(prompt_file).text()]
    return prompts or [""]


def _piped(quiet: bool) -> Iterable[str]:
    from seqgen.tasks.writing.prompts import Lines

    return Lines("standard input", _lines(quiet))


def _lines(quiet: bool) -> Iterator[str]:
    from seqgen.data.text import decode_blocks, lines

    empty = True
    for line in lines(decode_blocks(input_bytes(), "standard input")):
        empty = False
        yield line.removesuffix("\n")
    if empty and not quiet:
        say("standard input is empty: no prompt, no text")
