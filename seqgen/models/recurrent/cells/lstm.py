"""Long short-term memory (Hochreiter and Schmidhuber 1997), in its published forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.engines.ops import Leaf, Ops
from seqgen.models.recurrent.cells.equation import GLOROT, Equation, Maps, Parameter, Parts
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import OptionRule, look_up_ratio, ranges, setting

# Below the first ratio (`ModelConfig.regularised`) a text is read so little that these settings
# learn it faster. From the second on the learning rate is doubled, and dropout is by these rows:
# found by runs on texts of 20 kB to 1 MB (docs/evidence/experiments.md).
FAST_BELOW, HIGH_RATE_FROM = 1, 7
FAST_SETTINGS = {"weight_decay": 0.1, "final_weight_decay": 0.0, "muon_momentum": 0.9}
DROPOUT_AT_HIGH_RATE = (
    (25, 0.05),
    (70, 0.1),
    (200, 0.2),
    (500, 0.4),
    (1500, 0.5),
    (math.inf, 0.6),
)


class LSTM(Equation):
    """LSTM cell, with blocks in the order i, f, g, o.

    i_t = sigma(W_xi x_t + W_hi h_{t-1} + b_i)
    f_t = sigma(W_xf x_t + W_hf h_{t-1} + b_f)
    g_t = tanh(W_xg x_t + W_hg h_{t-1} + b_g)
    o_t = sigma(W_xo x_t + W_ho h_{t-1} + b_o)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)

    The forms, by their settings:

    forget_gate=false          f_t = 1; in 1997 with 4 sigma - 2 and 2 sigma - 1 for the two tanh,
                               which is the same with twice the weights of g and twice the memory
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
        self.gates = config.gates  # asked for in every step

    @classmethod
    def blocks_of(cls, config: LSTMConfig) -> int:
        return len(config.gates) + 2

    def recurrent(self) -> dict[str, Parameter]:
        matrices, size = super().recurrent(), self.config.projection
        if size is not None:
            matrices["weight_hr"] = Parameter((size, self.hidden_size), GLOROT, (size,))
        return matrices

    def biases(self) -> Parameter:
        of_gates = [self.config.forget_bias * (name == "f") for name in self.gates]
        return self.vector(*of_gates, 0.0, 0.0)

    def more(self) -> dict[str, Parameter]:
        vectors = {}
        if self.config.peepholes:
            vectors["peephole"] = self.vector(*[0.0] * len(self.peeping))
        if self.config.layer_norm:
            gain = self.vector(*[1.0] * self.blocks)
            vectors |= {"gain_x": gain, "gain_h": gain}
            vectors |= {"gain_c": self.vector(1.0), "bias_c": self.vector(0.0)}
        return vectors

    @property
    def peeping(self) -> tuple[str, ...]:
        """Names of the gates that peepholes connect to the memory, in order."""
        return (*self.gates, "o")

    def map_of_input(self, ops: Ops, p: Any) -> tuple[Leaf, Leaf]:
        if self.config.layer_norm:  # the bias follows after it
            return p.weight_ih, ops.zeros(p.bias, len(p.bias))
        return super().map_of_input(ops, p)

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        maps = {"hh": (p.weight_hh, None)}
        return maps if self.config.projection is None else {**maps, "hr": (p.weight_hr, None)}

    def vectors(self, ops: Ops, p: Any) -> dict[str, Leaf]:
        weights = {}
        if self.config.peepholes:
            parts = ops.cut(p.peephole, *[1] * len(self.peeping))
            weights |= zip([f"p_{name}" for name in self.peeping], parts, strict=True)
        if self.config.layer_norm:
            names = "bias", "gain_x", "gain_h", "gain_c", "bias_c"
            weights |= {name: getattr(p, name) for name in names}
        return weights

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        form = self.config
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
        """Compute i and f, which read c_{t-1} by peepholes; g; and the input of gate o."""
        *gates, g, o = ops.split(total, *[1] * self.blocks)
        named = zip(self.gates, gates, strict=True)
        return [ops.sigmoid(a + getattr(w, f"p_{n}") * c) for n, a in named], ops.tanh(g), o

    def fast_sequence(
        self, cell: Any, x: Leaf, state: Parts, noise: Any
    ) -> tuple[Leaf, Parts] | None:
        if not self.config.plain:
            return None
        import torch

        from seqgen.engines.precision import kernel_arithmetic

        past = [part[None] for part in state]
        of_past, _ = noise.maps["hh"]
        weights = [cell.weight_ih, of_past, cell.bias, torch.zeros_like(cell.bias)]
        with kernel_arithmetic(x.device):
            y, h, c = torch.lstm(x, past, weights, True, 1, 0.0, cell.training, False, True)
        return y, (h[0], c[0])


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """Configuration of a stack of LSTM layers."""

    equation: ClassVar[type[Equation]] = LSTM

    # oneDNN's kernel keeps its weights in bf16 and its states in float32.
    bf16_pays_from: ClassVar[int] = 1 << 17

    forget_bias: float = setting(
        "Initial bias of the forget gate (Jozefowicz et al. 2015).", 1.0, ranges.SIGNED_TO_1000
    )
    forget_gate: bool = setting(
        "Have a forget gate (Gers et al. 2000); without it, this is the LSTM of 1997.", True
    )
    coupled: bool = setting(
        "Let the input gate be 1 minus the forget gate (Greff et al. 2017).",
        needs=OptionRule(("forget_gate=true",), "coupled=true needs forget_gate=true"),
    )
    peepholes: bool = setting(
        "Let each gate read its own unit's memory (Gers and Schmidhuber 2000)."
    )
    output_activation: Literal["tanh", "none"] = setting(
        "What the memory passes through before the output gate.", "tanh"
    )
    projection: int | None = setting(
        "Width of the output, mapped from the hidden size (Sak et al. 2014); by default no map.",
        bounds=ranges.WIDTHS,
    )
    layer_norm: bool = setting(
        "Normalise both products and the memory in each step (Ba et al. 2016)."
    )

    @classmethod
    def regularised(
        cls, overfitting_ratio: float, spelled: bool = False, rate_is_open: bool = False
    ) -> dict[str, Any]:
        """Choose dropout and other regularisers by the overfitting ratio.

        Of characters, a high learning rate is one of them, so that less dropout is best. Where
        overfitting is no danger, the output layer learns faster.
        """
        if not spelled or not rate_is_open:
            return super().regularised(overfitting_ratio, spelled, rate_is_open)
        if overfitting_ratio < FAST_BELOW:
            return {"dropout": 0.0, "head_factor": 4.0, **FAST_SETTINGS}
        if overfitting_ratio < HIGH_RATE_FROM:
            return {"dropout": 0.0, "head_factor": 2.0}
        dropout = look_up_ratio(DROPOUT_AT_HIGH_RATE, overfitting_ratio)
        return {"dropout": dropout, "lr": 2 * cls.recipe["lr"]}

    @property
    def output_size(self) -> int:
        return self.projection or self.hidden_size

    @property
    def gates(self) -> tuple[str, ...]:
        """Gates of the memory in order: i and f; one of them if coupled or without forget gate."""
        return ("i",) * (not self.coupled) + ("f",) * self.forget_gate

    @property
    def plain(self) -> bool:
        """Whether the cell is the standard LSTM that fast kernels implement."""
        more = self.peepholes or self.layer_norm or self.projection is not None
        return len(self.gates) == 2 and self.output_activation == "tanh" and not more
