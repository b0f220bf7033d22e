"""What seqgen did not make stays as it is, whatever it is called and whichever command is run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import typer
from helpers_io import state
from places import STORED

from seqgen import store
from seqgen.cli import make_app, run
from seqgen.errors import SeqgenError
from seqgen.store import StoredModel
from seqgen.training.train import train

MODEL = STORED / "models" / "lstm-char"
TEXT = "so it goes on and on, and it ends so.\n" * 12
TINY = ["--hidden-size", "4", "--layers", "1", "--seq-len", "6", "--steps", "2", "--quiet"]
# How a name of the user's may look like one of ours; `{}` says what kind of thing has it.
NAMES = (
    *("{}", "{}.tmp", "{}-ngram", "{}-mixture", "{}.safetensors", ".{}", ".{}.json.ab12_x.tmp"),
    *(
        ".{}.new",
        ".{}.old",
        ".{}.gone",
        ".{}.0123abcd.new",
        ".{}.0123abcd.old",
        ".{}.0123abcd.gone",
    ),
)
# The files of a folder that looks like a model's and is none.
LIKE_OURS = {
    "config.json": '{"architectures": ["LlamaForCausalLM"]}',
    "manifest.json": '{"files": {"a.js": ["x"]}}',
    "model.safetensors": "x",
    "lock": "mine",
    "metrics.jsonl": '{"step": 99}\n',
    "samples.jsonl": '{"step": 99}\n',
    ".config.json.ab12_x.tmp": "{",
    "tokenizer/tokenizer.json": "{}",
    "checkpoints/last.safetensors": "x",
}


def fill(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def place(path: Path, kind: str, outside: Path) -> None:
    """Put a thing of some kind at a path."""
    if kind == "file":
        path.write_text("mine")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "empty":
        path.mkdir()
    elif kind == "project":
        fill(path, {"notes.txt": "mine", ".git/HEAD": "x"})
    elif kind == "alike":
        fill(path, LIKE_OURS)
    else:
        path.symlink_to(outside / {"to-file": "lock", "to-folder": ".", "to-none": "gone"}[kind])


KINDS = ("file", "pipe", "empty", "project", "alike", "to-file", "to-folder", "to-none")


@pytest.fixture
def models(tmp_path) -> Path:
    """The models' folder with a model, and 104 things that are none."""
    folder = store.models_folder()
    folder.mkdir(parents=True)
    fill(tmp_path / "outside", LIKE_OURS)
    for name in NAMES:
        for kind in KINDS:
            place(folder / name.format(kind), kind, tmp_path / "outside")
    shutil.copytree(MODEL, folder / "m")
    return folder


def foreign_names() -> list[str]:
    return [name.format(kind) for name in NAMES for kind in KINDS]


def foreign(models: Path, outside: Path) -> dict[str, tuple]:
    every = state(models, outside)
    mine = [models / name for name in foreign_names()]
    tops = {str(path) for path in mine}
    return {
        path: seen
        for path, seen in every.items()
        if path in tops
        or path.startswith(str(outside))
        or any(str(parent) in tops for parent in Path(path).parents)
    }


def leaf_commands() -> set[str]:
    def walk(group, before=()):
        for name, command in getattr(group, "commands", {}).items():
            yield (*before, name)
            yield from walk(command, (*before, name))

    return {" ".join(path) for path in walk(typer.main.get_command(make_app()))}


def test_there_are_a_hundred():
    assert len(set(foreign_names())) >= 100


@pytest.mark.slow
def test_every_command_leaves_them_as_they_are(models, tmp_path, monkeypatch, capfd):
    """Some of these commands are refused, which is no matter here."""
    monkeypatch.chdir(tmp_path)
    text, arpa = tmp_path / "text.txt", tmp_path / "n.arpa"
    text.write_text(TEXT)
    file = str(text)
    before = foreign(models, tmp_path / "outside")
    assert len(before) > 104
    commands = [
        ["models"],
        ["train", file, "--name", "n", "--model", "ngram", "--order", "2", "--quiet"],
        ["train", file, "--name", "net", *TINY, "--stop-after", "1"],
        ["train", "--resume", "net", "--quiet"],
        ["train", file, "--name", "net", "--overwrite", *TINY],
        ["train", file, *TINY, "--with-ngram", "2"],
        ["train", file, "--name", "net2", *TINY],
        ["export", "n", "--out", str(arpa)],
        ["import", str(arpa), "--name", "i"],
        ["import", str(arpa), "--name", "i", "--overwrite"],
        ["mix", "net", "net2", "--name", "both", "--weights", "0.5,0.5", "--copy"],
        ["mix", "net", "net2", "--name", "both", "--weights", "0.5,0.5", "--overwrite"],
        ["models", "rename", "i", "j"],
        ["models", "list"],
        ["models", "show", "m"],
        ["models", "path"],
        ["models", "remove", "j", "--yes"],
        ["models", "cache"],
        ["models", "cache", "--clear"],
        ["sample", "--max-tokens", "3"],
        ["sample", "so it", "-m", "net:bytes", "--max-tokens", "3"],
        ["sample", "so it", "-m", "net+net2:bytes", "--max-tokens", "3", "--heal"],
        ["beam-search", "--max-tokens", "3"],
        ["perplexity", file, "-m", "net"],
        ["perplexity", file, "-m", "net:bytes=all", "--covers", "3"],
        ["eval", "-m", "net", "--passages", "2"],
        ["compare", "net", "net2"],
        ["bleu", file, file],
        ["predict", file, "-m", "net"],
        ["vectors", "-m", "net"],
        ["diagnose", file, "-m", "net", "--distance", "3"],
        ["inspect", "so it", "-m", "net"],
        ["report", "-m", "net", "--out", str(tmp_path / "page.html")],
        ["tokenize", file, "-m", "net"],
        ["fill", "so [MASK]", "-m", "net"],
        ["restore", file, "-m", "net"],
        ["novelty", file, "-m", "net"],
        ["compress", file, "-m", "net"],
        ["replay", file],
        ["data", file],
        ["decompress", file, "-m", "net"],
        ["find-lr", file, *TINY],
        ["sweep", file, "--models", "ngram", "--parameters", "100"],
        ["tune", "--list"],
        ["bench", "plan"],
        ["serve", "-m", "no-such-model"],
        ["course", "1.1", "--no-run"],
        ["plugins"],
        ["help", "files"],
        ["chat", "-m", "net", "--max-tokens", "3"],
        ["push", "net", "hf:someone/model"],
    ]
    tried = {" ".join(command) for command in commands}
    for name in leaf_commands():
        assert any(line.startswith(name) for line in tried), name
    for command in commands:
        run(command)
        assert foreign(models, tmp_path / "outside") == before, command
    assert len(store.list_models()) > 4


