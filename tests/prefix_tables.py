"""A model in which every prefix has a distribution of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from seqgen.generation.hypotheses import LengthNorm
from seqgen.models.base import LanguageModel
from seqgen.models.state import State
from seqgen.settings import ModelConfig
from seqgen.settings.generation import BeamOptions


@dataclass
class Seen(State):
    """Every token read so far, (B, T)."""

    tokens: torch.Tensor


class Table(LanguageModel):
    """Draws its logits from a hash of all it has read: every prefix has its own distribution."""

    def __init__(self, vocab_size, seed=0, logits=None):
        super().__init__()
        self.config = ModelConfig(vocab_size=vocab_size)
        self.seed, self.logits = seed, logits

    def start(self, batch, stride=None):
        return Seen(torch.zeros(batch, 0, dtype=torch.int64))

    def after(self, prefix):
        if self.logits is not None:
            return self.logits(prefix)
        code = hash((self.seed, *prefix)) % 2**32
        return torch.from_numpy(np.random.default_rng(code).normal(0, 2, self.vocab_size))

    def forward(self, tokens, state=None, last=None):
        seen = torch.cat([state.tokens, tokens], 1)
        length, before = tokens.shape[1], state.tokens.shape[1]
        rows = [
            torch.stack([self.after(tuple(row[: before + t + 1])) for t in range(length)])
            for row in seen.tolist()
        ]
        logits = torch.stack(rows)
        return (logits if last is None else logits[:, -last:]), Seen(seen)


def search_options(norm=None, **settings):
    """Return the settings of a beam search, with lengths weighed by `norm`."""
    norm = norm or LengthNorm()
    return BeamOptions(length_norm=norm.kind, alpha=norm.alpha, **settings)
