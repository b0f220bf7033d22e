import numpy as np
import pytest
from helpers_io import quick
from hypothesis import given
from hypothesis import strategies as st

from seqgen.hashing import hash64, uniforms

MASK = (1 << 64) - 1


def by_hand(*words):
    """The docstring's formula, in Python's integers."""
    h = 0
    for word in words:
        h = ((h + 0x9E3779B97F4A7C15) & MASK) ^ (word & MASK)
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
        h ^= h >> 31
    return h


@quick
@given(words=st.lists(st.integers(-(1 << 70), 1 << 70), max_size=5))
def test_it_is_the_documented_formula(words):
    assert int(hash64(*words)) == by_hand(*words)


def test_the_finaliser_is_splitmix64():
    # The first outputs of the reference SplitMix64 started at 0: its state grows by GAMMA.
    assert int(hash64(0)) == 0xE220A8397B1DCDAF
    gamma = 0x9E3779B97F4A7C15
    assert int(hash64(((2 * gamma) & MASK) ^ gamma)) == 0x6E789E6AA1B965F4


@quick
@given(
    seed=st.integers(0, 1 << 63),
    rows=st.lists(st.integers(0, 1 << 62), min_size=1, max_size=5),
    step=st.integers(0, 1000),
)
def test_arrays_are_hashed_element_by_element(seed, rows, step):
    hashed = hash64(seed, np.array(rows), step)
    assert hashed.dtype == np.uint64
    assert hashed.tolist() == [by_hand(seed, row, step) for row in rows]
    numbers = uniforms(seed, np.array(rows), step)
    assert numbers.tolist() == [(by_hand(seed, row, step) >> 11) / 2**53 for row in rows]


def test_broadcasting():
    table = hash64(5, np.arange(3)[:, None], np.arange(4))
    assert table.shape == (3, 4)
    assert int(table[2, 3]) == by_hand(5, 2, 3)


def test_order_and_number_of_words_matter():
    assert int(hash64(1, 2)) != int(hash64(2, 1))
    assert int(hash64(0)) != int(hash64(0, 0))
    assert len(set(hash64(np.arange(100_000)).tolist())) == 100_000


def chi_square(numbers, bins):
    counts = np.bincount((numbers * bins).astype(int), minlength=bins)
    expected = numbers.size / bins
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("varying", range(4))
def test_uniforms_are_uniform_in_every_word(varying):
    words = [7, 3, 1, 4]
    words[varying] = np.arange(100_000)
    numbers = uniforms(*words)
    assert numbers.min() >= 0 and numbers.max() < 1
    # 255 degrees of freedom: mean 255, standard deviation 22.6. Five of them away is 368.
    assert 142 < chi_square(numbers, 256) < 368


def test_neighbours_are_independent():
    u, v = uniforms(1, np.arange(100_000)), uniforms(2, np.arange(100_000))
    for a, b in ((u, v), (u[:-1], u[1:])):
        pairs = (np.floor(a * 16) * 16 + np.floor(b * 16)) / 256
        assert 142 < chi_square(pairs, 256) < 368
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(a.size)
