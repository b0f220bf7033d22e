"""Batch normalisation in evaluation, over arrays or tensors; see `batch_norm.py`."""

from __future__ import annotations

from typing import Any

from seqgen.models.engines.ops import Leaf

EPS = 1e-5


def scale_and_shift(p: Any) -> tuple[Leaf, Leaf]:
    """Return what evaluation multiplies each feature by (H,), and what it then adds (H,).

    Args:
        p: weight, running_mean and running_var, (H,) each, and a bias (H,) or none.
    """
    scale = p.weight / (p.running_var + EPS) ** 0.5
    shift, bias = -p.running_mean * scale, getattr(p, "bias", None)
    return scale, shift if bias is None else shift + bias
