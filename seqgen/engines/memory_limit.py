"""How large a model would be, and whether it is too large, before any memory is taken for it.

The system gives out more memory than it has, and ends a process without a word once it is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode

from seqgen.errors import SeqgenError

BYTES = 4  # of a number in float32
# For each parameter its gradient, and one thing at least that the update rule remembers.
TRAINING_COPIES = 3
CGROUP = Path("/sys/fs/cgroup/memory.max")


def return_freed_memory() -> None:
    """Return to the system what glibc keeps of freed memory: gigabytes, after a large model's."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class SizeLimitExceeded(Exception):  # noqa: N818
    """More numbers are asked for than a `SizeLimit` allows."""


class SizeLimit(TorchFunctionMode):
    """Within it new tensors have so many elements at most, all together.

    What is over is refused before it is made; parts of modules are made by the functions below.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.left = elements

    def __torch_function__(
        self,
        func: Callable,
        types: Sequence[type],
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
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


def to_train(model_class: type[Any], config: Any, machines: int = 1) -> Any:
    """Return a new model of a class, if this machine has room to train it.

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
    """Within it nothing is drawn, so that no time is lost, and no memory is touched.

    To draw tensors without content, torch would load half its compiler.
    """

    def __torch_function__(
        self,
        func: Callable,
        types: Sequence[type],
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
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


def undrawn(model_class: type[Any], config: Any) -> Any:
    """Return a new model of a class, to be filled: its weights hold nothing in particular.

    The system lends no memory for what is not written to.
    """
    with _NoDraws():
        return model_class(config)


def without_content(model_class: type[Any], config: Any) -> Any:
    """Return a new model of a class whose tensors have shapes and no content (torch's meta device).

    It takes no memory for them.
    """
    with torch.device("meta"), _NoDraws():
        return model_class(config)


def parameter_count(model_class: type[Any], config: Any) -> int:
    """Return how many parameters a new model of a class would have; takes no memory for them."""
    return without_content(model_class, config).parameter_count()


def memory() -> int:
    """Return the bytes of memory that this process may use in all."""
    limits = [1 << 62]
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        limits.append(int(CGROUP.read_text()))
    except (AttributeError, OSError, ValueError):  # not on this system; or no limit: "max"
        pass
    return min(limits)


def nearest_widths(count: Callable[[int], int], widths: range, parameters: int) -> list[int]:
    """Return the two neighbouring widths that have `parameters` between them.

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
