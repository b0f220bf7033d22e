"""Options that this plugin adds to `train`, `tune` and `sweep`."""

from __future__ import annotations

from seqgen.settings import Options, Panel, redeclare
from seqgen.settings.training import TrainingConfig


class FeatureFlags(Options, panel=Panel.WHAT):
    """The option `--features`: the pretrained model whose features an encoder reads."""

    features: str | None = redeclare(
        TrainingConfig, "features", panel=Panel.WHAT, metavar="MODEL", completes="models"
    )
