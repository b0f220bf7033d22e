"""Bidirectional transformers over arrays or tensors: the `encoder`, and BERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqgen.engines.ops import Leaf, ops_of
from seqgen.engines.parts import Linear, NestedPart, Pieces, Table, fill_over_arrays
from seqgen.engines.weights import Weights
from seqgen.models.arrays import ArrayNetwork
from seqgen.models.seq2seq.transformer_equations import SourceBlocks
from seqgen.models.transformer.equations import Attend, stream_norm
from seqgen.plugins.labels.masking import Symbols
from seqgen.plugins.labels.models.labelling import ArrayEncoder, at_ends, require_window
from seqgen.plugins.labels.models.settings import BertConfig, EncoderConfig
from seqgen.plugins.labels.settings import Pooling

# [CLS], [SEP] and [MASK], whose ids follow those of the tokenizer.
SYMBOLS = 3


class BlocksOverSentences:
    """Transformer blocks without a causal mask (Vaswani et al. 2017, section 3.1)."""

    pooling: ClassVar[Pooling] = "mean"
    window: int | None

    def pieces(self, config: EncoderConfig, read: int | None = None) -> Pieces:
        """Declare the encoder's weights; see `SentenceEncoder`."""
        # Rotations and sinusoids have no end; positions that are learned do.
        self.window = config.window if config.positions == "learned" else None
        self.size = config.hidden_size
        width = config.embedding_width
        inputs = Linear(read, width) if read else Table(config.vocab_size, width)
        return {"encoder": NestedPart(SourceBlocks, config, inputs)}

    def features(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, Leaf]:
        """Compute features and last states of sentences; see `SentenceEncoder.forward`."""
        require_window(max(lengths), self.window)
        features, _ = self.encoder(values, lengths)
        return features, at_ends(features, lengths)


class SentenceTransformerArrays(BlocksOverSentences, ArrayEncoder):
    """Array version of `SentenceTransformer`."""


class BertBlocks(SourceBlocks):
    """BERT's input layer (token, position and segment embeddings, normalized) and its blocks.

    What stands up to the first [SEP] is segment A, the rest segment B.
    """

    config: BertConfig

    def pieces(self, config: BertConfig) -> Pieces:
        width = config.embedding_width
        return {
            **super().pieces(config, Table(config.vocab_size + SYMBOLS, width)),
            "segment_embedding": Table(2, width),
            "embedding_norm": stream_norm(config),
        }

    def _embedded(self, values: Leaf) -> tuple[Leaf, Leaf | None]:
        x = self.inputs(values) + self.segment_embedding(self.segments(values))
        x, rotation = self._placed(x)
        return self.dropout(self.embedding_norm(x)), rotation

    def segments(self, values: Leaf) -> Leaf:
        """Compute the segment, 0 or 1, of each position of rows (S, L)."""
        ends = self.ops.like(values == self.config.symbols.sep, values)
        return self.ops.like(ends.cumsum(1) > ends, values)


class BertOverSentences:
    """BERT as a sentence encoder, without the output layer that predicts hidden tokens.

    It reads [CLS] in the place of a sentence's start symbol, and puts [SEP] after it. The last
    state of a sentence is the feature of [CLS].
    """

    pooling: ClassVar[Pooling] = "mean"
    config: BertConfig
    window: int | None

    def pieces(self, config: BertConfig, read: None = None) -> Pieces:
        """Declare the encoder's weights; see `SentenceEncoder`."""
        self.window = config.window + 1 if config.positions == "learned" else None
        self.size = config.hidden_size
        return {"encoder": NestedPart(BertBlocks, config)}

    def features(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, Leaf]:
        """Compute features and last states of sentences; see `SentenceEncoder.forward`."""
        ops, size, symbols = ops_of(values), max(lengths), self.config.symbols
        require_window(size, self.window)
        read = ops.along(1, values[:, :size], ops.zeros(values, len(values), 1))
        place, ends = ops.count(values, size + 1), ops.ints(values, lengths)[:, None]
        read = ops.where(place >= ends, symbols.sep, read)
        read = ops.where(place == 0, symbols.cls, read)
        features, _ = self.encoder(read, [length + 1 for length in lengths])
        return features[:, :size], features[:, 0]


class BertEncoderArrays(BertOverSentences, ArrayEncoder):
    """Array version of `BertEncoder`."""


class MaskedModel:
    """A masked language model (Devlin et al. 2019).

    With h the features of a row whose place t is hidden,

        P(x_t | x without x_t) = softmax(E LayerNorm(gelu(W h_t + b)) + c)

    where E is the embedding matrix. With `next_sentence` it also predicts from the feature of
    [CLS] whether B follows A: softmax(U tanh(P h_CLS + p) + u), of which 0 is that it does.
    """

    config: BertConfig

    @staticmethod
    def pieces(config: BertConfig) -> Pieces:
        size, pairs = config.hidden_size, config.next_sentence
        return {
            "encoder": NestedPart(BertBlocks, config),
            "transform": Linear(size, size),
            "transform_norm": stream_norm(config),
            "head": Linear(size, config.vocab_size + SYMBOLS),
            "pooler": Linear(size, size) if pairs else None,
            "next_sentence": Linear(size, 2) if pairs else None,
        }

    @property
    def symbols(self) -> Symbols:
        """The ids of [CLS], [SEP] and [MASK]."""
        return self.config.symbols

    def told(self, values: Leaf, lengths: Sequence[int], places: Leaf) -> tuple[Leaf, Leaf | None]:
        """Predict the tokens at the given positions of rows of tokens.

        Args:
            values: (B, L) of int64, padded on the right.
            lengths: B of them.
            places: (B, M) of int64.

        Returns:
            Logits (B, M, V + 3), in float32 or the parameters' type if wider; and with
            `next_sentence` those of whether B follows A (0) or not (1), (B, 2).
        """
        features = self.features(values, lengths)
        ops, follows = ops_of(features), None
        at = ops.at_places(features, places)
        transformed = self.transform_norm(ops.gelu_exact(self.transform(at)))
        if self.next_sentence is not None:
            follows = ops.wide(self.next_sentence(ops.tanh(self.pooler(features[:, 0]))))
        return ops.wide(self.head(transformed)), follows

    def layer_features(self, tokens: Leaf) -> list[Leaf]:
        """Compute the output (B, L, H) of each block for rows of equal length, in order."""
        return self.encoder.layers(tokens, None)

    def features_by(self, tokens: Leaf, attend: Attend) -> Leaf:
        """Compute the features (B, L, H) of rows of equal length with the attention `attend`."""
        return self.encoder.layers_by(tokens, attend)[-1]

    def seen(self, layer: int, places: Leaf) -> None:
        """Return None: every position attends to the whole row; see `AnchoredContext.seen`."""

    def features(self, values: Leaf, lengths: Sequence[int]) -> Leaf:
        """Compute the features (B, L, H) of padded rows; see `told`."""
        return self.encoder(values, lengths)[0]


class BertArrays(MaskedModel, ArrayNetwork):
    """Array version of `Bert`."""

    sentence_encoder: ClassVar[type[ArrayEncoder]] = BertEncoderArrays
    __call__ = MaskedModel.told

    def __init__(self, config: BertConfig, weights: Weights) -> None:
        self.config, self.window = config, config.window
        fill_over_arrays(self, self.pieces(config), weights)
        self.vectors = weights["encoder.inputs.weight"][: config.vocab_size]
        self.dtype = self.vectors.dtype

    @classmethod
    def shared(cls, config: BertConfig) -> list[list[str]]:
        return [["encoder.inputs.weight", "head.weight"]] if config.tie_weights else []
