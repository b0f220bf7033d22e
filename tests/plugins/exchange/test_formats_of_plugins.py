"""Formats that other plugins add: a made-up one, and those of words without their plugin."""

import dataclasses
import json

import pytest

from seqgen import hooks
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.hooks import InstalledPlugin, ModelFormat, Plugin
from seqgen.plugins.exchange.exchange import export_model, import_model
from seqgen.plugins.exchange.formats import exported_formats, is_in_format
from seqgen.store.loading import load

# A file is a letter on each line, and a model of them that gives all the same probability.
CODE = """
import numpy as np

from seqgen.models.ngram.arrays import Level
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.settings import DataConfig
from seqgen.store.formats import ImportedModel
from seqgen.text.framing import Framing
from seqgen.text.tokenizers.char import CharTokenizer

MARK = b"letters\\n"

def is_letters(path):
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK

def begins(line):
    return line == b"lines of letters\\n"

def read_model(path, like):
    return model_of(path.read_text().split()[1:])

def read_lines(lines, path, like):
    return model_of([line.decode().strip() for line in list(lines)[1:]])

def model_of(letters):
    tokenizer = CharTokenizer("".join(letters) + "\\n")
    size = tokenizer.vocab_size
    model = NGram(NGramConfig(vocab_size=size, order=1, smoothing=None))
    model.fill([Level(np.arange(size), np.full(size, -np.log(size)), np.zeros(size))])
    data = DataConfig(tokenizer="char", val="none")
    framing = Framing.of(tokenizer, data.documents)
    return ImportedModel("ngram", model, tokenizer, data, framing, {})

def write_model(exported):
    yield MARK
    yield from (f"{letter}\\n".encode() for letter in "ab")

def write_folder(exported):
    yield "letters", b"ab"
"""
FORMATS = {
    "letters": ModelFormat(
        form="file",
        importer="reading:read_model",
        recogniser="reading:is_letters",
        exporter="reading:write_model",
        noun="a file of letters",
    ),
    "letter-lines": ModelFormat(
        form="lines", importer="reading:read_lines", recogniser="reading:begins"
    ),
    "letter-folder": ModelFormat(
        form="folder", exporter="reading:write_folder", files=frozenset({"letters"})
    ),
    "arpa": ModelFormat(form="lines", importer="reading:nothing"),
}


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
    """A plugin with `FORMATS`, beside the others."""
    package = tmp_path / "outside_letters"
    package.mkdir()
    (package / "__init__.py").write_text('"""Letters."""\n')
    (package / "reading.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    one = InstalledPlugin("outside", "outside_letters", "outside", "1", Plugin(formats=FORMATS))
    change_plugins([*hooks.plugins(), one])
    monkeypatch.setattr(hooks, "_problems", [])
    monkeypatch.setattr(hooks, "_waiting", [])


def test_a_file_of_another_plugin_is_imported_and_exported(outside, tmp_path, capfd):
    path = tmp_path / "mine.bin"  # no pickle, as its plugin knows
    path.write_bytes(b"letters\na\nb\n")
    assert run(["import", str(path), "--name", "mine"]) == 0
    loaded = load("mine", "cpu")
    assert loaded.tokenizer.encode("ab").size == 2
    again = tmp_path / "again"
    export_model(loaded, "letters", again)
    assert again.read_bytes() == path.read_bytes()
    assert is_in_format(again, "letters") and not is_in_format(again, "arpa")
    export_model(loaded, "letter-folder", tmp_path / "folder")
    assert (tmp_path / "folder" / "letters").read_bytes() == b"ab"
    assert not is_in_format(again, "letter-folder")
    with pytest.raises(SeqgenError, match=r"arpa or gguf or .* or letters or letter-folder, not"):
        export_model(loaded, "letter-lines", again)


def test_lines_of_another_plugin_are_imported(outside, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes(b"lines of letters\na\nb\n")
    assert import_model(path).name == "mine"


def test_a_name_that_is_taken_stays(outside):
    assert hooks.by_name("formats")["arpa"][0].name == "exchange"
    assert [*exported_formats()][:5] == ["arpa", "gguf", "hf", "onnx", "peft"]
    (problem,) = hooks.new_problems()
    assert "its format arpa is left out: plugin exchange has one of this name" in problem


def test_vectors_need_their_plugin(tmp_path, change_plugins, capfd):
    path = tmp_path / "words.txt"
    path.write_text("2 2\na 0 1\nb 1 0\n")
    change_plugins([one for one in hooks.plugins() if one.name != "vectors"])
    assert run(["import", str(path)]) == 1
    assert "so this is not an ARPA file" in capfd.readouterr().err


def test_a_file_that_is_not_there_has_no_format(tmp_path, capfd):
    assert run(["import", str(tmp_path / "none")]) == 1
    assert "there is no file" in capfd.readouterr().err


def test_formats_are_known_without_the_code_of_any():
    """So that help names them, and starts fast."""
    rows = [dataclasses.asdict(row) for _, row in hooks.by_name("formats").values()]
    assert json.dumps(rows, default=sorted)
    assert {row["form"] for row in rows} == {"folder", "file", "lines"}


def test_the_ending_of_a_name_says_the_format(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "t.txt").write_text("a b a c\n" * 99)
    train = ["train", str(tmp_path / "t.txt"), "--quiet", "--name"]
    assert run([*train, "counts", "--model", "ngram"]) == 0
    assert run([*train, "network", "--model", "lstm", "--steps", "1", "--hidden-size", "4"]) == 0
    for model, name, said in (
        ("network", "m.gguf", "--format gguf supports decoder-only transformers only"),
        ("counts", "m.gguf", "counts is an n-gram model: use --format arpa"),
        ("network", "m.arpa.gz", "network is not an n-gram model"),
        ("counts --format arpa", "m.gguf", "m.gguf is named as --format gguf, not arpa"),
    ):
        out = tmp_path / name
        assert run(["export", *model.split(), "--out", str(out)]) != 0
        assert said in capfd.readouterr().err and not out.exists()
    assert run(["export", "counts", "--out", str(tmp_path / "m.arpa")]) == 0
    assert (tmp_path / "m.arpa").read_text().startswith("\\data\\")
