"""A neural network over the last few tokens (Bengio, Ducharme, Vincent and Jauvin 2003)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqgen.configs import MOST_WIDTH, SHARED_SEARCH, ModelConfig, ranges, require, setting
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.state import State
from seqgen.registry import SHARED_DOCS


@dataclass(frozen=True, kw_only=True)
class WindowConfig(ModelConfig):
    """A fixed window of embeddings, a hidden layer, and a softmax."""

    recipe: ClassVar[Mapping[str, Any]] = {"lr": 2e-3, "batch_size": 32, "seq_len": 64}

    context_size: int = setting(
        "Number of previous tokens that a prediction sees.", 8, ranges.WIDTHS
    )
    embedding_size: int = setting("Width of the embedding of a token.", 64, ranges.WIDTHS)
    hidden_size: int = setting(
        SHARED_DOCS["hidden_size"] + " With 0 there is no hidden layer, and direct is needed.",
        256,
        low=0,
        high=MOST_WIDTH,
        search=SHARED_SEARCH["hidden_size"],
    )
    direct: bool = setting("Also connect the embeddings directly to the softmax.", False)
    dropout: float = setting(
        SHARED_DOCS["dropout"] + " It applies to the embeddings and to the hidden layer.",
        0.0,
        ranges.SHARES_BELOW_1,
        search=SHARED_SEARCH["dropout"],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden_size > 0 or self.direct, "hidden_size=0 needs --set direct=true")


@dataclass
class WindowState(State):
    """The last n - 1 tokens of each row, (B, n - 1); V before the start of the text."""

    tokens: Tensor


class Window(NeuralLanguageModel):
    """The registry's `window`.

    x_t = (C(w_{t-n+1}), ..., C(w_t)),  logits = b + W x_t + U tanh(d + H x_t)

    as equation (1) and those around it in Bengio et al. (2003); W is there only with `direct`.
    Where the text has not begun, an embedding of its own stands for the token; training carries
    the last tokens from one window to the next, so that it sees no other beginnings. Without a
    hidden layer and with n = 1 the logits are b + W C(w_t): the neural bigram.

    Initialisation: embeddings normal, matrices as Glorot and Bengio (2010), biases zero.
    """

    carries_state = True
    config: WindowConfig

    def __init__(self, config: WindowConfig) -> None:
        super().__init__()
        self.config = config
        inputs = config.context_size * config.embedding_size
        self.embedding = nn.Embedding(config.vocab_size + 1, config.embedding_size)
        nn.init.normal_(self.embedding.weight)
        self.layer = Linear(inputs, config.hidden_size) if config.hidden_size else None
        self.dropout = Dropout(config.dropout)
        features = config.hidden_size + (inputs if config.direct else 0)
        self.head = Linear(features, config.vocab_size)
        for linear in filter(None, (self.layer, self.head)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def start(self, batch: int, stride: int | None = None) -> WindowState:
        shape = (batch, self.config.context_size - 1)
        return WindowState(torch.full(shape, self.vocab_size, device=self.device))

    def hidden(self, tokens: Tensor, state: WindowState | None) -> tuple[Tensor, WindowState]:
        before = (state or self.start(tokens.shape[0])).tokens
        seen, length = torch.cat([before, tokens], 1), tokens.shape[1]  # (B, n - 1 + T)
        embedded = self.embedding(seen)
        x = torch.cat(
            [embedded[:, i : i + length] for i in range(self.config.context_size)], -1
        )  # (B, T, n E), the oldest first
        x = self.dropout(x)
        parts = [] if self.layer is None else [self.dropout(self.layer(x).tanh())]
        if self.config.direct:
            parts.append(x)
        return torch.cat(parts, -1), WindowState(seen[:, length:])
