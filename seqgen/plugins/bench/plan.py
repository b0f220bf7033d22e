"""Formulas for the memory and the traffic of training a transformer on several ranks.

The transformer is the registry's, in its default form: SwiGLU, RMSNorm, no biases, a head of its
own. docs/scale.md derives the formulas; tests hold them to what real processes hold and move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from seqgen.models.transformer.settings import round_ffn_width
from seqgen.settings import MOST_LAYERS, MOST_TOKENS, MOST_WIDTH, Options, Panel, require, setting
from seqgen.settings.training import Optimizer
from seqgen.wording import column

# Numbers that an optimizer keeps for each parameter, sgd with momentum; Muon keeps two for those
# that are no hidden matrices, as AdamW does.
STATES: dict[str, int] = {"sgd": 1, "adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2, "muon": 1}
# A model that only has a number of parameters is about this many times as wide as it has layers
# (Kaplan et al. 2020, section 3.1, found the loss to depend little on it); heads have this width.
WIDTH_BY_LAYERS, HEAD_WIDTH = 100, 64


class Planned(Options, panel=Panel.MODEL):
    """Options of `seqgen bench plan`: size and shape of the transformer."""

    parameters: int | None = setting(
        "Number of parameters, such as 100M or 1e9; sizes that are not given follow from it.",
        reads="count",
    )
    layers: int | None = setting("Number of blocks.", low=1, high=MOST_LAYERS)
    hidden_size: int | None = setting("Width.", low=1, high=MOST_WIDTH)
    heads: int | None = setting(
        "Heads of attention.", low=1, high=MOST_WIDTH, without="64 wide or so"
    )
    vocab_size: int = setting("Tokens in the vocabulary.", 32000, low=1, high=MOST_TOKENS)
    tie_weights: bool = setting("Embedding and softmax layer share their matrix.")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape of a transformer: layers, widths, heads and vocabulary.

    Attributes:
        layers: L.
        hidden_size: H.
        heads: A.
        vocab_size: V.
        tied: embedding and head share their matrix.
    """

    layers: int
    hidden_size: int
    heads: int
    vocab_size: int
    tied: bool = False

    @property
    def ffn_size(self) -> int:
        """I, the width of the feed-forward layers: 8/3 of H, as `seqgen train` rounds it."""
        return round_ffn_width(8 * math.ceil(self.hidden_size / 3))

    @property
    def block(self) -> int:
        """Parameters of a block: matrices 4 H^2 + 3 H I, norms 2 H, and norms of q and k."""
        return self.block_matrices + 2 * self.hidden_size + 2 * (self.hidden_size // self.heads)

    @property
    def block_matrices(self) -> int:
        """Parameters in a block's matrices."""
        return self.hidden_size * (4 * self.hidden_size + 3 * self.ffn_size)

    @property
    def outside(self) -> int:
        """Parameters outside the blocks: embedding, head, and the last norm."""
        return self.vocab_size * self.hidden_size * (1 if self.tied else 2) + self.hidden_size

    @property
    def parameters(self) -> int:
        """Total number of parameters, P."""
        return self.layers * self.block + self.outside

    @classmethod
    def of(cls, asked: Planned) -> Shape:
        """Build the requested shape, or the one nearest to the requested number of parameters.

        Raises:
            UsageError: neither a number of parameters nor layers and width are given; both are; or
                no shape is so small.
        """
        layers, width = asked.layers, asked.hidden_size
        shaped = layers is not None and width is not None
        require(
            (asked.parameters is None) == shaped,
            "give --parameters N, or --layers N and --hidden-size N",
        )
        known = {"vocab_size": asked.vocab_size, "tied": asked.tie_weights}
        if shaped:
            heads = asked.heads or _fewest_heads(width)
            require(
                width % heads == 0,
                f"--heads must divide the hidden size, and {heads} does not divide {width}",
            )
            return cls(layers=layers, hidden_size=width, heads=heads, **known)
        if width is not None:
            one = cls.of(replace(asked, parameters=None, layers=1))
            layers = max(1, round((asked.parameters - one.outside) / one.block))
            return replace(one, layers=layers)
        if layers is None:
            layers = max(1, round((asked.parameters / (12 * WIDTH_BY_LAYERS**2)) ** (1 / 3)))
        # The positive root of 12 L H^2 + b H = P, and the nearest multiples of a head's width.
        unit, b = asked.heads or HEAD_WIDTH, asked.vocab_size * (1 if asked.tie_weights else 2)
        root = (math.sqrt(b * b + 48 * layers * asked.parameters) - b) / (24 * layers)
        near = {max(1, math.floor(root / unit)), max(1, math.ceil(root / unit))}
        shapes = [
            cls(layers=layers, hidden_size=unit * times, heads=asked.heads or times, **known)
            for times in sorted(near)
        ]
        return min(shapes, key=lambda shape: abs(shape.parameters - asked.parameters))


def _fewest_heads(hidden_size: int) -> int:
    """Choose the smallest number of heads that makes them equally wide, at most 128 each."""
    heads = -(-hidden_size // 128)
    while hidden_size % heads:
        heads += 1
    return heads


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Record of `seqgen bench plan --json`.

    All that is held or moved is in bytes and of one rank; what it sends in a step it also receives.
    `activations` are those of its rows with all layers kept, `logits` what the softmax layer makes
    of them. `seconds` of computing and of moving are there where a speed was given.
    """

    ranks: int = column("ranks", "count")
    sharded: bool
    model_parameters: int
    layers: int
    hidden_size: int
    parameters: float = column("parameters", "byte_size")
    gradients: float = column("gradients", "byte_size")
    buckets: float = column("buckets", "byte_size", unless=0)
    optimizer_states: float = column("states", "byte_size")
    gathered: float = column("gathered", "byte_size", unless=0)
    activations: float = column("activations", "byte_size")
    logits: float = column("logits", "byte_size")
    held: float = column("held in all", "byte_size")
    all_reduce: float
    all_gather: float
    reduce_scatter: float
    moved: float = column("sent", "byte_size", unless=0)
    flops: float = column("GFLOP")
    compute_seconds: float | None = column("computing, s", "number", unless=None)
    traffic_seconds: float | None = column("sending, s", "number", unless=None)


class PlanStep(Options, panel=Panel.OPTIMISATION):
    """Options of a training step: batch of B rows of T tokens, precision and hardware speeds."""

    batch_size: int = setting(
        "Rows of a step, of all ranks together.", 512, low=1, high=MOST_TOKENS
    )
    seq_len: int = setting("Tokens of a row.", 1024, low=1, high=MOST_TOKENS)
    accumulate: int = setting(
        "Number of parts in which a rank processes its rows.", 1, low=1, high=MOST_TOKENS
    )
    optimizer: Optimizer = setting("Optimizer.", "adamw", metavar="KIND")
    precision: Literal["float32", "float64", "bf16"] = setting(
        "Number format: float32, float64 or bf16, which keeps parameters in float32.",
        "bf16",
        metavar="KIND",
    )
    gflops: float | None = setting(
        "Speed of a rank in 10^9 operations a second: also shows how long a step computes.",
        low=1e-3,
        panel=Panel.MACHINE,
    )
    bandwidth: float | None = setting(
        "GB a second that a rank can send: also shows how long a step moves data.",
        low=1e-6,
        panel=Panel.MACHINE,
    )

    @property
    def number(self) -> int:
        """b, the bytes of a parameter, of its gradient and of each optimizer state."""
        return 8 if self.precision == "float64" else 4


def plan(shape: Shape, step: PlanStep, ranks: int, sharded: bool) -> MemoryPlan:
    """Estimate the memory and the traffic of each rank in a training step.

    Args:
        shape: of the model.
        step: how one is taken.
        ranks: N.
        sharded: parameters, gradients and states are divided over the ranks (Rajbhandari et al.
            2020, stage 3), as FSDP2 does block by block; otherwise every rank has them all.
    """
    size, rows = shape.parameters * step.number, step.batch_size / ranks
    part = size / ranks if sharded else size
    tokens = rows * step.seq_len / step.accumulate  # whose activations are kept at a time
    several = ranks > 1
    kept = {
        "parameters": part,
        "gradients": part,
        # DistributedDataParallel copies gradients into buckets that it exchanges.
        "buckets": size if several and not sharded else 0,
        "optimizer_states": states(shape, step) / (ranks if sharded else 1),
        "gathered": gathered(shape, step) if several and sharded else 0,
        "activations": tokens * activations(shape, step),
        "logits": tokens * shape.vocab_size * 2 * step.number,
    }
    moved = traffic(shape, step, ranks, sharded)
    total = sum(moved.values())
    flops = rows * step.seq_len * flops_of_a_token(shape, step.seq_len)
    return MemoryPlan(
        ranks=ranks,
        sharded=sharded,
        model_parameters=shape.parameters,
        layers=shape.layers,
        hidden_size=shape.hidden_size,
        **kept,
        held=sum(kept.values()),
        **moved,
        moved=total,
        flops=flops,
        compute_seconds=None if step.gflops is None else flops / (1e9 * step.gflops),
        traffic_seconds=None if step.bandwidth is None else total / (1e9 * step.bandwidth),
    )


def states(shape: Shape, step: PlanStep) -> float:
    """Compute the bytes of the optimizer states of all parameters."""
    numbers = STATES[step.optimizer] * shape.parameters
    if step.optimizer == "muon":
        numbers += shape.parameters - shape.layers * shape.block_matrices
    return numbers * step.number


def gathered(shape: Shape, step: PlanStep) -> float:
    """Compute the peak bytes of unsharded parameters and gradients that a sharded rank holds.

    Those outside the blocks; two blocks, since the next is gathered while one computes; and the
    whole gradient of one before it is divided.
    """
    return (shape.outside + 2 * shape.block + max(shape.block, shape.outside)) * step.number


def traffic(shape: Shape, step: PlanStep, ranks: int, sharded: bool) -> dict[str, float]:
    """Compute the bytes that each rank sends in a step, by operation.

    In a ring a rank sends (N - 1)/N of what is gathered or scattered, and twice that to reduce for
    all (Patarasuk and Yuan 2009). Sharded parameters are gathered for the forward pass, and those
    of blocks again for the backward pass.
    """
    share = (ranks - 1) / ranks * step.number
    if not sharded:
        return {"all_reduce": 2 * share * shape.parameters, "all_gather": 0, "reduce_scatter": 0}
    twice = 2 * shape.layers * shape.block + shape.outside
    return {
        "all_reduce": 0,
        "all_gather": share * twice,
        "reduce_scatter": share * shape.parameters,
    }


def activations(shape: Shape, step: PlanStep) -> float:
    """Compute the bytes of activations stored per token for the backward pass, without dropout.

    In a block 13 H + 4 I + 3 A numbers; under bf16 those that products read have half the bytes.
    Attention does not keep its weights.
    """
    hidden, inner, heads = shape.hidden_size, shape.ffn_size, shape.heads
    if step.precision == "bf16":
        block = 28 * hidden + 8 * inner + 8 * heads
    else:
        block = step.number * (13 * hidden + 4 * inner + 3 * heads)
    return shape.layers * block + 2 * step.number * hidden


def flops_of_a_token(shape: Shape, seq_len: int) -> float:
    """Compute the floating-point operations that training needs per token.

    Two for each element of a matrix that it meets, and for each element of the queries and values
    that it meets over half the window on average; the backward pass takes twice the forward one
    (Kaplan et al. 2020, section 2.1).
    """
    matrices = shape.layers * shape.block_matrices + shape.vocab_size * shape.hidden_size
    attention = shape.layers * seq_len * shape.hidden_size
    return 3 * 2 * (matrices + attention)
