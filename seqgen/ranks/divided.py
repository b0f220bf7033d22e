"""Tensors that are divided among the ranks, as PyTorch's `DTensor`, or whole on every rank."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqgen import ranks

if TYPE_CHECKING:  # over a second, which only a run that divides a model takes
    from torch.distributed.tensor import DTensor


def is_divided(tensor: Tensor) -> bool:
    """Return whether a tensor is divided among the ranks."""
    module = sys.modules.get("torch.distributed.tensor")  # loaded by what divides
    return module is not None and isinstance(tensor, module.DTensor)


def whole_of(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be divided among the ranks, which all call this."""
    return tensor.full_tensor() if is_divided(tensor) else tensor


def on_first(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors, on rank 0 alone those that are divided: gathered one by one, on the CPU."""
    kept = {}
    for name, tensor in tensors.items():
        whole = whole_of(tensor)
        if not is_divided(tensor):
            kept[name] = tensor
        elif ranks.leads():
            kept[name] = whole.cpu()
    return kept


@torch.no_grad()
def part_of(whole: Tensor, part: Tensor) -> None:
    """Fill a tensor that may be divided among the ranks with this rank's part of a whole one."""
    if not is_divided(part):
        part.copy_(whole)
        return
    whole = whole.to(part.device, part.dtype)
    part.copy_(_divided(whole, part))


def divided_as(parameter: Tensor, value: Tensor) -> Tensor:
    """Return a whole value of a parameter's shape, divided as the parameter is."""
    if not is_divided(parameter) or value.shape != parameter.shape:
        return value
    return _divided(value.to(parameter.device), parameter)


def _divided(whole: Tensor, like: DTensor) -> DTensor:
    """Return this rank's part of a tensor that every rank has."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
