"""Statistics of metrics: bootstrap intervals, tests, rank correlation, and signatures."""

from __future__ import annotations

import math

import numpy as np

from seqgen import __version__
from seqgen.hashing import uniforms
from seqgen.settings import Bounds
from seqgen.settings.scoring import MOST_RESAMPLES

BLOCKS = 200
RESAMPLES = 2000
CONFIDENCE = 0.95
Z = 1.959963984540054  # the normal quantile of CONFIDENCE, both sides


def group_into_blocks(sizes: np.ndarray, count: int = BLOCKS) -> np.ndarray:
    """Group consecutive lines into about `count` blocks of about equal size.

    Neighbouring lines are alike, so that single ones would make intervals too narrow
    (Künsch 1989).

    Args:
        sizes: (L,) of each line, positive.
        count: how many blocks.

    Returns:
        (L,) the block of each line, from 0 on without gaps.
    """
    before = np.cumsum(sizes) - sizes
    return np.unique(before * count // max(1, sizes.sum()), return_inverse=True)[1]


def resampled_ratios(
    totals: np.ndarray, sizes: np.ndarray, seed: int, resamples: int = RESAMPLES
) -> np.ndarray:
    """Compute the ratio of summed totals to summed sizes in each bootstrap resample of blocks.

    Args:
        totals: (B, M) of each block under each model.
        sizes: (B,) of each block; or (B, M), under each model.
        seed: of the draws: block i of resample r is drawn from hash(seed, r, i).
        resamples: R.

    Returns:
        (R, M) float64; a row's columns are of the same blocks.
    """
    drawn = draw_resamples(len(sizes), seed, resamples)
    return (drawn @ totals) / (drawn @ sizes.reshape(len(sizes), -1))


def draw_resamples(count: int, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Draw bootstrap resamples of blocks: how often each block occurs, (R, B) float64.

    Args:
        count: of blocks, B.
        seed: see `resampled_ratios`.
        resamples: R.
    """
    Bounds(low=2, high=MOST_RESAMPLES).check("--resamples", resamples)
    uniform = uniforms(seed, np.arange(resamples)[:, None], np.arange(count)[None])  # (R, B)
    chosen = (uniform * count).astype(np.int64)
    drawn = np.zeros((resamples, count))
    np.add.at(drawn, (np.arange(resamples)[:, None], chosen), 1)
    return drawn


def percentile_interval(samples: np.ndarray) -> tuple[float, float]:
    """Compute the 95 % interval of bootstrap samples (R,) from their percentiles."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def p_value(differences: np.ndarray) -> float:
    """Compute the two-sided p-value of "no difference" from paired bootstrap differences (R,)."""
    below, above = np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0)
    return min(1.0, 2 * (min(below, above) + 1) / (differences.size + 1))


def wilson_interval(successes: float, trials: int) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a proportion (1927), also accurate near 0 and 1.

    Args:
        successes: out of `trials`; half a success is one tie.
        trials: at least one.
    """
    proportion, z2 = successes / trials, Z * Z
    centre = (proportion + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(proportion * (1 - proportion) / trials + z2 / (4 * trials * trials))
    half = Z * spread / (1 + z2 / trials)
    return max(0.0, centre - half), min(1.0, centre + half)


SHORT = 12  # hexadecimal digits of a hash


def shorten_hash(digest: str) -> str:
    """Shorten a hexadecimal hash to its first digits, enough to tell models and texts apart."""
    return digest[:SHORT]


def figure_signature(number: str, *, seed: int | None = None, **protocol: object) -> str:
    """Write the signature of a figure: `number|key:value|...|seed:...|version:...`.

    Two numbers with one signature were made in the same way, from the same model and text.

    Args:
        number: what was measured.
        seed: of all that was drawn; None where nothing was.
        protocol: the rest, in order: hashes of model and data, and what was chosen.
    """
    parts = {**protocol, "seed": "none" if seed is None else seed, "version": __version__}
    return "|".join([number, *(f"{key}:{value}" for key, value in parts.items())])


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Rank N values from 1; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    """Compute the rank correlation of two lists of N values (Spearman 1904).

    None where it has no meaning: fewer than two values, or all equal.
    """
    if len(first) < 2:
        return None
    a, b = (mean_ranks(np.asarray(side)) - (len(first) + 1) / 2 for side in (first, second))
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else None
