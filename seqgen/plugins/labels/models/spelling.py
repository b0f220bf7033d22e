"""Character CNN over arrays or tensors: word vectors from characters (Kim et al. 2016)."""

from __future__ import annotations

from typing import Any, Protocol

from seqgen.engines.ops import Leaf, Ops

# Characters are the bytes of UTF-8, after the padding and what stands around a word.
PAD, BEGIN, END = range(3)
BYTES = 3
CHARACTERS = BYTES + 256
# Words whose vectors are made at a time, where all of the vocabulary are.
AT_ONCE = 2048
# A highway begins by passing on nearly all of its input (Srivastava et al. 2015).
CARRY = -2.0


class Spelling(Protocol):
    """Settings of a character CNN."""

    vocab_size: int
    char_size: int
    char_length: int
    char_highways: int
    embedding_size: int | None
    filters: list[int]


def char_cnn_vectors(ops: Ops, p: Any, spelling: Leaf) -> Leaf:
    """Compute the vectors (U, E) of words from their characters (U, L).

    With C the vectors of the L characters of a word, and a filter H of width w,
    f_i = tanh(<C_i ... C_i+w-1, H> + b) for every place i, and y = max_i f_i (Kim et al. 2016,
    equations 5 and 6). The y of all filters pass through highway layers, and where the
    configuration has an `embedding_size`, through a linear map to that width (Jozefowicz et al.
    2016).
    """
    c = p.characters(spelling).swapaxes(1, 2)  # (U, C, L)
    y = ops.join(*(ops.most(ops.tanh(convolve(c)), -1) for convolve in p.convolutions))
    for layer in p.highways:
        y = highway(ops, layer, y)
    return p.projection(y)


def highway(ops: Ops, p: Any, y: Leaf) -> Leaf:
    """Apply a highway layer: t g(W_H y + b_H) + (1 - t) y, with ReLU as g.

    t = sigmoid(W_T y + b_T) is the transform gate (Srivastava et al. 2015).
    """
    t = ops.sigmoid(p.gate(y))
    return t * ops.relu(p.transform(y)) + (1 - t) * y
