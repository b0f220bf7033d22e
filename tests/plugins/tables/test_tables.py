"""CSV, TSV and Arrow files as records; fields of pairs; folders that datasets has saved."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from examples import examples
from helpers_cli import needs, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import store
from seqgen.cli import run
from seqgen.text.records import Texts

pytestmark = needs("tables")
COUNT = ("--model", "ngram", "--order", "2", "--name", "m", "--overwrite", "--val", "none")
TEXTS = ['one, "two"', "zwei\ndrei", "fin; é | 😀", "\ttab"]
TRANSLATE = ("--model", "seq2seq-transformer", "--steps", "1", "--hidden-size", "8", "--num-heads")
TRANSLATE = (*TRANSLATE, "1", "--layers", "1", "--name", "m", "--overwrite", "-q")


def read_text() -> str:
    """Return the text that the model was trained on."""
    paths = store.text_of(store.find("m").record["data"])
    return "".join(path.read_bytes().decode() for path in paths)


def table(texts: list[str], **dialect: str) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, **dialect)
    writer.writerows([["id", "my text"], *([n, text] for n, text in enumerate(texts))])
    return file.getvalue()


@pytest.mark.fast_for("*-,-.csv", "*-;-.csv.gz", "*-\\t-.tsv", "*-|-.csv", rest="slow")
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tables_are_as_json_lines(ending, delimiter, newline, tmp_path, capsys):
    delimiter = "\t" if ending == ".tsv" else delimiter
    path = tmp_path / f"d{ending}"
    content = table([*TEXTS, ""], delimiter=delimiter, lineterminator=newline)
    content = ("\ufeff" + content + newline).encode()
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    assert run(["train", str(path), "--field", "my text", *COUNT]) == 0
    assert read_text() == "".join(f"{text}\n" for text in TEXTS)
    said = f"1 record of {path} left out, without a text 'my text': 5\n"
    assert said in capsys.readouterr().err
    assert run(["train", str(path), "--field", "my text", "--documents", "line", *COUNT]) == 0
    assert read_text().count("\n") == len(TEXTS)
    said = refusal(capsys, "train", path, "--field", "my txt", *COUNT)
    assert "no record with a text 'my txt'; did you mean 'my text'?" in said


@pytest.mark.slow
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1)))
@settings(max_examples=examples(50), deadline=None)
def test_what_csv_writes_is_read(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("d") / "d.csv"
    path.write_text(table([*texts, "end"]), encoding="utf-8", newline="")
    found = list(Texts("x", "my text").of_file(path))
    assert found == [text if text.endswith("\n") else f"{text}\n" for text in [*texts, "end"]]


def test_bad_tables(tmp_path, capsys, monkeypatch):
    path = tmp_path / "d.csv"
    path.write_text("id,text\n1\n\n2,b,more\n3,c\n")
    assert run(["train", str(path), "--field", "text", *COUNT]) == 0
    assert "1 record" in capsys.readouterr().err and read_text() == "b\nc\n"
    for content, why in (
        ("", "has only blank lines"),
        ("\n\n", "has only blank lines"),
        ("id,text\r1,a\r", "its lines end with CR alone"),
        ("id,text\n", "'text' in"),
        ("id,text\n1,\n", "'text' in"),
        (b"id,text\n1,\xe9\n", "is not UTF-8"),
    ):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        assert why in refusal(capsys, "train", path, "--field", "text", *COUNT)
    path.write_text('\n\n"a,b,c,d";text\n1;a\n2;b\n')
    assert run(["train", str(path), "--field", "text", *COUNT]) == 0
    assert read_text() == "a\nb\n"
    monkeypatch.setenv("SEQGEN_MAX_LINE_MB", "0.1")
    path.write_text('id,text\n1,"never closed\n' + "so it goes on\n" * 20000)
    said = refusal(capsys, "train", path, "--field", "text", *COUNT)
    assert "cannot be read as a table: field larger" in said


@pytest.mark.parametrize(
    ("content", "line"),
    [('text\n"a\nb\nc\n', 2), ('text\na\n\n"b"\n"', 5), ('"text\na\n', 1), ('t\n"a ""\nb"\n"c', 4)],
)
def test_a_quote_that_is_never_closed_is_an_error_with_its_line(content, line, tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_text(content)
    said = refusal(capsys, "train", path, "--field", "text", *COUNT)
    assert f"a quote in the row that begins in line {line} is never closed" in said
    (tmp_path / "e.csv").write_text('text\n"a\nb"\n\n')
    assert run(["train", str(tmp_path), "--field", "text", *COUNT]) == 0
    assert f"left out: {path} cannot be read as a table" in capsys.readouterr().err
    assert read_text() == "a\nb\n"


@needs("data")
def test_tables_without_the_column_and_other_files_of_a_folder_are_left_out(tmp_path, capsys):
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name, content in {
        "a.csv": "id,text\n1,a\n",
        "b.tsv": "id\tother\n1\tb\n",
        "c.jsonl": '{"text": "c"}\n',
        "d.txt": "d\n",
        "e.html": "<p>e</p>",
    }.items():
        (folder / name).write_text(content)
    assert run(["train", str(folder), "--field", "text", *COUNT]) == 0
    said = capsys.readouterr().err
    wrong = f"{folder}/b.tsv has no record with a text 'text'; its records have id, other"
    assert f"left out: {wrong}\n" in said and read_text() == "a\nc\n"
    assert all(f"and not {folder}/{name}\n" in said for name in ("d.txt", "e.html"))
    assert run(["data", str(folder), "--field", "text", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["files"] == [f"{folder}/a.csv", f"{folder}/c.jsonl"]
    assert [*report["left_out"]] == [f"{folder}/{name}" for name in ("b.tsv", "d.txt", "e.html")]
    assert run(["data", str(folder), "--field", "text"]) == 0
    assert "files                    a.csv, c.jsonl\n" in capsys.readouterr().out
    assert wrong in refusal(capsys, "train", folder / "b.tsv", "--field", "text", *COUNT)
    for name in ("a.csv", "c.jsonl"):
        (folder / name).unlink()
    assert wrong in refusal(capsys, "train", folder, "--field", "text", *COUNT)


def test_a_table_by_a_pipe_and_nul_characters(tmp_path, stdin, capsys):
    stdin(b"id,text\n1,a\n")
    said = refusal(capsys, "train", "-", "--field", "text", *COUNT)
    assert "tables are not read from pipes" in said
    path = tmp_path / "nul.csv"
    path.write_text("id,text\n1,a\0b\n")
    assert run(["train", str(path), "--field", "text", *COUNT]) == 0
    assert f"{path} contains NUL characters" in capsys.readouterr().err


def test_a_tab_separated_file_without_a_field_is_pairs(tmp_path):
    (tmp_path / "d.tsv").write_text("ab\tba\n" * 20)
    assert run(["train", str(tmp_path / "d.tsv"), *TRANSLATE]) == 0
    assert store.find("m").record["data"]["target_files"] == 0


ROWS = [
    {"id": "1", "tr": {"en": "hello", "de": "hallo"}},
    {"id": "2", "tr": {"en": "two\nlines", "de": "zwei\tZeilen"}},
    {"id": "3", "tr": {"en": None, "de": "nichts"}},
    {"id": "4", "tr": {"en": "a", "de": "b"}},
]


def pairs_file(folder: Path, ending: str) -> tuple[Path, list[str]]:
    """Write the rows; return the file, and the options that name its fields."""
    path, fields = folder / f"d{ending}", ["tr.en", "tr.de"]
    if ending == ".csv":
        fields = ["en", "de"]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fields)
            writer.writeheader()
            writer.writerows(row["tr"] for row in ROWS)
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        rows = pyarrow.Table.from_pylist(ROWS)
        if ending == ".parquet":
            parquet.write_table(rows, path, compression="zstd")
        else:
            with pyarrow.ipc.new_stream(str(path), rows.schema) as writer:
                writer.write_table(rows, max_chunksize=2)
    return path, ["--source-field", fields[0], "--target-field", fields[1]]


@pytest.mark.fast_for(".csv", ".parquet", rest="slow")
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet", ".arrow"])
def test_two_fields_are_pairs(ending, tmp_path, capsys):
    path, fields = pairs_file(tmp_path, ending)
    assert run(["train", str(path), *fields, "--val", "none", *TRANSLATE[:-1]]) == 0
    said = capsys.readouterr().err
    names = f"{fields[1]!r} and {fields[3]!r}"
    assert said.count(f"1 record of {path} left out, without a text {names}: 3\n") == 1
    wanted = "hello\ntwo lines\na\n" + "hallo\nzwei\tZeilen\nb\n"
    assert read_text() == wanted
    assert run(["train", str(path), *fields, "--val", str(path), *TRANSLATE]) == 0
    assert store.find("m").record["data"]["target_files"] == 1
    assert run(["train", "--resume", "m", "--set", "steps=2", "-q"]) == 0
    said = refusal(capsys, "train", path, *fields[:2], "--target-field", "no", *TRANSLATE)
    assert "no record with a text 'no'" in said


def test_pairs_by_a_pipe(tmp_path, stdin):
    path, fields = pairs_file(tmp_path, ".jsonl")
    stdin(path.read_bytes())
    assert run(["train", "-", *fields, "--val", "none", *TRANSLATE]) == 0
    assert read_text() == "hello\ntwo lines\na\nhallo\nzwei\tZeilen\nb\n"


def test_fields_of_pairs_exclude_other_options(tmp_path, capsys):
    path, fields = pairs_file(tmp_path, ".jsonl")
    for options in (
        fields[:2],
        fields[2:],
        [*fields, "--field", "id"],
        [*fields, "--as-text"],
    ):
        said = refusal(capsys, "train", path, *options, *TRANSLATE)
        assert "--source-field" in said or "--target-field" in said, said
    sides = ("--source", path, "--target", path)
    assert "--source" in refusal(capsys, "train", *sides, *fields, *TRANSLATE)


def test_arrow_files(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    rows = pyarrow.table({"t": [*TEXTS, None], "n": range(5)})
    path = tmp_path / "d.arrow"
    for kind in ("new_stream", "new_file"):
        with getattr(pyarrow.ipc, kind)(str(path), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=2)
        assert run(["train", str(path), "--field", "t", *COUNT, "-q"]) == 0
        assert read_text() == "".join(f"{text}\n" for text in TEXTS)
        assert "--field NAME" in refusal(capsys, "train", path, *COUNT)
        said = refusal(capsys, "train", path, "--field", "n", *COUNT)
        assert said.endswith("is never text; its records have t, n")
        raw = path.read_bytes()
        for damaged in (b"", raw[: len(raw) // 2], b"hello"):
            (tmp_path / "e.arrow").write_bytes(damaged)
            said = refusal(capsys, "train", tmp_path / "e.arrow", "--field", "t", *COUNT)
            assert "e.arrow cannot be read as Arrow data" in said or "no record" in said


def test_a_folder_with_splits_names_them(tmp_path, capsys):
    for split in ("test", "train"):
        (tmp_path / split).mkdir()
        for name in ("state.json", "dataset_info.json"):
            (tmp_path / split / name).write_text("{}")
        (tmp_path / split / "data.jsonl").write_text('{"t": "text"}\n')
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    said = refusal(capsys, "train", tmp_path, "--field", "t", *COUNT)
    assert said.endswith(
        f"has the splits test, train: give one, as {tmp_path / 'train'}; --val takes another"
    )
    assert run(["train", str(tmp_path / "train"), "--field", "t", *COUNT, "-q"]) == 0
    assert read_text() == "text\n"
    pattern = f"{tmp_path}/tr*/*.jsonl"
    assert run(["train", pattern, "--field", "t", *COUNT, "-q"]) == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("text")
    said = refusal(capsys, "train", tmp_path / "empty", "--field", "t", *COUNT)
    assert "has no file of records (.arrow, .csv, .jsonl, .parquet, .tsv" in said


@pytest.mark.long
def test_what_datasets_saves(tmp_path, capsys):
    """Shards, nested columns, splits, and the other formats that datasets writes."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = {"text": [*TEXTS, None] * 3, "tr": [{"en": "hello", "de": "hallo"}] * 15}
    data = datasets.Dataset.from_dict(rows)
    data.save_to_disk(str(tmp_path / "saved"), num_shards=2)
    kept = datasets.load_from_disk(str(tmp_path / "saved"))
    kept.map(lambda row: {"n": 1})  # leaves a file of its cache beside the shards
    (tmp_path / "shards").mkdir()
    data.to_parquet(str(tmp_path / "shards" / "train-00000-of-00001.parquet"))
    data.to_json(str(tmp_path / "d.jsonl"))
    data.remove_columns("tr").to_csv(str(tmp_path / "d.csv"))
    wanted = "".join(f"{text}\n" for text in TEXTS) * 3
    for name in ("saved", "shards", "d.jsonl", "d.csv"):
        assert run(["train", str(tmp_path / name), "--field", "text", *COUNT, "-q"]) == 0
        assert read_text() == wanted
    assert run(["train", str(tmp_path / "saved"), "--field", "tr.de", *COUNT, "-q"]) == 0
    assert read_text() == "hallo\n" * 15
    splits = datasets.DatasetDict(train=data, validation=data)
    splits.save_to_disk(str(tmp_path / "splits"))
    said = refusal(capsys, "train", tmp_path / "splits", "--field", "text", *COUNT)
    assert "splits train, validation" in said


