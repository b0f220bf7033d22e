"""Randomness as a function: numbers drawn from what they are for, not from a generator's state.

The hash absorbs 64-bit words one after the other:

    h = 0;  for each word w:  h = mix(h + GAMMA xor w)

where mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable
pseudorandom number generators"; Stafford's variant 13) and GAMMA its odd constant. The top 53
bits make a uniform number in [0, 1): (h >> 11) * 2**-53.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_INTEGERS = int(GAMMA), int(_M1), int(_M2)
_S30, _S27, _S31, _S11 = (np.uint64(n) for n in (30, 27, 31, 11))


def hash64(*words: int | np.ndarray) -> np.ndarray:
    """Hash words to 64 bits.

    Args:
        words: integers, or arrays of them, that broadcast together; taken modulo 2**64.

    Returns:
        uint64, of the broadcast shape.
    """
    h = np.zeros((), dtype=np.uint64)
    for word in words:
        h = absorb(h, word)
    return h


def absorb(h: np.ndarray, word: int | np.ndarray) -> np.ndarray:
    """Extend a hash by one word: `hash64(*words, word)` from `hash64(*words)`."""
    with np.errstate(over="ignore"):
        h = (h + GAMMA) ^ _as_words(word)
        h = (h ^ (h >> _S30)) * _M1
        h = (h ^ (h >> _S27)) * _M2
        return h ^ (h >> _S31)


def _as_words(word: int | np.ndarray) -> np.ndarray:
    if isinstance(word, int):
        return np.uint64(word & 0xFFFFFFFFFFFFFFFF)
    return np.asarray(word).astype(np.uint64)


def uniforms(*words: int | np.ndarray) -> np.ndarray:
    """Compute uniform numbers in [0, 1), float64, one per hashed tuple of words."""
    if all(isinstance(word, int) for word in words):
        # For a single tuple, Python integers are ten times as fast as arrays of one element.
        return np.asarray((_hash_int(words) >> 11) * 2.0**-53)
    return (hash64(*words) >> _S11).astype(np.float64) * 2.0**-53


def _hash_int(words: Sequence[int]) -> int:
    """Compute `hash64` of integers with Python integers."""
    h, (gamma, m1, m2) = 0, _INTEGERS
    for word in words:
        h = ((h + gamma) ^ word) & 0xFFFFFFFFFFFFFFFF
        h = ((h ^ (h >> 30)) * m1) & 0xFFFFFFFFFFFFFFFF
        h = ((h ^ (h >> 27)) * m2) & 0xFFFFFFFFFFFFFFFF
        h = h ^ (h >> 31)
    return h
