"""Norms of weights, gradients and updates by layer, and statistics of units."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.engines.precision import in_float64
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.network import Network
from seqgen.models.recurrent.cell import Cell
from seqgen.models.transformer.equations import FeedForward
from seqgen.models.transformer.model import Transformer
from seqgen.plugins.inspect.attention_figures import observe_attention, unscaled_gain
from seqgen.plugins.inspect.watched import StepRecorder, watch_layers
from seqgen.text.sources import Source
from seqgen.wording import column

# Numbers that are converted to float64 at a time: an embedding of 28 million would take 450 MB.
PIECE = 1 << 20

# Beyond these values the slope of an activation is below 0.36 of its largest. Those of gates are
# those of Karpathy et al. (2015, "Visualizing and understanding recurrent networks").
SATURATED = {
    "sigmoid": lambda y: (y < 0.1) | (y > 0.9),
    "tanh": lambda y: y.abs() > 0.8,
}


@dataclass(frozen=True, kw_only=True)
class LayerFigures:
    """Norms and unit statistics of one layer; None where they do not apply.

    Attributes:
        layer: the name of its module in the model.
        weight_norm: of all its weights.
        grad_norm: of their gradient, before clipping.
        update_ratio: the norm of an update of its matrices, as a share of their norm.
        saturated: share of gates near 0 or 1; of a network without gates, of units near their
            limits.
        dead: share of ReLU units that are 0 for every token that was looked at.
        activation_mean, activation_std: of its output.
        spectral_radius: the largest absolute eigenvalue of W_h; of several such maps the largest.
    """

    layer: str = column("layer")
    weight_norm: float = column("weights", "number")
    grad_norm: float | None = column("gradient", "number")
    update_ratio: float | None = column("update ratio", "number")
    saturated: float | None = column("saturated", "percentage", 1, default=None)
    dead: float | None = column("dead", "percentage", 1, default=None)
    activation_mean: float | None = column("output mean", "number", default=None)
    activation_std: float | None = column("deviation", "number", default=None)
    spectral_radius: float | None = column("spectral radius", "number", default=None)


class Units:
    """Running statistics of a layer's units.

    Attributes:
        values: by activation, how many values there were, and how many saturated ones.
        alive: by place in a step, which ReLU units were above 0 for some token.
        outputs: the number of outputs, their sum and the sum of their squares.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {}
        self.alive: Tensor | None = None
        self.outputs = [0, 0.0, 0.0]

    def see(self, name: str, y: Tensor) -> None:
        """Count the values (..., H) of an activation."""
        if name == "relu":
            above = (y > 0).flatten(0, -2).any(0)
            self.alive = above if self.alive is None else self.alive | above
        if name in SATURATED:
            known = self.values.setdefault(name, [0, 0])
            known[0] += y.numel()
            known[1] += int(SATURATED[name](y).sum())

    def see_output(self, y: Tensor) -> None:
        """Add the layer's outputs for some tokens."""
        wide = in_float64(y.detach())
        seen = (y.numel(), float(wide.sum()), float(wide.square().sum()))
        self.outputs = [old + new for old, new in zip(self.outputs, seen, strict=True)]

    def figures(self) -> dict[str, float | None]:
        """Compute the fields of `LayerFigures` that describe units."""
        count, total, squares = self.outputs
        of_gates = self.values.get("sigmoid") or self.values.get("tanh")
        mean = total / count if count else None
        return {
            "saturated": of_gates[1] / of_gates[0] if of_gates else None,
            "dead": None if self.alive is None else 1 - float(in_float64(self.alive).mean()),
            "activation_mean": mean,
            "activation_std": max(0.0, squares / count - mean**2) ** 0.5 if count else None,
        }


@contextlib.contextmanager
def watching_units(network: Network) -> Iterator[dict[int, Units]]:
    """Collect unit statistics of each layer of the stack while the network runs."""
    layers = list(network.stack or ())
    units = {index: Units() for index in range(len(layers))}
    with contextlib.ExitStack() as hooks:
        for index, layer in enumerate(layers):
            seen = units[index]
            if isinstance(layer, Cell):
                hooks.enter_context(watch_layers({layer: _watch(seen)}))
            else:
                hook = layer.register_forward_hook(
                    lambda *call, s=seen: s.see_output(features_of(call[-1]))
                )
                hooks.callback(hook.remove)
            for part in layer.modules():
                if isinstance(part, FeedForward) and part.activation == "relu":
                    hook = part.inner.register_forward_hook(
                        lambda *call, s=seen: s.see("relu", call[-1].detach())
                    )
                    hooks.callback(hook.remove)
        yield units


