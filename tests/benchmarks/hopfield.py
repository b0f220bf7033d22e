"""How many random patterns a Hopfield network restores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqgen.plugins.hopfield.arrays import hebbian, recall

# Patterns for each unit.
LOADS = (0.02, 0.05, 0.08, 0.10, 0.12, 0.14, 0.16, 0.20)
# A pattern counts as restored if this much of it is right.
RIGHT = 0.97


@dataclass(frozen=True)
class Load:
    """What became of corrupted patterns at one load.

    Attributes:
        load: patterns for each unit.
        patterns: how many are stored.
        restored: the share of those tried of which 97 % or more of the bits came out right.
        right: the share of bits that came out right.
        tried: how many were corrupted and restored.
    """

    load: float
    patterns: int
    restored: float
    right: float
    tried: int


def measure(units: int, flipped: float, tried: int, seed: int) -> Iterator[Load]:
    """Store random patterns, corrupt some, and restore them one unit at a time.

    Args:
        units: n.
        flipped: the share of bits that are flipped.
        tried: how many patterns are corrupted at each load, at most.
        seed: of everything that is drawn.
    """
    for number, load in enumerate(LOADS):
        random = np.random.default_rng([seed, number])
        count = max(1, round(load * units))
        patterns = random.choice(np.array([-1, 1], dtype=np.int8), (count, units))
        weights, overlaps = hebbian(patterns), []
        for pattern in patterns[:tried]:
            cue = pattern.copy()
            cue[random.permutation(units)[: round(flipped * units)]] *= -1
            recalled = recall(weights, cue, synchronous=False, seed=int(random.integers(1 << 31)))
            overlaps.append(float(np.mean(recalled.units == pattern)))
        restored = float(np.mean([overlap >= RIGHT for overlap in overlaps]))
        yield Load(load, count, restored, float(np.mean(overlaps)), len(overlaps))