@pytest.mark.fast_for("pipe", "alike", "to-none", rest="slow")
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_refused_by_name_and_by_path(kind, models, tmp_path, capfd):
    """Also with --overwrite, and before anything is read."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    before = state(models, tmp_path / "outside")
    for name in (pattern.format(kind) for pattern in NAMES):
        for command in (
            ["train", str(text), *TINY, "--name", name],
            ["train", str(text), *TINY, "--name", name, "--overwrite"],
            ["import", str(text), "--name", name, "--overwrite"],
            ["mix", "m", "m", "--name", name, "--overwrite"],
            ["models", "rename", "m", name],
            *(
                command
                for shown in (name, str(models / name), f"{models / name}/.")
                for command in (
                    ["train", "--resume", shown],
                    ["models", "rename", shown, "free"],
                    ["models", "remove", shown, "--yes"],
                )
            ),
        ):
            capfd.readouterr()
            assert run(command) in (1, 2), command
            assert "Traceback" not in capfd.readouterr().err
    assert state(models, tmp_path / "outside") == before


@pytest.mark.parametrize("path", ["", "..", "../../outside"])
def test_other_folders_are_not_renamed(path, models, tmp_path, monkeypatch, capfd):
    """Neither the store itself nor the folder that one is in."""
    before = state(models, tmp_path / "outside")
    for given in (str(models / path), "./"):
        monkeypatch.chdir(models / path)
        assert run(["models", "rename", given, "other"]) == 1
        assert "does not look like a model; nothing was renamed" in capfd.readouterr().err
    assert state(models, tmp_path / "outside") == before


def test_a_link_to_a_model_is_not_renamed_away(models, tmp_path, capfd):
    (models / "link").symlink_to(models / "m")
    before = state(models)
    assert run(["models", "rename", "link", "other"]) == 1
    assert "is a link to" in capfd.readouterr().err
    assert state(models) == before


# ---- links in a model's folder ----

FILES, FOLDERS = ("metrics.jsonl", "samples.jsonl", "lock"), ("checkpoints", "tensorboard")


@pytest.mark.parametrize(
    ("part", "target"),
    [
        *((part, target) for part in FILES for target in ("mine", "missing")),
        *((part, "folder") for part in FOLDERS),
    ],
)
def test_resuming_writes_through_no_link(part, target, tmp_path, capfd):
    if part == "tensorboard":
        pytest.importorskip("tensorboard")
    text, outside = tmp_path / "text.txt", tmp_path / "outside"
    text.write_text(TEXT)
    settings = {"hidden_size": 4, "num_layers": 1, "seq_len": 6, "steps": 4, "seed": 1}
    train([text], name="m", settings=settings, stop_after=2)
    own = store.models_folder() / "m" / part
    fill(outside, {"mine": '{"step": 99}\n{"step', "folder/step-000000001.safetensors": "mine"})
    if own.is_dir():  # a checkpoint from which the run could go on
        shutil.copytree(own, outside / "folder", dirs_exist_ok=True)
        shutil.rmtree(own)
    own.unlink(missing_ok=True)
    own.symlink_to(outside / target)
    before = state(outside)
    flags = ["--tensorboard"] if part == "tensorboard" else []
    assert run(["train", "--resume", "m", "--quiet", *flags]) == 1
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and part in said
    assert "is a link, which is not followed" in said
    assert state(outside) == before


@pytest.mark.parametrize("part", ["metrics.jsonl", "lock"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(part, tmp_path, capfd):
    shutil.copytree(MODEL, store.models_folder() / "m")
    path = store.models_folder() / "m" / part
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    model = StoredModel(path.parent)
    opened = model.locked() if part == "lock" else model.log(part)
    with pytest.raises(SeqgenError, match=f"{part} cannot be written"), opened:
        pass
    assert not model.is_locked


def test_a_lock_is_taken_without_changing_it():
    shutil.copytree(MODEL, store.models_folder() / "m")
    lock = store.models_folder() / "m" / "lock"
    lock.write_text("kept")
    with StoredModel(lock.parent).locked():
        assert StoredModel(lock.parent).is_locked
    assert lock.read_text() == "kept"
