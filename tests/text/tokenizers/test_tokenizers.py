import json
from collections import Counter

import numpy as np
import pytest
from helpers_cli import has_plugin
from helpers_io import AWKWARD, cut, places, plain_texts, quick, texts
from hypothesis import example, given
from hypothesis import strategies as st

from seqgen.errors import SeqgenError, UsageError
from seqgen.text.tokenizers import KINDS, load_tokenizer, tokenizer_kind
from seqgen.text.tokenizers.base import SPECIALS

# Subwords, which need more text to learn from, have tests of their own.
ALL = ["char", "byte", "word", "whitespace", *(["uncased"] if has_plugin("labels") else [])]
LOSSLESS = [kind for kind in ALL if KINDS[kind].lossless]
KITCHEN_SINK = "".join(AWKWARD) + " ".join(AWKWARD)


def made(kind, text):
    return KINDS[kind].train([text])


@pytest.mark.parametrize("kind", LOSSLESS)
@quick
@given(text=texts)
@example(text=KITCHEN_SINK)
@example(text="\r")
@example(text="")
def test_decoding_gives_the_text_back(kind, text):
    tokenizer = made(kind, text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids.tolist()) == text
    assert ids.dtype == tokenizer.dtype
    assert not np.isin(ids, [0, 1, 2, 3]).any()
    assert (ids < tokenizer.vocab_size).all()
    assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()
    assert len(tokenizer.token_bytes) == tokenizer.vocab_size


@pytest.mark.fast_for("byte", "word", rest="slow")
@pytest.mark.parametrize("kind", ALL)
@quick
@given(text=texts, at=places)
@example(text=KITCHEN_SINK, at=list(range(200)))
def test_pieces_cut_anywhere_give_the_same_ids(kind, text, at):
    tokenizer = made(kind, text)
    pieces = [*map(tokenizer.encode, tokenizer.blocks(cut(text, at)))]
    joined = np.concatenate(pieces) if pieces else np.array([])
    assert joined.tolist() == tokenizer.encode(text).tolist()


@pytest.mark.fast_for("char", "word", rest="slow")
@pytest.mark.parametrize("kind", ALL)
@quick
@given(text=texts, at=places)
def test_training_on_pieces_cut_anywhere_gives_the_same_vocabulary(kind, text, at):
    assert KINDS[kind].train(cut(text, at)).facts() == made(kind, text).facts()


@pytest.mark.fast_for("byte", "whitespace", rest="slow")
@pytest.mark.parametrize("kind", ALL)
@quick
@given(text=texts, data=st.data())
def test_the_incremental_decoder_agrees(kind, text, data):
    tokenizer = made(kind, text)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    decoder = tokenizer.decoder()
    assert "".join(map(decoder.push, ids)) + decoder.flush() == tokenizer.decode(ids)


def test_the_byte_decoder_holds_back_an_incomplete_character():
    tokenizer = KINDS["byte"]()
    family = "\U0001f468\u00e9"
    decoder = tokenizer.decoder()
    shown = [decoder.push(i) for i in tokenizer.encode(family).tolist()]
    assert shown == ["", "", "", "\U0001f468", "", "\u00e9"]
    assert decoder.push(tokenizer.encode("\u00e9")[0]) == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""


@pytest.mark.parametrize("kind", ALL)
def test_specials_are_no_text(kind):
    tokenizer = made(kind, "a b\n")
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.decode([0, 1, 2]) == ""
    assert tokenizer.pieces([0, 1, 2, 3]) == list(SPECIALS)
    assert tokenizer.encode("\n").tolist() == [tokenizer.newline_id]


