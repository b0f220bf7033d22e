"""Feed-forward language model over the last n tokens (Bengio et al. 2003), for both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqgen.engines.ops import Leaf
from seqgen.engines.parts import DropoutPiece, Linear, Pieces, Table
from seqgen.models.inference import HiddenStateModel
from seqgen.models.state import State

if TYPE_CHECKING:
    from seqgen.plugins.window.settings import WindowConfig


@dataclass
class WindowState(State):
    """Last n - 1 tokens of each row, (B, n - 1); V before the start of the text."""

    tokens: Leaf


class WindowNetwork(HiddenStateModel):
    """Feed-forward network over the last n tokens.

    x_t = (C(w_{t-n+1}), ..., C(w_t)),  logits = b + W x_t + U tanh(d + H x_t)

    as equation (1) and those around it in Bengio et al. (2003); W is there only with `direct`.
    Where the text has not begun, an embedding of its own stands for the token. Without a hidden
    layer and with n = 1 the logits are b + W C(w_t): the neural bigram.
    """

    config: WindowConfig
    layer: Callable[[Leaf], Leaf] | None

    @staticmethod
    def pieces(config: WindowConfig) -> Pieces:
        inputs, size = config.context_size * config.embedding_size, config.hidden_size
        return {
            "embedding": Table(config.vocab_size + 1, config.embedding_size, lambda x: x.normal_()),
            "layer": Linear(inputs, size) if size else None,
            "dropout": DropoutPiece(config.dropout),
            "head": Linear(size + inputs * config.direct, config.vocab_size),
        }

    def start(self, batch: int, stride: int | None = None) -> WindowState:
        nothing = [self.vocab_size] * (self.config.context_size - 1)
        return WindowState(self.ops.ints(self.like, [nothing] * batch))

    def hidden(self, tokens: Leaf, state: WindowState | None) -> tuple[Leaf, WindowState]:
        ops, length, size = self.ops, tokens.shape[1], self.config.context_size
        before = (state or self.start(len(tokens))).tokens
        seen = ops.along(1, before, tokens)  # (B, n - 1 + T)
        embedded = self.embedding(seen)
        x = ops.join(*(embedded[:, i : i + length] for i in range(size)))
        x = self.dropout(x)  # (B, T, n E), the oldest first
        parts = [] if self.layer is None else [self.dropout(ops.tanh(self.layer(x)))]
        if self.config.direct:
            parts.append(x)
        return ops.join(*parts), WindowState(seen[:, length:])
