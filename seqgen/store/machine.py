"""What is measured on this machine before work begins, and kept in the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from seqgen.engines.arrays import Products, use_products
from seqgen.engines.tensor_products import fastest_products
from seqgen.store.kept_data import keep_measurement, kept_measurement

STEPS = {"question": "products of decoding steps", "version": 2}


def choose_products(device: torch.device, of_run: Mapping[str, Any] | None = None) -> None:
    """Have models on a CPU ask for their products in the way that is fastest here.

    That holds for decoding steps, and in float32 for the training of recurrent layers.

    It is measured once, in some milliseconds, and kept: the ways differ in rounding, and a seed
    is to give the same text every time. Where nothing can be kept it is the default.

    Args:
        device: where the models are.
        of_run: what the checkpoint of a resumed run says of its products. They are used again,
            whatever would be measured now, so that the run has the weights of one that never
            stopped.
    """
    if device.type != "cpu":
        return
    products = _products_of(of_run) or _products_of(kept_measurement(STEPS))
    if products is None:
        keep_measurement(STEPS, dataclasses.asdict(fastest_products()))
        products = _products_of(kept_measurement(STEPS))
    use_products(products or Products())


def _products_of(stored: Mapping[str, Any] | None) -> Products | None:
    """Return the products that were stored; None if none were, or none that this version has."""
    try:
        return Products(**stored) if stored else None
    except (TypeError, ValueError):
        return None
