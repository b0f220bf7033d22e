"""Where a model computes, and in which arithmetic."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch

from seqgen.errors import SeqgenError, UsageError

Precision = Literal["auto", "float32", "float64", "bf16"]


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is CUDA, then MPS, then the CPU.

    Raises:
        UsageError: no such device is known.
        SeqgenError: this machine has none.
    """
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


def has_bf16_units(device: torch.device) -> bool:
    """Return whether bf16 matrix products are fast here, and not merely possible."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return device.type == "cpu" and probe is not None and bool(probe())


def choose_precision(precision: Precision, device: torch.device) -> Precision:
    """Return what "auto" means for training on `device`: bf16 where it has units for it."""
    if precision != "auto":
        return precision
    return "bf16" if has_bf16_units(device) else "float32"


def parameter_type(precision: Precision) -> torch.dtype:
    """Return the type that parameters are kept in; under bf16 they stay float32."""
    return torch.float64 if precision == "float64" else torch.float32


def arithmetic(precision: Precision, device: torch.device) -> AbstractContextManager:
    """Return the autocast that `precision` asks for, or a context that does nothing."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()
