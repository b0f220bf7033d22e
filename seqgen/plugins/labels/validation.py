"""Validation of classifiers, taggers, masked models and ELMo on the held-out part."""

from __future__ import annotations

import math
from typing import Any

from seqgen.plugins.labels.predict import label_totals
from seqgen.plugins.labels.pseudo_perplexity import HELD_OUT_SHARE, masked_loss
from seqgen.scoring.perplexity import for_model, protocol
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import directions_of
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.validating import (
    VALIDATION_LENGTH,
    VALIDATION_ROWS,
    FinalValidation,
    Validation,
    final_validation,
)
from seqgen.training.validations import OwnLossValidation, TextValidation

# Examples that a validation during training looks at.
VALIDATION_EXAMPLES = 2000


class LabelValidation(OwnLossValidation):
    """Validation of classifiers and taggers: cross-entropy and accuracy of labels."""

    little = most = VALIDATION_EXAMPLES
    protocol = "every label of the held-out part"

    def loss(self, most: int | None = None) -> float:
        totals = label_totals(self.loaded.model, self.prepared.val, most)
        self.figures = {"accuracy": totals.accuracy}
        return totals.nats_per_label

    def about(self) -> dict[str, Any]:
        return {"layer_weights": self.loaded.model.layer_weights}


class MaskedValidation(OwnLossValidation):
    """Validation of masked models: loss at hidden tokens, the same ones every time."""

    little = VALIDATION_ROWS * VALIDATION_LENGTH
    protocol = f"{HELD_OUT_SHARE:.0%} of the tokens hidden; no perplexity"

    def loss(self, most: int | None = None) -> float:
        return masked_loss(self.loaded.model, self.prepared.val, most)


class BothWaysValidation(Validation):
    """Validation of ELMo: the losses of both language models and their mean."""

    def __init__(self, loaded: LoadedModel, prepared: Prepared) -> None:
        super().__init__(loaded, prepared)
        self._each = [TextValidation(one, prepared) for one in directions_of(loaded)]

    def quick(self) -> float:
        losses = [one.quick() for one in self._each]
        self.figures = dict(zip(("forward_loss", "backward_loss"), losses, strict=True))
        return sum(losses) / 2

    def final(self) -> FinalValidation:
        scored = [final_validation(one.loaded) for one in self._each]
        seconds = sum(seconds for _, seconds in scored)
        losses = [totals.nats_per_token for totals, _ in scored if totals is not None]
        if not losses:
            return FinalValidation()
        forwards = self._each[0].loaded
        scored = f"{protocol(forwards, for_model(forwards))}; the mean of both directions"
        perplexities = dict(zip(("forward", "backward"), map(math.exp, losses), strict=True))
        about = {"protocol": scored, "val_perplexities": perplexities}
        return FinalValidation(sum(losses) / 2, seconds, about=about)
