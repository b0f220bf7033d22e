"""FIFOs where files belong: refused in one line, never waited for."""

import os

import pytest

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.store.loading import load


def replaced_by_fifos(folder):
    """Yield each file of a folder while a FIFO is in its place."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        yield path
        path.unlink()
        path.write_bytes(content)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_fifo_in_the_place_of_a_file_of_a_model_is_not_waited_for(tmp_path, capsys):
    text_file = tmp_path / "text.txt"
    text_file.write_text("the cat sat on the mat\n" * 40)
    how = ("--model", "lstm", "--tokenizer", "bpe", "--vocab-size", "280", "--hidden-size", "4")
    assert run(["train", str(text_file), *how, "--steps", "2", "--name", "m", "-q"]) == 0
    refused = set()
    for path in replaced_by_fifos(store.find("m").path):
        for command in (
            ["sample", "-m", "m", "--max-tokens", "1", "-q"],
            ["train", "--resume", "m", "-q"],
        ):
            capsys.readouterr()
            code, said = run(command), capsys.readouterr()
            assert code in (0, 1) and (code == 0 or said.err.count("\n") == 1)
            if code:
                refused.add(path.name)
                assert str(path) in said.err
    known = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer.model"}
    assert refused >= {*known, "manifest.json", "last.safetensors", "lock"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_fifo_in_an_imported_folder_is_not_waited_for(tmp_path):
    exchange = pytest.importorskip("seqgen.plugins.exchange.exchange")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 40)
    how = ("--model", "transformer", "--tokenizer", "byte", "--hidden-size", "8", "--heads", "2")
    assert run(["train", str(text), *how, "--steps", "2", "--name", "m", "-q"]) == 0
    folder = tmp_path / "exported"
    exchange.export_model(load("m"), "hf", folder)
    for path in replaced_by_fifos(folder):
        if path.name in ("config.json", "model.safetensors"):
            with pytest.raises(SeqgenError, match=path.name):
                exchange.import_model(folder, name="i")
