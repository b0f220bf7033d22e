"""The cells of the plugin against the equations of their papers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paper_cells import H, PaperCells, blocks, sigma

from seqgen import hooks, registry

CASES = PaperCells()
paper = CASES.paper


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


@paper("nas", "nas")
def nas(p, x, h, c):
    """The tree from its leaves to its root; an intermediate result is named by what it joins."""
    lie = 1, 3, 6, 8, 5, 7, 2, 4
    from_x = dict(zip(lie, blocks(p["weight_ih"] @ x + p["bias"], 8), strict=True))
    from_h = dict(zip(lie, blocks(p["weight_hh"] @ h, 8), strict=True))
    leaf = {k: sigma(from_x[k] + from_h[k]) for k in (1, 3, 6, 8)}
    leaf |= {k: np.tanh(from_x[k] + from_h[k]) for k in (5, 7)}
    leaf[2] = np.maximum(0, from_x[2] + from_h[2])
    leaf[4] = np.maximum(0, from_x[4] * from_h[4])
    join_12, join_34 = np.tanh(leaf[1] * leaf[2]), np.tanh(leaf[3] + leaf[4])
    join_56, join_78 = np.tanh(leaf[5] * leaf[6]), sigma(leaf[7] + leaf[8])
    c = np.tanh(join_12 + c) * join_34
    return np.tanh(c * np.tanh(join_56 + join_78)), c


@paper("grid", "grid")
@paper("grid-pair", "grid", width=2 * H)
def grid(p, x, up, h, m):
    """A block of the grid, its two LSTMs after one another (the paper's section 3.2)."""
    h_depth, m_depth = blocks(p["weight_in"] @ x if "weight_in" in p else x, 2)
    ends = []
    for dimension, memory in ((0, m), (1, m_depth)):
        w_d, u, b = (blocks(p[name], 2)[dimension] for name in ("weight_ih", "weight_hh", "bias"))
        i, f, g, o = blocks(w_d @ h_depth + u @ h + b, 4)
        memory = sigma(f) * memory + sigma(i) * np.tanh(g)
        ends.append((np.tanh(sigma(o) * memory), memory))  # equation 1: h' = tanh(g^o * m')
    (h, m), above = ends
    return np.concatenate(above), h, m


@pytest.mark.parametrize("name", CASES)
def test_a_cell_is_the_equations_of_its_paper(name):
    CASES[name].check()


def test_every_cell_of_the_plugin_has_its_equations():
    (plugin,) = (one for one in hooks.plugins() if one.name == "more_cells")
    assert {*registry.architectures_of(plugin)} == {each.architecture for each in CASES.values()}


def test_forget_gates_of_both_dimensions_begin_open():
    bias = CASES["grid"].layer(random=False).bias.detach().view(8, H)
    assert bias[:, 0].tolist() == [0, 1, 0, 0, 0, 1, 0, 0] and torch.equal(
        bias[:, :1], bias[:, -1:]
    )
