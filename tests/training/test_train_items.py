"""`seqgen.train` on strings and records of Python: generators, columns, data sets."""

from __future__ import annotations

import pytest

import seqgen
from seqgen import store
from seqgen.errors import SeqgenError, UsageError
from seqgen.training.resume import resume

TEXTS = ["alpha\nb", None, "é gamma\n", float("nan"), ""]
COUNT = {"architecture": "ngram", "name": "m", "overwrite": True, "val": "none"}
WANTED = "alpha\nb\né gamma\n\n"


def trained_on(data, **options) -> str:
    seqgen.train(data, **COUNT, **options)
    return "".join(path.read_text() for path in store.text_of(store.find("m").record["data"]))


def test_generators_and_records():
    said = []
    rows = [{"t": text, "of": {"t": text}} for text in TEXTS]
    options = {"report": lambda event: said.append(getattr(event, "text", ""))}
    assert trained_on((text for text in TEXTS), **options) == WANTED
    assert "2 records of the data left out, without a text 'text': 2, 4" in said
    assert trained_on(rows, field="t") == WANTED == trained_on(iter(rows), field="of.t")
    wanted = "alpha b\né gamma\n\n"
    assert trained_on(iter(TEXTS), documents="line") == wanted
    assert trained_on(iter(TEXTS), settings={"documents": "line"}) == wanted


def test_names_of_files_are_no_texts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("the text")
    for names in (iter([str(path)]), iter([path]), tmp_path.glob("*.txt"), [str(path), 3]):
        with pytest.raises(UsageError, match=r"names of files, such as '.*a.txt': give them as a"):
            seqgen.train(names, **COUNT)
    seqgen.train([*tmp_path.glob("*.txt")], **COUNT)


def test_what_is_no_text_is_refused():
    for data, field, why in (
        (iter([]), None, "no record with a text"),
        (iter([1, 2]), None, "never text"),
        (iter([{"t": "a"}]), None, "its records have t"),
        (["a.txt"], "t", "field is for records"),
        (iter(["\ud800"]), None, "no record with a text|never text"),
    ):
        with pytest.raises(SeqgenError, match=why):
            seqgen.train(data, field=field, **COUNT)
    with pytest.raises(UsageError, match="not both"):
        seqgen.train(iter(["a"]), text="b", **COUNT)
    with pytest.raises(UsageError, match=r"there is no file emma; give texts as text=\[...\]"):
        seqgen.train(["emma", "olivia"], **COUNT)
    with pytest.raises(UsageError, match=r"give data or text to train on$"):
        seqgen.train([], **COUNT)
    with pytest.raises(UsageError, match=r"give data or text to train on$"):
        seqgen.train(None, **COUNT)
    with pytest.raises(UsageError, match="parameters must be a whole number"):
        seqgen.train(["a.txt"], architecture="rnn", parameters="20k")


def test_a_run_on_a_generator_resumes():
    tiny = {"architecture": "rnn", "hidden_size": 4, "steps": 4, "name": "m"}
    assert seqgen.train((text for text in ["abc abd"] * 40), stop_after=2, **tiny).steps == 2
    assert resume("m").steps == 4


def test_columns_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": TEXTS, "n": range(5)})
    assert trained_on(frame["t"]) == WANTED == trained_on(frame, field="t")
    assert trained_on(frame.rename(columns={"t": "text"})) == WANTED
    with pytest.raises(UsageError, match="give field, or one part of the data: t, n"):
        trained_on(frame)
    assert trained_on(frame.dropna(), field="n,t") == "0\talpha b\n2\té gamma \n4\t\n"


def test_columns_of_polars():
    polars = pytest.importorskip("polars")
    texts = [text if isinstance(text, str) else None for text in TEXTS]
    frame = polars.DataFrame({"t": texts})
    assert trained_on(frame["t"]) == WANTED == trained_on(frame, field="t")
    assert trained_on(frame.lazy(), field="t") == WANTED
    nested = polars.DataFrame({"of": [{"t": text} for text in texts]})
    assert trained_on(nested, field="of.t") == WANTED


def test_tables_of_pyarrow():
    pyarrow = pytest.importorskip("pyarrow")
    texts = [text if isinstance(text, str) else None for text in TEXTS]
    table = pyarrow.table({"text": texts, "n": range(5), "of": [{"t": text} for text in texts]})
    assert trained_on(table) == WANTED == trained_on(table, field="of.t")
    assert trained_on(table.slice(0, 1), field="n,text") == "0\talpha b\n"
    for field in ("txt", "n,txt"):
        with pytest.raises(UsageError, match="no column 'txt'; give field, or one part") as caught:
            trained_on(table, field=field)
        assert "alpha" not in str(caught.value)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_texts_is_refused_with_the_name_of_the_argument_for_texts(kind):
    for text in ("a long text " * 400, "a/long/text of parts" * 900, "no such file"):
        with pytest.raises(SeqgenError, match="text= in Python") as caught:
            seqgen.train(kind([text]), **COUNT)
        assert len(str(caught.value)) < 300


def test_names_of_columns_and_parts_are_no_texts():
    columns = {"text": TEXTS, "t": TEXTS[::-1]}
    assert trained_on(columns) == WANTED != trained_on(columns, field="t")
    for field in (None, "text"):
        with pytest.raises(UsageError, match="one part of the data: train, test"):
            trained_on({"train": columns, "test": columns}, field=field)


def test_data_sets():
    datasets = pytest.importorskip("datasets")
    texts = [text if isinstance(text, str) else None for text in TEXTS]
    data = datasets.Dataset.from_dict({"text": texts, "of": [{"t": text} for text in texts]})
    assert trained_on(data) == WANTED == trained_on(data["text"])
    assert trained_on(data.to_iterable_dataset(), field="of.t") == WANTED
    with pytest.raises(UsageError, match="one part of the data: train, test"):
        trained_on(datasets.DatasetDict({"train": data, "test": data}), field="text")
