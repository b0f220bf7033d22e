"""What models of pairs get where nothing is said: tokenizer, size, dropout and batch."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import registry
from seqgen.settings import DataConfig
from seqgen.text.corpus import Corpus
from seqgen.text.pairs import TabPairs
from seqgen.text.sources import TokenSources
from seqgen.training import choosing
from seqgen.training.datasets import pairs
from seqgen.training.datasets.pairs import (
    WordUse,
    choose_tokenizer,
    vocab_size_for,
    word_use,
    words_in,
)
from seqgen.training.datasets.prepared import rows_of_pairs
from seqgen.training.events import Notice
from seqgen.training.train import train

TINY = {"hidden_size": 8, "num_layers": 1, "steps": 1}


SENTENCES, STRINGS = WordUse(0.73, 0.0, 2000), WordUse(0.0, 1.0, 2000)


def chosen_for(words, **given):
    config = DataConfig(documents="line", **given)
    return choose_tokenizer(config, given, 3_900_000, lambda: words)[0]


def test_subwords_grow_with_the_cube_root_of_the_text():
    """Multi30k's 4 million characters, and the thousand million of WMT 2014's 4.5 million pairs.

    Vaswani et al. (2017) had 37,000 pieces for those.
    """
    assert vocab_size_for(3_900_000) == 6_000
    assert vocab_size_for(1_000_000_000) == pytest.approx(37_000, rel=0.05)
    assert vocab_size_for(8 * 3_900_000) == pytest.approx(2 * 6_000, rel=0.01)
    assert (vocab_size_for(1), vocab_size_for(10**15)) == (500, 40_000)


NOUNS = [
    "cat",
    "dog",
    "horse",
    "hen",
    "farmer",
    "child",
    "baker",
    "sailor",
    "tree",
    "house",
    "boat",
    "river",
    "hill",
]
VERBS = ["sees", "likes", "finds", "follows", "hears", "leaves", "paints", "carries"]


def sentences_of(count, clauses, rng):
    """Sentences of so many clauses and, as their targets, the same words reversed."""
    for _ in range(count):
        clause = [
            f"the {rng.choice(NOUNS)} {rng.choice(VERBS)} a {rng.choice(NOUNS)}"
            for _ in range(clauses)
        ]
        source = " and ".join(clause) + "."
        yield source, " ".join(source.split()[::-1])


def strings_of(count, letters, rng):
    """Strings of so many letters and, as their targets, the same letters reversed."""
    for _ in range(count):
        word = "".join(rng.choices("abcdefgh", k=letters))
        yield word, word[::-1]


def digits_of(count, rng):
    """Numbers in words and in digits; many come back."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for _ in range(count):
        digits = rng.choices(range(1, 10), k=2)
        yield " ".join(words[d - 1] for d in digits), "".join(map(str, digits))


def days_of(count, rng):
    """Dates of a few years, all of whose words come back."""
    months = ["January", "February", "March", "April"]
    for _ in range(count):
        day = f"{rng.choice(months)} {rng.randint(1, 28)}, {rng.randint(2001, 2005)}"
        yield day, f"on {day}"


def use_of(pairs):
    return word_use(listed_pairs(pairs), len(pairs))


def listed_pairs(pairs):
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    return TabPairs(InMemory(text), "pairs.tsv")


class InMemory:
    """A text that can be read any number of times."""

    def __init__(self, text):
        self.text = text

    def chunks(self):
        yield self.text


@pytest.mark.fast_for("1-*", "8-100", "8-1000", rest="slow")
@pytest.mark.parametrize("count", [100, 1000, 5000])
@pytest.mark.parametrize("clauses", [1, 8])
def test_sentences_of_any_length_are_subwords(count, clauses):
    """The short ones have 25 characters a side, which the mean length took for strings."""
    assert use_of(list(sentences_of(count, clauses, Random(1)))).sentences


@pytest.mark.fast_for("8-*", "200-100", "200-1000", rest="slow")
@pytest.mark.parametrize("count", [100, 1000, 5000])
@pytest.mark.parametrize("letters", [8, 200])
def test_strings_of_any_length_are_characters(count, letters):
    assert not use_of(list(strings_of(count, letters, Random(1)))).sentences


