"""Every architecture with settings drawn from its own bounds: what holds whatever they are.

The widths of the parts of a model are equal in most tests; here hardly any two are.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from drawn_models import LENGTH, TEXT, drawn_model, few, loss_of, spell, text_for, window_of
from examples import examples
from helpers_cli import has_plugin
from hypothesis import assume, given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import load_weights, weights_of
from seqgen.settings.scoring import CacheConfig
from seqgen.text.sources import TokenSources

EXACT = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.fast_for("window", "rnn", "lstm", "mgu", "transformer")
@pytest.mark.parametrize("architecture", TEXT)
@given(data=st.data())
@few
@torch.no_grad()
def test_pieces_steps_scores_and_caches_agree(architecture, data):
    model = drawn_model(data, architecture)
    text = text_for(model)
    whole, _ = model(text, model.start(2))
    state, pieces = model.start(2), []
    for piece in text.split([1, 4, LENGTH - 5], 1):
        logits, state = model(piece, state)
        pieces.append(logits)
        state = state.with_tensors({name: x.clone() for name, x in state.copy().named().items()})
    torch.testing.assert_close(torch.cat(pieces, 1), whole, **EXACT)
    state, steps = model.start(2), []
    for column in text.T.tolist():
        logits, state = model.step(column, state)
        steps.append(torch.from_numpy(logits))
        state = type(state).cat([state.copy().select([0]), state.select([1])])
    torch.testing.assert_close(torch.stack(steps, 1), whole, **EXACT)
    begun = text[:, : window_of(model)]
    torch.testing.assert_close(model(begun)[0], whole[:, : begun.shape[1]], **EXACT)
    scores, _ = model.score(text[:, :-1], text[:, 1:], model.start(2), "ranks")
    wanted = whole[:, :-1].log_softmax(-1).gather(-1, text[:, 1:, None])[..., 0]
    torch.testing.assert_close(scores.log_probs, wanted, **EXACT)
    if not has_plugin("cache"):
        return
    from seqgen.plugins.cache.model import CachedModel

    cached = CachedModel(model, CacheConfig(size=3, strength=0.3, flatness=0.5))
    at_once, _ = cached(text, cached.start(2))
    first, state = cached(text[:, :4], cached.start(2))
    torch.testing.assert_close(
        torch.cat([first, cached(text[:, 4:], state)[0]], 1), at_once, **EXACT
    )


@pytest.mark.fast_for("window", "rnn", "lstm", "mgu", "transformer")
@pytest.mark.parametrize("architecture", TEXT)
@given(data=st.data())
@few
def test_training_calls_have_gradients_and_weights_can_be_stored(architecture, data):
    model = drawn_model(data, architecture)
    loss = loss_of(model.train())
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    other = type(model)(model.config).double().eval()
    spell(other)
    load_weights(other, {name: tensor.clone() for name, tensor in weights_of(model).items()})
    with torch.no_grad():
        assert torch.equal(loss_of(other), loss_of(model.eval()))


@pytest.mark.fast_for("*-int4", "lstm-*", "transformer-*", rest="slow")
@pytest.mark.parametrize("kind", ["int8", "int4", "bf16"])
@pytest.mark.parametrize("architecture", [name for name in TEXT if name != "window"])
@given(data=st.data())
@run_with(few, max_examples=2)
@torch.no_grad()
def test_fewer_bits_are_near_the_whole_weights(architecture, kind, data):
    model = drawn_model(data, architecture).float()
    if not isinstance(model, ArraySteps) or not model.quantizable:
        return
    # A gain above 1 multiplies the rounding of 4 bits in every step, without a bound.
    assume(kind != "int4" or getattr(model.config, "recurrent_gain", 1) <= 1)
    text = text_for(model, window_of(model))
    whole = model(text, model.start(2))[0].log_softmax(-1)
    model.quantize(kind)
    reduced = model(text, model.start(2))[0].log_softmax(-1)
    near = {"int4": 0.3}.get(kind, 0.1) * (1 + whole.abs().max().item())
    torch.testing.assert_close(reduced, whole, rtol=0, atol=near)


@pytest.mark.fast_for("seq2seq")
@pytest.mark.parametrize("architecture", ["seq2seq", "seq2seq-transformer"])
@given(data=st.data())
@run_with(few, max_examples=examples(12))
def test_models_of_pairs_train_and_step(architecture, data):
    model = drawn_model(data, architecture)
    sources = TokenSources.of([[1, 0, 1], [1]]).rows(range(2))
    length = window_of(model)
    text = text_for(model, length + 1)
    logits, _ = model.train()(text[:, :-1], model.remember(sources))
    F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    model.eval()
    with torch.no_grad():
        whole, _ = model(text, model.start(model.remember(sources)))
        state, steps = model.start(model.remember(sources)), []
        for column in text.T.tolist():
            logits, state = model.step(column, state)
            steps.append(torch.from_numpy(logits))
            state = state.select([0, 1])
    torch.testing.assert_close(torch.stack(steps, 1), whole, **EXACT)
