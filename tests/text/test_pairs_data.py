"""Pairs: reading them, keeping both sides in step, and dealing them out into batches.

In the corpora made here pair i has a target of the ids 1000 i, 1000 i + 1, ..., and a source of
the ids 1000 i + 500, ..., so that an id tells whose it is and where it stands.
"""

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen.errors import SeqgenError
from seqgen.hashing import uniforms
from seqgen.text.batches import IGNORED, PairBatches, UnknownsInSources, portions, training_batches
from seqgen.text.corpus import Corpus
from seqgen.text.pairs import FilePairs, TabPairs, Tokenizers, drop_long, encode_pairs
from seqgen.text.reading import Text
from seqgen.text.sources import Source, TokenSources, VectorSources, deduplicate_sources
from seqgen.text.tokenizers.char import CharTokenizer

quick = settings(deadline=None, max_examples=examples(60), derandomize=True)
both_lengths = st.lists(st.tuples(st.integers(1, 14), st.integers(1, 14)), min_size=1, max_size=30)


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return Text((path,))


def tabs(tmp_path, text):
    return TabPairs(written(tmp_path, "pairs.tsv", text), "pairs.tsv")


def files(tmp_path, source, target):
    texts = written(tmp_path, "a.en", source), written(tmp_path, "a.de", target)
    return FilePairs(*texts, ("a.en", "a.de"))


def corpus_of(lengths):
    """Return the corpus described at the top, from (source length, target length) of each pair."""
    sources = [1000 * i + 500 + np.arange(s) for i, (s, _) in enumerate(lengths)]
    targets = [1000 * i + np.arange(t) for i, (_, t) in enumerate(lengths)]
    ends = np.cumsum([len(t) for t in targets])
    return Corpus(np.concatenate(targets), ends, 77, sources=TokenSources.of(sources))


def test_the_first_tab_parts_and_only_newlines_end(tmp_path):
    text = "a\tb\tc\n\tx\r\ny\t\n\t\nu\u2028v\x0b\tw\x85z"
    assert list(tabs(tmp_path, text)) == [
        ("a", "b\tc"),
        ("", "x\r"),
        ("y", ""),
        ("", ""),
        ("u\u2028v\x0b", "w\x85z"),
    ]


def test_a_line_without_a_tab_is_named(tmp_path):
    with pytest.raises(SeqgenError, match=r"^pairs\.tsv, line 2 has no tab; .*--source") as error:
        list(tabs(tmp_path, "a\tb\nc d\ne\tf\n"))
    assert "\n" not in str(error.value)


def test_two_files_are_read_side_by_side(tmp_path):
    assert list(files(tmp_path, "a\tb\n\nc\n", "x\ny\n\tz")) == [
        ("a\tb", "x"),
        ("", "y"),
        ("c", "\tz"),
    ]


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [("a\n" * 5, "b\n" * 3, (5, 3)), ("a\n", "b\n" * 4 + "c", (1, 5)), ("", "b", (0, 1))],
)
def test_unequal_files_are_refused_with_both_counts(tmp_path, source, target, said):
    wanted = rf"^a\.en has {said[0]} lines and a\.de has {said[1]} lines; "
    with pytest.raises(SeqgenError, match=wanted):
        list(files(tmp_path, source, target))


def test_pairs_become_ids_with_their_ends(tmp_path):
    pairs = tabs(tmp_path, "ab\tx\n\tyx\nba\t\nz\tx")
    source, target = CharTokenizer("ab"), CharTokenizer("xyz")
    corpus = encode_pairs(pairs, Tokenizers(target, source))
    got = [corpus.tokens[a:b].tolist() for a, b in zip(corpus.starts, corpus.ends, strict=True)]
    eos = target.eos_id
    assert got == [[*target.encode(t).tolist(), eos] for t in ("x", "yx", "", "x")]
    read = corpus.sources.rows([1, 0, 3])
    assert read.lengths.tolist() == [1, 3, 2]
    a, b = source.encode("ab").tolist()
    assert read.values.tolist() == [[eos, 0, 0], [a, b, eos], [source.unk_id, eos, 0]]
    assert (corpus.start, corpus.oov, corpus.sources.oov) == (target.bos_id, 0, 1)
    joint = Tokenizers(target, target)
    assert joint.joint and not Tokenizers(target, source).joint