@pytest.mark.long
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_what_pandas_and_polars_write(library, tmp_path, capsys):
    """Texts, pairs, and what is no text, of every format that both write."""
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    frame = frames.DataFrame(
        {"text": [*TEXTS, None], "to": ["x", "y", "z", "é", "n"], "n": range(5)}
    )
    if library == "pandas":
        frame.to_json(tmp_path / "d.jsonl", orient="records", lines=True)
        frame.to_json(tmp_path / "d.jsonl.gz", orient="records", lines=True)
        frame.to_csv(tmp_path / "d.csv")
        frame.to_csv(tmp_path / "d.tsv", sep="\t", index=False)
        frame.to_parquet(tmp_path / "d.parquet")
    else:
        frame.write_ndjson(tmp_path / "d.jsonl")
        frame.write_csv(tmp_path / "d.csv")
        frame.write_csv(tmp_path / "d.tsv", separator="\t")
        frame.write_parquet(tmp_path / "d.parquet", compression="zstd")
        categories = frame.with_columns(frames.col("text").cast(frames.Categorical))
        categories.write_parquet(tmp_path / "categories.parquet")
    fields = ("--source-field", "text", "--target-field", "to", "--val", "none")
    for path in sorted(tmp_path.glob("*.*")):
        assert run(["train", str(path), "--field", "text", *COUNT]) == 0, path
        assert "1 record of" in capsys.readouterr().err
        assert read_text() == "".join(f"{text}\n" for text in TEXTS)
        said = refusal(capsys, "train", path, "--field", "txt", *COUNT)
        assert said.endswith("no record with a text 'txt'; did you mean 'text'?")
        if path.suffix not in (".csv", ".tsv"):  # where a number is a text
            said = refusal(capsys, "train", path, "--field", "n", *COUNT)
            assert "'n' in" in said and "is never text" in said
        assert run(["train", str(path), *fields, *TRANSLATE]) == 0, path
        assert read_text().endswith("x\ny\nz\né\n")


