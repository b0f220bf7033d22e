"""Training batches: who is a target, after what, and in which step.

Every corpus here has the token n + 1 in its place n, so that a target tells where it stands, and
the start symbol 0.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen.text import batches as batches_module
from seqgen.text.batches import (
    IGNORED,
    DocumentBatches,
    ParallelStreams,
    RandomWindows,
    SampledBatches,
    SequentialWindows,
    training_batches,
)
from seqgen.text.corpus import Corpus

quick = settings(deadline=None, max_examples=examples(60), derandomize=True)
sizes = st.integers(1, 70)
rows = st.integers(1, 9)
windows = st.integers(1, 12)
seeds = st.integers(0, 5)
documents = st.lists(st.integers(1, 14), min_size=1, max_size=20)


def corpus_of(*lengths):
    ends = np.cumsum(lengths)
    return Corpus(np.arange(1, ends[-1] + 1, dtype=np.uint16), ends, start=0)


def same(one, other):
    assert np.array_equal(one.tokens, other.tokens)
    assert np.array_equal(one.targets, other.targets)
    assert (one.fresh, one.count) == (other.fresh, other.count)


def well_made(batch):
    assert batch.tokens.dtype == batch.targets.dtype == np.int64
    assert batch.tokens.shape == batch.targets.shape
    assert batch.tokens.shape[1] >= 1
    assert batch.count == np.count_nonzero(batch.targets != IGNORED) >= 1


@given(size=sizes, batch_size=rows, seq_len=windows, seed=seeds)
@quick
def test_a_stream_is_read_side_by_side(size, batch_size, seq_len, seed):
    batches = ParallelStreams(corpus_of(size), batch_size, seq_len, seed)
    count = batches.steps_per_epoch
    for epoch in range(3):
        steps = [batches.batch(epoch * count + i) for i in range(count)]
        for batch in steps:
            well_made(batch)
            # What is read is the place before, and the start symbol before the text's first.
            assert np.array_equal(batch.tokens, batch.targets - 1)
            assert batch.tokens.shape[1] <= seq_len
        targets = np.concatenate([batch.targets for batch in steps], 1)  # (B, row)
        assert [batch.fresh for batch in steps] == [True] + [False] * (count - 1)
        # Each row goes on where it was; the stream is a ring.
        assert np.array_equal(targets[:, 1:], targets[:, :-1] % size + 1)
        # No token twice; those of less than one more column may be left out of an epoch.
        assert np.unique(targets).size == targets.size
        assert size - targets.shape[0] < targets.size <= size
        assert targets.shape[0] <= batch_size
        if epoch == 0:
            assert targets[0, 0] == 1


def test_a_stream_that_divides_is_read_whole_every_epoch():
    batches = ParallelStreams(corpus_of(60), 4, 5, seed=1)
    assert batches.steps_per_epoch == 3
    begins = set()
    for epoch in range(4):
        targets = np.concatenate([batches.batch(3 * epoch + i).targets for i in range(3)], 1)
        assert sorted(targets.ravel()) == list(range(1, 61))
        begins.add(int(targets[0, 0]))
    assert len(begins) == 4


@given(size=sizes, batch_size=rows, seq_len=windows, seed=seeds)
@quick
def test_random_windows_are_pieces_of_the_stream(size, batch_size, seq_len, seed):
    batches = RandomWindows(corpus_of(size), batch_size, seq_len, seed)
    assert batches.steps_per_epoch == max(1, round(size / (batch_size * min(seq_len, size))))
    for step in range(4):
        batch = batches.batch(step)
        well_made(batch)
        assert batch.fresh
        assert batch.targets.shape == (batch_size, min(seq_len, size))
        assert np.array_equal(batch.tokens, batch.targets - 1)
        assert (np.diff(batch.targets, axis=1) == 1).all()
        assert batch.targets.min() >= 1
        assert batch.targets.max() <= size


def test_sequential_windows_are_those_of_the_streams_each_on_its_own():
    """The lectures': 50 characters after the other, from a zero state, the text whole."""
    corpus = corpus_of(230)
    batches = SequentialWindows(corpus, 1, 50, seed=0)
    assert batches.steps_per_epoch == 5
    steps = [batches.batch(step) for step in range(10)]
    assert all(batch.fresh for batch in steps)
    assert [batch.targets[0, 0] for batch in steps[:5]] == [1, 51, 101, 151, 201]
    assert [batch.targets.shape[1] for batch in steps] == [50, 50, 50, 50, 30] * 2
    for epoch in (steps[:5], steps[5:]):
        seen = np.concatenate([batch.targets[0] for batch in epoch])
        assert sorted(seen) == list(range(1, 231))


def test_random_windows_begin_everywhere_alike():
    batches = RandomWindows(corpus_of(14), 100, 5, seed=3)
    begins = np.concatenate([batches.batch(step).targets[:, 0] for step in range(50)])
    seen = np.bincount(begins, minlength=11)[1:]
    assert seen.size == 10
    # 500 each are expected; the statistic of 9 degrees is above 33.7 once in 10,000 times.
    assert ((seen - 500.0) ** 2 / 500).sum() < 33.7


def document_of(corpus, targets):
    return np.searchsorted(corpus.ends, targets - 1, side="right")


def an_epoch(batches, corpus, first):
    """Return the batches from step `first` on until every token has been a target once."""
    steps, seen = [], set()
    while len(seen) < corpus.tokens.size:
        batch = batches.batch(first + len(steps))
        well_made(batch)
        targets = batch.targets[batch.targets != IGNORED].tolist()
        assert seen.isdisjoint(targets)
        assert len(set(targets)) == len(targets)
        seen.update(targets)
        steps.append(batch)
    return steps


