"""Texts of records: what comes out is what was written, and what is bad is counted and named."""

from __future__ import annotations

import gzip
import json

import pytest
from examples import examples
from helpers_cli import needs, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import store
from seqgen.cli import run
from seqgen.text.records import Texts

COUNT = ("--model", "ngram", "--order", "2", "--name", "m", "--overwrite", "--val", "none")
TEXTS = ["one two", "zwei\ndrei", "", "fin\u2028 é 😀\n"]


def read_text() -> str:
    """Return the text that the model was trained on."""
    paths = store.text_of(store.find("m").record["data"])
    return "".join(path.read_bytes().decode() for path in paths)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=9), min_size=1), st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_texts_come_out_as_they_were_written(texts, ascii_only):
    rows = [json.dumps({"id": 1, "t": text}, ensure_ascii=ascii_only) + "\n" for text in texts]
    found = list(Texts("x", "t").of_json(rows))
    assert found == [text if text.endswith("\n") else text + "\n" for text in texts]
    lines = list(Texts("x", "t", one_line=True).of_json(rows))
    assert len(lines) == len(texts) and all(line.count("\n") == 1 for line in lines)


def test_bad_records_are_counted_and_named(tmp_path, capsys):
    rows = [json.dumps({"t": text}) for text in TEXTS]
    bad = ["{", "7", '{"t": 3}', '{"u": "x"}', '{"t": "\\ud800"}', "[" * 9999, "", '{"t": null}']
    (tmp_path / "d.jsonl").write_text("\n".join([*rows[:2], *bad, *rows[2:]]) + "\n")
    assert run(["train", str(tmp_path / "d.jsonl"), "--field", "t", *COUNT]) == 0
    said = capsys.readouterr().err
    assert "7 records of" in said and "left out, without a text 't': 3, 4, 5, 6, 7, ..." in said
    assert read_text() == "one two\nzwei\ndrei\n\nfin\u2028 é 😀\n"


