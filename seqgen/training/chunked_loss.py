"""Cross-entropy of a linear head in pieces of rows, so that all logits are never there at once.

With logits z = W h + b of N positions and a vocabulary of V tokens, the loss needs (N, V) numbers
several times. Here a piece of the positions gets its logits, its loss and at once the gradients of
h, W and b, which are small beside them. They are exact: the backward pass only scales them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seqgen.engines.fast_layers import linear

# The loss is computed in pieces from so many logits on, each of at most so many. On a GPU a piece
# is larger: adding to the gradient of W takes as long as a small one.
LEAST_LOGITS, PIECE, PIECE_ON_GPU = 1 << 22, 1 << 22, 1 << 27


def cross_entropy_in_pieces(
    features: Tensor, head: nn.Linear, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Compute the loss to minimise and the plain nats, both summed; see `reading.cross_entropy`.

    Args:
        features: (N, H).
        head: the map to logits.
        targets: (N,) of int64.
        smoothing: the share of each target that is spread over all tokens.
    """
    kind = features.dtype
    if torch.is_autocast_enabled(features.device.type):
        kind = torch.get_autocast_dtype(features.device.type)
    return _CrossEntropy.apply(features, head.weight, head.bias, targets, smoothing, kind)


class _CrossEntropy(Function):
    """Autograd function of the summed cross-entropy; gradients come from the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        kind: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        needs_d_features, needs_d_weight, needs_d_bias, *_ = ctx.needs_input_grad
        wide = torch.promote_types(kind, torch.float32)
        d_features = torch.empty_like(features) if needs_d_features else None
        d_weight = torch.zeros_like(weight) if needs_d_weight else None
        d_bias = torch.zeros_like(bias) if needs_d_bias else None
        matrix, vector = weight.to(kind), None if bias is None else bias.to(kind)
        minimised = features.new_zeros((), dtype=wide)
        nats = minimised.clone()
        rows = max(1, (PIECE if features.device.type == "cpu" else PIECE_ON_GPU) // len(weight))
        with torch.autocast(features.device.type, enabled=False):
            for begin in range(0, len(features), rows):
                piece = slice(begin, begin + rows)
                x, y = features[piece].to(kind), targets[piece, None]
                log_probs = linear(x, matrix, vector).to(wide).log_softmax(-1)
                own = -log_probs.gather(1, y).sum()
                nats += own
                minimised += (1 - smoothing) * own
                if smoothing:
                    minimised -= smoothing * log_probs.mean(-1).sum()
                # p - q, with q the target's distribution
                d_logits = log_probs.exp_()
                d_logits.scatter_add_(1, y, d_logits.new_full(y.shape, smoothing - 1))
                if smoothing:
                    d_logits -= smoothing / len(weight)
                d_logits = d_logits.to(kind)
                if needs_d_features:
                    d_features[piece] = (d_logits @ matrix).to(features.dtype)
                if needs_d_weight:
                    d_weight += d_logits.T @ x
                if needs_d_bias:
                    d_bias += d_logits.sum(0)
                del log_probs, d_logits  # before the next piece has its own
        ctx.save_for_backward(*(x for x in (d_features, d_weight, d_bias) if x is not None))
        ctx.mark_non_differentiable(nats)
        return minimised, nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        needed = ctx.needs_input_grad[:3]
        gradients = [next(saved) * d_loss if one else None for one in needed]
        return (*gradients, None, None, None)
