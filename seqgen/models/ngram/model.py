"""N-gram models as torch modules; the computation is in `arrays.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seqgen.models.counted import CountedModel
from seqgen.models.ngram.arrays import Level, NGramArrays, NGramState
from seqgen.models.ngram.settings import NGramConfig
from seqgen.text.corpus import GrowingArray


class NGram(CountedModel):
    """N-gram model as a torch module (architecture `ngram`).

    Until it is filled with what was counted, every token is equally probable.
    """

    array_model = NGramArrays
    rows_at_least = NGramArrays.rows_at_least
    config: NGramConfig

    def __init__(self, config: NGramConfig) -> None:
        super().__init__()
        self.config, self.order, self.orders = config, config.order, config.order
        size = config.vocab_size
        # Torch makes the large ones: it is where a `SizeLimit` counts.
        uniform = Level(
            torch.arange(size).numpy(),
            torch.full((size,), -math.log(size)).numpy(),
            torch.zeros(size).numpy(),
        )
        empty = Level(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        self.fill([uniform] + [empty] * (self.order - 1))

    def fill(self, levels: Sequence[Level]) -> None:
        """Set the tables of every order, 1 to N; order 1 has all V words."""
        known = self._buffers.get("log_probs_1")
        dtype = torch.float32 if known is None else known.dtype
        for n, level in enumerate(levels, start=1):
            tables = {f"log_probs_{n}": level.log_probs, f"keys_{n}": level.keys}
            tables[f"backoffs_{n}"] = level.backoffs
            for name in filter(NGramArrays.shapes(self.config).__contains__, tables):
                table = torch.from_numpy(np.asarray(tables[name]))
                self.take_tables({name: table.to(dtype) if table.is_floating_point() else table})
                if isinstance(tables[name], GrowingArray) and tables[name].on_disk:
                    self.columns[name] = tables[name]

    @property
    def levels(self) -> list[Level]:
        """Tables of every order, 1 to N."""
        return self.arrays.levels

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Use tables of any size without copying, memory-mapped ones included."""
        given = {n.removeprefix(prefix): t for n, t in state_dict.items() if n.startswith(prefix)}
        known = self.state_dict().keys()
        unexpected_keys += [prefix + name for name in given if name not in known]
        missing_keys += [prefix + name for name in known if name not in given]
        buffers = self._buffers
        self.take_tables({n: t.to(buffers[n]) for n, t in given.items() if n in known})
        try:
            _ = self.arrays
        except ValueError as error:
            error_msgs.append(str(error))

    def matched(self, tokens: Tensor, state: NGramState | None) -> Tensor:
        """Compute the matched order after each token (B, T); see `NGramArrays.matched`."""
        state = state and state.as_arrays()
        return self._tensor(self.arrays.matched(tokens.cpu().numpy(), state))

    def matched_by(self, state: NGramState) -> np.ndarray:
        """Compute the matched order of each row (B,) of a state; see `NGramArrays.matched_by`."""
        return self.arrays.matched_by(state.as_arrays())
