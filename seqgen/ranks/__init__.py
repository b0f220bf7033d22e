"""Ranks: the processes that torchrun starts together; a process on its own is rank 0 of 1.

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
    """Record whether the process group of this run is connected; `ranks.group` calls it."""
    global _joined
    _joined = joined


def is_launched() -> bool:
    """Check whether torchrun has started this process as one of several."""
    return all(name in os.environ for name in VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1


def rank() -> int:
    """Return the rank of this process, from 0."""
    return int(os.environ["RANK"]) if is_launched() else 0


def local_rank() -> int:
    """Return the rank of this process on its machine, from 0."""
    return int(os.environ["LOCAL_RANK"]) if is_launched() else 0


def machine_count() -> int:
    """Count the machines of the run, assuming as many ranks on each as on this one."""
    return max(1, world_size() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def world_size() -> int:
    """Return the number of connected processes (world size); 1 before they connect."""
    return int(os.environ["WORLD_SIZE"]) if _joined else 1


def is_leader() -> bool:
    """Check whether this process is rank 0, which decides, writes and reports."""
    return rank() == 0


def restart_count() -> int:
    """Count how often torchrun has restarted the processes of this run."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if is_launched() else 0


def broadcast(value: Value) -> Value:
    """Broadcast rank 0's value to all ranks."""
    if world_size() == 1:
        return value
    import torch
    import torch.distributed as dist

    values = [value]
    dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
    return values[0]


def run_on_leader(make: Callable[[], Value]) -> Value:
    """Call `make` on rank 0 only and broadcast its result."""
    return broadcast(make() if is_leader() else None)


def gathered(value: Value) -> list[Value]:
    """Gather the values of all ranks as a list in rank order."""
    if world_size() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Value | None] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def all_gather_numbers(values: Sequence[float]) -> list[list[float]]:
    """Gather a few numbers of each rank, faster than `gathered`."""
    if world_size() == 1:
        return [list(values)]
    import torch
    import torch.distributed as dist

    values_here = torch.tensor(values, dtype=torch.float64)
    rows = [torch.empty_like(values_here) for _ in range(world_size())]
    dist.all_gather(rows, values_here)
    return [row.tolist() for row in rows]


def total(value: float) -> float:
    """Sum a number over all ranks."""
    return sum(row[0] for row in all_gather_numbers([value])) if world_size() > 1 else value


def all_max(value: int) -> int:
    """Compute the maximum of a number over all ranks."""
    return max(int(row[0]) for row in all_gather_numbers([value])) if world_size() > 1 else value


def all_sum_tensor(tensor: Tensor) -> Tensor:
    """Sum a tensor over all ranks; gradients flow through the sum."""
    if world_size() == 1:
        return tensor
    from seqgen.ranks.sums import SumOverRanks

    return SumOverRanks.apply(tensor)


def launch_id() -> str | None:
    """Identify this torchrun launch by a name that restarts of its processes keep.

    None in one process.
    """
    if not is_launched():
        return None
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return run if run != "none" else f"{socket.gethostname()}-{os.getppid()}"


def restarts_are_allowed() -> bool:
    """Check whether torchrun restarts the processes if one fails (`--max-restarts`)."""
    return is_launched() and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
