"""Long short-term memory (Hochreiter and Schmidhuber 1997), in its published forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from seqgen.configs import by_ratio, ranges, require, setting
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.precision import kernel_arithmetic
from seqgen.models.recurrent.cells.cell import Cell, LayerState
from seqgen.models.recurrent.cells.noise import Noise
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.linear_maps import Maps
from seqgen.models.recurrent.model import RecurrentLM

# From this ratio on (`ModelConfig.regularised`) the learning rate is doubled, and dropout is by
# these rows: found by runs on texts of 20 kB to 1 MB (docs/recipes.md).
HIGH_RATE_FROM = 8
DROPOUT_AT_HIGH_RATE = (
    (25, 0.05),
    (70, 0.1),
    (200, 0.2),
    (500, 0.4),
    (1500, 0.5),
    (math.inf, 0.6),
)


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """A stack of LSTM layers."""

    # oneDNN's kernel keeps its weights in bf16 and its states in float32.
    bf16_pays_from: ClassVar[int] = 1 << 17

    forget_bias: float = setting(
        "Initial bias of the forget gate (Jozefowicz et al. 2015).", 1.0, ranges.SIGNED_TO_1000
    )
    forget_gate: bool = setting(
        "Have a forget gate (Gers et al. 2000); without it the cell is that of 1997.", True
    )
    coupled: bool = setting(
        "Let the input gate be 1 minus the forget gate (Greff et al. 2017).", False
    )
    peepholes: bool = setting(
        "Let each gate read its own unit's memory (Gers and Schmidhuber 2000).", False
    )
    output_activation: Literal["tanh", "none"] = setting(
        "What the memory passes through before the output gate.", "tanh"
    )
    projection: int | None = setting(
        "Width of the output, mapped from the hidden size (Sak et al. 2014); by default no map.",
        None,
        ranges.WIDTHS,
    )
    layer_norm: bool = setting(
        "Normalise both products and the memory in each step (Ba et al. 2016).", False
    )

    @classmethod
    def regularised(
        cls, overfitting_ratio: float, spelled: bool = False, rate_is_open: bool = False
    ) -> dict[str, Any]:
        """Return the settings that reduce overfitting.

        Of characters, a high learning rate is one of them, so that less dropout is best.
        """
        if not spelled or not rate_is_open or overfitting_ratio < HIGH_RATE_FROM:
            return super().regularised(overfitting_ratio, spelled, rate_is_open)
        dropout = by_ratio(DROPOUT_AT_HIGH_RATE, overfitting_ratio)
        return {"dropout": dropout, "lr": 2 * cls.recipe["lr"]}

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.forget_gate or not self.coupled, "coupled=true needs forget_gate=true")

    @property
    def output_size(self) -> int:
        return self.projection or self.hidden_size

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates of the memory, in order: i writes, f keeps."""
        return ("i",) * (not self.coupled) + ("f",) * self.forget_gate

    @property
    def plain(self) -> bool:
        """Whether the cell is the one that kernels have."""
        more = self.peepholes or self.layer_norm or self.projection is not None
        return len(self.gates) == 2 and self.output_activation == "tanh" and not more


