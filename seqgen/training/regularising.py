"""Regularisation chosen by the overfitting ratio, before training and again while it runs.

How much a model overfits depends on how often it reads the text in the budget, and so on the speed
of the machine. A trial before the start may get that wrong: others use the machine, then or later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from seqgen.engines.dropout import Dropout
from seqgen.engines.memory_limit import build_on_meta
from seqgen.models.mixture.members import members_of
from seqgen.models.network import Network
from seqgen.settings import ModelConfig
from seqgen.settings.training import TrainingConfig

# From this ratio on (`ModelConfig.regularised`) a model may overfit whatever its dropout: training
# stops after this many validations, of at most 20, without improvement.
STOPS_FROM_RATIO, PATIENCE = 200, 8


@dataclass(frozen=True, kw_only=True)
class Regularisation:
    """The settings of a run that the overfitting ratio determines.

    Attributes:
        left_open: their names; all but those that are given.
        lr: the learning rate where overfitting does not raise it.
        spelled: tokens are characters or bytes.
    """

    left_open: Collection[str]
    lr: float
    spelled: bool

    def settings(self, config_class: type[ModelConfig], ratio: float) -> dict[str, Any]:
        """Compute the settings for an overfitting ratio; see `ModelConfig.regularised`."""
        chosen = config_class.regularised(ratio, self.spelled, "lr" in self.left_open)
        if ratio >= STOPS_FROM_RATIO:
            chosen["patience"] = PATIENCE
        return {name: value for name, value in chosen.items() if name in self.left_open}

    def changes(
        self, model: Network, training: TrainingConfig, ratio: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Compute the model and training settings that change with a new ratio."""
        usual = {name: field.default for name, field in TrainingConfig.fields().items()}
        usual |= {**model.config.recipe, "lr": self.lr}
        settings = {name: usual[name] for name in self.left_open if name in usual}
        settings |= self.settings(type(model.config), ratio)
        groups = model.config.to_dict(), training.to_dict()
        of_model, of_training = (
            {name: value for name, value in settings.items() if group.get(name, value) != value}
            for group in groups
        )
        return of_model, of_training


def take_dropout(model: Network, dropout: float) -> None:
    """Set the dropout rate of all layers of a built model."""
    model.config = dataclasses.replace(model.config, dropout=dropout)
    for one in members_of(model):
        one.config = model.config
        for name, part in build_on_meta(type(one), one.config).named_modules():
            if isinstance(part, Dropout):
                one.get_submodule(name).p = part.p
