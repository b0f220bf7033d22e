"""Dividing a model among the ranks: parameters, gradients and the states of optimizers (FSDP2)."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seqgen import ranks
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import TorchModel
from seqgen.models.deferred_init import Unfilled, lend_memory, take_content

if TYPE_CHECKING:  # over a second, which only a run that divides a model takes
    from torch.distributed.tensor import DTensor


class Shards:
    """A model whose parameters are divided among the ranks.

    It is divided before it has any content, and is then filled parameter by parameter, so that no
    rank ever holds the whole. A block is gathered when it computes. What is not in a block, as the
    whole of a recurrent model, is gathered for the whole step. So is all of a model that writes in
    training: to write, each rank calls the blocks a different number of times.

    Args:
        objective: what is called to train.
        unfilled: the model within it; is divided in place.
        whole: its `shell`; on rank 0 it is filled with all parameters when asked.
        writes: the model writes in training.

    Attributes:
        whole: has memory only within `whole_filled`.
        parameters: this rank's parts, in the model's order.
    """

    def __init__(
        self, objective: nn.Module, unfilled: Unfilled, whole: TorchModel, writes: bool
    ) -> None:
        from torch.distributed import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # About views of its outputs, which nobody changes in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        self.whole, self._root, self._model, self._writes = whole, objective, unfilled.model, writes
        recorded = [parameter.detach() for parameter in self._model.parameters()]
        own = set(self._model.parameters())
        self._others = [p for p in objective.parameters() if p not in own]
        unfilled.fill_buffers(self._model, whole.device)
        for part in self._model.modules():
            if isinstance(part, ArraySteps):
                part.takes_arrays = False
        mesh = init_device_mesh(whole.device.type, (ranks.world(),))
        for block in () if writes else blocks(self._model):
            fully_shard(block, mesh=mesh)
        fully_shard(objective, mesh=mesh, ignored_params=set(self._others))
        self.parameters = list(self._model.parameters())
        for parameter, without_content in zip(self.parameters, recorded, strict=True):
            take_content(parameter, torch.empty_like(parameter, device=whole.device))
            part_of(unfilled.recorder.made(without_content), parameter)

    def begin(self) -> None:
        """Gather what a model needs to write in a forward pass."""
        if not self._writes:
            return
        self._root.unshard()
        for parameter in self._model.parameters():
            # Caches that compare a parameter's version see that it has changed.
            torch.autograd.graph.increment_version(parameter)

    def end_forward(self) -> None:
        """Let go of what a forward pass without a backward pass has gathered."""
        self._root.reshard()

    def add_up_others(self) -> None:
        """Add up the gradients of what is no part of the model, such as a discriminator."""
        for parameter in self._others:
            gradient = parameter.grad
            if not ranks.largest(int(gradient is not None)):
                continue
            gradient = torch.zeros_like(parameter) if gradient is None else gradient
            parameter.grad = ranks.summed(gradient) / ranks.world()

    @contextlib.contextmanager
    def whole_filled(self, values: Sequence[Tensor] | None = None) -> Iterator[None]:
        """Have rank 0 hold the whole model within: its parameters, or other values for them."""
        with lend_memory(self.whole) if ranks.leads() else contextlib.nullcontext():
            self._fill_whole(self.parameters if values is None else values)
            yield

    @torch.no_grad()
    def _fill_whole(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.whole.parameters(), values, strict=True):
            gathered = whole_of(value)
            if ranks.leads():
                parameter.copy_(gathered)
                torch.autograd.graph.increment_version(parameter)
        for buffer, value in zip(self.whole.buffers(), self._model.buffers(), strict=True):
            buffer.copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights of the whole model on rank 0, as `weights_of` does."""
        tensors = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        return on_first(
            {name: tensors[name] for name in self.whole.state_dict() if name in tensors}
        )

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


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of which nothing is used but by calling them, which say so."""
    for module in model.modules():
        if getattr(module, "called_whole", False):
            yield module


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
