"""Build stored models in PyTorch, and choose their matrix-product routine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqgen.engines.arrays import Products, use_products
from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.memory_limit import SizeLimit, SizeLimitExceeded, build_uninitialized
from seqgen.engines.tensor_products import fastest_products
from seqgen.errors import SeqgenError, first_line
from seqgen.files import require_regular, tensor_header
from seqgen.models.base import LanguageModel, take_weights
from seqgen.models.low_rank import keep_stored
from seqgen.settings import ModelConfig
from seqgen.store.cache import keep_measurement, kept_measurement
from seqgen.store.layout import CONFIG, WEIGHTS

# Elements that a model may compute besides its stored ones, such as the angles of positions.
UNSTORED = 1 << 22


def fill(
    model_class: type[LanguageModel],
    config: ModelConfig,
    read: Callable[[bool], dict[str, Tensor | BlockMatrix]],
    folder: Path,
    keeps_types: bool = False,
) -> LanguageModel:
    """Build a model and load its stored weights.

    Args:
        model_class: what to build.
        config: with these settings.
        read: returns the weights by name; see `StoredModel.weights`.
        folder: where both are stored, for messages.
        keeps_types: matrices that are to have adapters stay in the types of the file.

    Raises:
        SeqgenError: weights are missing or damaged, or do not fit the settings.
    """
    try:
        tensors = read(keeps_types)
        # A damaged configuration must not allocate more than the file holds; the shapes are
        # compared below.
        elements = sum(math.prod(tensor.shape) for tensor in tensors.values())
        with SizeLimit(UNSTORED + 2 * elements):
            model = build_uninitialized(model_class, config)
        take_weights(model, keep_stored(model, tensors) if keeps_types else tensors)
    except SizeLimitExceeded:
        raise SeqgenError(
            f"{folder / CONFIG} is damaged: it is of a larger model than {WEIGHTS}"
        ) from None
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise SeqgenError(f"{folder / WEIGHTS} is missing or damaged: {reason}") from None
    return model


def read_tensors(path: Path, keeps_blocks: bool = False) -> dict[str, Tensor | BlockMatrix]:
    """Read the tensors of a safetensors file.

    Matrices in blocks of few bits become float32, unless they are kept. Each is copied into memory
    of its own, for products round by where in memory a matrix lies, and a resumed run is to round
    as before. The file is mapped anew for each, so that what was read of it takes no memory beside
    the copies.

    Raises:
        OSError, SafetensorError: it is missing or damaged.
    """
    header = tensor_header(path)[1]
    with safe_open(require_regular(path), "pt") as file:
        names = list(file.keys())
    tensors = {}
    for name in names:
        with safe_open(require_regular(path), "pt") as file:
            tensor, rows = file.get_tensor(name), header[name].get("rows")
            if rows is None or keeps_blocks:
                tensor = tensor.clone()
            if rows is not None:
                tensor = BlockMatrix.read(tensor.numpy(), rows)
                tensor = tensor if keeps_blocks else torch.from_numpy(np.asarray(tensor))
            tensors[name] = tensor
    return tensors


STEPS = {"question": "products of decoding steps", "version": 2}


def choose_products(device: torch.device, of_run: Mapping[str, Any] | None = None) -> None:
    """Choose the fastest matrix-product routine for models on this CPU.

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
        products = _products_of(keep_measurement(STEPS, dataclasses.asdict(fastest_products())))
    use_products(products or Products())


def _products_of(stored: Mapping[str, Any] | None) -> Products | None:
    """Read the stored matrix-product choice; None if none is stored or known here."""
    try:
        return Products(**stored) if stored else None
    except (TypeError, ValueError):
        return None
