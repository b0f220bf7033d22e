"""`seqgen fill`: tell what stands in the blanks of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from seqgen.cli import options
from seqgen.cli.help import OUTPUT, value
from seqgen.cli.inputs import piped_input
from seqgen.cli.output import one_line, put, put_record
from seqgen.cli.prompts import piped_lines, say_unknown
from seqgen.cli.tables import figure
from seqgen.errors import UsageError


def fill(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text with [MASK] in the place of each token to tell; each argument is one. If "
            "text is piped in, each of its lines is one.",
            metavar="TEXT",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    top: Annotated[
        int | None,
        value(
            "N",
            OUTPUT,
            "List the N most probable tokens for each [MASK], with their probabilities. By default "
            "the text is written with the most probable one.",
            min=1,
            default=False,
        ),
    ] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fill in the blanks of a text: the tokens that [MASK] stands for.

    The model is one of `seqgen train TEXT --model bert`. Each blank is told by what stands before
    and after it. With --top each line is a probability, a tab and a token; blanks follow one
    another in the order of the text, N lines each.
    """
    from seqgen.commands.masked.fill import fill as filled
    from seqgen.commands.masked.load import load_masked
    from seqgen.data.text import unix_newlines

    if not texts and piped_input() is None:
        raise UsageError("give a text with [MASK] in it, or pipe lines in")
    loaded = load_masked(model, device)
    lines = texts or piped_lines("nothing to fill in", quiet, unix_newlines)
    for record in filled(loaded, lines, top or 1):
        say_unknown(record.unknown, quiet, "text")
        if json:
            put_record(record)
        elif top is None:
            put(one_line(record.filled) + "\n")
        else:
            for tokens, probabilities in zip(record.tokens, record.probabilities, strict=True):
                for token, probability in zip(tokens, probabilities, strict=True):
                    put(f"{figure(probability)}\t{one_line(token)}\n")
