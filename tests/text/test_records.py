"""Texts of records: what comes out is what was written, and what is bad is counted and named."""

from __future__ import annotations

import gzip
import json

import pytest
from examples import examples
from helpers_cli import needs, records, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.text.records import Texts, json_records

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


@given(
    st.lists(
        st.dictionaries(st.sampled_from("tu"), st.text(st.characters(codec="utf-8"), max_size=9)),
        min_size=1,
    ),
    st.sampled_from([None, 1, "\t"]),
    st.integers(1, 40),
    st.booleans(),
)
@settings(max_examples=examples(25), deadline=None)
def test_a_list_is_as_json_lines(records, indent, block, ascii_only):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqgen.text.records.CHUNK_BYTES", 40)
        whole = json.dumps(records, ensure_ascii=ascii_only, indent=indent)
        pieces = [whole[at : at + block] for at in range(0, len(whole), block)]
        assert [record for _, record in json_records(pieces, "x")] == records
        with pytest.raises(SeqgenError, match="x is damaged JSON after item"):
            list(json_records([whole[: whole.rindex("]")]], "x"))
        # Several such files, joined as `cat` does.
        pieces = [*pieces, "\n" * block, *pieces]
        assert [record for _, record in json_records(pieces, "x")] == records * 2
        last = len(records)
        with pytest.raises(
            SeqgenError, match=f"x has something other than a JSON list after item {last}$"
        ):
            list(json_records([whole, "\n", '{"t": "lost"}'], "x"))


def test_a_file_that_is_one_list(tmp_path, stdin, capsys):
    rows = [{"id": 1, "t": "one\ntwo"}, 7, {"u": "no"}, {"id": 2, "t": "é 😀"}]
    path = tmp_path / "d.json"
    path.write_text(" \n" + json.dumps(rows, indent=2) + "\n")
    assert run(["train", str(path), "--field", "t", *COUNT]) == 0
    assert "2 records of" in capsys.readouterr().err and read_text() == "one\ntwo\né 😀\n"
    stdin(path.read_bytes())
    assert run(["train", "-", "--field", "t", *COUNT, "-q"]) == 0
    assert read_text() == "one\ntwo\né 😀\n"
    said = refusal(capsys, "train", path, "--field", "text", *COUNT)
    assert said.endswith("no record with a text 'text'; its records have id, t")
    assert "--field NAME to train on the texts of one key (id, t)" in refusal(
        capsys, "train", path, *COUNT
    )
    path.write_text(json.dumps(rows)[:-3])
    said = refusal(capsys, "train", path, "--field", "t", *COUNT)
    assert said.endswith("d.json is damaged JSON after item 3 of its list")
    path.write_text(json.dumps({"data": rows}, indent=2))
    said = refusal(capsys, "train", path, "--field", "t", *COUNT)
    assert said.endswith("; a record is a line of JSON, or one item of a list")


