"""Output of `seqgen inspect`: records, an HTML page, or text on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen.cli.shell.coloured import lines_of, put_lines
from seqgen.cli.shell.colours import share_scale
from seqgen.cli.shell.output import Output, console, is_terminal, one_line, put, standard_output
from seqgen.cli.shell.page import PageSection
from seqgen.cli.shell.tables import count, figure, percentage, put_columns, put_table
from seqgen.plugins.inspect import pages as inspection
from seqgen.plugins.inspect.predictions import TokenPrediction, token_predictions
from seqgen.plugins.inspect.steps import (
    InspectedStep,
    InspectedWeights,
    Unit,
    UnitValues,
    rank_correlations,
    unit_values,
    weights,
)
from seqgen.plugins.inspect.steps import steps as steps_of
from seqgen.plugins.inspect.steps import units as units_of
from seqgen.scoring.passages import Passages
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.plugins.inspect.heads import Attended, HeadWeights

# What is shown unless the user says.
CANDIDATES, UNITS = 5, 20
# A longer vector is shown by its first numbers.
NUMBERS = 16


@dataclass(frozen=True)
class View:
    """One view of a text: its records, page section and terminal output.

    Attributes:
        records: for --json.
        section: makes the page's only section.
        show: writes it for a person.
    """

    records: Sequence[Any]
    section: Callable[[], PageSection]
    show: Callable[[Output], None]


def predictions(passages: Passages, top: int) -> View:
    """Create the view of the most likely tokens at each place."""
    places = list(token_predictions(passages, top))
    return View(
        places, lambda: inspection.predictions_section(places), lambda out: _put_places(places)
    )


def _put_places(places: Sequence[TokenPrediction]) -> None:
    columns = {
        "token": lambda p: repr(p.piece),
        "likeliest": lambda p: "  ".join(
            f"{c.piece!r} {percentage(c.probability, 1)}" for c in p.candidates
        ),
        "bits": lambda p: figure(p.surprisal_bits, 2),
        "rank": lambda p: count(p.rank + 1),
        "entropy": lambda p: figure(p.entropy_bits, 2),
    }
    put_columns(columns, places, left=2)


def steps(passages: Passages) -> View:
    """Create the view of every step of a recurrent network."""
    every = list(steps_of(passages))
    numbers = weights(passages.documents[0].loaded)
    return View(
        [numbers, *every],
        lambda: inspection.steps_section(numbers, every),
        lambda out: _put_steps(numbers, every),
    )


def _put_steps(numbers: InspectedWeights, every: Sequence[InspectedStep]) -> None:
    if len(numbers.vocabulary) <= NUMBERS:
        put(f"{'':11}{' '.join(f'{piece!r:>8}' for piece in numbers.vocabulary)}\n\n")
    for name, matrix in (numbers.weights or {}).items():
        put(f"{name}\n")
        for row in matrix if isinstance(matrix[0], list) else [matrix]:
            put(f"  {_numbers(row)}\n")
        put("\n")
    for step in every:
        put(f"step {step.step}: reads {step.piece!r}, target {step.target_piece!r}\n")
        several = len(step.layers) > 1
        facts = [
            (f"{name} of layer {layer.layer}" if several else name, vector)
            for layer in step.layers
            for name, vector in layer.vectors
        ]
        facts += [("logits", step.logits), ("softmax", step.probabilities)]
        width = max(len(name) for name, _ in facts)
        for name, vector in facts:
            put(f"  {name:<{width}}  {_numbers(vector)}\n")
        put(f"  {'loss':<{width}}  {figure(step.loss)} nats\n\n")


def _numbers(vector: Sequence[float]) -> str:
    more = f" ... ({len(vector)} numbers)" if len(vector) > NUMBERS else ""
    return " ".join(f"{figure(value):>8}" for value in vector[:NUMBERS]) + more


def unit(passages: Passages, layer: int, number: int, name: str | None) -> View:
    """Create the view of one unit's value after each token."""
    values = unit_values(passages, layer, number, name)
    return View(
        values.places, lambda: inspection.unit_section(values), lambda out: _put_unit(values, out)
    )


def _put_unit(unit: UnitValues, out: Output) -> None:
    """Print the text coloured by a unit; off a terminal, each token's value, tab and token."""
    if not is_terminal(standard_output()):
        for place in unit.places:
            put(f"{figure(place.value)}\t{one_line(place.piece)}\n")
        return
    values = [place.value for place in unit.places]
    scale = share_scale() if unit.gate else inspection.signed_scale(values)
    what = f"{unit.name} of unit {unit.unit}, layer {unit.layer}"
    colours = "from white to orange" if unit.gate else "from blue over white to red"
    legend = f"{what}: {colours}, {figure(scale.low, 2)} to {figure(scale.high, 2)}"
    pieces = [(place.text, place.value) for place in unit.places]
    put_lines(lines_of(pieces), scale, _sign, None if out.quiet else (legend, legend))


def _sign(value: float) -> str:
    """Choose the sign that replaces a colour."""
    return "+" if value > 0 else "-" if value < 0 else "0"


def units(passages: Passages, top: int) -> View:
    """Create the view of a network's units, longest memory first."""
    every = units_of(passages)
    return View(
        every,
        lambda: inspection.units_section(every[:top]),
        lambda out: _put_units(every, top, out),
    )


def _put_units(every: Sequence[Unit], top: int, out: Output) -> None:
    rows = inspection.unit_rows(every[:top])
    put_table(inspection.UNIT_COLUMNS, rows, left=0)
    out.notice(f"{len(rows)} of {plural(len(every), 'unit')}; memory and lag in tokens")
    if found := rank_correlations(every):
        each = ", ".join(f"{name} {figure(value, 2)}" for name, value in found.items())
        out.notice(f"rank correlation with lag over all units: {each}")


def attention(
    passages: Passages, layer: int | None, heads: Sequence[int] | None, word: str | None
) -> View:
    """Create the view of heads' attention from a word, and of their entropies."""
    from seqgen.plugins.inspect.heads import attended

    seen = attended(passages, layer, heads, word)
    return View(
        [*seen.words, *seen.heads],
        lambda: inspection.attention_section(seen),
        lambda out: _put_attention(seen, out),
    )


def _put_attention(seen: Attended, out: Output) -> None:
    if seen.cut:
        out.notice(f"the model's window leaves out {plural(seen.cut, 'token')}")
    if seen.words:
        if is_terminal(standard_output()):
            for read in seen.words:
                _put_read(read)
        else:
            _put_weights(seen.words)
        put("\n")
    put_table(inspection.HEAD_COLUMNS, inspection.head_rows(seen), left=0)


def _put_read(read: HeadWeights) -> None:
    """Print the text coloured by the attention of one head."""
    out = console(standard_output())
    scale = share_scale(max(read.weights))
    out.print(
        f"layer {read.layer}, head {read.head}: what {read.word!r} reads, "
        f"orange {figure(scale.high, 3)}"
    )
    columns = zip(read.texts, read.pieces, read.weights, strict=True)
    pieces = [(text or piece.replace("\n", "⏎"), weight) for text, piece, weight in columns]
    put_lines(lines_of(pieces), scale, lambda weight: f"{round(9 * weight / scale.high)}")


def _put_weights(heads: Sequence[HeadWeights]) -> None:
    """Print a line per token: its weight under each head, and the token."""
    names = [f"{read.layer}.{read.head}" for read in heads]
    rows = zip(heads[0].pieces, *(read.weights for read in heads), strict=True)
    put("\t".join([*names, "token"]) + "\n")
    for piece, *each in rows:
        put("\t".join([*map(figure, each), one_line(piece)]) + "\n")
