"""Tensors sharded among the ranks (PyTorch's `DTensor`) or replicated on every rank."""

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
    """Check whether a tensor is sharded among the ranks."""
    module = sys.modules.get("torch.distributed.tensor")  # loaded by what divides
    return module is not None and isinstance(tensor, module.DTensor)


def whole_of(tensor: Tensor) -> Tensor:
    """Gather the full tensor if it is sharded among the ranks; all ranks must call this."""
    return tensor.full_tensor() if is_divided(tensor) else tensor


def on_first(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gather sharded tensors one by one to rank 0's CPU; replicated ones stay on every rank."""
    kept = {}
    for name, tensor in tensors.items():
        whole = whole_of(tensor)
        if not is_divided(tensor):
            kept[name] = tensor
        elif ranks.is_leader():
            kept[name] = whole.cpu()
    return kept


@torch.no_grad()
def part_of(whole: Tensor, part: Tensor) -> None:
    """Copy a full tensor into `part`, which may be this rank's shard."""
    if not is_divided(part):
        part.copy_(whole)
        return
    part.copy_(_divided(whole.to(part.device, part.dtype), part))


def divided_as(parameter: Tensor, value: Tensor) -> Tensor:
    """Shard a full tensor in the same way as the parameter of its shape."""
    if not is_divided(parameter) or value.shape != parameter.shape:
        return value
    return _divided(value.to(parameter.device), parameter)


def _divided(whole: Tensor, like: DTensor) -> DTensor:
    """Shard a tensor that every rank has in full; return this rank's shard."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
