"""Array models against the torch modules of the same configuration and weights."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import replace

import architectures
import numpy as np
import pytest
import torch
from architectures import PAIRS, STANDING, ids, over
from helpers_cli import known_architectures, needs
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import registry
from seqgen.engines.arrays import each_row_alone
from seqgen.engines.native.library import library
from seqgen.engines.tensor_ops import TensorOps
from seqgen.engines.weights import Weights
from seqgen.errors import UsageError
from seqgen.models.base import weights_of
from seqgen.models.mixture.arrays import MixtureArrays
from seqgen.models.mixture.model import Mixture
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.models.seq2seq import transformer_equations
from seqgen.models.seq2seq.from_source import FromSource
from seqgen.settings.scoring import CacheConfig
from seqgen.text.sources import TokenSources, VectorSources

CASES = [
    case
    for case in [*architectures.CASES, *PAIRS]
    if (row := registry.ARCHITECTURES.get(case.architecture))
    and row.arrays
    and row.load_arrays().suits(case.config())
]
# What models that write from a source have in each row.
SOURCES = TokenSources.of([[3, 1, 4], [5, 2, 6, 5, 3], [1], [6, 2, 6, 2]])
LENGTH = 21  # past every window here, several times
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}

pytestmark = pytest.mark.fast_for(*STANDING)


def both(case, dtype=torch.float64, **more):
    """Return a model, and the array model of what would be stored of it."""
    model = case.loud(dtype, **more)
    kind, config = registry.architecture(case.architecture).load_arrays(), model.config
    arrays = Weights({name: x.numpy().copy() for name, x in weights_of(model).items()})
    arrays = dict(arrays.fitting(kind.shapes(config), config.shared_weights()))
    if dtype == torch.float64:  # as sines of float32 they are alike to 1e-7 only
        arrays |= {name: x.numpy() for name, x in model.named_buffers() if name == "waves"}
    return model, kind(config, Weights(arrays))


@pytest.fixture(scope="module", autouse=True)
def equal_waves():
    """Give encoders torch's sines: those of float32 are alike to 1e-7 only, as `both` has it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("position_waves", "sinusoids"):
            own = getattr(transformer_equations, name)
            patch.setattr(transformer_equations, name, functools.partial(of_torch, own))
        yield


def of_torch(own, ops, *about):
    waves = own(TensorOps, *about)
    return waves if ops is TensorOps else waves.numpy()


def opened(model, rows, stride=None):
    """Return a state of some rows that have read nothing, two of them from one source."""
    if isinstance(model, FromSource):
        return model.opens(SOURCES, stride)([0, *range(rows)][:rows])
    return model.start(rows, stride)


def normalised(logits):
    logits = torch.as_tensor(logits)
    return (logits - logits.logsumexp(-1, keepdim=True)).numpy()


def agree(found, wanted, dtype=torch.float64):
    """Check that logits are those of torch's, apart from what is added to all of a position."""
    assert isinstance(found, np.ndarray)
    wanted = normalised(wanted)
    scale = max(1.0, float(abs(wanted[np.isfinite(wanted)]).max()))
    np.testing.assert_allclose(normalised(found), wanted, rtol=0, atol=scale * TOLERANCE[dtype])


@over(CASES)
def test_weights_have_the_shapes_that_are_declared(case):
    model = case.build()
    shapes = registry.architecture(case.architecture).load_arrays().shapes(model.config)
    found = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    # Of an n-gram model's tables, None stands for any size.
    free = {name for name, shape in shapes.items() if None in shape}
    assert free <= found.keys() and (not free or case.architecture == "ngram")
    assert {**found, **dict.fromkeys(free, (None,))} == shapes
    assert both(case)[1].parameter_count() == model.parameter_count()


@pytest.mark.fast_for("float64-*")
@over(CASES)
@pytest.mark.parametrize("kind", ["float64", "float32", "float32, NumPy alone"])
@torch.no_grad()
def test_texts_in_pieces_and_steps(case, kind, request):
    dtype = torch.float64 if kind == "float64" else torch.float32
    if kind.endswith("alone"):
        request.getfixturevalue("numpy_alone")
    model, arrays = both(case, dtype)
    tokens = ids(3, LENGTH)
    wanted, _ = model(tokens, opened(model, 3))
    found, state = arrays(tokens[:, :4].numpy(), opened(arrays, 3))
    agree(found, wanted[:, :4], dtype)
    for t in (4, 5, 6):
        found, state = arrays.step(tokens[:, t].tolist(), state)
        assert found.dtype == np.dtype(str(dtype).removeprefix("torch."))
        agree(found, wanted[:, t], dtype)
    found, state = arrays(tokens[:, 7:].numpy(), state, last=3)
    agree(found, wanted[:, -3:], dtype)


