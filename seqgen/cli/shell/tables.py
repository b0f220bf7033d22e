"""Tables, number formats and curves: rounded for people; `--json` keeps all digits."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from seqgen.cli.shell.output import ANY_WIDTH, console, is_terminal, one_line, put, standard_output
from seqgen.wording import plural

if TYPE_CHECKING:
    from rich.table import Table


MISSING = "-"
AGES = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("h", 3600), ("min", 60))
UNITS = ((1e3, "K"), (1e6, "M"), (1e9, "B"))


def figure(value: float | None, digits: int = 4) -> str:
    """Format nats, bits or a perplexity with a number of decimals; None gives a dash."""
    if value is None:
        return MISSING
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # without a minus sign before 0


def weight(value: float) -> str:
    """Format a mixture weight: 0.7312, or 1.2e-05 if four decimals would show 0."""
    shown = figure(value)
    return shown if not value or float(shown) else significant(value, 3)


def count(value: float | None) -> str:
    """Format an integer with thousands separators: 1,115,394."""
    return MISSING if value is None else f"{value:,.0f}"


def short_count(value: int | None) -> str:
    """Format a number with three digits: 2,970, 47.5 K, 1.12 M, 7.24 B."""
    if value is None:
        return MISSING
    if value < 10_000:
        return f"{value:,}"
    # The first unit that leaves less than a thousand, as it is rounded.
    size, unit = next(((s, u) for s, u in UNITS if value < 999.5 * s), UNITS[-1])
    scaled = value / size
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {unit}"


def text(value: str | None) -> str:
    """Return a text as it is; a dash if there is none."""
    return value or MISSING


def named_figures(values: Mapping[str, float]) -> str:
    """Format figures on one line, each after its name."""
    return ", ".join(f"{name} {figure(value)}" for name, value in values.items())


def percentage(fraction: float | None, digits: int = 2) -> str:
    """Format a fraction as a percentage."""
    return MISSING if fraction is None else f"{fraction:.{digits}%}"


def share(estimate: Mapping[str, float] | None) -> str:
    """Format a share with its interval as percentages: 93.20% [91.05, 94.85]."""
    if estimate is None:
        return MISSING
    low, high = (figure(100 * estimate[end], 2) for end in ("low", "high"))
    return f"{percentage(estimate['value'])} [{low}, {high}]"


def interval(value: float, half: float | None, digits: int = 4) -> str:
    """Format a figure with half the width of its interval: 12.34 ± 0.56."""
    shown = figure(value, digits)
    return shown if half is None else f"{shown} ± {figure(half, digits)}"


def significant(value: float, digits: int) -> str:
    """Format a number with a number of significant digits: 0.7312, 1.2e+13."""
    return f"{value:.{digits}g}"


def number(value: float | None) -> str:
    """Format a number with three significant digits; None gives a dash."""
    return MISSING if value is None else significant(value, 3)


def byte_size(size: float) -> str:
    """Format a size in bytes: 512 bytes, 3.4 MB."""
    from rich.filesize import decimal

    return decimal(int(size))


def duration(seconds: float | None) -> str:
    """Format a time span: 0.42 s, 37 s, 4 min 59 s, 2 h 05 min."""
    if seconds is None:
        return MISSING
    if seconds < 9.95:
        return f"{seconds:.{2 if seconds < 1 else 1}f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def clock(seconds: float) -> str:
    """Format a time span for a progress bar: 4:59, 2:05:10."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def age(created: object, now: datetime | None = None) -> str:
    """Format the age of an ISO 8601 time: just now, 3 min ago, 2 days ago."""
    try:
        then = datetime.fromisoformat(str(created).replace("Z", "+00:00"))
        seconds = ((now or datetime.now(timezone.utc)) - then).total_seconds()
    except (ValueError, TypeError):
        return MISSING
    for unit, length in AGES:
        if seconds >= length:
            past = int(seconds // length)
            return f"{past} {unit} ago" if unit in ("h", "min") else f"{plural(past, unit)} ago"
    return "just now"


def table(names: Sequence[str], left: int) -> Table:
    """Make an empty rich table; the first `left` columns are text, the others figures."""
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE if is_terminal(sys.stdout) else None, pad_edge=False)
    for column, name in enumerate(names):
        # Text may continue on the next line of its cell; a figure is never broken.
        text = column < left
        drawn.add_column(
            name, justify="left" if text else "right", no_wrap=not text, overflow="fold"
        )
    return drawn


