"""The pretrained model whose features an encoder reads besides the tokens (`--features`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seqgen import registry, store
from seqgen.plugins.labels.models.features import Features, features_of
from seqgen.plugins.labels.models.labeller import Labeller
from seqgen.settings import require
from seqgen.training.estimators import Estimator
from seqgen.training.fine_tune import FeatureSource, tokenizer_of


@dataclass(frozen=True)
class FeatureModel(FeatureSource):
    """A pretrained model used as a feature extractor.

    Attributes:
        features: what it knows of tokens.
    """

    features: Features

    @classmethod
    def load(cls, name: str) -> FeatureModel:
        stored = store.find_all(name).network_for("--features")
        config = stored.config
        kind = config["architecture"]
        row = registry.architecture(kind)
        suits = row.task.gives_features and Estimator.of(kind) is None
        given = "--features takes elmo, word vectors, or a network that models text"
        require(suits, f"{given}; {stored.name} is of the architecture {kind}")
        data = config["data"]
        require(not data.get("labels"), f"{given}; {stored.name} models texts with labels")
        forward = data.get("direction", "forward") == "forward"
        require(forward, f"{given} from left to right; {stored.name} reads from right to left")
        model, _ = stored.load()
        about = {"digest": stored.digest, "architecture": kind, "model": model.config.to_dict()}
        return cls(type(stored)(stored.path.resolve()), about, features_of(model))

    def settings(
        self, given: Mapping[str, Any], row: registry.Architecture, flags: Collection[str]
    ) -> dict[str, Any]:
        origin = given.get("init_from") is None
        require(origin, "give --init-from or --features, not both")
        trunk = registry.feature_architecture(row.name)
        require(
            trunk.is_encoder, f"--features is for encoders, such as birnn, and not for {trunk.name}"
        )
        for name in tokenizer_of(self.stored):
            fixed = f"{name} is fixed by --features: {self.stored.name} has its own"
            require(name not in flags, fixed)
        documents = self.stored.config["data"].get("documents", "stream")
        settled = tokenizer_of(self.stored) | {"documents": documents}
        settled["features"] = store.model_argument(self.stored)
        if self.features.window is not None:
            longest = given.get("max_source_len", self.features.window - 1)
            most = f"--max-source-len must be at most that of {self.stored.name}"
            require(int(longest) < self.features.window, f"{most}, {self.features.window - 1}")
            settled["max_source_len"] = longest
        return {**given, **settled}

    def begin(self, model: Labeller) -> None:
        model.trunk.features.load_state_dict(self.features.state_dict())
