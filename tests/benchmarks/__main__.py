"""Measure seqgen beside plain baselines, and repeat small experiments of lectures.

From the root of a checkout: `python -m tests.benchmarks`. The figures are in
docs/evidence/benchmarks.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from seqgen import cli
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import CommandGroup, CommandWithHelp
from seqgen.cli.shell.model_options import ExactMachine, FixedSeed, Machine, ModelName, Threads
from seqgen.cli.shell.output import Output, put, put_record
from seqgen.cli.shell.output_files import Curves, check_picture
from seqgen.cli.shell.tables import byte_size, count, curve, duration, figure, percentage, put_table
from seqgen.settings import MOST_RATE, REQUIRED, require
from seqgen.settings.options import Options, Panel
from seqgen.settings.setting import setting
from seqgen.wording import plural

if TYPE_CHECKING:
    from .decode import Timing
    from .points import ThetaPath
    from .train import Timing as TrainTiming

# Of `bench hmm`; their table alone fills 128 MB.

app = typer.Typer(
    cls=CommandGroup,
    help="Measure seqgen beside plain baselines, and repeat small experiments of lectures.",
    no_args_is_help=True,
)


class Cases(Options, panel=Panel.LENGTH):
    """Which cases are measured, and how often."""

    repeats: int = setting("Number of runs of each case.", 3, low=1)
    only: str | None = setting(
        "Measure only cases whose name contains this; with `cell`, every recurrent cell beside an "
        "LSTM with as many parameters.",
        panel=Panel.MEASURED,
    )


class Written(Options, panel=Panel.LENGTH):
    """How much is written."""

    tokens: int = setting("Number of tokens in each text.", 255, low=1, high=255)
    processor_time: bool = setting(
        "Measure processor time, which other work on the machine affects less; for one thread.",
        panel=Panel.MEASURED,
    )


@app.command("decode", cls=CommandWithHelp)
@takes_options
def decode(written: Written, cases: Cases, threads: Threads, out: Output) -> None:
    """Compare the writing speed of seqgen with plain baselines, in float32, bf16, int8 and int4.

    The name of a case ends in its precision, unless that is float32. All models have random
    weights. The baselines are a loop over nn.LSTM, and the packages transformers and CTranslate2
    if they are installed, in float32 or as their column says. Runs of seqgen and of the baseline
    alternate; speeds and ratios are medians.
    """
    import time

    import torch

    from seqgen.engines.native.library import library
    from seqgen.store.torch_models import choose_products

    from .decode import measure

    if library() is None:
        out.notice("no compiled kernels of this source: NumPy computes in place of them")

    clock = time.process_time if written.processor_time else time.perf_counter

    choose_products(torch.device("cpu"))  # as every command that writes does
    timings = []
    for timing in measure(written.tokens, cases.repeats, cases.only, clock):
        told = "measured" if timing.skipped is None else "skipped"
        _tell(timing, f"{told} {timing.case}", out)
        timings.append(timing)
    if not out.json:
        _table(timings)


def _tell(record: object, line: str, out: Output) -> None:
    """Write a record, or say that there is one."""
    if out.json:
        put_record(record)
    else:
        out.notice(line)


def _table(timings: list[Timing]) -> None:
    rows = []
    for timing in timings:
        if timing.skipped is not None:
            rows.append([timing.case, f"skipped: {timing.skipped}", *[""] * 5])
            continue
        rows.append(
            [
                timing.case,
                timing.baseline,
                count(timing.tokens_per_second),
                count(timing.baseline_tokens_per_second),
                figure(timing.ratio, 2),
                f"{figure(timing.least_ratio, 2)} to {figure(timing.most_ratio, 2)}",
                percentage(timing.bandwidth_fraction, 0),
            ]
        )
    names = "case", "baseline", "tokens/s", "baseline's", "ratio", "range", "of bandwidth limit"
    put_table(names, rows, left=2)


class DraftedPrompts(Options, panel=Panel.MEASURED):
    """Prompts to write from with and without draft tokens, and the longest draft."""

    prose: Path = setting("Text that prompts of prose are drawn from.", REQUIRED, reads="path")
    prompts: int = setting("Number of prompts of each kind.", 10, low=1, panel=Panel.LENGTH)
    most: int = setting("Longest draft, in tokens.", 8, low=1, panel=Panel.LENGTH)


@app.command("guessing", cls=CommandWithHelp)
@takes_options
def guessing(
    model: ModelName,
    written: Written,
    drafted: DraftedPrompts,
    seed: FixedSeed,
    machine: Machine,
    out: Output,
) -> None:
    """Compare the writing speed of a transformer with and without draft tokens (`--lookup`).

    Prompts are pieces of Python files of the standard library, lists that begin again, and prose.
    Texts with and without draft tokens alternate; the time to read the prompts is not counted.
    """
    import time

    from seqgen.store.loading import Work, load

    from .guessing import measure

    clock = time.process_time if written.processor_time else time.perf_counter
    work = Work(written=written.tokens)
    loaded = load(model.model, machine.device, machine.precision, work=work)
    rows, about = [], (written.tokens, drafted.prompts, seed.seed, drafted.most, clock)
    for speed in measure(loaded, drafted.prose, *about):
        _tell(speed, f"measured {speed.prompts}, temperature {speed.temperature}", out)
        rows.append(
            [
                speed.prompts,
                figure(speed.temperature, 1),
                figure(speed.ratio, 2),
                f"{figure(speed.least, 2)} to {figure(speed.most, 2)}",
                figure(speed.guesses, 2),
                percentage(speed.kept, 0),
                "yes" if speed.same else "no",
            ]
        )
    if not out.json:
        names = ("prompts", "temperature", "ratio", "range", "guesses/token", "kept", "same texts")
        put_table(names, rows, left=1)


class CutSentences(Options, panel=Panel.MEASURED):
    """Sentences that prompts are cut from."""

    prose: Path = setting("Text that the sentences are drawn from.", REQUIRED, reads="path")
    sentences: int = setting("Number of sentences.", 200, low=1, panel=Panel.LENGTH)


@app.command("healing", cls=CommandWithHelp)
@takes_options
def healing(
    model: ModelName, cut: CutSentences, seed: FixedSeed, machine: Machine, out: Output
) -> None:
    """Cut sentences after each character, and predict the next one with and without healing.

    A prediction is right if the most probable first token adds the character that follows.
    """
    from seqgen.store.loading import load

    from .healing import measure

    loaded = load(model.model, machine.device, machine.precision)
    rows = []
    for healed in measure(loaded, cut.prose, cut.sentences, seed.seed):
        _tell(healed, f"measured {healed.cut}", out)
        shares = (percentage(right / healed.prompts, 1) for right in (healed.healed, healed.plain))
        rows.append([healed.cut, count(healed.prompts), count(healed.changed), *shares])
    if not out.json:
        put_table(("cut", "prompts", "changed", "right", "right with --no-heal"), rows, left=1)


class Trained(Options, panel=Panel.MEASURED):
    """What is trained, and for how long."""

    text: Path | None = setting(
        "Text to train on with --recipe.", metavar="[TEXT]", reads="path", positional=True
    )
    recipe: Literal["gpt"] | None = setting(
        "Train the plain baseline `gpt` on TEXT to its end, instead of timing steps.",
        metavar="NAME",
    )
    steps: int = setting("Number of steps of --recipe.", 2000, low=1, panel=Panel.LENGTH)
    seconds: float = setting("Length of each run, in seconds.", 2.0, low=0.1, panel=Panel.LENGTH)
    optimizer: Literal["adamw", "muon"] = setting(
        "Optimizer of seqgen's models; the baselines use AdamW.", "adamw"
    )


@app.command("train", cls=CommandWithHelp)
@takes_options
def train(trained: Trained, cases: Cases, machine: ExactMachine, out: Output) -> None:
    """Compare the training speed of seqgen with plain PyTorch in float32, at equal sizes.

    Runs of seqgen and of the baseline alternate; speeds and ratios are medians. --recipe gpt
    instead trains nanoGPT's recipe for a CPU to its end (two minutes on two cores): compare its
    time and validation loss with those of `seqgen train TEXT --minutes M`.
    """
    text = trained.text
    if trained.recipe is not None:
        require(text is not None, "--recipe needs a TEXT to train on")
        _recipe(text, trained.steps, out)
        return
    require(text is None, "TEXT is for --recipe; the timings use random tokens")
    from seqgen.engines.precision import choose_device
    from seqgen.store.torch_models import choose_products

    from .train import measure

    choose_products(choose_device(machine.device))  # as training does
    timings = []
    how = cases.repeats, cases.only, machine.precision, trained.optimizer, machine.device
    for timing in measure(trained.seconds, *how):
        _tell(timing, f"measured {timing.case}", out)
        timings.append(timing)
    if not out.json:
        _train_table(timings)


class Loaded(Options, panel=Panel.MEASURED):
    """What a Hopfield network stores and restores."""

    units: int = setting("Number of units.", 1000, low=2, high=10_000)
    flipped: float = setting("Share of the bits that are flipped.", 0.2, low=0, high=1)
    patterns: int = setting(
        "Number of patterns that are restored at each load.", 20, low=1, panel=Panel.LENGTH
    )


@app.command("hopfield", cls=CommandWithHelp)
@takes_options
def hopfield(loaded: Loaded, seed: FixedSeed, threads: Threads, out: Output) -> None:
    """Measure how many random patterns a Hopfield network restores, by its load.

    A pattern counts as restored if 97 percent of its bits or more come out right. Units are updated
    one at a time.
    """
    from .hopfield import measure

    rows = []
    for load in measure(loaded.units, loaded.flipped, loaded.patterns, seed.seed):
        _tell(load, f"restored {plural(load.tried, 'pattern')} of {count(load.patterns)}", out)
        rows.append(
            [
                figure(load.load, 2),
                count(load.patterns),
                percentage(load.restored, 0),
                percentage(load.right),
            ]
        )
    if not out.json:
        put_table(("patterns per unit", "patterns", "restored", "bits right"), rows, left=0)


class Sizes(Options, panel=Panel.MEASURED):
    """Which hidden Markov models are measured."""

    states: tuple[int, ...] = setting(
        "Numbers of states.",
        (8, 16, 32, 64, 128, 256, 512),
        low=1,
        high=4096,
        listed=True,
        metavar="N,N,...",
    )
    repeats: int = setting("Number of runs of each case.", 3, low=1, panel=Panel.LENGTH)


@app.command("hmm", cls=CommandWithHelp)
@takes_options
def hmm(sizes: Sizes, threads: Threads, out: Output) -> None:
    """Measure what a token costs a hidden Markov model, by its number of states.

    Processor time is shown, the least of some runs: for scoring 64 texts side by side, and for
    an iteration of training.
    """
    from .hmm import measure

    rows = []
    for cost in measure(sizes.states, sizes.repeats):
        _tell(cost, f"measured {plural(cost.states, 'state')}", out)
        rows.append([count(cost.states), figure(cost.scoring, 2), figure(cost.training, 2)])
    if not out.json:
        put_table(("states", "scoring, us/token", "training, us/token"), rows, left=0)


def _recipe(text: Path, steps: int, out: Output) -> None:
    from .gpt import plain_gpt

    def report(step: int, loss: float) -> None:
        out.notice(f"step {count(step)}  loss {figure(loss)}")

    result = plain_gpt(text, steps, report=report)
    if out.json:
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


class Ruled(Options, panel=Panel.MEASURED):
    """How far every update rule goes."""

    steps: int = setting("Number of steps of each rule.", 100, low=1, panel=Panel.LENGTH)
    lr: float = setting("The rate alpha_0 of every rule.", 0.5, low=1e-9, high=MOST_RATE)


@app.command("points", cls=CommandWithHelp)
@takes_options
def points(ruled: Ruled, curves: Curves, seed: FixedSeed, threads: Threads, out: Output) -> None:
    """Watch every update rule on a problem of one number: the mean of 21 points.

    Minimises the mean of (x - theta)^2 over x = -10 ... 10 from theta = -20, with the full
    gradient and with that of one random point a step. All rules draw the same points.
    """
    from .points import measure

    place = None if curves.plot is None else check_picture(curves.plot, [])
    paths_taken = measure(ruled.steps, ruled.lr, seed.seed)
    if place is not None:
        from seqgen.cli.shell.pictures import draw_lines

        paths = {_told(path): list(enumerate(path.path)) for path in paths_taken}
        draw_lines(place, paths, "step", "theta", log="", marker="")
    if out.json:
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
    last = f"the last tenth of {plural(ruled.steps, 'step')}"
    out.notice(f"mean |theta| is over {last}; the answer is 0")


def _whose(path: ThetaPath) -> list[str]:
    return [path.rule, path.gradient, path.decay]


def _told(path: ThetaPath) -> str:
    return ", ".join(_whose(path))


def run(arguments: list[str]) -> int:
    """Run one benchmark and return its exit code, with errors as those of `seqgen`."""
    return cli.run(arguments, typer.main.get_command(app), "python -m tests.benchmarks")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