# Where subwords may be cut does not depend on a vocabulary: see test_sentencepiece.py.
@pytest.mark.fast_for("char", "word", rest="slow")
@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in ("bpe", "unigram")])
@quick
@given(text=st.one_of(texts, plain_texts), share=st.floats(0, 1))
@example(text="a   b", share=0.21)
@example(text="  a", share=0)
@example(text="one\ntwo three", share=0.5)
def test_boundary_is_the_first_cut_that_changes_no_token(kind, text, share):
    tokenizer = made(kind, text)
    at = int(share * len(text))
    whole = tokenizer.encode(text).tolist()

    def harmless(b):
        left, right = tokenizer.encode(text[:b]), tokenizer.encode(text[b:])
        return left.tolist() + right.tolist() == whole

    first = next(b for b in range(at, len(text) + 1) if harmless(b))
    assert tokenizer.boundary(text, at) == first
    # A split asks before there is a vocabulary.
    assert KINDS[kind].train(()).boundary(text, at) == first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("So, he said:", ["So", ",", " he", " said", ":"]),
        ("don't l\u2019eau rock'n'roll", ["don't", " l\u2019eau", " rock'n'roll"]),
        ("'tis", ["'", "tis"]),
        ("dogs' bones", ["dogs", "'", " bones"]),
        ("a  b", ["a", " ", " b"]),
        ("a \n b", ["a", " ", "\n", " b"]),
        ("x\r\ny", ["x", "\r", "\n", "y"]),
        ("wait...", ["wait", ".", ".", "."]),
        ('say "yes"', ["say", ' "', "yes", '"']),
        ("3.14", ["3", ".", "14"]),
        ("\U0001f600 ok", ["\U0001f600", " ok"]),
        (" ", [" "]),
    ],
)
def test_words_by_hand(text, words):
    tokenizer = made("word", text)
    assert tokenizer.pieces(tokenizer.encode(text).tolist()) == words


def test_whitespace_reads_text_that_is_tokenised_already():
    text = " the <unk> of N %\n the end \n"
    tokenizer = made("whitespace", text)
    ids = tokenizer.encode(text).tolist()
    assert tokenizer.pieces(ids) == ["the", "<unk>", "of", "N", "%", "\n", "the", "end", "\n"]
    assert ids[1] == tokenizer.unk_id
    assert tokenizer.vocabulary.count("<unk>") == 1
    assert tokenizer.decode(ids) == "the <unk> of N %\nthe end\n"
    assert tokenizer.encode("\tthe \u00a0end").tolist() == tokenizer.encode("the end").tolist()


def test_whitespace_goes_on_after_a_prompt_with_one_space():
    tokenizer = made("whitespace", "a b\n")
    a, b = tokenizer.encode("a b").tolist()
    newline = tokenizer.newline_id
    assert tokenizer.decoder([newline]).push(a) == "a"
    assert tokenizer.decoder([tokenizer.bos_id]).push(a) == "a"
    decoder = tokenizer.decoder([newline, a])
    assert [decoder.push(i) for i in (b, newline, b, a)] == [" b", "\n", "b", " a"]


def test_char_order_is_that_of_code_points():
    tokenizer = made("char", "zeb\u00e9\U0001f600ra\n")
    assert tokenizer.pieces(range(4, tokenizer.vocab_size)) == sorted("zeb\u00e9\U0001f600ra\n")
    assert made("char", "ab").pieces([4]) == ["\n"]  # always there


@quick
@given(text=texts)
def test_word_order_is_that_of_frequency(text):
    tokenizer = made("word", text)
    counts = Counter(tokenizer.split(text))
    counts.pop("\n", None)
    expected = sorted(counts, key=lambda w: (-counts[w], w))
    assert tokenizer.vocabulary == [*SPECIALS, "\n", *expected]


@pytest.mark.parametrize("kind", ["char", "word", "whitespace"])
@pytest.mark.parametrize("text", ["a a b b b c\n\n\n", "no newline here at all"])
@pytest.mark.parametrize("size", range(5, 12))
def test_vocab_size_keeps_the_commonest(kind, text, size):
    whole, limited = made(kind, text), KINDS[kind].train([text], size)
    assert limited.vocab_size == min(size, whole.vocab_size)
    counts = Counter(whole.encode(text).tolist())
    counts.pop(whole.newline_id, None)
    kept = set(limited.pieces(range(4, limited.vocab_size)))
    lost = [n for i, n in counts.items() if whole.pieces([i])[0] not in kept]
    held = [n for i, n in counts.items() if whole.pieces([i])[0] in kept]
    assert not lost or not held or max(lost) <= min(held)
    assert limited.encode("\n").tolist() == [limited.newline_id]