@given(lengths=both_lengths, data=st.data())
@quick
def test_take_keeps_both_sides_in_step(lengths, data):
    corpus = corpus_of(lengths)
    numbers = st.integers(0, len(lengths) - 1)
    which = data.draw(st.lists(numbers, max_size=8))
    taken = corpus.take(np.array(which, dtype=np.int64))
    assert len(taken.ends) == len(taken.sources) == len(which)
    for place, number in enumerate(which):
        target = taken.tokens[taken.starts[place] : taken.ends[place]]
        assert target.tolist() == [1000 * number + t for t in range(lengths[number][1])]
        source = taken.sources.rows([place]).values[0]
        assert source.tolist() == [1000 * number + 500 + t for t in range(lengths[number][0])]


def test_long_pairs_are_dropped_whole():
    # Lengths count EOS, which the limits do not.
    corpus = corpus_of([(3, 3), (4, 2), (2, 5), (1, 4)])
    fitting = drop_long(corpus, 2, 3)
    assert [fitting.tokens[s] for s in fitting.starts] == [0, 3000]
    assert drop_long(corpus, None, None) is corpus
    assert len(drop_long(corpus, None, 2).ends) == 2
    assert len(drop_long(corpus, 2, None).ends) == 3


def test_vectors_are_padded_with_zeros():
    values = np.arange(12, dtype=np.float16).reshape(6, 2)
    sources = VectorSources(values, np.array([1, 4, 6]))
    read = sources.rows([1, 2])
    assert read.values.dtype == np.float32
    assert read.values.tolist() == [[[2, 3], [4, 5], [6, 7]], [[8, 9], [10, 11], [0, 0]]]
    assert VectorSources.of(values).rows([3]).values.tolist() == [[[6, 7]]]
    grid = VectorSources.of(np.arange(24).reshape(2, 2, 3, 2))
    assert grid.lengths.tolist() == [6, 6]
    assert grid.rows([1]).values[0, :, 0].tolist() == [12, 14, 16, 18, 20, 22]


def test_equal_sources_have_one_handle():
    sources, handles = deduplicate_sources([(5, 2), (7,), (5, 2), (2, 5)])
    assert handles == [0, 1, 0, 2]
    assert len(sources) == 3
    assert sources.rows([2]).values.tolist() == [[2, 5]]


@given(lengths=both_lengths, step=st.integers(0, 9), share=st.sampled_from([0.0, 0.3, 1.0]))
@quick
def test_unknowns_are_drawn_by_their_place_and_spare_the_ends(lengths, step, share):
    plain = PairBatches(corpus_of(lengths), 4, seed=7)
    one, other = plain.batch(step), UnknownsInSources(plain, share, 3).batch(step)
    assert other.tokens.tolist() == one.tokens.tolist()
    assert other.targets.tolist() == one.targets.tolist()
    assert other.source.lengths.tolist() == one.source.lengths.tolist()
    for row, length in enumerate(one.source.lengths.tolist()):
        for place in range(one.source.values.shape[1]):
            drawn = place < length - 1 and float(uniforms(5, 7, step, row, place)) < share
            wanted = 3 if drawn else one.source.values[row, place]
            assert other.source.values[row, place] == wanted


