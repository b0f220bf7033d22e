"""Validation of word vectors on the held-out part."""

from __future__ import annotations

import numpy as np
import torch

from seqgen.plugins.vectors.models.network import WordNetwork
from seqgen.text.batches import split_spans
from seqgen.text.corpus import Corpus
from seqgen.training.validating import VALIDATION_ROWS
from seqgen.training.validations import OwnLossValidation

# Tokens of a row of word vectors, and of all rows that are worked on at once.
ROW, AT_ONCE = 512, 1 << 14


class WordValidation(OwnLossValidation):
    """Validation of word vectors: loss per token over a number of rows."""

    little, protocol = VALIDATION_ROWS, "every word with its whole context"

    def loss(self, most: int | None = None) -> float:
        if most is None:
            self.prepared.show(self.loaded.model)  # what it counts is not stored
        return word_loss(self.loaded.model, self.prepared.val, most)


@torch.no_grad()
def word_loss(model: WordNetwork, corpus: Corpus, most: int | None = None) -> float:
    """Compute the loss of a text in nats per token: the lectures' J.

    Contexts do not reach from one document into another, nor from one row of a long one.

    Args:
        model: in evaluation mode.
        corpus: the text.
        most: score only so many rows from its beginning.
    """
    begin, end = (side[:most] for side in split_spans(corpus.starts, corpus.ends, ROW))
    total = 0.0
    for at in range(0, begin.size, AT_ONCE // ROW):
        rows = slice(at, at + AT_ONCE // ROW)
        places = begin[rows, None] + np.arange((end - begin)[rows].max())
        inside = places < end[rows, None]
        tokens = np.where(inside, corpus.tokens[np.where(inside, places, 0)].astype(np.int64), -1)
        total += model.loss(torch.from_numpy(tokens).to(model.device)).item()
    return total / int((end - begin).sum())
