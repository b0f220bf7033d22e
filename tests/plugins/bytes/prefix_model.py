"""A model over arrays in which every sequence of tokens has a distribution of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqgen.hashing import uniforms
from seqgen.models.arrays import ArrayModel
from seqgen.models.state import State
from seqgen.settings import ModelConfig


@dataclass
class Read(State):
    """All tokens of each row, padded on the right, and how many there are."""

    tokens: np.ndarray  # (B, T)
    lengths: np.ndarray  # (B,)

    @classmethod
    def cat(cls, states):
        width = max(state.tokens.shape[1] for state in states)
        padded = [
            np.pad(state.tokens, ((0, 0), (0, width - state.tokens.shape[1]))) for state in states
        ]
        return cls(np.concatenate(padded), np.concatenate([s.lengths for s in states]))


class PrefixModel(ArrayModel):
    """Draws the chance of each token from a hash of all tokens before it."""

    dtype = np.dtype(np.float64)

    def __init__(self, vocab_size, seed=0, impossible=0.0):
        self.config = ModelConfig(vocab_size=vocab_size)
        self.seed, self.impossible, self.rows = seed, impossible, 0

    def parameter_count(self):
        return 0

    def chances(self, prefix):
        draws = uniforms(self.seed, *prefix, np.arange(self.vocab_size))
        masses = np.where(draws < self.impossible, 0.0, draws**3)
        return masses / masses.sum()

    def start(self, batch, stride=None):
        return Read(np.zeros((batch, 0), np.int64), np.zeros(batch, np.int64))

    def __call__(self, tokens, state=None, last=None):
        rows, logits = [], []
        self.rows += len(tokens)
        for past, length, new in zip(state.tokens, state.lengths, tokens, strict=True):
            row = [*past[:length].tolist(), *new.tolist()]
            ends = range(length + 1, len(row) + 1)
            with np.errstate(divide="ignore"):
                logits.append(np.log([self.chances(row[:end]) for end in ends]))
            rows.append(row)
        width = max(map(len, rows))
        padded = np.array([row + [0] * (width - len(row)) for row in rows])
        logits = np.stack(logits)
        state = Read(padded, np.array([len(row) for row in rows]))
        return (logits if last is None else logits[:, -last:]), state
