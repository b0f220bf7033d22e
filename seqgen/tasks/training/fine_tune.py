"""Fine-tuning: starting from another model's weights, architecture and tokenizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seqgen import registry, store
from seqgen.configs import ModelConfig, conform, require
from seqgen.data.labels import Labels
from seqgen.data.sources import require_same_sources
from seqgen.errors import SeqgenError
from seqgen.models.base import load_weights, weights_of
from seqgen.models.network import Network
from seqgen.models.recurrent_config import CELL_REGULARISERS
from seqgen.store import StoredModel
from seqgen.tasks.training.estimate import Estimator
from seqgen.tokenizers import Tokenizer

# Model settings that do not affect the shapes of the weights, so fine-tuning may change them.
FREE = frozenset({"dropout", "input_dropout", "output_dropout", "word_dropout", *CELL_REGULARISERS})
TOKENIZER = ("tokenizer", "source_tokenizer", "vocab_size", "min_count")


@dataclass(frozen=True)
class Origin:
    """A trained model whose weights a new one starts from.

    Attributes:
        stored: where it is.
        model: its weights.
        tokenizer: its tokens, which the new model has too.
        source_tokenizer: those of its sources, or its labels; None for a model of text alone.
    """

    stored: StoredModel
    model: Network
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer | Labels | None

    @classmethod
    def load(cls, name: str) -> Origin:
        """Return the model that `--init-from` means.

        Raises:
            SeqgenError: there is none, it is damaged, or it was counted.
        """
        stored = store.find(name)
        stored.require_network("--init-from")
        model, tokenizer = stored.load()
        if estimator := Estimator.of(stored.config["architecture"]):
            done, _ = estimator.done
            raise SeqgenError(f"{stored.name} was {done}: it has no weights to begin from")
        place = StoredModel(stored.path.resolve())
        return cls(place, model, tokenizer, place.load_source_tokenizer(tokenizer))

    @property
    def architecture(self) -> str:
        """The name of its architecture."""
        return self.stored.config["architecture"]

    @property
    def _model_settings(self) -> dict[str, Any]:
        fields = type(self.model.config).fields()
        return {k: v for k, v in self.model.config.to_dict().items() if k in fields}

    def require_own(self, architecture: str | None, flags: Collection[str]) -> None:
        """Refuse flags for what the origin determines, such as the architecture.

        Raises:
            UsageError: names the flag.
        """
        require(
            architecture is None,
            f"--model is fixed by --init-from: the architecture of {self.stored.name} is "
            f"{self.architecture}",
        )
        settled = {*self._model_settings, *TOKENIZER} - FREE
        for name in sorted(settled & set(flags)):
            require(False, f"{name} is fixed by --init-from: {self.stored.name} has its own")

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings given, with those that follow from the origin.

        Raises:
            UsageError: a configuration file wants another architecture than the origin's.
        """
        own = self._model_settings
        kind = type(self.model.config)
        wanted = {name: given[name] for name in own if name in given and name not in FREE}
        derived = {name: getattr(self.model.config, name) for name in kind.derived}
        agreed = kind(**derived, **{**own, **wanted}).to_dict()
        for name in wanted:
            same = agreed[name] == own[name]
            require(same, f"{name} is {own[name]} in {self.stored.name}, not {agreed[name]}")
        config = self.stored.config
        direction = config["data"].get("direction", "forward")
        require(
            given.get("direction", direction) == direction,
            f"--direction is fixed by --init-from: {self.stored.name} reads {direction}",
        )
        inherited = {
            "documents": config["data"].get("documents", "stream"),
            "direction": direction,
            "seq_len": config["training"].get("seq_len", 64),
        }
        labels = isinstance(self.source_tokenizer, Labels)
        wants = conform("labels", given.get("labels", labels), bool)
        require(
            labels or not wants, f"{self.stored.name} has learned no labels: leave out --labels"
        )
        require(wants or not labels, f"{self.stored.name} has labels: labels=false has no meaning")
        inherited["labels"] = labels
        for name in ("max_source_len", "max_target_len"):
            if name in config["data"]:
                inherited[name] = config["data"][name]
        place = store.as_given(self.stored)
        settled = {"tokenizer": str(self.stored.path), "vocab_size": None, "min_count": 1}
        settled["source_tokenizer"] = None
        if not labels and self.source_tokenizer not in (None, self.tokenizer):
            settled["source_tokenizer"] = str(self.stored.path / store.SOURCE_TOKENIZER)
        return {**inherited, **own, **given, **settled, "init_from": place}

    def config(self, settings: Mapping[str, Any], seq_len: int) -> ModelConfig:
        """Return the new model's configuration: the origin's, except for settings that may change.

        Args:
            settings: those that are given.
            seq_len: the training window; of pairs, the longest target and its EOS.

        Raises:
            UsageError: the training window, or the longest source, is longer than the origin's.
        """
        longest, most = settings.get("max_source_len"), self.model.source_window
        require(
            longest is None or most is None or longest < most,
            f"--max-source-len must be at most that of {self.stored.name}, {most and most - 1}",
        )
        window = self.model.window
        name, most = "--seq-len", window
        if registry.architecture(self.architecture).reads == "pairs":
            name, most = "--max-target-len", window and window - 1
        require(
            window is None or seq_len <= window,
            f"{name} must be at most the window of {self.stored.name}, {most}",
        )
        free = {name: settings[name] for name in FREE if name in settings}
        return type(self.model.config)(**{**self.model.config.to_dict(), **free})

    def require_sources(self, features: int | None) -> None:
        """Refuse sources of another kind than the origin's.

        Args:
            features: the width of sources that are vectors; None for text.

        Raises:
            SeqgenError: they are of another kind, or of another width.
        """
        own = getattr(self.model.config, "source_features", None)
        require_same_sources(self.stored.name, own, features)

    def begin(
        self, model: Network, tokenizer: Tokenizer, source: Tokenizer | Labels | None
    ) -> None:
        """Fill a new model with the origin's weights.

        Args:
            model: the new one.
            tokenizer: of its text, or of its targets.
            source: of its sources, if it has any.

        Raises:
            SeqgenError: the text came as tokens of another tokenizer.
        """
        own = self.tokenizer, self.source_tokenizer
        if fingerprints(tokenizer, source) != fingerprints(*own):
            raise SeqgenError(
                f"the data has other tokens than {self.stored.name}: give the text itself"
            )
        load_weights(model, weights_of(self.model))


def origin_of(given: Mapping[str, Any]) -> Origin | None:
    """Return the model that the settings begin from, if any."""
    name = given.get("init_from")
    return None if name is None else Origin.load(name)


def architecture_of(
    origin: Origin | None, architecture: str | None, config: Mapping[str, Any]
) -> str:
    """Return which architecture is meant: the user's, the file's, the origin's, or the default.

    Raises:
        UsageError: a configuration file has another than the origin.
    """
    named = architecture or config.get("architecture")
    if origin is None:
        return named or registry.DEFAULT
    same = named in (None, origin.architecture)
    require(same, f"the architecture of {origin.stored.name} is {origin.architecture}, not {named}")
    return origin.architecture


def fingerprints(target: Tokenizer, source: Tokenizer | Labels | None) -> list[str | None]:
    """Return what tells the tokenizers of two models apart: of the target, and of the source."""
    return [tokenizer and tokenizer.fingerprint for tokenizer in (target, source)]
