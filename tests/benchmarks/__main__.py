"""Measure seqgen beside plain baselines, and repeat small experiments of lectures.

From the root of a checkout: `python -m tests.benchmarks`. docs/benchmarks.md has the figures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen import cli
from seqgen.cli import completion, options
from seqgen.cli.curve import curve
from seqgen.cli.help import Command, Group, value
from seqgen.cli.inputs import file_path
from seqgen.cli.numbers import listed_numbers
from seqgen.cli.output import put, put_record, say
from seqgen.cli.tables import byte_size, count, duration, figure, percentage, put_table
from seqgen.configs import MOST_RATE, PRECISIONS, choice, require
from seqgen.configs.options import LENGTH, MEASURED
from seqgen.wording import plural

if TYPE_CHECKING:
    from .decode import Timing
    from .points import ThetaPath
    from .train import Timing as TrainTiming

# Of `bench hmm`; their table alone fills 128 MB.
MOST_STATES = 4096

app = typer.Typer(
    cls=Group,
    help="Measure seqgen beside plain baselines, and repeat small experiments of lectures.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Only = Annotated[
    str | None,
    value(
        "TEXT",
        MEASURED,
        "Measure only cases whose name contains this; with `cell`, every recurrent cell beside an "
        "LSTM with as many parameters.",
        default=False,
    ),
]


@app.command("decode", cls=Command)
def decode(
    tokens: Annotated[
        int, value("N", LENGTH, "Number of tokens in each text.", min=1, max=255)
    ] = 255,
    repeats: Annotated[int, value("N", LENGTH, "Number of runs of each case.", min=1)] = 5,
    only: Only = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare the writing speed of seqgen with plain baselines, in float32, bf16 and int8.

    The name of a case ends in its precision, unless that is float32. All models have random
    weights. The baselines are a loop over nn.LSTM, and the packages transformers and CTranslate2
    if they are installed, in float32 or as their column says. Runs of seqgen and of the baseline
    alternate; speeds and ratios are medians.
    """
    import torch

    from seqgen.commands.machine import choose_products

    from .decode import measure

    choose_products(torch.device("cpu"))  # as every command that writes does
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
            rows.append([timing.case, f"skipped: {timing.skipped}", "", "", "", ""])
            continue
        rows.append(
            [
                timing.case,
                timing.baseline,
                count(timing.tokens_per_second),
                count(timing.baseline_tokens_per_second),
                figure(timing.ratio, 2),
                percentage(timing.bandwidth_fraction, 0),
            ]
        )
    names = ("case", "baseline", "tokens/s", "baseline's", "ratio", "of bandwidth limit")
    put_table(names, rows, left=2)


