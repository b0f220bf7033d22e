"""`python -m tests.benchmarks.shares`: which part of a training an operation belongs to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from . import shares
from .train import Case

VOCAB = 66


def event(name, milliseconds=0.0, above=None, shapes=()):
    own = 1000 * milliseconds
    return SimpleNamespace(
        name=name, self_cpu_time_total=own, cpu_parent=above, input_shapes=list(shapes)
    )


def test_parts_by_hand(monkeypatch):
    monkeypatch.setattr(shares, "product_seconds", lambda *sizes: 0.01)
    layer = [[64, 32, 256], [1024, 256], [1024, 256]]
    update, batch = event(shares.UPDATE, 1), event(shares.DATA, 2)
    softmax = event("aten::log_softmax", 1)
    events = [
        update,
        batch,
        softmax,
        event("aten::bmm", 9, above=update),
        event("aten::copy_", 1, above=batch),
        event("aten::mm", 5, shapes=[[2048, 256], [256, 1024]]),
        event("aten::mm", 3, shapes=[[2048, 256], [256, VOCAB]]),
        event("aten::exp", 2, above=softmax),
        event("aten::_scaled_dot_product_flash_attention_for_cpu", 4),
        event("aten::sigmoid", 6),
        event("autograd::engine::evaluate_function: MmBackward0", 1),
        event("aten::mkldnn_rnn_layer", 15, shapes=layer),  # 10 ms of products, 5 of the cell
        event("aten::mkldnn_rnn_layer_backward", 31, shapes=layer),  # 20 and 11
    ]
    found = shares.shares(events, 0.1, VOCAB, "float32")
    told = {"products": 39, "cells": 22, "head": 6, "optimizer": 10, "data": 3, "rest": 20}
    assert found == pytest.approx({part: ms / 100 for part, ms in told.items()})


def test_products_of_a_layer_alone():
    """More products take longer, and those of the input grow with its size."""
    few = shares.product_seconds(1, 32, 64, 64, 256, "float32")
    many = shares.product_seconds(64, 32, 64, 512, 2048, "float32")
    assert 0 < few < many


@pytest.mark.slow
def test_a_row_adds_up_to_the_whole():
    case = Case("lstm 1 x 16", "", "lstm", {"hidden_size": 16, "num_layers": 1}, None, 4, 8)
    name, kind, *figures = shares.row(case, "float32", 0.1, 1)
    assert (name, kind) == ("lstm 1 x 16", "float32")
    parts = [float(figure.removesuffix("%")) for figure in figures[-len(shares.PARTS) :]]
    assert sum(parts) == pytest.approx(100, abs=3)  # each is rounded
    assert parts[shares.PARTS.index("optimizer")] > 0
