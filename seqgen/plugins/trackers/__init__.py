"""Training runs in TensorBoard, trackio and Weights & Biases.

Pages: docs/training.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    options={"train": "options:TrackerOptions"},
    listeners=("listeners:tensorboard", "listeners:trackio", "listeners:wandb"),
)
