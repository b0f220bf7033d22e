"""Label prediction from sentence features, and sentence encoders over arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.engines.parts import fill_over_arrays, shapes_of
from seqgen.engines.weights import Shapes, Weights
from seqgen.errors import SeqgenError
from seqgen.models.arrays import ArrayModel, ArrayNetwork
from seqgen.plugins.labels.settings import LabellingConfig, Pooling
from seqgen.settings import ModelConfig
from seqgen.text.sources import Source


class LabelsOfFeatures:
    """Linear layer over sentence features: one label per sentence, or one per token.

    With f_1 ... f_L the features of a sentence's tokens after its start symbol,

        tagger:      P(label_t) = softmax(W f_t + b)
        classifier:  P(label) = softmax(W pool(f) + b)

    where pool(f) is the last state, the mean, the maximum, or the three side by side. A tagger's
    logits at the start symbol, and at tokens that do not end a word, mean nothing.

    Attributes:
        by_word: whether it is a tagger.
        counts_start: `window` counts the start symbol.
        trunk: makes the features.
        output_dropout: stands before the head.
    """

    by_word: ClassVar[bool]
    counts_start: ClassVar[bool] = True
    config: LabellingConfig
    pooling: Pooling
    trunk: Any
    head: Callable[[Leaf], Leaf]
    output_dropout: Callable[[Leaf], Leaf]

    def logits(self, source: Source) -> Leaf:
        """Compute the label logits of sentences, (S, L, C); (S, 1, C) for a classifier.

        Args:
            source: S sentences as ids, each from its start symbol on.
        """
        lengths = source.lengths.tolist()
        features, last = self.trunk(self.ids(source.values), lengths)
        if not self.by_word:
            features = self._pooled(features, last, lengths)[:, None]
        logits = self.head(self.output_dropout(features))
        return ops_of(logits).wide(logits)

    def layer_features(self, tokens: Leaf) -> list[Leaf]:
        """Compute the trunk's features (B, L, H) of sentences of equal length, in a list of one."""
        return [self.trunk(tokens, [tokens.shape[1]] * len(tokens))[0]]

    def _pooled(self, features: Leaf, last: Leaf, lengths: Sequence[int]) -> Leaf:
        """Pool features to one vector for each sentence, (S, H) or (S, 3 H)."""
        if self.pooling == "last":
            return last
        ops = ops_of(features)
        places, ends = ops.count(features, features.shape[1]), ops.ints(features, lengths)[:, None]
        # An empty text has its start symbol alone.
        inside = ((places > 0) | (ends == 1)) & (places < ends)  # (S, L)
        count = ops.like(inside.sum(1)[:, None], features)
        pooled = {"last": last}
        pooled["mean"] = ops.where(inside[..., None], features, 0.0).sum(1) / count
        pooled["max"] = ops.most(ops.where(inside[..., None], features, -math.inf), 1)
        if self.pooling != "all":
            return pooled[self.pooling]
        return ops.join(pooled["last"], pooled["max"], pooled["mean"])


def head_width(config: LabellingConfig, pooling: Pooling, by_word: bool, size: int) -> int:
    """Compute the input width of the head: 3 `size` if three poolings are concatenated."""
    return 3 * size if (config.pooling or pooling) == "all" and not by_word else size


def at_ends(features: Leaf, lengths: Sequence[int]) -> Leaf:
    """Select the feature (S, H) of each sentence's last token from features (S, L, H)."""
    ops = ops_of(features)
    return features[ops.count(features, len(lengths)), ops.ints(features, lengths) - 1]


def require_window(length: int, window: int | None) -> None:
    """Raise an error for a sentence that is longer than a network's window.

    Raises:
        SeqgenError: says both lengths.
    """
    if window is not None and length > window:
        raise SeqgenError(
            f"a text has {length - 1:,} tokens, and this model reads at most {window - 1:,}"
        )


class ArrayEncoder:
    """Base class of sentence encoders over arrays; see `SentenceEncoder`.

    Args:
        config: of the architecture.
        weights: see `shapes`.
        read: the width of the vectors that it reads in the place of tokens; None of most, which
            read tokens.

    Attributes:
        vectors: see `ArrayNetwork`.
        window: how many tokens a sentence may have, its start included; None for any number.
        pooling: see `SentenceEncoder`.
        table: the name of the vectors of tokens.
        size: the width of its features.
    """

    table: ClassVar[str] = "encoder.inputs.weight"
    pooling: ClassVar[Pooling] = "last"
    vectors: np.ndarray | None = None
    window: int | None = None
    size: int

    def __init__(self, config: ModelConfig, weights: Weights, read: int | None = None) -> None:
        self.config = config
        fill_over_arrays(self, self.pieces(config, read), weights)
        if read is None:
            self.vectors = weights[self.table][: config.vocab_size]

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        """Check whether the array version supports the settings."""
        return True

    @classmethod
    def width(cls, config: ModelConfig, read: int | None = None) -> int:
        """Compute the width of the encoder's features."""
        encoder = cls.__new__(cls)
        encoder.pieces(config, read)
        return encoder.size

    @classmethod
    def shapes(cls, config: ModelConfig, read: int | None = None) -> Shapes:
        """Return the shape of every weight, by name."""
        return shapes_of(cls, config, read)

    @classmethod
    def shared(cls, config: ModelConfig) -> list[list[str]]:
        """List the groups of names that refer to the same shared weight."""
        return []

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Compute features and last states of sentences; see `SentenceEncoder.forward`."""
        return self.features(values, lengths)


class LastStatesArrays(ArrayEncoder):
    """Array version of `LastStates`.

    Attributes:
        kind: the class of the language model, which has no head.
    """

    kind: ClassVar[type[ArrayModel]]

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.model = self.kind(config, weights.part("model"))
        self.window, self.vectors = self.model.window, self.model.vectors

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        return cls.kind.suits(config)

    @classmethod
    def width(cls, config: ModelConfig) -> int:
        return cls.kind.shapes(config)["head.weight"][1]

    @classmethod
    def shapes(cls, config: ModelConfig) -> Shapes:
        return without_head(cls.kind, config)[0]

    @classmethod
    def shared(cls, config: ModelConfig) -> list[list[str]]:
        return without_head(cls.kind, config)[1]

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        require_window(max(lengths), self.window)
        features, _ = self.model.hidden(values, None)
        return features, at_ends(features, lengths)


def without_head(kind: type[ArrayNetwork], config: ModelConfig) -> tuple[Shapes, list[list[str]]]:
    """List the weight shapes and shared weights of a model without its head, prefixed `model.`."""

    def kept(name: str) -> bool:
        return "head" not in name.split(".")

    shapes = {f"model.{name}": shape for name, shape in kind.shapes(config).items() if kept(name)}
    groups = kind.shared(config)
    return shapes, [[f"model.{name}" for name in names if kept(name)] for names in groups]