@app.command("train", cls=Command)
def train(
    text: Annotated[
        Path | None,
        typer.Argument(
            help="Text to train on with --recipe.",
            parser=file_path,
            metavar="[TEXT]",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        value(
            "NAME",
            MEASURED,
            "Train the plain baseline `gpt` on TEXT to its end, instead of timing steps.",
            default=False,
            complete=completion.one_of("gpt"),
        ),
    ] = None,
    steps: Annotated[int, value("N", LENGTH, "Number of steps of --recipe.", min=1)] = 2000,
    seconds: Annotated[float, value("X", LENGTH, "Length of each run, in seconds.", min=0.1)] = 2.0,
    repeats: Annotated[int, value("N", LENGTH, "Number of runs of each case.", min=1)] = 3,
    only: Only = None,
    optimizer: Annotated[
        str,
        value(
            "adamw|muon",
            MEASURED,
            "Optimizer of seqgen's models; the baselines use AdamW.",
            complete=completion.one_of("adamw", "muon"),
        ),
    ] = "adamw",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare the training speed of seqgen with plain PyTorch in float32, at equal sizes.

    Runs of seqgen and of the baseline alternate; speeds and ratios are medians. --recipe gpt
    instead trains nanoGPT's recipe for a CPU to its end (two minutes on two cores): compare its
    time and validation loss with those of `seqgen train TEXT --minutes M`.
    """
    if recipe is not None:
        choice("--recipe", recipe, ["gpt"])
        require(text is not None, "--recipe needs a TEXT to train on")
        _recipe(text, steps, json, quiet)
        return
    require(text is None, "TEXT is for --recipe; the timings use random tokens")
    choice("--precision", precision, PRECISIONS)
    choice("--optimizer", optimizer, ["adamw", "muon"])
    from seqgen.commands.machine import choose_products
    from seqgen.models.engines.precision import choose_device

    from .train import measure

    choose_products(choose_device(device))  # as training does
    timings = []
    for timing in measure(seconds, repeats, only, precision, optimizer, device):
        if json:
            put_record(timing)
        elif not quiet:
            say(f"measured {timing.case}")
        timings.append(timing)
    if not json:
        _train_table(timings)


@app.command("hopfield", cls=Command)
def hopfield(
    units: Annotated[int, value("N", MEASURED, "Number of units.", min=2, max=10_000)] = 1000,
    flipped: Annotated[
        float, value("X", MEASURED, "Share of the bits that are flipped.", min=0, max=1)
    ] = 0.2,
    patterns: Annotated[
        int, value("N", LENGTH, "Number of patterns that are restored at each load.", min=1)
    ] = 20,
    seed: options.FixedSeed = 0,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure how many random patterns a Hopfield network restores, by its load.

    A pattern counts as restored if 97 percent of its bits or more come out right. Units are updated
    one at a time.
    """
    from .hopfield import measure

    rows = []
    for load in measure(units, flipped, patterns, seed):
        if json:
            put_record(load)
        elif not quiet:
            say(f"restored {plural(load.tried, 'pattern')} of {count(load.patterns)}")
        rows.append(
            [
                figure(load.load, 2),
                count(load.patterns),
                percentage(load.restored, 0),
                percentage(load.right),
            ]
        )
    if not json:
        put_table(("patterns per unit", "patterns", "restored", "bits right"), rows, left=0)


@app.command("hmm", cls=Command)
def hmm(
    states: Annotated[
        str, value("N,N,...", MEASURED, "Numbers of states.")
    ] = "8,16,32,64,128,256,512",
    repeats: Annotated[int, value("N", LENGTH, "Number of runs of each case.", min=1)] = 3,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure what a token costs a hidden Markov model, by its number of states.

    Processor time is shown, the least of some runs: for scoring 64 texts side by side, and for
    an iteration of training.
    """
    from .hmm import measure

    numbers = listed_numbers("--states", states, MOST_STATES, "8,64")
    rows = []
    for cost in measure(numbers, repeats):
        if json:
            put_record(cost)
        elif not quiet:
            say(f"measured {plural(cost.states, 'state')}")
        rows.append([count(cost.states), figure(cost.scoring, 2), figure(cost.training, 2)])
    if not json:
        put_table(("states", "scoring, us/token", "training, us/token"), rows, left=0)


def _recipe(text: Path, steps: int, json: bool, quiet: bool) -> None:
    from .gpt import plain_gpt

    def report(step: int, loss: float) -> None:
        if not quiet:
            say(f"step {count(step)}  loss {figure(loss)}")

    result = plain_gpt(text, steps, report=report)
    if json:
        put_record(result)
        return
    put(
        f"plain GPT: {plural(result.steps, 'step')} in {duration(result.seconds)}, "
        f"validation loss {figure(result.val_loss)} nats/character\n"
    )


def _train_table(timings: list[TrainTiming]) -> None:
    names = ("case", "baseline", "tokens/s", "baseline's", "ratio", "GFLOP/s", "of peak", "memory")
    rows = [
        [
            timing.case,
            f"{timing.baseline}, float32",
            count(timing.tokens_per_second),
            count(timing.baseline_tokens_per_second),
            figure(timing.ratio, 2),
            count(timing.gflops),
            percentage(timing.gflops / timing.matmul_gflops, 0),
            "" if timing.peak_memory is None else byte_size(timing.peak_memory),
        ]
        for timing in timings
    ]
    put_table(names, rows, left=2)


@app.command("points", cls=Command)
def points(
    steps: Annotated[int, value("N", LENGTH, "Number of steps of each rule.", min=1)] = 100,
    lr: Annotated[
        float, value("X", MEASURED, "The rate alpha_0 of every rule.", min=1e-9, max=MOST_RATE)
    ] = 0.5,
    plot: options.Picture = None,
    seed: options.FixedSeed = 0,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Watch every update rule on a problem of one number: the mean of 21 points.

    Minimises the mean of (x - theta)^2 over x = -10 ... 10 from theta = -20, with the full
    gradient and with that of one random point a step. All rules draw the same points.
    """
    from seqgen.cli.outputs import check_picture

    from .points import measure

    place = None if plot is None else check_picture(plot, [])
    paths_taken = measure(steps, lr, seed)
    if place is not None:
        from seqgen.report.pictures import draw_lines

        paths = {_told(path): list(enumerate(path.path)) for path in paths_taken}
        draw_lines(place, paths, "step", "theta", log="", marker="")
    if json:
        for path in paths_taken:
            put_record(path)
        return
    rows = [
        [*_whose(path), figure(path.final), figure(path.final_loss), figure(path.mean_distance)]
        for path in paths_taken
    ]
    put_table(["rule", "gradient", "rate", "theta", "loss", "mean |theta|"], rows, left=3)
    full, constant, falling = (list(enumerate(path.path)) for path in paths_taken[:3])
    marks = "o full gradient, . one point at a time, + the same with alpha_0/(1+k)"
    lines = curve([(".", constant), ("+", falling), ("o", full)])
    put("\n".join(["", f"theta by step: {marks}", *lines, "", ""]))
    if not quiet:
        say(f"mean |theta| is over the last tenth of {plural(steps, 'step')}; the answer is 0")


def _whose(path: ThetaPath) -> list[str]:
    return [path.rule, path.gradient, path.decay]


def _told(path: ThetaPath) -> str:
    return ", ".join(_whose(path))


def run(arguments: list[str]) -> int:
    """Run one benchmark and return its exit code, with errors as those of `seqgen`."""
    return cli.run(arguments, typer.main.get_command(app), "python -m tests.benchmarks")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
