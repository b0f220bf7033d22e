"""What models of pairs get where nothing is said: tokenizer, size, dropout and batch."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqgen import registry
from seqgen.commands.training import choosing
from seqgen.commands.training.train import train
from seqgen.configs import DataConfig
from seqgen.data.corpus import Corpus
from seqgen.data.sources import TokenSources
from seqgen.data.text import Survey
from seqgen.tasks.datasets import choosing_tokenizer
from seqgen.tasks.datasets.batch_rows import rows_of_pairs
from seqgen.tasks.datasets.choosing_tokenizer import choose_tokenizer, vocab_size_for
from seqgen.training.events import Notice

TINY = {"hidden_size": 8, "num_layers": 1, "steps": 1}


def facts_of(characters, pairs):
    return Survey(characters=characters, lines=pairs)


def chosen_for(characters, pairs, **given):
    facts = facts_of(characters, pairs)
    return choose_tokenizer(DataConfig(documents="line", **given), given, facts)


def test_subwords_grow_with_the_cube_root_of_the_text():
    """Multi30k's 4 million characters, and the thousand million of WMT 2014's 4.5 million pairs.

    Vaswani et al. (2017) had 37,000 pieces for those.
    """
    assert vocab_size_for(3_900_000) == 6_000
    assert vocab_size_for(1_000_000_000) == pytest.approx(37_000, rel=0.05)
    assert vocab_size_for(8 * 3_900_000) == pytest.approx(2 * 6_000, rel=0.01)
    assert (vocab_size_for(1), vocab_size_for(10**15)) == (500, 40_000)


def test_short_strings_and_little_text_are_characters():
    assert chosen_for(495_000, 10_000) == {"tokenizer": "char"}  # the dates of `corpora/`
    assert chosen_for(3_900_000, 29_000) == {"tokenizer": "bpe", "vocab_size": 6_000}
    assert chosen_for(100_000, 700) == {"tokenizer": "char"}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"tokenizer": "char"}, {}),
        ({"tokenizer": "word"}, {}),
        ({"tokenizer": "unigram"}, {"vocab_size": 6_000}),
        ({"tokenizer": "bpe", "vocab_size": 700}, {}),
        ({"vocab_size": 700}, {"tokenizer": "bpe"}),
        ({"min_count": 2}, {}),
        ({"source_tokenizer": "bpe"}, {"tokenizer": "bpe", "vocab_size": 6_000}),
        # One size would have to be that of both: characters keep all of theirs.
        ({"source_tokenizer": "char"}, {"tokenizer": "bpe"}),
        ({"tokenizer": "a/folder"}, {}),
    ],
)
def test_what_is_given_stays(given, chosen):
    assert chosen_for(3_900_000, 29_000, **given) == chosen


@pytest.fixture
def sentences(tmp_path, monkeypatch):
    """Some pairs of long lines, and a rule that takes them for enough."""
    monkeypatch.setattr(choosing_tokenizer, "SUBWORDS_FROM", 1000)
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "a",
        "mat",
        "and",
        "saw",
        "two",
        "dogs",
        "run",
        "over",
        "some",
        "green",
        "grass",
        "by",
        "it",
    ]
    lines = [" ".join(words[n % 5 :] + words[: n % 7]) for n in range(40)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return path


def trained(data, architecture, **settings):
    """Train; return the stored configuration and the notices."""
    said = []
    result = train(
        [data],
        architecture=architecture,
        name="t",
        overwrite=True,
        settings={"seed": 1, "precision": "float32", **settings},
        report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
    )
    return json.loads((Path(result.path) / "config.json").read_text()), said


def configured(data, **settings):
    """Train one step; return how the data was read, and the notices."""
    config, said = trained(data, "seq2seq", **{**TINY, **settings})
    return config["data"], said


def test_the_choice_is_said_and_stored(sentences):
    data, said = configured(sentences)
    length = len(sentences.read_text())
    size, mean = vocab_size_for(length), round(length / 40)
    assert (data["tokenizer"], data["vocab_size"]) == ("bpe", size)
    assert said == [f"tokenizer bpe, vocab_size {size}: pairs have {mean} characters on average"]


def test_nothing_is_said_of_a_tokenizer_that_is_given(sentences):
    data, said = configured(sentences, tokenizer="char")
    assert (data["tokenizer"], data["vocab_size"], said) == ("char", None, [])


def test_fine_tuning_keeps_its_tokenizer(sentences):
    configured(sentences, tokenizer="char")
    result = train([sentences], name="again", settings={"init_from": "t", "steps": 1, "seed": 1})
    kept = json.loads((Path(result.path) / "tokenizer" / "tokenizer.json").read_text())
    assert kept["kind"] == "char"


@pytest.mark.parametrize(("pairs", "rows"), [(100, 32), (1600, 100), (640, 40), (160_000, 100)])
def test_a_step_has_two_thousand_tokens_of_the_longer_side(pairs, rows):
    """Sources of 20 and targets of 10 tokens; an epoch of few pairs still has sixteen steps."""
    sources = TokenSources(np.zeros(20 * pairs, np.uint8), 20 * np.arange(1, pairs + 1))
    ends = 10 * np.arange(1, pairs + 1)
    assert (
        rows_of_pairs(Corpus(np.zeros(10 * pairs, np.uint8), ends, 1, sources=sources), 32) == rows
    )


NARROW = {
    "seq2seq": (
        {"hidden_size": 12, "embedding_size": 8, "tie_weights": False},
        {"hidden_size": 8, "embedding_size": 8, "tie_weights": True},
    ),
    "seq2seq-transformer": (
        {"num_layers": 2, "hidden_size": 16, "tie_weights": True},
        {"num_layers": 1, "hidden_size": 8, "tie_weights": True},
    ),
}


@pytest.fixture(params=list(NARROW))
def narrow(request, monkeypatch):
    """An architecture whose two sizes are tiny, and that takes any text for long."""
    config_class = registry.architecture(request.param).load_config()
    assert [size.settings.keys() for size in config_class.sizes] == [
        size.keys() for size in NARROW[request.param]
    ]
    sizes = zip(config_class.sizes, NARROW[request.param], strict=True)
    limits = (1.5e6, 0.0)  # the tokens from which each is chosen
    tiny = tuple(
        replace(size, settings=settings, tokens=tokens, text=0.0)
        for (size, settings), tokens in zip(sizes, limits, strict=True)
    )
    monkeypatch.setattr(config_class, "sizes", tiny)
    return request.param


def by_minutes(monkeypatch, data, architecture, tokens, **settings):
    """Train for a moment, in which so many tokens are said to fit."""
    monkeypatch.setattr(choosing, "speed_at_first", lambda *_: tokens / (60 * 0.001))
    return trained(data, architecture, minutes=0.001, **settings)


@pytest.mark.parametrize(("tokens", "place"), [(1.6e6, 0), (1.4e6, 1)])
def test_the_size_follows_from_the_time(monkeypatch, sentences, narrow, tokens, place):
    config, said = by_minutes(monkeypatch, sentences, narrow, tokens)
    assert NARROW[narrow][place].items() <= config["model"].items()
    assert any(text.startswith(f"{narrow} with ") for text in said)


def test_sentences_are_regularised_and_strings_that_are_spelled_are_not(
    monkeypatch, sentences, narrow
):
    """Passes x parameters / tokens decides how much: at few passes, little."""
    much, _ = by_minutes(monkeypatch, sentences, narrow, 1.4e6)
    assert (much["model"]["dropout"], much["training"]["label_smoothing"]) == (0.4, 0.1)
    little, _ = by_minutes(monkeypatch, sentences, narrow, 1e3)
    assert (little["model"]["dropout"], little["training"]["label_smoothing"]) == (0.1, 0.1)
    spelled, _ = by_minutes(monkeypatch, sentences, narrow, 1e3, tokenizer="char")
    assert (spelled["model"]["dropout"], spelled["training"]["label_smoothing"]) == (0.0, 0.0)


def test_less_than_one_pass_is_said_with_how_long_one_takes(monkeypatch, sentences, narrow):
    """Of these few sentences, one takes well under a second."""
    told = "less than all of its data once, which takes about 0 seconds here"
    _, said = by_minutes(monkeypatch, sentences, narrow, 1e5)
    assert not any("less than all" in text for text in said)
    _, said = by_minutes(monkeypatch, sentences, narrow, 500)
    assert sum(told in text for text in said) == 1


def test_what_the_user_gives_is_not_chosen(monkeypatch, sentences, narrow):
    given = {"hidden_size": 24, "dropout": 0.7, "batch_size": 5, "lr": 1e-3, "optimizer": "adamw"}
    given |= {"label_smoothing": 0.3, "vocab_size": 320}
    config, _ = by_minutes(monkeypatch, sentences, narrow, 1.4e6, **given)
    settings = {**config["model"], **config["training"]}
    assert (settings.pop("vocab_size"), config["data"]["vocab_size"]) == (320, 320)
    assert given.items() - {("vocab_size", 320)} <= settings.items()
