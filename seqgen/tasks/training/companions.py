"""What `--with-ngram` stores with a network: which networks can have it."""

from __future__ import annotations

from seqgen import registry
from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.tasks.training.prepare import Prepared


def why_not_mixed(
    architecture: str, training: TrainingConfig, data: DataConfig, prepared: Prepared | None = None
) -> str | None:
    """Return why a network cannot be mixed with an n-gram model of its text; None if it can.

    Args:
        architecture: the network's.
        training: its settings of training.
        data: how it reads text.
        prepared: its text; None before that is read.
    """
    row = registry.architecture(architecture)
    if row.estimator is not None:
        return f"is for networks, which {architecture} is not"
    if row.reads != "text" or row.no_language_model is not None or data.labels:
        return "is for models of text; n-grams know no sources and no labels"
    if data.val == "none":
        return "fits the weights of a mixture on held-out text: leave out --val none"
    if prepared is not None and (prepared.val is None or prepared.val.tokens.size < 2):
        return "needs two held-out tokens or more: hold out more with --val"
    return None


def check_mixable(
    architecture: str, training: TrainingConfig, data: DataConfig, prepared: Prepared | None = None
) -> None:
    """Refuse `--with-ngram` for a network that cannot be mixed; see `why_not_mixed`.

    Raises:
        UsageError: says why.
    """
    why_not = why_not_mixed(architecture, training, data, prepared)
    require(why_not is None, f"--with-ngram {why_not}")
