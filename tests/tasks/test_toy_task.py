"""A kind of task is facts, its parts and a model: three files and a row, and nothing else."""

import json
import random

import pytest
from helpers_cli import needs, refusal
from toy_task import PAIRS_WITH_LABEL

from seqgen import registry, store
from seqgen.cli import run

pytestmark = needs("labels")  # whose parts the task's are made of
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
TRAIN = ("--model", "matcher", "--seed", "1", "--precision", "float32", "--val", "0.25")


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """Pairs of which the second sentence has the first's words in another order, or others."""
    row = registry.Architecture(
        "matcher",
        "toy_model:Matcher",
        "compares two bags of words",
        (PAIRS_WITH_LABEL,),
    )
    monkeypatch.setitem(registry.ARCHITECTURES, "matcher", row)
    draw = random.Random(0)
    lines = []
    for _ in range(400):
        words = draw.sample(WORDS, 6)
        same = draw.random() < 0.5
        first, second = words[:3], words[:3] if same else words[3:]
        draw.shuffle(second)
        lines.append("\t".join([" ".join(first), " ".join(second), "same" if same else "other"]))
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def records(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments), "--json", "--quiet"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_toy_kind_of_task_is_trained_resumed_and_measured(pairs, capsys):
    (whole,) = records(capsys, "train", pairs, *TRAIN, "--steps", 120, "--name", "whole")
    assert whole["val_accuracy"] > 0.95  # by chance it is a half
    assert whole["val_bits_per_char"] is None  # labels are not text
    assert store.find("whole").record["data"]["classes"] == 2
    # A run that is stopped and resumed reads the same parts again, and gives the same weights.
    records(capsys, "train", pairs, *TRAIN, "--steps", 120, "--stop-after", 50, "--name", "half")
    (resumed,) = records(capsys, "train", "--resume", "half")
    assert resumed["val_loss"] == whole["val_loss"] and resumed["steps"] == 120
    weights = [(store.find(name).path / store.WEIGHTS).read_bytes() for name in ("whole", "half")]
    assert weights[0] == weights[1]
    # What another command does for its models is its own.
    (measured,) = records(capsys, "eval", pairs, "-m", "whole")
    assert measured["accuracy"] > 0.95


def test_what_has_no_meaning_for_the_toy_is_refused_by_its_facts(pairs, capsys):
    train = ("train", pairs, *TRAIN, "--steps", 2)
    learns = "has no meaning: matcher learns from pairs of sentences with a label"
    assert refusal(capsys, *train, "--seq-len", 9).endswith(f"--seq-len {learns}")
    assert refusal(capsys, *train, "--documents", "stream").endswith(f"documents=stream {learns}")
    assert "it takes no --target" in refusal(
        capsys, *train[:1], *train[2:], "--source", pairs, "--target", pairs
    )
    records(capsys, *train, "--name", "m")
    said = "m compares two sentences, no language model: use seqgen eval"
    assert refusal(capsys, "sample", "a", "-m", "m").endswith(said)
    assert "--bleu has no meaning for models that compare sentences" in refusal(
        capsys, "eval", pairs, "--bleu", "-m", "m"
    )
    pairs.write_text("one two\tsame\none two\tother\n" * 10)
    assert "line 1 is not a pair" in refusal(capsys, *train)
