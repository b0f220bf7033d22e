"""Hidden Markov models as torch modules; the computation is in `arrays.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqgen.models.counted import CountedModel
from seqgen.plugins.hmm.arrays import HMMArrays
from seqgen.plugins.hmm.settings import HMMConfig


class HMM(CountedModel):
    """Hidden Markov model as a torch module (architecture `hmm`).

    Until it is filled, every state and every token is equally probable.
    """

    array_model = HMMArrays
    config: HMMConfig

    def __init__(self, config: HMMConfig) -> None:
        super().__init__()
        self.config = config
        for name, shape in HMMArrays.shapes(config).items():
            self.register_buffer(name, torch.full(shape, 1 / shape[-1]))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        _ = self.arrays  # made once, so that damage is found before the model is used

    def fill(self, initial: Tensor, transition: Tensor, emission: Tensor) -> None:
        """Set the initial probabilities (K,), transitions (K, K) and emissions (K, V)."""
        tables = {"initial": initial, "transition": transition, "emission": emission}
        self.take_tables({name: table.to(self._buffers[name]) for name, table in tables.items()})
