"""Model size and available memory, checked before any memory is allocated.

The system gives out more memory than it has, and ends a process without a word once it is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode

from seqgen.errors import SeqgenError

BYTES = 4  # of a number in float32
# For each parameter its gradient, and one thing at least that the update rule remembers.
TRAINING_COPIES = 3
# The control groups of this process, and where systems mount them: version 2, then version 1.
CGROUPS = Path("/proc/self/cgroup")
OF_MEMORY = re.compile(r"^\d+:(?:.*\bmemory\b.*)?:(/.*)$", re.MULTILINE)
CGROUP_LIMITS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)


def return_freed_memory() -> None:
    """Make glibc return freed memory to the system: gigabytes after a large model."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class SizeLimitExceeded(Exception):  # noqa: N818
    """Raised when more numbers are allocated than a `SizeLimit` allows."""


class SizeLimit(TorchFunctionMode):
    """Context that limits the total number of elements of new tensors.

    What is over is refused before it is made; parts of modules are made by the functions below.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.left = elements

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        if func in _SIZES and args:
            self.left -= _SIZES[func](*args)
            if self.left < 0:
                raise SizeLimitExceeded
        return func(*args, **(kwargs or {}))


def _of_shape(*shape: Any) -> int:
    return math.prod(shape[0] if shape and isinstance(shape[0], Sequence) else shape)


_SIZES: dict[Callable, Callable[..., int]] = {
    torch.empty: _of_shape,
    torch.zeros: _of_shape,
    torch.ones: _of_shape,
    torch.full: lambda shape, *_: math.prod(shape),
    torch.arange: lambda *ends: max(ends),
}


def build_for_training(model_class: type[Any], config: Any, machines: int = 1) -> Any:
    """Build a new model for training, or raise an error if it does not fit in memory.

    Args:
        model_class: what to build.
        config: with these settings.
        machines: how many it is divided among, each of which has the memory of this one.

    Raises:
        SeqgenError: there is not enough memory.
    """
    there = memory()
    try:
        with SizeLimit(machines * there // (BYTES * TRAINING_COPIES)):
            return model_class(config)
    except SizeLimitExceeded:
        raise SeqgenError(
            f"out of memory: the model has more parameters than can be trained in the "
            f"{there / 1e9:,.1f} GB of this machine; make it smaller"
        ) from None


class _NoDraws(TorchFunctionMode):
    """Context that skips random initialization, which saves time and memory.

    To draw tensors without content, torch would load half its compiler.
    """

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _DRAWS:
            return func(*args, **kwargs)
        return args[0] if args else kwargs["tensor"]


_DRAWS = frozenset(
    {
        *(torch.Tensor.normal_, torch.Tensor.uniform_),
        *(init.normal_, init.uniform_, init.kaiming_uniform_),
    }
)


def build_uninitialized(model_class: type[Any], config: Any) -> Any:
    """Build a new model with uninitialized weights, to be filled.

    The system lends no memory for what is not written to.
    """
    with _NoDraws():
        return model_class(config)


def build_on_meta(model_class: type[Any], config: Any) -> Any:
    """Build a new model on torch's meta device: shapes without content.

    It takes no memory for them.
    """
    with torch.device("meta"), _NoDraws():
        return model_class(config)


def parameter_count(model_class: type[Any], config: Any) -> int:
    """Count the parameters of a new model without allocating them."""
    return build_on_meta(model_class, config).parameter_count()


def memory() -> int:
    """Read the number of bytes of memory that this process may use."""
    limits = [1 << 62]
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not on this system
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    groups = {"/"}  # which is the group of the process itself in a container
    with contextlib.suppress(OSError, ValueError):
        groups.update(OF_MEMORY.findall(CGROUPS.read_text("utf-8", "replace")))
    for (mount, name), group in itertools.product(CGROUP_LIMITS, groups):
        place = mount / group.lstrip("/")
        for folder in (place, *place.parents):  # the limits of all groups above hold, too
            with contextlib.suppress(OSError, ValueError):  # none there; or no limit: "max"
                limits.append(int((folder / name).read_text("ascii")))
    return min(limits)


def nearest_widths(count: Callable[[int], int], widths: range, parameters: int) -> list[int]:
    """Find the two neighbouring widths whose parameter counts enclose `parameters`.

    At an end of the widths they are the first two, the last two, or the only one. The search
    relies on counts that grow with the width.
    """
    high = 1
    while high < len(widths) - 1 and count(widths[high]) < parameters:
        high = min(2 * high, len(widths) - 1)
    low = high // 2
    high = min(high, len(widths) - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(widths[middle]) < parameters else (low, middle)
    return sorted({widths[low], widths[high]})
