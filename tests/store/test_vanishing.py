"""A model that is removed while a command reads it is one clear line."""

from __future__ import annotations

import builtins
import io
import os
import shutil

import pytest
from places import STORED

from seqgen.cli import run


class Remover:
    """Removes a folder right before a file of it is opened for the nth time."""

    def __init__(self, folder, patch):
        self.folder, self.left = folder, 0
        for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
            patch.setattr(module, name, self.watching(getattr(module, name)))

    def watching(self, function):
        def opened(path, *arguments, **more):
            if self.left and str(self.folder) in str(path):
                self.left -= 1
                if not self.left:
                    self.folder.rename(self.folder.with_name("gone"))
            return function(path, *arguments, **more)

        return opened


COMMANDS = {
    "sample": ["sample", "a", "-m", "m", "--max-tokens", "2"],
    "show": ["models", "show", "m"],
    "tokenize": ["tokenize", "text", "-m", "m", "--pieces"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_that_vanishes_is_one_line(command, home, tmp_path, monkeypatch, capsys):
    models = home / "models"
    shutil.copytree(STORED / "models" / "lstm-char", models / "m")
    shutil.copyfile(STORED / "tiny.txt", tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    told = f"seqgen: {models / 'm'} was removed or renamed while it was in use; "
    with monkeypatch.context() as patch:
        remover = Remover(models / "m", patch)
        for number in range(1, 100):
            remover.left = number
            code = run(COMMANDS[command])
            if remover.left:  # all that it opens has been tried
                assert code == 0 and number > 3
                return
            (models / "gone").rename(models / "m")
            said = capsys.readouterr().err
            assert code == 1 and said.startswith(told) and said.count("\n") == 1


def test_a_missing_part_of_a_model_is_called_that(home, capsys):
    shutil.copytree(STORED / "models" / "lstm-char", home / "models" / "m")
    (home / "models" / "m" / "config.json").unlink()
    assert run(["sample", "the", "-m", "m"]) == 1
    assert "config.json is missing" in capsys.readouterr().err
