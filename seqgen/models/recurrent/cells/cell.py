"""The base class of recurrent cells: weights, the equation, and what follows from it."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.configs import require
from seqgen.models.dropout import Dropout, kept, scaled_mask
from seqgen.models.engines.arrays import Arrays, ArrayStep, input_map, input_map_of_ids
from seqgen.models.engines.onednn_linear import linear
from seqgen.models.engines.ops import ArrayOps, Ops
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.engines.tensor_products import as_array
from seqgen.models.recurrent.batch_norm import BatchNorm
from seqgen.models.recurrent.cells.noise import Noise, unchanged
from seqgen.models.recurrent.linear_maps import Maps, RowInput, over_arrays, over_loop, over_tensors

if TYPE_CHECKING:
    from seqgen.models.recurrent.config import RecurrentConfig

# The parts of a cell's state, each (B, its width); the output h is first.
LayerState = tuple[Tensor, ...]
# (cell, inputs (B, T, E), the parts before) to every h (B, T, H), and the parts after.
Watch = Callable[["Cell", Tensor, LayerState], tuple[Tensor, LayerState]]


class Cell(nn.Module):
    """A recurrent layer, whose file holds its equation once.

    The matrices of several gates are stacked: `weight_ih` (G H, E) with `bias` (G H,), and
    `weight_hh` (G H, H), in the order of torch's kernels if torch has the cell.

    Initialisation: input matrices uniform as Glorot and Bengio (2010) for each gate, recurrent
    matrices orthogonal for each gate (Saxe et al. 2014), biases zero.

    A cell defines `inputs` and `equation`, which shows its gates by name with `ops.show`. One with
    recurrent matrices of other shapes overrides `make_recurrent` and `maps_of_past`, one that
    reads its input in another way `map_of_input`, one whose settings change what it reads or
    hands on `blocks` and `widths`. It may have a faster form of a whole sequence,
    `fast_sequence`, of which the equation is then the oracle.

    What keeps a cell from overfitting stands around its equation: masks on what the maps of the
    past read, dropped weights (`noise`) and zoneout (`after`). An equation with an update vector,
    what is new in a step, passes it through `w.dropped` and says so by `has_update`.

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
        maps: for each matrix that is several maps below one another, the rows of each.
        input_norm: normalises W_x x, b added after it: W_hh h + BN(W_x x) + b is the form of
            Laurent et al. (2016), with b as the bias of the normalisation.
        watch: takes a sequence in the place of `sequence`, where each step is to be looked at.
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
    maps: dict[str, tuple[int, ...]]
    watch: Watch | None = None

    def __init__(self, input_size: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.hidden_size, self.maps = config.hidden_size, {}
        self.sizes, blocks = self.widths(config), self.blocks(config)
        self.weight_ih = self.stack("weight_ih", blocks, input_size, nn.init.xavier_uniform_)
        self.make_recurrent(config)
        self.bias = nn.Parameter(torch.zeros(blocks * self.hidden_size))
        self.input_norm = BatchNorm(len(self.bias), False) if config.norms == "input" else None
        self.regular = config
        self.zoneout = tuple(
            0.0
            if part in self.passing
            else config.zoneout
            if part == "h"
            else config.zoneout_memory
            for part in self.parts
        )
        self.zones_out = any(self.zoneout)

    @classmethod
    def require_suits(cls, config: RecurrentConfig) -> None:
        """Refuse settings of a regulariser that has nothing to act on in this cell.

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
            "zoneout_memory needs a cell with a memory beside its output, such as lstm",
        )

    @classmethod
    def blocks(cls, config: RecurrentConfig) -> int:
        """Return how many blocks G of W_x x + b there are."""
        return cls.inputs

    @classmethod
    def widths(cls, config: RecurrentConfig) -> tuple[int, ...]:
        """Return the width of each part; that of the first is the layer's output."""
        return (config.output_size, *(config.hidden_size,) * (len(cls.parts) - 1))

    def make_recurrent(self, config: RecurrentConfig) -> None:
        """Make the matrices that act on the past: here one, with as many blocks as the input's."""
        blocks = self.blocks(config)
        self.weight_hh = self.stack("weight_hh", blocks, self.sizes[0], nn.init.orthogonal_)

    def stack(self, name: str, blocks: int, columns: int, begin: Any) -> nn.Parameter:
        """Return a matrix of `blocks` maps to H units, each begun by `begin`, and declare them."""
        weight = nn.Parameter(torch.empty(blocks * self.hidden_size, columns))
        for block in weight.detach().chunk(blocks):
            begin(block)
        self.maps[name] = (self.hidden_size,) * blocks
        return weight

    def map_to_width(self, input_size: int, size: int) -> nn.Parameter | None:
        """Return a matrix for an input that is read as it is; None if it is `size` wide."""
        if input_size == size:
            return None
        return nn.Parameter(nn.init.xavier_uniform_(torch.empty(size, input_size)))

    def matrix_to_width(self, weight: Tensor | None, size: int) -> Tensor:
        """Return the matrix of `map_to_width`: the identity where the input is read as it is."""
        if weight is not None:
            return weight
        return torch.eye(size, dtype=self.bias.dtype, device=self.bias.device)

    def map_of_input(self) -> tuple[Tensor, Tensor]:
        """Return W_x (N, E) and b (N,): what the equation gets of an input is W_x x + b."""
        return self.weight_ih, self.bias

    def normed_map_of_input(self) -> tuple[Tensor, Tensor]:
        """Return W_x and b with the running statistics of `input_norm` in them."""
        weight, bias = self.map_of_input()
        if self.input_norm is None:
            return weight, bias
        scale, shift = self.input_norm.scale_and_shift()
        return weight * scale[:, None], bias + shift

    def read_input(self, x: Tensor) -> Tensor:
        """Return W_x x + b (..., N) of x (..., E): as `map_of_input` has it, normalised or not."""
        weight, bias = self.map_of_input()
        if self.input_norm is None:
            return linear(x, weight, bias)
        product = linear(x, weight, None)
        return (self.input_norm(product) + bias).to(product.dtype)

    def maps_of_past(self) -> Maps:
        """Return the maps that the equation finds in `w`: by name, a matrix and a bias or None."""
        return {"hh": (self.weight_hh, None)}

    def vectors(self) -> dict[str, Tensor]:
        """Return the parameters that the equation finds in `w` as they are: gains, peepholes."""
        return {}

    @abstractmethod
    def equation(self, ops: Ops, w: Any, x: Any, *state: Any) -> tuple[Any, ...]:
        """Take one step: what the parts are after it.

        Args:
            ops: the operations, over tensors or over arrays.
            w: the maps of the past: `w.hh(h)` is W_hh h, and `w.hh(h, x)` is x + W_hh h.
            x: W_x x + b, (B, G H), by `map_of_input`; `ops.split(x, 1, 1)` cuts it in two.
            state: the parts before, (B, H) each, which must not be changed in place.
        """

    def start(self, batch: int) -> LayerState:
        """Return the parts before the first step: zeros."""
        return tuple(self.bias.new_zeros(batch, size) for size in self.sizes)

    def noise(self, rows: int) -> Noise:
        """Draw what one training call drops in `rows` rows; in evaluation nothing."""
        maps, config = self.maps_of_past(), self.regular
        if not self.training:
            return Noise(maps, {})
        past, update, shared = {}, None, None
        of_past = [name for name in maps if name not in self.readouts]
        if config.weight_drop:
            for name in of_past:
                weight, bias = maps[name]
                mask = scaled_mask(weight.shape, config.weight_drop, weight, None)
                maps = {**maps, name: (weight * mask, bias)}
        if config.state_dropout:
            # Maps that read vectors of the same width read the same ones, gated or not.
            widths = {name: maps[name][0].shape[1] for name in of_past}
            distinct = dict.fromkeys(widths.values())
            masks = {n: scaled_mask((rows, n), config.state_dropout, self.bias) for n in distinct}
            past = {name: masks[width] for name, width in widths.items()}
        if config.update_dropout and config.variational:
            shared = scaled_mask((rows, self.hidden_size), config.update_dropout, self.bias)
        elif config.update_dropout:
            update = Dropout(config.update_dropout, rows=-2)  # (B, H), or (T, B, H)
        return Noise(maps, past, update, shared)

    def slope(self, h: Tensor) -> Tensor | None:
        """Return phi'(a) from h = phi(a), where a step is phi(W_hh h + ...) and nothing else.

        Args:
            h: the layer's output, of any shape.

        Returns:
            The derivative at each unit; None where a step is more than that.
        """
        return None

    def after(self, old: LayerState, new: LayerState) -> LayerState:
        """Zone out: return the parts after a step, some elements as before it.

        By Krueger et al. (2017),

        part_t = d * part_{t-1} + (1 - d) * part'_t, with d drawn in training and its expectation,
        the rate, in evaluation.

        Args:
            old: the parts before, tensors or arrays.
            new: what the equation made of them.
        """
        if not self.zones_out:
            return new
        parts = []
        for rate, before, now in zip(self.zoneout, old, new, strict=True):
            if rate and self.training:
                now = torch.where(kept(now.shape, rate, now) == 1, now, before.to(now.dtype))
            elif rate:
                now = now + rate * (before - now)
            parts.append(now)
        return tuple(parts)

    def step(self, x: Tensor, state: LayerState, noise: Noise | None = None) -> LayerState:
        """Take one step: x (B, E) and the parts to the next ones."""
        noise = noise or self.noise(x.shape[0])
        w = noise.into(over_tensors(noise.maps, self.vectors()))
        new = self.equation(TensorOps, w, self.read_input(x), *state)
        return self.after(state, new)

    def array_step(self, inputs: Tensor | None) -> ArrayStep:
        """Return `step` over NumPy arrays, for weights that do not change.

        Args:
            inputs: (V, E), the vectors that ids stand for, where the step is to take ids.
        """
        of_input = self.normed_map_of_input()
        arrays = map(as_array, of_input)
        if inputs is not None and inputs.is_sparse:
            product = input_map_of_ids(*arrays)
        else:
            product = input_map(*arrays, as_array(inputs))
        beside = of_input if inputs is None else None
        w = over_arrays(self.maps_of_past(), self.vectors(), beside)
        w.dropped = unchanged
        read = product if inputs is not None else functools.partial(RowInput, product)

        equation, zones_out = self.equation, self.zones_out

        def step(x: np.ndarray, state: Arrays) -> Arrays:
            new = equation(ArrayOps, w, read(x), *state)
            return self.after(state, new) if zones_out else new

        return step

    def sequence(
        self, x: Tensor, state: LayerState, noise: Noise | None = None
    ) -> tuple[Tensor, LayerState]:
        """Take a whole sequence: x (B, T, E) to every h (B, T, H), and the parts after it.

        Args:
            x: the inputs.
            state: the parts before.
            noise: what is dropped, where one training call takes several of these.
        """
        if self.watch is not None:
            return self.watch(self, x, state)
        noise = noise or self.noise(x.shape[0])
        fast = None
        if self.fits_kernel(noise) and not self.zones_out:
            fast = self.fast_sequence(x, state, noise)
        return fast or self.loop(x, state, noise)

    def fits_kernel(self, noise: Noise) -> bool:
        """Return whether `fast_sequence` can drop this."""
        return noise.weights_alone and self.input_norm is None

    def fast_sequence(
        self, x: Tensor, state: LayerState, noise: Noise
    ) -> tuple[Tensor, LayerState] | None:
        """Return what `loop` would, from something faster; None where there is nothing."""
        return None

    def loop(
        self, x: Tensor, state: LayerState, noise: Noise | None = None
    ) -> tuple[Tensor, LayerState]:
        """Take a whole sequence step by step; the input's product is made for all of it at once."""
        noise = noise or self.noise(x.shape[0])
        from_input = self.read_input(x.transpose(0, 1))  # (T, B, G H)
        w, steps, parts = over_loop(noise.maps, self.vectors(), from_input, state)
        w = noise.into(w)
        outputs = []
        for x_t in steps.unbind(0):
            parts = self.after(parts, self.equation(TensorOps, w, x_t, *parts))
            outputs.append(parts[0])
        after = tuple(part.to(old.dtype) for part, old in zip(parts, state, strict=True))
        return torch.stack(outputs, 1).to(from_input.dtype), after
