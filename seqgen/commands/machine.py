"""What is measured on this machine before work begins, and kept in the cache."""

from __future__ import annotations

import dataclasses

import torch

from seqgen.models.arrays import Products, fastest_products, use_products
from seqgen.store.measured import keep_measurement, kept_measurement

STEPS = {"question": "products of decoding steps", "version": 1}


def choose_products(device: torch.device) -> None:
    """Have models on a CPU ask for their products in the way that is fastest here.

    That holds for decoding steps, and in float32 for the training of recurrent layers.

    It is measured once, in some milliseconds, and kept: the ways differ in rounding, and a seed
    is to give the same text every time, and a resumed run the same weights. Where nothing can be
    kept it is the default.
    """
    if device.type != "cpu":
        return
    products = _kept_products()
    if products is None:
        keep_measurement(STEPS, dataclasses.asdict(fastest_products()))
        products = _kept_products()
    use_products(products or Products())


def _kept_products() -> Products | None:
    """Return what is kept; None if there is nothing, or not what this version can use."""
    try:
        return Products(**kept_measurement(STEPS) or {"one": None})
    except (TypeError, ValueError):
        return None
