"""ELMo: language models from both ends of a text, for the sake of their states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqgen.models.base import Model
from seqgen.models.encoders.config import ELMoConfig
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.network import Network
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.seq2seq.source_layers import mirrored


class ELMo(Model, Network):
    """The registry's `elmo` (Peters et al. 2018, section 3.1).

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

    trained_by: ClassVar[str] = "seqgen.training.regimes.teacher_forcing:BY_BOTH_WAYS"
    over_tensors: ClassVar[Callable[..., Tensor] | None] = None
    both_ways: ClassVar[bool] = True
    window: int | None = None
    source_window: int | None = None
    config: ELMoConfig

    def __init__(self, config: ELMoConfig, predicts: bool = True) -> None:
        super().__init__()
        self.config = config
        self.forwards = RecurrentLM(config, predicts=predicts)
        self.backwards = RecurrentLM(config, shares=self.forwards)
        self.size = 2 * config.output_size

    @property
    def embedding(self) -> nn.Module:
        """Theta_x."""
        return self.forwards.embedding

    @property
    def head(self) -> nn.Linear | None:
        """Theta_s."""
        return self.forwards.head

    @property
    def output_dropout(self) -> nn.Module:
        """Through which the features of one direction pass last."""
        return self.forwards.output_dropout

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        self.forwards.spell(words, spelled_out)

    def layers_in_order(self) -> list[list[nn.Module]]:
        """Return what both directions share, each layer of both, and the head."""
        both = self.forwards, self.backwards
        layers = [list(pair) for pair in zip(*(lm.layers for lm in both), strict=True)]
        layers[-1] += [norm for lm in both for norm in lm.norms]
        return [[self.embedding], *layers, [] if self.head is None else [self.head]]

    def layer_features(self, tokens: Tensor) -> list[Tensor]:
        """Return `layers` of sentences (B, L) of one length, the first first."""
        return list(self.layers(tokens, [tokens.shape[1]] * len(tokens)))

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return what each layer knows of each token: h_k,j = [h->_k,j; h<-_k,j].

        h_k,0 is the vector of the token itself, twice. h->_k,j has read the text up to t_k, and
        h<-_k,j its end down to t_k; both have first read the start symbol.

        Args:
            values: (S, L) of int64, sentences from their start symbol on, padded on the right.
            lengths: S of them, each at least 1.

        Returns:
            (num_layers + 1, S, L, size), which means nothing past a sentence's end.
        """
        values = values[:, : max(lengths)]
        # A sentence turns around behind its start symbol.
        mirror = mirrored(lengths, values, first=1)
        there = self._outputs(self.forwards, values)
        back = self._outputs(self.backwards, values.gather(1, mirror))
        pairs = zip(there, back, strict=True)
        return torch.stack([torch.cat([h, TensorOps.at_places(g, mirror)], -1) for h, g in pairs])

    @staticmethod
    def _outputs(model: RecurrentLM, tokens: Tensor) -> list[Tensor]:
        return model.outputs(tokens, model.start(len(tokens)))[0]
