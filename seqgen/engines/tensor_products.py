"""Matrix products for small batches by torch: multithreaded, oneDNN-packed, quantized."""

from __future__ import annotations

import functools
import math
import platform
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.engines.arrays import (
    MAP_BUILDERS,
    ONE_ROW,
    SOME_ROWS,
    ArrayMap,
    MapBuilder,
    Products,
    by_one_thread,
    products_in_use,
)
from seqgen.engines.native.recording import Recorded
from seqgen.engines.ops import ArrayOps
from seqgen.engines.quantized import QUANTIZED, QuantizedMap
from seqgen.engines.tensor_ops import TensorOps
from seqgen.engines.weights import Weights


def own_tensor(x: np.ndarray) -> Tensor:
    """Convert an array to a tensor, copying read-only arrays such as memory-mapped ones."""
    return torch.from_numpy(x if x.flags.writeable else x.copy())


class _Threaded:
    """W x + b (1, O) of one row x (1, I), multithreaded."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None) -> None:
        self.weight, self.bias = own_tensor(weight), None if bias is None else bias[None]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = torch.mv(self.weight, torch.from_numpy(x)[0]).numpy()[None]
        return y if self.bias is None else np.add(y, self.bias, out=y)


class _Packed:
    """W x + b (B, O) of x (B, I) by oneDNN, with W packed into its blocked layout."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(own_tensor(weight))
        self.bias = None if bias is None else own_tensor(bias)
        self.linear = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.linear(torch.from_numpy(x), self.weight, self.bias, "none", [], "").numpy()


def _packed(weight: np.ndarray, bias: np.ndarray | None) -> ArrayMap:
    """Build `_Packed` if oneDNN supports it, else a fallback."""
    return (_Packed if weight.dtype == np.float32 and has_packed() else by_one_thread)(weight, bias)


def _in_fewer_bits(kind: type[QuantizedMap]) -> MapBuilder:
    return lambda weight, bias: kind(
        *(None if x is None else torch.from_numpy(x) for x in (weight, bias))
    )


MAP_BUILDERS |= {"threaded": _Threaded, "packed": _packed}
MAP_BUILDERS |= {name: _in_fewer_bits(kind) for name, kind in QUANTIZED.items()}


def _over_arrays(name: str) -> staticmethod:
    plain, f = getattr(ArrayOps, name), getattr(TensorOps, name)

    def fused(x: np.ndarray) -> np.ndarray:
        return plain(x) if isinstance(x, Recorded) else f(torch.from_numpy(x)).numpy()

    return staticmethod(fused)


class FusedArrayOps(ArrayOps):
    """Operations on NumPy arrays that use torch kernels where they are faster."""

    gelu, gelu_exact, silu = map(_over_arrays, ("gelu", "gelu_exact", "silu"))


def as_array(x: Tensor | np.ndarray | None) -> np.ndarray | None:
    """View a tensor as an array of the same memory; arrays and None pass through."""
    return x if x is None or isinstance(x, np.ndarray) else x.detach().numpy()


def as_tensor(x: Tensor | np.ndarray) -> Tensor:
    """View an array as a tensor of the same memory; tensors pass through."""
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else x


def weights_as_arrays(module: nn.Module) -> Weights:
    """Collect a module's effective weights as arrays: adapters merged, quantization kept."""
    arrays, maps = {}, {}
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for name in (*part._parameters, *part._buffers, *getattr(part, "parametrizations", ())):
            if getattr(part, name) is not None:
                arrays[prefix + name] = as_array(getattr(part, name))
        if (quantized := getattr(part, "quantized", None)) and isinstance(part, nn.Linear):
            maps[prefix] = quantized
    return Weights(arrays, maps=maps)


def asks_onednn() -> bool:
    """Check whether products of several rows use oneDNN."""
    return products_in_use().some == "packed" and has_packed()


# What is measured: the product for the gates of 256 units with inputs of 256; the number of rows;
# for how many seconds, and the least number of calls.
MEASURED_SHAPE, MEASURED_ROWS, MEASURED_SECONDS, LEAST_CALLS = (1024, 512), 8, 0.02, 3
# The default is replaced only by a product at least this many times as fast.
LEAST_GAIN = 1.1


def fastest_products() -> Products:
    """Benchmark the product implementations on this machine, in some milliseconds."""
    weight, bias = (np.ones(shape, np.float32) for shape in (MEASURED_SHAPE, MEASURED_SHAPE[0]))
    some = SOME_ROWS if has_packed() else SOME_ROWS[:1]
    with torch.inference_mode():
        return Products(
            one=_fastest(ONE_ROW, weight, bias, rows=1),
            some=_fastest(some, weight, bias, rows=MEASURED_ROWS),
        )


def _fastest(names: Sequence[str], weight: np.ndarray, bias: np.ndarray, rows: int) -> str:
    """Benchmark products by their names; prefer the first unless another is much faster."""
    x = np.ones((rows, weight.shape[1]), dtype=np.float32)
    functions = {name: MAP_BUILDERS[name](weight, bias) for name in names}
    seconds = dict.fromkeys(functions, math.inf)
    until, calls = time.perf_counter() + MEASURED_SECONDS, 0
    while calls < LEAST_CALLS or time.perf_counter() < until:
        # In turn; the fastest call is the least disturbed one.
        for name, product in functions.items():
            began = time.perf_counter()
            product(x)
            seconds[name] = min(seconds[name], time.perf_counter() - began)
        calls += 1
    default, best = next(iter(seconds)), min(seconds, key=seconds.__getitem__)
    return best if seconds[default] >= LEAST_GAIN * seconds[best] else default


@functools.cache
def has_packed() -> bool:
    """Check whether this build of torch supports oneDNN's packed weights."""
    names = "_reorder_linear_weight", "_linear_pointwise"
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return x86 and all(hasattr(torch.ops.mkldnn, name) for name in names)
