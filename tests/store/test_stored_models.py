"""Models that version 0.1.0 stored load, write, score and go on as they did then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers_cli import is_usable
from make_models import MODELS as RECIPES
from make_models import TEXT, TOKENS, said_by
from places import STORED
from stored_answers import (
    FLOAT32,
    FLOAT64,
    TABLES,
    WEIGHTS,
    WEIGHTS_OF_FLOAT32,
    projections,
    records,
    require_same,
    resumed,
)

EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))
MODELS = [name for name in RECIPES if is_usable(STORED / "models" / name)]
TRAINED = [name for name in MODELS if "resumed" in EXPECTED[name]]


@pytest.fixture
def stored(tmp_path, home):
    """Return what copies a stored model to where it may be written to."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(STORED / "models" / name, tmp_path / "copies" / name))

    return copy


of_some = pytest.mark.fast_for(
    "ngram-char",
    "window-char",
    "gru-before-word",
    "lstm-char",
    "lstm-unigram",
    "transformer-2017",
    rest="slow",
)


@of_some
@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_says_what_it_said(name, stored):
    said = said_by(stored(name), STORED / TEXT)
    known = {command: before for command, before in EXPECTED[name].items() if command != "resumed"}
    require_same(said, known, TABLES if name.startswith("ngram") else FLOAT64)


@of_some
@pytest.mark.parametrize("name", TRAINED)
def test_a_stored_run_goes_on_as_it_would_have(name, stored):
    went_on, known = _go_on(stored(name)), dict(EXPECTED[name]["resumed"])
    exact = name != "lstm-float32"
    close = WEIGHTS if exact else WEIGHTS_OF_FLOAT32
    require_same(went_on.pop("weights"), known.pop("weights"), close)
    require_same(went_on, known, FLOAT32 if exact else WEIGHTS_OF_FLOAT32)


def test_going_on_changes_the_weights(stored):
    model = stored("lstm-char")
    before = projections(model)
    after = _go_on(model)["weights"]
    assert before.keys() == after.keys()
    assert all(abs(before[name] - after[name]) > WEIGHTS_OF_FLOAT32 for name in before)


def test_a_stored_token_file_is_the_text(stored):
    model = str(stored("lstm-char"))
    text, tokens = (STORED / part for part in (TEXT, TOKENS))
    found = [
        records("perplexity", "-m", model, "--precision", "float64", str(path))[0]
        for path in (text, tokens)
    ]
    assert found[0]["nll_nats"] == pytest.approx(found[1]["nll_nats"], rel=1e-12)
    assert found[0]["tokens"] == found[1]["tokens"]


def _go_on(model: Path) -> dict:
    return resumed(model, "--data", str(STORED / TEXT))
