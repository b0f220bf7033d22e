"""Texts of any size with n-grams about as frequent as in real ones, to count n-grams of words.

    python -m tests.benchmarks.words 1000000000 words.txt ptb.train.txt wiki.train.txt

Walkers go through the given texts, and jump to other places where their word occurs, at a rate of
0.2 to 0.7 each, to early places more often than to late ones. One word in 25 is invented, drawn by
Zipf's law from four million.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

WALKERS, STEPS, INVENTED = 1 << 12, 256, 4_000_000
SYLLABLES = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]


def texts(files: Sequence[str]) -> Iterator[bytes]:
    """Yield pieces of text without end, always the same; `<unk>` of the files is `UNK`."""
    joined = " ".join(Path(file).read_text(encoding="utf-8") for file in files)
    words = joined.replace("<unk>", "UNK").replace("\n", " \n ").split(" ")
    known, ids = np.unique(np.array(words, dtype=object), return_inverse=True)
    known, ids = known[1:], ids[ids > 0] - 1  # "" comes first
    newline = int(np.searchsorted(known, "\n"))
    order = np.argsort(ids, kind="stable")
    begins = np.searchsorted(ids[order], np.arange(known.size + 1))
    every = [*known, *map(_invented, range(len(SYLLABLES), INVENTED + len(SYLLABLES)))]
    written = np.array([(w if w == "\n" else f"{w} ").encode() for w in every], dtype=object)
    draw = np.random.default_rng(0)
    at, rates = draw.integers(0, ids.size, WALKERS), draw.uniform(0.2, 0.7, WALKERS)
    while True:
        steps = np.empty((STEPS, WALKERS), np.int64)
        for row in steps:
            at = (at + 1) % ids.size
            jumps = draw.random(WALKERS) < rates
            word = ids[at[jumps]]
            places = draw.random(word.size) ** 3 * (begins[word + 1] - begins[word])
            at[jumps] = order[begins[word] + places.astype(np.int64)]
            row[:] = ids[at]
        new = (draw.random(steps.shape) < 0.04) & (steps != newline)
        ranks = draw.zipf(1.2, int(new.sum())).clip(0, 1 << 40)
        steps[new] = known.size + ranks % INVENTED
        yield b"".join(written[steps.T.ravel()])


def _invented(number: int) -> str:
    word = ""
    while number:
        number, syllable = divmod(number, len(SYLLABLES))
        word += SYLLABLES[syllable]
    return word + "x"


if __name__ == "__main__":
    size, out, *given = sys.argv[1:]
    with Path(out).open("wb") as file:
        pieces = texts(given)
        while file.tell() < int(size):
            file.write(next(pieces))
        file.write(b"\n")
