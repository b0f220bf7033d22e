"""Building a model from stored weights, never larger than what is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqgen.engines.memory_limit import SizeLimit, SizeLimitExceeded, undrawn
from seqgen.errors import SeqgenError, first_line
from seqgen.files import regular
from seqgen.models.base import LanguageModel, take_weights
from seqgen.settings import ModelConfig
from seqgen.store.layout import CONFIG, WEIGHTS

# Elements that a model may compute besides its stored ones, such as the angles of positions.
UNSTORED = 1 << 22


def fill(
    model_class: type[LanguageModel],
    config: ModelConfig,
    read: Callable[[], dict[str, Tensor]],
    folder: Path,
) -> LanguageModel:
    """Return a model with weights that are stored.

    Args:
        model_class: what to build.
        config: with these settings.
        read: returns the weights by name.
        folder: where both are stored, for messages.

    Raises:
        SeqgenError: weights are missing or damaged, or do not fit the settings.
    """
    try:
        tensors = read()
        # A damaged configuration must not allocate more than the file holds; the shapes are
        # compared below.
        elements = sum(tensor.numel() for tensor in tensors.values())
        with SizeLimit(UNSTORED + 2 * elements):
            model = undrawn(model_class, config)
        take_weights(model, tensors)
    except SizeLimitExceeded:
        raise SeqgenError(
            f"{folder / CONFIG} is damaged: it is of a larger model than {WEIGHTS}"
        ) from None
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise SeqgenError(f"{folder / WEIGHTS} is missing or damaged: {reason}") from None
    return model


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of safetensors.

    Each is copied into memory of its own, for products round by where in memory a matrix lies, and
    a resumed run is to round as before. The file is mapped anew for each, so that what was read of
    it takes no memory beside the copies.

    Raises:
        OSError, SafetensorError: it is missing or damaged.
    """
    with safe_open(regular(path), "pt") as file:
        names = list(file.keys())
    tensors = {}
    for name in names:
        with safe_open(regular(path), "pt") as file:
            tensors[name] = file.get_tensor(name).clone()
    return tensors
