"""Dropout: how many elements go, what is left of the others, and when nothing happens."""

from __future__ import annotations

import pytest
import torch

from seqgen.engines.dropout import Dropout

SIZE = 400_000


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.9])
def test_rate_scale_and_expectation(p):
    torch.manual_seed(0)
    y = Dropout(p)(torch.full((SIZE // 4, 4), 2.0))
    zeros = (y == 0).double().mean().item()
    deviation = (p * (1 - p) / SIZE) ** 0.5
    assert zeros == pytest.approx(p, abs=4 * deviation)
    kept = y[y != 0]
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert kept[0].item() == pytest.approx(2 / (1 - p), rel=2e-4)
    assert y.double().mean().item() == pytest.approx(2, abs=8 * deviation / (1 - p))


def test_elements_fall_independently():
    """Those that share one draw do not fall together: all 16 patterns of four come as they should.

    The statistic has 15 degrees of freedom: above 44.3 once in 10,000 times.
    """
    torch.manual_seed(0)
    p, rows = 0.3, SIZE // 4
    gone = (Dropout(p)(torch.ones(rows, 4)) == 0).long()
    seen = torch.bincount(gone @ torch.tensor([1, 2, 4, 8]), minlength=16).double()
    count = torch.tensor([bin(i).count("1") for i in range(16)])
    wanted = rows * p**count * (1 - p) ** (4 - count)
    assert ((seen - wanted) ** 2 / wanted).sum() < 44.3


def test_gradient_is_the_mask():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    torch.testing.assert_close(y, x * x.grad)
    assert set(x.grad.unique().tolist()) == {0.0, y[y != 0][0].item() / x[y != 0][0].item()}


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 5), (1, 0, 4), (2, 3, 7)])
def test_any_shape_and_type(shape):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        torch.manual_seed(0)
        x, dropout = torch.ones(shape, dtype=dtype), Dropout(0.5)
        drawn = [dropout(x) for _ in range(40)]
        assert all((y.shape, y.dtype) == (x.shape, dtype) for y in drawn)
        # Every element goes at times and at others stays, whatever its place.
        seen = torch.stack(drawn).flatten(1)  # (40, elements)
        assert set(seen.unique().tolist()) == ({0.0, 2.0} if x.numel() else set())
        assert ((seen == 0).any(0) & (seen == 2).any(0)).all()


def test_nothing_happens_in_evaluation_or_at_rate_zero():
    x = torch.randn(50)
    before = torch.get_rng_state()
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides():
    x = torch.ones(999)
    torch.manual_seed(5)
    first, second = Dropout(0.5)(x), Dropout(0.5)(x)
    torch.manual_seed(5)
    assert torch.equal(Dropout(0.5)(x), first)
    assert not torch.equal(first, second)


def test_a_rate_next_to_one_keeps_one_element_in_65536():
    """The nearest rate that sixteen bits can have: the mean is still 1."""
    torch.manual_seed(0)
    size = 8_000_000
    y = Dropout(1 - 1e-9)(torch.ones(size))
    assert set(y.unique().tolist()) == {0.0, 65536.0}
    assert y.double().mean().item() == pytest.approx(1, abs=4 * (65536 / size) ** 0.5)


@pytest.mark.parametrize("p", [0.1, 0.3])
def test_the_scale_is_not_rounded_to_bf16(p):
    """Over many values rounding evens out, so that the mean of what is kept is x / (1 - p)."""
    torch.manual_seed(0)
    x = torch.rand(SIZE).bfloat16().requires_grad_()
    y = Dropout(p)(x)
    assert y.dtype == torch.bfloat16
    kept = y != 0
    scale = y[kept].double().sum() / x[kept].double().sum()
    assert scale.item() == pytest.approx(1 / (1 - p), rel=3e-4)
    y.backward(torch.rand(SIZE).bfloat16())
    assert x.grad.dtype == torch.bfloat16
