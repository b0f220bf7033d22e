"""The loss and the accuracy of a classifier or a tagger on held-out examples."""

from __future__ import annotations

import time

from seqgen.commands.labelling.predict import label_totals
from seqgen.commands.training.validating import Final, Validation

# Examples that a validation during training looks at.
VALIDATION_EXAMPLES = 2000


class LabelValidation(Validation):
    """Of a classifier or a tagger: cross-entropy and accuracy of the labels."""

    def quick(self) -> float:
        totals = label_totals(self.loaded.model, self.prepared.val, VALIDATION_EXAMPLES)
        self.figures = {"accuracy": totals.accuracy}
        return totals.nats_per_label

    def final(self) -> Final:
        weights = self.loaded.model.layer_weights
        if self.prepared.val is None:
            return Final(layer_weights=weights)
        began = time.monotonic()
        totals = label_totals(self.loaded.model, self.prepared.val)
        seconds = time.monotonic() - began
        how = "every label of the held-out part"
        about = {"accuracy": totals.accuracy, "layer_weights": weights}
        return Final(totals.nats_per_label, seconds, how, **about)
