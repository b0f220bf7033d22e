"""Sharded training: parameters, gradients and optimizer states divided among ranks (FSDP2)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seqgen import ranks
from seqgen.models.array_steps import ArraySteps
from seqgen.models.deferred_init import DeferredModel, lend_memory, swap_content
from seqgen.ranks.divided import on_first, part_of, whole_of

if TYPE_CHECKING:
    from seqgen.models.base import TorchModel


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
        self, objective: nn.Module, unfilled: DeferredModel, whole: TorchModel, writes: bool
    ) -> None:
        from torch.distributed import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # About views of its outputs, which nobody changes in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        self.whole, self._root, self._model, self._writes = whole, objective, unfilled.model, writes
        recorded = [parameter.detach() for parameter in self._model.parameters()]
        parameters = set(self._model.parameters())
        self._others = [p for p in objective.parameters() if p not in parameters]
        unfilled.fill_buffers(self._model, whole.device)
        for part in self._model.modules():
            if isinstance(part, ArraySteps):
                part.takes_arrays = False
        mesh = init_device_mesh(whole.device.type, (ranks.world_size(),))
        for block in () if writes else blocks(self._model):
            fully_shard(block, mesh=mesh)
        fully_shard(objective, mesh=mesh, ignored_params=set(self._others))
        self.parameters = list(self._model.parameters())
        for parameter, without_content in zip(self.parameters, recorded, strict=True):
            swap_content(parameter, torch.empty_like(parameter, device=whole.device))
            part_of(unfilled.recorder.made(without_content), parameter)

    def begin(self) -> None:
        """Gather the parameters before a forward pass, if the model generates text in it."""
        if not self._writes:
            return
        self._root.unshard()
        for parameter in self._model.parameters():
            # Caches that compare a parameter's version see that it has changed.
            torch.autograd.graph.increment_version(parameter)

    def end_forward(self) -> None:
        """Free gathered parameters after a forward pass without a backward pass."""
        self._root.reshard()

    def add_up_others(self) -> None:
        """Sum over ranks the gradients outside the model, such as a discriminator's."""
        for parameter in self._others:
            gradient = parameter.grad
            if not ranks.all_max(int(gradient is not None)):
                continue
            gradient = torch.zeros_like(parameter) if gradient is None else gradient
            parameter.grad = ranks.all_sum_tensor(gradient) / ranks.world_size()

    @contextlib.contextmanager
    def whole_filled(self, values: Sequence[Tensor] | None = None) -> Iterator[None]:
        """Gather the whole model on rank 0 within the block, with other values if given."""
        with lend_memory(self.whole) if ranks.is_leader() else contextlib.nullcontext():
            self._fill_whole(self.parameters if values is None else values)
            yield

    @torch.no_grad()
    def _fill_whole(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.whole.parameters(), values, strict=True):
            gathered = whole_of(value)
            if ranks.is_leader():
                parameter.copy_(gathered)
                torch.autograd.graph.increment_version(parameter)
        for buffer, value in zip(self.whole.buffers(), self._model.buffers(), strict=True):
            buffer.copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Gather the whole model's weights on rank 0, named as in `weights_of`."""
        tensors = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        return on_first(
            {name: tensors[name] for name in self.whole.state_dict() if name in tensors}
        )

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load this rank's part of the weights.

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
    """Yield the layers that can be sharded as a unit: those used only by calling them."""
    for module in model.modules():
        if getattr(module, "called_whole", False):
            yield module
