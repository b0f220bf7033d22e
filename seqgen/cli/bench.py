"""`seqgen bench`: measure speed on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.output import console, is_terminal, put_record, say

if TYPE_CHECKING:
    from seqgen.benchmarks.decode import Timing

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.command("decode")
def decode(
    tokens: Annotated[int, typer.Option(help="Tokens of each text.", min=1, max=255)] = 255,
    repeats: Annotated[int, typer.Option(help="Alternated runs of each.", min=1)] = 5,
    only: Annotated[
        str | None,
        typer.Option(help="Cases whose name contains this.", show_default=False),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write with models of random weights, and with plain baselines, in float32.

    The baselines are a loop over nn.LSTM, and the transformers package if it is installed. Each
    run of ours is followed by one of the baseline's; speeds and ratios are medians.
    """
    from seqgen.benchmarks.decode import measure

    timings = []
    for timing in measure(tokens, repeats, only):
        if json:
            put_record(timing)
        elif not quiet:
            say(f"measured {timing.case}" if timing.skipped is None else f"skipped {timing.case}")
        timings.append(timing)
    if not json:
        _table(timings)


def _table(timings: list[Timing]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE if is_terminal(sys.stdout) else None, pad_edge=False)
    names = ("case", "baseline", "tokens/s", "baseline's", "ratio", "of bandwidth limit")
    for name in names:
        left = name in ("case", "baseline")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for timing in timings:
        if timing.skipped is not None:
            table.add_row(timing.case, "skipped: " + timing.skipped)
            continue
        table.add_row(
            timing.case,
            timing.baseline,
            f"{timing.tokens_per_second:,.0f}",
            f"{timing.baseline_tokens_per_second:,.0f}",
            f"{timing.ratio:.2f}",
            f"{timing.bandwidth_fraction:.0%}",
        )
    console(sys.stdout).print(table)
