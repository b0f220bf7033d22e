"""The cells of the plugin against the equations of their papers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from architectures import VOCAB, Case, ids
from paper_cells import EXACT, B, H, PaperCells, T, blocks, sigma

from seqgen import hooks, registry
from seqgen.errors import UsageError
from seqgen.plugins.more_cells.scan import linear_scan

CASES = PaperCells()
paper = CASES.paper


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


@paper("mlstm", "mlstm")
def mlstm(p, x, h, c):
    w_m, w_i, w_f, w_g, w_o = blocks(p["weight_ih"], 5)
    b_m, b_i, b_f, b_g, b_o = blocks(p["bias"], 5)
    u_i, u_f, u_g, u_o = blocks(p["weight_mh"], 4)
    m = (w_m @ x + b_m) * (p["weight_hm"] @ h)
    i, f, o = (
        sigma(w @ x + u @ m + b) for w, u, b in ((w_i, u_i, b_i), (w_f, u_f, b_f), (w_o, u_o, b_o))
    )
    c = f * c + i * np.tanh(w_g @ x + u_g @ m + b_g)
    return o * np.tanh(c), c


@paper("rhn-1", "rhn", depth=1)
@paper("rhn-3", "rhn", depth=3)
def highways(p, x, s):
    for layer in range(1, 4):
        if layer > 1 and f"weight_hh_{layer}" not in p:
            return (s,)
        r_n, r_t = blocks(p["weight_hh" if layer == 1 else f"weight_hh_{layer}"], 2)
        b_n, b_t = blocks(p["bias" if layer == 1 else f"bias_{layer}"], 2)
        w_n, w_t = blocks(p["weight_ih"], 2)
        first = layer == 1
        new = np.tanh(w_n @ x * first + r_n @ s + b_n)
        t = sigma(w_t @ x * first + r_t @ s + b_t)
        s = new * t + s * (1 - t)
    return (s,)


@paper("mingru", "mingru")
def mingru(p, x, h):
    w_z, w_n = blocks(p["weight_ih"], 2)
    b_z, b_n = blocks(p["bias"], 2)
    z, a = sigma(w_z @ x + b_z), w_n @ x + b_n
    new = np.array([v + 0.5 if v >= 0 else sigma(v) for v in a])
    return ((1 - z) * h + z * new,)


@paper("mingru-linear", "mingru", positive=False)
def mingru_of_section_3(p, x, h):
    w_z, w_n = blocks(p["weight_ih"], 2)
    b_z, b_n = blocks(p["bias"], 2)
    z = sigma(w_z @ x + b_z)
    return ((1 - z) * h + z * (w_n @ x + b_n),)


@paper("minlstm", "minlstm")
def minlstm(p, x, h):
    w_f, w_i, w_n = blocks(p["weight_ih"], 3)
    b_f, b_i, b_n = blocks(p["bias"], 3)
    f, i, a = sigma(w_f @ x + b_f), sigma(w_i @ x + b_i), w_n @ x + b_n
    new = np.array([v + 0.5 if v >= 0 else sigma(v) for v in a])
    return (f / (f + i) * h + i / (f + i) * new,)


def jordans(phi, mu):
    def equations(p, x, h, s):
        h = phi(p["weight_ih"] @ x + p["weight_hs"] @ s + p["bias"])
        e = np.exp(p["weight_out"] @ h + p["bias_out"])
        return h, mu * s + e / e.sum()

    return equations


paper("jordan", "jordan", decay=0.0)(jordans(np.tanh, 0.0))
paper("jordan-decay", "jordan", activation="sigmoid", decay=0.6)(jordans(sigma, 0.6))


@pytest.mark.parametrize("name", CASES)
def test_a_cell_is_the_equations_of_its_paper(name):
    CASES[name].check()


def test_every_cell_of_the_plugin_has_its_equations():
    (plugin,) = (one for one in hooks.plugins() if one.name == "more_cells")
    cells = {
        name for name in registry.architectures_of(plugin) if registry.ARCHITECTURES[name].is_cell
    }
    assert cells == {each.architecture for each in CASES.values()}


def test_forget_gates_of_both_dimensions_begin_open():
    bias = CASES["grid"].layer(random=False).bias.detach().view(8, H)
    assert bias[:, 0].tolist() == [0, 1, 0, 0, 0, 1, 0, 0] and torch.equal(
        bias[:, :1], bias[:, -1:]
    )


def test_the_update_gate_begins_open():
    assert CASES["ugrnn"].layer(random=False).bias.tolist() == [1.0] * H + [0.0] * H


def test_the_forget_gate_of_the_multiplicative_lstm_begins_open():
    bias = CASES["mlstm"].layer(random=False).bias
    assert bias.tolist() == [0.0] * 2 * H + [1.0] * H + [0.0] * 2 * H


def test_highways_begin_by_carrying_the_past():
    layer = CASES["rhn-3"].layer(random=False)
    for name in ("bias", "bias_2", "bias_3"):
        assert getattr(layer, name).tolist() == [0.0] * H + [-2.0] * H
    # 4 units, each of two maps: of the input once, of the past three times, and their biases.
    assert sum(p.numel() for p in layer.parameters()) == 2 * (4 * 3 + 3 * (4 * 4 + 4))


def test_the_forget_gate_of_the_minimal_lstm_begins_open():
    assert CASES["minlstm"].layer(random=False).bias.tolist() == [1.0] * H + [0.0] * 2 * H


@torch.no_grad()
def test_jordans_state_is_what_the_model_predicted():
    model = Case("jordan", "one", {"num_layers": 1, "decay": 0.0}).loud()
    logits, state = model(ids(B, T))
    h, s = state.layers[0]
    torch.testing.assert_close(s, logits[:, -1].softmax(-1), **EXACT)
    torch.testing.assert_close(model.head(h), logits[:, -1], **EXACT)
    assert model.layers[0].weight_out is model.head.weight
    assert s.shape == (B, model.vocab_size)


def test_jordans_layers_have_one_width_that_of_the_head():
    with pytest.raises(UsageError, match="leave last_size out"):
        Case("jordan", "wide", {"last_size": 5}).config()
    logits, _ = Case("jordan", "wide", {"last_size": 5, "num_layers": 1}).build()(ids(2, 3))
    assert logits.shape == (2, 3, VOCAB)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9, 10, 16, 17])
def test_a_scan_is_its_recurrence_and_so_are_its_gradients(length):
    torch.manual_seed(length)
    a, b = torch.randn(2, length, B, H, dtype=torch.float64).requires_grad_().unbind(0)
    first = torch.randn(B, H, dtype=torch.float64, requires_grad=True)
    wanted, h = [], first
    for a_t, b_t in zip(a, b, strict=True):
        h = a_t * h + b_t
        wanted.append(h)
    got, wanted = linear_scan(a, b, first), torch.stack(wanted)
    torch.testing.assert_close(got, wanted, **EXACT)
    grads = [torch.autograd.grad(y.sin().sum(), (a, b, first)) for y in (got, wanted)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)