@pytest.mark.fast_for("False", rest="slow")
@pytest.mark.parametrize("carry", [False, True])
@given(lengths=documents, batch_size=rows, seq_len=windows, seed=seeds)
@quick
def test_documents_are_read_one_a_row(carry, lengths, batch_size, seq_len, seed):
    corpus = corpus_of(*lengths)
    batches = DocumentBatches(corpus, batch_size, seq_len, seed, carry)
    starts, first = set((corpus.starts + 1).tolist()), 0
    for epoch in range(3):
        steps = an_epoch(batches, corpus, first)
        if epoch == 0:
            assert len(steps) == batches.steps_per_epoch
        first += len(steps)
        before = None
        for batch in steps:
            inside = batch.targets != IGNORED
            assert batch.tokens.shape[0] <= batch_size
            assert batch.tokens.shape[1] <= seq_len
            assert (np.diff(inside.astype(int), axis=1) <= 0).all()  # padding stands on the right
            assert inside[:, -1].any()  # and there is no more of it than needed
            assert batch.tokens.min() >= 0
            assert batch.tokens.max() <= corpus.tokens.size
            for row, mask in enumerate(inside):
                if not mask.any():
                    continue
                targets, read = batch.targets[row, mask], batch.tokens[row, mask]
                assert (np.diff(targets) == 1).all()
                assert np.unique(document_of(corpus, targets)).size == 1
                wanted = [0 if t in starts else t - 1 for t in targets.tolist()]
                assert read.tolist() == wanted
                if carry and batch.fresh:
                    assert targets[0] in starts
                if not batch.fresh:
                    assert targets[0] == before.targets[row, -1] + 1
            before = batch
        assert steps[0].fresh
        if not carry:
            assert all(batch.fresh for batch in steps)
            # Every window but a document's last is full.
            assert len(steps) == -(-sum(-(-n // seq_len) for n in lengths) // batches.batch_size)


def test_a_short_last_document_beside_a_long_one():
    """What lies past a row's end is padding, also where it would lie past the corpus."""
    corpus = corpus_of(9, 1)
    batches = DocumentBatches(corpus, 2, 3, seed=0, carry=True)
    assert [batch.count for batch in an_epoch(batches, corpus, 0)] == [4, 3, 3]


def test_rows_are_of_similar_lengths():
    lengths = np.random.default_rng(0).integers(1, 40, 640)
    batches = DocumentBatches(corpus_of(*lengths), 20, 64, seed=0, carry=False)
    steps = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    padded = sum(batch.targets.size - batch.count for batch in steps)
    assert padded < 0.05 * lengths.sum()
    widths = [batch.targets.shape[1] for batch in steps]
    assert widths != sorted(widths)  # the order of a pool's batches is drawn


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: ParallelStreams(corpus_of(50), 3, 4, seed),
        lambda seed: RandomWindows(corpus_of(50), 3, 4, seed),
        lambda seed: SequentialWindows(corpus_of(50), 3, 4, seed),
        lambda seed: DocumentBatches(corpus_of(*range(1, 12)), 3, 4, seed, carry=False),
        lambda seed: DocumentBatches(corpus_of(*range(1, 12)), 3, 4, seed, carry=True),
    ],
)
def test_a_batch_depends_on_seed_and_step_alone(make):
    in_order = [make(7).batch(step) for step in range(40)]
    batches = make(7)
    for step in (33, 0, 17, 5, 39, 5):
        same(batches.batch(step), in_order[step])
    others = [make(8).batch(step) for step in range(40)]
    assert any(
        a.targets.shape != b.targets.shape or (a.targets != b.targets).any()
        for a, b in zip(in_order, others, strict=True)
    )


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("kind", ["stream", "line"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_corpora_smaller_than_a_batch(carry, kind, size):
    batches = training_batches(corpus_of(size), kind, carry, batch_size=8, seq_len=16, seed=0)
    for step in range(3):
        batch = batches.batch(step)
        well_made(batch)
        assert batch.fresh
        assert set(batch.targets.ravel()) <= set(range(1, size + 1))


def test_which_batches_suit_which_text_and_model():
    corpus = corpus_of(5, 5, 5)
    kinds = {
        ("stream", True): ParallelStreams,
        ("stream", False): RandomWindows,
        ("line", True): DocumentBatches,
        ("line", False): DocumentBatches,
    }
    for documents, carry in itertools.product(("stream", "line"), (True, False)):
        batches = training_batches(corpus, documents, carry, 2, 3, 0)
        assert type(batches) is kinds[documents, carry]
    in_order = training_batches(corpus, "stream", False, 2, 3, 0, windows="sequential")
    assert type(in_order) is SequentialWindows


def test_texts_cut_anew_in_every_epoch_are_read_from_the_beginning_of_each(monkeypatch):
    """A long document takes several steps, so that epochs of one text may differ in length.

    A text that is segmented at random has batches of its own in every epoch.
    """
    monkeypatch.setattr(batches_module, "POOL", 1)
    corpus = corpus_of(1, 9, 2, 14, 3, 8, 1, 5)
    whole = DocumentBatches(corpus, 2, 3, seed=0, carry=True)
    epochs, first = [], 0
    for _ in range(4):
        epochs.append(an_epoch(whole, corpus, first))
        first += len(epochs[-1])
    assert len({len(steps) for steps in epochs}) > 1
    cut = SampledBatches(lambda epoch: DocumentBatches(corpus, 2, 3, seed=0, carry=True))
    count = cut.steps_per_epoch
    for epoch, steps in enumerate(epochs):
        for index in range(count):  # a shorter epoch starts over, a longer one is cut short
            same(cut.batch(epoch * count + index), steps[index % len(steps)])
