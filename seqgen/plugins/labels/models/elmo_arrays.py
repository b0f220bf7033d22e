"""ELMo's forward and backward recurrent language models, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.engines.weights import Shapes, Weights
from seqgen.models.arrays import ArrayNetwork
from seqgen.models.recurrent.arrays import RecurrentArrays
from seqgen.models.seq2seq.layers import reversal_indices
from seqgen.plugins.labels.models.settings import ELMoConfig

DIRECTIONS = "forwards", "backwards"


class BothWays:
    """ELMo: two LSTM language models, forward and backward (Peters et al. 2018, section 3.1).

    Two LSTMs read a text of N tokens from its two ends. They share what makes vectors of tokens,
    Theta_x, and the softmax layer, Theta_s, and are trained on the sum of both log-likelihoods:

        sum_k  log p(t_k | t_1 ... t_k-1; Theta_x, Theta_LSTM->, Theta_s)
             + log p(t_k | t_k+1 ... t_N; Theta_x, Theta_LSTM<-, Theta_s)

    Each is a language model, and both together are none: what a token is predicted from in one
    direction, the other has read.

    Attributes:
        forwards: the language model that reads from the left.
        backwards: the one that reads from the right, in the order of `--direction backward`.
        size: the width of each layer's features.
    """

    both_ways: ClassVar[bool] = True
    config: ELMoConfig
    forwards: Any
    backwards: Any

    def layer_features(self, tokens: Leaf) -> list[Leaf]:
        """Compute the features of each layer for sentences (B, L) of equal length, as a list."""
        return list(self.layers(tokens, [tokens.shape[1]] * len(tokens)))

    def layers(self, values: Leaf, lengths: Sequence[int]) -> Leaf:
        """Compute the features of each layer: h_k,j = [h->_k,j; h<-_k,j].

        h_k,0 is the vector of the token itself, twice. h->_k,j has read the text up to t_k, and
        h<-_k,j its end down to t_k; both have first read the start symbol.

        Args:
            values: (S, L) of int64, sentences from their start symbol on, padded on the right.
            lengths: S of them, each at least 1.

        Returns:
            (num_layers + 1, S, L, size), which means nothing past a sentence's end.
        """
        values = values[:, : max(lengths)]
        ops = ops_of(values)
        # A sentence turns around behind its start symbol.
        mirror = reversal_indices(lengths, values, first=1)
        there = self.outputs_of(self.forwards, values)
        back = self.outputs_of(self.backwards, ops.pick(values, mirror))
        pairs = zip(there, back, strict=True)
        return ops.stack(0, *(ops.join(h, ops.at_places(g, mirror)) for h, g in pairs))

    @staticmethod
    def outputs_of(model: Any, tokens: Leaf) -> list[Leaf]:
        """Compute one direction's embeddings of tokens (B, T) and the output of each layer."""
        raise NotImplementedError


class ELMoArrays(BothWays, ArrayNetwork):
    """Array version of `ELMo`."""

    def __init__(self, config: ELMoConfig, weights: Weights) -> None:
        self.config = config
        self.forwards, self.backwards = (
            RecurrentArrays(config, weights.part(name)) for name in DIRECTIONS
        )
        self.vectors, self.dtype = self.forwards.vectors, self.forwards.dtype

    @classmethod
    def suits(cls, config: ELMoConfig) -> bool:
        return RecurrentArrays.suits(config)

    @classmethod
    def shapes(cls, config: ELMoConfig) -> Shapes:
        shapes = RecurrentArrays.shapes(config).items()
        return {f"{one}.{name}": shape for one in DIRECTIONS for name, shape in shapes}

    @classmethod
    def shared(cls, config: ELMoConfig) -> list[list[str]]:
        groups = config.shared_weights()
        known = {name for names in groups for name in names}
        of_both = (
            n for n in RecurrentArrays.shapes(config) if n.startswith(("embedding.", "head."))
        )
        groups += [[name] for name in of_both if name not in known]
        return [[f"{one}.{name}" for one in DIRECTIONS for name in names] for names in groups]

    @staticmethod
    def outputs_of(model: RecurrentArrays, tokens: np.ndarray) -> list[np.ndarray]:
        return [model.inputs(tokens), *model.layer_features(tokens)]
