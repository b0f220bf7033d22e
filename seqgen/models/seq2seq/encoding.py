"""The encoder of a transformer over a source, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.engines.arrays import attend_to_all
from seqgen.engines.ops import Leaf
from seqgen.engines.parts import Part, Piece, Pieces
from seqgen.errors import SeqgenError
from seqgen.models.seq2seq.transformer_settings import Seq2SeqTransformerConfig
from seqgen.models.transformer.equations import Attend, Block, placed, stack_pieces, stream
from seqgen.models.transformer.positions import sinusoids, waves_of


class SourceBlocks(Part):
    """Blocks without a causal mask over a source: every place sees all places that are there."""

    config: Seq2SeqTransformerConfig

    def pieces(self, config: Seq2SeqTransformerConfig, inputs: Piece) -> Pieces:
        """Return the blocks, and what is around them.

        Args:
            config: of the model.
            inputs: makes vectors (S, L, E) of the source's values, E being `embedding_width`.
        """
        self.config, layers = config, config.encoder_layers or config.num_layers
        return {"inputs": inputs, **stack_pieces(config, Block, layers, config.source_window)}

    def attend_to_all(self, q: Leaf, k: Leaf, v: Leaf, there: Leaf | None) -> Leaf:
        """Return what queries (S, heads, N, D) read of keys and values (S, heads, L, D).

        Args:
            q: the queries.
            k: the keys.
            v: the values.
            there: which places a source has, (S, L); None for all.
        """
        if isinstance(q, np.ndarray):
            return attend_to_all(q, k, v, there)
        from seqgen.models.transformer.attention import full_attention

        dropout = self.config.attention_dropout if self.training else 0.0
        return full_attention(q, k, v, there, dropout)

    def run(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, tuple[()]]:
        """Read sources.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: S of them.

        Returns:
            Features (S, L, H), which mean nothing past a source's end; and no first states.

        Raises:
            SeqgenError: positions are learned, and there are none so far from the beginning.
        """
        ops, size, there = self.ops, values.shape[1], None
        if min(lengths) < size:
            there = ops.count(values, size) < ops.ints(values, lengths)[:, None]  # (S, L)
        return self.read(values, there), ()

    def read(self, values: Leaf, there: Leaf | None) -> Leaf:
        """Return features (S, L, H) of values whose places are `there`, (S, L); None for all."""
        return self.layers(values, there)[-1]

    def layers(self, values: Leaf, there: Leaf | None) -> list[Leaf]:
        """Return what each block makes of values, (S, L, H), the last normalised; see `read`."""
        return self.layers_by(values, lambda _, q, k, v: self.attend_to_all(q, k, v, there))

    def layers_by(self, values: Leaf, attend: Attend) -> list[Leaf]:
        """Return what `layers` does, with `attend` for attention."""
        x, rotation = self._embedded(values)
        *features, x = stream(self, x, rotation, attend)
        return [*features, self.final_norm(x)]

    def _embedded(self, values: Leaf) -> tuple[Leaf, Leaf | None]:
        """Return what the blocks read, (S, L, H), and how RoPE turns it."""
        x, rotation = self._placed(self.inputs(values))
        return self.dropout(self.embedding_norm(x)), rotation

    def _placed(self, x: Leaf) -> tuple[Leaf, Leaf | None]:
        """Return vectors x (S, L, E) with their positions, (S, L, H), and how RoPE turns them."""
        ops, config, size = self.ops, self.config, x.shape[1]
        if config.positions == "learned":
            if size > config.source_window:
                raise SeqgenError(
                    f"a source has {size} tokens, and this model has learned "
                    f"{config.source_window} positions; give shorter ones"
                )
            vectors = self.position_embedding(ops.count(x, size))
        else:
            vectors = ops.like(waves_of(ops, config, size), x)
        x, rotation = placed(ops, config, x, vectors)
        if rotation is not None and config.source_features is not None:
            # Rotations encode only distances. A text has an end token to measure them from; vectors
            # have none, so the cells of a grid would not know their place.
            x = x + ops.like(sinusoids(ops, size, config.hidden_size), x)
        return x, rotation
