"""Units of a recurrent network: how long they remember, and what in a text they follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from seqgen.commands.inspect.passage import InspectedText, Passages
from seqgen.commands.inspect.steps import LayerTrace, memory_of, require_recurrent, trace
from seqgen.models.recurrent.equation import Equation

# Values that differ by less are those of a unit that never moves.
STILL = 1e-9
OPENS, CLOSES = "([{", ")]}"


@dataclass(frozen=True)
class Unit:
    """The keys of `seqgen inspect --units --json`, in order.

    Attributes:
        model: its name.
        layer: from 0.
        unit: from 0.
        kept: the mean share of its memory that a step keeps; None for a cell without such a gate.
        memory: 1 / (1 - kept), in tokens: how long half of what it holds lasts, about; None
            without such a gate, or where nothing is ever lost.
        reset: the mean share of the past that its candidate reads; None without a reset gate.
        lag: the distance in tokens at which the autocorrelation of its value falls below 1 / e;
            None where it does not within the text, or the unit never moves.
        feature: what its value follows most.
        correlation: Pearson's, with that feature; None where neither moves.
        correlations: with every feature, by name.
    """

    model: str
    layer: int
    unit: int
    kept: float | None
    memory: float | None
    reset: float | None
    lag: int | None
    feature: str | None
    correlation: float | None
    correlations: dict[str, float | None]


def features(text: list[str]) -> dict[str, np.ndarray]:
    """Return simple properties of a text after each of its tokens, (N,) each.

    Args:
        text: what each of N tokens adds.

    Returns:
        position in line: characters since the line began.
        position in word: letters and digits since the word began.
        inside quotes: 1 between double quotes, straight or curly; a blank line ends them.
        inside brackets: how many are open on this line.
        capital, white space, punctuation: 1 where the last character is one.
        position in text: tokens so far.
    """
    line = word = brackets = 0
    quoted, before = False, ""
    rows = []
    for piece in text:
        for character in piece:
            if character == "\n":
                quoted = quoted and before != "\n"
                line, brackets = 0, 0
            else:
                line += 1
            word = word + 1 if character.isalnum() else 0
            brackets += (character in OPENS) - (character in CLOSES and brackets > 0)
            if character in '"\u201c\u201d':
                quoted = not quoted if character == '"' else character == "\u201c"
            before = character
        kinds = (before.isupper(), before.isspace(), _is_mark(before))
        rows.append((line, word, quoted, brackets, *kinds, len(rows)))
    names = "position in line", "position in word", "inside quotes", "inside brackets"
    more = "capital", "white space", "punctuation", "position in text"
    table = np.array(rows, np.float64).reshape(-1, len(names) + len(more))
    return dict(zip((*names, *more), table.T, strict=True))


def _is_mark(character: str) -> bool:
    return character != "" and not character.isalnum() and not character.isspace()


def correlations(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of each column of (N, A) with each of (N, B), (A, B).

    NaN where a column does not move.
    """
    centred = [x - x.mean(0) for x in (values, others)]
    norms = [np.sqrt((x**2).sum(0)) for x in centred]
    product = np.outer(*norms)
    moves = np.outer(*(norm > STILL for norm in norms))
    return np.divide(centred[0].T @ centred[1], product, out=np.full_like(product, np.nan),
                     where=moves)  # fmt: skip


def lags(values: np.ndarray) -> list[int | None]:
    """Return at which distance the autocorrelation of each column of (N, H) falls below 1 / e."""
    centred, size = values - values.mean(0), len(values)
    power = (centred**2).sum(0)
    # All covariances at once (Wiener and Khinchin); zeros after the text keep its ends apart.
    spectrum = np.abs(np.fft.rfft(centred, 2 * size, axis=0)) ** 2
    covariances = np.fft.irfft(spectrum, 2 * size, axis=0)[:size]  # (N, H)
    falls = (covariances < power / math.e) & (power > STILL)
    return [int(column.argmax()) if column.any() else None for column in falls.T]


def units(passages: Passages) -> list[Unit]:
    """Return every unit of a recurrent network, those that remember longest first.

    Units of cells without a gate that keeps are ordered by `lag`.

    Raises:
        UsageError: the model is no recurrent network.
    """
    loaded = passages.documents[0].loaded
    require_recurrent(loaded, "--units")
    traces = [(passage, trace(loaded, passage.read)) for passage in passages.documents]
    every: list[Unit] = []
    for number, layer in enumerate(loaded.model.layers):
        layers = [(passage, each.layers[number]) for passage, each in traces]
        every += _units(loaded.stored.name, number, layer.equation, layers)
    return sorted(every, key=lambda unit: (-(unit.kept or 0.0), -(unit.lag or math.inf)))


def _units(
    model: str, number: int, equation: Equation, layers: list[tuple[InspectedText, LayerTrace]]
) -> list[Unit]:
    """Return the units of a layer, in order.

    The values of a step are those after the token that it reads.
    """
    values = np.concatenate([layer.values[memory_of(equation)] for _, layer in layers])
    texts = [
        "" if step == 0 else passage.texts[place]
        for passage, _ in layers
        for step, place in enumerate([-1, *passage.order[:-1].tolist()])
    ]
    of_text = features(texts)
    correlated = correlations(values, np.stack(list(of_text.values()), 1))  # (H, features)
    kept, reset = _mean(layers, equation.keeps), _mean(layers, equation.resets)
    if equation.replaces is not None:
        kept = 1 - _mean(layers, equation.replaces)
    return [
        _unit(model, number, unit, kept, reset, lag, dict(zip(of_text, row, strict=True)))
        for unit, (lag, row) in enumerate(zip(lags(values), correlated.tolist(), strict=True))
    ]


def _mean(layers: list[tuple[InspectedText, LayerTrace]], name: str | None) -> np.ndarray | None:
    """Return the mean over all steps of a gate, (H,); None where the layer has none."""
    if name is None or name not in layers[0][1].values:
        return None
    return np.concatenate([layer.values[name] for _, layer in layers]).mean(0)


def _unit(
    model: str,
    layer: int,
    unit: int,
    kept: np.ndarray | None,
    reset: np.ndarray | None,
    lag: int | None,
    by_feature: dict[str, float],
) -> Unit:
    correlation_of = {name: None if math.isnan(r) else r for name, r in by_feature.items()}
    moving = [name for name, r in correlation_of.items() if r is not None]
    best = max(moving, key=lambda name: abs(correlation_of[name]), default=None)
    keeps = None if kept is None else float(kept[unit])
    return Unit(
        model=model,
        layer=layer,
        unit=unit,
        kept=keeps,
        memory=None if keeps is None or keeps >= 1 else 1 / (1 - keeps),
        reset=None if reset is None else float(reset[unit]),
        lag=lag,
        feature=best,
        correlation=None if best is None else correlation_of[best],
        correlations=correlation_of,
    )
