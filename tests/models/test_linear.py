"""Linear maps by oneDNN: that they are torch's, gradients and all, and when they are chosen."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from seqgen.engines import arrays, fast_layers
from seqgen.engines.arrays import Products
from seqgen.engines.fast_layers import FastLinear
from seqgen.engines.tensor_products import has_packed
from seqgen.models.seq2seq.model import Seq2Seq, Seq2SeqConfig, Seq2SeqTransformer
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig

needs_onednn = pytest.mark.skipif(not has_packed(), reason="torch has no such product here")


@pytest.fixture
def by_onednn(monkeypatch):
    """Have every product of float32 made by oneDNN, however small."""
    monkeypatch.setattr(arrays._Settings, "products", Products(some="packed"))
    monkeypatch.setattr(fast_layers, "LEAST_MULTIPLICATIONS", 0)
    monkeypatch.setattr(fast_layers, "LEAST_OF_SEQUENCES", 0)


def gradients(map_, x, weight, bias):
    """Return W x + b and the gradients of a sum of its squares, in float64."""
    leaves = [part.clone().requires_grad_() for part in (x, weight, bias) if part is not None]
    y = map_(*leaves, *[None] * (3 - len(leaves)))
    y.square().sum().backward()
    return [part.double() for part in (y.detach(), *(leaf.grad for leaf in leaves))]


@needs_onednn
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5), (2, 3, 2, 5)])
def test_the_product_and_its_gradients_are_those_of_float64(by_onednn, shape, biased):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape), torch.randn(6, 5), torch.randn(6) if biased else None
    exact = gradients(F.linear, *(p if p is None else p.double() for p in (x, weight, bias)))
    assert fast_layers.suits_onednn(len(x), weight)
    found = gradients(fast_layers.linear, x, weight, bias)
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@needs_onednn
def test_rows_may_lie_in_memory_in_any_order(by_onednn):
    torch.manual_seed(0)
    x, weight = torch.randn(4, 3, 5).transpose(0, 1), torch.randn(5, 6).T
    torch.testing.assert_close(fast_layers.linear(x, weight, None), F.linear(x, weight))


@needs_onednn
def test_a_frozen_matrix_gets_no_gradient(by_onednn):
    layer, x = FastLinear(5, 6), torch.randn(7, 5, requires_grad=True)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None and layer.bias.grad is not None


def models():
    """Yield a recurrent encoder-decoder and a transformer, without dropout."""
    shape = {"vocab_size": 11, "hidden_size": 8, "num_layers": 1, "dropout": 0.0}
    yield Seq2Seq(Seq2SeqConfig(**shape))
    yield Seq2SeqTransformer(Seq2SeqTransformerConfig(**shape, num_heads=2, window=8))


@needs_onednn
@pytest.mark.parametrize("which", [0, 1], ids=["seq2seq", "seq2seq-transformer"])
def test_seq2seq_trains_on_the_same_gradients(by_onednn, monkeypatch, which):
    torch.manual_seed(0)
    model = next(itertools.islice(models(), which, None)).train()
    sources, targets = torch.randint(11, (3, 5)), torch.randint(11, (3, 4))

    def gradient():
        model.zero_grad()
        logits, _ = model(targets, model.encode(sources, [5, 3, 2]))
        logits.logsumexp(-1).sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    by_them = gradient()
    monkeypatch.setattr(arrays._Settings, "products", Products())
    torch.testing.assert_close(by_them, gradient(), rtol=1e-4, atol=1e-5)