@over([case for case in CASES if case.architecture not in ("ngram", "hmm")])
@torch.no_grad()
def test_features(case):
    model, arrays = both(case)
    tokens = ids(2, min(4, model.window or 4))
    if case not in PAIRS:
        wanted, found = model.layer_features(tokens), arrays.layer_features(tokens.numpy())
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
        np.testing.assert_allclose(arrays.hidden(tokens.numpy(), None)[0], found[-1], atol=1e-12)
    vectors = model.token_vectors()
    assert (arrays.token_vectors() is None) == (vectors is None)
    if vectors is not None:
        np.testing.assert_allclose(arrays.token_vectors(), vectors, rtol=0, atol=1e-12)


@over(CASES)
@given(data=st.data())
@settings(deadline=None, max_examples=5, derandomize=True)
@torch.no_grad()
def test_random_programs_of_states(case, data):
    model, arrays = both(case)
    stride = data.draw(st.sampled_from([None, 1, min(3, model.window or 3)]))
    pair = [(one, opened(one, 2, stride)) for one in (model, arrays)]
    rows = 2
    for _ in range(5):
        verb = data.draw(st.sampled_from(["read", "step", "select", "cat"]))
        if verb in ("read", "step"):
            length = data.draw(st.integers(1, 9)) if verb == "read" else 1
            tokens = ids(rows, length, seed=data.draw(st.integers(0, 99)))
            if verb == "step":
                results = [one.step(tokens[:, 0].tolist(), state) for one, state in pair]
            else:
                results = [one(one.ids(tokens.numpy()), state) for one, state in pair]
            agree(results[1][0], results[0][0])
            pair = [(one, state) for (one, _), (_, state) in zip(pair, results, strict=True)]
        elif verb == "select":
            order = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=4))
            pair, rows = [(one, state.select(order)) for one, state in pair], len(order)
        elif rows <= 3:
            more = ids(1, data.draw(st.integers(1, 5)), seed=5).numpy()
            others = [one(one.ids(more), opened(one, 1, stride))[1] for one, _ in pair]
            pair = [
                (one, type(state).cat([state.copy(), other]))
                for (one, state), other in zip(pair, others, strict=True)
            ]
            rows += 1


