"""WordPiece: words cut from the left into the longest known pieces, learned in a fixed order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from helpers_cli import refusal

from seqgen.errors import UsageError
from seqgen.plugins.labels.wordpiece import WordPieceTokenizer
from seqgen.text.tokenizers import load_tokenizer, tokenizer_kind

TEXT = "the lower lowest slow slower, low; lowly wow!\nnewest new owl: the owls'\n" * 3
WORD = re.compile(r"\n|\w+|[^\w\s]")


def cut(word: str, vocabulary: set[str]) -> list[str]:
    """Cut a word greedily from the left; all of it is unknown if a rest cannot be cut."""
    pieces, at = [], 0
    while at < len(word):
        prefix = "##" if at else ""
        ends = (end for end in range(len(word), at, -1) if prefix + word[at:end] in vocabulary)
        end = next(ends, None)
        if end is None:
            return ["<unk>"]
        pieces.append(prefix + word[at:end])
        at = end
    return pieces


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train([TEXT], 48)


@pytest.mark.parametrize("text", [TEXT, "slowest owl, tower\n\nnewer  zoo (low)", "", " \t", "\n"])
def test_it_cuts_as_by_hand(tokenizer, text):
    known = set(tokenizer.vocabulary[4:])
    expected = [piece for word in WORD.findall(text) for piece in cut(word, known)]
    assert tokenizer.pieces(tokenizer.encode(text).tolist()) == expected


def test_pairs_are_joined_by_how_often_they_occur():
    """By hand: ##a ##b occurs four times; then a ##ab three times, and c ##ab once."""
    tokenizer = WordPieceTokenizer.train(["aab aab aab cab"], 100)
    first = ["<pad>", "<bos>", "<eos>", "<unk>", "\n", "a", "b", "c", "##a", "##b"]
    assert tokenizer.vocabulary == [*first, "##ab", "aab", "cab"]
    assert WordPieceTokenizer.train(["aab aab aab cab"], 11).vocabulary == [*first, "##ab"]
    assert WordPieceTokenizer.train(["aab aab aab cab"], 99, 2).vocabulary[-1] == "aab"


def test_the_vocabulary_is_the_same_in_every_process(tokenizer):
    counts = Counter(TEXT)
    assert counts["\n"] == 6 and tokenizer.vocab_size == 48
    script = "import sys; from seqgen.plugins.labels.wordpiece import WordPieceTokenizer as W\n"
    script += "print(W.train([sys.argv[1]], 48).fingerprint)"
    command = [sys.executable, "-c", script, TEXT]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert made.strip() == tokenizer.fingerprint


def test_text_comes_back_with_single_spaces(tokenizer):
    ids = tokenizer.encode("the  lowest\n owl , slow\n").tolist()
    assert tokenizer.decode(ids) == "the lowest\nowl , slow\n"
    assert not tokenizer.lossless and tokenizer.line_safe
    for at in range(len(ids)):
        rest = tokenizer.decoder(ids[:at])
        assert tokenizer.decode(ids[:at]) + "".join(map(rest.push, ids[at:])) == tokenizer.decode(
            ids
        )


def test_pieces_of_a_text_are_those_of_the_whole(tokenizer):
    chunks = [TEXT[at : at + 7] for at in range(0, len(TEXT), 7)]
    ids = [i for part in tokenizer.blocks(chunks) for i in tokenizer.encode(part)]
    assert ids == tokenizer.encode(TEXT).tolist()
    ends = tokenizer.byte_ends("lowé\nthe")
    assert ends.tolist()[-1] == 9 and tokenizer.first_unknown("low zé\n") == (4, "zé")


def test_it_is_stored_and_known_by_name(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "t")
    again = load_tokenizer(tmp_path / "t")
    assert again.fingerprint == tokenizer.fingerprint
    assert tokenizer_kind("wordpiece") is WordPieceTokenizer
    with pytest.raises(UsageError, match="vocab_size 12 is too small: the characters need"):
        WordPieceTokenizer.train([TEXT], 12)


def test_without_the_library_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    train = ("train", text, "--tokenizer", "wordpiece", "--model", "ngram", "--name", "m")
    assert "pip install tokenizers" in refusal(capsys, *train)
