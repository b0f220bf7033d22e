"""The settings of the continuous cache, which belongs to no stored model."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.configs.options import MODEL, Options
from seqgen.configs.settings import MOST_WIDTH, setting

STRENGTH, FLATNESS = 0.1, 0.3


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Options):
    """What the command line says of a cache."""

    cache: int | None = setting(
        "Look up what followed at the last N positions where the model's features were alike "
        "(a continuous cache). For models with hidden vectors.",
        None,
        low=1,
        high=MOST_WIDTH,
        panel=MODEL,
        without="no cache",
    )
    cache_strength: float | None = setting(
        "Weight of the cache, from 0 to below 1.",
        None,
        low=0,
        below=1,
        panel=MODEL,
        without=str(STRENGTH),
    )
    cache_flatness: float | None = setting(
        "Multiply products of features by this: the smaller, the flatter the cache's distribution.",
        None,
        low=0,
        high=1000,
        panel=MODEL,
        without=str(FLATNESS),
    )

    @property
    def config(self) -> CacheConfig | None:
        """The cache that is asked for.

        Raises:
            UsageError: there is no `--cache` that the other options belong to.
        """
        strength, flatness = self.cache_strength, self.cache_flatness
        if self.cache is None:
            self.refuse_without("a cache: give --cache N as well", *self.given)
            return None
        return CacheConfig(
            self.cache,
            STRENGTH if strength is None else strength,
            FLATNESS if flatness is None else flatness,
        )


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
        CacheOptions.check("cache", self.size)
        CacheOptions.check("cache_strength", self.strength)
        CacheOptions.check("cache_flatness", self.flatness)

    def __str__(self) -> str:
        """Return the options that mean this."""
        return (
            f"--cache {self.size} --cache-strength {self.strength:g} "
            f"--cache-flatness {self.flatness:g}"
        )
