"""Kinds of tokenizer that plugins add, and tokenizers of other tools that they open."""

import json

import pytest

from seqgen import hooks
from seqgen.cli import run
from seqgen.hooks import InstalledPlugin, Plugin
from seqgen.text.tokenizers import KINDS, STORED, load_tokenizer
from seqgen.training.datasets.dataset import open_tokenizer

# A kind with a name of its own, and a file of letters that is a tokenizer of that kind.
CODE = """
from seqgen.text.tokenizers.char import CharTokenizer

class VowelTokenizer(CharTokenizer):
    kind = "vowels"

def read_letters(path):
    if path.suffix != ".letters":
        return None
    return VowelTokenizer(path.read_text())
"""
PLUGIN = Plugin(
    tokenizers={"vowels": "kinds:VowelTokenizer"}, tokenizer_readers=("kinds:read_letters",)
)


@pytest.fixture
def change_plugins(monkeypatch):
    """Return a function that puts other plugins in the place of those that there are."""

    def change(found):
        monkeypatch.setattr(hooks, "plugins", lambda: tuple(found))
        hooks.by_name.cache_clear()

    yield change
    monkeypatch.undo()
    hooks.by_name.cache_clear()


@pytest.fixture
def outside(tmp_path, monkeypatch, change_plugins):
    package = tmp_path / "outside_vowels"
    package.mkdir()
    (package / "__init__.py").write_text('"""Vowels."""\n')
    (package / "kinds.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    change_plugins(
        [*hooks.plugins(), InstalledPlugin("outside", "outside_vowels", "outside", "1", PLUGIN)]
    )


def test_a_kind_of_a_plugin_is_trained_stored_and_read(outside, tmp_path, capfd):
    (tmp_path / "text").write_text("ab ba\n" * 40)
    command = ["train", str(tmp_path / "text"), "--model", "ngram", "--tokenizer", "vowels"]
    assert run([*command, "--name", "m", "--quiet"]) == 0
    assert run(["sample", "-m", "m", "--max-tokens", "5"]) == 0
    only_stored = len(hooks.by_name("stored_tokenizers"))
    assert "vowels" in KINDS and "vowels" in [*STORED] and len(STORED) == len(KINDS) + only_stored


def test_a_tokenizer_that_a_plugin_opens(outside, tmp_path):
    (tmp_path / "a.letters").write_text("abc\n")
    tokenizer = open_tokenizer(tmp_path / "a.letters")
    tokenizer.save(tmp_path / "stored")
    assert load_tokenizer(tmp_path / "stored").fingerprint == tokenizer.fingerprint


def test_kinds_are_listed_without_loading_them(change_plugins, capfd):
    broken = InstalledPlugin(
        "outside", "no_such", "outside", "1", Plugin(tokenizers={"x": "kinds:X"})
    )
    change_plugins([*hooks.plugins(), broken])
    assert "x" in [*KINDS]
    assert KINDS["char"].kind == "char" and "y" not in KINDS


@pytest.mark.parametrize("named", ["folder", "folder/tokenizer.json"])
def test_a_tokenizer_of_another_tool_needs_its_plugin(named, tmp_path, change_plugins, capfd):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE"}}))
    (tmp_path / "text").write_text("ab ba\n" * 40)
    change_plugins([one for one in hooks.plugins() if one.name != "exchange"])
    path = tmp_path / named
    command = ["train", str(tmp_path / "text"), "--model", "ngram", "--tokenizer", str(path)]
    assert run(command) == 1
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "needs a plugin that reads it: exchange" in said
