"""Models that version 0.1.0 stored load, write, score and go on as they did then."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
sys.path.insert(0, str(DATA))

from make_models import MODELS, TEXT, TOKENS, go_on, records, rounded, said_by  # noqa: E402

EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
TRAINED = [name for name in MODELS if "resumed" in EXPECTED[name]]
# An n-gram's tables are float32: what is looked up in them is as exact as they are.
EXACT, OF_TABLES = 1e-9, 1e-7
# Which are held to figures, not to a hash: float32 has another order of summation on every
# machine, and the window model has since learned to carry its last tokens along.
NOT_TO_THE_BIT = {"lstm-float32": 1e-4, "window-char": 0.05}


@pytest.fixture
def stored(tmp_path, home):
    """Return what copies a stored model to where it may be written to."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(DATA / "models" / name, tmp_path / "copies" / name))

    return copy


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_says_what_it_said(name, stored):
    said = said_by(stored(name), DATA / TEXT)
    close = OF_TABLES if name.startswith("ngram") else EXACT
    for command, before in EXPECTED[name].items():
        if command == "resumed":
            continue
        assert len(said[command]) == len(before)
        for record, known in zip(said[command], before, strict=True):
            numbers = {key: value for key, value in known.items() if isinstance(value, float)}
            assert {key: record[key] for key in known if key not in numbers} == {
                key: value for key, value in known.items() if key not in numbers
            }
            assert {key: record[key] for key in numbers} == pytest.approx(numbers, rel=close)


@pytest.mark.parametrize("name", TRAINED)
def test_a_stored_run_goes_on_as_it_would_have(name, stored):
    model = stored(name)
    went_on, known = go_on(model, DATA / TEXT), dict(EXPECTED[name]["resumed"])
    exact = name not in NOT_TO_THE_BIT
    if not exact:
        went_on.pop("weights"), known.pop("weights")
    whole = ("steps", "tokens", "stopped", "weights")
    assert [went_on.get(key) for key in whole] == [known.get(key) for key in whole]
    # Not the training loss: which steps the last one is of is a matter of the clock.
    close = EXACT if exact else NOT_TO_THE_BIT[name]
    assert went_on["val_loss"] == pytest.approx(known["val_loss"], rel=close)


def test_going_on_changes_the_weights(stored):
    model = stored("lstm-char")
    before = rounded(model / "model.safetensors")
    go_on(model, DATA / TEXT)
    after = rounded(model / "model.safetensors")
    assert before.keys() == after.keys()
    assert before != after


def test_a_stored_token_file_is_the_text(stored):
    model = str(stored("lstm-char"))
    text, tokens = (DATA / part for part in (TEXT, TOKENS))
    found = [
        records("perplexity", "-m", model, "--precision", "float64", str(path))[0]
        for path in (text, tokens)
    ]
    assert found[0]["nll_nats"] == pytest.approx(found[1]["nll_nats"], rel=1e-12)
    assert found[0]["tokens"] == found[1]["tokens"]
