"""What training computes by hand or in bf16, against torch in float32 and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck

from seqgen.engines import arrays, precision, tensor_products
from seqgen.engines.fast_layers import Normalisation, RMSNorm
from seqgen.engines.precision import choose_precision, step_arithmetic
from seqgen.models.recurrent.bptt import GRURecurrence
from seqgen.models.recurrent.cell import Cell
from seqgen.models.recurrent.cells.gru import GRUConfig
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.cells.rnn import RNNConfig
from seqgen.models.transformer.attention import causal_attention
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.training.optimizers import Muon

B, T, E, H = 3, 7, 5, 16
CPU = torch.device("cpu")
LAYERS = {
    "tanh": (RNNConfig(vocab_size=2, hidden_size=H), nn.RNN),
    "relu": (RNNConfig(vocab_size=2, hidden_size=H, activation="relu"), nn.RNN),
    "gru": (GRUConfig(vocab_size=2, hidden_size=H), nn.GRU),
    "lstm": (LSTMConfig(vocab_size=2, hidden_size=H), nn.LSTM),
}
# bf16 has 8 bits: a rounding is within 2^-8 of its value, and here some dozen follow another.
BF16 = 0.06


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def as_torch_has_it(name, layer):
    """Return torch's module with the layer's weights."""
    options = {"nonlinearity": name} if name in ("tanh", "relu") else {}
    module = LAYERS[name][1](E, H, batch_first=True, **options)
    bias_hh = torch.zeros_like(layer.bias)
    if name == "gru":
        bias_hh[2 * H :] = layer.bias_hn
    weights = (layer.weight_ih, layer.weight_hh, layer.bias, bias_hh)
    with torch.no_grad():
        for own, theirs in zip(module.parameters(), weights, strict=True):
            own.copy_(theirs)
    return module


def relative_error(got, wanted):
    return ((got.float() - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bf16", [False, True])
def test_a_layer_and_its_gradients_are_those_of_torch(name, bf16):
    torch.manual_seed(0)
    config, _ = LAYERS[name]
    layer = Cell(E, config)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.3)
    module = as_torch_has_it(name, layer)
    x, start = torch.randn(B, T, E), torch.randn(len(config.equation.parts), B, H)
    towards = torch.randn(B, T, H)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    begin = start.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        y, after = layer.sequence(mine, tuple(begin))
    ends = sum((part * 0.7).sum() for part in after)
    ((y.float() * towards).sum() + ends).backward()

    begun = start.clone().requires_grad_()
    past = tuple(part[None] for part in begun) if name == "lstm" else begun[:1]
    wanted, last = module(theirs, past)
    last = last if name == "lstm" else (last,)
    ((wanted * towards).sum() + sum((part * 0.7).sum() for part in last)).backward()

    weight_ih, weight_hh, bias, bias_hh = (p.grad for p in module.parameters())
    pairs = [
        (y, wanted),
        (mine.grad, theirs.grad),
        (begin.grad, begun.grad),
        (layer.weight_ih.grad, weight_ih),
        (layer.weight_hh.grad, weight_hh),
        (layer.bias.grad, bias),
        *((got, whole[0]) for got, whole in zip(after, last, strict=True)),
    ]
    if name == "gru":
        pairs.append((layer.bias_hn.grad, bias_hh[2 * H :]))
    for got, expected in pairs:
        if bf16:
            assert relative_error(got, expected) < BF16
        else:
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("some", arrays.SOME_ROWS)
@pytest.mark.parametrize("one", arrays.ONE_ROW)
@pytest.mark.parametrize("rows", [1, 3])
def test_an_affine_map_over_arrays_within_inference_mode_and_outside(
    rows, one, some, dtype, biased, monkeypatch
):
    if some == "packed" and not tensor_products.has_packed():
        pytest.skip("this build of torch has no packed weights")
    monkeypatch.setattr(arrays._Settings, "products", arrays.Products(one, some))
    weight, bias, x = (torch.randn(*shape, dtype=dtype) for shape in ((6, 5), (6,), (rows, 5)))
    bias = bias if biased else None
    wanted = [F.linear(n * x, weight, bias).numpy() for n in (1, 2)]
    with torch.inference_mode():
        affine = arrays.Affine(weight.numpy(), None if bias is None else bias.numpy())
        first = affine(x.numpy())
    again = affine(2 * x.numpy())
    np.testing.assert_allclose(first, wanted[0], rtol=1e-5, atol=1e-6)  # and not written over
    np.testing.assert_allclose(again, wanted[1], rtol=1e-5, atol=1e-6)


def test_gradients_of_the_gru():
    torch.manual_seed(1)
    inputs = (random(4, 2, 9), random(9, 3), random(9), random(2, 3))
    assert gradcheck(GRURecurrence.apply, inputs)


def test_gradients_of_normalisation():
    torch.manual_seed(1)
    assert gradcheck(lambda x, w: Normalisation.apply(x, w, 1e-3), (random(2, 3, 4), random(4)))


def test_normalisation_is_that_of_torch():
    torch.manual_seed(1)
    mine, theirs = RMSNorm(8, eps=1e-5), nn.RMSNorm(8, eps=1e-5)
    with torch.no_grad():
        mine.weight.normal_()
        theirs.load_state_dict(mine.state_dict())
    x, towards = torch.randn(2, 5, 3, 8).transpose(1, 2), torch.randn(2, 3, 5, 8)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    for norm, given in ((mine, one), (theirs, other)):
        (norm(given) * towards).sum().backward()
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine.weight.grad, theirs.weight.grad, rtol=1e-5, atol=1e-5)
    halves = mine(x.bfloat16().requires_grad_())
    assert halves.dtype == torch.float32
    assert relative_error(halves.detach(), theirs(x).detach()) < BF16


def test_attention_in_bf16_is_attention():
    torch.manual_seed(2)
    inputs = [torch.randn(2, 3, 9, 8, requires_grad=True) for _ in range(3)]
    towards = torch.randn(2, 3, 9, 8)
    wanted = F.scaled_dot_product_attention(*inputs, is_causal=True)
    wanted_grads = torch.autograd.grad((wanted * towards).sum(), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        got = causal_attention(*inputs)
    assert got.dtype == torch.bfloat16
    grads = torch.autograd.grad((got.float() * towards).sum(), inputs)
    for one, other in zip((got, *grads), (wanted, *wanted_grads), strict=True):
        assert relative_error(one, other) < BF16
    # The first position sees itself alone.
    torch.testing.assert_close(got[:, :, 0], inputs[2][:, :, 0].bfloat16())


def test_muon_in_bf16_is_muon():
    torch.manual_seed(3)
    first = torch.randn(24, 8)
    exact, quick = (nn.Parameter(first.clone()) for _ in range(2))
    exact.grad = quick.grad = torch.randn(24, 8)
    Muon([exact], {exact: (8, 8, 8)}, lr=0.1).step()
    Muon([quick], {quick: (8, 8, 8)}, lr=0.1, product_type=torch.bfloat16).step()
    assert quick.dtype == torch.float32
    assert relative_error((quick - first).detach(), (exact - first).detach()) < BF16


@pytest.mark.parametrize(
    ("config", "batch_size", "seq_len", "wanted"),
    [
        (RNNConfig(vocab_size=65, hidden_size=64), 1, 50, "float32"),
        (RNNConfig(vocab_size=65, hidden_size=256), 32, 64, "auto"),
        (GRUConfig(vocab_size=65, hidden_size=64), 32, 64, "float32"),
        (LSTMConfig(vocab_size=65, hidden_size=256), 1, 50, "float32"),
        (LSTMConfig(vocab_size=65, hidden_size=64), 32, 64, "auto"),
        (TransformerConfig(vocab_size=65, window=16, hidden_size=32), 4, 16, "float32"),
        (TransformerConfig(vocab_size=65, window=128), 8, 128, "auto"),
    ],
)
def test_large_models_are_tried_in_bf16_and_small_ones_are_not(
    config, batch_size, seq_len, wanted, monkeypatch
):
    monkeypatch.setattr(precision, "_may_have_bf16", lambda: True)
    large = config.suits_bf16(batch_size, seq_len)
    for has_bf16, expected in ((True, wanted), (False, "float32")):
        monkeypatch.setattr(precision, "_may_have_bf16", lambda has=has_bf16: has)
        assert choose_precision("auto", CPU, large) == expected
    assert choose_precision("bf16", CPU, large) == "bf16"
    for capability, on_gpu in (((7, 5), "float32"), ((8, 0), "bf16"), ((9, 0), "bf16")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert choose_precision("auto", torch.device("cuda"), large) == on_gpu


def test_long_windows_hold_no_matrix_of_weights(monkeypatch):
    monkeypatch.setattr("seqgen.models.transformer.attention.LONGEST_DENSE", 8)
    monkeypatch.setattr(torch, "baddbmm", lambda *a, **k: pytest.fail("made the whole matrix"))
    x = torch.randn(1, 1, 9, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert math.isfinite(causal_attention(x, x, x).sum().item())


@pytest.mark.parametrize(("asked", "within"), [("bf16", True), ("float32", False)])
def test_a_gpus_kernels_are_less_than_float32_only_in_a_step_in_bf16(monkeypatch, asked, within):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with step_arithmetic(asked, torch.device("cuda")):
        assert torch.backends.cudnn.allow_tf32 is within
    assert torch.backends.cudnn.allow_tf32 is False


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
def test_attention_over_arrays_is_the_softmax_written_out(length, at_once, monkeypatch):
    """Four heads of queries read two of keys; rows begin at different places."""
    monkeypatch.setattr(arrays, "WEIGHTS_AT_ONCE", at_once)
    draw = np.random.default_rng(0)
    q, (keys, values) = draw.normal(size=(5, 4, length, 4)), draw.normal(size=(2, 5, 2, 6, 4))
    first, place = draw.integers(0, 4, (5, 1, 1, 1)), np.arange(6 - length, 6)[:, None]
    seen = (np.arange(6) >= first) & (np.arange(6) <= place)  # (B, 1, T, n)
    weights = np.exp(np.einsum("bhtd,bhnd->bhtn", q, keys.repeat(2, 1)) / 2) * seen
    weights /= weights.sum(-1, keepdims=True)
    exact = np.einsum("bhtn,bhnd->bhtd", weights, values.repeat(2, 1))
    np.testing.assert_allclose(arrays.attend_to_past(q, keys, values, seen), exact, rtol=1e-12)