def features_of(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Select the features from a layer's output, which may also contain a state."""
    return output[0] if isinstance(output, tuple) else output


def _watch(units: Units):
    def watch(cell: Cell, x: Tensor, state: tuple[Tensor, ...]):
        y, after = StepRecorder(units.see)(cell, x, state)
        units.see_output(y)
        return y, after

    return watch


@torch.no_grad()
def units_of(
    model: NeuralLanguageModel, tokens: Tensor, source: Source | None = None
) -> dict[int, dict[str, float | None]]:
    """Compute unit statistics of each layer of the stack, without dropout.

    Args:
        model: in training or in evaluation mode, which it keeps.
        tokens: (B, T) of int64, the beginnings of B texts.
        source: what they are written from, for a model that reads sources.
    """
    training = model.training
    model.eval()
    past = None if source is None else model.remember(source)
    with watching_units(model) as units:
        model.hidden(tokens, past)
    model.train(training)
    return {index: seen.figures() for index, seen in units.items()}


def named_layers(network: Network) -> list[tuple[str, list[nn.Parameter]]]:
    """Group the parameters by layer name in order of use, each parameter once.

    A layer is named after its first parameter, by as much of that name as makes it unique.
    """
    name_of = {parameter: name for name, parameter in network.named_parameters()}
    stack = next((n for n, child in network.named_children() if child is network.stack), None)
    of_head = set() if network.head is None else set(network.head.parameters())
    groups = network.parameters_in_order()
    paths = [name_of[parameters[0]].split(".") for parameters in groups]
    depths = [2 if path[0] == stack else 1 for path in paths]
    while True:
        names = [".".join(path[:n]) for path, n in zip(paths, depths, strict=True)]
        twice = [i for i, name in enumerate(names) if names.count(name) > 1]
        if not twice:
            break
        for i in twice:
            depths[i] += 1
    return [
        ("head" if of_head.intersection(parameters) else name, parameters)
        for name, parameters in zip(names, groups, strict=True)
    ]


def norm_of(tensors: list[Tensor]) -> float:
    """Compute the joint Euclidean norm of tensors, in float64."""
    squares = (float(in_float64(p).square().sum()) for t in tensors for p in _pieces(t.detach()))
    return sum(squares) ** 0.5


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """Cut a tensor into groups of rows of at most `PIECE` numbers, but for longer rows."""
    if tensor.ndim < 2:
        return (tensor,)
    return tensor.split(max(1, PIECE // max(1, tensor[0].numel()))) if len(tensor) else ()


def spectral_radius(cell: Cell) -> float | None:
    """Compute the largest absolute eigenvalue of the recurrent weights; None without any."""
    blocks = [
        block
        for weight, _ in cell.maps_of_past().values()
        for block in weight.detach().split(cell.hidden_size)
        if block.shape[0] == block.shape[1]
    ]
    if not blocks:
        return None
    eigenvalues = torch.linalg.eigvals(torch.stack(blocks).cpu().double())
    return float(eigenvalues.abs().max())


class Update:
    """Figures of an update: begun when gradients exist, and read after the step.

    Args:
        network: with the gradients that the update is made from, not yet clipped.
    """

    def __init__(self, network: Network) -> None:
        self.network, self._layers = network, named_layers(network)
        self._gradients = [
            None if not (gradients := [p.grad for p in of_layer if p.grad is not None])
            else norm_of(gradients)
            for _, of_layer in self._layers
        ]  # fmt: skip
        self._before = [
            {p: p.detach().clone() for p in of_layer if p.ndim >= 2 and p.grad is not None}
            for _, of_layer in self._layers
        ]

    def figures(
        self, units: Mapping[int, Mapping[str, float | None]], radius: bool = True
    ) -> list[LayerFigures]:
        """Compute the figures of every layer, after the update.

        Args:
            units: of the layers of the stack, by number; see `units_of`.
            radius: compute spectral radii, which takes a second for a thousand units.
        """
        stack = list(self.network.stack or ())
        number = {p: i for i, layer in enumerate(stack) for p in layer.parameters()}
        figures = []
        for (name, of_layer), gradient, before in zip(
            self._layers, self._gradients, self._before, strict=True
        ):
            index = number.get(of_layer[0])
            cell = None if index is None or not isinstance(stack[index], Cell) else stack[index]
            moved = norm_of([p.detach() - old for p, old in before.items()])
            from_ = norm_of(list(before.values()))
            figures.append(
                LayerFigures(
                    layer=name,
                    weight_norm=norm_of(of_layer),
                    grad_norm=gradient,
                    update_ratio=moved / from_ if from_ else None,
                    **(units.get(index, {}) if index is not None else {}),
                    spectral_radius=spectral_radius(cell) if cell and radius else None,
                )
            )
        return figures


@torch.no_grad()
def loss_unscaled(model: Transformer, tokens: Tensor, targets: Tensor) -> float:
    """Compute the loss, in nats per token, with attention softmax(Q K^T) V, without scaling."""
    features = observe_attention(model, tokens, gain=unscaled_gain(model))
    return float(F.cross_entropy(model.head(features).flatten(0, 1), targets.flatten()))