def put_table(names: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> None:
    """Print a table on standard output; the first `left` columns are text, the others figures.

    A table that does not fit the terminal is written as blocks: one per row, a line per column.
    """
    rows = list(rows)
    drawn = table(names, left)
    for row in rows:
        drawn.add_row(*row)
    out = console(standard_output())
    figures = table(names[left:], 0)
    for row in rows:
        figures.add_row(*row[left:])
    needed = out.measure(figures, options=out.options.update(max_width=ANY_WIDTH)).maximum
    if rows and needed + left * NARROWEST > out.width:
        _put_blocks(names, rows, left)
    else:
        out.print(drawn)


def put_columns(
    columns: Mapping[str, Callable[[Any], str]], records: Iterable[Any], left: int = 1
) -> None:
    """Print a table with one row per record; `columns` maps headings to formatters."""
    put_table(list(columns), [[show(one) for show in columns.values()] for one in records], left)


# By the names that declarations of columns use, see `seqgen.wording.column`.
FORMATS: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        *(str, figure, count, short_count, number, percentage, share, byte_size, duration),
        *(text, age, one_line),
    )
}


def declared_columns(
    records: Sequence[Any], first: Sequence[str] = ()
) -> dict[str, Callable[[Any], str]]:
    """Map headings to formatters for the columns that the fields of records declare.

    Args:
        records: at least one, all of one dataclass.
        first: fields whose columns come first; the others follow in the order of the dataclass.
    """
    declared = {f.name: f.metadata for f in dataclasses.fields(records[0]) if f.metadata}
    columns = {}
    for name in sorted(declared, key=lambda name: (*first, name).index(name)):
        about = declared[name]
        if any(getattr(one, name) != about["unless"] for one in records):
            columns[about["heading"]] = lambda one, name=name, about=about: FORMATS[about["form"]](
                getattr(one, about["shown"] or name), *about["digits"]
            )
    return columns


# The least width of a column of text.
NARROWEST = 12


def _put_blocks(names: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    for row in rows:
        put("  ".join(cell for cell in row[:left] if cell) + "\n")
        put_facts(dict(zip(names[left:], row[left:], strict=True)), indent=2)
        put("\n")


def put_facts(facts: Mapping[str, str], indent: int = 0) -> None:
    """Print one fact per line; on a terminal, long ones are wrapped with an indent."""
    from rich.table import Table

    width = max(map(len, facts), default=0)
    if not is_terminal(sys.stdout):
        put("".join(f"{'':{indent}}{name:<{width}}  {value}\n" for name, value in facts.items()))
        return
    drawn = Table.grid(padding=(0, 2, 0, 0), expand=False)
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in facts.items():
        drawn.add_row(" " * indent + name, value)
    console(standard_output()).print(drawn)


Point = tuple[float, float]
# Columns: off a terminal, and the least and the most on one.
CURVE_USUAL, CURVE_NARROWEST, CURVE_WIDEST = 72, 24, 100


def curve(
    series: Sequence[tuple[str, Sequence[Point]]],
    width: int | None = None,
    height: int = 14,
    ticks: Mapping[float, str] | None = None,
) -> list[str]:
    """Draw several series of points as a character plot, later ones over earlier ones.

    Args:
        series: for each, the character that marks it, and its points (x, y).
        width: columns of the whole picture; those of the terminal that it is for if None.
        height: lines of it.
        ticks: places on the horizontal axis and their labels; five whole numbers if None.

    Returns:
        The lines, without colour; none without a finite point.
    """
    finite = [
        (mark, [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)])
        for mark, points in series
    ]
    if not any(points for _, points in finite):
        return []
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(_width() if width is None else width, height)
    plotext.theme("clear")
    for mark, points in finite:
        if points:
            plotext.scatter(*zip(*points, strict=True), marker=mark)
    ticks = ticks or _five_steps([x for _, points in finite for x, _ in points])
    plotext.xticks(list(ticks), list(ticks.values()))
    picture = plotext.uncolorize(plotext.build())
    return [line.rstrip() for line in picture.rstrip("\n").splitlines()]


def _width() -> int:
    """Choose the width in columns of a character plot on standard output."""
    if not is_terminal(sys.stdout):
        return CURVE_USUAL
    return max(CURVE_NARROWEST, min(CURVE_WIDEST, console(sys.stdout).width))


def _five_steps(steps: Sequence[float]) -> dict[float, str]:
    """Choose five evenly spaced tick marks between the first and last step, with labels."""
    low, high = min(steps), max(steps)
    ticks = sorted({round(low + (high - low) * part / 4) for part in range(5)})
    return {tick: count(tick) for tick in ticks}
