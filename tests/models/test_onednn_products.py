"""Training's products by oneDNN: the same sums and gradients as PyTorch's, and only where asked."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from architectures import RECURRENT, Case, ids
from helpers_cli import records
from places import STORED
from torch.nn import functional as F

from seqgen import store
from seqgen.engines import fast_layers
from seqgen.engines.arrays import Affine, Products, each_row_alone, use_products
from seqgen.engines.tensor_products import has_packed
from seqgen.models.recurrent import linear_maps
from seqgen.models.recurrent.linear_maps import loop_maps
from seqgen.store import torch_models

needs_onednn = pytest.mark.skipif(not has_packed(), reason="torch has no oneDNN here")


@pytest.fixture
def packed(monkeypatch):
    """Products as on a machine where oneDNN is faster, for matrices of every size."""
    monkeypatch.setattr(fast_layers, "LEAST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(fast_layers, "LEAST_OF_SEQUENCES", 1)
    use_products(Products(some="packed"))
    yield
    use_products(Products())


@pytest.fixture
def asked(monkeypatch):
    """The shapes that were asked of oneDNN."""
    shapes = []
    usual = fast_layers.product

    def product(x, weight, bias=None):
        shapes.append((tuple(x.shape), tuple(weight.shape)))
        return usual(x, weight, bias)

    for module in (fast_layers, linear_maps):
        monkeypatch.setattr(module, "product", product)
    return shapes


def gradients(model):
    """Return the loss of a training call over two windows, and every gradient."""
    torch.manual_seed(3)
    tokens = ids(3, 12)
    model.train()
    first, state = model(tokens[:, :6])
    second, _ = model(tokens[:, 6:], state)
    loss = first.logsumexp(-1).sum() + second.sin().sum()
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


@needs_onednn
@pytest.mark.parametrize("architecture", RECURRENT)
def test_a_training_call_is_the_same(architecture, packed, asked):
    case = Case(architecture, "products", {})
    ours = gradients(case.loud(torch.float32))
    assert asked or architecture in ("lstm", "grid")
    use_products(Products())
    theirs = gradients(case.loud(torch.float32))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("plus", [True, False])
def test_a_map_of_a_loop_has_the_gradients_of_its_sum(bias, plus, packed, asked):
    torch.manual_seed(0)
    weight, x = torch.randn(5, 4, requires_grad=True), torch.randn(3, 2, 5, requires_grad=True)
    b = torch.randn(5, requires_grad=True) if bias else None
    first = torch.randn(2, 4, requires_grad=True)

    def looped(call, x, h):
        total = 0
        for x_t in x:
            y = call(h, x_t) if plus else call(h) * x_t
            h = y[:, :4].tanh()
            total = total + y.sum()
        return total  # whose gradients are expanded, and lie nowhere in full

    w, begun, (h,) = loop_maps({"hh": (weight, b)}, {}, x, (first,))
    wanted = [weight, x, first, *([b] if bias else [])]
    got = torch.autograd.grad(looped(w.hh, begun, h), wanted)

    def plain(h, plus=None):
        y = F.linear(h, weight, b)
        return y if plus is None else y + plus

    assert asked
    theirs = torch.autograd.grad(looped(plain, x, first), wanted)
    torch.testing.assert_close(got, theirs, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_it_is_asked_only_where_it_is_faster_and_exact(packed, asked, monkeypatch):
    x, weight, bias = torch.randn(4, 3), torch.randn(5, 3), torch.randn(5)
    torch.testing.assert_close(fast_layers.linear(x, weight, bias), F.linear(x, weight, bias))
    assert asked == [((4, 3), (5, 3))]
    del asked[:]
    fast_layers.linear(x.double(), weight.double(), bias.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast_layers.linear(x, weight, bias)
    monkeypatch.setattr(fast_layers, "LEAST_MULTIPLICATIONS", 4 * 3 * 5 + 1)
    fast_layers.linear(x, weight, bias)
    use_products(Products())
    fast_layers.linear(x, weight, bias)
    assert not asked


def measured(monkeypatch, home, some):
    """Have this machine find these products to be the fastest, and forget what it found before."""
    shutil.rmtree(home / "cache", ignore_errors=True)
    monkeypatch.setattr(torch_models, "fastest_products", lambda: Products(some=some))


@needs_onednn
@pytest.mark.parametrize("at_first", ["packed", "whole"])
def test_a_resumed_run_is_the_whole_run_whatever_is_measured_then(
    at_first, asked, capsys, monkeypatch, home
):
    monkeypatch.setattr(fast_layers, "LEAST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(fast_layers, "LEAST_OF_SEQUENCES", 1)
    text = STORED / "tiny.txt"
    model = ("--model", "lstm", "--set", "peepholes=true", "--hidden-size", "8")
    how = ("train", text, *model, "--steps", "4", "--seed", "1", "--precision", "float32")
    measured(monkeypatch, home, at_first)
    counts = []
    for arguments in (
        (*how, "--name", "whole"),
        (*how, "--name", "parted", "--stop-after", "2"),
        ("train", "--resume", "parted"),
    ):
        if "--resume" in arguments:  # as with a cache that was emptied, and another neighbour
            measured(monkeypatch, home, "whole" if at_first == "packed" else "packed")
        records(capsys, *arguments)
        counts.append(len(asked))
    # At the end of a run its model is loaded to be validated, as this machine does it now.
    assert 0 < counts[0] < counts[1] < counts[2] if at_first == "packed" else counts[1] == 0
    whole, parted = (store.find(name).path / "model.safetensors" for name in ("whole", "parted"))
    assert whole.read_bytes() == parted.read_bytes()


def lying_at(x, place):
    """Return a copy of a matrix that begins so many numbers after an address divisible by 64."""
    memory = torch.empty(x.numel() + 32)
    begin = (place - memory.data_ptr() // 4) % 16
    y = memory[begin : begin + x.numel()].view(x.shape).copy_(x)
    assert y.data_ptr() % 64 == 4 * place
    return y


@needs_onednn
@pytest.mark.parametrize("shape", [(1, 17, 24), (8, 3, 8), (32, 64, 33), (33, 300, 40)])
def test_a_product_does_not_depend_on_where_its_matrices_lie(shape):
    """What is read from a checkpoint lies at other addresses than what was made in training."""
    rows, inputs, outputs = shape
    torch.manual_seed(0)
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    straight = fast_layers.product(x, weight, bias)
    turned = fast_layers.product(x, weight.T.contiguous().T)
    for place in (1, 4, 9):
        for other in (0, 2, 8, 15):
            a, b, c = lying_at(x, place), lying_at(weight, other), lying_at(weight.T, other).T
            assert torch.equal(fast_layers.product(a, b, bias), straight)
            assert torch.equal(fast_layers.product(a, c), turned)


@needs_onednn
def test_the_small_pieces_of_ragged_sources_have_no_code_made_for_each_shape(asked):
    use_products(Products(some="packed"))
    weight = torch.zeros(384, 256)
    fast_layers.linear(torch.zeros(64, 1, 256), weight, None)
    assert not asked
    fast_layers.linear(torch.zeros(64, 8, 256), weight, None)
    assert asked == [((512, 256), (384, 256))]
    use_products(Products())


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("inputs", [7, 384, 1536])
@pytest.mark.parametrize("outputs", [3, 65, 384, 1150, 4100])
def test_each_row_alone_has_the_product_of_one_row_to_the_bit(inputs, outputs, compiled, request):
    if not compiled:
        request.getfixturevalue("numpy_alone")
    draw = np.random.default_rng(inputs * outputs)
    weight, x = (draw.standard_normal((n, inputs), np.float32) for n in (outputs, 17))
    affine = Affine(weight, draw.standard_normal(outputs, np.float32))
    wanted = np.concatenate([affine(row) for row in x[:, None]])
    for rows in (1, 2, 5, 17):
        with each_row_alone():
            found, found_3d = affine(x[:rows]), affine(x[:rows, None])
        np.testing.assert_array_equal(found, wanted[:rows])
        np.testing.assert_array_equal(found_3d[:, 0], wanted[:rows])
    np.testing.assert_allclose(affine(x), wanted, rtol=0, atol=1e-3)
    with each_row_alone():  # texts are read as each would be
        np.testing.assert_array_equal(affine(np.stack([x, x]))[1], affine(x[None])[0])
    np.testing.assert_array_equal(affine(x[None]), affine(x)[None])
