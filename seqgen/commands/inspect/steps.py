"""What a recurrent network does with a text, step by step: inputs, gates, states, predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqgen.commands.inspect.passage import InspectedText, Passages
from seqgen.commands.loaded import LoadedModel
from seqgen.configs import require
from seqgen.errors import named
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.recurrent.watched import Steps, watching

# A model with more parameters is not followed by hand.
MOST_WEIGHTS = 500


@dataclass(frozen=True)
class LayerTrace:
    """What a layer did at T steps.

    Attributes:
        cell: the layer.
        inputs: (T, E), what it read.
        values: by name (T, width): its gates as the equation shows them, then its state.
    """

    cell: Cell
    inputs: np.ndarray
    values: dict[str, np.ndarray]


@dataclass(frozen=True)
class Trace:
    """What a network did while it read T tokens; its head predicts from `features` (1, T, H)."""

    layers: list[LayerTrace]
    features: Tensor


class _Recording:
    """A `Watch` that also keeps what the layer reads."""

    def __init__(self) -> None:
        self.steps, self.inputs = Steps(), []

    def __call__(self, cell: Cell, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        self.inputs.append(x.detach())
        return self.steps(cell, x, state)

    def trace(self, cell: Cell) -> LayerTrace:
        """Return what was kept of one row."""
        shown, states = self.steps.shown, self.steps.states
        values = {name: _column([step[name] for step in shown]) for name in shown[0]}
        values |= {
            part: _column([step[number] for step in states])
            for number, part in enumerate(cell.equation.parts)
        }
        return LayerTrace(cell, torch.cat(self.inputs, 1)[0].double().cpu().numpy(), values)


def _column(steps: list[Tensor]) -> np.ndarray:
    """Return the first row of T tensors (B, width) as (T, width)."""
    return torch.stack([step.detach()[0] for step in steps]).double().cpu().numpy()


def require_recurrent(loaded: LoadedModel, flag: str) -> None:
    """Refuse a model that is no recurrent network.

    Raises:
        UsageError: it is none; names the flag.
    """
    name = loaded.stored.name
    require(
        isinstance(loaded.model, RecurrentLM),
        f"{flag} is for recurrent networks, such as rnn, gru and lstm, which {name} is not",
    )


def trace(loaded: LoadedModel, tokens: np.ndarray) -> Trace:
    """Return what a recurrent network does while it reads T tokens from the start of a text.

    Args:
        loaded: the model.
        tokens: (T,) of int64.
    """
    recordings = {cell: _Recording() for cell in loaded.model.layers}
    batch = torch.from_numpy(tokens)[None].to(loaded.model.device)
    # Without a graph one token goes through `Cell.step`, which no watch sees.
    with torch.set_grad_enabled(len(tokens) == 1), watching(recordings):
        features, _ = loaded.model.hidden(batch, None)
    layers = [recording.trace(cell) for cell, recording in recordings.items()]
    return Trace(layers, features.detach())


@dataclass(frozen=True)
class InspectedWeights:
    """The first record of `seqgen inspect --steps --json`: what it takes to follow by hand.

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
        numbers = {n: p.detach().tolist() for n, p in model.named_parameters()}
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
    """The keys of `seqgen inspect --steps --json`, in order.

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
    require_recurrent(passages.documents[0].loaded, "--steps")
    for passage in passages.documents:
        traced = trace(passage.loaded, passage.read)
        for number, logits in enumerate(_logits(passage, traced)):
            yield _step(passage, traced, number, logits)


@torch.inference_mode()
def _logits(passage: InspectedText, traced: Trace) -> np.ndarray:
    """Return what a network predicts at each of its T steps, (T, V)."""
    logits = passage.loaded.model.logits(traced.features, passage.batch, None)
    return logits[0].double().cpu().numpy()


def _step(passage: InspectedText, traced: Trace, number: int, logits: np.ndarray) -> InspectedStep:
    loaded = passage.loaded
    token, target = int(passage.read[number]), int(passage.targets[number])
    log_probs = logits - np.logaddexp.reduce(logits)
    layers = []
    for index, layer in enumerate(traced.layers):
        values = {name: of_all[number].tolist() for name, of_all in layer.values.items()}
        state = {part: values.pop(part) for part in layer.cell.equation.parts}
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
    name = name or memory_of(of_layer.cell)
    return named("value of this layer", name, of_layer.values), name


def memory_of(cell: Cell) -> str:
    """Return which part of a cell's state is its memory: the last, as c of h and c."""
    return cell.equation.parts[-1]


def _unit_places(passage: InspectedText, values: np.ndarray) -> list[UnitValue]:
    about: tuple[Any, ...] = (passage.loaded.stored.name, passage.number)
    columns = zip(passage.pieces, passage.texts, values.tolist(), strict=True)
    return [UnitValue(*about, index, *each) for index, each in enumerate(columns)]