class LSTMCell(Cell):
    """The cell, with blocks in the order i, f, g, o.

    i_t = sigma(W_xi x_t + W_hi h_{t-1} + b_i)
    f_t = sigma(W_xf x_t + W_hf h_{t-1} + b_f)
    g_t = tanh(W_xg x_t + W_hg h_{t-1} + b_g)
    o_t = sigma(W_xo x_t + W_ho h_{t-1} + b_o)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)

    The forms, by their settings:

    forget_gate=false          f_t = 1
    coupled=true               i_t = 1 - f_t
    peepholes=true             i_t, f_t and o_t also add p_i * c_{t-1}, p_f * c_{t-1}, p_o * c_t
    output_activation=none     h_t = o_t * c_t
    projection=P               h_t = W_r (o_t * tanh(c_t)), of P units
    layer_norm=true            LN(W_x x_t) + LN(W_h h_{t-1}) + b over all blocks together, with a
                               gain each, and h_t = o_t * tanh(LN(c_t)) with a gain and a bias
    """

    inputs = 4
    parts = "h", "c"
    has_update = True
    keeps = "f"
    readouts = frozenset({"hr"})

    def __init__(self, input_size: int, config: LSTMConfig) -> None:
        super().__init__(input_size, config)
        self.form, size = config, config.hidden_size
        self.gates = config.gates
        with torch.no_grad():
            for name, bias in zip(config.gates, self.bias.split(size), strict=False):
                bias.fill_(config.forget_bias if name == "f" else 0.0)
        if config.peepholes:
            self.peephole = nn.Parameter(torch.zeros((len(config.gates) + 1) * size))
        if config.layer_norm:
            self.gain_x, self.gain_h = (nn.Parameter(torch.ones_like(self.bias)) for _ in "xh")
            self.gain_c = nn.Parameter(torch.ones(size))
            self.bias_c = nn.Parameter(torch.zeros(size))

    @classmethod
    def blocks(cls, config: LSTMConfig) -> int:
        return len(config.gates) + 2

    def make_recurrent(self, config: LSTMConfig) -> None:
        super().make_recurrent(config)
        if config.projection is not None:
            weight = torch.empty(config.projection, config.hidden_size)
            self.weight_hr = nn.Parameter(nn.init.xavier_uniform_(weight))

    def map_of_input(self) -> tuple[Tensor, Tensor]:
        if self.form.layer_norm:  # the bias follows after it
            return self.weight_ih, torch.zeros_like(self.bias)
        return super().map_of_input()

    def maps_of_past(self) -> Maps:
        maps = {"hh": (self.weight_hh, None)}
        return maps if self.form.projection is None else {**maps, "hr": (self.weight_hr, None)}

    def vectors(self) -> dict[str, Tensor]:
        tensors = {}
        if self.form.peepholes:
            peepholes = self.peephole.split(self.hidden_size)
            tensors |= zip([f"p_{name}" for name in (*self.gates, "o")], peepholes, strict=True)
        if self.form.layer_norm:
            names = "bias", "gain_x", "gain_h", "gain_c", "bias_c"
            tensors |= {name: getattr(self, name) for name in names}
        return tensors

    def equation(self, ops: Ops, w: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        form = self.form
        if form.layer_norm:
            total = ops.layer_norm(x, w.gain_x, w.bias) + ops.layer_norm(w.hh(h), w.gain_h, None)
        else:
            total = w.hh(h, x)
        if form.peepholes:
            gates, g, o = self._peeping(ops, w, total, c)
        else:
            sigmoids = (ops.sigmoid,) * len(self.gates)
            *gates, g, o = ops.gates(total, *sigmoids, ops.tanh, ops.sigmoid)
        g = w.dropped(g)
        if len(gates) == 2:
            i, f = gates
            ops.show(i=i, f=f)
            c = f * c + i * g
        else:  # coupled, or of 1997
            ops.show(**{self.gates[0]: gates[0]})
            c = g + gates[0] * (c - g) if form.coupled else c + gates[0] * g
        if form.peepholes:
            o = ops.sigmoid(o + w.p_o * c)
        ops.show(g=g, o=o)
        seen = ops.layer_norm(c, w.gain_c, w.bias_c) if form.layer_norm else c
        h = o * (ops.tanh(seen) if form.output_activation == "tanh" else seen)
        return (h if form.projection is None else w.hr(h)), c

    def _peeping(self, ops: Ops, w: Any, total: Any, c: Any) -> tuple[list[Any], Any, Any]:
        """Return the memory's gates, which read c_{t-1}; g; and what o adds p_o * c_t to."""
        *gates, g, o = ops.split(total, *[1] * self.blocks(self.form))
        named = zip(self.gates, gates, strict=True)
        return [ops.sigmoid(a + getattr(w, f"p_{n}") * c) for n, a in named], ops.tanh(g), o

    def fast_sequence(
        self, x: Tensor, state: LayerState, noise: Noise
    ) -> tuple[Tensor, LayerState] | None:
        if not self.form.plain:
            return None
        past = [part[None] for part in state]
        of_past, _ = noise.maps["hh"]
        weights = [self.weight_ih, of_past, self.bias, torch.zeros_like(self.bias)]
        with kernel_arithmetic(x.device):
            y, h, c = torch.lstm(x, past, weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class LSTM(RecurrentLM):
    """The registry's `lstm`."""

    cell = LSTMCell
