"""Loss and gradients of skip-gram with negative sampling, computed by the compiled library."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqgen.engines.native.library import library
from seqgen.plugins.vectors.models.network import Draws


class _Sampled(ctypes.Structure):
    """C struct `sampled`: the arguments of the compiled loss."""

    _fields_ = [
        *((name, c_int64) for name in ("width", "rows", "length", "noise_words", "context")),
        *((name, c_void_p) for name in ("centres", "contexts", "tokens", "reach", "kept", "noise")),
        *((name, c_void_p) for name in ("of_centres", "of_contexts", "room", "places")),
        ("negatives", c_float),
    ]


class SampledCost(torch.autograd.Function):
    """Autograd function of the skip-gram loss, which computes gradients in the forward pass."""

    @staticmethod
    def fits(v: Tensor, u: Tensor) -> bool:
        """Check whether the compiled library is available and supports these tables (V, D)."""
        fit = all(x.is_cpu and x.dtype == torch.float32 and x.is_contiguous() for x in (v, u))
        return fit and not torch.compiler.is_compiling() and library() is not None

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, u: Tensor, tokens: Tensor, draws: Draws, context: int, negatives: int
    ) -> Tensor:
        """Compute the loss of tokens (B, T) from the tables v and u (V, D), and its gradients."""
        texts = [x.contiguous() for x in (tokens, draws.reach, draws.kept, draws.noise)]
        gradients = torch.zeros_like(v), torch.zeros_like(u)
        places = torch.empty(2, tokens.shape[1], dtype=torch.int64)
        about = _Sampled(v.shape[1], *tokens.shape, draws.noise.shape[1], context)
        about.negatives = negatives
        room = torch.empty(library().sampled_room(ctypes.byref(about)))
        arrays = [v, u, *texts, *gradients, room, places]
        for (name, _), array in zip(_Sampled._fields_[5:-1], arrays, strict=True):
            setattr(about, name, array.data_ptr())
        cost = library().sampled_cost(ctypes.byref(about))
        ctx.save_for_backward(*gradients)
        return v.new_tensor(cost)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(x.mul_(gradient) for x in ctx.saved_tensors), None, None, None, None
