"""`seqgen restore`: restore corrupted lines by an associative memory."""

from __future__ import annotations

from typing import Annotated

import typer

from seqgen.cli import options
from seqgen.cli.help import SEARCH, flag
from seqgen.cli.inputs import piped_input
from seqgen.cli.output import one_line, put, put_record, say
from seqgen.cli.prompts import piped_lines
from seqgen.errors import UsageError

# How a line that did not settle ended.
UNSETTLED = {
    "cycle": "goes back and forth between two states; try it without --synchronous",
    "limit": "did not settle",
}


def restore(
    lines: Annotated[
        list[str] | None,
        typer.Argument(
            help="Line to restore; each argument is one. If text is piped in, each of its lines "
            "is restored.",
            metavar="LINE",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    synchronous: Annotated[
        bool,
        flag(
            "--synchronous",
            SEARCH,
            "Update all units at once. By default they are updated one at a time, in random "
            "order, and the energy never rises.",
        ),
    ] = False,
    seed: options.FixedSeed = 0,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Restore corrupted lines with a Hopfield network that has stored them.

    The model is one of `seqgen train LINES --model hopfield`. Characters that it does not know,
    and those that are missing at the end of a line, stand for any. --json also shows the energy
    of the network after each sweep.
    """
    from seqgen.commands.writing.restore import load_memory
    from seqgen.commands.writing.restore import restore as restored

    if not lines and piped_input() is None:
        raise UsageError("give a line to restore, or pipe lines in")
    memory = load_memory(model)
    texts = lines or piped_lines("nothing to restore", quiet)
    for record in restored(memory, texts, synchronous=synchronous, seed=seed):
        if json:
            put_record(record)
        else:
            put(one_line(record.text) + "\n")
        if record.ended in UNSETTLED and not quiet:
            say(f"line {record.index + 1} {UNSETTLED[record.ended]}")
