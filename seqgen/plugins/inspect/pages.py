"""HTML page sections of `seqgen inspect`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from seqgen.cli.shell.colours import BLUE, GREEN, RED, WHITE, Scale, share_scale
from seqgen.cli.shell.page import PageSection, figure, side_by_side, table, visible
from seqgen.plugins.inspect.predictions import TokenPrediction
from seqgen.plugins.inspect.steps import InspectedStep, InspectedWeights, Unit, UnitValues

if TYPE_CHECKING:
    from seqgen.plugins.inspect.heads import Attended, HeadWeights

UNIT_COLUMNS = ("layer", "unit", "kept", "memory", "reset", "lag", "correlation", "follows")
HEAD_COLUMNS = ("layer", "head", "entropy", "if uniform")
# Green for a token of 0 bits, white in the middle, red for 12 and more.
SURPRISAL = Scale(0.0, 12.0, (GREEN, WHITE, RED))


def signed_scale(values: Iterable[float]) -> Scale:
    """Create a symmetric colour scale: blue for negative, white for 0, red for positive."""
    most = max(map(abs, values), default=0.0) or 1.0
    return Scale(-most, most, (BLUE, WHITE, RED))


def predictions_section(places: Iterable[TokenPrediction]) -> PageSection:
    """Render a text coloured by surprisal, with the most likely tokens on hover."""
    spans = [ColouredSpan(p.text, p.surprisal_bits, _about(p)) for p in places]
    caption = "Surprisal in bits: what each token told the model"
    return PageSection("Predictions", coloured_text(spans, SURPRISAL, caption))


def _about(place: TokenPrediction) -> str:
    """Describe the prediction at a place in one line."""
    best = ", ".join(f"{c.piece!r} {c.probability:.1%}" for c in place.candidates)
    return (
        f"{place.piece!r}: {place.surprisal_bits:.2f} bits, rank {place.rank + 1:,}; "
        f"likeliest: {best}"
    )


def steps_section(numbers: InspectedWeights, steps: Iterable[InspectedStep]) -> PageSection:
    """Render all values of all steps as tables, preceded by the weights of a small model."""
    parts = [
        table(
            ["numbers"],
            [[_numbers(row)] for row in (matrix if isinstance(matrix[0], list) else [matrix])],
            f"Weights: {name}",
        )
        for name, matrix in (numbers.weights or {}).items()
    ]
    parts.insert(0, f"<p>Vocabulary: {escape(', '.join(map(repr, numbers.vocabulary)))}</p>")
    for step in steps:
        rows = [
            (f"layer {layer.layer}" if len(step.layers) > 1 else "", name, _numbers(vector))
            for layer in step.layers
            for name, vector in layer.vectors
        ]
        rows += [
            ("", "logits", _numbers(step.logits)),
            ("", "softmax", _numbers(step.probabilities)),
            ("", "loss", f"{step.loss:.4f} nats for {step.target_piece!r}"),
        ]
        title = f"Step {step.step}: reads {step.piece!r}, predicts {step.target_piece!r}"
        parts.append(table(["layer", "value", "numbers"], rows, title, left=3))
    return PageSection("Steps", "".join(parts))


def _numbers(vector: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in vector)


def unit_section(unit: UnitValues) -> PageSection:
    """Render a text coloured by the value of one unit."""
    values = [place.value for place in unit.places]
    scale = share_scale() if unit.gate else signed_scale(values)
    spans = [
        ColouredSpan(place.text, place.value, f"{place.piece!r}: {unit.name} = {place.value:.4f}")
        for place in unit.places
    ]
    caption = f"{unit.name} of unit {unit.unit} in layer {unit.layer}, after each token"
    return PageSection("Unit", coloured_text(spans, scale, caption))


def units_section(units: Sequence[Unit]) -> PageSection:
    """Render units as a table, in the given order."""
    caption = "Units, those that remember longest first; memory and lag in tokens"
    return PageSection("Units", table(UNIT_COLUMNS, unit_rows(units), caption, left=0))


def unit_rows(units: Iterable[Unit]) -> list[list[str]]:
    """List the cells of `UNIT_COLUMNS` for each unit."""
    return [
        [
            str(u.layer),
            str(u.unit),
            *(_figure(x) for x in (u.kept, u.memory, u.reset)),
            "-" if u.lag is None else str(u.lag),
            _figure(u.correlation),
            u.feature or "-",
        ]
        for u in units
    ]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def attention_section(seen: Attended) -> PageSection:
    """Render the attention of heads from a word side by side, and the entropies."""
    body = side_by_side(map(_head, seen.words)) if seen.words else ""
    caption = "Entropy of attention in nats, a mean over positions"
    return PageSection("Attention", body + table(HEAD_COLUMNS, head_rows(seen), caption, left=2))


def head_rows(seen: Attended) -> list[list[str]]:
    """List the cells of `HEAD_COLUMNS` for each head."""
    return [
        [str(h.layer), str(h.head), _figure(h.entropy), _figure(h.entropy_uniform)]
        for h in seen.heads
    ]


def _head(read: HeadWeights) -> str:
    scale = share_scale(max(read.weights, default=1.0) or 1.0)
    inside = set(read.word_places)
    columns = zip(read.pieces, read.texts, read.weights, strict=True)
    spans = [
        ColouredSpan(text or piece, weight, f"{piece!r}: {weight:.4f}", place in inside)
        for place, (piece, text, weight) in enumerate(columns)
    ]
    caption = f"Layer {read.layer}, head {read.head}: what {read.word!r} reads"
    return coloured_text(spans, scale, caption)


@dataclass(frozen=True)
class ColouredSpan:
    """Token of a coloured text, with its label.

    Attributes:
        text: what is shown of it.
        value: gives its colour.
        about: is read out for it.
        marked: it is framed.
    """

    text: str
    value: float
    about: str
    marked: bool = False


def coloured_text(spans: Iterable[ColouredSpan], scale: Scale, caption: str) -> str:
    """Render a coloured text as HTML.

    Args:
        spans: its tokens.
        scale: what colours mean.
        caption: what the colours show.
    """
    body = "".join(_span(span, scale) for span in spans)
    label = f"{caption}. Arrow keys move from token to token."
    return figure(f"{escape(caption)} {key(scale)}", label, body, "tokens walk", "p")


def _span(span: ColouredSpan, scale: Scale) -> str:
    about = escape(span.about)
    shown = escape(visible(span.text)).replace("\n", "↵\n")
    word = " word" if span.marked else ""
    colour = scale.css(span.value)
    return (
        f'<span class="v{word}" style="background:{colour}" title="{about}" data-t="{about}">'
        f"{shown}</span>"
    )


def key(scale: Scale) -> str:
    """Render the legend of a colour scale as HTML."""
    places = len(scale.colours)
    values = [scale.low + (scale.high - scale.low) * i / (places - 1) for i in range(places)]
    return "".join(
        f'<span class="one"><span class="key" style="background:{scale.css(value)}"></span>'
        f"{value:.3g}</span>"
        for value in values
    )
