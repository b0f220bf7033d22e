"""Accuracy of the next character with and without healing, as the benchmark prints it."""

from helpers_cli import needs, records, refusal

from benchmarks.__main__ import run
from seqgen.cli import run as run_seqgen

from .healing import place_of, sentences

TEXT = "The tide came in before noon again. The men and the boats went out at ten. We wait here.\n"


@needs("bytes")
def test_the_next_character_is_counted(capsys, home, tmp_path):
    prose = tmp_path / "prose.txt"
    prose.write_text(TEXT * 40)
    train = ("train", str(prose), "--model", "ngram", "--tokenizer", "bpe", "--vocab-size", "300")
    assert run_seqgen([*train, "--name", "m", "--quiet"]) == 0
    about = ("healing", "-m", "m", "--sentences", "2", "--prose")
    found = records(capsys, *about, prose, by=run)
    within = next(one for one in found if one["cut"] == "within a word")
    assert within["prompts"] >= within["healed"] > within["plain"] and within["changed"]
    lengths = [len(one) - 1 for one in sentences(prose, 2, 1)]
    assert sum(one["prompts"] for one in found) == sum(lengths)
    assert "--prose" in refusal(capsys, *about[:-1], by=run)


def test_sentences_are_drawn_and_cut(tmp_path):
    prose = tmp_path / "prose.txt"
    prose.write_text(TEXT * 3)
    # One begins a line, and one is too short.
    assert sentences(prose, 9, 1) == ["The men and the boats went out at ten."]
    assert [place_of("a b", after) for after in "c ."] == ["within a word", *["after a word"] * 2]
    assert place_of("a ", "b") == "after a space"
