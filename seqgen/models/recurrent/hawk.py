"""Hawk: gated linear recurrences in residual blocks, without attention (De et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import (
    MOST_WIDTH,
    SHARED_SEARCH,
    ModelConfig,
    Size,
    ranges,
    setting,
)
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.scan import linear_scan
from seqgen.models.state import State
from seqgen.models.transformer.blocks import FeedForward
from seqgen.models.transformer.rms_norm import RMSNorm
from seqgen.registry import SHARED_DOCS

# The decay where the recurrence gate is open is a^SHARPNESS, and begins uniform between these. The
# paper's 0.9 and 0.999 are for subwords: over characters, units that forget sooner learn faster
# (300 steps on tiny Shakespeare: 1.79 nats/token instead of 1.94).
SHARPNESS = 8.0
DECAYS = 0.05, 0.95
# Below this 1 - a^2 has no gradient: that of its root would grow without bounds.
LEAST = 1e-6


@dataclass(frozen=True, kw_only=True)
class HawkConfig(ModelConfig):
    """A stack of blocks, each a gated linear recurrence and a feed-forward layer."""

    recipe: ClassVar[Mapping[str, Any]] = RecurrentConfig.recipe
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 2, "hidden_size": 192}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 128}, tokens=1.6e6),
        Size({"num_layers": 2, "hidden_size": 96}),
    )

    hidden_size: int = setting(
        SHARED_DOCS["hidden_size"], 192, ranges.WIDTHS, search=SHARED_SEARCH["hidden_size"]
    )
    num_layers: int = setting(SHARED_DOCS["num_layers"], 2, ranges.LAYERS)
    recurrent_size: int | None = setting(
        "Width of the recurrence; by default 3/2 of the hidden size.",
        None,
        low=1,
        high=2 * MOST_WIDTH,
    )
    ffn_size: int | None = setting(
        "Width of the feed-forward layers; by default the hidden size.",
        None,
        low=1,
        high=4 * MOST_WIDTH,
    )
    conv_width: int = setting(
        "Number of tokens that the convolution before the recurrence sees.",
        4,
        ranges.FROM_1_TO_1000,
    )
    dropout: float = setting(
        SHARED_DOCS["dropout"]
        + " It applies to the embeddings and to the output of each sublayer.",
        0.1,
        ranges.SHARES_BELOW_1,
        search=SHARED_SEARCH["dropout"],
    )
    tie_weights: bool = setting(
        "Share the embedding matrix with the softmax layer (Press and Wolf 2017).", False
    )

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * seq_len * self.hidden_size**2 >= 1 << 22

    @property
    def width(self) -> int:
        """The width D of the recurrence."""
        return self.recurrent_size or math.ceil(1.5 * self.hidden_size)

    @property
    def feed_forward_size(self) -> int:
        """Width of the feed-forward part's inner layer."""
        return self.ffn_size or self.hidden_size


@dataclass
class HawkState(State):
    """For each layer what its convolution has last read (B, W - 1, D), and its h (B, D)."""

    read: tuple[Tensor, ...]
    h: tuple[Tensor, ...]


class RGLRU(nn.Module):
    """The real-gated linear recurrent unit (De et al. 2024, equations 1 to 4).

    r_t = sigma(W_r x_t + b_r)
    i_t = sigma(W_i x_t + b_i)
    a_t = a^(8 r_t), where a = sigma(Lambda)
    h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * i_t * x_t
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = Linear(width, 2 * width)  # r, i
        self.gates.maps = {"weight": (width,) * 2}
        a = torch.empty(width).uniform_(*DECAYS) ** (1 / SHARPNESS)
        self.decay = nn.Parameter(torch.logit(a))  # Lambda

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Return every h (B, T, D) of inputs x (B, T, D), after h (B, D)."""
        wide = torch.promote_types(x.dtype, torch.float32)
        r, i = torch.sigmoid(self.gates(x).to(wide)).chunk(2, -1)
        log_a = SHARPNESS * F.logsigmoid(self.decay.to(wide)) * r
        scale = (-torch.expm1(2 * log_a)).clamp(min=LEAST).sqrt()
        by_time = (part.transpose(0, 1) for part in (log_a.exp(), scale * i * x))
        return linear_scan(*by_time, h).transpose(0, 1)


