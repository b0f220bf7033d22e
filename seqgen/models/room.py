"""Whether a model fits this machine's memory, before any of it is taken.

The system gives out more memory than it has, and ends a process without a word once it is used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from seqgen.errors import SeqgenError

BYTES = 4  # of a parameter in float32
# The weight, its gradient, and one thing at least that the update rule remembers of it.
TRAINING_COPIES = 3
CGROUP = Path("/sys/fs/cgroup/memory.max")


def check_room(shapes: Mapping[str, Sequence[int | None]], copies: int) -> None:
    """Refuse a model that this machine cannot hold.

    Args:
        shapes: of its tensors; what has None in it is of no known size.
        copies: how many numbers are kept for each parameter: 1 for the model alone.

    Raises:
        SeqgenError: it takes more than all memory; says how much.
    """
    parameters = sum(math.prod(shape) for shape in shapes.values() if None not in shape)
    needed, there = parameters * BYTES * copies, memory()
    if there is not None and needed > there:
        raise SeqgenError(
            f"out of memory: {parameters:,} parameters take {needed / 1e9:,.1f} GB and this "
            f"machine has {there / 1e9:,.1f} GB; make the model smaller"
        )


def memory() -> int | None:
    """Return the bytes of memory that this process may use in all, or None if unknown."""
    found = []
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        found.append(int(CGROUP.read_text()))
    except (AttributeError, OSError, ValueError):  # not on this system; or no limit: "max"
        pass
    return min(found, default=None)
