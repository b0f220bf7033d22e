"""Hawk against its equations in NumPy, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from architectures import Case, ids

from seqgen.engines.parts import NestedPart
from seqgen.errors import UsageError
from seqgen.plugins.more_cells.hawk.equations import DECAYS, LEAST, RGLRU
from seqgen.plugins.more_cells.hawk.model import Hawk
from seqgen.plugins.more_cells.hawk.settings import HawkConfig


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


class Transcription:
    """The model as De et al. (2024) write it down, one token of one row after the other."""

    def __init__(self, model):
        self.w = {name: p.detach().numpy() for name, p in model.named_parameters()}
        self.config = config = model.config
        self.read = [np.zeros((config.conv_width - 1, config.width)) for _ in model.blocks]
        self.h = [np.zeros(config.width) for _ in model.blocks]

    def linear(self, name, x):
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def unit(self, layer, x):
        r, i = np.split(sigmoid(self.linear(f"blocks.{layer}.recurrence.unit.gates", x)), 2)
        a = sigmoid(self.w[f"blocks.{layer}.recurrence.unit.decay"]) ** (8 * r)
        self.h[layer] = a * self.h[layer] + np.sqrt(np.maximum(1 - a * a, LEAST)) * i * x
        return self.h[layer]

    def block(self, layer, x):
        at = f"blocks.{layer}."
        y = rms_norm(x, self.w[at + "recurrence_norm.weight"])
        gate, v = np.split(self.linear(at + "recurrence.inner", y), 2)
        seen = np.vstack([self.read[layer], v])  # (W, D), the newest last
        self.read[layer] = seen[1:]
        filters = self.w[at + "recurrence.filters"][:, 0]
        mixed = (filters * seen).sum(0) + self.w[at + "recurrence.shift"]
        x = x + self.linear(at + "recurrence.output", gelu(gate) * self.unit(layer, mixed))
        y = rms_norm(x, self.w[at + "feed_forward_norm.weight"])
        gate, up = np.split(self.linear(at + "feed_forward.inner", y), 2)
        return x + self.linear(at + "feed_forward.output", gelu(gate) * up)

    def __call__(self, token):
        x = self.w["embedding.weight"][token]
        for layer in range(self.config.num_layers):
            x = self.block(layer, x)
        return self.w["head.weight"] @ rms_norm(x, self.w["final_norm.weight"])


@pytest.mark.parametrize("settings", [{}, {"recurrent_size": 5, "conv_width": 2}])
def test_it_is_the_papers_equations(settings):
    model = Case("hawk", "paper", settings).loud()
    text = ids(2, 17)
    with torch.no_grad():
        logits, _ = model(text)
    for row, tokens in enumerate(text.tolist()):
        one = Transcription(model)
        expected = [one(token) for token in tokens]
        np.testing.assert_allclose(logits[row], expected, rtol=1e-10, atol=1e-12)


def test_gradients_through_the_scan():
    torch.manual_seed(0)
    unit = NestedPart(RGLRU, 3).module().double()
    x, h = torch.randn(2, 5, 3).double(), torch.randn(2, 3).double()
    x.requires_grad_()
    h.requires_grad_()
    parameters = list(unit.parameters())
    assert torch.autograd.gradcheck(lambda *_: unit(x, h), (x, h, *parameters))


def test_the_gradient_is_finite_where_nothing_is_let_in():
    """A closed gate makes a = 1, where the root of 1 - a^2 has an infinite gradient."""
    unit = NestedPart(RGLRU, 2).module()
    with torch.no_grad():
        unit.gates.weight.zero_()
        unit.gates.bias.fill_(-200.0)
    unit(torch.ones(1, 4, 2), torch.zeros(1, 2)).sum().backward()
    assert all(p.grad.isfinite().all() for p in unit.parameters())


def test_decays_begin_between_their_bounds():
    decays = torch.sigmoid(NestedPart(RGLRU, 4000).module().decay) ** 8
    assert DECAYS[0] <= decays.min() < DECAYS[0] + 0.01
    assert DECAYS[1] - 0.01 < decays.max() <= DECAYS[1]


def test_the_filters_are_no_matrices_to_an_optimiser():
    """Muon would make their four rows orthogonal, which are weights of units side by side."""
    model = Hawk(HawkConfig(vocab_size=5, hidden_size=8))
    assert [p.ndim for name, p in model.named_parameters() if name.endswith("filters")] == [3, 3]


def test_wrong_settings():
    for wrong in ({"conv_width": 0}, {"recurrent_size": 0}, {"dropout": 1}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            HawkConfig(vocab_size=3, **wrong)
