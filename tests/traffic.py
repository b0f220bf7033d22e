"""Bytes that ranks really send: some processes over gloo, alone in a network of their own.

    unshare --net python tests/traffic.py RANKS NUMBERS STEPS [--shard]

Trains a network of NUMBERS parameters with DistributedDataParallel, or with FSDP2. Prints, as JSON,
the bytes that went over the network's only interface in STEPS steps, less those of what the ranks
tell each other besides: the difference between twice as many steps and as many.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def sent() -> int:
    """Return the bytes that were sent over the loopback interface so far."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    fields = next(line for line in lines if line.strip().startswith("lo:")).split()
    return int(fields[9])


def model_of(numbers: int, sharded: bool) -> nn.Module:
    """Return a network of two equal blocks without other parameters."""
    width = int((numbers / 2) ** 0.5)
    assert 2 * width * width == numbers
    blocks = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(2)))
    if not sharded:
        return nn.parallel.DistributedDataParallel(blocks)
    from torch.distributed.fsdp import fully_shard

    for block in blocks:
        fully_shard(block, reshard_after_forward=True)
    return fully_shard(blocks)


def work(rank: int, ranks: int, numbers: int, steps: int, sharded: bool, port: int) -> None:
    """Train as one rank; rank 0 prints what was sent."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    model = model_of(numbers, sharded)
    x = torch.ones(2, int((numbers / 2) ** 0.5))

    def measure(steps: int) -> int:
        dist.barrier()
        before = sent()
        dist.barrier()
        for _ in range(steps):
            model(x).sum().backward()
            model.zero_grad()
        dist.barrier()
        return sent() - before

    measure(2)
    once, twice = measure(steps), measure(2 * steps)
    if rank == 0:
        sys.stdout.write(json.dumps({"bytes_a_step": (twice - once) / steps}) + "\n")
        sys.stdout.flush()
    dist.destroy_process_group()


def main() -> None:
    """Run the ranks."""
    ranks, numbers, steps = map(int, sys.argv[1:4])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    how = (ranks, numbers, steps, "--shard" in sys.argv, port)
    mp.spawn(work, how, nprocs=ranks)


if __name__ == "__main__":
    main()
