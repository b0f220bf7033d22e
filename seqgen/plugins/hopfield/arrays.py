"""Hopfield networks: associative memories of patterns of +1 and -1 (Hopfield 1982).

The weights follow from the patterns; what is restored is what the network settles in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.engines.weights import Shapes, Weights
from seqgen.models.arrays import ArrayNetwork
from seqgen.settings import ModelConfig, ranges, require, setting
from seqgen.wording import plural

Rule = Literal["hebbian", "projection"]
# Patterns of random bits are restored up to this many for each unit (Amit et al. 1985).
CAPACITY = 0.138
MOST_UNITS = 1 << 15  # whose weights fill 4 GB

MOST_THRESHOLD = 1e6
Threshold = float | np.ndarray  # of all units, or (n,) of each


@dataclass(frozen=True, kw_only=True)
class HopfieldConfig(ModelConfig):
    """Configuration of a memory of lines: patterns of `length` tokens of `bits` units each."""

    length: int = setting(
        "Number of tokens in a pattern: shorter lines are filled up, longer ones refused.",
        32,
        ranges.FROM_1_TO_1000,
    )
    bits: int = setting("Number of units that encode one token.", 32, ranges.FROM_1_TO_1000)
    rule: Rule = setting(
        "How weights follow from patterns: hebbian (Hopfield 1982), or projection (Personnaz et "
        "al. 1986), which also keeps similar patterns apart.",
        "hebbian",
    )
    threshold: float | tuple[float, ...] = setting(
        "What a unit's input, sum_j w_ij s_j, must exceed for it to become +1: one number for all "
        "units, or length x bits of them with commas between.",
        0.0,
        low=-MOST_THRESHOLD,
        high=MOST_THRESHOLD,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.units <= MOST_UNITS,
            f"length x bits must be at most {MOST_UNITS:,} units, not {self.units:,}",
        )
        given = len(self.threshold) if isinstance(self.threshold, tuple) else self.units
        require(
            given == self.units,
            f"threshold must be one number, or one for each of the {plural(self.units, 'unit')} "
            f"(length x bits), not {given:,}",
        )

    @property
    def units(self) -> int:
        """Number of units n."""
        return self.length * self.bits


class Codes:
    """Encoding of lines as units: a random code of +1 and -1 for each token at each position.

    Attributes:
        codes: (L, V, bits) int8: +1 and -1; 0 for tokens that no line has.
    """

    config: HopfieldConfig
    codes: Leaf

    def parameter_count(self) -> int:
        """Count the connections, n (n - 1) / 2, since the weights are symmetric."""
        return self.config.units * (self.config.units - 1) // 2

    def encode(self, tokens: Sequence[int], unknown: int) -> np.ndarray:
        """Encode tokens as units (n,) int8, starting at the first position.

        Args:
            tokens: at most L of them.
            unknown: the token that stands for any other; its units, and those of positions
                without a token, are 0.
        """
        units = np.zeros((self.config.length, self.config.bits), dtype=np.int8)
        codes = ops_of(self.codes).array(self.codes)
        for place, token in enumerate(tokens):
            if token != unknown:
                units[place] = codes[place, token]
        return units.reshape(-1)

    def decode(self, units: np.ndarray, end: int) -> list[int]:
        """Decode units (n,) to the tokens with the nearest codes, up to the token `end`."""
        codes = ops_of(self.codes).array(self.codes).astype(np.float64)
        rows = units.reshape(self.config.length, self.config.bits)
        nearest = np.einsum("lvb,lb->lv", codes, rows).argmax(1).tolist()
        return nearest[: nearest.index(end)] if end in nearest else nearest


class HopfieldArrays(Codes, ArrayNetwork):
    """Array version of `Hopfield`.

    Raises:
        ValueError: the weights are not symmetric, or have a diagonal.
    """

    config: HopfieldConfig

    def __init__(self, config: HopfieldConfig, weights: Weights) -> None:
        self.config, self.weights, self.codes = config, weights["weights"], weights["codes"]
        self.dtype = self.weights.dtype
        if not np.array_equal(self.weights, self.weights.T) or self.weights.diagonal().any():
            raise ValueError("the weights are not symmetric with a diagonal of zeros")

    @classmethod
    def shapes(cls, config: HopfieldConfig) -> Shapes:
        codes = config.length, config.vocab_size, config.bits
        return {"weights": (config.units, config.units), "codes": codes}


def hebbian(patterns: np.ndarray) -> np.ndarray:
    """Compute Hebbian weights w_ij = 1/P sum_u e_i^u e_j^u, w_ii = 0, of patterns (P, n)."""
    e = patterns.astype(np.float64)
    return _without_diagonal(e.T @ e / len(e))


def projection(patterns: np.ndarray) -> np.ndarray:
    """Compute the projection (n, n) onto the span of patterns (P, n), with a zero diagonal.

    Each pattern is kept as it is, however similar they are, up to n of them that are linearly
    independent (Personnaz, Guyon and Dreyfus 1986).
    """
    e = patterns.astype(np.float64)
    onto = np.linalg.pinv(e) @ e
    return _without_diagonal((onto + onto.T) / 2)


def _without_diagonal(weights: np.ndarray) -> np.ndarray:
    np.fill_diagonal(weights, 0)
    return weights


RULES = {"hebbian": hebbian, "projection": projection}


def energy(weights: np.ndarray, units: np.ndarray, threshold: Threshold = 0.0) -> float:
    """Compute the energy -1/2 sum_ij w_ij s_i s_j + sum_i threshold_i s_i of units (n,)."""
    s = units.astype(np.float64)
    return float(-0.5 * (s @ weights @ s) + (threshold * s).sum())


def update_all(weights: np.ndarray, units: np.ndarray, threshold: Threshold = 0.0) -> np.ndarray:
    """Update all units (n,) synchronously.

    s_i = +1 if sum_j w_ij s_j > threshold_i, else -1.
    """
    return np.where(weights @ units > threshold, 1, -1).astype(np.int8)


def update_each(
    weights: np.ndarray, units: np.ndarray, order: np.ndarray, threshold: Threshold = 0.0
) -> np.ndarray:
    """Update each unit (n,) once, one after another in the given order."""
    s, field = units.copy(), weights @ units  # field_i = sum_j w_ij s_j
    thresholds = np.broadcast_to(threshold, s.shape)
    for i in order.tolist():
        new = 1 if field[i] > thresholds[i] else -1
        if new != s[i]:
            field += weights[i] * (new - int(s[i]))  # w is symmetric
            s[i] = new
    return s


@dataclass(frozen=True)
class Recalled:
    """Result of a recall: final state, energies, and how it ended.

    Attributes:
        units: (n,) int8, the last state.
        energies: before the first sweep and after each.
        ended: "stable", where a sweep changes nothing; "cycle", between two states; or "limit".
    """

    units: np.ndarray
    energies: list[float]
    ended: Literal["stable", "cycle", "limit"]


def recall(
    weights: np.ndarray,
    units: np.ndarray,
    *,
    synchronous: bool,
    seed: int,
    threshold: Threshold = 0.0,
    sweeps: int = 100,
) -> Recalled:
    """Update the units until the state is stable, repeats, or a limit is reached.

    One at a time, in a random order for each sweep, the energy never rises; all at once they
    may end in a cycle of two states.

    Args:
        weights: (n, n) float64, symmetric, with a diagonal of zeros.
        units: (n,) int8 of +1 and -1, and 0 where nothing is known.
        synchronous: all at once.
        seed: of the orders.
        threshold: of every unit, or (n,) of each.
        sweeps: how many there are at most.
    """
    generator = np.random.default_rng(seed)
    states, energies = [units], [energy(weights, units, threshold)]
    for _ in range(sweeps):
        if synchronous:
            after = update_all(weights, states[-1], threshold)
        else:
            order = generator.permutation(units.size)
            after = update_each(weights, states[-1], order, threshold)
        if np.array_equal(after, states[-1]):
            return Recalled(after, energies, "stable")
        energies.append(energy(weights, after, threshold))
        if synchronous and len(states) > 1 and np.array_equal(after, states[-2]):
            return Recalled(after, energies, "cycle")
        states = [states[-1], after]
    return Recalled(states[-1], energies, "limit")
