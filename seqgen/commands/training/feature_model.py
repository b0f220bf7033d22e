"""The trained model whose features an encoder reads beside the tokens (`--features`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seqgen import registry, store
from seqgen.commands.training.estimate import Estimator
from seqgen.configs import require
from seqgen.models.encoders.features import Features, features_of
from seqgen.models.encoders.labeller import Labeller
from seqgen.store import StoredModel

# What the model of features determines.
FIXED = ("tokenizer", "vocab_size", "min_count")


@dataclass(frozen=True)
class FeatureModel:
    """A trained model and its features.

    Attributes:
        stored: where it is.
        features: what it knows of tokens.
        about: what a model that reads these keeps of it; see `features_like`.
    """

    stored: StoredModel
    features: Features
    about: dict[str, Any]

    @classmethod
    def load(cls, name: str) -> FeatureModel:
        """Return the model that `--features` means.

        Raises:
            UsageError: it makes no features that an encoder could read.
            SeqgenError: there is none, or it is damaged.
        """
        stored = store.find_all(name)
        stored.require_network("--features")
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
        return cls(StoredModel(stored.path.resolve()), features_of(model), about)

    def settings(
        self, given: Mapping[str, Any], row: registry.Architecture, flags: Collection[str]
    ) -> dict[str, Any]:
        """Return the settings given, with those that follow from the model of features.

        Args:
            given: by name.
            row: the architecture of the new model.
            flags: the names of the settings that the user gave.

        Raises:
            UsageError: the new model can read no features, or a flag contradicts them.
        """
        headed = row.task.head is not None
        require(headed, "--features is for classifiers and taggers: give --task classify or tag")
        origin = given.get("init_from") is None
        require(origin, "give --init-from or --features, not both")
        trunk = registry.trunk_of(row.name)
        require(
            trunk.is_encoder,
            f"--features is for encoders, such as birnn, and not for {trunk.name}",
        )
        for name in FIXED:
            fixed = f"{name} is fixed by --features: {self.stored.name} has its own"
            require(name not in flags, fixed)
        settled = {"tokenizer": str(self.stored.path), "vocab_size": None, "min_count": 1}
        settled["documents"] = self.stored.config["data"].get("documents", "stream")
        settled["features"] = store.as_given(self.stored)
        if self.features.window is not None:
            longest = given.get("max_source_len", self.features.window - 1)
            most = f"--max-source-len must be at most that of {self.stored.name}"
            require(int(longest) < self.features.window, f"{most}, {self.features.window - 1}")
            settled["max_source_len"] = longest
        return {**given, **settled}

    def begin(self, model: Labeller) -> None:
        """Fill the features of a new model."""
        model.trunk.features.load_state_dict(self.features.state_dict())


def feature_model_of(given: Mapping[str, Any]) -> FeatureModel | None:
    """Return the model whose features the settings name, if any."""
    name = given.get("features")
    return None if name is None else FeatureModel.load(name)
