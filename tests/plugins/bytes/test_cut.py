"""Prompts that end inside a character, which bytes from Python can."""

from __future__ import annotations

import random

import pytest
from helpers_cli import has_plugin
from trained_models import train_models

import seqgen
from seqgen.errors import SeqgenError, UsageError
from seqgen.store.loading import Work, load
from seqgen.text.tokenizers.byte import OFFSET

NGRAM = ("--model", "ngram", "--order", "4")
MODELS = {
    "subwords": (*NGRAM, "--tokenizer", "bpe", "--vocab-size", "350"),
    "unigram": (*NGRAM, "--tokenizer", "unigram", "--vocab-size", "350"),
    "characters": NGRAM,
    "words": (*NGRAM, "--tokenizer", "word"),
    "byte": (*NGRAM, "--tokenizer", "byte"),
    "backward": (*NGRAM, "--direction", "backward"),
}
WORDS = ("café", "crème", "naïve", "œuvre", "“Où?”", "été", "日本", "😀", "the", "of", "day", "and")
FORWARD = "subwords", "unigram", "characters", "byte", "subwords:bytes", "characters:bytes"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    drawn = random.Random(0)
    text = "".join(drawn.choice(WORDS) + drawn.choice(" \n ") for _ in range(6000))
    return train_models(tmp_path_factory.mktemp("cut"), text, MODELS)


@pytest.fixture(autouse=True)
def at_home(home, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(home))


def sampled(name, prompt, **options):
    settings = {"max_tokens": 8, "greedy": True, **options}
    return next(seqgen.load(name).sample(prompt, **settings))


@pytest.mark.parametrize("name", [*FORWARD, "subwords:bytes=all", "byte+subwords"])
@pytest.mark.parametrize("heal", [None, False])
def test_the_character_is_completed(name, heal):
    for word, size in (("café", 1), ("日本", 1), ("日本", 2), ("😀", 3), ("the œuvre", 1)):
        at = next(at for at, letter in enumerate(word) if not letter.isascii())
        prompt = word[:at].encode() + word[at].encode()[:size]
        record = sampled(name, prompt, heal=heal)
        assert record.prompt == word[:at]
        begun = word[at].encode()[:size] if heal is False else word[at].encode()
        assert record.text[0].encode().startswith(begun)
        assert record.healed is not None and word[:at].endswith(record.healed)
        drawn = sampled(name, prompt, heal=heal, greedy=False, seed=size)
        assert drawn.text[0].encode().startswith(word[at].encode()[:size])
        assert "\ufffd" not in drawn.text[0]


@pytest.mark.parametrize("name", ["subwords", "characters", "byte", "subwords:bytes"])
def test_whole_characters_are_a_prompt_like_any_other(name):
    for text in ("", "caf", "café", "the 日"):
        assert sampled(name, text.encode()) == sampled(name, text)


def test_the_missing_byte_is_the_most_probable_that_completes_the_character():
    model = load("byte", work=Work()).model
    for raw in (b"na\xc3", b"caf\xe6\x97", b"d\xf0\x9f\x98", b"the\xe2"):
        state = model.start(1)
        for token in (OFFSET + ord("\n"), *(OFFSET + byte for byte in raw)):
            logits, state = model.step([token], state)
        last = max(range(0x80, 0xC0), key=lambda byte: logits[0, OFFSET + byte])
        known = len([byte for byte in raw if byte >= 0x80])
        assert sampled("byte", raw).text.encode()[known] == last


def test_what_no_character_has_is_never_written():
    """After E0, F0 and F4 not every byte of 80 to BF can follow."""
    for first, low, high in ((0xE0, 0xA0, 0xBF), (0xF0, 0x90, 0xBF), (0xF4, 0x80, 0x8F)):
        for seed in range(8):
            text = sampled("byte", bytes([first]), greedy=False, seed=seed).text
            assert text[0].encode()[0] == first and low <= text[0].encode()[1] <= high


def test_searches_and_streams_complete_it():
    model = seqgen.load("subwords")
    (found,) = model.beam_search(b"caf\xc3", beams=3, max_tokens=6)
    assert found.text.startswith("é") and found.prompt == "caf"
    streamed = "".join(model.stream(b"caf\xc3", seed=1, max_tokens=6))
    assert streamed == sampled("subwords", b"caf\xc3", greedy=False, seed=1, max_tokens=6).text
    several = list(model.sample([b"caf\xc3", "the", b"\xe6\x97"], max_tokens=5, seed=1))
    assert [record.prompt for record in several] == ["caf", "the", ""]
    assert several[0].text[0].encode()[0] == 0xC3 and several[2].text[0].encode()[0] == 0xE6


def test_refusals_are_one_line():
    for name, prompt, options, said in (
        ("byte", b"a\xffb", {}, "prompt 0 is not UTF-8 text: byte 0xff at offset 1"),
        ("byte", b"a\xc3b", {}, "prompt 0 is not UTF-8 text: byte 0xc3 at offset 1"),
        ("byte", "a\udcc3", {}, "prompt 0 is not UTF-8 text: byte 0xc3 at offset 1"),
        ("characters", b"\xe2\x84", {}, "no token of characters continues it"),
        ("words", b"the\xc3", {}, "no token of words continues it"),
        ("backward", b"caf\xc3", {}, "backward reads from right to left"),
        ("byte", b"caf\xc3", {"force": "a"}, "--force cannot follow a prompt that ends inside a"),
    ):
        with pytest.raises(SeqgenError) as error:
            sampled(name, prompt, **options)
        assert said in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(SeqgenError, match="prompt 0 is not UTF-8 text: it ends inside a character"):
        list(seqgen.load("byte").suggest(b"caf\xc3"))
    if has_plugin("patterns"):
        with pytest.raises(UsageError, match="--pattern cannot follow"):
            sampled("byte", b"caf\xc3", pattern="[a-z]+")
