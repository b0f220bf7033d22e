"""Recurrent layer as a torch module: equation, weights, regularization and fast kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqgen import ranks
from seqgen.engines.arrays import identity
from seqgen.engines.dropout import Dropout, apply_mask, keep_mask, rows_are_blank, scaled_mask
from seqgen.engines.fast_layers import linear
from seqgen.engines.tensor_ops import TensorOps
from seqgen.models.recurrent.cells.equation import (
    EPS,
    GLOROT,
    IDENTITY,
    Maps,
    Parameter,
    scale_and_shift,
)
from seqgen.models.recurrent.linear_maps import loop_maps, tensor_maps

if TYPE_CHECKING:
    from seqgen.models.recurrent.settings import RecurrentConfig

# The parts of a cell's state, each (B, its width); the output h is first.
LayerState = tuple[Tensor, ...]
# (cell, inputs (B, T, E), the parts before) to every h (B, T, H), and the parts after.
Watch = Callable[["Cell", Tensor, LayerState], tuple[Tensor, LayerState]]
# Cuts an update vector (B, H), or (T, B, H) of a linear cell.
Cut = Callable[[Any], Any]


@dataclass(frozen=True)
class Noise:
    """Dropout masks and dropped weights of a layer for one training call.

    Attributes:
        maps: of the past, some of their weights set to zero (Merity et al. 2018).
        past: for each of the maps by name that reads the past, its mask (B, I) on what it reads
            (Gal and Ghahramani 2016).
        update: drops elements of the update vector (Semeniuta et al. 2016): with a mask for the
            whole call, or with one a step; None where nothing is dropped.
        shared: the update's mask (B, H), if it is one for the whole call.
    """

    maps: Maps
    past: dict[str, Tensor]
    update: Cut | None = None
    shared: Tensor | None = None

    @property
    def weights_alone(self) -> bool:
        """Whether only weights are dropped, which fast kernels support."""
        return not self.past and not self.drops_updates

    @property
    def drops_updates(self) -> bool:
        """Whether dropout applies to the update vector, such as an LSTM's candidate."""
        return self.update is not None or self.shared is not None

    def rows(self, count: int) -> Noise:
        """Restrict the masks to the first rows."""
        past = {name: mask[:count] for name, mask in self.past.items()}
        shared = None if self.shared is None else self.shared[:count]
        return replace(self, past=past, shared=shared)

    def into(self, w: SimpleNamespace) -> SimpleNamespace:
        """Apply the masks to the maps `w`, and set `w.dropped` for update vectors."""
        for name, mask in self.past.items():
            setattr(w, name, masked_map(getattr(w, name), mask))
        w.dropped = self.update or identity
        if self.shared is not None:
            w.dropped = lambda g: apply_mask(g, self.shared)
        return w


def masked_map(map_: Callable[..., Tensor], mask: Tensor) -> Callable[..., Tensor]:
    """Wrap a map W h + b as W (h * mask) + b."""
    return lambda h, plus=None: map_(apply_mask(h, mask), plus)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation over rows and time: gain * (x - mean) / sqrt(variance + eps) + bias.

    In training they are those of the call, over its rows and time steps together; in evaluation
    the running ones, which are saved with the weights. A call of one row and one step has no
    variance, and uses the running ones too.

    Args:
        size: the number of features.
        has_bias: whether there is a bias; not where one is added anyway.
    """

    def __init__(self, size: int, has_bias: bool = True) -> None:
        super().__init__(size, eps=EPS)
        if not has_bias:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, T, H), or (B, H) of one time step."""
        rows = x.flatten(0, -2)
        if self.training and ranks.world_size() > 1:
            return self._over_all_ranks(rows).view_as(x)
        if self.training and len(rows) > 1:
            return super().forward(rows).view_as(x)
        scale, shift = scale_and_shift(self)
        return (x * scale + shift).to(x.dtype)

    def _over_all_ranks(self, rows: Tensor) -> Tensor:
        """Normalise rows (N, H) by mean and variance over all ranks."""
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        counts = wide.new_full((1,), 0.0 if rows_are_blank() else 1.0)
        n = ranks.all_sum_tensor(counts * len(rows))
        mean = ranks.all_sum_tensor(counts * wide.sum(0)) / n
        variance = ranks.all_sum_tensor(counts * (wide - mean).square().sum(0)) / n
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            unbiased = variance * n / (n - 1).clamp_min(1)
            self.running_var.lerp_(unbiased.to(self.running_var), self.momentum)
        normed = (wide - mean) / torch.sqrt(variance + self.eps) * self.weight
        return (normed if self.bias is None else normed + self.bias).to(rows.dtype)


