"""How many rows make a step, where rows are whole documents or pairs and nobody has said it."""

from __future__ import annotations

import numpy as np

from seqgen.configs import TrainingConfig
from seqgen.data.corpus import Corpus

# Tokens of a step on pairs, on the longer side of each: docs/recipes.md.
PAIR_TOKENS = 2000
# An epoch has at least this many steps, unless that takes fewer rows than the recipe's.
LEAST_EPOCH = 16


def rows_of_pairs(corpus: Corpus, least: int) -> int:
    """Return how many pairs make a step of `PAIR_TOKENS`, on the longer side; at least `least`."""
    lengths = np.diff(corpus.ends, prepend=0)
    longer = np.maximum(lengths, corpus.sources.lengths).mean()
    return _limited(round(PAIR_TOKENS / longer), corpus, least)


def rows_of_documents(corpus: Corpus, training: TrainingConfig) -> int:
    """Return how many documents have as many tokens as the recipe's rows, which are windows."""
    mean = min(training.seq_len, corpus.tokens.size / corpus.ends.size)
    rows = round(training.batch_size * training.seq_len / mean)
    return _limited(rows, corpus, training.batch_size)


def _limited(rows: int, corpus: Corpus, least: int) -> int:
    return max(least, min(rows, corpus.ends.size // LEAST_EPOCH))