@pytest.mark.skipif(library() is None, reason="the kernels are not compiled here")
@over([case for case in CASES if "transformer" in case.architecture])
@torch.no_grad()
def test_a_short_piece_is_to_the_bit_its_tokens_one_by_one(case):
    """Of rows of different lengths, as far as the window goes."""
    _, arrays = both(case, torch.float32)
    if arrays.program is None:
        pytest.skip("NumPy takes its steps")
    length = max(1, arrays.window // 2)  # a call takes at least one token
    tokens, more = (ids(3, n, seed=n).numpy() for n in (length, 1))
    fresh, begun = opened(arrays, 3), arrays(more[:1], opened(arrays, 1))[1]
    state = type(begun).cat([arrays(more, fresh)[1].select([0, 2]), begun])
    state, other = arrays(more, state)[1], state.copy()
    state = type(state).cat([arrays(more[:2], other.select([1, 2]))[1], state.select([0])])
    apart, pieces = state.copy(), []
    at_once, state = arrays(tokens, state)
    for t in range(length):
        piece, apart = arrays(tokens[:, t : t + 1], apart)
        pieces.append(piece)
    np.testing.assert_array_equal(at_once, np.concatenate(pieces, 1))
    (found, _), (wanted, _) = (arrays.step([1, 2, 3], x) for x in (state, apart))
    np.testing.assert_array_equal(found, wanted)


# Those whose rows read sources have products with as many queries as a source has rows.
ROWS_APART = [case for case in CASES if case not in PAIRS]


@over(ROWS_APART)
def test_a_row_among_others_is_to_the_bit_what_it_is_alone(case):
    check_each_row_alone(case)


@over([case for case in ROWS_APART if case.variant in ("default", "plain")])
@pytest.mark.usefixtures("numpy_alone")
def test_so_it_is_where_nothing_is_compiled(case):
    check_each_row_alone(case)


@torch.no_grad()
def check_each_row_alone(case):
    _, arrays = both(case, torch.float32)
    texts = ids(5, 2 * LENGTH).numpy()
    lengths = [3, 1, 9, 3, 6]  # prompts; rows join and leave, and windows fill at different steps
    begun = [
        arrays(texts[row : row + 1, :length], arrays.start(1), last=1)[1]
        for row, length in enumerate(lengths)
    ]
    alone = [state.copy() for state in begun]
    rows, state = [0, 1, 2], type(begun[0]).cat(begun[:3])
    for step in range(LENGTH):
        if step == 4:
            state = type(state).cat([state, *begun[3:]])
            rows += [3, 4]
        if step == 9:
            del rows[1]
            state = state.select([0, 2, 3, 4])
        tokens = [int(texts[row, lengths[row] + step]) for row in rows]
        with each_row_alone():
            logits, state = arrays.step(tokens, state)
        for place, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            wanted, alone[row] = arrays.step([token], alone[row])
            np.testing.assert_array_equal(logits[place], wanted[0])


@over(CASES)
@pytest.mark.parametrize("want", ["log_probs", "ranks"])
@torch.no_grad()
def test_scores(case, want):
    model, arrays = both(case)
    tokens, targets = ids(2, LENGTH), ids(2, LENGTH, seed=1)
    wanted, _ = model.score(tokens, targets, opened(model, 2), want)
    found, _ = arrays.score(tokens.numpy(), targets.numpy(), opened(arrays, 2), want)
    np.testing.assert_allclose(found.log_probs, wanted.log_probs.numpy(), rtol=1e-9, atol=1e-9)
    if want == "ranks":
        assert (found.ranks == wanted.ranks.numpy()).all()


@over([case for case in CASES if case in PAIRS])
@torch.no_grad()
def test_sources_of_vectors_and_what_is_read_of_them(case):
    case = replace(case, settings={**case.settings, "source_vocab_size": None})
    model, arrays = both(case, share_embeddings=False, source_features=5)
    vectors = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    source = VectorSources(vectors, np.array([4, 9])).rows([0, 1, 0])
    tokens = ids(3, LENGTH)
    kept = [one.remember(source) for one in (model, arrays)]
    assert type(kept[1].keys[0] if kept[1].keys else kept[1].first[0][0]) is np.ndarray
    (found, _), (wanted, _) = (
        one(one.ids(tokens.numpy()), one.start(memory))
        for one, memory in zip((arrays, model), kept[::-1], strict=True)
    )
    agree(found, wanted)
    if case.settings.get("attention") == "none":
        with pytest.raises(UsageError, match="no attention"):
            arrays.attend(tokens.numpy(), kept[1])
        return
    found = arrays.attend(tokens.numpy(), kept[1])
    wanted = model.attend(tokens, kept[0]).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.fast_for("*")
@pytest.mark.parametrize("table", [None, [[0.3, 0.7], [0.6, 0.4], [0.9, 0.1]]])
@torch.no_grad()
def test_mixtures(table):
    cases = [next(c for c in CASES if c.architecture == name) for name in ("ngram", "gru")]
    each = [both(case) for case in cases]
    order = each[0][0].orders
    rows = () if table is None else [table[min(n, 2)] for n in range(order)]
    model = Mixture([one for one, _ in each], MixtureWeights([0.4, 0.6], rows)).double().eval()
    arrays = MixtureArrays([other for _, other in each], MixtureWeights([0.4, 0.6], rows))
    tokens, targets = ids(3, LENGTH), ids(3, LENGTH, seed=1)
    wanted, _ = model(tokens[:, :9], model.start(3))
    found, state = arrays(tokens[:, :9].numpy(), arrays.start(3))
    agree(found, wanted)
    state = type(state).cat([state.select([2, 0]), state.copy()])
    of_torch = model(torch.cat([tokens[[2, 0], :9], tokens[:, :9]]), model.start(5))[1]
    for t in (9, 10):
        step = [*tokens[[2, 0], t].tolist(), *tokens[:, t].tolist()]
        (found, state), (wanted, of_torch) = arrays.step(step, state), model.step(step, of_torch)
        agree(found, wanted)
    for want in ("hits", "ranks"):
        scores, _ = model.score(tokens, targets, model.start(3), want)
        others, _ = arrays.score(tokens.numpy(), targets.numpy(), arrays.start(3), want)
        np.testing.assert_allclose(others.log_probs, scores.log_probs.numpy(), rtol=1e-9)
        assert (others.hits == scores.hits.numpy()).all()
    assert arrays.parameter_count() == model.parameter_count()


@torch.no_grad()
def test_mixtures_of_models_with_sources():
    names = {"additive", "default"}
    each = [both(case) for case in PAIRS if case.variant in names]
    model = Mixture([one for one, _ in each], MixtureWeights([0.4, 0.6])).double().eval()
    arrays = MixtureArrays([other for _, other in each], MixtureWeights([0.4, 0.6]))
    tokens, source = ids(3, LENGTH), SOURCES.rows([0, 2, 1])
    wanted, _ = model(tokens, model.opens(SOURCES)([0, 2, 1]))
    found, _ = arrays(tokens.numpy(), arrays.opens(SOURCES)([0, 2, 1]))
    agree(found, wanted)
    wanted = model.attend(tokens, model.remember(source)).numpy()
    found = arrays.attend(tokens.numpy(), arrays.remember(source))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-9)


