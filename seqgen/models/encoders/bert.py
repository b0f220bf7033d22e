"""BERT: a bidirectional transformer that tells hidden tokens by those on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs.model import Pooling
from seqgen.data.masking import Symbols
from seqgen.errors import UsageError
from seqgen.models.base import Model
from seqgen.models.encoders.config import BertConfig
from seqgen.models.encoders.labelling import require_window
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.network import Network, groups_in_order
from seqgen.models.seq2seq.transformer import TransformerEncoder
from seqgen.models.transformer.blocks import norm_of
from seqgen.models.transformer.model import initialise

# [CLS], [SEP] and [MASK], whose ids follow those of the tokenizer.
SYMBOLS = 3
# Fewer tokens hold no [SEP] with a text on both sides of it.
LEAST_PAIR = 3


class BertStack(TransformerEncoder):
    """Blocks over the sum of tokens, positions and segments, normalised (Devlin et al., figure 2).

    What stands up to the first [SEP] is segment A, the rest segment B.
    """

    def __init__(self, config: BertConfig) -> None:
        tokens = nn.Embedding(config.vocab_size + SYMBOLS, config.embedding_width)
        super().__init__(config, tokens)
        self.segment_embedding = nn.Embedding(2, config.embedding_width)
        self.embedding_norm = norm_of(config)

    def _embedded(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        x = self.inputs(values) + self.segment_embedding(self.segments(values))
        x, rotation = self._placed(x)
        return self.dropout(self.embedding_norm(x)), rotation

    def segments(self, values: Tensor) -> Tensor:
        """Return the segment of each place of rows (S, L): 0 or 1."""
        ends = (values == self.config.symbols.sep).long()
        return (ends.cumsum(1) - ends).clamp_max(1)


class BertEncoder(SentenceEncoder):
    """The features of `Bert` for classifiers and taggers: without what tells hidden tokens.

    It reads [CLS] in the place of a sentence's start symbol, and puts [SEP] after it. The last
    state of a sentence is the feature of [CLS].
    """

    pooling: ClassVar[Pooling] = "mean"

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config, self.size = config, config.hidden_size
        self.window = config.window + 1 if config.positions == "learned" else None
        self.encoder = BertStack(config)
        initialise(self, config)

    @property
    def embedding(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.inputs

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        size, symbols = max(lengths), self.config.symbols
        require_window(size, self.window)
        read = F.pad(values[:, :size], (0, 1), value=symbols.sep)
        read[:, 0] = symbols.cls
        ends = torch.tensor(lengths, device=read.device)[:, None]
        read = read.masked_fill(torch.arange(size + 1, device=read.device) >= ends, symbols.sep)
        features, _ = self.encoder(read, [length + 1 for length in lengths])
        return features[:, :size], features[:, 0]

    def begin_from(self, origin: Bert) -> None:
        self.encoder.load_state_dict(origin.encoder.state_dict())

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)


class Bert(Model, Network):
    """The registry's `bert`: a masked language model (Devlin et al. 2019).

    With h the features of a row whose place t is hidden,

        P(x_t | x without x_t) = softmax(E LayerNorm(gelu(W h_t + b)) + c)

    where E is the embedding matrix. With `next_sentence` it also tells by the feature of [CLS]
    whether B follows A: softmax(U tanh(P h_CLS + p) + u), of which 0 is that it does.

    Initialisation is that of `Transformer` in its form of 2017.

    Attributes:
        window: how many tokens of text a row has at most.
        words: the tokens that may stand in the place of a chosen one in training.
        text: what it is trained on, of which `next_sentence` draws; None before it is known.
    """

    sentence_encoder: ClassVar[type[SentenceEncoder]] = BertEncoder
    trained_by: ClassVar[str] = "seqgen.training.regimes.masked:REGIMES"
    over_tensors: ClassVar[Callable[..., Tensor] | None] = None
    source_window: int | None = None
    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config, self.window, size = config, config.window, config.hidden_size
        self.encoder = BertStack(config)
        self.transform, self.transform_norm = Linear(size, size), norm_of(config)
        self.head = Linear(size, config.vocab_size + SYMBOLS)
        self.pooler = Linear(size, size) if config.next_sentence else None
        self.next_sentence = Linear(size, 2) if config.next_sentence else None
        initialise(self, config)
        if config.tie_weights:
            self.head.weight = self.encoder.inputs.weight
        self.words, self.text = np.arange(config.vocab_size), None

    def forward(
        self, values: Tensor, lengths: Sequence[int], places: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Tell the tokens at some places of rows.

        Args:
            values: (B, L) of int64, padded on the right.
            lengths: B of them.
            places: (B, M) of int64.

        Returns:
            Logits (B, M, V + 3), in float32 or the parameters' type if wider; and with
            `next_sentence` those of whether B follows A (0) or not (1), (B, 2).
        """
        features = self.features(values, lengths)
        at = places.unsqueeze(-1).expand(-1, -1, features.shape[-1])
        transformed = self.transform_norm(F.gelu(self.transform(features.gather(1, at))))
        follows = None
        if self.next_sentence is not None:
            follows = wide(self.next_sentence(self.pooler(features[:, 0]).tanh()))
        return wide(self.head(transformed)), follows

    @property
    def symbols(self) -> Symbols:
        """The ids of [CLS], [SEP] and [MASK]."""
        return self.config.symbols

    def layer_features(self, tokens: Tensor) -> list[Tensor]:
        """Return what each block makes of whole rows of one length, (B, L, H), the first first."""
        return self.encoder.layers(tokens, None)

    def features(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the features (B, L, H) of rows; see `forward`."""
        return self.encoder(values, lengths)[0]

    def survey(
        self, tokens: np.ndarray, no_words: Sequence[int], ends: np.ndarray | None = None
    ) -> None:
        """Take note of the text.

        Raises:
            UsageError: there is no next sentence, because each line is a document of its own.
        """
        if self.config.next_sentence:
            if ends is not None and ends.size > 1:
                raise UsageError(
                    "next_sentence needs a text that goes on: leave out --documents line"
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


def tokens_besides(vocab_size: int, special: Iterable[int | None]) -> np.ndarray:
    """Return the ids of a vocabulary but for some, in order; None is no id."""
    return np.setdiff1d(np.arange(vocab_size), [token for token in special if token is not None])


def wide(logits: Tensor) -> Tensor:
    """Return logits in float32, or in their own type if that is wider."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
