"""Base class of recurrent cells: equation, parameters, and supported regularisers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.engines.ops import Leaf, Ops
from seqgen.settings.setting import require

# By name, W (O, I) and b (O,), or no b.
Maps = Mapping[str, tuple[Leaf, Leaf | None]]
# (x (..., I), W (O, I), b (O,) or None) to W x + b.
Linear = Callable[[Leaf, Leaf, Leaf | None], Leaf]

# The parts of a cell's state, each (B, its width); the output h is first.
Parts = tuple[Leaf, ...]

GLOROT, ORTHOGONAL, IDENTITY = "glorot", "orthogonal", "identity"
# Added to the variance in batch normalisation.
EPS = 1e-5


@dataclass(frozen=True)
class Parameter:
    """Shape and initialization of a cell's parameter.

    Attributes:
        shape: (N,) of a vector, (O, I) of a matrix.
        begin: how training begins: uniform as Glorot and Bengio (2010), orthogonal (Saxe et al.
            2014) or the identity, each map of a matrix by itself; or with these numbers, each in
            its block of a vector.
        maps: for a matrix that is several maps below one another, the rows of each.
        gain: what the beginning is multiplied by.
    """

    shape: tuple[int, ...]
    begin: Literal["glorot", "orthogonal", "identity"] | tuple[float, ...] = (0.0,)
    maps: tuple[int, ...] = ()
    gain: float = 1.0


class Equation(ABC):
    """Recurrent cell without weights: one step, written over `ops` for torch and NumPy.

    The matrices of several gates are stacked: `weight_ih` (G H, E) with `bias` (G H,), and
    `weight_hh` (G H, H), in the order of torch's kernels if torch has the cell.

    Initialisation: input matrices uniform as Glorot and Bengio (2010) for each gate, recurrent
    matrices orthogonal for each gate (Saxe et al. 2014), biases zero.

    A cell defines `inputs` and `__call__`, which shows its gates by name with `ops.show`. One with
    recurrent matrices of other shapes overrides `recurrent` and `maps_of_past`, one that
    reads its input in another way `map_of_input`, one whose settings change what it reads or
    hands on `blocks` and `widths`. It may have a faster form of a whole sequence,
    `fast_sequence`, of which the equation is then the oracle.

    `p` are the weights by name, as attributes: a `Cell` of tensors, or `Weights`, arrays.

    Args:
        input_size: the width E of the input.
        config: of the cell, a `RecurrentConfig`.

    Attributes:
        inputs: blocks G of W_x x + b, where no setting changes them.
        parts: what the cell hands on from step to step, by name; the output, h, first.
        has_update: the equation passes an update vector (B, H) through `w.dropped`.
        readouts: maps of `maps_of_past` that read what was made in the step itself.
        passing: parts that no later step reads.
        keeps: the value that the equation shows as the share of its memory that a step keeps.
        replaces: the one that it shows as the share that is new; a cell has one of both, or none.
        resets: the one that it shows as the share of the past that its candidate reads.
        reads_past: matrices act on the past.
        reads_itself: the equation gets the input itself beside products of it.
        of_head: parameters that are those of the model's head, and which.
        sizes: the width of each part; that of the first is the layer's output.
        zoneout: for each part the probability that a unit keeps its value (Krueger et al. 2017).
    """

    inputs: ClassVar[int]
    parts: ClassVar[tuple[str, ...]] = ("h",)
    has_update: ClassVar[bool] = False
    readouts: ClassVar[frozenset[str]] = frozenset()
    passing: ClassVar[frozenset[str]] = frozenset()
    keeps: ClassVar[str | None] = None
    replaces: ClassVar[str | None] = None
    resets: ClassVar[str | None] = None
    reads_past: ClassVar[bool] = True
    reads_itself: ClassVar[bool] = False
    of_head: ClassVar[Mapping[str, str]] = {}

    def __init__(self, input_size: int, config: Any) -> None:
        self.input_size, self.hidden_size, self.config = input_size, config.hidden_size, config
        self.sizes, self.blocks = self.widths(config), self.blocks_of(config)
        rates = {"h": config.zoneout}
        self.zoneout = tuple(
            0.0 if part in self.passing else rates.get(part, config.zoneout_memory)
            for part in self.parts
        )
        self.zones_out = any(self.zoneout)

    @classmethod
    def require_suits(cls, config: Any) -> None:
        """Check that a configuration has no regulariser that this cell does not support.

        Raises:
            UsageError: names the setting.
        """
        require(
            cls.has_update or not config.update_dropout,
            "update_dropout needs a cell with an update vector, such as lstm or gru",
        )
        for name in ("state_dropout", "weight_drop"):
            require(
                cls.reads_past or not getattr(config, name),
                f"{name} needs a cell whose matrices read the past, such as lstm or gru",
            )
        require(
            "h" not in cls.passing or not config.zoneout,
            "zoneout needs a cell that reads its output back; this one has zoneout_memory",
        )
        require(
            not cls.reads_itself or config.norms != "input",
            "batch_norm_at=input needs a cell that reads only products of its input, such as lstm",
        )
        require(
            len(cls.parts) > 1 or not config.zoneout_memory,
            "zoneout_memory needs a cell with a memory besides its output, such as lstm",
        )

    @classmethod
    def blocks_of(cls, config: Any) -> int:
        """Count the blocks G of the input product W_x x + b."""
        return cls.inputs

    @classmethod
    def widths(cls, config: Any) -> tuple[int, ...]:
        """Compute the width of each part of the state; the first is the output h."""
        return (config.output_size, *(config.hidden_size,) * (len(cls.parts) - 1))

    def parameters(self) -> dict[str, Parameter]:
        """Declare all parameters, in the order of a stored model."""
        of_input = self.matrix(self.blocks, self.input_size, GLOROT)
        return {"weight_ih": of_input, **self.recurrent(), "bias": self.biases(), **self.more()}

    def recurrent(self) -> dict[str, Parameter]:
        """Declare the recurrent matrices; by default one, with as many blocks as the input."""
        return {"weight_hh": self.matrix(self.blocks, self.sizes[0], ORTHOGONAL)}

    def biases(self) -> Parameter:
        """Declare the biases of the input product, by block."""
        return self.vector(*[0.0] * self.blocks)

    def more(self) -> dict[str, Parameter]:
        """Declare further parameters of the cell, such as peepholes and gains."""
        return {}

    def matrix(self, blocks: int, columns: int, begin: Any, gain: float = 1.0) -> Parameter:
        """Declare a matrix of stacked maps to H units, each initialized separately."""
        maps = (self.hidden_size,) * blocks
        return Parameter((sum(maps), columns), begin, maps, gain)

    def vector(self, *begins: float) -> Parameter:
        """Declare a vector of blocks of H units, each initialized to a constant."""
        return Parameter((len(begins) * self.hidden_size,), begins)

    def map_to_width(self, input_size: int, size: int) -> dict[str, Parameter]:
        """Declare the projection of a directly used input to `size`; none if it fits."""
        known = input_size == size
        return {} if known else {"weight_in": Parameter((size, input_size), GLOROT, (size,))}

    def matrix_to_width(self, ops: Ops, p: Any, size: int) -> Leaf:
        """Return the matrix of `map_to_width`, or the identity if the input fits."""
        known = getattr(p, "weight_in", None)
        return ops.eye(p.bias, size) if known is None else known

    def map_of_input(self, ops: Ops, p: Any) -> tuple[Leaf, Leaf]:
        """Return the weight W_x (N, E) and bias b (N,) of the input product W_x x + b."""
        return p.weight_ih, p.bias

    def read_input(self, ops: Ops, p: Any, x: Leaf, linear: Linear) -> Leaf:
        """Compute the input product W_x x + b (..., N) for x (..., E)."""
        return linear(x, *self.map_of_input(ops, p))

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        """Return the recurrent maps in `w` by name: a matrix, and a bias or None."""
        return {"hh": (p.weight_hh, None)}

    def vectors(self, ops: Ops, p: Any) -> dict[str, Leaf]:
        """Return the parameters that `w` contains unchanged, such as gains and peepholes."""
        return {}

    @abstractmethod
    def __call__(self, ops: Ops, w: Any, x: Leaf, *state: Leaf) -> Parts:
        """Take one step: what the parts are after it.

        Args:
            ops: the operations, over tensors or over arrays.
            w: the maps of the past: `w.hh(h)` is W_hh h, and `w.hh(h, x)` is x + W_hh h.
            x: W_x x + b, (B, G H), by `map_of_input`; `ops.split(x, 1, 1)` cuts it in two.
            state: the parts before, (B, H) each, which must not be changed in place.
        """

    def expected(self, old: Parts, new: Parts) -> Parts:
        """Apply the expectation of zoneout to a step in evaluation.

        part_t = d * part_{t-1} + (1 - d) * part'_t, where training draws d for each unit, and d
        is the rate here (Krueger et al. 2017).

        Args:
            old: the parts before.
            new: what the equation made of them.
        """
        if not self.zones_out:
            return new
        return tuple(
            now + rate * (before - now) if rate else now
            for rate, before, now in zip(self.zoneout, old, new, strict=True)
        )

    def slope(self, h: Leaf) -> Leaf | None:
        """Compute phi'(a) from h = phi(a), for cells of the form phi(W_hh h + ...).

        Args:
            h: the layer's output, of any shape.

        Returns:
            The derivative at each unit; None where a step is more than that.
        """
        return None

    def fits_kernel(self, noise: Any) -> bool:
        """Check whether `fast_sequence` supports the noise of a call."""
        return noise.weights_alone

    def fast_sequence(
        self, cell: Any, x: Leaf, state: Parts, noise: Any
    ) -> tuple[Leaf, Parts] | None:
        """Run a whole sequence by a fast kernel; None to fall back to `Cell.loop`.

        Args:
            cell: the `Cell` of this equation, with its weights.
            x: (B, T, E).
            state: the parts before.
            noise: what is dropped, a `Noise`.
        """
        return None


def scale_and_shift(p: Any) -> tuple[Leaf, Leaf]:
    """Compute scale (H,) and shift (H,) of batch normalisation in evaluation.

    They follow from the running mean and variance, over arrays or tensors; see `BatchNorm`.

    Args:
        p: weight, running_mean and running_var, (H,) each, and a bias (H,) or none.
    """
    scale = p.weight / (p.running_var + EPS) ** 0.5
    shift, bias = -p.running_mean * scale, getattr(p, "bias", None)
    return scale, shift if bias is None else shift + bias