@pytest.mark.parametrize("kind", ALL)
def test_vocab_size_without_room_is_refused(kind):
    with pytest.raises(UsageError):
        KINDS[kind].train(["abc"], 4)


def test_smallest_unsigned_type():
    assert made("char", "ab").dtype is np.uint8
    assert KINDS["byte"]().dtype is np.uint16
    exactly = "".join(chr(0x100 + i) for i in range(251)) + "\n"
    assert made("char", exactly).vocab_size == 256
    assert made("char", exactly).dtype is np.uint8
    assert made("char", exactly + "x").dtype is np.uint16


@pytest.mark.parametrize("kind", ALL)
@quick
@given(known=plain_texts, text=plain_texts)
def test_first_unknown(kind, known, text):
    tokenizer = made(kind, known)
    pieces = tokenizer.pieces(tokenizer.encode(text).tolist())
    unknown = tokenizer.first_unknown(text)
    if "<unk>" not in pieces:
        assert unknown is None
        return
    at, piece = unknown
    # By hand: the shortest beginning of the text that has an unknown ends with that piece.
    assert text[at : at + len(piece)] == piece
    assert (tokenizer.encode(piece) == tokenizer.unk_id).all()
    assert not (tokenizer.encode(text[:at]) == tokenizer.unk_id).any()


def test_an_unknown_becomes_unk_whatever_its_code_point():
    tokenizer = made("char", "abc")
    assert tokenizer.encode("aZ\U0001f600b").tolist()[1:3] == [3, 3]
    assert tokenizer.decode(tokenizer.encode("aZ").tolist()) == "a\ufffd"
    assert tokenizer.first_unknown("ab\U0001f600Z") == (2, "\U0001f600")


@pytest.mark.parametrize("kind", ALL)
@quick
@given(text=texts)
def test_save_and_load(kind, text, tmp_path):
    tokenizer = made(kind, text)
    tokenizer.save(tmp_path / "t")
    loaded = load_tokenizer(tmp_path / "t")
    assert type(loaded) is type(tokenizer)
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.newline_id == tokenizer.newline_id
    assert loaded.encode(text).tolist() == tokenizer.encode(text).tolist()
    everything = range(tokenizer.vocab_size)
    assert loaded.pieces(everything) == tokenizer.pieces(everything)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"kind": "char"}',
        b'{"kind": "char", "alphabet": 3}',
        b'{"kind": "char", "alphabet": ["ab"]}',
        b'{"kind": "char", "alphabet": [1]}',
        b'{"kind": "word"}',
        b'{"kind": "word", "words": 3}',
        b'{"kind": "word", "words": [[]]}',
        b'{"kind": "word", "words": [1]}',
        b'{"kind": "chart", "alphabet": "a"}',
        b'{"kind": []}',
        b'{"kind": 5}',
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(SeqgenError) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(SeqgenError, match="missing or damaged"):
        load_tokenizer(tmp_path / "nothing")


def test_the_file_is_json_of_plain_values(tmp_path):
    made("word", "b a a\n").save(tmp_path)
    facts = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert facts == {"kind": "word", "words": [" a", "b"]}


def test_did_you_mean():
    with pytest.raises(UsageError, match="did you mean 'whitespace'"):
        tokenizer_kind("whitspace")
    with pytest.raises(UsageError, match="char, byte"):
        tokenizer_kind("qqqq")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("bpe", "unigram")])
def test_what_is_saved_is_what_the_class_names(kind, tmp_path):
    """Models' folders are recognised by these names; see `layout.known_files`."""
    tokenizer = made(kind, KITCHEN_SINK)
    tokenizer.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(tokenizer.files)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
