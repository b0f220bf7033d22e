"""The settings of the continuous cache, which belongs to no stored model."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.configs.settings import MOST_WIDTH, Bounds

STRENGTH, FLATNESS = 0.1, 0.3


@dataclass(frozen=True)
class CacheConfig:
    """How a model's past is looked up (Grave et al. 2017).

    Attributes:
        size: how many past positions are kept.
        strength: lambda, the weight of the cache; the rest is the model's.
        flatness: theta, by which products of features are multiplied; 0 counts words alone.

    Raises:
        UsageError: a value is out of bounds.
    """

    size: int
    strength: float = STRENGTH
    flatness: float = FLATNESS

    def __post_init__(self) -> None:
        Bounds(low=1, high=MOST_WIDTH).check("--cache", self.size)
        Bounds(low=0, below=1).check("--cache-strength", self.strength)
        Bounds(low=0, high=1000).check("--cache-flatness", self.flatness)

    def __str__(self) -> str:
        """Return the options that mean this."""
        return (
            f"--cache {self.size} --cache-strength {self.strength:g} "
            f"--cache-flatness {self.flatness:g}"
        )
