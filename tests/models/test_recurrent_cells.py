"""Each recurrent cell against the equations of its paper, transcribed in NumPy a row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from architectures import RECURRENT
from helpers_cli import known_architectures
from paper_cells import B, H, PaperCells, T, V, blocks, sigma

from seqgen import registry
from seqgen.errors import UsageError
from seqgen.models.recurrent.cells.lstm import LSTMConfig

CASES = PaperCells()
paper = CASES.paper


# ---- without gates ----


@paper("rnn-sigmoid", "rnn", activation="sigmoid")
def elman(p, x, h):
    return (sigma(p["weight_ih"] @ x + p["weight_hh"] @ h + p["bias"]),)


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


def test_the_coupled_gate_begins_open_and_the_biases_of_1997_are_zero():
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
