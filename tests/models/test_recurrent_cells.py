"""Each recurrent cell against the equations of its paper, transcribed in NumPy a row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from architectures import RECURRENT, VOCAB, Case, ids
from helpers_cli import known_architectures
from paper_cells import EXACT, B, H, PaperCells, T, V, blocks, sigma

from seqgen import registry
from seqgen.errors import UsageError
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.scan import linear_scan

CASES = PaperCells()
paper = CASES.paper


# ---- without gates ----


@paper("rnn-sigmoid", "rnn", activation="sigmoid")
def elman(p, x, h):
    return (sigma(p["weight_ih"] @ x + p["weight_hh"] @ h + p["bias"]),)


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


# ---- forms of the LSTM ----


def lstm_blocks(p, names):
    """Return W_x, W_h and b of each block."""
    both = (blocks(p[name], len(names)) for name in ("weight_ih", "weight_hh", "bias"))
    return [dict(zip(names, parts, strict=True)) for parts in both]


@paper("lstm-1997", "lstm", forget_gate=False)
def lstm_of_1997(p, x, h, c):
    """With the paper's g(x) = 4 sigma(x) - 2 and h(x) = 2 sigma(x) - 1 (its equations 4 and 5).

    Its g has twice the weights of ours, and its memory is twice as large.
    """
    w, u, b = lstm_blocks(p, "igo")
    i, g, o = (w[k] @ x + u[k] @ h + b[k] for k in "igo")
    s = 2 * c + sigma(i) * (4 * sigma(2 * g) - 2)
    return sigma(o) * (2 * sigma(s) - 1), s / 2


@paper("lstm-linear-output", "lstm", forget_gate=False, output_activation="none")
def lstm_without_output_activation(p, x, h, c):
    w, u, b = lstm_blocks(p, "igo")
    c = c + sigma(w["i"] @ x + u["i"] @ h + b["i"]) * np.tanh(w["g"] @ x + u["g"] @ h + b["g"])
    return sigma(w["o"] @ x + u["o"] @ h + b["o"]) * c, c


@paper("lstm-coupled", "lstm", coupled=True)
def lstm_coupled(p, x, h, c):
    w, u, b = lstm_blocks(p, "fgo")
    f, g, o = (w[k] @ x + u[k] @ h + b[k] for k in "fgo")
    c = sigma(f) * c + (1 - sigma(f)) * np.tanh(g)
    return sigma(o) * np.tanh(c), c


@paper("lstm-peepholes", "lstm", peepholes=True)
def lstm_with_peepholes(p, x, h, c):
    w, u, b = lstm_blocks(p, "ifgo")
    p_i, p_f, p_o = blocks(p["peephole"], 3)
    i = sigma(w["i"] @ x + u["i"] @ h + p_i * c + b["i"])
    f = sigma(w["f"] @ x + u["f"] @ h + p_f * c + b["f"])
    c = f * c + i * np.tanh(w["g"] @ x + u["g"] @ h + b["g"])
    return sigma(w["o"] @ x + u["o"] @ h + p_o * c + b["o"]) * np.tanh(c), c


@paper("lstm-projected", "lstm", projection=3)
def lstm_projected(p, x, r, c):
    w, u, b = lstm_blocks(p, "ifgo")
    i, f, g, o = (w[k] @ x + u[k] @ r + b[k] for k in "ifgo")
    c = sigma(f) * c + sigma(i) * np.tanh(g)
    return p["weight_hr"] @ (sigma(o) * np.tanh(c)), c


@paper("lstm-layer-norm", "lstm", layer_norm=True)
def lstm_normalised(p, x, h, c):
    def norm(z, gain, bias=0.0):
        return gain * (z - z.mean()) / np.sqrt(z.var() + 1e-5) + bias

    of_past, of_input = p["weight_hh"] @ h, p["weight_ih"] @ x
    total = norm(of_past, p["gain_h"]) + norm(of_input, p["gain_x"]) + p["bias"]
    i, f, g, o = blocks(total, 4)
    c = sigma(f) * c + sigma(i) * np.tanh(g)
    return sigma(o) * np.tanh(norm(c, p["gain_c"], p["bias_c"])), c


@paper("lstm-all", "lstm", coupled=True, peepholes=True, projection=2, layer_norm=True)
def lstm_in_all_forms(p, x, r, c):
    def norm(z, gain, bias=0.0):
        return gain * (z - z.mean()) / np.sqrt(z.var() + 1e-5) + bias

    past, new = norm(p["weight_hh"] @ r, p["gain_h"]), norm(p["weight_ih"] @ x, p["gain_x"])
    f, g, o = blocks(past + new + p["bias"], 3)
    p_f, p_o = blocks(p["peephole"], 2)
    f = sigma(f + p_f * c)
    c = f * c + (1 - f) * np.tanh(g)
    m = sigma(o + p_o * c) * np.tanh(norm(c, p["gain_c"], p["bias_c"]))
    return p["weight_hr"] @ m, c


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


# ---- linear in their past ----


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


# ---- other shapes ----


def jordans(phi, mu):
    def equations(p, x, h, s):
        h = phi(p["weight_ih"] @ x + p["weight_hs"] @ s + p["bias"])
        e = np.exp(p["weight_out"] @ h + p["bias_out"])
        return h, mu * s + e / e.sum()

    return equations


paper("jordan", "jordan", decay=0.0)(jordans(np.tanh, 0.0))
paper("jordan-decay", "jordan", activation="sigmoid", decay=0.6)(jordans(sigma, 0.6))


# ---- the comparison ----


def layer_of(name, random=True):
    """Return the layer of a form, with random parameters or as it begins."""
    return CASES[name].layer(random)


@pytest.mark.parametrize("name", CASES)
def test_a_cell_is_the_equations_of_its_paper(name):
    CASES[name].check()


def test_every_recurrent_architecture_of_the_core_has_its_equations():
    older = {"rnn", "gru", "lstm"}  # whose plain forms are in test_cells
    of_core = {name for name in RECURRENT if registry.architecture(name).plugin is None}
    assert of_core == older | {case.architecture for case in CASES.values()}


# ---- how a cell begins ----


def test_gates_begin_open_where_papers_have_them_so():
    assert layer_of("ugrnn", random=False).bias.tolist() == [1.0] * H + [0.0] * H
    coupled = layer_of("lstm-coupled", random=False)
    assert coupled.bias.tolist() == [1.0] * H + [0.0] * 2 * H
    assert not layer_of("lstm-1997", random=False).bias.any()


@pytest.mark.parametrize("name", ["lstm-peepholes", "lstm-projected", "lstm-layer-norm"])
def test_only_the_plain_lstm_is_the_kernels(name):
    layer = layer_of(name)
    x = torch.randn(B, T, 3, dtype=torch.float64)
    assert layer.equation.fast_sequence(layer, x, layer.start(B), layer.noise(B)) is None


def test_an_input_gate_needs_a_forget_gate_to_be_coupled_to():
    with pytest.raises(UsageError, match="coupled=true needs forget_gate=true"):
        LSTMConfig(vocab_size=V, forget_gate=False, coupled=True)


def test_tied_weights_need_embeddings_of_the_projections_width():
    with pytest.raises(UsageError, match="tie_weights needs embedding_size=3"):
        LSTMConfig(vocab_size=V, hidden_size=H, projection=3, tie_weights=True)
    LSTMConfig(vocab_size=V, hidden_size=H, projection=3, tie_weights=True, embedding_size=3)


def test_the_forget_gate_of_the_multiplicative_lstm_begins_open():
    assert (
        layer_of("mlstm", random=False).bias.tolist() == [0.0] * 2 * H + [1.0] * H + [0.0] * 2 * H
    )


def test_highways_begin_by_carrying_the_past():
    layer = layer_of("rhn-3", random=False)
    for name in ("bias", "bias_2", "bias_3"):
        assert getattr(layer, name).tolist() == [0.0] * H + [-2.0] * H
    # 4 units, each of two maps: of the input once, of the past three times, and their biases.
    assert sum(p.numel() for p in layer.parameters()) == 2 * (4 * 3 + 3 * (4 * 4 + 4))


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


def test_the_forget_gate_of_the_minimal_lstm_begins_open():
    assert layer_of("minlstm", random=False).bias.tolist() == [1.0] * H + [0.0] * 2 * H


@torch.no_grad()
def test_jordans_state_is_what_the_model_predicted():
    model = Case("jordan", "one", {"num_layers": 1, "decay": 0.0}).loud()
    logits, state = model(ids(B, T))
    h, s = state.layers[0]
    torch.testing.assert_close(s, logits[:, -1].softmax(-1), **EXACT)
    torch.testing.assert_close(model.head(h), logits[:, -1], **EXACT)
    assert model.layers[0].weight_out is model.head.weight
    assert s.shape == (B, model.vocab_size)


def test_a_cell_that_there_is_not_is_named_among_recurrent_architectures_only():
    for architecture in known_architectures(["seq2seq", "birnn"]):
        for wrong, hint in (("foo", ""), ("ngram", ""), ("lsmt", "; did you mean 'lstm'?")):
            row = registry.architecture(architecture)
            config = row.load_config()(cell=wrong, vocab_size=9)
            with pytest.raises(UsageError, match=r"^cell is a recurrent architecture") as refused:
                row.load_model()(config)
            said = str(refused.value)
            assert said.endswith(f", not {wrong}{hint}")
            listed = said.split("(")[1].split(")")[0].split(", ")
            assert {"rnn", "gru", "lstm"} <= set(listed)
            assert not {"ngram", "hmm", "transformer", "seq2seq", "window"} & set(listed)


def test_jordans_layers_have_one_width_that_of_the_head():
    with pytest.raises(UsageError, match="leave last_size out"):
        Case("jordan", "wide", {"last_size": 5}).config()
    logits, _ = Case("jordan", "wide", {"last_size": 5, "num_layers": 1}).build()(ids(2, 3))
    assert logits.shape == (2, 3, VOCAB)
