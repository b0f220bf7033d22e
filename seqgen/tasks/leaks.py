"""What of the held-out part a model is also trained on."""

from __future__ import annotations

from seqgen.configs import DataConfig
from seqgen.data.overlap import overlap
from seqgen.data.split import path_of
from seqgen.tasks.training.prepare import Prepared
from seqgen.tasks.training.prepare_large import LARGE


def leak(prepared: Prepared, data: DataConfig) -> str | None:
    """Say in one line how many held-out lines are in the training part too, if any.

    Asked of lines that are documents and of a held-out file: of a stream's end, parts of which
    may well have occurred before, nothing follows. Large texts are not read again for this.
    """
    split = prepared.split
    if split is None or split.val is None or prepared.facts.bytes >= LARGE:
        return None
    if data.documents != "line" and path_of(data.val) is None:
        return None
    return overlap(split).warning
