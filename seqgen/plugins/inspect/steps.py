"""Trace of a recurrent network on a text: inputs, gates and states by step, and its units."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqgen.engines.arrays import Arrays
from seqgen.engines.ops import ArrayOps, Leaf, ops_of, without_gradients
from seqgen.errors import look_up
from seqgen.metrics.bootstrap import spearman
from seqgen.models.inference import InferenceModel
from seqgen.models.recurrent.array_layer import ArrayLayer
from seqgen.models.recurrent.arrays import RecurrentArrays
from seqgen.models.recurrent.cells.equation import Equation
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.scoring.passages import Passages, TokenizedDocument
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel

# A model with more parameters is not followed by hand.
MOST_WEIGHTS = 500


@dataclass(frozen=True)
class LayerTrace:
    """Inputs, gates and states of a layer over T steps.

    Attributes:
        equation: the layer's.
        inputs: (T, E), what it read.
        values: by name (T, width): its gates as the equation shows them, then its state.
    """

    equation: Equation
    inputs: np.ndarray
    values: dict[str, np.ndarray]


@dataclass(frozen=True)
class Trace:
    """Layers of a network over T tokens, and the `features` (1, T, H) of its head."""

    layers: list[LayerTrace]
    features: Leaf


class _Recording:
    """Array layer that records one row; see `recordings.RecordingWatch`."""

    def __init__(self, layer: ArrayLayer) -> None:
        self.layer, self.equation, self.inputs = copy.copy(layer), layer.equation, np.empty(0)
        self.start, self.takes_ids = layer.start, layer.takes_ids
        self.shown, self.states = [], []

        def show(**values: np.ndarray) -> None:
            self.shown[-1] |= {name: y[0].astype(np.float64) for name, y in values.items()}

        self.layer.ops = type("WatchedArrays", (ArrayOps,), {"show": staticmethod(show)})

    def sequence(self, x: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        """Run a sequence step by step; see `ArrayLayer.sequence`."""
        self.inputs, outputs = x[0], []
        for x_t in x.swapaxes(0, 1):
            self.shown.append({})
            state = self.layer.step(x_t, state)
            self.states.append([part[0].astype(np.float64) for part in state])
            outputs.append(state[0])
        return np.stack(outputs, 1), state


def require_recurrent(loaded: LoadedModel, flag: str) -> None:
    """Raise an error if a model is not a recurrent network.

    Raises:
        UsageError: it is none; names the flag.
    """
    name, config = loaded.stored.name, loaded.model.config
    require(
        isinstance(config, RecurrentConfig) and isinstance(loaded.model, InferenceModel),
        f"{flag} is for recurrent networks, such as rnn, gru and lstm, which {name} is not",
    )


def trace(loaded: LoadedModel, tokens: np.ndarray) -> Trace:
    """Record a recurrent network over T tokens from the start of a text.

    Args:
        loaded: the model.
        tokens: (T,) of int64.
    """
    model = loaded.model
    if isinstance(model, RecurrentArrays):
        every = [_Recording(layer) for layer in model.layers]
        watched = copy.copy(model)
        watched.layers = every
        features, _ = watched.hidden(tokens[None], None)
        every[0].inputs = model.inputs(every[0].inputs)  # instead of ids
        recordings = [(each.equation, each) for each in every]
    else:
        from seqgen.plugins.inspect.recordings import record_layers

        recordings, features = record_layers(model, tokens)
    layers = []
    for equation, of_layer in recordings:
        shown, states = of_layer.shown, zip(*of_layer.states, strict=True)
        values = {name: np.stack([step[name] for step in shown]) for name in shown[0]}
        values |= dict(zip(equation.parts, map(np.stack, states), strict=True))
        layers.append(LayerTrace(equation, of_layer.inputs.astype(np.float64), values))
    return Trace(layers, features)


@dataclass(frozen=True)
class InspectedWeights:
    """First record of `seqgen inspect --trace --json`: vocabulary and weights.

    Attributes:
        model: its name.
        vocabulary: the V tokens as a person sees them, in the order of the logits.
        weights: every parameter by name, rows within rows; None for a model that has too many.
    """

    model: str
    vocabulary: list[str]
    weights: dict[str, Any] | None


def weights(loaded: LoadedModel, most: int = MOST_WEIGHTS) -> InspectedWeights:
    """Collect the vocabulary, and the weights of a model with at most `most` parameters."""
    model = loaded.model
    vocabulary = loaded.tokenizer.pieces(range(model.vocab_size))
    numbers = None
    if model.parameter_count() <= most:
        over_arrays = isinstance(model, RecurrentArrays)
        named = model.parameters().items() if over_arrays else model.named_parameters()
        numbers = {name: array.tolist() for name, array in named}
    return InspectedWeights(loaded.stored.name, vocabulary, numbers)


@dataclass(frozen=True)
class LayerStep:
    """Input, gates and state of a layer at one step.

    Attributes:
        layer: from 0.
        x: what it reads.
        gates: what its equation shows, by name.
        state: what it hands on, by name.
    """

    layer: int
    x: list[float]
    gates: dict[str, list[float]]
    state: dict[str, list[float]]

    @property
    def vectors(self) -> list[tuple[str, list[float]]]:
        """Named vectors of the step in order: input, gates, state."""
        return [("x", self.x), *self.gates.items(), *self.state.items()]


@dataclass(frozen=True)
class InspectedStep:
    """Record of a step of `seqgen inspect --trace --json`; its keys in order.

    Attributes:
        model: its name.
        document: the number of the document.
        step: in the order of reading, from 0.
        token: the id that is read; the first is the start symbol.
        piece: it, as a person sees it.
        layers: in order.
        logits: (V,).
        probabilities: (V,), their softmax.
        target: the id of the token that follows.
        target_piece: it, as a person sees it.
        loss: minus the logarithm of its probability, in nats.
    """

    model: str
    document: int
    step: int
    token: int
    piece: str
    layers: list[LayerStep]
    logits: list[float]
    probabilities: list[float]
    target: int
    target_piece: str
    loss: float


def steps(passages: Passages) -> Iterator[InspectedStep]:
    """Yield every step of a recurrent network over a text.

    Raises:
        UsageError: the model is no recurrent network.
    """
    require_recurrent(passages.documents[0].loaded, "--trace")
    for passage in passages.documents:
        traced = trace(passage.loaded, passage.read)
        for number, logits in enumerate(_logits(passage, traced)):
            yield _step(passage, traced, number, logits)


@without_gradients
def _logits(passage: TokenizedDocument, traced: Trace) -> np.ndarray:
    """Compute the logits of all T steps, (T, V)."""
    logits = passage.loaded.model.logits(traced.features, passage.batch, None)
    return ops_of(logits).array(logits)[0].astype(np.float64)


def _step(
    passage: TokenizedDocument, traced: Trace, number: int, logits: np.ndarray
) -> InspectedStep:
    loaded = passage.loaded
    token, target = int(passage.read[number]), int(passage.targets[number])
    log_probs = logits - np.logaddexp.reduce(logits)
    layers = []
    for index, layer in enumerate(traced.layers):
        values = {name: of_all[number].tolist() for name, of_all in layer.values.items()}
        state = {part: values.pop(part) for part in layer.equation.parts}
        layers.append(LayerStep(index, layer.inputs[number].tolist(), values, state))
    piece, target_piece = loaded.tokenizer.pieces([token, target])
    return InspectedStep(
        model=loaded.stored.name,
        document=passage.number,
        step=number,
        token=token,
        piece=piece,
        layers=layers,
        logits=logits.tolist(),
        probabilities=np.exp(log_probs).tolist(),
        target=target,
        target_piece=target_piece,
        loss=-float(log_probs[target]),
    )


@dataclass(frozen=True)
class UnitValue:
    """Record of `seqgen inspect --unit --json`: a token and a unit's value after it.

    Attributes:
        model: its name.
        document: the number of the document.
        index: the token's number in the document.
        piece: the token as a person sees it.
        text: what it adds to the text.
        value: of the unit, once the model has read the token.
    """

    model: str
    document: int
    index: int
    piece: str
    text: str
    value: float


@dataclass(frozen=True)
class UnitValues:
    """Values of one unit over a text.

    Attributes:
        layer: from 0.
        unit: from 0.
        name: which of its values it is: a gate's, or a part of the state.
        gate: the value is between 0 and 1.
        places: one a token.
    """

    layer: int
    unit: int
    name: str
    gate: bool
    places: list[UnitValue] = field(default_factory=list)


def unit_values(passages: Passages, layer: int, unit: int, name: str | None = None) -> UnitValues:
    """Compute the value of one unit after each token of a text.

    Args:
        passages: the text.
        layer: from 0.
        unit: from 0.
        name: a gate or a part of the state; None for the memory, which is the state's last part.

    Raises:
        UsageError: the model is no recurrent network, or has no such layer, unit or value.
    """
    loaded = passages.documents[0].loaded
    require_recurrent(loaded, "--unit")
    places, gate = [], False
    for passage in passages.documents:
        values, name = _values(loaded, trace(loaded, passage.read_to_end), layer, name)
        width = values.shape[1]
        require(unit < width, f"--unit is from 0 to {width - 1} for {name}, not {unit}")
        after = np.empty(len(passage.tokens))
        after[passage.order] = values[1:, unit]
        places += _unit_places(passage, after)
    each = np.array([place.value for place in places])
    parts = loaded.model.layers[layer].equation.parts
    gate = name not in parts and bool(((each >= 0) & (each <= 1)).all())
    return UnitValues(layer, unit, name, gate, places)


def _values(
    loaded: LoadedModel, traced: Trace, layer: int, name: str | None
) -> tuple[np.ndarray, str]:
    """Select a layer's values (T, width) by name; also return the name."""
    last = len(traced.layers) - 1
    require(layer <= last, f"--layer is from 0 to {last} for {loaded.stored.name}, not {layer}")
    of_layer = traced.layers[layer]
    name = name or memory_of(of_layer.equation)
    return look_up("value of this layer", name, of_layer.values), name