def test_labels_and_texts_are_joined_by_tabs(tmp_path, capsys):
    rows = [
        {"stars": 5, "review": {"text": "good\tand\nlong"}},
        {"stars": None, "review": {"text": "no stars"}},
        {"stars": 1.5, "review": {"text": "no label"}},
        {"stars": "1", "review": {}},
        {"stars": "1", "review": {"text": "bad"}, "stars,review.text": 3},
        {"stars": "1", "review": {"text": "bad"}},
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--field", "stars,review.text", *COUNT)
    assert run(["train", str(tmp_path / "d.jsonl"), *options]) == 0
    assert "4 records of" in capsys.readouterr().err
    assert read_text() == "5\tgood and long\n1\tbad\n"


@needs("tables")
def test_columns_are_joined_by_tabs(tmp_path, capsys):
    (tmp_path / "d.csv").write_text('id,stars,text\n7,5,"good, and\nlong"\n8,1,bad\n')
    small = (
        "--model",
        "rnn",
        "--layers",
        "1",
        "--hidden-size",
        "4",
        "--steps",
        "1",
        "--val",
        "none",
    )
    options = ("--labels", "--field", "stars,text", *small, "--name", "m", "-q")
    assert run(["train", str(tmp_path / "d.csv"), *options]) == 0
    assert read_text() == "5\tgood, and long\n1\tbad\n"
    assert run(["sample", "-m", "m", "--label", "5", "--max-tokens", "1", "-q"]) == 0
    assert "6" in refusal(capsys, "sample", "-m", "m", "--label", "6")


def test_a_line_each_of_packed_files_and_folders(tmp_path, capsys):
    (tmp_path / "d").mkdir()
    with gzip.open(tmp_path / "d" / "b.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps({"t": text}) + "\n" for text in TEXTS))
    (tmp_path / "d" / "a.ndjson").write_text('{"t": "first"}\n')
    (tmp_path / "d" / "notes.txt").write_text("no records\n")
    how = ("--field", "t", "--documents", "line", *COUNT, "-q")
    assert run(["train", str(tmp_path / "d"), *how]) == 0
    assert read_text() == "first\none two\nzwei drei\n\nfin\u2028 é 😀\n"


@needs("tables")
@pytest.mark.parametrize("part", [b"text", b"some words"])
def test_parquet_that_is_no_utf8_is_refused_in_a_line(part, tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    path = tmp_path / "d.parquet"
    parquet.write_table(pyarrow.table({"text": ["some words"] * 9}), path, compression="none")
    whole = path.read_bytes()
    assert part in whole
    path.write_bytes(whole.replace(part, b"\xa0" + part[1:]))
    said = refusal(capsys, "train", path, "--field", "text", *COUNT)
    assert "d.parquet cannot be read as parquet: 'utf-8' codec" in said


@needs("tables")
def test_parquet_is_as_json_lines(tmp_path, stdin, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"t": [*TEXTS, None], "n": range(5)})
    parquet.write_table(table, tmp_path / "d.parquet", row_group_size=2)
    texts = Texts("x", "t")
    expected = Texts("x", "t").of_json(json.dumps({"t": t}) + "\n" for t in [*TEXTS, None])
    assert list(texts.of_table(tmp_path / "d.parquet")) == list(expected)
    assert (texts.taken, texts.left_out, texts.first) == (4, 1, [5])
    assert run(["train", str(tmp_path / "d.parquet"), "--field", "t", *COUNT, "-q"]) == 0
    assert "is parquet: give --field NAME" in refusal(
        capsys, "train", tmp_path / "d.parquet", *COUNT
    )
    assert read_text() == "one two\nzwei\ndrei\n\nfin\u2028 é 😀\n"
    said = refusal(capsys, "train", tmp_path / "d.parquet", "--field", "n", *COUNT)
    assert said.endswith("d.parquet is never text; its records have t, n")
    # By a pipe, which --field does not help with.
    stdin((tmp_path / "d.parquet").read_bytes())
    said = refusal(capsys, "train", "-", "--field", "t", *COUNT)
    assert said.endswith(
        "standard input is parquet: give the file itself instead of a pipe, with --field NAME for "
        "the column of the texts"
    )


@needs("tables")
def test_an_empty_column_and_one_that_is_there_twice(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for texts in ([], [None, None]):
        table = pyarrow.table({"t": pyarrow.array(texts, pyarrow.string())})
        parquet.write_table(table, tmp_path / "d.parquet")
        said = refusal(capsys, "train", tmp_path / "d.parquet", "--field", "t", *COUNT)
        assert said.endswith(
            "'t' in " + str(tmp_path / "d.parquet") + " is empty; its records have t"
        )
    columns = [pyarrow.array(texts) for texts in (["one"], ["two"])]
    parquet.write_table(pyarrow.table(columns, names=["t", "t"]), tmp_path / "d.parquet")
    assert run(["train", str(tmp_path / "d.parquet"), "--field", "t", *COUNT]) == 0
    assert "has 2 columns 't', and the last is read" in capsys.readouterr().err
    assert read_text() == "two\n"


def test_what_is_held_out_may_be_records(tmp_path):
    for name, text in (("d", "abab\n" * 9), ("v", "ba")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"t": text}) + "\n")
    how = (*COUNT[:-1], str(tmp_path / "v.jsonl"), "--field", "t", "-q")
    assert run(["train", str(tmp_path / "d.jsonl"), *how]) == 0
    assert store.find("m").validation_text.read_text() == "ba\n"


def test_standard_input(stdin):
    stdin(b'{"t": "from a pipe"}\n')
    assert run(["train", "-", "--field", "t", *COUNT, "-q"]) == 0
    assert read_text() == "from a pipe\n"


@needs("tables")
def test_what_is_refused(tmp_path, capsys):
    (tmp_path / "d.jsonl").write_text('{"text": "a", "id": 1}\n')
    (tmp_path / "d.txt").write_text("a\n")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 and no more")
    said = refusal(capsys, "train", tmp_path / "d.jsonl", "--field", "txt", *COUNT)
    assert "no record with a text 'txt'; did you mean 'text'?" in said
    said = refusal(capsys, "train", tmp_path / "d.jsonl", "--field", "id", *COUNT)
    assert said.endswith("d.jsonl is never text; its records have text, id")
    assert ".jsonl" in refusal(capsys, "train", tmp_path / "d.txt", "--field", "t", *COUNT)
    pytest.importorskip("pyarrow")
    said = refusal(capsys, "train", tmp_path / "d.parquet", "--field", "t", *COUNT)
    assert "d.parquet cannot be read as parquet" in said
