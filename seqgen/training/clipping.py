"""Clipping of gradients: of all together, or of each matrix by itself."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from seqgen.configs import TrainingConfig
from seqgen.training.sharding import whole_of


def clip(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> Tensor:
    """Clip the gradients of some parameters; return the norm that all had together.

    With clip_norm_scope=each, every matrix and vector is scaled down by itself, where its own norm
    exceeds clip_norm: the direction of the whole gradient changes.
    """
    with_gradients = [p for p in parameters if p.grad is not None]
    kind = float(config.clip_norm_type)
    norm = get_total_norm([p.grad for p in with_gradients], kind)
    if config.clip_norm:
        for group in _groups(with_gradients, config.clip_norm_scope):
            group_norm = norm if group is with_gradients else get_total_norm([group[0].grad], kind)
            clip_grads_with_norm_(group, config.clip_norm, group_norm)
    if config.clip_value:
        clip_grad_value_(with_gradients, config.clip_value)
    return whole_of(norm)


def _groups(parameters: list[nn.Parameter], scope: str) -> list[list[nn.Parameter]]:
    """Return the parameters whose gradients are scaled together."""
    return [parameters] if scope == "all" else [[parameter] for parameter in parameters]