def memory_of(equation: Equation) -> str:
    """Name the memory in a layer's state: its last part, such as c of h and c."""
    return equation.parts[-1]


def _unit_places(passage: TokenizedDocument, values: np.ndarray) -> list[UnitValue]:
    about: tuple[Any, ...] = (passage.loaded.stored.name, passage.number)
    columns = zip(passage.pieces, passage.texts, values.tolist(), strict=True)
    return [UnitValue(*about, index, *each) for index, each in enumerate(columns)]


# Values that differ by less are those of a unit that never moves.
STILL = 1e-9
OPENS, CLOSES = "([{", ")]}"


@dataclass(frozen=True)
class Unit:
    """Record of `seqgen inspect --units --json`; its keys in order.

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
    """Compute simple properties of a text after each of its tokens, (N,) each.

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
    names = ("position in line", "position in word", "inside quotes", "inside brackets")
    names += ("capital", "white space", "punctuation", "position in text")
    table = np.array(rows, np.float64).reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True))


def _is_mark(character: str) -> bool:
    return character != "" and not character.isalnum() and not character.isspace()


def correlations(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlations of the columns of (N, A) with those of (N, B), (A, B).

    NaN where a column does not move.
    """
    centred = [x - x.mean(0) for x in (values, others)]
    norms = [np.sqrt((x**2).sum(0)) for x in centred]
    product = np.outer(*norms)
    moves = np.outer(*(norm > STILL for norm in norms))
    return np.divide(centred[0].T @ centred[1], product, out=np.full_like(product, np.nan),
                     where=moves)  # fmt: skip


def lags(values: np.ndarray) -> list[int | None]:
    """Find the lag at which each column's autocorrelation falls below 1 / e, for (N, H)."""
    centred, size = values - values.mean(0), len(values)
    power = (centred**2).sum(0)
    # All covariances at once (Wiener and Khinchin); zeros after the text keep its ends apart.
    spectrum = np.abs(np.fft.rfft(centred, 2 * size, axis=0)) ** 2
    covariances = np.fft.irfft(spectrum, 2 * size, axis=0)[:size]  # (N, H)
    falls = (covariances < power / math.e) & (power > STILL)
    return [int(column.argmax()) if column.any() else None for column in falls.T]


def units(passages: Passages) -> list[Unit]:
    """Describe every unit of a recurrent network, longest memory first.

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


def rank_correlations(units: Sequence[Unit]) -> dict[str, float]:
    """Compute Spearman's correlation of each gate's mean with the lag, over units.

    Units without a lag count for nothing; gates that the cell lacks are left out.
    """
    lasting = [unit for unit in units if unit.lag is not None]
    lags = np.array([unit.lag for unit in lasting])
    gates = {name: [getattr(unit, name) for unit in lasting] for name in ("kept", "reset")}
    found = {name: spearman(means, lags) for name, means in gates.items() if None not in means}
    return {name: value for name, value in found.items() if value is not None}


def _units(
    model: str, number: int, equation: Equation, layers: list[tuple[TokenizedDocument, LayerTrace]]
) -> list[Unit]:
    """Describe the units of a layer, in order.

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
    every = []
    for unit, (lag, row) in enumerate(zip(lags(values), correlated.tolist(), strict=True)):
        correlation_of = {
            name: None if math.isnan(r) else r for name, r in zip(of_text, row, strict=True)
        }
        moving = [name for name, r in correlation_of.items() if r is not None]
        best = max(moving, key=lambda name: abs(correlation_of[name]), default=None)
        keeps = None if kept is None else float(kept[unit])
        every.append(
            Unit(
                model=model,
                layer=number,
                unit=unit,
                kept=keeps,
                memory=None if keeps is None or keeps >= 1 else 1 / (1 - keeps),
                reset=None if reset is None else float(reset[unit]),
                lag=lag,
                feature=best,
                correlation=None if best is None else correlation_of[best],
                correlations=correlation_of,
            )
        )
    return every


def _mean(
    layers: list[tuple[TokenizedDocument, LayerTrace]], name: str | None
) -> np.ndarray | None:
    """Average a gate over all steps, (H,); None if the layer has no such gate."""
    if name is None or name not in layers[0][1].values:
        return None
    return np.concatenate([layer.values[name] for _, layer in layers]).mean(0)
