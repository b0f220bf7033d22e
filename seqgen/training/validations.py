"""How each kind of model is measured on the held-out part, during and after training."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from seqgen.generation.sample import fixed_sample
from seqgen.plugins.labels.predict import label_totals
from seqgen.plugins.labels.pseudo_perplexity import HELD_OUT_SHARE, masked_loss
from seqgen.plugins.vectors.models.network import WordNetwork
from seqgen.scoring.loop import add_up, parallel_rows, score_corpus
from seqgen.scoring.perplexity import for_model, protocol
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import directions_of
from seqgen.text.batches import spans_of
from seqgen.text.corpus import Corpus
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.validating import (
    SAMPLE_TOKENS,
    VALIDATION_LENGTH,
    VALIDATION_ROWS,
    Final,
    Validation,
    final_validation,
)

# Examples that a validation during training looks at.
VALIDATION_EXAMPLES = 2000
# Tokens of a row of word vectors, and of all rows that are worked on at once.
ROW, AT_ONCE = 512, 1 << 14


class TextValidation(Validation):
    """Of a language model: what `perplexity` gives."""

    @cached_property
    def _corpus(self) -> Corpus:
        """Its part of what is held out, as parallel rows."""
        return parallel_rows(self.prepared.val, VALIDATION_ROWS, VALIDATION_LENGTH)

    def quick(self) -> float:
        how = {"want": "log_probs", "direction": self.loaded.data.direction}
        scored = score_corpus(self.loaded.model, self._corpus, VALIDATION_ROWS, **how)
        totals = add_up(scored, self.prepared.tokenizer)
        return totals.nll_nats / totals.tokens

    def final(self) -> Final:
        totals, seconds = final_validation(self.loaded)
        text = fixed_sample(self.loaded, self.prepared.sample_prompt, SAMPLE_TOKENS)
        if totals is None:
            return Final(about={"sample": text})
        how = protocol(self.loaded, for_model(self.loaded))
        return Final(totals.nats_per_token, seconds, {"protocol": how, "sample": text})


class BothWaysValidation(Validation):
    """Of two language models that read from both ends: the mean of their losses, and each."""

    def __init__(self, loaded: LoadedModel, prepared: Prepared) -> None:
        super().__init__(loaded, prepared)
        self._each = [TextValidation(one, prepared) for one in directions_of(loaded)]

    def quick(self) -> float:
        losses = [one.quick() for one in self._each]
        self.figures = dict(zip(("forward_loss", "backward_loss"), losses, strict=True))
        return sum(losses) / 2

    def final(self) -> Final:
        scored = [final_validation(one.loaded) for one in self._each]
        seconds = sum(seconds for _, seconds in scored)
        losses = [totals.nats_per_token for totals, _ in scored if totals is not None]
        if not losses:
            return Final()
        forwards = self._each[0].loaded
        how = f"{protocol(forwards, for_model(forwards))}; the mean of both directions"
        perplexities = dict(zip(("forward", "backward"), map(math.exp, losses), strict=True))
        about = {"protocol": how, "val_perplexities": perplexities}
        return Final(sum(losses) / 2, seconds, about)


class OwnLossValidation(Validation):
    """Of a model with a loss of its own.

    Attributes:
        little: how much of what is held out is looked at during training, see `loss`.
        how: the loss was measured.
    """

    little: ClassVar[int]
    how: ClassVar[str]

    @abstractmethod
    def loss(self, most: int | None = None) -> float:
        """Return the loss on so much of what is held out, from its beginning; on all if None."""

    def about(self) -> dict[str, Any]:
        """Return other figures of the model, by their names in `TrainingResult`."""
        return {}

    def quick(self) -> float:
        return self.loss(self.little)

    def final(self) -> Final:
        if self.prepared.val is None:
            return Final(about=self.about())
        began = time.monotonic()
        loss = self.loss()
        figures = {f"val_{name}": value for name, value in self.figures.items()}
        about = {"protocol": self.how, **figures, **self.about()}
        return Final(loss, time.monotonic() - began, about)


class LabelValidation(OwnLossValidation):
    """Of a classifier or a tagger: cross-entropy and accuracy of the labels of so many examples."""

    little = most = VALIDATION_EXAMPLES
    how = "every label of the held-out part"

    def loss(self, most: int | None = None) -> float:
        totals = label_totals(self.loaded.model, self.prepared.val, most)
        self.figures = {"accuracy": totals.accuracy}
        return totals.nats_per_label

    def about(self) -> dict[str, Any]:
        return {"layer_weights": self.loaded.model.layer_weights}


class MaskedValidation(OwnLossValidation):
    """Of a masked model: what hidden ones of so many tokens cost, always the same ones."""

    little = VALIDATION_ROWS * VALIDATION_LENGTH
    how = f"{HELD_OUT_SHARE:.0%} of the tokens hidden; no perplexity"

    def loss(self, most: int | None = None) -> float:
        return masked_loss(self.loaded.model, self.prepared.val, most)


class WordValidation(OwnLossValidation):
    """Of vectors of words, over so many rows."""

    little, how = VALIDATION_ROWS, "every word with its whole context"

    def loss(self, most: int | None = None) -> float:
        if most is None:
            self.prepared.show(self.loaded.model)  # what it counts is not stored
        return word_loss(self.loaded.model, self.prepared.val, most)


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
