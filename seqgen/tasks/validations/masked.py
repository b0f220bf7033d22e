"""The loss of a masked model on hidden tokens of the held-out text."""

from __future__ import annotations

import time

from seqgen.commands.masked.scores import HELD_OUT_SHARE, masked_loss
from seqgen.commands.training.validating import (
    VALIDATION_LENGTH,
    VALIDATION_ROWS,
    Final,
    Validation,
)


class MaskedValidation(Validation):
    """Of a masked model: what hidden tokens cost, always the same ones."""

    def quick(self) -> float:
        most = VALIDATION_ROWS * VALIDATION_LENGTH
        return masked_loss(self.loaded.model, self.prepared.val, most)

    def final(self) -> Final:
        if self.prepared.val is None:
            return Final()
        began = time.monotonic()
        loss = masked_loss(self.loaded.model, self.prepared.val)
        how = f"{HELD_OUT_SHARE:.0%} of the tokens hidden; no perplexity"
        return Final(loss, time.monotonic() - began, how)
