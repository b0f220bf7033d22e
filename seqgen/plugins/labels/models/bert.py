"""BERT: a bidirectional transformer that predicts hidden tokens from both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from seqgen.engines.parts import fill
from seqgen.errors import UsageError
from seqgen.models.base import TorchModel
from seqgen.models.network import Network, groups_in_order
from seqgen.models.transformer.model import initialise
from seqgen.plugins.labels.masking import tokens_besides
from seqgen.plugins.labels.models.sentence_encoder import OwnEncoder, SentenceEncoder
from seqgen.plugins.labels.models.settings import BertConfig
from seqgen.plugins.labels.models.transformer_arrays import BertOverSentences, MaskedModel

# Fewer tokens hold no [SEP] with a text on both sides of it.
LEAST_PAIR = 3


class BertEncoder(BertOverSentences, OwnEncoder):
    """Torch module of BERT without its output layer; see `BertOverSentences`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        initialise(self, config)

    def begin_from(self, origin: Bert) -> None:
        self.encoder.load_state_dict(origin.encoder.state_dict())


class Bert(MaskedModel, TorchModel, Network):
    """BERT as a torch module, the registry's `bert`; see `MaskedModel`.

    Initialisation is that of `Transformer` in its form of 2017.

    Attributes:
        window: how many tokens of text a row has at most.
        words: the tokens that may stand in the place of a chosen one in training.
        text: what it is trained on, of which `next_sentence` draws; None before it is known.
    """

    sentence_encoder: ClassVar[type[SentenceEncoder]] = BertEncoder
    trained_by: ClassVar[str] = "seqgen.plugins.labels.masked_regime:MaskedTokens"
    over_tensors: ClassVar[Callable[..., Tensor] | None] = None
    source_window: int | None = None
    forward = MaskedModel.told

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config, self.window = config, config.window
        fill(self, self.pieces(config))
        initialise(self, config)
        if config.tie_weights:
            self.head.weight = self.encoder.inputs.weight
        self.words, self.text = np.arange(config.vocab_size), None

    def survey(
        self, tokens: np.ndarray, no_words: Sequence[int], ends: np.ndarray | None = None
    ) -> None:
        """Keep the training text, from which next-sentence examples are drawn.

        Raises:
            UsageError: there is no next sentence, because each line is a document of its own.
        """
        if self.config.next_sentence:
            if ends is not None and ends.size > 1:
                raise UsageError(
                    "next_sentence needs a continuous text: leave out --documents line"
                )
            if min(self.window, tokens.size) < LEAST_PAIR:
                raise UsageError(f"next_sentence needs windows of at least {LEAST_PAIR} tokens")
        self.words = tokens_besides(self.vocab_size, no_words)
        self.text = tokens

    def token_vectors(self) -> Tensor:
        return self.encoder.inputs.weight.detach()[: self.vocab_size]

    def layers_in_order(self) -> list[list[nn.Module]]:
        last = [self.transform, self.transform_norm, self.pooler, self.next_sentence, self.head]
        head = [module for module in last if module is not None]
        return [*groups_in_order(self.encoder), head]
