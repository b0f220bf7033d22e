"""Every architecture with drawn settings can be diagnosed, and its layers be looked at."""

from __future__ import annotations

import math

import pytest
from drawn_models import TEXT, drawn_model, few, loss_of, text_for, window_of
from examples import examples
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from seqgen.models.transformer.model import Transformer
from seqgen.plugins.inspect.attention_figures import attention_figures, attention_weights
from seqgen.plugins.inspect.diagnose.distance import gradients_by_distance
from seqgen.plugins.inspect.diagnose.layers import Update, named_layers, units_of
from seqgen.text.sources import TokenSources


@pytest.mark.fast_for("window", "rnn", "lstm", "mgu", "transformer")
@pytest.mark.parametrize("architecture", TEXT)
@given(data=st.data())
@few
def test_gradients_of_every_layer_are_within_their_bound(architecture, data):
    model = drawn_model(data, architecture)
    length = window_of(model)
    text = text_for(model, length + 1)
    layers = list(model.stack or ())
    for layer in (None, *range(len(layers))):
        found = gradients_by_distance(model, text[:, :-1], text[:, -1], layer)
        assert [each.distance for each in found] == list(range(length))
        assert all(math.isfinite(each.grad_norm) for each in found)
        assert all(e.bound is None or e.grad_norm <= e.bound * (1 + 1e-9) for e in found)
    loss_of(model).backward()
    figures = Update(model).figures(units_of(model, text[:, :-1]))
    assert len(figures) == len(named_layers(model))


@pytest.mark.fast_for("seq2seq")
@pytest.mark.parametrize("architecture", ["seq2seq", "seq2seq-transformer"])
@given(data=st.data())
@run_with(few, max_examples=examples(12))
def test_units_of_models_of_pairs_can_be_read(architecture, data):
    model = drawn_model(data, architecture)
    sources = TokenSources.of([[1, 0, 1], [1]]).rows(range(2))
    text = text_for(model, window_of(model) + 1)
    units_of(model, text[:, :-1], sources)


@pytest.mark.fast_for("window", "rnn", "lstm", "mgu", "transformer")
@pytest.mark.parametrize("architecture", TEXT)
@given(data=st.data())
@few
def test_every_layer_and_head_can_be_looked_at(architecture, data):
    model = drawn_model(data, architecture)
    length = window_of(model)
    text = text_for(model, length + 1)
    assert all(len(features) == 2 for features in model.layer_features(text[:, :-1]))
    if isinstance(model, Transformer):
        layers, heads = len(model.stack), model.config.num_heads
        shape = heads, length, length
        assert [w.shape for w in attention_weights(model, text[:1, :-1])] == [shape] * layers
        assert len(attention_figures(model, text[:, :-1])) == layers * heads
