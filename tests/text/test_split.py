import math

import numpy as np
import pytest
from helpers_io import quick, texts
from hypothesis import assume, example, given
from hypothesis import strategies as st

from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import DataConfig
from seqgen.text import reading
from seqgen.text import split as splitting
from seqgen.text.reading import Text, lines, survey
from seqgen.text.split import held_out_fraction, held_out_lines, require_nonempty_parts, split_text
from seqgen.text.tokenizers import KINDS


def divided(folder, content, kind="char", **settings):
    path = folder / "text.txt"
    path.write_bytes(content.encode())
    text = Text((path,))
    config = DataConfig(tokenizer=kind, **settings)
    parts = split_text(text, survey(text.chunks()), config, KINDS[kind].train(()))
    train = "".join(parts.train())
    assert "".join(parts.train()) == train  # every call reads from the start
    return train, None if parts.val is None else "".join(parts.val())


@pytest.mark.fast_for("byte", "word", rest="slow")
@pytest.mark.parametrize("kind", ["char", "byte", "word", "whitespace"])
@quick
@given(text=texts)
@example(text="0123456789")
@example(text="one two three four five six\nseven eight nine ten and a long-drawn-out ending")
def test_a_stream_is_cut_at_the_first_token_boundary(kind, text, tmp_path, monkeypatch):
    assume(not text.startswith("\ufeff"))
    monkeypatch.setattr(reading, "CHUNK_BYTES", 7)
    train, val = divided(tmp_path, text, kind)
    assert train + val == text
    tokenizer = KINDS[kind].train([text])
    whole = tokenizer.encode(text).tolist()

    def harmless(b):
        return [*tokenizer.encode(text[:b]).tolist(), *tokenizer.encode(text[b:]).tolist()] == whole

    at = 9 * len(text) // 10
    assert len(train) == next(b for b in range(at, len(text) + 1) if harmless(b))


def test_the_floor_is_not_at_the_mercy_of_rounding(tmp_path):
    for size in (*range(1, 200), 1000, 12_345):
        train, _ = divided(tmp_path, "x" * size)
        assert len(train) == size * 9 // 10
        train, _ = divided(tmp_path, "x" * size, val="0.05")
        assert len(train) == size * 95 // 100


def test_a_word_across_the_cut_is_learned(tmp_path):
    text = "aaaa bbbb cccc dddddddddddddddddddd ee"
    train, val = divided(tmp_path, text, "word")
    assert (train, val) == ("aaaa bbbb cccc dddddddddddddddddddd", " ee")


@quick
@given(
    documents=st.lists(st.text("ab", max_size=3), min_size=1, max_size=60),
    seed=st.integers(0, 5),
    end=st.booleans(),
)
def test_lines_are_held_out_at_random(documents, seed, end, tmp_path):
    text = "\n".join(documents) + ("\n" if end else "")
    train, val = divided(tmp_path, text, documents="line", split_seed=seed)
    both, all_lines = [*lines([train]), *lines([val])], list(lines([text]))
    if not text.endswith("\n") and all_lines:
        # The last line has no end of its own, wherever it went, and nothing follows it there.
        assert train.endswith(all_lines[-1]) or val.endswith(all_lines[-1])
    assert sorted(both) == sorted(all_lines)
    if all_lines:
        assert len(list(lines([val]))) == max(1, round(len(all_lines) / 10))


def test_the_order_of_lines_is_kept_in_training_and_random_in_what_is_held_out(
    tmp_path, monkeypatch
):
    text = "".join(f"{n:03}\n" for n in range(200))
    train, val = divided(tmp_path, text, documents="line")
    assert train.split() == sorted(train.split())
    assert len(val.split()) == 20 and set(val.split()).isdisjoint(train.split())
    # Of a sorted list, the first half of what is held out is like the second.
    first, second = np.split(np.array(list(map(int, val.split()))), 2)
    assert min(second) < max(first) and min(first) < max(second)
    order = np.argsort(val.split())
    assert (np.diff(order) < 0).any() and (np.diff(order) > 0).any()
    monkeypatch.setattr(splitting, "LINES_AT_ONCE", 7)  # and three passes read the same
    assert divided(tmp_path, text, documents="line") == (train, val)
    monkeypatch.undo()
    assert divided(tmp_path, text, documents="line") == (train, val)
    assert divided(tmp_path, text, documents="line", split_seed=1) != (train, val)
    # A tenth at random is not the last tenth, and it is spread over the text.
    assert min(map(int, val.split())) < 60 and max(map(int, val.split())) > 140


def test_every_line_is_held_out_as_often():
    times = sum(held_out_lines(50, 0.1, seed).astype(int) for seed in range(2000))
    assert times.sum() == 10_000
    # Each is binomial(2000, 0.1): mean 200, standard deviation 13.4.
    assert np.abs(times - 200).max() < 5 * math.sqrt(2000 * 0.1 * 0.9)


def test_at_least_one_line():
    assert held_out_lines(1, 0.1, 0).tolist() == [True]
    assert held_out_lines(3, 0.001, 0).sum() == 1
    assert held_out_lines(0, 0.1, 0).size == 0


def test_none_and_a_file(tmp_path):
    assert divided(tmp_path, "some text", val="none") == ("some text", None)
    other = tmp_path / "other.txt"
    other.write_text("held out")
    assert divided(tmp_path, "some text", val=str(other)) == ("some text", "held out")
    with pytest.raises(SeqgenError, match="there is no file"):
        divided(tmp_path, "some text", val=str(tmp_path / "gone.txt"))


@pytest.mark.parametrize("val", ["0", "1", "1.5", "-0.1", "nan", "inf", "10"])
def test_a_share_is_between_0_and_1(val, tmp_path):
    with pytest.raises(UsageError, match="share"):
        divided(tmp_path, "some text", val=val)


def test_shares():
    assert held_out_fraction("0.05") == held_out_fraction("5e-2") == 0.05
    assert held_out_fraction("val.txt") is None


def test_a_part_without_a_token_is_refused():
    require_nonempty_parts(1, 1, "stream")
    require_nonempty_parts(1, None, "line")
    with pytest.raises(SeqgenError, match="nothing is left to train on"):
        require_nonempty_parts(0, 1, "line")
    with pytest.raises(SeqgenError, match="validation part is empty"):
        require_nonempty_parts(1, 0, "stream")
