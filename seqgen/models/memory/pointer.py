"""Pointer of a pointer sentinel mixture model (Merity et al. 2017), for both engines."""

from __future__ import annotations

import math

from seqgen.engines.ops import Leaf
from seqgen.engines.parts import Linear, Numbers, Part, Pieces, glorot
from seqgen.models.memory.recent import RecentPositions, add_word_weights, score_recent


class Pointer(Part):
    """Pointer sentinel mixture of the vocabulary's softmax and the last L words.

    q_t = tanh(W h_t + b)
    a = softmax(q_t . h_{t-L+1}, ..., q_t . h_t, q_t . s)
    p(w) = g p_vocab(w) + sum over positions i with x_i = w of a_i,  where g is the last of a

    with s the sentinel and x_i the word read at position i: section 2 of Merity, Xiong, Bradbury
    and Socher (2017), "Pointer sentinel mixture models". Their second loss on the pointer alone
    is left out.

    Attributes:
        reach: L.
    """

    reach: int

    def pieces(self, size: int, reach: int) -> Pieces:
        """List the query map and the sentinel, given the feature width and L."""

        def begin(sentinel: Leaf) -> None:
            sentinel.normal_(std=1 / math.sqrt(size))

        self.reach = reach
        return {"query": Linear(size, size, init=glorot), "sentinel": Numbers((size,), begin)}

    def run(self, logits: Leaf, features: Leaf, recent: RecentPositions) -> Leaf:
        """Compute the log-probabilities (B, Q, V) after the last Q positions.

        Args:
            logits: (B, Q, V), the vocabulary's.
            features: (B, T, H) of these positions, and maybe of others before them.
            recent: the past and these positions.
        """
        ops, sentinel = self.ops, self.sentinel
        with ops.full_precision(logits):
            features = ops.like(features[:, -logits.shape[1] :], sentinel)
            queries = ops.tanh(self.query(features))  # (B, Q, H)
            recalled = score_recent(queries, recent.features, recent.tokens, self.reach)
            of_sentinel = ops.like((queries @ sentinel)[..., None], recalled.scores)
            log_weights = ops.log_softmax(ops.join(recalled.scores, of_sentinel))  # (B, Q, W + 1)
            log_probs = ops.log_softmax(logits) + log_weights[..., -1:]
            weights = ops.exp(log_weights[..., :-1])
            return add_word_weights(log_probs, weights, recalled.words)
