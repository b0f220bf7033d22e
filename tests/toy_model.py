"""The model of the toy task: what two bags of words have in common."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from seqgen.plugins.labels.models.labeller import Predictor
from seqgen.settings import ModelConfig, setting


@dataclass(frozen=True, kw_only=True)
class MatcherConfig(ModelConfig):
    derived: ClassVar = ModelConfig.derived | {"classes"}
    recipe: ClassVar = {"optimizer": "adam", "lr": 0.02, "batch_size": 16}

    embedding_size: int = setting("Width of the vectors.", 32, low=1, high=1000)
    classes: int = setting("Number of labels.", low=1, high=1000, default=1)


class Matcher(Predictor):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.head = nn.Linear(2 * config.embedding_size, config.classes)

    def forward(self, source):
        values = torch.from_numpy(source.values)
        inside = torch.arange(values.shape[1]) < torch.from_numpy(source.lengths)[:, None]
        starts = (values == values[:, :1]) & inside
        second = starts.cumsum(1) == 2
        vectors = self.embedding(values)
        sides = [
            (vectors * (side & inside & ~starts)[..., None]).sum(1) for side in (~second, second)
        ]
        return self.head(torch.cat([sides[0] * sides[1], sides[1]], -1))[:, None]

    def predict(self, batch):
        return self(batch.source), None
