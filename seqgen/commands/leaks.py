"""What of the held-out part a model is also trained on."""

from __future__ import annotations

from seqgen.commands.training.prepare import Prepared
from seqgen.commands.training.prepare_large import LARGE
from seqgen.configs import DataConfig


def leak(prepared: Prepared, data: DataConfig) -> str | None:
    """Say in one line how much of the held-out part is in the training part too, if anything.

    Large texts are not read again for this.
    """
    overlap = None if prepared.facts.bytes >= LARGE else prepared.overlap(data)
    return overlap and overlap.warning
