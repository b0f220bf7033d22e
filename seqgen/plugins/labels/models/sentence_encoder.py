"""Sentence encoders as torch modules: features of a whole text for classifiers and taggers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqgen.engines.parts import fill
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.network import Network, groups_in_order
from seqgen.models.transformer.model import initialise
from seqgen.plugins.labels.models.bag_arrays import BagOfTokens
from seqgen.plugins.labels.models.birnn_arrays import BothEnds
from seqgen.plugins.labels.models.labelling import at_ends, require_window
from seqgen.plugins.labels.models.settings import BagConfig, EncoderConfig
from seqgen.plugins.labels.models.transformer_arrays import BlocksOverSentences
from seqgen.plugins.labels.settings import Pooling
from seqgen.settings import ModelConfig, require


class SentenceEncoder(nn.Module):
    """Base class of networks that compute a feature of every token of a sentence.

    One that a row of the registry names is made from its configuration, and from the width of
    vectors if it is to read these in the place of tokens.

    Attributes:
        size: their width H.
        window: how many tokens a sentence may have, its start included; None for any number.
        pooling: what stands for a whole sentence by default, see `LabellingConfig`.
        embedding: makes vectors of tokens.
    """

    counted: ClassVar[bool] = False  # as of every network, see `Model`
    size: int
    window: int | None = None
    pooling: ClassVar[Pooling] = "last"
    embedding: nn.Module | None

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Compute the features of sentences that begin with the start symbol.

        Args:
            values: (S, L) of int64, or vectors (S, L, E), padded on the right.
            lengths: S of them, each at least 1.

        Returns:
            Features (S, L, H), which mean nothing past a sentence's end; and the last state of
            each sentence, (S, H).
        """
        return self.features(values, lengths)

    def layers_in_order(self) -> list[list[nn.Module]]:
        """List the modules in groups, from input to output."""
        return groups_in_order(self)

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        """Receive the spelling of the tokens; most encoders ignore it. See `TorchModel.spell`."""

    def begin_from(self, origin: Network) -> None:
        """Copy the weights of a model that was trained on text.

        Args:
            origin: of the same shape, its head apart.
        """
        raise NotImplementedError


class OwnEncoder(SentenceEncoder):
    """Sentence encoder with an input layer `inputs` and an `encoder`; see `SentenceEncoder`."""

    encoder: nn.Module

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        self.config = config
        fill(self, self.pieces(config, width))

    @property
    def embedding(self) -> nn.Module:
        """The encoder's token embedding."""
        return self.encoder.inputs

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)


class LastStates(SentenceEncoder):
    """Hidden states of a language model as features, each based on the tokens before it.

    Padding on the right changes nothing, for no feature depends on later tokens.

    Args:
        model: loses its head, which nothing here reads.
    """

    def __init__(self, model: NeuralLanguageModel) -> None:
        super().__init__()
        self.size, self.window = model.head.in_features, model.window
        self._layers = [
            [module for module in group if module is not model.head]
            for group in model.layers_in_order()
        ]
        model.head = None
        if hasattr(model, "output_dropout"):
            model.output_dropout = nn.Identity()  # what reads the features has its own
        self.model = model

    @property
    def embedding(self) -> nn.Module | None:
        """The language model's token embedding."""
        return getattr(self.model, "embedding", None)

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        require_window(max(lengths), self.window)
        features, _ = self.model.hidden(values, None)
        return features, at_ends(features, lengths)

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        self.model.spell(words, spelled_out)

    def begin_from(self, origin: NeuralLanguageModel) -> None:
        known = self.model.state_dict()
        self.model.load_state_dict({k: t for k, t in origin.state_dict().items() if k in known})

    def layers_in_order(self) -> list[list[nn.Module]]:
        return [group for group in self._layers if any(True for m in group for _ in m.parameters())]


class Bag(BagOfTokens, SentenceEncoder):
    """Bag of tokens as a torch module, the registry's `bag`; see `BagOfTokens`."""

    def __init__(self, config: BagConfig, width: int | None = None) -> None:
        super().__init__()
        require(
            width is None or config.ngrams == 1,
            "ngrams are of tokens, and --features reads vectors: leave one out",
        )
        fill(self, self.pieces(config, width))
        blank = torch.zeros(config.vocab_size, dtype=torch.bool) if config.within_words else None
        self.register_buffer("blank", blank)

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        if self.blank is not None:
            require(spelled_out, "within_words is for characters: add --tokenizer char")
            self.blank.copy_(torch.tensor([word.isspace() for word in words]))


class BiRNN(BothEnds, OwnEncoder):
    """Bidirectional recurrent encoder as a torch module, the registry's `birnn`; see `BothEnds`."""


class SentenceTransformer(BlocksOverSentences, OwnEncoder):
    """Bidirectional transformer, the registry's `encoder`; see `BlocksOverSentences`.

    Initialisation is that of `Transformer`.
    """

    def __init__(self, config: EncoderConfig, width: int | None = None) -> None:
        super().__init__(config, width)
        initialise(self, config)
