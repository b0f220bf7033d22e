"""Classifiers and taggers over arrays against the torch modules of the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers_cli import known_architectures
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import registry
from seqgen.engines.weights import Weights
from seqgen.models.base import weights_of
from seqgen.text.sources import Source

V = 9
SMALL = {"hidden_size": 8}
HEADS = {**SMALL, "num_layers": 2, "num_heads": 2, "window": 8}
CASES = [
    ("bag", {"embedding_size": 4}),
    ("bag", {"embedding_size": 4, "ngrams": 3, "buckets": 11, "pooling": "all"}),
    ("bag", {"embedding_size": 4, "ngrams": 4, "buckets": 11, "within_words": True}),
    ("lstm", {**SMALL, "num_layers": 2, "residual": True, "pooling": "all"}),
    ("jordan", {**SMALL, "pooling": "max"}),
    ("window", {**SMALL, "context_size": 3, "pooling": "all"}),
    ("hawk", {**SMALL, "pooling": "mean"}),
    ("transformer", {**HEADS, "tie_weights": True}),
    ("birnn", {**SMALL, "num_layers": 2, "residual": True, "pooling": "all"}),
    ("birnn", {**SMALL, "cell": "gru", "directions": "reversed", "pooling": "last"}),
    ("encoder", {**HEADS, "positions": "learned", "pooling": "all"}),
    ("encoder", HEADS),
    ("bert", {**HEADS, "num_layers": 1}),
]
CASES = [case for case in CASES if known_architectures(case[:1])]

# Whose features are read, and by what.
FEATURES = [
    ("elmo", {**SMALL, "num_layers": 2}, "birnn", {**SMALL, "features_at": "first"}),
    ("elmo", {**SMALL, "input": "char-cnn"}, "encoder", HEADS),
    ("lstm", {**SMALL, "tie_weights": True}, "bag", {"embedding_size": 4}),
    ("transformer", {**HEADS, "num_layers": 1}, "birnn", SMALL),
    ("glove", {"embedding_size": 5}, "encoder", {**HEADS, "positions": "learned"}),
]


def reading_features(origin, settings, architecture, config):
    """Return a case of an encoder that reads the features of a model."""
    known = registry.architecture(origin).load_config()(vocab_size=V, **settings).to_dict()
    return architecture, {**config, "feature_model": {"architecture": origin, "model": known}}


CASES += [reading_features(*case) for case in FEATURES if known_architectures(case[:1])]


def both(architecture, config, task, dtype=torch.float64):
    """Return a classifier or a tagger, and the array model of what would be stored of it."""
    row = registry.architecture(f"{architecture}-{task}")
    config = row.load_config()(vocab_size=V, classes=3, **config)
    torch.manual_seed(5)
    model = row.load_model()(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    if architecture == "bag":
        model.spell([" " if i % 3 == 2 else chr(97 + i) for i in range(V)], spelled_out=True)
    kind = row.load_arrays()
    assert kind.suits(config)
    arrays = Weights({name: x.numpy().copy() for name, x in weights_of(model).items()})
    fitting = dict(arrays.fitting(kind.shapes(config), kind.shared(config)))
    if dtype == torch.float64:  # as sines of float32 they are alike to 1e-7 only
        fitting |= {n: x.numpy() for n, x in model.named_buffers() if n.endswith(".waves")}
    return model, kind(config, Weights(fitting))


@pytest.mark.fast_for(
    "bag0-*", "lstm-*", "birnn0-tagger", "encoder0-classifier", "bert-*", "transformer-tagger"
)
@pytest.mark.parametrize("task", ["classifier", "tagger"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@given(data=st.data())
@settings(deadline=None, max_examples=4, derandomize=True)
@torch.no_grad()
def test_they_predict_the_same(case, task, data):
    model, arrays = both(*case, task)
    lengths = np.array(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4)))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = generator.integers(0, V, (len(lengths), lengths.max()))
    source = Source(values * (np.arange(lengths.max()) < lengths[:, None]), lengths)
    wanted, found = model(source).numpy(), arrays(source)
    assert found.shape == wanted.shape and found.dtype == np.float64
    turned = case[0] == "encoder" and "positions" not in case[1]  # by cosines of float32
    for one, other, length in zip(found, wanted, lengths, strict=True):
        close = {"rtol": 0, "atol": 1e-6 if turned else 1e-10}
        np.testing.assert_allclose(one[:length], other[:length], **close)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@torch.no_grad()
def test_their_facts_are_the_same(case):
    model, arrays = both(*case, "tagger", torch.float32)
    assert arrays.parameter_count() == model.parameter_count()
    assert (arrays.window, arrays.precision) == (model.window, model.precision)
    np.testing.assert_array_equal(arrays.token_vectors(), model.token_vectors())
    tokens = np.array([[1, 4, 2]])
    (wanted,), (found,) = (one.layer_features(one.ids(tokens)) for one in (model, arrays))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@given(data=st.data())
@settings(deadline=None, max_examples=4, derandomize=True)
@pytest.mark.parametrize("more", [{"next_sentence": True}, {"tie_weights": False}], ids=str)
@torch.no_grad()
def test_hidden_tokens(more, data):
    row = registry.architecture("bert")
    config = row.load_config()(vocab_size=V, **HEADS, **more)
    torch.manual_seed(3)
    model = row.load_model()(config).double().eval()
    for parameter in model.parameters():
        parameter.normal_(0, 0.5)
    kind = row.load_arrays()
    weights = Weights({name: x.numpy().copy() for name, x in weights_of(model).items()})
    arrays = kind(config, weights.fitting(kind.shapes(config), kind.shared(config)))
    lengths = data.draw(st.lists(st.integers(3, 9), min_size=1, max_size=3))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = generator.integers(0, V + 3, (len(lengths), max(lengths)))
    places = generator.integers(0, min(lengths), (len(lengths), 2))
    wanted, found = (one(one.ids(values), lengths, one.ids(places)) for one in (model, arrays))
    assert (found[1] is None) == (wanted[1] is None) == ("next_sentence" not in more)
    for one, other in zip(found, wanted, strict=True):
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
    assert arrays.parameter_count() == model.parameter_count()
    np.testing.assert_array_equal(arrays.token_vectors(), model.token_vectors())
