"""Language model over bytes that sums over the token sequences of a torch module."""

from __future__ import annotations

import torch
from torch import Tensor

from seqgen.models.base import LanguageModel
from seqgen.plugins.bytes.covers import Segmentation
from seqgen.plugins.bytes.model import ByBytes, CoverState
from seqgen.text.framing import Framing


class ByteModel(ByBytes, LanguageModel):
    """A torch module, seen one byte at a time; see `ByBytes.wrap` for its arguments."""

    def __init__(
        self,
        inner: LanguageModel,
        segmentation: Segmentation,
        framing: Framing,
        most: int,
        least: float,
    ) -> None:
        super().__init__()
        self.wrap(inner, segmentation, framing, most, least)

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, state: CoverState | None = None, last: int | None = None
    ) -> tuple[Tensor, CoverState]:
        log_probs, state = self._read_all(tokens.cpu().numpy(), state or self.start(len(tokens)))
        found = torch.from_numpy(log_probs).to(tokens.device)
        return (found if last is None else found[:, -last:]), state
