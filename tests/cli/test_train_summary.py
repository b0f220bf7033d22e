"""What `seqgen train` says at the end of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqgen.cli.shell.progress import _put_mixture, _table
from seqgen.training.session import TrainingResult

RESULT = TrainingResult(
    name="book",
    path="book",
    architecture="lstm",
    parameters=10,
    steps=1000,
    tokens=64_000,
    train_loss=1.2,
    val_loss=1.5,
    val_bits_per_char=2.2,
    val_bits_per_byte=2.2,
    seconds=60.0,
    validation_seconds=1.0,
    tokens_per_second=1066.7,
    stopped="minutes",
    seed=1,
    best_step=1000,
    epochs=2.0,
    protocol="one stream",
)


@pytest.mark.parametrize(
    "best_step, stopped, epochs, said",
    [
        (1000, "minutes", 2.0, False),
        (760, "steps", 2.0, False),
        (740, "steps", 2.0, True),
        (900, "patience", 2.0, True),
        (740, "steps", 1.9, False),
        (900, "patience", 0.4, False),
    ],
)
def test_a_text_that_is_used_up_is_said_to_be(capsys, best_step, stopped, epochs, said):
    _table(replace(RESULT, best_step=best_step, stopped=stopped, epochs=epochs))
    assert ("used up" in capsys.readouterr().err) == said


def test_a_sample_is_cut_as_those_of_validations_are(capsys):
    _table(replace(RESULT, sample="a" * 200 + "\nb\n"))
    *_, first, last = capsys.readouterr().err.splitlines()
    assert (first, last) == ("  | " + "a" * 80, "  | b")


def test_a_mixture_is_shown_beside_its_parts(capsys):
    mixture = {"name": "book", "order": 8, "tokens": 500}
    mixture |= {"weights": [0.8, 0.2], "by_order": None}
    mixture |= {"network_loss": 1.4365, "ngram_loss": 1.5845, "mixture_loss": 1.3875}
    _put_mixture("book", mixture)
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert lines[1:] == [
        "nats/token on 500 tokens of the other half:",
        "network alone 1.4365",
        "8-gram alone 1.5845",
        "book 1.3875 weights 0.8000 and 0.2000",
    ]
