"""Subwords: no text is lost, ids are sentencepiece's own, and chance follows a seed."""

import io
import json
import random

import numpy as np
import pytest
import sentencepiece
from helpers_io import characters, cut, cut_bytes, places, quick, texts
from hypothesis import given
from hypothesis import strategies as st

from seqgen.errors import SeqgenError, UsageError
from seqgen.text.encoding import Sampling
from seqgen.text.reading import decode_blocks
from seqgen.text.tokenizers import KINDS, load_tokenizer
from seqgen.text.tokenizers.base import cut_long_line
from seqgen.text.tokenizers.sentencepiece import (
    ESCAPE,
    SPACE,
    BPETokenizer,
    SentencepieceTokenizer,
    load_model_file,
)

SUBWORDS = ("bpe", "unigram")
PHRASE = "the cat sat on a mat and then that cat ate the rat; Größe naïve  \t 日本 he said"


def prose(lines=400, seed=0):
    draw = random.Random(seed)
    return "".join(" ".join(draw.choices(PHRASE.split(" "), k=8)) + "\n" for _ in range(lines))


@pytest.fixture(scope="module")
def trained():
    return {kind: KINDS[kind].train([prose()], 340) for kind in SUBWORDS}


def plain_model(algorithm="bpe", vocab_size=38, **options):
    """A model as sentencepiece makes it when nobody asks for anything."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(prose().split("\n")),
        model_writer=written,
        model_type=algorithm,
        vocab_size=vocab_size,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


awkward = st.one_of(
    texts, st.text(st.one_of(characters, st.sampled_from(f"{SPACE}{ESCAPE}_ \n\r\0\u200d")))
)


@pytest.mark.parametrize("kind", SUBWORDS)
@given(text=awkward, at=places)
@quick
def test_no_text_is_lost(trained, kind, text, at):
    tokenizer = trained[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids.tolist()) == text
    assert not (ids == tokenizer.unk_id).any()
    in_pieces = [i for block in tokenizer.blocks(cut(text, at)) for i in tokenizer.encode(block)]
    assert in_pieces == ids.tolist()


@pytest.mark.fast_for("char", "byte", "word", "bpe", rest="slow")
@pytest.mark.parametrize("kind", ["char", "byte", "word", *SUBWORDS])
@given(text=awkward, at=places)
@quick
def test_every_lossless_kind_streams_bytes_cut_anywhere(trained, kind, text, at):
    tokenizer = trained[kind] if kind in SUBWORDS else KINDS[kind].train([text])
    raw = ("\ufeff" + text).encode()  # a first byte order mark is not text, a second one is
    chunks = decode_blocks(cut_bytes(raw, at), "text")
    decoder = tokenizer.decoder()
    pushed = [decoder.push(i) for x in tokenizer.blocks(chunks) for i in tokenizer.encode(x)]
    assert "".join(pushed) + decoder.flush() == text


@pytest.mark.parametrize("kind", SUBWORDS)
@given(text=awkward, data=st.data())
@quick
def test_the_incremental_decoder_takes_nothing_back(trained, kind, text, data):
    tokenizer = trained[kind]
    ids = tokenizer.encode(text).tolist()
    # Any ids at all, as a model may write them, are text in one way however they come.
    ids += data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=8))
    decoder = tokenizer.decoder()
    pieces = [decoder.push(i) for i in ids]
    assert "".join(pieces) + decoder.flush() == tokenizer.decode(ids)
    assert not any(0xD800 <= ord(c) < 0xE000 for piece in pieces for c in piece)


@pytest.mark.parametrize("kind", SUBWORDS)
@given(text=awkward)
@quick
def test_byte_ends_are_where_each_prefix_of_tokens_ends(trained, kind, text):
    tokenizer = trained[kind]
    ids, ends = tokenizer.encode(text), tokenizer.byte_ends(text)
    assert len(ends) == len(ids)
    assert list(ends[-1:]) == ([len(text.encode())] if text else [])
    raw = text.encode()
    for i, end in enumerate(ends):
        if ESCAPE not in text and SPACE not in text:
            assert tokenizer.text_bytes(ids[: i + 1]) == raw[:end]
            assert b"".join(tokenizer.token_bytes[j] for j in ids[: i + 1]) == raw[:end]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_ids_are_those_of_sentencepiece(trained, kind):
    tokenizer = trained[kind]
    own = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    for line in (*prose(30, seed=1).split("\n"), "  two  ", "\ttab", "ünseen ✓ \U0001f600", ""):
        assert tokenizer.encode(line).tolist() == own.encode(line)
        assert tokenizer.encode(line + "\n").tolist() == own.encode(line + "\n")
        assert tokenizer.pieces(own.encode(line)) == own.encode(line, out_type=str)


def test_ids_are_those_of_sentencepiece_on_a_real_text(shared_data):
    text = shared_data("multi30k/val.de").read_text(encoding="utf-8")
    tokenizer = KINDS["bpe"].train([text], 1000)
    own = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    expected = [i for line in text.splitlines(keepends=True) for i in own.encode(line)]
    assert tokenizer.encode(text).tolist() == expected


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_boundary_is_one_for_every_vocabulary(trained, kind):
    tokenizer, text = trained[kind], prose(3)
    whole = tokenizer.encode(text).tolist()
    for at in range(len(text) + 1):
        end = tokenizer.boundary(text, at)
        assert end >= at
        parts = [*tokenizer.encode(text[:end]).tolist(), *tokenizer.encode(text[end:]).tolist()]
        assert parts == whole
        assert KINDS[kind].boundary(text, at) == end


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_line_too_long_to_be_held_is_cut_as_if_it_had_been(trained, kind):
    tokenizer = trained[kind]
    line = prose(2500).replace("\n", " ")
    assert len(cut_long_line(line, tokenizer.boundary, 1 << 10)) > 20
    for longest in (1 << 10, 1 << 12):
        assert "".join(cut_long_line(line, tokenizer.boundary, longest)) == line
    whole = cut_long_line(line, tokenizer.boundary, 1 << 10)
    part = cut_long_line(line[: len(line) // 2], tokenizer.boundary, 1 << 10)
    assert part[:-1] == whole[: len(part) - 1]
    # No place to cut: it stays whole.
    assert cut_long_line("x" * 10_000, tokenizer.boundary, 1 << 10) == ["x" * 10_000]


def test_specials_newline_and_kinds(trained):
    for kind, tokenizer in trained.items():
        assert tokenizer.kind == kind and tokenizer.lossless
        ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
        assert ids == (0, 1, 2, 3)
        assert tokenizer.decode([0, 1, 2]) == ""
        assert tokenizer.encode("a\n\nb").tolist().count(tokenizer.newline_id) == 2
        assert tokenizer.vocab_size <= 340
        assert tokenizer.encode("x").dtype == np.uint16


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_folder_carries_the_model_file_and_loads(trained, kind, tmp_path):
    trained[kind].save(tmp_path)
    assert (tmp_path / "tokenizer.model").read_bytes() == trained[kind].model
    again = load_tokenizer(tmp_path)
    assert again.fingerprint == trained[kind].fingerprint
    assert load_model_file(tmp_path / "tokenizer.model").fingerprint == again.fingerprint
    assert trained["bpe"].fingerprint != trained["unigram"].fingerprint
    json.dumps(trained[kind].facts())
    (tmp_path / "tokenizer.model").write_bytes(trained[kind].model[:-7])
    with pytest.raises(SeqgenError, match="missing or damaged"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("algorithm", SUBWORDS)
def test_a_model_file_is_used_as_it_is(tmp_path, algorithm):
    path = tmp_path / "spm.model"
    path.write_bytes(plain_model(algorithm))
    tokenizer = load_model_file(path)
    own = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert tokenizer.kind == algorithm and not tokenizer.lossless
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)
    # No pad and no newline of its own: they follow its ids.
    assert {tokenizer.pad_id, tokenizer.newline_id} == {own.vocab_size(), own.vocab_size() + 1}
    for line in ("the cat sat", "  and   then ", "that ✓ rat", "ﬁ"):
        ids = tokenizer.encode(line + "\n").tolist()
        assert ids == [*own.encode(line), tokenizer.newline_id]
        assert tokenizer.decode(ids) == own.decode(own.encode(line)) + "\n"
        assert tokenizer.byte_ends(line)[-1] == len(line.encode())
    assert tokenizer.first_unknown("the ✓") is not None
    again = KINDS[algorithm].from_facts(tokenizer.facts())
    assert again.fingerprint == tokenizer.fingerprint


def test_a_model_with_bytes_has_its_newline_there(tmp_path):
    model = plain_model(vocab_size=330, byte_fallback=True)
    tokenizer = BPETokenizer(model)
    own = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tokenizer.newline_id == own.piece_to_id("<0x0A>")
    assert tokenizer.decode(tokenizer.encode("a ✓\nb").tolist()) == "a ✓\nb"


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "nmt_nfkc"},
        {"add_dummy_prefix": True},
        {"remove_extra_whitespaces": True},
        {"byte_fallback": False},
        {"user_defined_symbols": []},
    ],
)
def test_losslessness_is_told_as_it_is(options):
    lossless = {
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
        "user_defined_symbols": ["\n"],
    }
    assert BPETokenizer(plain_model(vocab_size=330, **lossless)).lossless
    changed = {"vocab_size": 330, "hard_vocab_limit": False, **lossless, **options}
    assert not BPETokenizer(plain_model(**changed)).lossless


def test_what_is_no_model_is_one_line(tmp_path):
    for content in (b"", b"hello", b"\x0a\xff\xff", bytes(range(256))):
        (tmp_path / "x.model").write_bytes(content)
        with pytest.raises(SeqgenError, match=r"x\.model is not a sentencepiece model"):
            load_model_file(tmp_path / "x.model")
    (tmp_path / "x.model").write_bytes(plain_model("char"))
    with pytest.raises(SeqgenError, match="of type char"):
        load_model_file(tmp_path / "x.model")


def test_training_says_what_is_wrong():
    with pytest.raises(UsageError, match=r"vocab_size 262 is too small.*need \d+"):
        KINDS["bpe"].train([prose()], 262)
    with pytest.raises(UsageError, match="min_count"):
        KINDS["bpe"].train([prose()], 300, min_count=2)


@pytest.mark.parametrize("kind", SUBWORDS)
@pytest.mark.parametrize(
    "text",
    [
        *("", "\n\n", "\0\n\0", " ", "\u2581", "<unk>"),
        pytest.param("日本語" * 90, id="repeated"),
        pytest.param("日本語" * 9000, id="long", marks=pytest.mark.slow),
    ],
)
def test_a_text_with_nothing_to_learn_gives_bytes(kind, text):
    tokenizer = KINDS[kind].train([text])
    for other in (text, "hello \u00e9\n"):
        assert tokenizer.decode(tokenizer.encode(other).tolist()) == other


def test_a_vocabulary_is_learnt_from_a_draw_of_a_long_text(monkeypatch):
    import seqgen.text.tokenizers.sentencepiece as module

    monkeypatch.setattr(module, "SAMPLE_CHARACTERS", 4000)
    text = "".join(f"line {n} of many\n" for n in range(3000))
    ways = ([text], cut(text, [7, 1000, 20_000]))
    taken = [list(module.sample_sentences(chunks)) for chunks in ways]
    assert taken[0] == taken[1]
    assert taken[0].pop() == " "
    assert 1000 < sum(map(len, taken[0])) <= 4000
    numbers = [int(line.split()[1]) for line in taken[0]]
    assert numbers == sorted(numbers) and 1200 < np.mean(numbers) < 1800


@pytest.mark.parametrize("kind", SUBWORDS)
def test_sampled_segmentations_follow_their_seed(trained, kind):
    tokenizer, text = trained[kind], prose(40, seed=2) + SPACE + " the end"
    plain = tokenizer.encode(text).tolist()
    draws = [tokenizer.encode_sampled(text, 0.3, seed).tolist() for seed in (7, 8, 7)]
    assert draws[0] == draws[2] != draws[1]
    assert draws[0] != plain
    for ids in draws:
        assert tokenizer.decode(ids) == text


def test_only_subwords_can_be_sampled():
    assert not SentencepieceTokenizer.learns_from_whole_text
    for kind in ("char", "byte", "word", "whitespace"):
        with pytest.raises(UsageError, match="subword_sampling is for bpe and unigram"):
            KINDS[kind].train(["a b"]).encode_sampled("a b", 0.1, 0)


def test_sampling_draws_other_seeds_for_other_epochs_and_blocks():
    seeds = {Sampling(0.1, s, e).draw(b)[1] for s in range(5) for e in range(5) for b in range(5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 1 << 31 for seed in seeds)


@pytest.mark.parametrize("kind", ["char", "word", "whitespace"])
def test_min_count_and_size_leave_the_rare_out(kind):
    text = "a a a b b c\n" * 1
    tokenizer = KINDS[kind].train([text], min_count=2)
    known = set(tokenizer.pieces(range(4, tokenizer.vocab_size)))
    expected = {
        "char": {"a", "b", " ", "\n"},
        "word": {" a", " b", "\n"},
        "whitespace": {"a", "b", "\n"},
    }
    assert known == expected[kind]
    assert (tokenizer.encode("a b c\n") == tokenizer.unk_id).sum() == (2 if kind == "word" else 1)


def test_bytes_have_no_minimum_count():
    with pytest.raises(UsageError, match="min_count has no meaning for bytes"):
        KINDS["byte"].train(["a"], min_count=2)


@given(text=awkward)
@quick
def test_looking_words_up_gives_what_encoding_lines_gives(trained, text):
    tokenizer = trained["bpe"]
    assert (
        tokenizer.encode(text).tolist() == SentencepieceTokenizer.encode(tokenizer, text).tolist()
    )


def test_a_model_whose_pieces_hold_spaces_is_not_looked_up_by_words(tmp_path):
    options = {
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
        "user_defined_symbols": ["\n"],
    }
    written = plain_model(vocab_size=400, split_by_whitespace=False, **options)
    tokenizer = BPETokenizer(written)
    own = sentencepiece.SentencePieceProcessor(model_proto=written)
    assert tokenizer.lossless and not tokenizer.normaliser.splits_words
    assert any(SPACE in own.id_to_piece(i)[1:] for i in range(own.vocab_size()))
    line = prose(20, seed=5).replace("\n", " ")
    assert tokenizer.encode(line).tolist() == own.encode(line)
    assert not any("\n" in piece for piece in tokenizer.pieces(tokenizer.encode(line).tolist()))


def test_the_words_that_are_kept_are_bounded(monkeypatch):
    from seqgen.text.tokenizers.sentencepiece import WordIds

    monkeypatch.setattr(WordIds, "MOST", 10)
    tokenizer = KINDS["bpe"].train([prose()], 330)
    for n in range(50):
        text = f"w{n} x{n} the cat\n"
        assert tokenizer.decode(tokenizer.encode(text).tolist()) == text
        assert len(tokenizer._words) <= 10 + 5
