"""Validations of language models, and of models with a loss of their own."""

from __future__ import annotations

import time
from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

from seqgen.generation.sample import fixed_sample
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.scoring.loop import add_up, parallel_rows, score_corpus
from seqgen.scoring.perplexity import for_model, last_held_out, protocol
from seqgen.text.corpus import Corpus
from seqgen.training.validating import (
    SAMPLE_TOKENS,
    VALIDATION_LENGTH,
    VALIDATION_ROWS,
    FinalValidation,
    Validation,
    final_validation,
)

# Tokens of each row on which the speed of scoring is measured.
TRIED_LENGTH = 4


class TextValidation(Validation):
    """Validation of a language model by perplexity."""

    @cached_property
    def _corpus(self) -> Corpus:
        """Fixed part of the held-out data as parallel rows."""
        return parallel_rows(self.prepared.val, VALIDATION_ROWS, VALIDATION_LENGTH)

    def fit(self, seconds: float, length: int | None) -> int | None:
        most, length = VALIDATION_LENGTH, length or self._affordable_length(seconds)
        if length < most:
            self._corpus = parallel_rows(self.prepared.val, VALIDATION_ROWS, length)
        return length

    def _affordable_length(self, seconds: float) -> int:
        """Measure how many tokens of each row can be scored in a time."""
        tried = parallel_rows(self.prepared.val, VALIDATION_ROWS, TRIED_LENGTH)
        taken = []
        for _ in range(2):  # the first sets up
            began = time.monotonic()
            self._score(tried)
            taken.append(time.monotonic() - began)
        possible = seconds * tried.tokens.size / (min(taken) * VALIDATION_ROWS)
        return min(VALIDATION_LENGTH, max(TRIED_LENGTH, int(possible)))

    def quick(self) -> float:
        totals = self._score(self._corpus)
        return totals.nll_nats / totals.tokens

    def _score(self, corpus: Corpus) -> ScoreTotals:
        scored = score_corpus(
            self.loaded.model,
            corpus,
            VALIDATION_ROWS,
            want="log_probs",
            direction=self.loaded.data.direction,
        )
        return add_up(scored, self.prepared.tokenizer)

    @property
    def finals(self) -> float:
        # Of a text, the session chooses a part.
        in_pairs = self.loaded.stored.task.takes_targets
        if not in_pairs and self.prepared.val_text() is not None:
            return 0.0
        val = self.prepared.val
        return 0.0 if val is None else val.tokens.size / self._corpus.tokens.size

    def final(self) -> FinalValidation:
        totals, seconds = final_validation(self.loaded)
        prompt, most = self.prepared.sample_prompt, SAMPLE_TOKENS
        text = fixed_sample(self.loaded, prompt, most, self.sample_seconds)
        if totals is None:
            return FinalValidation(about={"sample": text})
        of_examples = self.prepared.val.counted is not None
        part = last_held_out(totals.characters) if self.loaded.stored.scored_from else None
        protocol_text = protocol(self.loaded, for_model(self.loaded), of_examples, part)
        about = {"protocol": protocol_text, "sample": text}
        return FinalValidation(totals.nats_per_token, seconds, totals, about)


class OwnLossValidation(Validation):
    """Validation of a model with a loss of its own.

    Attributes:
        little: how much of what is held out is looked at during training, see `loss`.
        protocol: says how the loss was measured.
    """

    little: ClassVar[int]
    protocol: ClassVar[str]

    @abstractmethod
    def loss(self, most: int | None = None) -> float:
        """Compute the loss on the first part of the held-out data; on all of it if None."""

    def about(self) -> dict[str, Any]:
        """Compute further figures by their names in `TrainingResult`."""
        return {}

    def quick(self) -> float:
        return self.loss(self.little)

    def final(self) -> FinalValidation:
        if self.prepared.val is None:
            return FinalValidation(about=self.about())
        began = time.monotonic()
        loss = self.loss()
        figures = {f"val_{name}": value for name, value in self.figures.items()}
        about = {"protocol": self.protocol, **figures, **self.about()}
        return FinalValidation(loss, time.monotonic() - began, about=about)
