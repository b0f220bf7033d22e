"""Scoring against a loop over single tokens, and the arithmetic of its totals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import (
    CASES,
    ONE_OF_EACH,
    VOCAB,
    first_of_each,
    from_scratch,
    ids,
    over,
    representatives,
)
from hypothesis import given
from hypothesis import strategies as st

from seqgen.metrics.perplexity import ScoreTotals
from seqgen.scoring import loop as scoring
from seqgen.scoring.loop import Scored, add_up, parallel_rows, score_corpus
from seqgen.text.corpus import Corpus
from seqgen.text.tokenizers.byte import ByteTokenizer

START = 6


def corpus_of(*lengths, seed=0):
    tokens = ids(sum(lengths), seed=seed).numpy().astype(np.uint8)
    return Corpus(tokens, np.cumsum(lengths), START)


def one_token_at_a_time(model, corpus, stride=None):
    """Return each document's log-probabilities, each from a call without a state."""
    found = []
    for begin, end in zip(corpus.starts, corpus.ends, strict=True):
        targets = corpus.tokens[begin:end].astype(np.int64)
        read = [corpus.start, *targets[:-1].tolist()]
        log_probs = from_scratch(model, read, stride).log_softmax(-1)
        found.append(log_probs[torch.arange(targets.size), torch.from_numpy(targets)].numpy())
    return found


def by_document(scored, count):
    pieces: list[list[Scored]] = [[] for _ in range(count)]
    for piece in scored:
        changes = np.flatnonzero(np.diff(piece.documents)) + 1
        columns = (piece.documents, piece.tokens, piece.log_probs, piece.hits)
        for parts in zip(*(np.split(column, changes) for column in columns), strict=True):
            pieces[parts[0][0]].append(Scored(*parts))
    return pieces


def check(model, corpus, batch_size, stride=None):
    wanted = one_token_at_a_time(model, corpus, stride)
    pieces = by_document(score_corpus(model, corpus, batch_size, stride), len(wanted))
    for document, own in enumerate(pieces):
        begin, end = corpus.starts[document], corpus.ends[document]
        tokens = np.concatenate([piece.tokens for piece in own])
        assert np.array_equal(tokens, corpus.tokens[begin:end])
        log_probs = np.concatenate([piece.log_probs for piece in own])
        assert log_probs.dtype == np.float64
        np.testing.assert_allclose(log_probs, wanted[document], rtol=0, atol=1e-10)
    totals = add_up((piece for own in pieces for piece in own), ByteTokenizer())
    assert totals.tokens == corpus.tokens.size
    assert totals.nll_nats == pytest.approx(-sum(w.sum() for w in wanted), abs=1e-8)


@pytest.mark.fast_for(*ONE_OF_EACH, "transformer-sliding", rest="slow")
@over(representatives(CASES))
def test_documents_of_every_length_about_the_window(case):
    model = case.loud()
    lengths = list(range(1, 2 * (model.window or 4) + 3))
    corpus = corpus_of(*np.random.default_rng(1).permutation(lengths))
    check(model, corpus, batch_size=4)


@pytest.mark.fast_for(
    "7-lstm-plain",
    "7-mixture-three",
    "7-ngram-*",
    "7-hmm-smooth",
    "7-window-plain",
    "7-cached-lstm",
    "1-rnn-tanh",
    "1-lstm-plain",
    "8192-transformer-default",
    rest="slow",
)
@over(representatives(first_of_each(CASES)))
@pytest.mark.parametrize("piece", [1, 7, 8192])
def test_pieces_and_batches_change_nothing(case, piece, monkeypatch):
    monkeypatch.setattr(scoring, "PIECE", piece)
    monkeypatch.setattr(scoring, "POOL", 2)
    model, corpus = case.loud(), corpus_of(5, 1, 9, 9, 2, 17, 1, 3)
    for batch_size in (1, 3, 32):
        check(model, corpus, batch_size)


@over(representatives(first_of_each(CASES)))
def test_a_stream_is_one_row_in_order(case, monkeypatch):
    monkeypatch.setattr(scoring, "PIECE", 10)
    model = case.loud()
    for length in (1, 10, 11, 12, 40):
        check(model, corpus_of(length), batch_size=32)
    for stride in (1, 3, model.window or 8):
        check(model, corpus_of(30), 32, stride)


def test_large_models_read_fewer_tokens_at_once(monkeypatch):
    model = next(case for case in CASES if case.architecture == "transformer").loud()
    read, plain = [], model.score
    monkeypatch.setattr(scoring, "LEAST_PIECE", 4)
    monkeypatch.setattr(model, "score", lambda x, *more: read.append(x.shape) or plain(x, *more))
    for products, most in ((10 * model.parameter_count(), 10), (1, 4), (10**11, 40)):
        monkeypatch.setattr(scoring, "PIECE_PRODUCTS", products)
        read.clear()
        list(scoring.score_corpus(model, corpus_of(40)))
        assert max(length for _, length in read) == min(most + 1, 40)