@pytest.mark.parametrize("make", [digits_of, days_of])
def test_numbers_and_dates_are_characters_though_they_come_back(make):
    pairs = list(make(3000, Random(1)))
    assert not use_of(pairs).sentences
    assert not use_of([(target, source) for source, target in pairs]).sentences


def test_one_side_of_strings_is_enough_for_characters():
    """Sounds of words, for example: the sounds come back, the words do not."""
    words = [source for source, _ in strings_of(2000, 8, Random(1))]
    assert not use_of([(word, " ".join(word)) for word in words]).sentences


def test_characters_of_scripts_without_spaces_count_as_words():
    rng = Random(1)
    translated = dict(zip(NOUNS + VERBS, "猫犬馬鶏農子焼船木家舟川丘見好探追聞去画運", strict=True))
    pairs = [
        (source, "".join(translated.get(word.strip("."), "") for word in source.split()) + "。")
        for source, _ in sentences_of(500, 1, rng)
    ]
    assert use_of(pairs).sentences


def test_words_are_counted_without_punctuation_around_them():
    assert list(words_in(' "Well," she said: don\'t -- 1987-03-03!')) == [
        "Well",
        "she",
        "said",
        "don't",
        "1987-03-03",
    ]


def test_a_large_text_is_sampled_so_that_rare_names_stay_rare():
    """Each of 3,000 names occurs ten times in 30,000 pairs, and hardly ever in the sample."""
    names = [name for name, _ in strings_of(3000, 8, Random(1))] * 10
    use = use_of([(name, name[::-1]) for name in names])
    assert (use.sampled, use.sentences) == (pairs.SAMPLED_PAIRS, False)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(sentences, strings, rng):
    pairs = [*sentences_of(sentences + 1, 1, rng), *strings_of(strings, 8, rng)]
    shuffled = rng.sample(pairs, len(pairs))
    assert use_of(shuffled) == use_of(pairs)


def test_empty_sides_are_no_sentences():
    assert not use_of([("", "")]).sentences


def test_sentences_are_subwords_and_strings_characters():
    assert chosen_for(STRINGS) == {"tokenizer": "char"}
    assert chosen_for(SENTENCES) == {"tokenizer": "bpe", "vocab_size": 6_000}


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
    assert chosen_for(SENTENCES, **given) == chosen


