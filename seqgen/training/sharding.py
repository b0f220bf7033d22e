"""Dividing a model among the ranks: parameters, gradients and the states of optimisers (FSDP2)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from seqgen import ranks
from seqgen.models.base import Model, weights_of
from seqgen.models.precision import restored_randomness
from seqgen.models.room import without_content


class Shards:
    """A model whose parameters are divided among the ranks, block by block.

    A block is gathered when it computes. What is not in a block, as the whole of a recurrent
    model, is gathered for the whole step.

    Args:
        objective: what is called to train.
        model: within it; is divided in place.
        whole: a model of the same shape; on rank 0 it is filled with all parameters when asked.

    Attributes:
        whole: as they were gathered last.
        parameters: this rank's parts, in the model's order.
    """

    def __init__(self, objective: nn.Module, model: Model, whole: Model) -> None:
        # About views of its outputs, which nobody changes in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        self.whole = whole
        self._root, self._model = objective, model
        mesh = init_device_mesh(model.device.type, (ranks.world(),))
        for block in blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(objective, mesh=mesh)
        self.parameters = list(model.parameters())

    def fill_whole(self, values: Sequence[Tensor] | None = None) -> None:
        """Gather the model's parameters into `whole`, or other values in their place."""
        together = zip(self.whole.parameters(), values or self.parameters, strict=True)
        buffers = zip(self.whole.buffers(), self._model.buffers(), strict=True)
        with torch.no_grad():
            for parameter, value in together:
                gathered = whole_of(value)
                if ranks.leads():
                    parameter.copy_(gathered)
                    # Caches that compare a parameter's version see that it has changed.
                    torch.autograd.graph.increment_version(parameter)
            for buffer, value in buffers:
                if ranks.leads():
                    buffer.copy_(value)

    def settle(self) -> None:
        """Let go of what a forward pass without a backward pass has gathered."""
        self._root.reshard()

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights of the whole model on rank 0, as `weights_of` does."""
        self.fill_whole()
        return weights_of(self.whole) if ranks.leads() else {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take this rank's part of weights.

        Raises:
            KeyError: some are missing.
        """
        with torch.no_grad():
            for (name, _), part in zip(self.whole.named_parameters(), self.parameters, strict=True):
                part_of(tensors[name], part)
            for name, buffer in self._model.named_buffers():
                if name in tensors:
                    buffer.copy_(tensors[name])


def to_divide(model: Model) -> tuple[Model, Model]:
    """Return a model that may be divided, and one with its shape, which on rank 0 stays whole.

    The latter is the given one on rank 0, in evaluation mode. Elsewhere it has no content, so that
    no other rank holds a model twice.
    """
    if ranks.leads():
        return copy.deepcopy(model), model.eval()
    with restored_randomness(model.device):
        return model, without_content(type(model), model.config)


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of which nothing is used but by calling them, which say so."""
    for module in model.modules():
        if getattr(module, "called_whole", False):
            yield module


def is_divided(tensor: Tensor) -> bool:
    """Return whether a tensor is divided among the ranks."""
    return isinstance(tensor, DTensor)


def whole_of(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be divided among the ranks, which all call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def part_of(whole: Tensor, part: Tensor) -> None:
    """Fill a tensor that may be divided among the ranks with this rank's part of a whole one."""
    if not isinstance(part, DTensor):
        part.copy_(whole)
        return
    whole = whole.to(part.device, part.dtype)
    part.copy_(distribute_tensor(whole, part.device_mesh, part.placements))


def divided_as(parameter: Tensor, value: Tensor) -> Tensor:
    """Return a whole value of a parameter's shape, divided as the parameter is."""
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return value
    value = value.to(parameter.device)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements)
