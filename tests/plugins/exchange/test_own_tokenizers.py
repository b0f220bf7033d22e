"""Tokenizers trained here, as other programs read them: the same ids for every text."""

import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hf_models import TEXT, sentencepiece_model
from nasty import nasty_texts

from seqgen.errors import SeqgenError
from seqgen.plugins.exchange.hf_own import merges_of
from seqgen.plugins.exchange.hf_tokenizer import files_of, read
from seqgen.plugins.exchange.imported_tokenizers import HuggingFaceTokenizer
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import KINDS
from seqgen.text.tokenizers.sentencepiece import NORMAL, Subword, escape_text, pieces_of

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

SIZES = {"char": None, "byte": None, "word": 200, "bpe": 500, "unigram": 320}
# Names of tokens and bytes are part of this text, so that there are pieces of them.
LEARNT = (
    f"{TEXT}\nthe <unk> of <unk> and <unk>s in <unk>\n<0x41> is a byte\nit's he\u2019s 1\u00b2\n"
    * 3
)


def exported(kind, text, size):
    tokenizer = KINDS[kind].train([text], size)
    return tokenizer, files_of(tokenizer, Framing(tokenizer.newline_id, None, None), "m")


@pytest.fixture(scope="module")
def made():
    return {kind: exported(kind, LEARNT, size) for kind, size in SIZES.items()}


def assert_same_ids(tokenizer, files, texts):
    library = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    for text in texts:
        ids = tokenizer.encode(text).tolist()
        assert library.encode(text, add_special_tokens=False).ids == ids, text
        assert library.decode(ids) == tokenizer.decode(ids), text
    framed = library.encode("a").ids
    assert framed == [tokenizer.newline_id, *tokenizer.encode("a").tolist()]
    special = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id]
    the = tokenizer.encode("the").tolist()
    assert library.decode([*special, *the]) == "the"


@pytest.mark.parametrize("kind", SIZES)
def test_the_library_gives_the_same_ids(kind, made):
    assert_same_ids(*made[kind], nasty_texts(LEARNT, 300))


@pytest.mark.long
@pytest.mark.parametrize("kind", SIZES)
def test_ten_thousand_texts_have_the_same_ids(kind):
    docs = Path(__file__).parents[2] / "docs"
    text = "\n".join(page.read_text() for page in sorted(docs.glob("*.md")))
    tokenizer, files = exported(kind, text, {"word": 3000, "bpe": 4000, "unigram": 4000}.get(kind))
    assert_same_ids(tokenizer, files, [*nasty_texts(text, 10_000), text[:100_000]])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_gives_the_same_ids(kind, made):
    tokenizer, files = made[kind]
    library = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    for text in nasty_texts(LEARNT, 100, seed=2):
        lines = [theirs.encode(escape_text(line)) for line in text.split("\n")]
        joined = [i for line in lines for i in [*line, tokenizer.newline_id]][:-1]
        assert library.encode(text, add_special_tokens=False).ids == joined, text


@pytest.mark.parametrize("kind", SIZES)
def test_names_of_special_tokens_are_text_in_transformers_too(kind, made, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer, files = made[kind]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a <unk> of <pad><bos><eos>", "< unk>< eos>", "<unk>"):
        own = tokenizer.encode(text).tolist()
        assert theirs(text, add_special_tokens=False).input_ids == own
        assert theirs.decode([*own, tokenizer.eos_id]) == tokenizer.decode(own)


@pytest.mark.parametrize("kind", SIZES)
def test_names_stay_text_in_a_folder_that_transformers_has_written_again(kind, made, tmp_path):
    """It lists special tokens then, which a tokenizer alone would look for in texts."""
    transformers = pytest.importorskip("transformers")
    tokenizer, files = made[kind]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    transformers.AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "saved")
    listed = json.loads((tmp_path / "saved" / "tokenizer.json").read_text())["added_tokens"]
    assert {"<unk>", "<pad>"} <= {token["content"] for token in listed}
    again, _ = read(tmp_path / "saved")
    for text in ("a <unk> of <pad><bos><eos>", "<unk>", "the cat"):
        ids = tokenizer.encode(text).tolist()
        assert again.encode(text).tolist() == ids
        assert again.decode([tokenizer.pad_id, *ids]) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", SIZES)
def test_what_comes_back_reads_and_writes_the_same(kind, made):
    tokenizer, files = made[kind]
    again = HuggingFaceTokenizer(files["tokenizer.json"])
    for text in nasty_texts(LEARNT, 50, seed=3):
        ids = tokenizer.encode(text)
        assert again.encode(text).tolist() == ids.tolist()
        if tokenizer.lossless and tokenizer.complete:
            special = [tokenizer.pad_id, *ids.tolist(), tokenizer.eos_id]
            assert again.text_bytes(again.encode(text)) == text.encode()
            assert again.decode(special) == text


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_only_an_end_that_is_written_is_named(documents, made):
    tokenizer, _ = made["byte"]
    files = files_of(tokenizer, Framing.of(tokenizer, documents), "m")
    about = json.loads(files["tokenizer_config.json"])
    assert about.get("eos_token") == (None if documents == "stream" else "<eos>")
    # A newline begins a stream. As a special token it would be left out of decoded texts.
    assert about.get("bos_token") == (None if documents == "stream" else "<bos>")


def test_a_piece_is_merged_from_the_pair_that_its_own_text_leaves():
    scores = {"ab": -1, "bc": -2, "abc": -3, "bcd": -4, "abcd": -5, "xyz": -6}
    singles = {letter: -10 - i for i, letter in enumerate("abcdxyz")}
    pieces = [Subword(text, score, NORMAL) for text, score in {**scores, **singles}.items()]
    pairs = [("a", "b"), ("b", "c"), ("ab", "c"), ("bc", "d"), ("abc", "d")]
    assert merges_of(pieces) == pairs  # and xyz, of which no two letters are a piece, of none
    with pytest.raises(ValueError, match="same score"):
        merges_of([*pieces, Subword("ax", -4, NORMAL)])


def test_equally_likely_segmentations_are_the_same_ones(made):
    digits = "0000000 000 00 0 12 11 112 1212 aaa aaaa\n" * 300
    tokenizer, files = exported("unigram", digits, 290)
    assert_same_ids(tokenizer, files, [*nasty_texts(digits, 300), *map("0".__mul__, range(40))])
    # Scores of another vocabulary, which are no 16ths, as earlier versions have left them.
    pieces, tenth = pieces_of(tokenizer.model), np.float32(0.1)
    older = tokenizer.model.replace(*(np.float32(pieces[-1].score + x) for x in (0, tenth)))
    older = KINDS["unigram"](older)
    assert older.encode("0 12").tolist()
    with pytest.raises(SeqgenError, match=r"m has a unigram tokenizer .* earlier version"):
        files_of(older, Framing(older.newline_id, None, None), "m")


def test_what_would_be_read_otherwise_is_refused_by_name(made):
    foreign = KINDS["bpe"](sentencepiece_model(TEXT.split("\n") * 8, 300))
    with pytest.raises(SeqgenError, match=r"m has a bpe tokenizer .* not learnt by seqgen"):
        files_of(foreign, Framing(foreign.newline_id, None, None), "m")
    whitespace = KINDS["whitespace"].train([TEXT])
    with pytest.raises(SeqgenError, match=r"of kind whitespace, which tokenizer.json cannot hold"):
        files_of(whitespace, Framing(whitespace.newline_id, None, None), "m")
    assert json.loads(made["bpe"][1]["tokenizer.json"])["added_tokens"] == []
