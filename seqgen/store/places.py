"""Where everything is kept."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """Return the folder of everything seqgen keeps: `$SEQGEN_HOME`, or the user's data folder."""
    if set_by_user := os.environ.get("SEQGEN_HOME"):
        return Path(set_by_user)
    import platformdirs

    return Path(platformdirs.user_data_dir("seqgen", appauthor=False))


def models_folder() -> Path:
    """Return the folder that holds the models."""
    return home() / "models"
