"""Data parallelism: each rank computes its rows of a batch, and gradients are summed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import nn

from seqgen import ranks
from seqgen.engines.dropout import RowSlice, drawing_for
from seqgen.text.batches import Portion
from seqgen.training.objective import Objective
from seqgen.training.sharding import Shards


class Parallel:
    """Wraps an objective; on several ranks, in PyTorch's DistributedDataParallel.

    Losses are divided by the targets of the whole batch, so gradients are summed over the ranks
    and not averaged.

    Args:
        objective: with the same parameters on every rank; those of rank 0 are taken.
        shards: the model within it, if that is divided.
    """

    def __init__(self, objective: Objective, shards: Shards | None) -> None:
        self.objective, self.shards = objective, shards
        self._wrapped: nn.parallel.DistributedDataParallel | None = None

    def divisor(self, count: int) -> float:
        """Return the divisor that turns a sum over `count` targets into the mean over all ranks.

        FSDP averages gradients over the ranks, where they have to be added up.
        """
        return count if self.shards is None else count / ranks.world_size()

    def end_forward(self) -> None:
        """Clean up after a forward pass without a backward pass."""
        if self.shards is not None:
            self.shards.end_forward()

    def add_up_others(self) -> None:
        """Sum over ranks the gradients that the wrapper does not handle."""
        if self.shards is not None:
            self.shards.add_up_others()

    def begin_anew(self) -> None:
        """Wrap the objective again after the set of trained parameters changed."""
        self._wrapped = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the objective."""
        if self.shards is not None:
            self.shards.begin()
        if ranks.world_size() == 1 or self.shards is not None:
            return self.objective(*arguments)
        return self._over_ranks(*arguments)

    @property
    def _over_ranks(self) -> nn.parallel.DistributedDataParallel:
        if self._wrapped is None:
            with warnings.catch_warnings():
                # Newer releases name the argument otherwise.
                warnings.simplefilter("ignore", FutureWarning)
                # Looking for parameters that a regime does not use also keeps the layout of the
                # exchanged gradients, and with it the order of the sums, the same from the first
                # step on.
                self._wrapped = nn.parallel.DistributedDataParallel(
                    self.objective, broadcast_buffers=False, find_unused_parameters=True
                )
            self._wrapped.register_comm_hook(None, _summed)
            warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
        return self._wrapped

    @contextlib.contextmanager
    def computing(self, portion: Portion, last: bool) -> Iterator[None]:
        """Set up one portion's computation: seed its rows, sum gradients after the last portion."""
        if ranks.world_size() == 1:
            yield
            return
        first = portion.rows.start - portion.piece.start
        total = portion.piece.stop - portion.piece.start
        rows = RowSlice(first, portion.count, total, portion.blank)
        with contextlib.ExitStack() as held:
            held.enter_context(drawing_for(rows))
            if portion.blank:
                held.enter_context(self.objective.without_figures())
            if self.shards is not None:
                self.objective.set_requires_gradient_sync(last)
            elif not last:
                held.enter_context(self._over_ranks.no_sync())
            yield


# Without annotations: PyTorch takes none that are postponed.
def _summed(_, bucket):
    exchange = dist.all_reduce(bucket.buffer(), async_op=True)
    return exchange.get_future().then(lambda future: future.value()[0])