class Recurrence(nn.Module):
    """W_o (gelu(W_g x) * RG-LRU(convolution(W_v x))) (De et al. 2024, section 2.2)."""

    def __init__(self, config: HawkConfig) -> None:
        super().__init__()
        size, width = config.hidden_size, config.width
        self.inner = Linear(size, 2 * width)  # g, v
        self.inner.maps = {"weight": (width,) * 2}
        # One filter for each unit, the oldest token first; no matrix, so of three axes.
        self.filters = nn.Parameter(torch.empty(config.conv_width, 1, width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.unit = RGLRU(width)
        self.output = Linear(width, size)

    def forward(self, x: Tensor, read: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take x (B, T, H) to as much, with what was read (B, W - 1, D) and h (B, D) after it."""
        gate, v = self.inner(x).chunk(2, -1)
        v = torch.cat([read.to(v.dtype), v], 1)  # (B, W - 1 + T, D)
        length, width = x.shape[1], len(self.filters)
        mixed = sum(w * v[:, at : at + length] for at, w in enumerate(self.filters)) + self.shift
        y = self.unit(mixed, h)  # (B, T, D)
        out = self.output(TensorOps.gelu(gate) * y.to(gate.dtype))
        return out, v[:, v.shape[1] - width + 1 :].to(read.dtype), y[:, -1].to(h.dtype)


class HawkBlock(nn.Module):
    """x + part(norm(x)) for the recurrence and then the feed-forward layer; see `Block`."""

    called_whole: ClassVar[bool] = True

    def __init__(self, config: HawkConfig) -> None:
        super().__init__()
        self.recurrence = Recurrence(config)
        sizes = config.hidden_size, config.feed_forward_size
        self.feed_forward = FeedForward(*sizes, "geglu", bias=True)  # Shazeer (2020)
        self.recurrence_norm = RMSNorm(config.hidden_size, eps=1e-5)
        self.feed_forward_norm = RMSNorm(config.hidden_size, eps=1e-5)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, read: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, read, h = self.recurrence(self.recurrence_norm(x), read, h)
        x = x + self.dropout(y)
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x))), read, h


class Hawk(NeuralLanguageModel):
    """The registry's `hawk`: nothing but its gates is non-linear in the past, so it is scanned.

    Initialisation: maps as LeCun et al. (1998), normal with variance 1 / inputs, and those into
    the residual stream divided by the root of their number.
    """

    carries_state = True
    config: HawkConfig

    def __init__(self, config: HawkConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(HawkBlock(config) for _ in range(config.num_layers))
        self.final_norm = RMSNorm(config.hidden_size, eps=1e-5)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._initialise()
        if config.tie_weights:
            self.head.weight = self.embedding.weight

    def _initialise(self) -> None:
        into_stream = math.sqrt(2 * self.config.num_layers)
        for name, part in self.named_modules():
            if isinstance(part, nn.Linear):
                outputs = into_stream if name.endswith(".output") else 1
                nn.init.normal_(part.weight, std=part.in_features**-0.5 / outputs)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, Recurrence):
                nn.init.normal_(part.filters, std=len(part.filters) ** -0.5)
        nn.init.xavier_uniform_(self.head.weight)

    def start(self, batch: int, stride: int | None = None) -> HawkState:
        config, like = self.config, self.embedding.weight
        read, h = (
            tuple(like.new_zeros(batch, *shape) for _ in self.blocks)
            for shape in ((config.conv_width - 1, config.width), (config.width,))
        )
        return HawkState(read, h)

    def hidden(self, tokens: Tensor, state: HawkState | None) -> tuple[Tensor, HawkState]:
        state = state or self.start(tokens.shape[0])
        x, reads, hs = self.dropout(self.embedding(tokens)), [], []
        for block, read, h in zip(self.blocks, state.read, state.h, strict=True):
            x, read, h = block(x, read, h)
            reads.append(read)
            hs.append(h)
        return self.final_norm(x), HawkState(tuple(reads), tuple(hs))
