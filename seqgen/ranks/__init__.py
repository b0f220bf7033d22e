"""The processes that torchrun has started together, called ranks; alone there is one, rank 0.

Rank 0 decides, writes and reports; the others compute with it. Every function here does nothing,
or the obvious, in one process. This module loads torch only once ranks are joined.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

# What torchrun tells the processes that it starts.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

_joined = False


def mark_joined(joined: bool) -> None:
    """Say whether the ranks of this run are connected; `ranks.group.together` does."""
    global _joined
    _joined = joined


def launched() -> bool:
    """Return whether torchrun has started this process and others."""
    return all(name in os.environ for name in VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ["RANK"]) if launched() else 0


def local_rank() -> int:
    """Return the number of this process on its machine, from 0."""
    return int(os.environ["LOCAL_RANK"]) if launched() else 0


def machines() -> int:
    """Count the machines of the ranks, if each has as many of them as this one."""
    return max(1, world() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def world() -> int:
    """Count the connected processes: 1 before they are, and where there is only one."""
    return int(os.environ["WORLD_SIZE"]) if _joined else 1


def leads() -> bool:
    """Return whether this process is the one that decides, writes and reports."""
    return rank() == 0


def restarts() -> int:
    """Count the restarts of these processes by torchrun."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if launched() else 0


def broadcast(value: Value) -> Value:
    """Return rank 0's value."""
    if world() == 1:
        return value
    import torch
    import torch.distributed as dist

    values = [value]
    dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
    return values[0]


def from_first(make: Callable[[], Value]) -> Value:
    """Call `make` on rank 0 and send its result to the others, which wait."""
    return broadcast(make() if leads() else None)


def gathered(value: Value) -> list[Value]:
    """Return the values of all ranks, in order."""
    if world() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Value | None] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def rows_of_all(values: Sequence[float]) -> list[list[float]]:
    """Return some numbers of each rank; it is faster than `gathered`."""
    if world() == 1:
        return [list(values)]
    import torch
    import torch.distributed as dist

    own = torch.tensor(values, dtype=torch.float64)
    rows = [torch.empty_like(own) for _ in range(world())]
    dist.all_gather(rows, own)
    return [row.tolist() for row in rows]


def total(value: float) -> float:
    """Return the sum of a number over all ranks, the same on each."""
    return sum(row[0] for row in rows_of_all([value])) if world() > 1 else value


def largest(value: int) -> int:
    """Return the largest of the ranks' numbers."""
    return max(int(row[0]) for row in rows_of_all([value])) if world() > 1 else value


def summed(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks; gradients pass through it."""
    if world() == 1:
        return tensor
    from seqgen.ranks.sums import SumOverRanks

    return SumOverRanks.apply(tensor)


def launcher() -> str | None:
    """Identify this start of torchrun, the same after restarts of its processes.

    None in one process.
    """
    if not launched():
        return None
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return run if run != "none" else f"{socket.gethostname()}-{os.getppid()}"


def restarts_are_allowed() -> bool:
    """Return whether torchrun starts the processes anew if one fails (`--max-restarts`)."""
    return launched() and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