@pytest.mark.fast_for("*")
@needs("cache")
@pytest.mark.parametrize("name", known_architectures(["lstm", "window", "transformer"]))
@torch.no_grad()
def test_caches(name):
    from seqgen.plugins.cache.beside import mix_with_caches

    each = both(next(case for case in CASES if case.architecture == name))
    cache, flatnesses = CacheConfig(size=5, strength=0.4, flatness=0.7), [0.0, 0.3, 1.0]
    model, arrays = (mix_with_caches(one, cache) for one in each)
    tokens, targets = ids(3, LENGTH), ids(3, LENGTH, seed=1)
    wanted, of_torch = model(tokens[:, :9], model.start(3))
    found, state = arrays(tokens[:, :9].numpy(), arrays.start(3))
    agree(found, wanted)
    state, of_torch = (
        type(past).cat([past.select([2, 0]), one.start(1)])
        for one, past in ((arrays, state), (model, of_torch))
    )
    for t in (9, 10):
        step = tokens[:, t].tolist()
        (found, state), (wanted, of_torch) = arrays.step(step, state), model.step(step, of_torch)
        agree(found, wanted)
    several = [mix_with_caches(one, cache, flatnesses) for one in each]
    for pair, want in (((model, arrays), "ranks"), (several, "log_probs")):
        scores, _ = pair[0].score(tokens, targets, pair[0].start(3), want)
        others, _ = pair[1].score(tokens.numpy(), targets.numpy(), pair[1].start(3), want)
        np.testing.assert_allclose(others.log_probs, scores.log_probs.numpy(), rtol=1e-9)
        assert want == "log_probs" or (others.ranks == scores.ranks.numpy()).all()
    assert (
        mix_with_caches(both(next(c for c in CASES if c.architecture == "ngram"))[1], cache) is None
    )


def test_none_of_them_imports_torch():
    kinds = {registry.architecture(case.architecture).load_arrays() for case in CASES}
    places = {kind.__module__ for kind in kinds}
    code = f"import sys, {', '.join(sorted(places))}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tables_of_counted_models_are_used_where_they_lie():
    """So that those of a large file stay mapped; what does not fit is told."""
    for case in [case for case in CASES if case.architecture in ("ngram", "hmm")]:
        model = case.build(torch.float32)
        tables = {name: x.numpy().copy() for name, x in model.state_dict().items()}
        for table in tables.values():
            table.flags.writeable = False
        arrays = type(model).array_model(model.config, tables)
        _, state = arrays.step([1, 2], arrays.start(2))
        arrays.score(ids(2, 9).numpy(), ids(2, 9, seed=1).numpy(), state, "ranks")
        held = [x if type(x) is list else [x] for x in vars(arrays).values()]
        used = [x for some in held for x in some if isinstance(x, np.ndarray)]
        large = [table for table in tables.values() if table.size > 2 * case.config().vocab_size]
        assert large and all(any(np.shares_memory(x, t) for x in used) for t in large)
        assert arrays.dtype == np.float32
        first = next(iter(tables))
        without = {name: table for name, table in tables.items() if name != first}
        cut = {**tables, first: tables[first][1:]}
        for wrong in (without, cut, {**tables, "more": tables[first]}):
            with pytest.raises(ValueError, match=r"fit|one size"):
                type(model).array_model(model.config, wrong)