@pytest.mark.fast_for("settings0", rest="slow")
@pytest.mark.parametrize("settings", [{"batch_size": 4}, {"batch_size": None, "tokens": 30}])
@given(lengths=both_lengths, seed=st.integers(0, 5))
@quick
def test_every_pair_comes_whole_once_an_epoch(settings, lengths, seed):
    corpus = corpus_of(lengths)
    batches = PairBatches(corpus, seed=seed, **settings)
    step = 0
    for _ in range(3):
        seen = []
        while len(seen) < len(lengths):
            batch = batches.batch(step)
            step += 1
            assert batch.fresh and batch.count == np.count_nonzero(batch.targets != IGNORED)
            rows, wide = batch.targets.shape
            assert len(batch.source) == rows
            sides = batch.source.values.shape[1], wide
            if "tokens" in settings:
                assert rows == 1 or rows * max(sides) <= 30
            else:
                assert rows <= 4
            for target, read, source, size in zip(
                batch.targets, batch.tokens, *vars(batch.source).values(), strict=True
            ):
                number = int(target[0]) // 1000
                seen.append(number)
                wanted = [1000 * number + t for t in range(lengths[number][1])]
                padding = [IGNORED] * (wide - len(wanted))
                assert target.tolist() == [*wanted, *padding]
                assert read[: len(wanted)].tolist() == [77, *wanted[:-1]]
                wanted = [1000 * number + 500 + t for t in range(lengths[number][0])]
                assert size == len(wanted)
                assert source.tolist() == wanted + [0] * (sides[0] - size)
        assert sorted(seen) == list(range(len(lengths)))


@pytest.mark.parametrize("tokens", [None, 64])
def test_a_corpus_with_sources_is_dealt_out_in_pairs(tokens):
    corpus = corpus_of([(5, 9), (9, 5), (3, 3), (1, 12)])
    batches = training_batches(corpus, "line", False, 2, 4, seed=3, tokens=tokens)
    wanted = PairBatches(corpus, None if tokens else 2, 3, tokens)
    for step in range(4):
        assert np.array_equal(batches.batch(step).targets, wanted.batch(step).targets)
    assert batches.seq_len == 12  # whatever the window: no target is cut


def test_a_batch_of_pairs_depends_on_seed_and_step_alone():
    lengths = np.random.default_rng(0).integers(1, 20, (300, 2)).tolist()

    def make(seed):
        return PairBatches(corpus_of(lengths), None, seed, tokens=64)

    in_order = [make(7).batch(step) for step in range(100)]
    batches = make(7)
    for step in (70, 0, 33, 99, 33):
        got, wanted = batches.batch(step), in_order[step]
        assert np.array_equal(got.tokens, wanted.tokens)
        assert np.array_equal(got.source.values, wanted.source.values)
    others = [make(8).batch(step).tokens for step in range(5)]
    assert any(o.shape != w.tokens.shape for o, w in zip(others, in_order, strict=False))


def test_similar_lengths_stand_together():
    draws = np.random.default_rng(0).integers(1, 40, 4000)
    lengths = [(int(n), max(1, int(n) + d)) for n, d in zip(draws, draws % 5 - 2, strict=True)]
    batches = PairBatches(corpus_of(lengths), None, 0, tokens=800)
    steps = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    cells = sum(batch.targets.size + batch.source.values.size for batch in steps)
    needed = sum(s + t for s, t in lengths)
    assert needed <= cells < 1.1 * needed
    widths = [batch.targets.shape[1] for batch in steps]
    assert widths != sorted(widths)


def test_portions_of_a_batch_have_its_sources():
    batches = PairBatches(corpus_of([(9, 3), (2, 4), (5, 5), (1, 1), (3, 2)]), 5, seed=0)
    whole = batches.batch(0)
    parts = [(portion.rows, portion.of(whole)) for portion in portions(5, 3, 0, 1)]
    assert [part.count for _, part in parts] == [whole.count] * 3
    for cut, part in parts:
        assert len(part.source) == len(part.targets) == len(whole.targets[cut])
        assert (part.targets[:, 0] // 1000 == part.source.values[:, 0] // 1000).all()
        # A piece is no wider than its own longest source.
        assert part.source.values.shape[1] == part.source.lengths.max()
    lengths = np.concatenate([part.source.lengths for _, part in parts])
    assert lengths.tolist() == whole.source.lengths.tolist()


def test_parts_of_a_source_are_the_same_rows():
    source = Source(np.array([[1, 2, 3], [4, 0, 0], [5, 6, 0]]), np.array([3, 1, 2]))
    part = source.part(slice(1, 3))
    assert part.values.tolist() == [[4, 0], [5, 6]]
