"""Hopfield network as a torch module, which can be trained and stored; see `arrays.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from seqgen.models.base import TorchModel
from seqgen.plugins.hopfield.arrays import Codes, HopfieldConfig


class Hopfield(Codes, TorchModel):
    """Associative memory of lines, the registry's `hopfield`; not a language model.

    Attributes:
        weights: (n, n) float32, symmetric, with a diagonal of zeros.
    """

    counted = True
    weights: Tensor

    def __init__(self, config: HopfieldConfig) -> None:
        super().__init__()
        self.config = config
        shape = (config.length, config.vocab_size, config.bits)
        self.register_buffer("weights", torch.zeros(config.units, config.units))
        self.register_buffer("codes", torch.zeros(shape, dtype=torch.int8))