class Cell(nn.Module):
    """Recurrent layer in torch, with the parameters that its equation declares.

    What keeps a cell from overfitting stands around the equation: masks on what the maps of the
    past read, dropped weights (`noise`) and zoneout (`after`). An equation with an update vector,
    what is new in a step, passes it through `w.dropped` and says so by `has_update`.

    Args:
        input_size: the width E of the input.
        config: which equation, and its settings.

    Attributes:
        equation: what a step does.
        maps: for each matrix that is several maps below one another, the rows of each.
        input_norm: normalises W_x x, b added after it: W_hh h + BN(W_x x) + b is the form of
            Laurent et al. (2016), with b as the bias of the normalisation.
        watch: takes a sequence in the place of `sequence`, where each step is to be looked at.
    """

    watch: Watch | None = None

    def __init__(self, input_size: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.equation, self.config = config.equation(input_size, config), config
        self.sizes, self.hidden_size = self.equation.sizes, config.hidden_size
        declared = self.equation.parameters()
        self.maps = {name: about.maps for name, about in declared.items() if about.maps}
        for name, about in declared.items():
            setattr(self, name, _begun(about))
        self.input_norm = BatchNorm(len(self.bias), False) if config.norms == "input" else None

    def read_input(self, x: Tensor) -> Tensor:
        """Compute W_x x + b (..., N) for x (..., E), with batch normalisation if there is any."""
        if self.input_norm is None:
            return self.equation.read_input(TensorOps, self, x, linear)
        weight, bias = self.equation.map_of_input(TensorOps, self)
        product = linear(x, weight, None)
        return (self.input_norm(product) + bias).to(product.dtype)

    def maps_of_past(self) -> Maps:
        """Return the recurrent weight matrices and biases; see `Equation.maps_of_past`."""
        return self.equation.maps_of_past(TensorOps, self)

    def vectors(self) -> dict[str, Tensor]:
        """Return the equation's gain and peephole vectors; see `Equation.vectors`."""
        return self.equation.vectors(TensorOps, self)

    def start(self, batch: int) -> LayerState:
        """Create the zero initial state."""
        return tuple(self.bias.new_zeros(batch, size) for size in self.sizes)

    def noise(self, rows: int) -> Noise:
        """Draw the dropout masks of one training call for `rows` rows; none in evaluation."""
        maps, config = self.maps_of_past(), self.config
        if not self.training:
            return Noise(maps, {})
        past, update, shared = {}, None, None
        of_past = [name for name in maps if name not in self.equation.readouts]
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

    def after(self, old: LayerState, new: LayerState) -> LayerState:
        """Apply zoneout to a step: keep random elements of the old state (Krueger et al. 2017).

        Args:
            old: the parts before.
            new: what the equation made of them.
        """
        if not (self.training and self.equation.zones_out):
            return self.equation.expected(old, new)
        return tuple(
            torch.where(keep_mask(now.shape, rate, now) == 1, now, before.to(now.dtype))
            if rate
            else now
            for rate, before, now in zip(self.equation.zoneout, old, new, strict=True)
        )

    def step(self, x: Tensor, state: LayerState, noise: Noise | None = None) -> LayerState:
        """Compute one time step from x (B, E) and the state."""
        noise = noise or self.noise(x.shape[0])
        w = noise.into(tensor_maps(noise.maps, self.vectors()))
        return self.after(state, self.equation(TensorOps, w, self.read_input(x), *state))

    def sequence(
        self, x: Tensor, state: LayerState, noise: Noise | None = None
    ) -> tuple[Tensor, LayerState]:
        """Run the layer over x (B, T, E); return every h (B, T, H) and the final state.

        Args:
            x: the inputs.
            state: the parts before.
            noise: what is dropped, where one training call takes several of these.
        """
        if self.watch is not None:
            return self.watch(self, x, state)
        noise, fast = noise or self.noise(x.shape[0]), None
        plain = self.input_norm is None and not self.equation.zones_out
        if plain and self.equation.fits_kernel(noise):
            fast = self.equation.fast_sequence(self, x, state, noise)
        return fast or self.loop(x, state, noise)

    def loop(
        self, x: Tensor, state: LayerState, noise: Noise | None = None
    ) -> tuple[Tensor, LayerState]:
        """Run the layer step by step, with the input's product computed for all steps at once."""
        noise = noise or self.noise(x.shape[0])
        from_input = self.read_input(x.transpose(0, 1))  # (T, B, G H)
        w, steps, parts = loop_maps(noise.maps, self.vectors(), from_input, state)
        w = noise.into(w)
        outputs = []
        for x_t in steps.unbind(0):
            parts = self.after(parts, self.equation(TensorOps, w, x_t, *parts))
            outputs.append(parts[0])
        after = tuple(part.to(old.dtype) for part, old in zip(parts, state, strict=True))
        return torch.stack(outputs, 1).to(from_input.dtype), after


def _begun(about: Parameter) -> nn.Parameter:
    """Create and initialize a parameter."""
    parameter = nn.Parameter(torch.empty(about.shape))
    with torch.no_grad():
        if isinstance(about.begin, str):
            begin = nn.init.xavier_uniform_ if about.begin == GLOROT else nn.init.orthogonal_
            for block in parameter.split(about.maps):
                begin(block)
            if about.begin == IDENTITY:  # drawn for nothing, so that one seed begins the rest alike
                nn.init.eye_(parameter)
        else:
            for block, number in zip(parameter.chunk(len(about.begin)), about.begin, strict=True):
                block.fill_(number)
        if about.gain != 1:
            parameter.mul_(about.gain)
    return parameter
