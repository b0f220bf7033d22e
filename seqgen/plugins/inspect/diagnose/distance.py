"""Gradients by distance through time, and their upper bound: how far back a loss reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.plugins.inspect.diagnose.layers import features_of
from seqgen.plugins.inspect.watched import StepRecorder, watch_layers
from seqgen.settings import require
from seqgen.text.corpus import Corpus
from seqgen.wording import column

# How far back is looked unless the user says.
DISTANCE = 100


@dataclass(frozen=True, kw_only=True)
class Distance:
    """Gradient of the loss at step i in the state at step i - distance, averaged over windows.

    Attributes:
        distance: i - j, in tokens.
        grad_norm: the norm of d loss_i / d h_j; h_j is all that the layer hands on at step j. Of
            a model that is not recurrent it is the vector at position j.
        bound: |d loss_i / d h_i| |W_h|^(i-j) prod_{j < t <= i} |diag phi'(a_t)|, which grad_norm
            never exceeds; of the last layer of a plain recurrent network without zoneout or a
            pointer, else None.
        weight_grad_norm: the norm of step j's term of d loss_i / d W_h, which is the sum of such
            terms over all steps; None where no matrix acts on the past.
    """

    distance: int = column("distance")
    grad_norm: float = column("gradient norm", "number")
    bound: float | None = column("bound", "number", unless=None)
    weight_grad_norm: float | None = column("term of W_h", "number", unless=None)


def longest_document(corpus: Corpus) -> int:
    """Count the tokens of the longest document; 0 without documents."""
    return int((corpus.ends - corpus.starts).max(initial=0))


def window_length(model: NeuralLanguageModel, corpus: Corpus) -> int:
    """Choose the window length for gradients over `DISTANCE` tokens.

    It is shorter where the text's documents or the model's window are.
    """
    longest = longest_document(corpus)
    return min(DISTANCE + 1, longest, model.window or longest)


def windows(corpus: Corpus, length: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose windows spaced evenly over a text, without overlap.

    Args:
        corpus: the text, with a document of that length at least.
        length: of each window.
        most: how many windows there are, fewer where the text is short.

    Returns:
        What the model reads, and the token after each: (B, length) of int64 both. Each window is
        read as the beginning of a text: nothing is remembered of what came before it.
    """
    fitting = np.cumsum((corpus.ends - corpus.starts) // length)  # windows up to each document
    there = int(fitting[-1])
    count = min(most, there)
    nth = np.array([there * i // count for i in range(count)])
    document = np.searchsorted(fitting, nth, "right")
    within = nth - np.where(document > 0, fitting[document - 1], 0)
    at = corpus.starts[document] + within * length  # (B,)
    targets = corpus.tokens[at[:, None] + np.arange(length)].astype(np.int64)
    before = np.where(within == 0, corpus.start, corpus.tokens[np.maximum(at, 1) - 1])
    return np.hstack([before.astype(np.int64)[:, None], targets[:, :-1]]), targets


def gradients_by_distance(
    model: NeuralLanguageModel, tokens: Tensor, targets: Tensor, layer: int | None = None
) -> list[Distance]:
    """Compute the gradient norm of each window's last loss by distance, 0 to T - 1.

    Args:
        model: of text, in evaluation mode.
        tokens: (B, T) of int64, windows of which each begins a text.
        targets: (B,) of int64, the token after each window.
        layer: of the stack, from 0. None is the last of a recurrent network; of another model
            it stands for the vectors that the stack reads.

    Raises:
        UsageError: there is no such layer.
    """
    layers = list(model.stack or ())
    there = layer is None or 0 <= layer < len(layers)
    numbers = f"from 0 to {len(layers) - 1}" if layers else "for models with a stack of layers"
    require(there, f"--layer is {numbers}, not {layer}")
    if any(isinstance(each, Cell) for each in layers):
        return _of_cell(model, tokens, targets, len(layers) - 1 if layer is None else layer)
    return _of_vectors(model, tokens, targets, None if layer is None else layers[layer])


def _last_loss(model: NeuralLanguageModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """Compute the loss of the last prediction, summed over independent rows."""
    logits, _ = model(tokens, None, last=1)
    return F.cross_entropy(logits[:, -1], targets, reduction="sum")


@torch.enable_grad()
def _of_cell(
    model: NeuralLanguageModel, tokens: Tensor, targets: Tensor, layer: int
) -> list[Distance]:
    cell, steps = model.stack[layer], StepRecorder()
    with watch_layers({cell: steps}):
        loss = _last_loss(model, tokens, targets)
    parts = [part for state in steps.states for part in state]
    weights = [
        w for name, (w, _) in cell.maps_of_past().items() if name not in cell.equation.readouts
    ]
    gradients = torch.autograd.grad(loss, [*parts, *weights], allow_unused=True)
    width, rows = len(steps.states[0]), len(tokens)
    norms = [
        _norms(gradients[at : at + width], rows) for at in range(0, len(parts), width)
    ]  # T of (B,)
    # A pointer reads the output of the last layer, too.
    head_alone = layer == len(model.stack) - 1 and model.pointer is None
    bounds = _bounds(cell, steps.states, norms[-1]) if head_alone else None
    last = len(norms) - 1
    terms = [steps.squares.get(step, 0.0) ** 0.5 / rows for step in range(len(norms))]
    return [
        Distance(
            distance=distance,
            grad_norm=float(norms[last - distance].mean()),
            bound=None if bounds is None else float(bounds[distance].mean()),
            weight_grad_norm=terms[last - distance] if weights else None,
        )
        for distance in range(len(norms))
    ]


def _norms(gradients: tuple[Tensor | None, ...], rows: int) -> Tensor:
    """Compute each row's gradient norm (B,) over all parts; unused parts count as 0."""
    flat = [gradient.flatten(1) for gradient in gradients if gradient is not None]
    return torch.cat(flat, 1).norm(dim=1) if flat else torch.zeros(rows)


@torch.no_grad()
def _bounds(cell: Cell, states: list[LayerState], first: Tensor) -> list[Tensor] | None:
    """Compute the bound at every distance, (B,) each; None if the model has none.

    Args:
        cell: the last layer of the network, whose output nothing but the head reads.
        states: after each step.
        first: (B,), the norms at distance 0.
    """
    if cell.equation.slope(states[0][0]) is None or cell.equation.zones_out:
        return None
    norm = torch.linalg.matrix_norm(cell.weight_hh, ord=2)
    bounds = [first]
    for h, *_ in reversed(states[1:]):
        bounds.append(bounds[-1] * norm * cell.equation.slope(h).amax(-1))
    return bounds


@torch.enable_grad()
def _of_vectors(
    model: NeuralLanguageModel, tokens: Tensor, targets: Tensor, part: torch.nn.Module | None
) -> list[Distance]:
    """Compute the gradients in the output of a module: a block, or the embedding."""
    seen: list[Tensor] = []
    hook = (part or model.embedding).register_forward_hook(
        lambda *call: seen.append(features_of(call[-1]))
    )
    try:
        loss = _last_loss(model, tokens, targets)
    finally:
        hook.remove()
    (gradient,) = torch.autograd.grad(loss, seen)
    norms = gradient.norm(dim=-1).mean(0).flip(0)  # the last position first
    return [
        Distance(distance=distance, grad_norm=norm, bound=None, weight_grad_norm=None)
        for distance, norm in enumerate(norms[: tokens.shape[1]].tolist())
    ]
