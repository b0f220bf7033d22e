"""`seqgen compare --sweep`: architectures at equal numbers of parameters, trained and tabulated."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqgen.cli import completion, options
from seqgen.cli.curve import curve
from seqgen.cli.inputs import Inputs, file_path, given_or_piped
from seqgen.cli.output import put, put_record, say
from seqgen.cli.outputs import check_picture
from seqgen.cli.settings import assignment
from seqgen.cli.settings import option as setting
from seqgen.cli.tables import MISSING, count, figure, put_table, short_count
from seqgen.configs import MOST_SEED, conform, count_of, require
from seqgen.configs.options import BUDGET, OPTIMISATION, OUTPUT, WHAT

if TYPE_CHECKING:
    from seqgen.commands.training.sweep import Sweep, SweepRecord

Architectures = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        help="Train these architectures on DATA instead, each at the sizes of --parameters, and "
        "compare what they come to: rnn,gru,lstm.",
        metavar="ARCH,...",
        rich_help_panel=WHAT,
        show_default=False,
        autocompletion=completion.architectures,
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        "--parameters",
        help="With --sweep: the numbers of parameters, as 3e4,100k,1.5M.",
        metavar="N,...",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="With --sweep: train from each of these seeds, to see how far they differ.",
        metavar="N,...",
        rich_help_panel=WHAT,
        show_default="1",
    ),
]
Steps = Annotated[int | None, setting("steps", "N", BUDGET)]
Epochs = Annotated[float | None, setting("epochs", "X", BUDGET)]
Minutes = Annotated[float | None, setting("minutes", "X", BUDGET, default="5 if no budget")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="With --sweep: a setting of every model, as in train. Can be repeated.",
        metavar="KEY=VALUE",
        rich_help_panel=OPTIMISATION,
        show_default=False,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="With --sweep: also draw the figures into an .svg or .png file.",
        parser=file_path,
        metavar="FILE",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
# Options of `compare` that only a sweep has; those that it does not have.
OF_SWEEP = ("parameters", "seeds", "steps", "epochs", "minutes", "set_", "plot")
NOT_OF_SWEEP = (
    *("all_", "data", "source", "source_vectors", "target", "stride", "bleu", "beams"),
    *("max_tokens", "resamples", "batch_size", "cache", "cache_strength", "cache_flatness"),
    *("verbose", "precisions"),
)


def check_flags(context: typer.Context) -> None:
    """Refuse options of a comparison in a sweep, and the other way round.

    Args:
        context: the command's, which knows what was typed.

    Raises:
        UsageError: names the option.
    """
    sweeps = context.params["sweep"] is not None
    given = options.typed(context)
    for name in NOT_OF_SWEEP if sweeps else OF_SWEEP:
        flag = f"--{name.strip('_').replace('_', '-')}"
        what = "has no meaning with --sweep" if sweeps else "needs --sweep ARCH,..."
        require(name not in given, f"{flag} {what}")
    require(
        not (sweeps and "seed" in given),
        "--seed has no meaning with --sweep: give the seeds of the trainings by --seeds N,...",
    )


def sweep_of(given: Mapping[str, Any], files: Sequence[str | Path]) -> Sweep:
    """Return the sweep that the command's parameters ask for.

    Raises:
        UsageError: a list is empty, or has something wrong in it.
    """
    from seqgen.commands.training.sweep import Sweep

    require(given["parameters"] is not None, "--sweep needs --parameters N,...")
    settings = {name: given[name] for name in ("steps", "epochs", "minutes", "documents")}
    settings = {name: value for name, value in settings.items() if value is not None}
    if given["precision"] != "auto":
        settings["precision"] = given["precision"]
    settings |= dict(map(assignment, given["set_"] or ()))
    fixed = next((name for name in ("seed", "hidden_size") if name in settings), None)
    require(fixed is None, f"--set {fixed} has no meaning: a sweep chooses it")
    return Sweep(
        data=files,
        architectures=_listed("--sweep", given["sweep"], str),
        parameters=_listed("--parameters", given["parameters"], _count),
        seeds=_listed("--seeds", given["seeds"] or "1", _seed),
        settings=settings,
        device=given["device"],
    )


def _listed(flag: str, text: str, read: Callable[[str], Any]) -> list[Any]:
    parts = [part.strip() for part in text.split(",")]
    require(all(parts), f"{flag} takes a list with commas between, not {text!r}")
    return list(dict.fromkeys(map(read, parts)))


def _count(text: str) -> int:
    return count_of("--parameters", text)


def _seed(text: str) -> int:
    seed = conform("--seeds", text, int)
    require(0 <= seed <= MOST_SEED, f"--seeds must be at least 0, not {seed}")
    return seed


def sweep(given: Mapping[str, Any], files: list[str] | None) -> None:
    """Train what is missing, and write the records as they come, or the table and its picture.

    Args:
        given: the command's parameters by name.
        files: the data.

    Raises:
        Interrupted: says how to go on.
    """
    quiet, json, plot = given["quiet"], given["json"], given["plot"]
    inputs = Inputs(quiet)
    data = inputs.keep(given_or_piped(files, "seqgen compare --sweep ARCH,... DATA"))
    asked = sweep_of(given, data)
    place = plot and check_picture(plot, inputs.open(map(str, data)))
    records = []
    for record in _trained(asked, quiet):
        records.append(record)
        if json:
            put_record(record)
    if not json:
        put_sizes(records)
        for line in picture(records):
            put(f"{line}\n")
    if place is not None:
        from seqgen.report.pictures import draw_lines

        draw_lines(place, series(records), "parameters", "bits/char")


def _trained(asked: Sweep, quiet: bool) -> Iterable[SweepRecord]:
    """Yield the record of each model of a sweep, trained now or before."""
    from seqgen.cli.progress import display

    cells = asked.cells
    for number, cell in enumerate(cells, start=1):
        record = asked.finished(cell)
        if not quiet:
            state = "trained before" if record else f"hidden_size {count(cell.hidden_size)}"
            say(f"{number} of {len(cells)}: {cell.name}, {state}")
        if record is None:
            with display(quiet) as report:
                record = asked.train(cell, report)
        if record.error and not quiet:
            say(f"{cell.name} failed: {record.error}")
        yield record


def _by_size(records: Sequence[SweepRecord]) -> dict[str, dict[int, list[SweepRecord]]]:
    """Return the records by architecture, and then by the size that was asked for."""
    table: dict[str, dict[int, list[SweepRecord]]] = {}
    for one in records:
        table.setdefault(one.architecture, {}).setdefault(one.target_parameters, []).append(one)
    return table


def _bits(records: Iterable[SweepRecord]) -> list[float]:
    """Return the bits per character of those that did not fail."""
    return [one.val_bits_per_char for one in records if one.val_bits_per_char is not None]


def put_sizes(records: Sequence[SweepRecord]) -> None:
    """Write bits per character by architecture and size: means over the seeds, and ranges.

    A range is the largest less the smallest. That over the seeds is the mean of all architectures.
    """
    table = _by_size(records)
    sizes = sorted({one.target_parameters for one in records})
    rows = [[name, *(_cell(of[size]) for size in sizes)] for name, of in table.items()]
    columns = [[_bits(of[size]) for of in table.values()] for size in sizes]
    if len(table) > 1:
        means = [[statistics.fmean(bits) for bits in column if bits] for column in columns]
        rows.append(["range over architectures", *map(_range, means)])
    if len({one.seed for one in records}) > 1:
        ranges = [[max(bits) - min(bits) for bits in column if bits] for column in columns]
        means = [figure(statistics.fmean(of)) if of else MISSING for of in ranges]
        rows.append(["range over seeds", *means])
    put_table(["bits/char", *map(short_count, sizes)], rows)


def _cell(records: Sequence[SweepRecord]) -> str:
    bits = _bits(records)
    return figure(statistics.fmean(bits)) if len(bits) == len(records) else "failed"


def _range(bits: Sequence[float]) -> str:
    return figure(max(bits) - min(bits)) if bits else MISSING


def series(records: Sequence[SweepRecord]) -> dict[str, list[tuple[float, float]]]:
    """Return for each architecture its points: parameters, and mean bits per character."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, of in _by_size(records).items():
        points[name] = [
            (statistics.fmean(one.parameters for one in runs), statistics.fmean(_bits(runs)))
            for _, runs in sorted(of.items())
            if len(_bits(runs)) == len(runs)
        ]
    return points


def picture(records: Sequence[SweepRecord]) -> list[str]:
    """Return the lines of a picture: bits per character over the logarithm of parameters."""
    marks = dict(zip(series(records), "abcdefghijklmnopqrstuvwxyz", strict=False))
    drawn = [
        (marks[name], [(log10(x), y) for x, y in points])
        for name, points in series(records).items()
        if name in marks
    ]
    sizes = {log10(size): short_count(size) for size in {one.target_parameters for one in records}}
    lines = curve(drawn, ticks=sizes)
    title = "bits/char by parameters: " + ", ".join(f"{m} {name}" for name, m in marks.items())
    return [title, *lines] if lines else []
