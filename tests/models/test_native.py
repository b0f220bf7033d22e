"""The compiled library beside NumPy: products, recorded steps, and how it is built."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import subprocess
import sys
import weakref
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import Case
from helpers_cli import known_architectures
from places import ROOT

from seqgen.cli.shell.output import Output, say_announced
from seqgen.engines.arrays import Affine, Product, Products, attend, use_products
from seqgen.engines.native import library as native
from seqgen.engines.native import mixing
from seqgen.engines.native.library import VARIABLE, library
from seqgen.engines.native.maps import BLOCK, NativeInt4Map, NativeInt8Map, NativeMap
from seqgen.engines.native.recording import Recording, describe_cache, record_program
from seqgen.engines.native.softmax import draw, log_softmax
from seqgen.engines.ops import ArrayOps
from seqgen.generation.processors import Forbid
from seqgen.models.distributions import normalise
from seqgen.models.transformer.kv_cache import empty_cache

needs_library = pytest.mark.skipif(library() is None, reason="the kernels are not compiled here")
SHAPES = [(65, 48), (16, 7), (97, 33), (1, 1), (200, 384)]
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 99]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(params=native.LEVELS)
def level(request, monkeypatch):
    """Each level of processor up to that of this one."""
    monkeypatch.setenv(VARIABLE, request.param)
    library.cache_clear()
    try:
        if library() is None:
            pytest.skip("not of this processor, or not compiled here")
        yield
    finally:
        library.cache_clear()


@pytest.mark.skipif(native.compiler() is None, reason="there is no C compiler")
def test_kernels_of_another_version_are_named(tmp_path, monkeypatch, capsys):
    source, made = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text("unsigned mark(void) { return 1; } int suits(void) { return 1; }")
    subprocess.run([*native.compiler(), "-shared", "-fPIC", source, "-o", made], check=True)
    monkeypatch.setattr("seqgen.engines.native.library.outdated", [])
    for named, said in (("0", ""), (str(made), "install seqgen again"), ("0", "")):
        monkeypatch.setenv(VARIABLE, named)
        library.cache_clear()
        Output().uses([])
        say_announced()
        err = capsys.readouterr().err
        assert (said in err) if said else not err
    library.cache_clear()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", SHAPES)
def test_products_in_float32(shape):
    """Near those of float64, and each row's the same bits whatever the rows beside it."""
    weight, bias, x = numbers(*shape), numbers(shape[0], seed=1), numbers(99, shape[1], seed=2)
    for b in (bias, None):
        product = NativeMap(weight, b)
        exact = x.astype(float) @ weight.T + (0 if b is None else b)
        alone = np.concatenate([product(row[None]) for row in x])
        np.testing.assert_allclose(alone, exact, rtol=0, atol=1e-6 * shape[1])
        for rows in ROWS:
            assert (product(x[:rows]) == alone[:rows]).all()
    wide = np.hstack([x, x])[:, 1:]  # rows that lie apart, at any address
    assert (product(wide[:, : shape[1]]) == product(wide[:, : shape[1]].copy())).all()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_whole_numbers(shape):
    """Block by block, up to sums of the largest numbers; rows are rounded by themselves."""
    whole = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    whole[0], scales = 127, np.abs(numbers(shape[0]))
    x, bias = numbers(99, shape[1], seed=2), numbers(shape[0], seed=3)
    x[0], x[1] = 1, 0
    x[2] = -1
    check_blocks(NativeInt8Map(whole, scales, bias), x, whole, scales[:, None], bias)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_4_bits(shape):
    """Block by block, up to sums of the largest numbers; rows are rounded by themselves."""
    (outputs, inputs), draw = shape, np.random.default_rng(0)
    whole, blocks = draw.integers(-8, 8, shape).astype(np.int8), -(-inputs // BLOCK)
    whole[0] = 7
    scales = draw.integers(1, 256, (outputs, blocks)).astype(np.float32) / 64  # 8 bits
    x, bias = numbers(99, inputs, seed=2), numbers(outputs, seed=3)
    x[0], x[1] = 1, 0
    x[2] = -1
    check_blocks(NativeInt4Map(whole, scales, bias), x, whole, scales, bias)


def check_blocks(product, x, whole, scales, bias):
    """Compare with products of NumPy, in float64; the second row of x is zero."""
    wanted = np.zeros((len(x), len(whole))) + bias
    for n, begin in enumerate(range(0, x.shape[1], BLOCK)):
        of_block = x[:, begin : begin + BLOCK]
        of_x = np.maximum(np.abs(of_block).max(1, keepdims=True), np.float32(1e-30))
        of_x *= np.float32(1 / 127)
        sums = np.rint(of_block / of_x) @ whole[:, begin : begin + BLOCK].T.astype(float)
        wanted += sums * scales[:, min(n, scales.shape[1] - 1)].astype(float) * of_x
    alone = np.concatenate([product(row[None]) for row in x])
    np.testing.assert_allclose(alone, wanted, rtol=1e-6, atol=1e-6 * abs(wanted).max())
    assert (alone[1] == bias).all()
    for rows in ROWS:
        assert (product(x[:rows]) == alone[:rows]).all()


EXACT = {
    "tanh": (np.tanh, (-12, 12)),
    "exp": (np.exp, (-100, 88.7)),
    "sqrt": (np.sqrt, (0, 9)),
    "expm1": (np.expm1, (-5, 5)),
    "negative": (np.negative, (-5, 5)),
    "absolute": (np.absolute, (-5, 5)),
    "log": (np.log, (1e-6, 9)),
}


@needs_library
@pytest.mark.parametrize("name", EXACT)
def test_functions_of_a_number(name):
    exact, (low, high) = EXACT[name]
    x = np.linspace(low, high, 4001, dtype=np.float32)[None]
    program = record_program(lambda x: [getattr(np, name)(x)], [x.shape[1:]])
    (found,) = program(1, [x])
    # Below e^-87 float32 has subnormal numbers, of which zero is made.
    np.testing.assert_allclose(found, exact(x.astype(float)), rtol=4e-7, atol=1.2e-38)
    edges = np.array([[np.inf, -np.inf, np.nan, 0, -0.0]], np.float32)
    (found,) = record_program(lambda x: [getattr(np, name)(x)], [(5,)])(1, [edges])
    with np.errstate(invalid="ignore", divide="ignore"):
        np.testing.assert_array_equal(found, exact(edges))


def equation(x, y):
    """All kinds of what equations do, rows staying apart."""
    first, second = ArrayOps.split(x, 1, 1)
    i, g, o = ArrayOps.gates(y, ArrayOps.sigmoid, np.tanh, ArrayOps.relu)
    normed = ArrayOps.layer_norm(ArrayOps.join(first, o), np.arange(12, dtype=np.float32), None)
    by_head = normed.reshape(len(x), 3, 4)
    by_head = ArrayOps.rms_norm(by_head, np.arange(4, dtype=np.float32)) * 2
    by_head = (3 - by_head.swapaxes(1, 2)).reshape(len(x), -1)
    soft = ArrayOps.softmax(second)
    soft *= -1.5
    soft[:, 2:4] = first[:, :2]
    return [by_head, ArrayOps.gelu(i) + ArrayOps.gelu_exact(g) / 3, x, soft, np.maximum(i, 0.5)]


@needs_library
def test_a_recorded_step_is_numpys_for_any_rows():
    program = record_program(equation, [(12,), (18,)])
    for rows in (1, 2, 5):
        x, y = numbers(rows, 12), numbers(rows, 18, seed=1)
        found = program(rows, [x, y])
        for one, other in zip(found, equation(x, y), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    again = program(5, [x, y])
    assert all((one == other).all() for one, other in zip(found, again, strict=True))
    # A row (1, ...) is every row's.
    shared = program(5, [x, y[:1]])[1]
    np.testing.assert_array_equal(shared, np.repeat(shared[:1], 5, 0))


@needs_library
@pytest.mark.parametrize(
    "unfit",
    [
        lambda x: [np.where(x > 0, x, 0)],
        lambda x: [x.sum(0, keepdims=True)],
        lambda x: [np.concatenate([x, x])],
        lambda x: [x @ x.T],
        lambda x: [np.asarray(x) * 2],
        lambda x: [np.asarray(x) * 2 + x],
        lambda x: [x.copy() + 1],
        lambda x: [np.power(x, 3)],
        lambda x: [x[0]],
        lambda x: [np.add(x[:, 1:], 1, out=x[:, :-1])[:, :1] if x[0, 0] else x],
        lambda x: [np.add(x[:, :-1], 1, out=x[:, 1:])],
        lambda x: [x * np.ones(6)],
    ],
)
def test_what_cannot_be_recorded_is_left_to_numpy(unfit):
    assert record_program(unfit, [(6,)]) is None


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("width", [20, 64, 148])
def test_attention_to_a_cache(width):
    """One query a row, heads of keys shared, rows that begin at different slots."""
    rows, heads, of_keys, slots, end = 3, 6, 2, 24, 19
    recording, starts = Recording(), [0, 7, 18]
    shapes = [(n, 1, width) for n in (heads, of_keys, of_keys)]
    program = record_program(lambda *qkv: [recording(1, *qkv)], shapes, recording)
    q, k, v = (numbers(rows, *shape, seed=i) for i, shape in enumerate(shapes))
    caches = [
        [numbers(rows, of_keys, slots, width, seed=9 * i + j) for j in (3, 4)] for i in (0, 1)
    ]
    before = [[x.copy() for x in kind] for kind in caches]
    places = np.array([x.ctypes.data for kind in caches for x in kind], np.int64)
    past = describe_cache(places, slots, starts, [end] * rows)
    (read,) = program(rows, [q, k, v], past)
    for cache, old, new in zip(caches, before, (k, v), strict=True):
        old[1][:, :, end - 1] = new[:, :, 0]
        assert all((x == y).all() for x, y in zip(cache, old, strict=True))
    for row, start in enumerate(starts):
        keys, values = (x[1][row : row + 1, :, start:end] for x in caches)
        wanted = attend(q[row : row + 1], keys, values)
        np.testing.assert_allclose(read[row], wanted[0], rtol=1e-5, atol=1e-6)


@needs_library
def test_attention_to_sources():
    """Rows of one source, in any order; places past a source's length mean nothing."""
    heads, width, lengths, owners = 3, 20, [4, 9, 1], [1, 0, 1, 2, 1]
    recording = Recording()
    program = record_program(lambda q: [recording.source(1, q)], [(heads, 1, width)], recording)
    leaves = [numbers(3, heads, max(lengths), width, seed=i) for i in range(4)]
    for leaf in leaves:
        for source, length in enumerate(lengths):
            leaf[source, :, length:] = np.nan
    q, nowhere = numbers(5, heads, 1, width, seed=9), np.zeros(4, np.int64)
    past = describe_cache(nowhere, 0, [0] * 5, [0] * 5, None, None, (leaves, owners, lengths))
    (read,) = program(5, [q], past)
    for row, owner in enumerate(owners):
        keys, values = (x[owner, None, :, : lengths[owner]] for x in (leaves[1], leaves[3]))
        wanted = attend(q[row : row + 1], keys, values)
        np.testing.assert_allclose(read[row], wanted[0], rtol=1e-5, atol=1e-6)


@needs_library
def test_slots_that_rows_share_are_read_in_one_of_them():
    """Many rows, each of which continues another; what they have of their own is no number."""
    rows, heads, width, end = 40, 2, 12, 45
    recording, draw = Recording(), np.random.default_rng(0)
    program = record_program(lambda *qkv: [recording(0, *qkv)], [(heads, 1, width)] * 3, recording)
    q, k, v = (numbers(rows, heads, 1, width, seed=i) for i in range(3))
    caches = [numbers(rows, heads, end, width, seed=i) for i in (3, 4)]
    like = np.array([0, *(draw.integers(row) for row in range(1, rows))])
    like[1:25] = np.arange(24)  # a longer chain than the library follows
    until = np.array([0, *draw.integers(0, end, rows - 1)])
    until[1:25] = np.arange(2, 26)
    for row in range(rows):
        for cache in caches:
            cache[row, :, : until[row]] = cache[like[row], :, : until[row]]
    starts = [2] * rows

    def read(caches, *origins):
        places = np.array([x.ctypes.data for x in caches], np.int64)
        past = describe_cache(places, end, starts, [end] * rows, None, *origins)
        return program(rows, [q, k, v], past)[0]

    apart = read([x.copy() for x in caches])
    for row in range(25, rows):
        for cache in caches:
            cache[row, :, : until[row]] = np.nan
    assert np.isfinite(apart).all() and (read(caches, (like, until)) == apart).all()


@pytest.fixture
def threads():
    """Sets how many threads compute; 1 afterwards."""
    yield lambda count: library().use_threads(count)
    library().use_threads(1)


def large_steps():
    """Products, functions and attention, large enough for several threads, as one number each."""
    rows, width, end = 12, 384, 64
    weight, x = numbers(1610, width), numbers(rows, width, seed=1)
    whole = np.random.default_rng(2).integers(-127, 128, weight.shape).astype(np.int8)
    scales = np.ones((len(weight), width // BLOCK), np.float32)
    maps = (
        NativeMap(weight, None),
        NativeInt8Map(whole, np.abs(weight[:, 0]), None),
        NativeInt4Map(whole >> 4, scales, None),
    )
    recording = Recording()
    shapes = [(6, 1, 64)] * 3 + [(20_000,)]
    program = record_program(
        lambda q, k, v, y: [recording(0, q, k, v), np.tanh(y) * 2], shapes, recording
    )
    inputs = [numbers(rows, *shape, seed=i) for i, shape in enumerate(shapes)]
    caches = [numbers(rows, 6, end, 64, seed=i) for i in (3, 4)]
    places = np.array([cache.ctypes.data for cache in caches], np.int64)
    past = describe_cache(places, end, [0] * rows, [end] * rows)

    def run():
        _ = caches  # their memory is read
        return [
            *(map_(part) for map_ in maps for part in (x, x[:1])),
            *program(rows, inputs, past),
        ]

    return run


@needs_library
def test_numbers_are_the_same_by_any_number_of_threads(threads):
    run = large_steps()
    threads(1)
    wanted = run()
    for count in (2, 5):
        threads(count)
        for _ in range(5):
            assert all((x == y).all() for x, y in zip(run(), wanted, strict=True))
    # Several callers at once, and a child without the threads of its parent.
    runs = [large_steps() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for found in [*pool.map(lambda run: [run() for _ in range(3)], runs)]:
            for once in found:
                assert all((x == y).all() for x, y in zip(once, wanted, strict=True))
    child = os.fork()
    if not child:
        same = all((x == y).all() for x, y in zip(run(), wanted, strict=True))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("compiled", [True, False])
def test_rows_of_a_cache_hold_what_their_origins_hold(compiled, request):
    if not compiled:
        request.getfixturevalue("numpy_alone")
    draw, texts = np.random.default_rng(0), [[] for _ in range(6)]
    state = empty_cache(6, 2, 3, 2, 4, np.zeros(0, np.float32))
    for _ in range(20):
        state.append(draw.integers(9, size=(len(state.starts), 1)))
        more = draw.normal(size=(len(state.starts), 4, 3, 2)).astype(np.float32)
        for block, numbers in zip((*state.keys, *state.values), more.swapaxes(0, 1), strict=True):
            block[:, :, state.end - 1] = numbers
        texts = [[*text, numbers] for text, numbers in zip(texts, more, strict=True)]
        rows = draw.integers(len(state.starts), size=draw.integers(3, 8))
        state, texts = state.select(rows), [texts[row] for row in rows]
        for row, text in enumerate(texts):
            of_blocks = np.stack(text, 2)  # (blocks, heads, slots, D)
            for block, numbers in zip((*state.keys, *state.values), of_blocks, strict=True):
                assert (block[row, :, : state.end] == numbers).all()
        like, until = state.origins
        shared = [(row, like[row], until[row]) for row in np.flatnonzero(until)]
        assert shared and all(other < row for row, other, _ in shared)
        for row, other, end in shared:
            for block in (*state.keys, *state.values):
                assert (block[row, :, :end] == block[other, :, :end]).all()
    state.rewritten(range(len(state.starts)))
    assert not state.origins[1].any()


def test_rows_that_join_a_cache_take_the_places_of_those_that_left():
    draw, like = np.random.default_rng(0), np.zeros(0, np.float32)

    def grown(state, texts, length):
        """Read some numbers into every row of a cache, and add them to what each text should be."""
        more = draw.normal(size=(len(texts), length))
        state.append(more.astype(np.int64))
        state.keys[0][:, 0, state.end - length : state.end, 0] = more
        return [np.append(text, numbers) for text, numbers in zip(texts, more, strict=True)]

    state, texts, stayed = empty_cache(1, 1, 1, 1, 4, like), [np.empty(0)], 0
    for _ in range(60):
        texts = grown(state, texts, 1)
        stays = [row for row in range(len(texts)) if draw.random() < 0.8] or [0]
        state, texts = state.select(stays), [texts[row] for row in stays]
        if len(texts) < 9:
            other, before = empty_cache(2, 1, 1, 1, 4, like), state.keys[0]
            texts += grown(other, [np.empty(0)] * 2, int(draw.integers(1, 8)))
            state = type(state).cat([state, other])
            stayed += np.shares_memory(before, state.keys[0])
        for row, text in enumerate(texts):
            held = state.keys[0][row, 0, state.starts[row] : state.end, 0]
            np.testing.assert_array_equal(held, text.astype(np.float32))
            assert (state.tokens[row, state.starts[row] : state.end] == text.astype(int)).all()
    assert stayed > 20


def test_a_cache_of_more_rows_takes_no_more_room_than_one_made_for_them():
    few, many = (empty_cache(n, 1, 1, 2, 4, np.zeros(0, np.float32)) for n in (2, 160))
    for state in (few, many):
        state.append(np.zeros((len(state.starts), 1), np.int64))
    for rows in ([0, 1] * 80, [*range(160)]):
        few = few.select(rows)
        assert few.keys[0].shape == many.keys[0].shape


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is counted on Linux")
def test_slots_that_no_text_has_reached_take_no_memory():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before, state = resident(), empty_cache(400, 1, 4, 16, 4, np.zeros(0, np.float32))
    state.append(np.zeros((400, 1), np.int64))
    for block in (*state.keys, *state.values):  # of 26 MB each
        block[:, :, 0] = 1
    assert resident() - before < 20e6


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("size", "spread"), [(3, 1), (66, 1), (66, 30), (8000, 4)])
def test_a_draw_is_that_of_the_filter_and_the_sum(size, spread):
    """Also next to the borders between two tokens, where rounding decides."""
    generator, never = np.random.default_rng(size), (0, 2)
    logits = spread * numbers(40, size) + 100
    exact = logits.astype(np.float64)
    exact -= exact.max(-1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    own = log_softmax(logits)
    np.testing.assert_allclose(own, exact, rtol=1e-6, atol=1e-6)
    assert all((log_softmax(row) == wanted).all() for row, wanted in zip(logits, own, strict=True))
    forbid = Forbid(never)
    cumulated = np.exp(forbid((), own).astype(np.float64)).cumsum(-1)
    borders = (cumulated / cumulated[:, -1:])[:, generator.integers(0, size, 5)]
    near = [borders + distance for distance in (0, 1e-9, -1e-9, 1e-6, -1e-6, 1e-4, -1e-4)]
    for some in (generator.random((40, 20)), *near):
        for uniforms in np.clip(some, 0, 1 - 1e-16).T.copy():
            tokens, log_probs = draw(logits, uniforms, forbid.distinct)
            wanted = (cumulated <= uniforms[:, None] * cumulated[:, -1:]).sum(-1)
            found = np.flatnonzero(tokens >= 0)
            assert (tokens[found] == wanted[found]).all()
            assert (log_probs[found] == own[found, tokens[found]]).all()
    mostly_taken = exact[:, never].max(-1) > np.log(0.49)
    assert (tokens[mostly_taken] < 0).all()
    sure = draw(logits, generator.random(40), forbid.distinct)[0] >= 0
    assert sure[~mostly_taken].mean() > 0.7 or size == 3


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("parts", "size"), [(1, 65), (2, 3), (2, 66), (5, 300), (3, 5000)])
def test_mixtures_are_those_of_the_plain_equations(parts, size):
    """Linear and by a gate, in float64; a row's numbers do not depend on the rows beside it."""
    generator = np.random.default_rng(size)
    logits = [3 * numbers(6, size, seed=part) + part for part in range(parts)]
    each = np.stack([normalise(one.astype(np.float64)) for one in logits], 1)  # (B, K, V)
    for weights in (generator.dirichlet([1.0] * parts)[:, None], generator.random((parts, 6))):
        found = mixing.mix(logits, weights)
        wanted = np.log((np.exp(each) * weights.T[:, :, None]).sum(1))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2e-6)
        last = weights[:, -1:]
        assert (mixing.mix([one[5:] for one in logits], last) == found[5:]).all()
    matched, constants = np.arange(6) % 3, numbers(3, parts)
    coefficients = 0.1 * numbers(parts**2, parts, seed=1)
    gate = mixing.NativeGate(constants, coefficients, -5.0)
    found = gate.mix(logits, matched)
    least = np.maximum(each, -5)
    means = (np.exp(least)[:, :, None] * least[:, None]).sum(-1).reshape(6, -1)
    exponents = constants[matched] + means @ coefficients
    wanted = (exponents[:, :, None] * least).sum(1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)
    assert (gate.mix([x[5:] for x in logits], matched[5:]) == found[5:]).all()


@pytest.mark.usefixtures("level")
def test_mixtures_of_what_is_impossible_or_no_number():
    """What one part rules out the other decides; NaN stays NaN."""
    logits = [numbers(3, 70, seed=part) for part in range(2)]
    logits[0][0, :2] = logits[1][0, 1:3] = -np.inf
    logits[1][1, 5], logits[0][1, 6] = -690, np.nan
    mixed = mixing.mix(logits, np.array([[0.3], [0.7]]))
    each = np.exp(np.stack([normalise(one.astype(np.float64)) for one in logits]))
    np.testing.assert_allclose(np.exp(mixed[0]), 0.3 * each[0, 0] + 0.7 * each[1, 0], rtol=1e-5)
    assert mixed[0, 1] == -np.inf and np.isnan(mixed[1]).all()
    only = mixing.mix(logits, np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(only[2], normalise(logits[1][2]), rtol=0, atol=1e-6)
    assert only[0, 0] > -np.inf and (only[0, 1:3] == -np.inf).all()
    tables = numbers(1, 2), numbers(4, 2)
    gated = mixing.NativeGate(*tables, -20.0).mix(logits, np.zeros(3, np.int64))
    assert np.isfinite(gated[[0, 2]]).all() and np.isnan(gated[1]).all()


def test_numbers_that_are_none_are_drawn_by_nobody():
    logits = numbers(3, 66)
    logits[0, 5], logits[1, 0], logits[2, 3] = np.nan, np.inf, -np.inf
    own = normalise(logits)
    assert np.isnan(own[:2]).all() and own[2, 3] == -np.inf and np.isfinite(own[2]).sum() == 65
    if library() is not None:
        assert draw(logits, np.full(3, 0.5), np.zeros(1, np.int64))[0].tolist()[:2] == [-1, -1]


@pytest.mark.parametrize("products", [Products(), Products(some="packed")])
def test_a_matrix_as_given_is_let_go_once_it_is_laid_out_for_any_number_of_rows(products):
    use_products(products)
    weight, x = numbers(50, 40), numbers(3, 40, seed=1)
    affine, given = Affine(weight, None), weakref.ref(weight)
    y = x @ weight.T
    del weight
    for rows in (1, 3, 1, 3):
        np.testing.assert_allclose(affine(x[:rows]), y[:rows], rtol=1e-4, atol=1e-5)
    use_products(Products())
    # oneDNN's matrix is a copy, too; only what no copy was made of is still there.
    assert given() is None


@needs_library
@pytest.mark.parametrize("name", known_architectures(["lstm", "jordan", "transformer"]))
def test_the_matrices_of_an_array_model_go_with_it(name):
    """At once, and not when Python looks for cycles: large models are made of each new weights."""
    model = Case(name, "default", {}).build(torch.float32)
    model.step([1, 2], model.start(2))
    arrays = model.over_arrays()
    left = [weakref.ref(map_) for map_ in arrays.program._kept[0]] + [weakref.ref(arrays)]
    assert len(left) > 1
    del arrays
    gc.disable()
    try:
        model.forget_prepared()
        assert [x() for x in left] == [None] * len(left)
    finally:
        gc.enable()


def test_without_a_library_numpy_multiplies(numpy_alone):
    use_products(Products())  # a test before may have left those that are fastest here
    weight, x = numbers(5, 4), numbers(3, 4, seed=1)
    affine = Affine(weight, None)
    np.testing.assert_allclose(affine(x), x @ weight.T, rtol=1e-6)
    assert [type(made) for made in affine._made.values()] == [Product]
    assert record_program(lambda x: [x + 1], [(4,)]) is None


def test_a_library_of_another_source_or_none_is_not_used(tmp_path, monkeypatch, numpy_alone):
    damaged = tmp_path / "kernels.so"
    for content in (b"", b"\x7fELF"):
        damaged.write_bytes(content)
        monkeypatch.setenv(VARIABLE, str(damaged))
        library.cache_clear()
        assert library() is None
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("seqgen.engines.native.library.source_checksum", lambda source: 1)
    library.cache_clear()
    assert library() is None


def test_a_machine_without_a_compiler_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "nothing")
    with pytest.raises(OSError, match="no C compiler"):
        native.compile_kernels(tmp_path / "kernels.so", ())
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'kernels.c:1: bad' >&2; exit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    with pytest.raises(OSError, match=r"fails: kernels\.c:1: bad"):
        native.compile_kernels(tmp_path / "kernels.so", ())
    assert list(tmp_path.iterdir()) == [failing]


def test_a_level_that_the_compiler_does_not_know_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "LEVELS", {"new": (), "old": ()})
    monkeypatch.setattr(native, "LIBRARIES", {x: tmp_path / x for x in ("new", "old")})
    (tmp_path / "new").write_text("of another source")
    knows = {"old"}

    def compile_kernels(target, level):
        if target.name not in knows:
            raise OSError("unknown option")
        target.touch()

    monkeypatch.setattr(native, "compile_kernels", compile_kernels)
    assert native.compile_all() == [tmp_path / "old"]
    assert list(tmp_path.iterdir()) == [tmp_path / "old"]
    knows.clear()
    with pytest.raises(OSError, match="unknown option"):
        native.compile_all()
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("level", {**native.LEVELS, "plain": ()})
def test_no_undefined_behaviour_and_no_address_out_of_bounds(level, tmp_path):
    """All products and steps of these tests and of the array models, with GCC's sanitizers."""
    made, command = tmp_path / "kernels.so", native.compiler()
    if command is None or sys.platform != "linux":
        pytest.skip("there is no compiler")
    checks = "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"
    try:
        native.compile_kernels(made, native.LEVELS.get(level, ()), ("-O0", *checks))
    except OSError as error:
        pytest.skip(str(error))
    asan = subprocess.run(
        [*command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    names = "test_native.py", "test_array_models.py", "test_ngram_native.py", "test_word2vec.py"
    chosen = [str(Path(__file__).with_name(name)) for name in names]
    chosen.append(str(ROOT / "tests" / "store" / "test_tensor_types.py"))
    environment = {
        **os.environ,
        "LD_PRELOAD": asan.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        VARIABLE: str(made),
    }
    left_out = "not source and not torch and not scores and not random"
    options = "-n0", "-q", "-s", "-p", "no:cacheprovider", "-k", left_out
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("compiles", [True, False])
def test_a_wheel_has_the_library_or_works_without_it(compiles, tmp_path):
    pytest.importorskip("hatchling")
    if compiles and native.compiler() is None:
        pytest.skip("there is no compiler")
    tree, place = tmp_path / "tree", tmp_path / "installed"
    unwanted = shutil.ignore_patterns("*.so*", "__pycache__")
    shutil.copytree(ROOT / "seqgen", tree / "seqgen", ignore=unwanted)
    shutil.copytree(ROOT / "corpora", tree / "corpora")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    environment = dict(os.environ)
    if not compiles:
        environment |= {"PATH": str(tmp_path), "CC": "nothing"}
    made = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(made, cwd=tree, env=environment, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-none-any.whl") != compiles
    zipfile.ZipFile(wheel).extractall(place)
    code = (
        "import numpy as np; from seqgen.engines.arrays import Affine;"
        "from seqgen.engines.native.library import library;"
        "y = Affine(np.eye(3, dtype=np.float32), None)(np.ones((2, 3), np.float32));"
        f"assert (y == 1).all() and (library() is not None) == {compiles}"
    )
    environment = {**os.environ, "PYTHONPATH": str(place)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    show = [sys.executable, "-m", "seqgen", "course", "1.1", "--no-run"]
    shown = subprocess.run(show, cwd=place, env=environment, stdout=subprocess.PIPE, check=True)
    assert b"seqgen train seqgen/cli/corpora/fox.txt " in shown.stdout


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@needs_library
@pytest.mark.skipif(
    not HUGE.exists() or "[never]" in HUGE.read_text(), reason="this system has no large pages"
)
def test_packed_matrices_lie_in_large_pages():
    """Also in a command, which asks NumPy for none."""
    code = """
from pathlib import Path
from seqgen.__main__ import set_up_numpy
set_up_numpy()
import numpy as np
from seqgen.engines.native.maps import NativeMap
kept = [NativeMap(np.ones((3072, 768), np.float32), None) for _ in range(5)]
lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert int(done.stdout) > 5 * 3072 * 768 * 4 / 1024 / 2  # kB: most of them at least


@pytest.mark.parametrize(
    "equation",
    [
        "layer_norm(x, infinite, None)",
        "layer_norm(infinite, x[0], None)",
        "rms_norm(x, infinite)",
        "rms_norm(infinite, x[0])",
    ],
)
def test_numpy_does_not_warn_of_damaged_weights(equation):
    code = "; ".join(
        [
            "import numpy as np; from seqgen.engines.ops import ArrayOps",
            "x = np.zeros((1, 4), np.float32)",
            "infinite = np.full(4, np.inf, np.float32)",
            f"assert np.isnan(ArrayOps.{equation}).any()",
        ]
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
