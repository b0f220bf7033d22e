"""Every architecture with settings drawn from its own bounds: what holds whatever they are.

The widths of the parts of a model are equal in most tests; here hardly any two are.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from architectures import TINY
from drawn_settings import settings_of
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as run_with
from hypothesis import strategies as st
from torch import Tensor

from seqgen import registry
from seqgen.engines.memory_limit import parameter_count
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import LanguageModel, NeuralLanguageModel, load_weights, weights_of
from seqgen.models.memory.cached import Cached
from seqgen.models.recurrent.char_cnn import SpelledEmbedding
from seqgen.models.transformer.attention_figures import attention_figures, attention_weights
from seqgen.models.transformer.model import Transformer
from seqgen.plugins.diagnose.distance import gradients_by_distance
from seqgen.plugins.diagnose.layers import Update, named_layers, units_of
from seqgen.settings.scoring import CacheConfig
from seqgen.tasks.language_modeling import LANGUAGE_MODELING
from seqgen.text.sources import TokenSources

LENGTH = 11  # more than the window of the drawn transformers
EXACT = {"rtol": 1e-9, "atol": 1e-9}
TEXT = [
    name
    for name, row in registry.ARCHITECTURES.items()
    if row.task is LANGUAGE_MODELING and row.estimator is None
]
few = run_with(
    deadline=None,
    max_examples=4,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def drawn_model(data: st.DataObject, architecture: str) -> LanguageModel:
    """Return a model in float64 with drawn settings, and weights that are far from zero."""
    row = registry.architecture(architecture)
    model_class, config_class = row.load_model(), row.load_config()
    config = config_class(**data.draw(settings_of(architecture, {**TINY, "source_window": LENGTH})))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = model_class(config).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    spell(model)
    assert parameter_count(model_class, config) == model.parameter_count()
    return model.eval()


def spell(model: LanguageModel) -> None:
    """Give a model that reads the characters of words some words."""
    if isinstance(getattr(model, "embedding", None), SpelledEmbedding):
        model.spell([letter * 3 for letter in "abcdefghi"[: model.vocab_size]], False)


def text_for(model: LanguageModel, length: int = LENGTH) -> Tensor:
    """Return random tokens (2, length)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.vocab_size, (2, length), generator=generator)


def window_of(model: LanguageModel) -> int:
    """Return how many tokens a training call may hold here."""
    return min(LENGTH - 1, model.window or LENGTH)


def loss_of(model: LanguageModel, *past: object) -> Tensor:
    """Return the loss of a training call, of two where a state is carried."""
    length = window_of(model)
    text = text_for(model, length + 1)
    tokens, targets = text[:, :-1], text[:, 1:]
    logits, state = model(tokens, *past)
    if model.carries_state:
        logits = logits + model(tokens, state.detach())[0]
    assert logits.shape == (*tokens.shape, model.vocab_size)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


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
    cached = Cached(model, CacheConfig(size=3, strength=0.3, flatness=0.5))
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


@pytest.mark.fast_for("window", "rnn", "lstm", "mgu", "transformer")
@pytest.mark.parametrize("architecture", TEXT)
@given(data=st.data())
@few
def test_every_layer_and_head_can_be_looked_at(architecture, data):
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
    assert all(len(features) == 2 for features in model.layer_features(text[:, :-1]))
    if isinstance(model, Transformer):
        shape = model.config.num_heads, length, length
        assert [w.shape for w in attention_weights(model, text[:1, :-1])] == [shape] * len(layers)
        entropies = attention_figures(model, text[:, :-1])
        assert len(entropies) == len(layers) * model.config.num_heads


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
@run_with(few, max_examples=12)
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
    if isinstance(model, NeuralLanguageModel):
        units_of(model, text[:, :-1], sources)
