"""Validations and samples of models that are slow for their budget."""

from __future__ import annotations

import math
import time

import pytest

from seqgen import store
from seqgen.generation.sample import fixed_sample
from seqgen.store.loading import load
from seqgen.training import session, validating
from seqgen.training.reload import reload_stored_data, tokens_of
from seqgen.training.resume import resume
from seqgen.training.train import train
from seqgen.training.validations import TRIED_LENGTH, TextValidation

SHAPE = {"hidden_size": 8, "num_layers": 1, "seq_len": 6, "seed": 1, "precision": "float32"}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("so it goes on and on, and it ends so.\n" * 400)
    return path


def validation_of(name):
    stored = store.find(name)
    _, tokenizer = stored.load()
    prepared = reload_stored_data(stored, tokens_of(stored, tokenizer))
    return TextValidation(load(name, "cpu"), prepared)


def test_rows_are_as_long_as_a_time_allows(text):
    train([text], architecture="gru", name="x", settings={**SHAPE, "steps": 2})
    whole, short = validation_of("x"), validation_of("x")
    assert whole.fit(1e9, None) == validating.VALIDATION_LENGTH
    assert short.fit(0.0, None) == TRIED_LENGTH
    assert short._corpus.tokens.size == validating.VALIDATION_ROWS * TRIED_LENGTH
    assert short.quick() != whole.quick()
    again = validation_of("x")
    assert again.fit(1e9, TRIED_LENGTH) == TRIED_LENGTH  # as in the run that is resumed
    assert again.quick() == short.quick()


def test_the_length_of_validations_is_kept_for_resuming(text, monkeypatch):
    lengths = []
    fit = TextValidation.fit

    def watched(self, seconds, length):
        lengths.append((seconds, length, fit(self, 0.0, length)))
        return lengths[-1][-1]

    monkeypatch.setattr(TextValidation, "fit", watched)
    settings = {**SHAPE, "minutes": 0.1, "validate_every": 2}
    train([text], architecture="gru", name="x", settings=settings, stop_after=4)
    assert [(known, found) for _, known, found in lengths] == [(None, 4), (4, 4)]
    assert lengths[0][0] == pytest.approx(6 / 50)
    lengths.clear()
    resume("x", stop_after=6)
    assert [(known, found) for _, known, found in lengths] == [(4, 4)]


def test_a_long_validation_comes_after_a_fiftieth_of_the_work(text, monkeypatch):
    steps, hooks = [], []
    make = session.Trainer.__init__

    def watched(self, *arguments, **more):
        make(self, *arguments, **more)
        hooks.append(self.hooks)

    monkeypatch.setattr(session.Trainer, "__init__", watched)
    monkeypatch.setattr(validating, "LONG_OPERATIONS", 1.0)

    def report(event):
        if type(event).__name__ == "Validated":
            steps.append(event.step)

    settings = {**SHAPE, "batch_size": 64, "seq_len": 32, "steps": 60}
    train([text], architecture="gru", name="x", settings=settings, report=report)
    (used,) = hooks
    assert used.validation_is_long
    every = math.ceil(50 * used.validation_steps)
    assert 6 < every <= 60
    assert steps == sorted({*range(every, 61, every), 60})


def test_a_sample_ends_with_its_time(text):
    train([text], architecture="gru", name="x", settings={**SHAPE, "steps": 2})
    loaded = load("x", "cpu")
    assert fixed_sample(loaded, seconds=0.0) == ""
    began = time.monotonic()
    assert fixed_sample(loaded, tokens=20) == fixed_sample(loaded, tokens=20, seconds=60.0)
    assert time.monotonic() - began < 60
