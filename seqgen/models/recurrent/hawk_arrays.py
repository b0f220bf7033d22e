"""Hawk over arrays, its settings and its equations (De et al. 2024)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from seqgen.configs import (
    MOST_WIDTH,
    ModelConfig,
    Size,
    ranges,
    setting,
)
from seqgen.models.engines.arrays import unchanged
from seqgen.models.engines.ops import ArrayOps, Leaf, Ops
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.reader import NeuralArrays
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.shared_settings import shared
from seqgen.models.state import State
from seqgen.models.transformer.equations import feed_forward

# Of the feed-forward layers (Shazeer 2020), and of the norms.
ACTIVATION, EPS = "geglu", 1e-5
# The decay where the recurrence gate is open is a^SHARPNESS.
SHARPNESS = 8.0
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

    hidden_size: int = shared("hidden_size", 192)
    num_layers: int = shared("num_layers", 2)
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
    dropout: float = shared(
        "dropout", 0.1, " It applies to the embeddings and to the output of each sublayer."
    )
    tie_weights: bool = shared("tie_weights", False)

    def shared_weights(self) -> list[list[str]]:
        """Return the names of each weight that several parts of a model share."""
        return [["embedding.weight", "head.weight"]] if self.tie_weights else []

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

    read: tuple[Leaf, ...]
    h: tuple[Leaf, ...]


# (a, b, the h before) to every h_t = a_t * h_{t-1} + b_t, times first: (T, B, D).
Scan = Callable[[Leaf, Leaf, Leaf], Leaf]


def unit(ops: Ops, p: Any, scan: Scan, x: Leaf, h: Leaf) -> Leaf:
    """Return every h (B, T, D) of the real-gated linear recurrent unit (equations 1 to 4).

    r_t = sigma(W_r x_t + b_r)
    i_t = sigma(W_i x_t + b_i)
    a_t = a^(8 r_t), where a = sigma(Lambda)
    h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * i_t * x_t

    Args:
        ops: of what follows.
        p: `gates`, the map to r and i; and `log_decay`, a function to 8 log a.
        scan: of the last line.
        x: inputs (B, T, D).
        h: what is before them (B, D).
    """
    r, i = ops.split(ops.sigmoid(ops.wide(p.gates(x))), 1, 1)
    log_a = p.log_decay() * r
    scale = ops.sqrt(ops.at_least(-ops.expm1(2 * log_a), LEAST))
    by_time = (part.swapaxes(0, 1) for part in (ops.exp(log_a), scale * i * x))
    return scan(*by_time, h).swapaxes(0, 1)


def recurrence(ops: Ops, p: Any, x: Leaf, read: Leaf, h: Leaf) -> tuple[Leaf, Leaf, Leaf]:
    """Return W_o (gelu(W_g x) * RG-LRU(convolution(W_v x))) (section 2.2), and the state after.

    Args:
        ops: of what follows.
        p: the maps `inner` (g and v) and `output`, `filters` (W, 1, D), `shift`, and `unit`.
        x: (B, T, H).
        read: what the convolution has last read, (B, W - 1, D).
        h: (B, D).
    """
    gate, v = ops.split(p.inner(x), 1, 1)
    v = ops.along(1, ops.like(read, v), v)  # (B, W - 1 + T, D)
    length, width = x.shape[1], len(p.filters)
    mixed = sum(w * v[:, at : at + length] for at, w in enumerate(p.filters)) + p.shift
    y = p.unit(mixed, h)  # (B, T, D)
    out = p.output(ops.gelu(gate) * ops.like(y, gate))
    return out, ops.like(v[:, v.shape[1] - width + 1 :], read), ops.like(y[:, -1], h)


def block(p: Any, x: Leaf, read: Leaf, h: Leaf) -> tuple[Leaf, Leaf, Leaf]:
    """Return x + part(norm(x)) for the recurrence and then the feed-forward layer."""
    y, read, h = p.recurrence(p.recurrence_norm(x), read, h)
    x = x + p.dropout(y)
    return x + p.dropout(p.feed_forward(p.feed_forward_norm(x))), read, h


def features(p: Any, tokens: Leaf, state: HawkState) -> tuple[Leaf, HawkState]:
    """Return the features (B, T, H) of tokens (B, T), and the state after."""
    x, reads, hs = p.dropout(p.embedding(tokens)), [], []
    for layer, read, h in zip(p.blocks, state.read, state.h, strict=True):
        x, read, h = layer(x, read, h)
        reads.append(read)
        hs.append(h)
    return p.final_norm(x), HawkState(tuple(reads), tuple(hs))


def start(ops: Ops, config: HawkConfig, like: Leaf, batch: int) -> HawkState:
    """Return the state of rows that have read nothing."""
    read, h = (
        tuple(ops.zeros(like, batch, *shape) for _ in range(config.num_layers))
        for shape in ((config.conv_width - 1, config.width), (config.width,))
    )
    return HawkState(read, h)


class HawkArrays(NeuralArrays):
    """The model of `Hawk`, see there.

    Args:
        config: of the model.
        weights: see `shapes`.
    """

    config: HawkConfig

    def __init__(self, config: HawkConfig, weights: Weights) -> None:
        self.config = config
        self.vectors = table = weights["embedding.weight"]
        self.embedding, self.dropout, self.dtype = table.__getitem__, unchanged, table.dtype
        self.blocks = [_block(weights.part("blocks", i)) for i in range(config.num_layers)]
        self.final_norm, self.head = _norm(weights.part("final_norm")), weights.affine("head")

    @staticmethod
    def shapes(config: HawkConfig) -> Shapes:
        size, width, inner = config.hidden_size, config.width, config.feed_forward_size
        shapes: Shapes = {
            "embedding.weight": (config.vocab_size, size),
            "final_norm.weight": (size,),
        }
        for i in range(config.num_layers):
            at = f"blocks.{i}."
            shapes |= {
                f"{at}recurrence.filters": (config.conv_width, 1, width),
                f"{at}recurrence.shift": (width,),
                f"{at}recurrence.unit.decay": (width,),
                f"{at}recurrence_norm.weight": (size,),
                f"{at}feed_forward_norm.weight": (size,),
                **linear_shapes(f"{at}recurrence.inner", size, 2 * width),
                **linear_shapes(f"{at}recurrence.unit.gates", width, 2 * width),
                **linear_shapes(f"{at}recurrence.output", width, size),
                **linear_shapes(f"{at}feed_forward.inner", size, 2 * inner),
                **linear_shapes(f"{at}feed_forward.output", inner, size),
            }
        return shapes | linear_shapes("head", size, config.vocab_size, bias=False)

    def start(self, batch: int, stride: int | None = None) -> HawkState:
        return start(ArrayOps, self.config, self.like, batch)

    def hidden(self, tokens: np.ndarray, state: HawkState | None) -> tuple[np.ndarray, HawkState]:
        return features(self, tokens, state or self.start(len(tokens)))


def _block(weights: Weights) -> functools.partial:
    """Return a block over arrays."""
    own, layer = weights.part("recurrence"), weights.part("feed_forward")
    gates = own.part("unit")
    log_decay = -SHARPNESS * np.logaddexp(0, -gates.decay)
    of_unit = SimpleNamespace(gates=gates.affine("gates"), log_decay=lambda: log_decay)
    of_recurrence = SimpleNamespace(
        inner=own.affine("inner"),
        output=own.affine("output"),
        filters=own.filters,
        shift=own.shift,
        unit=functools.partial(unit, ArrayOps, of_unit, _scan),
    )
    maps = SimpleNamespace(inner=layer.affine("inner"), output=layer.affine("output"))
    p = SimpleNamespace(
        dropout=unchanged,
        recurrence=functools.partial(recurrence, ArrayOps, of_recurrence),
        recurrence_norm=_norm(weights.part("recurrence_norm")),
        feed_forward=functools.partial(feed_forward, ArrayOps, maps, ACTIVATION),
        feed_forward_norm=_norm(weights.part("feed_forward_norm")),
    )
    return functools.partial(block, p)


def _norm(weights: Weights) -> functools.partial:
    return functools.partial(ArrayOps.rms_norm, gain=weights.weight, eps=EPS)


def _scan(a: np.ndarray, b: np.ndarray, h: np.ndarray) -> np.ndarray:
    """See `Scan`."""
    states = np.empty_like(b)
    for a_t, b_t, after in zip(a, b, states, strict=True):
        h = np.add(a_t * h, b_t, out=after)
    return states
