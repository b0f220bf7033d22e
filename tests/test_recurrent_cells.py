"""Each recurrent cell against the equations of its paper, transcribed in NumPy a row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqgen import registry
from seqgen.models.recurrent import RecurrentLM

H, V, B, T = 4, 5, 2, 5
EXACT = {"rtol": 0, "atol": 1e-12}


def sigma(x):
    return 1 / (1 + np.exp(-x))


def blocks(matrix, count):
    """Return the blocks of a matrix or a bias whose maps lie below one another."""
    return np.split(matrix, count)


# What each takes: the cell's parameters by name, one input x, the parts before; and gives those
# after. In the case of an architecture: its settings, the width E of the input, the equations.
CASES = {}


def paper(name, architecture, width=3, **settings):
    """Register the equations of an architecture, for one form of it."""

    def keep(equations):
        CASES[name] = architecture, settings, width, equations
        return equations

    return keep


# ---- gated cells ----


@paper("ugrnn", "ugrnn")
def ugrnn(p, x, h):
    (w_g, w_c), (u_g, u_c), (b_g, b_c) = (
        blocks(p[name], 2) for name in ("weight_ih", "weight_hh", "bias")
    )
    c = np.tanh(u_c @ h + w_c @ x + b_c)
    g = sigma(u_g @ h + w_g @ x + b_g)
    return (g * h + (1 - g) * c,)


@paper("mgu", "mgu")
def mgu(p, x, h):
    (w_f, w_n), (u_f, u_n), (b_f, b_n) = (
        blocks(p[name], 2) for name in ("weight_ih", "weight_hh", "bias")
    )
    f = sigma(w_f @ x + u_f @ h + b_f)
    new = np.tanh(w_n @ x + u_n @ (f * h) + b_n)
    return ((1 - f) * h + f * new,)


@paper("mut1-narrow", "mut1")
@paper("mut1", "mut1", width=H)
def mut1(p, x, h):
    (w_z, w_r), (b_z, b_r) = blocks(p["weight_ih"], 2), blocks(p["bias"], 2)
    u_r, u_n = blocks(p["weight_hh"], 2)
    z = sigma(w_z @ x + b_z)
    r = sigma(w_r @ x + u_r @ h + b_r)
    itself = p["weight_in"] @ x if "weight_in" in p else x
    return (np.tanh(u_n @ (r * h) + np.tanh(itself) + p["bias_n"]) * z + h * (1 - z),)


@paper("mut2-narrow", "mut2")
@paper("mut2", "mut2", width=H)
def mut2(p, x, h):
    (w_z, w_n), (b_z, b_n) = blocks(p["weight_ih"], 2), blocks(p["bias"], 2)
    u_z, u_r, u_n = blocks(p["weight_hh"], 3)
    z = sigma(w_z @ x + u_z @ h + b_z)
    itself = p["weight_in"] @ x if "weight_in" in p else x
    r = sigma(itself + u_r @ h + p["bias_r"])
    return (np.tanh(u_n @ (r * h) + w_n @ x + b_n) * z + h * (1 - z),)


@paper("mut3", "mut3")
def mut3(p, x, h):
    (w_z, w_r, w_n), (u_z, u_r, u_n), (b_z, b_r, b_n) = (
        blocks(p[name], 3) for name in ("weight_ih", "weight_hh", "bias")
    )
    z = sigma(w_z @ x + u_z @ np.tanh(h) + b_z)
    r = sigma(w_r @ x + u_r @ h + b_r)
    return (np.tanh(u_n @ (r * h) + w_n @ x + b_n) * z + h * (1 - z),)


# ---- the comparison ----


def layer_of(name, random=True):
    """Return a layer in float64, with random parameters or as it begins."""
    architecture, settings, width, _ = CASES[name]
    row = registry.architecture(architecture)
    config = row.load_config()(vocab_size=V, hidden_size=H, **settings)
    torch.manual_seed(0)
    layer = row.load_model().cell(width, config).double()
    if random:
        for parameter in layer.parameters():
            parameter.data.normal_(0, 0.7)
    return layer


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_cell_is_the_equations_of_its_paper(name):
    layer, (_, _, width, equations) = layer_of(name), CASES[name]
    p = {key: tensor.numpy() for key, tensor in layer.named_parameters()}
    x = torch.randn(B, T, width, dtype=torch.float64)
    start = tuple(torch.randn_like(part) for part in layer.start(B))
    outputs, after = layer.sequence(x, start)
    for row in range(B):
        state = tuple(part[row].numpy() for part in start)
        for t in range(T):
            state = equations(p, x[row, t].numpy(), *state)
            np.testing.assert_allclose(outputs[row, t], state[0], **EXACT)
        for got, wanted in zip(after, state, strict=True):
            np.testing.assert_allclose(got[row], wanted, **EXACT)


def test_every_recurrent_architecture_has_its_equations():
    rows = registry.ARCHITECTURES.values()
    recurrent = {row.name for row in rows if issubclass(row.load_model(), RecurrentLM)}
    older = {"rnn", "gru", "lstm"}  # whose plain forms are in test_cells
    assert recurrent <= older | {architecture for architecture, *_ in CASES.values()}


# ---- how a cell begins ----


def test_gates_begin_open_where_papers_have_them_so():
    assert layer_of("ugrnn", random=False).bias.tolist() == [1.0] * H + [0.0] * H
