"""Training logs for TensorBoard."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    options={"train": "options:TensorBoardOptions"},
    listeners=("board:listen",),
)
