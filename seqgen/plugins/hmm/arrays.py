"""Hidden Markov models over NumPy arrays.

Notation as in Rabiner (1989), "A tutorial on hidden Markov models": K states, the initial
distribution pi, transitions a_ij = p(state j | state i), emissions b_j(v) = p(token v | state j).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqgen.engines.arrays import multiply
from seqgen.models.arrays import ArrayModel
from seqgen.models.inference import LOGITS_AT_ONCE
from seqgen.models.state import State
from seqgen.plugins.hmm.settings import HMMConfig

# How far the sum of stored probabilities may be from 1: bf16 has 8 bits of precision.
ROUNDING = 2**-7


@dataclass
class HMMState(State):
    """Predictive distribution of the hidden state, log p(next state | tokens so far), (B, K)."""

    predicted: np.ndarray


class HMMArrays(ArrayModel):
    """Hidden Markov model that predicts tokens by the forward algorithm.

    The chain begins from pi, at the first token. It begins again after a token that no state
    emits: BOS, which stands before a line, is one.

    Args:
        config: how many states.
        tables: `initial`, pi (K,); `transition`, a (K, K), from and to; `emission`, b (K, V).

    Raises:
        ValueError: there are others, or they have other shapes, or they do not sum to 1.
    """

    config: HMMConfig

    def __init__(self, config: HMMConfig, tables: Mapping[str, np.ndarray]) -> None:
        found = {name: table.shape for name, table in tables.items()}
        if wrong := dict(found.items() ^ self.shapes(config).items()):
            raise ValueError(f"tensors do not fit: {', '.join(sorted(wrong)[:3])}")
        sums = np.concatenate([table.sum(-1).ravel() for table in tables.values()])
        least = min(table.min() for table in tables.values())
        if not (least >= 0 and (abs(sums - 1) < ROUNDING).all()):
            raise ValueError("probabilities do not sum to 1")
        self.config, self.dtype = config, tables["initial"].dtype
        self.transition, self.emission = tables["transition"], tables["emission"]
        with np.errstate(divide="ignore"):
            self.log_initial = np.log(tables["initial"])

    def parameter_count(self) -> int:
        """Count the numbers in the tables."""
        return sum(math.prod(shape) for shape in self.shapes(self.config).values())

    @staticmethod
    def shapes(config: HMMConfig) -> dict[str, tuple[int, ...]]:
        """List the shape of every table by name."""
        k = config.num_states
        return {"initial": (k,), "transition": (k, k), "emission": (k, config.vocab_size)}

    @property
    def most_at_once(self) -> int:
        return LOGITS_AT_ONCE // max(self.vocab_size, self.config.num_states)

    def start(self, batch: int, stride: int | None = None) -> HMMState:
        return HMMState(np.tile(self.log_initial, (batch, 1)))

    @np.errstate(divide="ignore", invalid="ignore")  # the logarithm of 0 is -inf
    def __call__(
        self, tokens: np.ndarray, state: HMMState | None = None, last: int | None = None
    ) -> tuple[np.ndarray, HMMState | None]:
        after = (state or self.start(len(tokens))).predicted  # (B, K)
        predicted = []
        for column in tokens.T:
            after = self._advance(after, np.log(self.emission.T[column]))
            predicted.append(after)
        kept = np.stack(predicted[-(last or len(predicted)) :], 1)  # (B, T, K)
        probs = multiply(np.exp(kept).reshape(-1, kept.shape[-1]), self.emission)
        logits = np.log(probs).reshape(*kept.shape[:2], -1)
        return logits, None if state is None else HMMState(after)

    def _advance(self, predicted: np.ndarray, log_emission: np.ndarray) -> np.ndarray:
        """Apply the forward algorithm to one token, from one log prediction (B, K) to the next.

        alpha_{t+1}(j) = sum_i alpha_t(i) a_ij b_j(x_{t+1}) (Rabiner 1989, equation 20), with each
        alpha divided by its sum.

        Args:
            predicted: before the token.
            log_emission: log b_j(x_t), (B, K).
        """
        joint = predicted + log_emission
        most = joint.max(-1, keepdims=True)  # (B, 1)
        emitted = most > -np.inf
        filtered = np.exp(joint - np.where(emitted, most, 0))
        # All zeros for a token that no state emits: their logarithm is not used.
        after = np.log(multiply(filtered, self.transition)) - np.log(
            filtered.sum(-1, keepdims=True)
        )
        return np.where(emitted, after, self.log_initial)