@pytest.mark.long
def test_what_datatrove_writes(tmp_path):
    """Shards of JSON Lines and parquet, each with the metadata of its documents."""
    pytest.importorskip("datatrove", reason="datatrove is not installed")
    from datatrove.data import Document
    from datatrove.pipeline.writers import JsonlWriter, ParquetWriter

    documents = [
        Document(text=text, id=str(n), metadata={"url": f"page/{n}", "score": n / 3})
        for n, text in enumerate(TEXTS)
    ]
    zst = {"compression": "zstd", "output_filename": "${rank}.jsonl.zst"}
    writers = {
        "jsonl.gz": lambda folder: JsonlWriter(folder),
        "jsonl": lambda folder: JsonlWriter(folder, compression=None),
        "jsonl.zst": lambda folder: JsonlWriter(folder, **zst),
        "parquet": lambda folder: ParquetWriter(folder),
        "parquet.zst": lambda folder: ParquetWriter(folder, compression="zstd"),
    }
    for name, writer in writers.items():
        folder = tmp_path / name
        for rank in (0, 1):  # half of the documents in each shard
            for _ in writer(str(folder)).run(documents[2 * rank : 2 * rank + 2], rank=rank):
                pass
        assert len(list(folder.iterdir())) == 2
        assert run(["train", str(folder), "--field", "text", *COUNT, "-q"]) == 0
        assert read_text() == "".join(f"{text}\n" for text in TEXTS)
        assert run(["train", str(folder), "--field", "metadata.url", *COUNT, "-q"]) == 0
        assert read_text() == "".join(f"page/{n}\n" for n in range(4))
