"""What a command writes replaces nothing but what seqgen has written, whichever option names it."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from helpers_cli import has_plugin, installed, needs, refusal
from helpers_io import state
from places import STORED

from seqgen.cli import all_commands, make_app, run
from seqgen.registry import load_object
from seqgen.text.shards import write_shards
from seqgen.text.tokenizers import load_tokenizer

NET = (
    "--model",
    "rnn",
    "--hidden-size",
    "4",
    "--layers",
    "1",
    "--seq-len",
    "6",
    "--batch-size",
    "2",
)
# Every option that writes, and a call with it: whether it replaces what carries seqgen's mark, or
# needs --overwrite for what is of its kind; what it writes; the call, without the option.
TABLE = installed(
    {
        ("beam-search", "--plot"): ("marked", "a.svg", "one -m pairs --max-tokens 2"),
        ("diagnose", "--plot"): ("marked", "a.png", "t.txt -m net --distance 3"),
        ("find-lr", "--plot"): ("marked", "a.svg", f"t.txt {' '.join(NET)}"),
        ("models show", "--plot"): ("marked", "a.PNG", "fresh"),
        ("models compare-runs", "--plot"): ("marked", "a.PNG", "fresh net"),
        ("perplexity", "--plot"): ("marked", "a.png", "p.tsv -m pairs"),
        ("sample", "--plot"): ("marked", "a.svg", "one -m pairs --max-tokens 2"),
        ("sweep", "--plot"): ("marked", "a.svg", "t.txt --models rnn --parameters 2000 --steps 1"),
        ("train", "--plot"): ("marked", "a.png", f"t.txt --diagnose --steps 2 {' '.join(NET)}"),
        ("vectors", "--plot"): ("marked", "a.svg", "-m net"),
        ("inspect", "--html"): ("marked", "a.html", "t.txt -m net --max-tokens 3"),
        ("report", "--out"): ("marked", "a.html", "-m net"),
        ("vectors", "--out"): ("overwrite", "a.txt", "-m net"),
        ("tokenize", "--out"): ("overwrite", "a.tok", "t.txt -m net"),
        ("export", "--out"): ("overwrite", "a.arpa", "grams"),
    }
)
if not has_plugin("inspect"):
    del TABLE["train", "--plot"]
# What others may have written, as far as an ending tells.
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(17) + b"\0\0\0\x11tEXtSoftware\0Matplotlib"
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><!-- seqgen 0.1 --></svg>\n'
FOREIGN = {".png": PNG, ".svg": SVG, ".html": b"<!DOCTYPE html><title>seqgen</title>\n"}


def functions() -> Iterator[tuple[str, object]]:
    """Yield every command, and the function that takes its options."""
    for name, row in sorted(all_commands().items()):
        command = load_object(row.target)
        if isinstance(command, typer.Typer):
            for info in command.registered_commands:
                yield f"{name} {info.name or info.callback.__name__}", info.callback
        else:
            yield name, command


def flags() -> Iterator[tuple[str, str, object]]:
    for command, function in functions():
        for group in function.groups:
            for name, field, _ in group.flags():
                flag = field.metadata["flag"]
                yield command, (flag.names or (f"--{name.replace('_', '-')}",))[0], flag


# Options whose value names a file, which is read: those of the core, and of plugins.
READ = {
    *("--config", "--val", "--val-source", "--val-target", "--tokenizer", "--source-tokenizer"),
    *("--data", "--source", "--source-vectors", "--target", "--prompt-file", "--against"),
    "--fit",
}
READ_BY_PLUGINS = {
    "chat": {"--template"},
    "minimal_pairs": {"--pairs"},
    "patterns": {"--grammar", "--json-schema", "--terms"},
    "report": {"--file"},
    "vectors": {"--file", "--similarity"},
}


def test_every_option_that_writes_is_in_the_table():
    """Options that name files either write or read; all of the first kind are tried here."""
    assert {(command, name) for command, name, flag in flags() if flag.writes} == {*TABLE}
    named = [each for each in flags() if each[2].reads in ("path", "file")]
    added = (flags for plugin, flags in READ_BY_PLUGINS.items() if has_plugin(plugin))
    read = {n for _, n, flag in named if not (flag.writes or flag.positional)}
    assert read == READ.union(*added)
    assert {n for _, n, flag in named if flag.positional and flag.writes} == set()


def test_every_command_is_looked_at():
    def walk(group, before=()):
        for name, command in getattr(group, "commands", {}).items():
            yield " ".join((*before, name))
            yield from walk(command, (*before, name))

    groups = {"models", "bench"}
    leaves = {*walk(typer.main.get_command(make_app()))} - groups
    assert leaves == {command for command, _ in functions()}


@pytest.fixture
def place(home, tmp_path, monkeypatch):
    """A folder with texts, and a home with a network, an n-gram model and a translator."""
    shutil.copy(STORED / "tiny.txt", tmp_path / "t.txt")
    (tmp_path / "p.tsv").write_text("one\to\n")
    stored = {"net": "models/lstm-char", "grams": "models/ngram-char"}
    stored |= {"pairs": "kinds/models/seq2seq"}
    for name, kind in stored.items():
        shutil.copytree(STORED / kind, home / "models" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(command: str, flag: str, out: str | Path, *more: str) -> list[str]:
    return [*command.split(), *TABLE[command, flag][2].split(), flag, str(out), "--quiet", *more]


def seen(path: Path) -> tuple:
    about = path.lstat()
    return about.st_ino, about.st_mtime_ns, about.st_mode, path.read_bytes()


@pytest.mark.parametrize(("command", "flag"), TABLE, ids=map(" ".join, TABLE))
def test_what_others_have_written_stays(place, capsys, command, flag):
    """Also with --overwrite (which for train means the model), and through a link."""
    kind, name, _ = TABLE[command, flag]
    if flag == "--plot":
        pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")
    if command in ("models show", "models compare-runs"):
        assert run(["train", "t.txt", *NET, "--steps", "2", "--name", "fresh", "-q"]) == 0
    ending = Path(name).suffix.lower()
    mine, link = place / name, place / f"link{Path(name).suffix}"
    link.symlink_to(mine)
    for content in {FOREIGN.get(ending, b"mine"), b"mine\n", SVG, PNG}:
        mine.write_bytes(content)
        before = seen(mine)
        flagged = kind == "overwrite" or command == "train"
        for more in ([], ["--overwrite"])[: 1 + flagged]:
            for out in (mine, link):
                assert f"give another {flag}" in refusal(capsys, *call(command, flag, out, *more))
                assert seen(mine) == before and link.is_symlink()


@pytest.mark.fast_for("vectors*", "tokenize*", "inspect*", "export*", "models show*", rest="slow")
@pytest.mark.parametrize(("command", "flag"), TABLE, ids=map(" ".join, TABLE))
def test_what_seqgen_has_written_is_replaced_and_keeps_its_mode(place, capsys, command, flag):
    kind, name, _ = TABLE[command, flag]
    if flag == "--plot":
        pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")
    if command in ("models show", "models compare-runs"):
        assert run(["train", "t.txt", *NET, "--steps", "2", "--name", "fresh", "-q"]) == 0
    path = place / name
    assert run(call(command, flag, path)) == 0
    path.chmod(0o600)
    before = seen(path)
    if kind == "overwrite":
        assert "add --overwrite to replace it" in refusal(capsys, *call(command, flag, path))
        assert seen(path) == before
    assert run(call(command, flag, path, *["--overwrite"] * (kind == "overwrite"))) == 0
    assert path.stat().st_ino != before[0] and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(place.glob(".*.tmp")) == []


# ---- folders ----

FOLDERS = {
    "hf": ("export net --format hf", "config.json"),
    "peft": ("export net --format peft", "adapter_config.json"),
    "onnx": ("export net --format onnx", "tokenizer/tokenizer.json"),
    "shards": ("tokenize t.txt -m net --shards 2", "shard-00000.tok"),
    "tokenizer": ("tokenize t.txt --train char", "tokenizer.json"),
}


@pytest.mark.parametrize(
    "kind", [kind for kind, (command, _) in FOLDERS.items() if installed([command])]
)
def test_a_folder_with_files_of_others_stays(place, capsys, kind):
    """Beside or below what looks like an export; also with --overwrite."""
    command, own = FOLDERS[kind]
    mine = {"shards": own, "tokenizer": own}.get(kind, "notes.txt")
    for folder, path in (("a", place / "a" / mine), ("b", (place / "b" / own).with_name(mine))):
        (place / folder / own).parent.mkdir(parents=True)
        (place / folder / own).write_bytes(b"{}")
        path.write_bytes(b"mine")
        before = state(place / folder)
        for more in ([], ["--overwrite"]):
            said = refusal(capsys, *command.split(), "--out", folder, "--quiet", *more)
            assert "give another --out" in said and state(place / folder) == before


def test_of_earlier_shards_only_token_files_are_deleted(place):
    write = ["tokenize", "t.txt", "-m", "net", "-q", "--out", "shards", "--overwrite", "--shards"]
    assert run([*write, "4"]) == 0
    mine = place / "shards" / "shard-00003.tok"
    content = mine.read_bytes()
    mine.write_bytes(b"mine")  # after the command has looked
    tokenizer = load_tokenizer(STORED / "models/lstm-char/tokenizer")
    write_shards(mine.parent, ["ten\n" * 9], 36, 2, tokenizer, "stream")
    assert mine.read_bytes() == b"mine" != content
    assert len(list(mine.parent.iterdir())) == 3


# ---- modes of what is replaced ----


def mode_of(path):
    return path.stat().st_mode & 0o777


@needs("exchange")
def test_an_export_keeps_the_modes_of_the_files_that_it_replaces(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    command = ["export", str(STORED / "kinds" / "models" / "transformer"), "--format", "hf", "-q"]
    assert run([*command, "--out", str(tmp_path / "hf")]) == 0
    written = sorted((tmp_path / "hf").iterdir())
    for path in written:
        path.chmod(0o600)
    assert run([*command, "--out", str(tmp_path / "hf"), "--overwrite"]) == 0
    assert sorted((tmp_path / "hf").iterdir()) == written
    assert {mode_of(path) for path in written} == {0o600}


def test_a_model_keeps_the_modes_of_the_one_that_it_replaces(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text").write_text("ab ba\n" * 50)
    command = ["train", str(tmp_path / "text"), "--model", "ngram", "--name", "n", "-q"]
    assert run(command) == 0
    folder = tmp_path / "home" / "models" / "n"
    files = [folder / "config.json", folder / "model.safetensors", folder / "tokenizer"]
    for path in (*files, folder):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert run([*command, "--overwrite", "--order", "2"]) == 0
    assert [mode_of(path) for path in (*files, folder)] == [0o600, 0o600, 0o700, 0o700]


def test_a_link_to_records_stays_a_link(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    record = {"run": {"command": "help", "arguments": ["files"], "options": {}}}
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "records.jsonl").chmod(0o640)
    (tmp_path / "link.jsonl").symlink_to("records.jsonl")
    run(["replay", str(tmp_path / "link.jsonl"), "--update", "-q"])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert mode_of(tmp_path / "records.jsonl") == 0o640
