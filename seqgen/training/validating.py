"""Validation: measure a model on the held-out part during and after training."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from seqgen.metrics.perplexity import ScoreTotals
from seqgen.scoring.perplexity import score_held_out
from seqgen.store.loaded import LoadedModel
from seqgen.training.datasets.prepared import Prepared

# A validation during training scores this much of a stream: rows, and tokens per row.
VALIDATION_ROWS, VALIDATION_LENGTH = 32, 1024
# Tokens of the text that the model writes to show how far it is. Each is a step of its own, which
# takes a large model as long as reading about so many tokens at once.
SAMPLE_TOKENS, READ_PER_WRITTEN = 160, 10
# A step reads its tokens once forward and twice backward.
PASSES_OF_STEP = 3
# A validation with so many operations is long.
LONG_OPERATIONS = 1e11


@dataclass(frozen=True)
class FinalValidation:
    """Result of the validation after training.

    Attributes:
        loss: on all of the held-out part, nats per token, or per label; None if there is none.
        seconds: that this took.
        totals: of a text; None of anything else.
        about: what else `TrainingResult` has of it, by its names.
    """

    loss: float | None = None
    seconds: float = 0.0
    totals: ScoreTotals | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Validation(ABC):
    """Base of validations: measures a model on its held-out data.

    Attributes:
        loaded: the model, as it is at the time of a call.
        prepared: its data.
        most: how many tokens, or labels, `quick` scores at most.
        figures: what the last call of `quick` has found besides the loss, by name.
        sample_seconds: after which the sample of `final` ends.
    """

    most: ClassVar[int] = VALIDATION_ROWS * VALIDATION_LENGTH

    loaded: LoadedModel
    prepared: Prepared
    figures: dict[str, float] = field(default_factory=dict)
    sample_seconds: float = math.inf

    def fit(self, seconds: float, length: int | None) -> int | None:
        """Shorten the rows of `quick` to take no longer than a time, where that is possible.

        Args:
            seconds: the time.
            length: tokens per row if they are known from an earlier call; else they are measured.

        Returns:
            Tokens per row; None where rows cannot be shortened.
        """
        return None

    @abstractmethod
    def quick(self) -> float:
        """Compute the loss on a small, fixed part of the held-out data."""

    @abstractmethod
    def final(self) -> FinalValidation:
        """Measure the model on all held-out data, if any."""

    @property
    def finals(self) -> float:
        """Cost of the final validation in `quick` ones; 0 if it scores only what time allows."""
        val = self.prepared.val
        return 0.0 if val is None else val.scored / min(val.scored, self.most)

    def steps(self, tokens_per_step: float, sample: bool) -> float:
        """Estimate how many training steps take as long as one `quick` validation.

        Args:
            tokens_per_step: how many a step trains on.
            sample: the model then also writes `SAMPLE_TOKENS`.
        """
        if self.prepared.val is None:
            return 0.0
        read = min(self.prepared.val.scored, self.most)
        read += sample * SAMPLE_TOKENS * READ_PER_WRITTEN
        return read / (PASSES_OF_STEP * tokens_per_step)

    @property
    def is_long(self) -> bool:
        """Whether one `quick` validation takes seconds on a usual machine."""
        val = self.prepared.val
        tokens = 0 if val is None else min(val.scored, self.most)
        return 2 * self.loaded.model.parameter_count() * tokens >= LONG_OPERATIONS


def final_validation(kept: LoadedModel) -> tuple[ScoreTotals | None, float]:
    """Score the held-out part that a stored model's figures are about, as `perplexity` does.

    Returns:
        Its totals, or None if nothing was held out; and the seconds that it took.
    """
    if not kept.stored.holds_out:
        return None, 0.0
    began = time.monotonic()
    return score_held_out(kept), time.monotonic() - began
