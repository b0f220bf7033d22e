"""Labels predicted by the features of a sentence, over arrays or tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from seqgen.engines.ops import Leaf, ops_of
from seqgen.errors import SeqgenError
from seqgen.plugins.labels.settings import LabellingConfig, Pooling
from seqgen.text.sources import Source


class LabelsOfFeatures:
    """A linear head over features of a sentence: one label of it, or one of each token.

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
        """Return the logits of sentences, (S, L, C); of a classifier (S, 1, C).

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
        """Return what the trunk makes of whole sentences of one length, (B, L, H), alone."""
        return [self.trunk(tokens, [tokens.shape[1]] * len(tokens))[0]]

    def _pooled(self, features: Leaf, last: Leaf, lengths: Sequence[int]) -> Leaf:
        """Return what stands for each sentence, (S, H) or (S, 3 H)."""
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
    """Return how wide what the head reads is, of features of a size."""
    return 3 * size if (config.pooling or pooling) == "all" and not by_word else size


def at_ends(features: Leaf, lengths: Sequence[int]) -> Leaf:
    """Return the feature (S, H) of each sentence's last token, of features (S, L, H)."""
    ops = ops_of(features)
    return features[ops.count(features, len(lengths)), ops.ints(features, lengths) - 1]


def require_window(length: int, window: int | None) -> None:
    """Refuse a sentence that is longer than a network's window.

    Raises:
        SeqgenError: says both lengths.
    """
    if window is not None and length > window:
        raise SeqgenError(
            f"a text has {length - 1:,} tokens, and this model reads at most {window - 1:,}"
        )
