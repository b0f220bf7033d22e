"""What a page says of how new a model's texts are; which training texts it is known of."""

from __future__ import annotations

import random
import shutil
from itertools import pairwise

import numpy as np
import pytest
from helpers_cli import records

from seqgen import store
from seqgen.cli import run
from seqgen.text.split import held_out_lines

pytest.importorskip("pydivsufsort")


def longest_of(text: str, known: str) -> str:
    """Return the first of a text's longest parts that another has, by trying all."""
    longest = ""
    for i in range(len(text)):
        while i + len(longest) < len(text) and text[i : i + len(longest) + 1] in known:
            longest = text[i : i + len(longest) + 1]
    return longest


def share_new(texts: list[str], known: str, n: int) -> float | None:
    grams = [text[i : i + n] for text in texts for i in range(len(text) - n + 1)]
    return sum(gram not in known for gram in grams) / len(grams) if grams else None


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A text of which a 5-gram model, `m`, has counted the first nine tenths."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    words = [draw.choice(["cat", "dog", "sat", "mat", "on", "the"]) for _ in range(1500)]
    text = tmp_path / "text.txt"
    text.write_text("".join(word + draw.choice("  \n") for word in words))
    assert run(["train", str(text), "--model", "ngram", "--order", "5", "--name", "m", "-q"]) == 0
    return text


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_a_report_compares_with_what_was_trained_on(documents, trained, capsys):
    pytest.importorskip("seqgen.plugins.report")
    if documents == "line":
        more = ("--documents", "line", "--overwrite", "-q")
        assert run(["train", str(trained), "--model", "ngram", "--name", "m", *more]) == 0
    (found,) = records(capsys, "report", "-m", "m", "-q")
    write = ("sample", "-m", "m", "--num-samples", 16, "--max-tokens", 200, "--seed", 0)
    written = [record["text"] for record in records(capsys, *write)]
    held_out = store.find("m").validation_text.read_text()
    text = trained.read_text()
    if documents == "stream":
        known = text.removesuffix(held_out)
        assert known != text
    else:
        lines = text.splitlines()
        out = held_out_lines(len(lines), 0.1, 0)  # of several equal lines, only some are
        assert sorted(held_out.splitlines()) == sorted(np.array(lines)[out])
        known = "\n".join(np.array(lines)[~out])
    begins = [sum(map(len, written[:i])) for i in range(len(written) + 1)]
    parts = [held_out[a:b] for a, b in pairwise(begins) if held_out[a:b]]
    assert len(parts) > 1
    for who, texts in (("samples", written), ("text", parts)):
        longest = max((longest_of(each, known) for each in texts), key=len)
        figures = found["novelty"][who]
        assert figures["words"] == sum(len(each.split()) for each in texts)
        assert (figures["longest"], figures["copied"]) == (len(longest), longest)
        assert figures["copied_words"] == len(longest.split())
        for n in (5, 10, 50):
            share = share_new(texts, known, n)
            assert figures["novel"]["characters"][str(n)] == (share and pytest.approx(share))
    *of_each, total = records(capsys, "novelty", "-m", "m")
    samples = found["novelty"]["samples"]
    assert samples["share"] == total["total"]["share"]
    assert found["novelty"]["text"]["share"] == total["total"]["held_out"]
    page = (trained.parent / "report.html").read_text()
    for one in of_each:
        assert one["copied"] in page and f"{one['file']}:{one['line'] + 1}" in page
    assert f"{samples['novel']['tokens']['5']:.1%}" in page


def test_why_novelty_is_not_known(trained, capsys):
    pytest.importorskip("seqgen.plugins.report")
    pytest.importorskip("seqgen.plugins.exchange")

    def reason() -> str:
        (found,) = records(capsys, "report", "-m", "m", "-q")
        assert found["novelty"] is None
        page = (trained.parent / "report.html").read_text()
        return page.split("<p>Not known: ")[1].split(".</p>")[0]

    shutil.copy(trained, trained.parent / "copy.txt")
    trained.write_text(trained.read_text() + "more")
    assert "text.txt has changed since m read it" in reason()
    trained.unlink()
    assert reason() == "the training text of m is gone"
    assert run(["export", "m", "--format", "arpa", "--out", "m.arpa"]) == 0
    assert run(["import", "m.arpa", "--name", "m", "--overwrite"]) == 0
    capsys.readouterr()
    assert run(["report", "-m", "m", "--file", "copy.txt", "-q"]) == 0
    page = (trained.parent / "report.html").read_text()
    assert "Not known: no training text of m is known." in page


def test_copies_are_found_in_the_file_whose_line_they_are(trained, tmp_path, capsys):
    files = [tmp_path / f"part{number}.txt" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text("\n".join(f"line {line} of {number}" for line in range(20)))
    how = ("--documents", "line", "--val", "none", "--model", "ngram", "--name", "lines", "-q")
    assert run(["train", *map(str, files), *how]) == 0
    (tmp_path / "asked.txt").write_text("line 2 of 0\nline 19 of 1\nline 0 of 2")
    asked = ("novelty", tmp_path / "asked.txt", "-m", "lines", "--documents", "line")
    *found, _ = records(capsys, *asked)
    places = [(record["file"], record["line"]) for record in found]
    assert places == [(str(files[0]), 2), (str(files[1]), 19), (str(files[2]), 0)]
