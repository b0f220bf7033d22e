"""Decoder-only transformer in torch, from the form of 2017 over GPT-2 to Llama."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.engines.tensor_ops import TensorOps
from seqgen.engines.tensor_products import FusedArrayOps, as_tensor, weights_as_arrays
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.transformer.arrays import TransformerArrays
from seqgen.models.transformer.attention import (
    causal_attention,
    repeat_heads,
    squashed_attention,
)
from seqgen.models.transformer.context import AnchoredContext
from seqgen.models.transformer.equations import causal_mask
from seqgen.models.transformer.kv_cache import KVCache
from seqgen.models.transformer.positions import position_waves

if TYPE_CHECKING:
    from seqgen.models.transformer.settings import TransformerConfig


def initialise(network: nn.Module, config: TransformerConfig) -> None:
    """Draw the initial weights of a transformer; see `Transformer`."""
    into_stream = 0.02 / math.sqrt(2 * config.num_layers)
    for name, part in network.named_modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        elif isinstance(part, nn.Linear):
            if config.norm_position == "post":
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.normal_(part.weight, std=0.02)
                if name.endswith(".output"):
                    nn.init.normal_(part.weight, std=into_stream)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


class Transformer(AnchoredContext, ArraySteps, NeuralLanguageModel):
    """Decoder-only transformer in torch (architecture `transformer`).

    Initialisation is GPT-2's (Radford et al. 2019): normal with deviation 0.02, and with
    0.02 / sqrt(2 layers) for the maps into the residual stream; for norm_position=post it is
    Glorot's, as in 2017.
    """

    arrays: ClassVar[type[TransformerArrays]] = TransformerArrays
    quantizable = True

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.window = config.window
        initialise(self, config)
        if config.tie_weights:
            self.head.weight = self.embedding.weight
        waves = position_waves(TensorOps, config, config.window)
        self.register_buffer("waves", waves, persistent=False)

    def _apply(self, *args: Any, **kwargs: Any) -> Transformer:
        waves = self.waves
        super()._apply(*args, **kwargs)
        if self.waves.itemsize < 4:
            # bf16 has under three digits: neighbouring positions would become one and the same.
            self.waves = waves.to(self.waves.device)
        return self

    def step(self, tokens: Sequence[int], state: KVCache) -> tuple[np.ndarray, KVCache]:
        full = state.end - min(state.starts) == self.window  # a row is: the longest
        if full and self.suits_arrays():
            state = state.map(as_tensor)
            self.slide(state)
        return super().step(tokens, state)

    def as_arrays(self) -> TransformerArrays:
        return self.arrays(self.config, weights_as_arrays(self), FusedArrayOps, self.quantized)

    def hidden(self, tokens: Tensor, state: KVCache | None) -> tuple[Tensor, KVCache | None]:
        if state is None:
            trains = self.training and torch.is_grad_enabled()
            stack = self._compiled if trains and self._compiled else self.over_tensors
            return stack(*self.in_window(tokens)), None
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters()):
            raise ValueError(
                "a transformer's state takes no part in a graph: "
                "call it without a state to train, or under torch.no_grad() to decode"
            )
        return self.read(tokens, state)

    def over_tensors(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        """Run the blocks on windows at position 0; the part that is compiled.

        The embedding stays outside: its gradient, compiled, is added up in no fixed order.
        """
        return self.stacked(x, rotation, self.attend_within)

    def attend_within(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        softcap, span = self.config.attention_softcap, self.config.span(layer)
        if softcap is not None:
            places = torch.arange(q.shape[2], device=q.device)
            return squashed_attention(q, k, v, causal_mask(places, places, span), softcap)
        dropout = self.config.attention_dropout if self.training else 0.0
        return causal_attention(q, k, v, dropout, span)

    def attend_to_past(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        if (softcap := self.config.attention_softcap) is not None:
            return squashed_attention(q, k, v, seen, softcap)
        read = (repeat_heads(q, x) for x in (k, v))
        return F.scaled_dot_product_attention(q, *read, attn_mask=seen)
