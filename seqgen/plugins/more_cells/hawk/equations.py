"""The equations of Hawk, over arrays or tensors (De et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqgen.engines.ops import Leaf
from seqgen.engines.parts import (
    DropoutPiece,
    Linear,
    NestedPart,
    Norm,
    Numbers,
    Part,
    Pieces,
    Stack,
    Table,
)
from seqgen.models.inference import HiddenStateModel
from seqgen.models.state import State
from seqgen.models.transformer.equations import FeedForward

if TYPE_CHECKING:
    from seqgen.plugins.more_cells.hawk.settings import HawkConfig

# Of the feed-forward layers (Shazeer 2020), and of the norms.
ACTIVATION, EPS = "geglu", 1e-5
# The decay where the recurrence gate is open is a^SHARPNESS.
SHARPNESS = 8.0
# There it begins uniform between these. The paper's 0.9 and 0.999 are for subwords: over
# characters, units that forget sooner learn faster (300 steps on tiny Shakespeare: 1.79 nats/token
# instead of 1.94).
DECAYS = 0.05, 0.95
# Below this 1 - a^2 has no gradient: that of its root would grow without bounds.
LEAST = 1e-6


@dataclass
class HawkState(State):
    """State of Hawk: per layer the convolution's last inputs (B, W - 1, D) and h (B, D)."""

    read: tuple[Leaf, ...]
    h: tuple[Leaf, ...]


class RGLRU(Part):
    """The real-gated linear recurrent unit (equations 1 to 4).

    r_t = sigma(W_r x_t + b_r)
    i_t = sigma(W_i x_t + b_i)
    a_t = a^(8 r_t), where a = sigma(Lambda)
    h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * i_t * x_t
    """

    def pieces(self, width: int) -> Pieces:
        def begin(decay: Leaf) -> None:
            decay.uniform_(*DECAYS).pow_(1 / SHARPNESS).logit_()

        gates = Linear(width, 2 * width, maps=(width,) * 2)  # r, i
        return {"gates": gates, "decay": Numbers((width,), begin)}  # Lambda

    def run(self, x: Leaf, h: Leaf) -> Leaf:
        """Compute every h (B, T, D) from inputs x (B, T, D) and the initial h (B, D)."""
        ops = self.ops
        r, i = ops.split(ops.sigmoid(ops.wide(self.gates(x))), 1, 1)
        log_a = SHARPNESS * ops.log_sigmoid(ops.wide(self.decay)) * r
        scale = ops.sqrt(ops.at_least(-ops.expm1(2 * log_a), LEAST))
        by_time = (part.swapaxes(0, 1) for part in (ops.exp(log_a), scale * i * x))
        return linear_recurrence(*by_time, h).swapaxes(0, 1)


class Recurrence(Part):
    """Recurrent block W_o (gelu(W_g x) * RG-LRU(convolution(W_v x))) (section 2.2)."""

    def pieces(self, config: HawkConfig) -> Pieces:
        size, width = config.hidden_size, config.width
        return {
            "inner": Linear(size, 2 * width, maps=(width,) * 2),  # g, v
            # One filter for each unit, the oldest token first; no matrix, so of three axes.
            "filters": Numbers((config.conv_width, 1, width)),
            "shift": Numbers((width,)),
            "unit": NestedPart(RGLRU, width),
            "output": Linear(width, size),
        }

    def run(self, x: Leaf, read: Leaf, h: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        """Apply the recurrent block to x (B, T, H); return its output and new state.

        Args:
            x: the inputs.
            read: what the convolution has last read, (B, W - 1, D).
            h: (B, D).
        """
        ops = self.ops
        gate, v = ops.split(self.inner(x), 1, 1)
        v = ops.along(1, ops.like(read, v), v)  # (B, W - 1 + T, D)
        length, width = x.shape[1], len(self.filters)
        mixed = sum(w * v[:, at : at + length] for at, w in enumerate(self.filters)) + self.shift
        y = self.unit(mixed, h)  # (B, T, D)
        out = self.output(ops.gelu(gate) * ops.like(y, gate))
        return out, ops.like(v[:, v.shape[1] - width + 1 :], read), ops.like(y[:, -1], h)


class HawkBlock(Part):
    """Residual block of a recurrence and a feed-forward layer, x + part(norm(x)); see `Block`."""

    called_whole: ClassVar[bool] = True

    def pieces(self, config: HawkConfig) -> Pieces:
        sizes = config.hidden_size, config.feed_forward_size
        return {
            "recurrence": NestedPart(Recurrence, config),
            "feed_forward": NestedPart(FeedForward, *sizes, ACTIVATION, True),
            "recurrence_norm": Norm("rmsnorm", config.hidden_size, EPS),
            "feed_forward_norm": Norm("rmsnorm", config.hidden_size, EPS),
            "dropout": DropoutPiece(config.dropout),
        }

    def run(self, x: Leaf, read: Leaf, h: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        y, read, h = self.recurrence(self.recurrence_norm(x), read, h)
        x = x + self.dropout(y)
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x))), read, h


class HawkStack(HiddenStateModel):
    """Hawk's residual blocks between an embedding and a softmax."""

    config: HawkConfig

    @staticmethod
    def pieces(config: HawkConfig) -> Pieces:
        size = config.hidden_size
        return {
            "embedding": Table(config.vocab_size, size),
            "blocks": Stack([NestedPart(HawkBlock, config)] * config.num_layers),
            "final_norm": Norm("rmsnorm", size, EPS),
            "dropout": DropoutPiece(config.dropout),
            "head": Linear(size, config.vocab_size, bias=False),
        }

    def start(self, batch: int, stride: int | None = None) -> HawkState:
        config = self.config
        read, h = (
            tuple(self.ops.zeros(self.like, batch, *shape) for _ in range(config.num_layers))
            for shape in ((config.conv_width - 1, config.width), (config.width,))
        )
        return HawkState(read, h)

    def hidden(self, tokens: Leaf, state: HawkState | None) -> tuple[Leaf, HawkState]:
        state = state or self.start(len(tokens))
        x, reads, hs = self.dropout(self.embedding(tokens)), [], []
        for layer, read, h in zip(self.blocks, state.read, state.h, strict=True):
            x, read, h = layer(x, read, h)
            reads.append(read)
            hs.append(h)
        return self.final_norm(x), HawkState(tuple(reads), tuple(hs))


def linear_recurrence(a: Leaf, b: Leaf, h: Leaf) -> Leaf:
    """Compute every h_t = a_t * h_{t-1} + b_t (T, B, D) from the initial h (B, D)."""
    if not isinstance(b, np.ndarray):
        from seqgen.plugins.more_cells.scan import linear_scan

        return linear_scan(a, b, h)
    states = np.empty_like(b)
    for a_t, b_t, after in zip(a, b, states, strict=True):
        h = np.add(a_t * h, b_t, out=after)
    return states
