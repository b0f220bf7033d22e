"""Device and floating-point precision of a model."""

from __future__ import annotations

import contextlib
import platform
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor, nn

from seqgen import ranks
from seqgen.engines.quantized import QUANTIZED
from seqgen.engines.tensor_products import has_packed
from seqgen.errors import SeqgenError, UsageError

# int8 and int4 are for writing and scoring alone.
Precision = Literal["auto", "float32", "float64", "bf16", "int8", "int4"]


def choose_device(name: str) -> torch.device:
    """Resolve a device name; "auto" is CUDA, then MPS, then the CPU.

    On CUDA float32 is float32 from then on: cuDNN's RNNs would take TF32.

    Raises:
        UsageError: no such device is known.
        SeqgenError: this machine has none.
    """
    device = _device(name)
    if device.type == "cuda":
        if device.index is None and ranks.is_launched():
            device = torch.device("cuda", ranks.local_rank())
            torch.cuda.set_device(device)  # which NCCL takes
        # The weights are laid out anew, which costs little; TF32 is off on purpose, and some
        # releases speak of a newer setting for it.
        for message in ("RNN module weights are not part of single", ".*TF32", "TensorFloat32"):
            warnings.filterwarnings("ignore", message=message)
        torch.backends.cudnn.allow_tf32 = False
    return device


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, colon, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (colon and not index.isdigit()):
        raise UsageError(f"--device is auto, cpu, cuda or mps, not {name!r}")
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }[kind]
    if not there:
        raise SeqgenError(f"this machine has no {kind} device; use --device cpu")
    return torch.device(name)


def choose_precision(precision: Precision, device: torch.device, large: bool = True) -> Precision:
    """Resolve "auto" for training on `device`, as far as possible without a speed trial.

    Args:
        precision: what was asked for.
        device: where training is.
        large: the model's products may be worth casting for on a CPU (`suits_bf16`).

    Returns:
        float32, float64 or bf16; or "auto" on a CPU that may be faster in bf16, which only a
        trial shows (`training.speed`).
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "float32"
    return "auto" if device.type == "cpu" and large and _may_have_bf16() else "float32"


def _may_have_bf16() -> bool:
    """Check whether this processor may have instructions for bf16; of an x86, PyTorch knows.

    Without them products in bf16 are emulated, at a fraction of the speed of float32.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: True)() for name in names)


def wide_device(device: torch.device) -> torch.device:
    """Choose the device for float64: the same, or the CPU for MPS, which has none."""
    return torch.device("cpu") if device.type == "mps" else device


def in_float64(tensor: Tensor) -> Tensor:
    """Convert a tensor to float64, moving it if needed; see `wide_device`."""
    return tensor.to(wide_device(tensor.device)).double()


def parameter_type(precision: Precision) -> torch.dtype:
    """Return the type of stored parameters; under bf16 it is float32."""
    return torch.float64 if precision == "float64" else torch.float32


def in_precision(model: nn.Module, precision: Precision) -> nn.Module:
    """Convert a model to a precision, on its current device.

    On a CPU, where matrices in fewer bits are a form of their own, other models than those that
    have it get bf16 numbers everywhere, and keep float32 for int8 and int4. So does a CPU without
    oneDNN.
    """
    quantizable = getattr(model, "quantizable", False) and (precision != "bf16" or has_packed())
    if precision in QUANTIZED and quantizable and model.device.type == "cpu":
        model.quantize(precision)
        return model
    return model.to(torch.bfloat16 if precision == "bf16" else parameter_type(precision))


def arithmetic(precision: Precision, device: torch.device) -> AbstractContextManager:
    """Return the autocast context of a precision, or a null context."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def step_arithmetic(precision: Precision, device: torch.device) -> Iterator[None]:
    """Allow TF32 in cuDNN RNNs during a training step if the precision is bf16."""
    reduced = precision == "bf16" and device.type == "cuda"
    if reduced:
        torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        if reduced:
            torch.backends.cudnn.allow_tf32 = False


def kernel_arithmetic(device: torch.device) -> AbstractContextManager:
    """Disable autocast for fused recurrent kernels that lack bf16.

    oneDNN has no bf16 LSTM on many CPUs. On CUDA torch casts to float16 for cuDNN, whatever was
    asked for, in which small gradients vanish; a step has TF32 instead (`step_arithmetic`).
    """
    if not torch.is_autocast_enabled(device.type):
        return contextlib.nullcontext()
    follows = device.type != "cuda"
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        follows = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return contextlib.nullcontext() if follows else torch.autocast(device.type, enabled=False)


def restored_randomness(device: torch.device) -> AbstractContextManager:
    """Return a context that restores the random state of the CPU and of `device` at its end."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
