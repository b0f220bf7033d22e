"""Texts of a form under stored models of every kind, also with few special tokens."""

import json
import re
import shutil

import numpy as np
import pytest
from helpers_cli import known_kinds, needs
from places import STORED

from seqgen.cli import run
from seqgen.generation.token_bytes import end_and_dead_end
from seqgen.store import find

KINDS = known_kinds(sorted(path.name for path in (STORED / "kinds" / "models").iterdir()))
OF_TEXT = [
    name
    for name in KINDS
    if find(STORED / "kinds" / "models" / name).task.model_is is None
    and not find(STORED / "kinds" / "models" / name).task.takes_targets
    and "labels" not in name
]


@pytest.mark.fast_for(
    "imported-gpt2", "imported-llama", "imported-arpa", "ngram-words", rest="slow"
)
@pytest.mark.parametrize("name", OF_TEXT)
def test_texts_of_every_kind_have_the_form(name, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path))
    shutil.copytree(STORED / "kinds" / "models", tmp_path / "models")
    pattern = r"(?s:.){0,3}( [a-z]+)*"
    command = ["sample", "-m", name, "--pattern", pattern, "--num-samples", "5", "--seed", "1"]
    assert run([*command, "--max-tokens", "6", "--json"]) == 0
    for record in map(json.loads, capfd.readouterr().out.splitlines()):
        assert record["finish_reason"] in ("pattern", "dead-end")
        if record["finish_reason"] == "pattern":
            assert re.fullmatch(pattern, record["text"])


@needs("exchange")
def test_one_special_token_is_enough_for_a_tokenizer_over_bytes():
    tokenizer = find(STORED / "kinds" / "models" / "imported-gpt2").load()[1]
    end, dead = end_and_dead_end(tokenizer)
    assert end == tokenizer.eos_id != dead
    with pytest.raises(UnicodeDecodeError):
        bytes(tokenizer.text_bytes(np.array([dead]))).decode()
