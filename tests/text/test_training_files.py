"""DATA that is not what it seems: named by its first bytes, refused, left out, or told."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers_cli import has_plugin, installed, refusal

from seqgen import hooks, store
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.text.file_kinds import extraction_advice, file_kinds
from seqgen.training.train import train

COUNT = ("--model", "ngram", "--order", "2", "--val", "none", "--name", "m", "--overwrite")
TEXT = "the cat sat on the mat\na dog ran, it was fun\n" * 20
ROWS = [{"id": str(number), "text": f'he said "so", {number}\nand left'} for number in range(9)]


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "application/epub+zip" if name == "mimetype" else TEXT)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        about = tarfile.TarInfo("a.txt")
        about.size = len(TEXT)
        archive.addfile(about, io.BytesIO(TEXT.encode()))
    return file.getvalue()


def arrow(kind: str) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    table, file = pyarrow.table({"text": ["a b"] * 9}), io.BytesIO()
    if kind == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, file)
        return file.getvalue()
    with getattr(pyarrow.ipc, kind)(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def zstandard() -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(TEXT.encode())


BYTES = ("--tokenizer", "byte", "--pieces")
PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"
CONTENTS = {
    "a zip archive": lambda: zipped("a.txt"),
    "a Word document": lambda: zipped("[Content_Types].xml", "word/document.xml"),
    "an e-book (EPUB)": lambda: zipped("mimetype", "OEBPS/1.xhtml"),
    "a tar archive": tarred,
    "an RTF document": lambda: rb"{\rtf1 " + TEXT.encode() + b"}",
    "a PDF": lambda: PDF,  # all of it is ASCII
    "compressed with bzip2": lambda: bz2.compress(TEXT.encode()),
    "compressed with gzip": lambda: gzip.compress(TEXT.encode()),
    "compressed with xz": lambda: lzma.compress(TEXT.encode()),
    "compressed with Zstandard": zstandard,
    "Arrow data": lambda: arrow("new_stream"),
    "Arrow data ": lambda: arrow("new_file"),
    "parquet": lambda: arrow("parquet"),
}
# Each of them says what to do next.
REMEDIES = r"convert it|unpack it|extract its|decompress it|JSON Lines|--field NAME"


def read_text() -> str:
    """Return the text that the model was trained on."""
    return "".join(p.read_text() for p in store.text_of(store.find("m").record["data"]))


@pytest.mark.parametrize("kind", CONTENTS)
def test_what_is_no_text_is_named_by_its_first_bytes(kind, tmp_path, capsys, stdin):
    content = CONTENTS[kind]()
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "book.txt"
    path.write_bytes(content)
    for given in (path, tmp_path / "d"):
        said = refusal(capsys, "train", given, *COUNT)
        assert f"{path} is {kind.strip()}" in said
        assert re.search(REMEDIES, said) and "pipe" not in said, said
    # Commands that read any text name it too, unless every byte of it is a character.
    if kind not in ("a PDF", "an RTF document", "a tar archive"):
        assert f"book.txt is {kind.strip()}" in refusal(capsys, "tokenize", path, *BYTES)
        stdin(content)
        assert f"standard input is {kind.strip()}" in refusal(capsys, "train", "-", *COUNT)


@pytest.mark.parametrize("name", ["book.txt", "book.docx", "book", "a.b.txt", ".txt", ".csv"])
@pytest.mark.parametrize("beside", [(), ("book.txt", "a.txt", "book-text.txt"), ("book.jsonl",)])
def test_a_remedy_replaces_no_file(name, beside, tmp_path):
    for each in (*beside, name):
        (tmp_path / each).touch()
    converted = [kind for kind in file_kinds() if "{stem}" in kind.remedy]
    for kind in converted:
        said = extraction_advice(kind, tmp_path / name, b"content")
        source, out = re.findall(rf"{re.escape(str(tmp_path))}/[^\s;]+", said)
        assert Path(source) == tmp_path / name and not Path(out).exists(), said
    assert len(converted) > 3


@pytest.mark.parametrize(
    "start", ["BZh is a word", "PK\x03 is", "%PD", "GIF", "ustar", "<p>", "{", '["', '{"a" b']
)
def test_a_text_that_begins_in_a_like_way_is_a_text(start, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(start + TEXT)
    assert run(["train", str(path), *COUNT, "-q"]) == 0
    assert read_text() == start + TEXT


def records(folder: Path, ending: str) -> Path:
    """Write the rows as JSON Lines, or as CSV with quotes and newlines inside of texts."""
    path = folder / f"my texts{ending}"
    file = io.StringIO()
    if ".csv" in ending:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(ROWS)
    else:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)
    content = file.getvalue().encode()
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    return path


COMMANDS = installed(
    [
        ("train", *COUNT),
        ("find-lr", "--model", "rnn"),
        ("tune", "--trials", "1"),
        ("sweep", "--models", "rnn", "--parameters", "1000", "--steps", "1"),
        ("tokenize", "--train", "char", "--out", "tokenizer"),
    ]
)


@pytest.mark.fast_for("train-*", "tokenize-*", "sweep-*", "find-lr-*", "tune-.jsonl", rest="slow")
@pytest.mark.parametrize("ending", [".jsonl", ".json", ".ndjson", ".jsonl.gz", ".csv"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_records_are_not_trained_on_with_their_keys(command, ending, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = records(tmp_path, ending)
    said = refusal(capsys, command[0], path, *command[1:])
    assert "--field NAME" in said and "--as-text" in said and "(id, text)" in said, said
    converted = ending == ".csv" and not has_plugin("tables")
    assert (path.name in said) and ("convert it first" in said) == converted


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv"])
def test_as_text_trains_on_the_file_as_it_is(ending, tmp_path, capsys):
    path = records(tmp_path, ending)
    assert run(["train", str(path), "--as-text", *COUNT, "-q"]) == 0
    assert read_text() == path.read_text()
    with pytest.raises(UsageError, match="--as-text"):
        train([path], architecture="ngram", name="n")
    train([path], architecture="ngram", name="n", settings={"as_text": True, "val": "none"})
    out = str(tmp_path / "t")
    assert run(["tokenize", str(path), "--train", "char", "--as-text", "--out", out, "-q"]) == 0
    assert "--field" in refusal(capsys, "train", path, "--as-text", "--field", "text", *COUNT)
    assert "belongs to --train" in refusal(capsys, "tokenize", path, "--as-text", "--stats")


def test_the_command_that_converts_a_table_keeps_its_texts(tmp_path, capsys, monkeypatch):
    by_name = hooks.by_name
    others = lambda field: {} if field == "record_readers" else by_name(field)  # noqa: E731
    monkeypatch.setattr(hooks, "by_name", others)
    path = records(tmp_path, ".csv")
    said = refusal(capsys, "train", path, *COUNT)
    subprocess.run(re.search("python3 .*?jsonl'?", said).group(), shell=True, check=True)
    assert run(["train", str(path.with_suffix(".jsonl")), "--field", "text", *COUNT, "-q"]) == 0
    assert read_text() == "".join(f"{row['text']}\n" for row in ROWS)


def test_records_are_left_out_of_folders_and_that_is_said(tmp_path, capsys):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT)
    left_out = [records(folder, ending) for ending in (".json", ".csv")]
    (folder / "b.png").write_bytes(b"\x89PNG\r\n")
    for data in (str(folder), f"{folder}/*"):
        assert run(["train", data, *COUNT]) == 0
        said = capsys.readouterr().err
        assert f"2 files of {data} left out: {left_out[1]}, {left_out[0]} (" in said
        assert f"1 file of {data} left out: not text ({folder / 'b.png'})" in said
        assert read_text() == TEXT
    assert run(["train", str(folder), "--as-text", *COUNT]) == 0
    assert read_text() == "".join([TEXT, *(path.read_text() for path in sorted(left_out))])
    (folder / "a.txt").unlink()
    assert "my texts.json is a file of records" in refusal(capsys, "train", folder, *COUNT)


@pytest.mark.parametrize("beside", [(), ("README.md", "LICENSE")])
def test_a_folder_that_datasets_saved_is_not_trained_on_by_its_metadata(beside, tmp_path, capsys):
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "data-00000-of-00001.arrow").write_bytes(arrow("new_stream"))
    for name in ("dataset_info.json", "state.json"):
        (folder / name).write_text(json.dumps({"features": {"text": "string"}}, indent=2))
    for name in beside:
        (folder / name).write_text("# About this data\n")
    said = refusal(capsys, "train", folder, *COUNT)
    advice = "--field NAME for the column" if has_plugin("tables") else "load_from_disk"
    assert "saved has no text: " in said and advice in said
    assert all(name in said for name in ("dataset_info.json", "state.json", *beside))
    (folder / "data-00000-of-00001.arrow").write_bytes(b"\x89PNG\r\n")
    for name in ("dataset_info.json", "state.json"):
        (folder / name).unlink()
    if beside:  # a README beside pictures is a text
        assert run(["train", str(folder), *COUNT, "-q"]) == 0
    (folder / "more.txt").write_text(TEXT)
    assert run(["train", str(folder), *COUNT, "-q"]) == 0


@pytest.mark.parametrize(
    ("name", "start", "what"),
    [
        ("page", "<html>", "HTML: tags are"),
        ("a.txt", "\n<!DOCTYPE HTML>", "HTML: tags are"),
        ("b", "<HTML lang=x>", "HTML: tags are"),
        ("a.xml", "<p>", "XML: tags are"),
        ("a.txt", '<?xml version="1.0"?>', "XML: tags are"),
        ("a.txt", '{"text": "a"}\n', "JSON: braces and keys are"),
        ("b", '[\n  {"text": "a"}]\n', "JSON: braces and keys are"),
        ("a.ipynb", '{\n "cells": []}\n', "JSON: braces and keys are"),
    ],
)
def test_markup_is_trained_on_with_a_notice(name, start, what, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(start + TEXT)
    assert run(["train", str(path), *COUNT]) == 0
    assert f"{path} is {what} trained on too" in capsys.readouterr().err
    assert run(["train", str(path), "--as-text", *COUNT]) == 0
    assert " trained on too" not in capsys.readouterr().err


def test_each_kind_of_markup_in_a_folder_is_told(tmp_path, capsys):
    for name, start in (("a", "<html>"), ("b.txt", "<!doctype html>"), ("c.xml", "")):
        (tmp_path / name).write_text(start + TEXT)
    assert run(["train", str(tmp_path), *COUNT]) == 0
    said = capsys.readouterr().err
    assert f"{tmp_path / 'a'} and 1 more are HTML" in said and "c.xml is XML" in said


@pytest.mark.parametrize("start", [b"SQLite format 3\0", b"a\0b", bytes(90)])
def test_nul_characters_are_told(start, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(start + TEXT.encode())
    for more, told in (((), True), (("--as-text",), False)):
        assert run(["train", str(path), *COUNT, *more]) == 0
        assert (f"{path} contains NUL characters" in capsys.readouterr().err) == told
    for raw in (start + b"\xff", (start.decode() + TEXT + "\xff").encode("utf-16-le")):
        path.write_bytes(raw)
        assert "is not UTF-8 text" in refusal(capsys, "train", path, *COUNT)  # that alone


@pytest.mark.parametrize("command", installed(["train", "tokenize", "data", "novelty"]))
def test_a_url_is_named_as_such(command, capsys):
    more = ("--tokenizer", "byte") if command == "tokenize" else ()
    for url in ("https://www.gutenberg.org/a.txt?b=*", "s3://bucket/a.txt"):
        said = refusal(capsys, command, url, *more)
        assert f"{url} is a URL" in said and "download it" in said


def test_records_by_a_pipe_are_known_by_their_first_line(tmp_path, capsys, stdin):
    content = records(tmp_path, ".jsonl").read_bytes()
    stdin(content)
    said = refusal(capsys, "train", "-", *COUNT)
    assert "stdin.jsonl is a file of records (JSON)" in said and "(id, text)" in said
    stdin(content)
    assert run(["train", "-", "--as-text", *COUNT, "-q"]) == 0
    assert read_text() == content.decode()
    stdin(b"{ this is no JSON }\n" + TEXT.encode())
    assert run(["train", "-", *COUNT, "-q"]) == 0


def test_a_run_on_a_file_as_it_is_resumes(tmp_path):
    path = records(tmp_path, ".jsonl")
    tiny = ("--model", "rnn", "--steps", "4", "--hidden-size", "4", "--name", "r", "-q")
    assert run(["train", str(path), "--as-text", *tiny, "--stop-after", "2"]) == 0
    moved = path.rename(tmp_path / "moved.jsonl")
    assert run(["train", "--resume", "r", "--data", str(moved), "-q"]) == 0


@pytest.mark.parametrize("field", [(), ("--field", "text")])
def test_a_folder_can_be_held_out(field, tmp_path, capsys):
    """With what is left out of it; of records, the texts of all its files."""
    folder = tmp_path / "held"
    folder.mkdir()
    for name in ("a", "b"):
        records(folder, ".jsonl").rename(folder / f"{name}.jsonl")
        (folder / f"{name}.txt").write_text(TEXT)
    data = folder / "a.jsonl" if field else folder / "a.txt"
    how = ("train", data, "--val", folder, "--model", "ngram", "--name", "v", *field)
    assert run([*map(str, how)]) == 0, capsys.readouterr().err
    assert "left out" in capsys.readouterr().err
    text = "".join(f"{row['text']}\n" for row in ROWS) if field else TEXT
    assert store.find("v").validation_text.read_text() == 2 * text


def test_records_are_not_held_out_with_their_keys(tmp_path, capsys):
    (tmp_path / "a.txt").write_text(TEXT)
    path = records(tmp_path, ".jsonl")
    how = ("train", tmp_path / "a.txt", "--model", "ngram", "--val", path)
    assert "--as-text" in refusal(capsys, *how)


def test_a_run_on_a_folder_as_it_is_resumes_where_the_folder_is_now(tmp_path, capsys):
    """Otherwise the page would be read as its text, and the records be left out."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "page.html").write_text("<p>the cat sat on the mat</p>\n" * 20)
    (folder / "b.jsonl").write_text('{"text": "the dog sat on the log"}\n' * 20)
    small = ["--steps", "4", "--hidden-size", "4", "--layers", "1", "--model", "gru", "-q"]
    first = ["train", str(folder), "--as-text", "--name", "r", "--stop-after", "2", *small]
    assert run(first) == 0
    moved = folder.rename(tmp_path / "moved")
    assert run(["train", "--resume", "r", "--data", str(moved), "-q"]) == 0
