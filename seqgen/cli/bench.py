"""`seqgen bench`: measure speed on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.inputs import file_path
from seqgen.cli.output import console, is_terminal, put_record, say, standard_output
from seqgen.configs import PRECISIONS, choice, require

if TYPE_CHECKING:
    from seqgen.benchmarks.decode import Timing
    from seqgen.benchmarks.train import Timing as TrainTiming

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
    rows = []
    for timing in timings:
        if timing.skipped is not None:
            rows.append([timing.case, "skipped: " + timing.skipped])
            continue
        rows.append(
            [
                timing.case,
                timing.baseline,
                f"{timing.tokens_per_second:,.0f}",
                f"{timing.baseline_tokens_per_second:,.0f}",
                f"{timing.ratio:.2f}",
                f"{timing.bandwidth_fraction:.0%}",
            ]
        )
    _print_table(("tokens/s", "baseline's", "ratio", "of bandwidth limit"), rows)


def _print_table(figures: tuple[str, ...], rows: list[list[str]]) -> None:
    """Print rows of a case, its baseline, and so many figures."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE if is_terminal(sys.stdout) else None, pad_edge=False)
    for name in ("case", "baseline"):
        table.add_column(name, no_wrap=True)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console(standard_output()).print(table)


@app.command("train")
def train(
    text: Annotated[
        Path | None,
        typer.Argument(
            help="The text of --recipe.", parser=file_path, metavar="TEXT", show_default=False
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Instead: train the plain baseline `gpt` in full on TEXT.", show_default=False
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of --recipe.", min=1)] = 2000,
    seconds: Annotated[float, typer.Option(help="Length of a run.", min=0.1)] = 2.0,
    repeats: Annotated[int, typer.Option(help="Alternated runs of each.", min=1)] = 3,
    only: Annotated[
        str | None,
        typer.Option(help="Cases whose name contains this.", show_default=False),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="Ours: adamw or muon.")] = "adamw",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train each architecture beside plain PyTorch of the same shape in float32.

    Each run of ours is followed by one of the baseline's; speeds and ratios are medians. With
    --recipe gpt, run nanoGPT's recipe for a laptop to its end (two minutes on two cores): its
    time and validation loss are what `seqgen train TEXT --minutes M` is to be compared with.
    """
    if recipe is not None:
        choice("--recipe", recipe, ["gpt"])
        require(text is not None, "--recipe needs a TEXT to train on")
        _recipe(text, steps, json, quiet)
        return
    require(text is None, "TEXT is for --recipe; the timings use random tokens")
    choice("--precision", precision, PRECISIONS)
    choice("--optimizer", optimizer, ["adamw", "muon"])
    from seqgen.benchmarks.train import measure

    timings = []
    for timing in measure(seconds, repeats, only, precision, optimizer, device):
        if json:
            put_record(timing)
        elif not quiet:
            say(f"measured {timing.case}")
        timings.append(timing)
    if not json:
        _train_table(timings)


def _recipe(text: Path, steps: int, json: bool, quiet: bool) -> None:
    from seqgen.benchmarks.gpt import plain_gpt

    def report(step: int, loss: float) -> None:
        if not quiet:
            say(f"step {step}  loss {loss:.4f}")

    result = plain_gpt(text, steps, report=report)
    if json:
        put_record(result)
        return
    console(standard_output()).print(
        f"plain GPT: {result.steps} steps in {result.seconds:.1f} s, "
        f"validation loss {result.val_loss:.4f} nats/character"
    )


def _train_table(timings: list[TrainTiming]) -> None:
    names = ("tokens/s", "baseline's", "ratio", "GFLOP/s", "of peak", "memory")
    _print_table(
        names,
        [
            [
                timing.case,
                f"{timing.baseline}, float32",
                f"{timing.tokens_per_second:,.0f}",
                f"{timing.baseline_tokens_per_second:,.0f}",
                f"{timing.ratio:.2f}",
                f"{timing.gflops:,.0f}",
                f"{timing.gflops / timing.matmul_gflops:.0%}",
                "" if timing.peak_memory is None else f"{timing.peak_memory / 1e6:,.0f} MB",
            ]
            for timing in timings
        ],
    )