@pytest.fixture
def sentences(tmp_path, monkeypatch):
    """Forty pairs of sentences."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    path = tmp_path / "pairs.tsv"
    lines = (f"{source}\t{target}\n" for source, target in sentences_of(40, 3, Random(1)))
    path.write_text("".join(lines))
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
    size = vocab_size_for(length)
    assert (data["tokenizer"], data["vocab_size"]) == ("bpe", size)
    why = "100% of the words occur 10 times or more in 40 pairs"
    assert said == [f"tokenizer bpe, vocab_size {size}: {why}"]


def test_nothing_is_said_of_a_tokenizer_that_is_given(sentences):
    data, said = configured(sentences, tokenizer="char")
    assert (data["tokenizer"], data["vocab_size"], said) == ("char", None, [])


def test_only_the_size_follows_for_subwords_that_are_given(sentences):
    _, said = configured(sentences, tokenizer="unigram")
    length = len(sentences.read_text())
    why = f"pairs have {length:,} characters in all"
    assert said == [f"vocab_size {vocab_size_for(length)}: {why}"]


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
    """An architecture that has two sizes, which are tiny, and that takes any text for long."""
    config_class = registry.architecture(request.param).load_config()
    first = config_class.sizes[:2]
    assert [size.settings.keys() for size in first] == [
        size.keys() for size in NARROW[request.param]
    ]
    sizes = zip(first, NARROW[request.param], strict=True)
    limits = (1.5e6, 0.0)  # the tokens from which each is chosen
    tiny = tuple(
        replace(size, settings=settings, tokens=tokens, text=0.0)
        for (size, settings), tokens in zip(sizes, limits, strict=True)
    )
    monkeypatch.setattr(config_class, "sizes", tiny)
    return request.param


def by_minutes(monkeypatch, data, architecture, tokens, **settings):
    """Train for a moment, in which so many tokens are said to fit."""
    monkeypatch.setattr(choosing.SpeedTrial, "known_speeds", {1: tokens / (60 * 0.001)})
    return trained(data, architecture, minutes=0.001, **settings)


@pytest.mark.fast_for("seq2seq-1*", rest="slow")
@pytest.mark.parametrize(("tokens", "place"), [(1.6e6, 0), (1.4e6, 1)])
def test_the_size_follows_from_the_time(monkeypatch, sentences, narrow, tokens, place):
    config, said = by_minutes(monkeypatch, sentences, narrow, tokens)
    assert NARROW[narrow][place].items() <= config["model"].items()
    assert any(text.startswith(f"{narrow} with ") for text in said)


@pytest.mark.fast_for("seq2seq-100000.0-128", rest="slow")
@pytest.mark.parametrize(
    ("architecture", "tokens", "width"),
    [
        ("seq2seq", 5e4, 64),
        ("seq2seq", 1e5, 128),
        ("seq2seq", 3e5, 256),
        ("seq2seq-transformer", 9e4, 64),
        ("seq2seq-transformer", 2e5, 128),
    ],
)
def test_short_budgets_have_small_models(monkeypatch, sentences, architecture, tokens, width):
    config, _ = by_minutes(monkeypatch, sentences, architecture, tokens)
    assert config["model"]["hidden_size"] == width


@pytest.mark.fast_for("seq2seq", rest="slow")
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


@pytest.mark.fast_for("seq2seq", rest="slow")
def test_less_than_one_pass_is_said_with_how_long_one_takes(monkeypatch, sentences, narrow):
    """Of these few sentences, one takes well under a second."""
    told = "less than all of its data once, which takes about 0 seconds here"
    _, said = by_minutes(monkeypatch, sentences, narrow, 1e5)
    assert not any("less than all" in text for text in said)
    _, said = by_minutes(monkeypatch, sentences, narrow, 500)
    assert sum(told in text for text in said) == 1


@pytest.mark.fast_for("seq2seq", rest="slow")
def test_what_the_user_gives_is_not_chosen(monkeypatch, sentences, narrow):
    given = {"hidden_size": 24, "dropout": 0.7, "batch_size": 5, "lr": 1e-3, "optimizer": "adamw"}
    given |= {"label_smoothing": 0.3, "vocab_size": 320}
    config, _ = by_minutes(monkeypatch, sentences, narrow, 1.4e6, **given)
    settings = {**config["model"], **config["training"]}
    assert (settings.pop("vocab_size"), config["data"]["vocab_size"]) == (320, 320)
    assert given.items() - {("vocab_size", 320)} <= settings.items()


@pytest.mark.parametrize(("share", "wanted"), [(0.99, "seq2seq"), (1.01, "seq2seq-transformer")])
def test_auto_is_the_translator_that_the_budget_is_enough_for(
    monkeypatch, sentences, share, wanted
):
    tokens = share * choosing.TRANSFORMER_FROM_TOKENS["seq2seq-transformer"]
    config, _ = by_minutes(monkeypatch, sentences, "auto", tokens, hidden_size=8, num_layers=1)
    assert config["architecture"] == wanted


@pytest.mark.slow
def test_auto_counts_the_tokens_of_epochs(monkeypatch, sentences):
    small = {"hidden_size": 8, "num_layers": 1, "precision": "float32"}
    once = train([sentences], architecture="auto", settings={"epochs": 1, **small})
    least = choosing.TRANSFORMER_FROM_TOKENS
    monkeypatch.setitem(least, "seq2seq-transformer", 1.5 * once.tokens)
    wanted = {1: "seq2seq", 2: "seq2seq-transformer"}
    for epochs, architecture in wanted.items():
        config, _ = trained(sentences, "auto", epochs=epochs, **small)
        assert config["architecture"] == architecture


def test_auto_leaves_what_is_labelled_to_the_network_of_texts(sentences):
    """And a text is no pairs, whatever is in it."""
    config, _ = trained(sentences, "auto", labels=True, steps=1, hidden_size=8, num_layers=1)
    assert config["architecture"] == "lstm"
    text = sentences.rename(sentences.with_suffix(".txt"))
    config, _ = trained(text, "auto", steps=1, hidden_size=8, num_layers=1)
    assert config["architecture"] == "lstm"
