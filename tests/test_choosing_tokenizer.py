"""The tokenizer that pairs get where none is named: by how long they are, and how many."""

import json
from pathlib import Path

import pytest

from seqgen.configs import DataConfig
from seqgen.data.text import Survey
from seqgen.tasks.training import choosing_tokenizer
from seqgen.tasks.training.choosing_tokenizer import suited_size, suited_tokenizer
from seqgen.tasks.training.train import train
from seqgen.training.events import Notice

TINY = {"hidden_size": 8, "num_layers": 1, "steps": 1, "seed": 1, "precision": "float32"}


def facts_of(characters, pairs):
    return Survey(characters=characters, lines=pairs)


def suited(characters, pairs, **given):
    facts = facts_of(characters, pairs)
    return suited_tokenizer(DataConfig(documents="line", **given), given, facts)


def test_subwords_grow_with_the_cube_root_of_the_text():
    """Multi30k's 4 million characters, and the thousand million of WMT 2014's 4.5 million pairs.

    Vaswani et al. (2017) had 37,000 pieces for those.
    """
    assert suited_size(3_900_000) == 6_000
    assert suited_size(1_000_000_000) == pytest.approx(37_000, rel=0.05)
    assert suited_size(8 * 3_900_000) == pytest.approx(2 * 6_000, rel=0.01)
    assert (suited_size(1), suited_size(10**15)) == (500, 40_000)


def test_short_strings_and_little_text_are_characters():
    assert suited(495_000, 10_000) == {"tokenizer": "char"}  # the dates of `corpora/`
    assert suited(3_900_000, 29_000) == {"tokenizer": "bpe", "vocab_size": 6_000}
    assert suited(100_000, 700) == {"tokenizer": "char"}


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
    assert suited(3_900_000, 29_000, **given) == chosen


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


def configured(data, **settings):
    """Train one step; return how the data was read, and the notices."""
    said = []
    result = train(
        [data],
        architecture="seq2seq",
        name="t",
        overwrite=True,
        settings={**TINY, **settings},
        report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
    )
    config = json.loads((Path(result.path) / "config.json").read_text())
    return config["data"], said


def test_the_choice_is_said_and_stored(sentences):
    data, said = configured(sentences)
    length = len(sentences.read_text())
    size, mean = suited_size(length), round(length / 40)
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
