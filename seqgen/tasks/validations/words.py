"""The loss of word vectors on held-out text."""

from __future__ import annotations

import time

import numpy as np
import torch

from seqgen.commands.training.validating import VALIDATION_ROWS, Final, Validation
from seqgen.data.batches import spans_of
from seqgen.data.corpus import Corpus
from seqgen.models.words.network import WordNetwork

# Tokens of a row, and of all rows that are worked on at once.
ROW, AT_ONCE = 512, 1 << 14


class WordValidation(Validation):
    """Of vectors of words."""

    def quick(self) -> float:
        return word_loss(self.loaded.model, self.prepared.val, VALIDATION_ROWS)

    def final(self) -> Final:
        if self.prepared.val is None:
            return Final()
        began = time.monotonic()
        self.prepared.show(self.loaded.model)  # what it counts is not stored
        loss = word_loss(self.loaded.model, self.prepared.val)
        return Final(loss, time.monotonic() - began, "every word with its whole context")


@torch.no_grad()
def word_loss(model: WordNetwork, corpus: Corpus, most: int | None = None) -> float:
    """Return what a text costs, in nats per token: the lectures' J, without its gradient.

    Contexts do not reach from one document into another, nor from one row of a long one.

    Args:
        model: in evaluation mode.
        corpus: the text.
        most: score only so many rows from its beginning.
    """
    begin, end = (side[:most] for side in spans_of(corpus.starts, corpus.ends, ROW))
    total = 0.0
    for at in range(0, begin.size, AT_ONCE // ROW):
        rows = slice(at, at + AT_ONCE // ROW)
        places = begin[rows, None] + np.arange((end - begin)[rows].max())
        inside = places < end[rows, None]
        tokens = np.where(inside, corpus.tokens[np.where(inside, places, 0)].astype(np.int64), -1)
        total += model.loss(torch.from_numpy(tokens).to(model.device)).item()
    return total / int((end - begin).sum())
