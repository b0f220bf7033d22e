"""`models remove` deletes models, and nothing that seqgen did not write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from places import STORED

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.store import StoredModel
from seqgen.store.ownership import foreign_paths

MODELS = STORED / "models"
NAME = "lstm-char"


@pytest.fixture
def model(tmp_path) -> Path:
    """A model of version 0.1.0, in a folder of the user's."""
    (tmp_path / "mine").mkdir()
    return Path(shutil.copytree(MODELS / NAME, tmp_path / "mine" / "m"))


@pytest.fixture
def remove(capfd):
    def command(*names):
        capfd.readouterr()
        code = run(["models", "remove", "--yes", *map(str, names)])
        return code, capfd.readouterr().err

    return command


def files(folder):
    return {path for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("path", sorted(MODELS.iterdir()), ids=lambda path: path.name)
def test_all_that_seqgen_writes_is_known(path):
    assert foreign_paths(path) == []


def test_a_model_outside_the_models_folder_is_removed(model, remove):
    (model / ".config.json.ab12_xyz.tmp").write_text("{")  # of a killed run
    assert remove(model) == (0, f"removed {model}\n")
    assert list(model.parent.iterdir()) == []


@pytest.mark.parametrize("content", ["{}", '{"format": 1}', '{"architectures": ["GPT2"]}', "[]"])
@pytest.mark.parametrize("more", [(), (".env",), (".git/HEAD",), ("model.safetensors",)])
def test_a_strangers_folder_stays_as_it_is(content, more, tmp_path, remove):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "config.json").write_text(content)
    for part in more:
        (folder / part).parent.mkdir(exist_ok=True)
        (folder / part).write_text("x")
    before = files(folder)
    code, said = remove(folder)
    assert (code, said.count("\n")) == (1, 1)
    assert "does not look like a model; nothing was removed" in said
    assert files(folder) == before


@pytest.mark.parametrize("content", ["{}", "{broken", '{"architectures": ["GPT2"]}'])
@pytest.mark.parametrize("more", [(), ("model.safetensors",), ("manifest.json",)])
def test_a_hand_made_folder_among_the_models_is_not_one(content, more, remove):
    folder = store.models_folder() / "mine"
    folder.mkdir(parents=True)
    for part in ("config.json", *more):
        (folder / part).write_text(content)
    before = files(folder)
    code, said = remove("mine")
    assert (code, said.count("\n")) == (1, 1)
    assert "does not look like a model; nothing was removed" in said
    assert files(folder) == before


@pytest.mark.parametrize("part", ["config.json", "manifest.json"])
def test_a_damaged_model_is_still_removed(part, remove):
    """What seqgen wrote is known by the manifest, or by the configuration."""
    place = store.models_folder() / "m"
    shutil.copytree(MODELS / NAME, place)
    (place / part).write_text("{broken")
    assert remove("m") == (0, f"removed {place}\n")


@pytest.mark.parametrize(
    "stranger",
    [
        *("notes.txt", ".git/HEAD", ".env", "tokenizer/mine", "checkpoints/step-1/x"),
        *("old/config.json", ".x.tmp", "checkpoints/.y.tmp", "..tmp"),
    ],
)
def test_what_else_is_in_a_models_folder_is_named_and_kept(stranger, model, remove):
    (model / stranger).parent.mkdir(exist_ok=True)
    (model / stranger).write_text("mine")
    before = files(model)
    code, said = remove(model)
    assert (code, said.count("\n")) == (1, 1)
    assert stranger.partition("/")[0] in said and "nothing was removed" in said
    assert files(model) == before


def test_all_are_looked_at_before_any_is_removed(model, remove, tmp_path):
    other = tmp_path / "photos"
    other.mkdir()
    assert remove(model, other)[0] == 1
    assert model.exists()


def test_a_folder_within_a_model_that_is_a_link_is_not_followed(model, remove, tmp_path):
    elsewhere = (model / "tokenizer").rename(tmp_path / "elsewhere")
    (model / "tokenizer").symlink_to(elsewhere)
    assert remove(model)[0] == 1
    assert files(elsewhere)


@pytest.mark.parametrize("inside", ["", "tokenizer"])
@pytest.mark.parametrize("name", ["./", "{model}", "../m", "./../m/."])
def test_the_working_directory_stays(inside, name, model, remove, monkeypatch):
    monkeypatch.chdir(model / inside)
    if inside:
        name = "{model}"
    before = files(model)
    code, said = remove(name.format(model=model))
    assert code == 1 and "working directory; nothing was removed" in said
    assert files(model) == before


@pytest.mark.parametrize("name", ["./m", "m/", "./x/../m", "mine/../m/."])
def test_a_path_may_be_written_in_many_ways(name, model, remove, monkeypatch):
    monkeypatch.chdir(model.parent)
    (model.parent / "x").mkdir()
    (model.parent / "mine").mkdir()
    assert remove(name) == (0, f"removed {model}\n")
    assert not model.exists()


@pytest.mark.parametrize("named", ["path", "name"])
def test_a_link_is_resolved_and_goes_with_its_model(named, model, remove, tmp_path):
    if named == "path":
        link = tmp_path / "link"
    else:
        store.models_folder().mkdir(parents=True)
        link = store.models_folder() / "link"
    link.symlink_to(model)
    assert remove(link if named == "path" else "link") == (0, f"removed {model}\n")
    assert not model.exists() and not os.path.lexists(link)


def test_a_removal_that_fails_half_way_leaves_no_half_model(monkeypatch):
    """The model is out of sight before its first file goes, and its name is free."""
    place = store.models_folder() / "m"
    shutil.copytree(MODELS / NAME, place)
    unlink, left = os.unlink, [3]

    def failing(path, *args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "Input/output error")
        unlink(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing)
        with pytest.raises(SeqgenError, match="Input/output error"):
            store.remove(StoredModel(place))
    assert not place.exists() and store.list_models() == []
    store.check_free("m", overwrite=False)
    assert store.clean()
    assert list(store.models_folder().iterdir()) == []