def test_totals_count_unknown_and_correct_tokens():
    unk = ByteTokenizer().unk_id
    pieces = [
        Scored(
            np.array([0, 0, 0]),
            np.array([9, unk, 9]),
            np.array([-1.0, -2.0, -0.5]),
            np.array([True, False, False]),
        ),
        Scored(np.array([1]), np.array([unk]), np.array([-4.0]), np.array([True])),
    ]
    totals = add_up(pieces, ByteTokenizer())
    assert totals == ScoreTotals(tokens=4, nll_nats=7.5, correct=2, oov=2, oov_nats=6.0)


def test_accuracy_counts_what_greedy_decoding_would_write():
    model, corpus = CASES[0].loud(), corpus_of(30)
    read = [START, *corpus.tokens[:-1].tolist()]
    best = from_scratch(model, read).argmax(-1).numpy()
    totals = add_up(score_corpus(model, corpus), ByteTokenizer())
    assert totals.correct == np.count_nonzero(best == corpus.tokens)


def test_figures_by_hand():
    """Four tokens of 1/2, 1/4, 1/8 and, unknown, 1/16: ten bits, and 24 for its three bytes."""
    totals = ScoreTotals(
        tokens=4,
        nll_nats=10 * math.log(2),
        correct=1,
        oov=1,
        oov_nats=4 * math.log(2),
        characters=5,
        bytes=8,
        oov_bytes=3,
    )
    assert totals.nats_per_token == pytest.approx(2.5 * 0.6931471805599453)
    assert totals.perplexity == pytest.approx(2**2.5)
    assert totals.perplexity_without_oov == pytest.approx(4)
    assert totals.bits_per_token == pytest.approx(2.5)
    assert totals.bits_per_char == pytest.approx(6.8)
    assert totals.bits_per_byte == totals.total_bits_per_byte == pytest.approx(4.25)
    assert totals.oov_bits_per_byte == pytest.approx(3)
    assert replace(totals, oov_bytes=math.nan).bits_per_char is None
    assert totals.accuracy == 0.25


def test_figures_of_nothing_are_none():
    nothing = ScoreTotals()
    for name in ("nats_per_token", "perplexity", "bits_per_char", "bits_per_byte", "accuracy"):
        assert getattr(nothing, name) is None
    assert ScoreTotals(tokens=2, oov=2, nll_nats=1.0, oov_nats=1.0).perplexity_without_oov is None
    assert ScoreTotals(tokens=1, nll_nats=1e6).perplexity == math.inf


counts = st.integers(0, 1000)
some_totals = st.builds(
    ScoreTotals,
    tokens=counts,
    nll_nats=counts.map(float),
    correct=counts,
    oov=counts,
    oov_nats=counts.map(float),
    characters=counts,
    bytes=counts,
)


@given(some_totals, some_totals, some_totals)
def test_totals_add_up(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ScoreTotals() == a
    assert (a + b).nll_nats == a.nll_nats + b.nll_nats


def test_perplexity_of_two_texts_is_no_mean_of_means():
    one = ScoreTotals(tokens=1, nll_nats=math.log(16))
    other = ScoreTotals(tokens=3, nll_nats=0.0)
    assert (one + other).perplexity == pytest.approx(2)


@pytest.mark.parametrize(
    ("size", "rows", "length", "kept"),
    [
        (1, 4, 100, (1, 1)),
        (100, 4, 20, (4, 20)),
        (100, 4, 25, (4, 25)),
        (100, 4, 26, (3, 33)),  # too short for four: fewer, and all of it
        (150, 7, 100, (1, 150)),
    ],
)
def test_parallel_rows_of_a_stream(size, rows, length, kept):
    corpus = Corpus(np.arange(size), np.array([size]), START)
    part = parallel_rows(corpus, rows, length)
    lengths = part.ends - part.starts
    assert (lengths.size, *set(lengths.tolist())) == kept
    for begin, end in zip(part.starts, part.ends, strict=True):
        assert (np.diff(part.tokens[begin:end]) == 1).all()
    assert part.tokens[0] == 0
    assert part.tokens[-1] == size - 1 or lengths.size == 1
    assert np.unique(part.tokens).size == part.tokens.size


def test_parallel_rows_of_documents_are_the_first_ones():
    corpus = corpus_of(4, 2, 5, 9)
    assert parallel_rows(corpus, 11, 1).ends.tolist() == [4, 6, 11]
    assert parallel_rows(corpus, 4, 3).ends.tolist() == [4, 6, 11]
    assert parallel_rows(corpus, 1, 1).ends.tolist() == [4]
    assert parallel_rows(corpus, 32, 99).tokens.size == 20
    assert VOCAB > START
