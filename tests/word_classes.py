"""The made corpus of words whose classes are known, and what vectors make of it."""

from __future__ import annotations

import numpy as np
import words as corpus

from seqgen.plugins.vectors.words import WordVectors


def right_neighbours(vectors: WordVectors) -> float:
    """Return for how many of the words the nearest one is of the same class, as a share."""
    kind = {word: number for number, words in enumerate(corpus.classes()) for word in words}
    place = {word: line for line in corpus.PLACES for word in line[:2]}
    near = {word: vectors.neighbours(word, 1)[0].neighbour for word in kind}
    # The nearest word to a capital may well be its country.
    right = [kind.get(b) == kind[a] or place.get(b, 0) is place.get(a) for a, b in near.items()]
    return float(np.mean(right))
