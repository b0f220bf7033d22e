"""One stored model of every architecture and every kind loads, answers and resumes as it did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers_cli import known_kinds
from make_kinds import EXACT, KINDS, RECIPES, answers, resume
from places import STORED
from stored_answers import FLOAT32, FLOAT64, TABLES, WEIGHTS, WEIGHTS_OF_FLOAT32, require_same

from seqgen import registry, store
from seqgen.errors import SeqgenError
from seqgen.store.loading import Work, load_any

BY_KIND = STORED / "kinds"
EXPECTED = json.loads((BY_KIND / "expected.json").read_text(encoding="utf-8"))
KNOWN = known_kinds(RECIPES)
TRAINED = [name for name in KNOWN if RECIPES[name].trained]


def configuration(name: str) -> dict:
    """Return what a stored model's `config.json` says."""
    return json.loads((BY_KIND / "models" / name / "config.json").read_text(encoding="utf-8"))


@pytest.fixture
def stored(home):
    """Return what copies a stored model, and those it refers to, into the home."""

    def copy(name: str) -> Path:
        for each in (name, *RECIPES[name].needs):
            shutil.copytree(BY_KIND / "models" / each, home / "models" / each)
        return home / "models" / name

    return copy


def test_one_of_every_architecture_is_stored():
    found = {configuration(name)["architecture"] for name in RECIPES}
    encoders = {name for name, row in registry.ARCHITECTURES.items() if row.is_encoder}
    assert found >= registry.ARCHITECTURES.keys() - encoders
    assert found >= {f"{encoder}-classifier" for encoder in encoders}
    assert sorted(path.name for path in (BY_KIND / "models").iterdir()) == sorted(RECIPES)


OF_TOKENS = [
    ("imported-gpt2", "tokenizer/tokenizer.json", "special"),
    ("imported-marian", "source_tokenizer/tokenizer.json", "special"),
    ("imported-bart", "tokenizer/tokenizer.json", "special"),
    ("transformer-labels", "source_tokenizer/labels.json", "first"),
    ("lstm-labels", "source_tokenizer/labels.json", "begin"),
]


@pytest.mark.fast_for("imported-gpt2-*", "lstm-labels-*", rest="slow")
@pytest.mark.parametrize(("name", "file", "key"), [of for of in OF_TOKENS if of[0] in KNOWN])
def test_tables_of_tokens_are_checked(name, file, key, stored):
    folder = stored(name)
    (folder / "manifest.json").unlink()
    whole = json.loads((folder / file).read_text())
    for value in (None, True, 1e308, -1, 10**9, "", "x", [], {}, [[]], {"eos_id": 0}):
        (folder / file).write_text(json.dumps({**whole, key: value}))
        for work in (Work(), None):
            with pytest.raises(SeqgenError, match="damaged"):
                load_any(store.find_all(folder), work=work)


of_some = pytest.mark.fast_for(
    "rnn",
    "gru",
    "lstm",
    "hawk",
    "window",
    "transformer",
    "adapter",
    "ngram",
    "hmm",
    "bert",
    "word2vec",
    "seq2seq",
    "birnn-classifier",
    "mixture",
    "imported-gpt2",
    rest="slow",
)


@of_some
@pytest.mark.parametrize("name", KNOWN)
def test_a_stored_model_answers_as_it_did(name, stored):
    found = answers(name, stored(name), STORED)
    from_tables = any("ngram" in each or "arpa" in each for each in (name, *RECIPES[name].needs))
    for question, command in KINDS[RECIPES[name].kind].questions.items():
        close = FLOAT32 if EXACT[0] not in command else TABLES if from_tables else FLOAT64
        require_same(found.get(question), EXPECTED[name].get(question), close)


@of_some
@pytest.mark.parametrize("name", TRAINED)
def test_a_stored_run_resumes_as_it_would_have(name, stored):
    found, known = resume(name, stored(name), STORED), dict(EXPECTED[name]["resumed"])
    close = WEIGHTS if RECIPES[name].exact else WEIGHTS_OF_FLOAT32
    require_same(found.pop("weights"), known.pop("weights"), close)
    if "with-ngram" in name:  # these are now the figures of the network with its n-gram model
        assert found["val_loss"] < known["val_loss"]
        known = {key: value for key, value in known.items() if not key.startswith("val_")}
    require_same(found, known, FLOAT32 if RECIPES[name].exact else WEIGHTS_OF_FLOAT32)
