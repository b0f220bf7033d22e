"""The pointer of a pointer sentinel mixture model (Merity et al. 2017), for both engines."""

from __future__ import annotations

from typing import Any

from seqgen.models.engines.ops import Leaf, Ops
from seqgen.models.engines.weights import Shapes, linear_shapes
from seqgen.models.memory.recent import Recent, recall, with_weights


def pointed(ops: Ops, p: Any, reach: int, logits: Leaf, features: Leaf, recent: Recent) -> Leaf:
    """Return the log-probabilities (B, Q, V) after the last Q positions.

    Probability is shared between the vocabulary and the words of the last L positions:

    q_t = tanh(W h_t + b)
    a = softmax(q_t . h_{t-L+1}, ..., q_t . h_t, q_t . s)
    p(w) = g p_vocab(w) + sum over positions i with x_i = w of a_i,  where g is the last of a

    with s the sentinel and x_i the word read at position i: section 2 of Merity, Xiong, Bradbury
    and Socher (2017), "Pointer sentinel mixture models". Their second loss on the pointer alone
    is left out.

    Args:
        ops: of all that follows.
        p: the map `query` and the vector `sentinel`.
        reach: L.
        logits: (B, Q, V), the vocabulary's.
        features: (B, T, H) of these positions, and maybe of others before them.
        recent: the past and these positions.
    """
    features = ops.like(features[:, -logits.shape[1] :], p.sentinel)
    queries = ops.tanh(p.query(features))  # (B, Q, H)
    recalled = recall(queries, recent.features, recent.tokens, reach)
    sentinel = ops.like((queries @ p.sentinel)[..., None], recalled.scores)
    log_weights = ops.log_softmax(ops.join(recalled.scores, sentinel))  # (B, Q, W + 1)
    log_probs = ops.log_softmax(logits) + log_weights[..., -1:]
    return with_weights(log_probs, ops.exp(log_weights[..., :-1]), recalled.words)


def pointer_shapes(size: int) -> Shapes:
    """Return the shapes of a pointer's weights, for features of width H."""
    return {**linear_shapes("pointer.query", size, size), "pointer.sentinel": (size,)}