def test_a_long_item_of_a_list(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SEQGEN_MAX_LINE_MB", "2")
    path = tmp_path / "d.json"
    path.write_text(json.dumps([{"t": "short"}, {"t": "a" * 5_000_000}]))
    said = refusal(capsys, "train", path, "--field", "t", *COUNT)
    assert "item 2 of" in said and "longer than 2 MB" in said


def shards(folder):
    """Write three good shards and several damaged ones; return the names of the latter."""
    folder.mkdir()
    rows = "".join(json.dumps({"t": f"text {n}"}) + "\n" for n in range(9))
    packed = gzip.compress(rows.encode())
    damaged = {
        "b.jsonl.gz": packed[: len(packed) // 2],
        "c.jsonl": b'{"t": "\xff\xfe"}\n',
        "d.json": b'[{"t": "a"}, {"t": ',
        "e.jsonl": b"",
    }
    for name, content in {"a.jsonl": rows.encode(), "z.jsonl.gz": packed, **damaged}.items():
        (folder / name).write_bytes(content)
    return sorted(damaged)


def test_damaged_shards_of_a_folder_are_left_out(tmp_path, capsys):
    damaged = shards(tmp_path / "s")
    wanted = "".join(f"text {n}\n" for n in range(9)) * 2
    assert run(["train", str(tmp_path / "s"), "--field", "t", *COUNT]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out: ")]
    assert [line.split()[2] for line in said] == [str(tmp_path / "s" / name) for name in damaged]
    assert read_text() == wanted
    assert run(["train", f"{tmp_path}/s/*", "--field", "t", *COUNT, "-q"]) == 0
    assert capsys.readouterr().err == "" and read_text() == wanted
    for name in damaged:  # by its own name it is an error
        assert name in refusal(capsys, "train", tmp_path / "s" / name, "--field", "t", *COUNT)
        assert name in refusal(
            capsys, "train", tmp_path / "s" / "a.jsonl", tmp_path / "s" / name, "--field", "t"
        )
    for n in range(9):
        (tmp_path / "s" / f"f{n}.jsonl.gz").write_bytes(b"no gzip")
    assert run(["train", str(tmp_path / "s"), "--field", "t", *COUNT]) == 0
    said = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("left out: ") for line in said) == 5
    assert "more are left out: see seqgen data" in said
    # All damaged; and whole, but of another field.
    for name in ("a.jsonl", "z.jsonl.gz"):
        (tmp_path / "s" / name).unlink()
    assert "b.jsonl.gz is damaged" in refusal(
        capsys, "train", tmp_path / "s", "--field", "t", *COUNT
    )
    (tmp_path / "s" / "g.jsonl").write_text('{"other": "a"}\n')
    said = refusal(capsys, "train", tmp_path / "s", "--field", "t", *COUNT)
    assert said.endswith("g.jsonl has no record with a text 't'; its records have other")


@needs("data")
def test_the_report_lists_damaged_shards(tmp_path, capsys):
    damaged = shards(tmp_path / "s")
    (found,) = records(capsys, "data", tmp_path / "s", "--field", "t")
    assert [*found["left_out"]] == [str(tmp_path / "s" / name) for name in damaged]
    assert (
        found["lines"] == 18 and "is damaged" in found["left_out"][str(tmp_path / "s/b.jsonl.gz")]
    )
    assert run(["data", str(tmp_path / "s"), "--field", "t"]) == 0
    assert "b.jsonl.gz is damaged" in capsys.readouterr().out


@needs("tables")
def test_a_missing_package_is_no_damage(tmp_path, capsys, monkeypatch):
    shards(tmp_path / "s")
    (tmp_path / "s" / "p.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("seqgen.packages._is_installed", lambda package: package != "pyarrow")
    said = refusal(capsys, "train", tmp_path / "s", "--field", "t", *COUNT)
    assert "p.parquet needs the package pyarrow" in said


@needs("tables")
def test_damaged_tables_of_a_folder_are_left_out(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name in "abc":
        parquet.write_table(
            pyarrow.table({"t": [f"text {name}"] * 999}), tmp_path / f"{name}.parquet"
        )
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "d.csv").write_bytes(b"id,t\n1,\xe9\n")
    assert run(["train", str(tmp_path), "--field", "t", *COUNT]) == 0
    said = capsys.readouterr().err
    assert said.count("left out: ") == 2
    assert "b.parquet cannot be read as parquet" in said and "d.csv is not UTF-8" in said
    assert read_text() == "text a\n" * 999 + "text c\n" * 999


def test_damaged_shards_of_pairs(tmp_path, capsys):
    rows = "".join(json.dumps({"a": f"a {n}", "b": f"b {n}"}) + "\n" for n in range(9))
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "a.jsonl").write_text(rows)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(rows.encode())[:-20])
    fields = ("--source-field", "a", "--target-field", "b", "--val", "none", "--name", "p")
    options = ("--model", "seq2seq", "--steps", "1", "--hidden-size", "4", "--layers", "1")
    assert run(["train", str(folder), *fields, *options]) == 0
    assert capsys.readouterr().err.count("left out: ") == 1
    assert store.find("p").record["data"]["lines"] == 9


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
