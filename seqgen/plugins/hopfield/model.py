"""A Hopfield network as a torch module, which is trained and stored; see `hopfield_arrays.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from seqgen.models.base import TorchModel
from seqgen.plugins.hopfield.arrays import Codes, HopfieldConfig


class Hopfield(Codes, TorchModel):
    """The registry's `hopfield`: no language model, but a memory of lines.

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
