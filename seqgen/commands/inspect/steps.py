"""What a recurrent network does with a text, step by step: inputs, gates, states, predictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqgen.commands.inspect.passage import InspectedText, Passages
from seqgen.commands.loaded import LoadedModel
from seqgen.configs import require
from seqgen.errors import named
from seqgen.models.engines.arrays import Arrays
from seqgen.models.engines.ops import ArrayOps, Leaf, ops_of
from seqgen.models.reader import Reader, without_gradients
from seqgen.models.recurrent.array_model import ArrayLayer, RecurrentArrays
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.equation import Equation

# A model with more parameters is not followed by hand.
MOST_WEIGHTS = 500


@dataclass(frozen=True)
class LayerTrace:
    """What a layer did at T steps.

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
    """What a network did while it read T tokens; its head predicts from `features` (1, T, H)."""

    layers: list[LayerTrace]
    features: Leaf


class _Recording:
    """An array layer that keeps what a row makes of it; see `watched.Recording`."""

    def __init__(self, layer: ArrayLayer) -> None:
        self.layer, self.equation, self.inputs = copy.copy(layer), layer.equation, np.empty(0)
        self.start = layer.start
        self.shown, self.states = [], []

        def show(**values: np.ndarray) -> None:
            self.shown[-1] |= {name: y[0].astype(np.float64) for name, y in values.items()}

        self.layer.ops = type("WatchedArrays", (ArrayOps,), {"show": staticmethod(show)})

    def sequence(self, x: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        """Take a sequence step by step; see `ArrayLayer.sequence`."""
        self.inputs, outputs = x[0], []
        for x_t in x.swapaxes(0, 1):
            self.shown.append({})
            state = self.layer.step(x_t, state)
            self.states.append([part[0].astype(np.float64) for part in state])
            outputs.append(state[0])
        return np.stack(outputs, 1), state


def require_recurrent(loaded: LoadedModel, flag: str) -> None:
    """Refuse a model that is no recurrent network.

    Raises:
        UsageError: it is none; names the flag.
    """
    name, config = loaded.stored.name, loaded.model.config
    require(
        isinstance(config, RecurrentConfig) and isinstance(loaded.model, Reader),
        f"{flag} is for recurrent networks, such as rnn, gru and lstm, which {name} is not",
    )


def trace(loaded: LoadedModel, tokens: np.ndarray) -> Trace:
    """Return what a recurrent network does while it reads T tokens from the start of a text.

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
        from seqgen.models.recurrent.watched import recorded

        recordings, features = recorded(model, tokens)
    layers = []
    for equation, of_layer in recordings:
        shown, states = of_layer.shown, zip(*of_layer.states, strict=True)
        values = {name: np.stack([step[name] for step in shown]) for name in shown[0]}
        values |= dict(zip(equation.parts, map(np.stack, states), strict=True))
        layers.append(LayerTrace(equation, of_layer.inputs.astype(np.float64), values))
    return Trace(layers, features)


@dataclass(frozen=True)
class InspectedWeights:
    """The first record of `seqgen inspect --trace --json`: what it takes to follow by hand.

    Attributes:
        model: its name.
        vocabulary: the V tokens as a person sees them, in the order of the logits.
        weights: every parameter by name, rows within rows; None for a model that has too many.
    """

    model: str
    vocabulary: list[str]
    weights: dict[str, Any] | None


def weights(loaded: LoadedModel, most: int = MOST_WEIGHTS) -> InspectedWeights:
    """Return the parameters of a model that has at most so many."""
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
    """A layer at one step.

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
        """What it reads, its gates and its state by name, in this order."""
        return [("x", self.x), *self.gates.items(), *self.state.items()]


@dataclass(frozen=True)
class InspectedStep:
    """The keys of `seqgen inspect --trace --json`, in order.

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
def _logits(passage: InspectedText, traced: Trace) -> np.ndarray:
    """Return what a network predicts at each of its T steps, (T, V)."""
    logits = passage.loaded.model.logits(traced.features, passage.batch, None)
    return ops_of(logits).array(logits)[0].astype(np.float64)


def _step(passage: InspectedText, traced: Trace, number: int, logits: np.ndarray) -> InspectedStep:
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
    """The keys of `seqgen inspect --unit --json`, in order: a token, and a value after it.

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
    """One unit over a text.

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
    """Return the value of one unit after each token of a text.

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
    """Return a layer's values (T, width) and their name."""
    last = len(traced.layers) - 1
    require(layer <= last, f"--layer is from 0 to {last} for {loaded.stored.name}, not {layer}")
    of_layer = traced.layers[layer]
    name = name or memory_of(of_layer.equation)
    return named("value of this layer", name, of_layer.values), name


def memory_of(equation: Equation) -> str:
    """Return which part of a layer's state is its memory: the last, as c of h and c."""
    return equation.parts[-1]


def _unit_places(passage: InspectedText, values: np.ndarray) -> list[UnitValue]:
    about: tuple[Any, ...] = (passage.loaded.stored.name, passage.number)
    columns = zip(passage.pieces, passage.texts, values.tolist(), strict=True)
    return [UnitValue(*about, index, *each) for index, each in enumerate(columns)]
