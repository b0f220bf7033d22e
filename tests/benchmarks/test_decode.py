"""The benchmark of decoding: that both sides make the tokens they count, and what it prints."""

import json
import sys

import pytest
from architectures import RECURRENT

from benchmarks import decode, writing_cases
from benchmarks.__main__ import run
from benchmarks.shapes import Shape


def test_the_plain_lstm_makes_what_it_counts():
    assert writing_cases.plain_lstm(9, 5, hidden_size=4)() == 5


TINY = Shape(1, 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: writing_cases.transformer(3, 2, TINY, "float32", "float32"),
        lambda: writing_cases.transformer(3, 2, TINY, "int8", "bf16"),
        lambda: writing_cases.transformer(3, 2, TINY, "int8", "float32", beams=3),
        lambda: writing_cases.translator(1, 64, 3),
    ],
)
def test_both_sides_make_as_many_tokens(build):
    pytest.importorskip("transformers", reason="transformers is not installed")
    case = build()
    assert case.ours() == case.theirs() > 0


@pytest.mark.parametrize(("precision", "beams"), [("float32", 1), ("int8", 1), ("int8", 3)])
def test_ctranslate2_makes_as_many_tokens(precision, beams):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    case = writing_cases.transformer(4, 2, TINY, precision, "CTranslate2", beams)
    assert case.baseline == "CTranslate2" + (", int8" if precision == "int8" else "")
    assert case.ours() == case.theirs() == 8


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_ctranslate2_translates_as_many_tokens(precision):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    case = writing_cases.translator(1, 64, 3, precision)
    assert case.name.endswith(f", beside {precision}")
    assert case.ours() == case.theirs() > 0


def test_int4_makes_as_many_tokens_as_int8():
    case = writing_cases.transformer(4, 2, TINY, "int4", "int8")
    assert case.baseline == "seqgen, int8" and case.name.endswith("int4 beside int8")
    assert case.ours() == case.theirs() == 8


def test_a_library_that_is_not_there_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setattr(decode, "SMALL", TINY)
    only = "transformer 1 x 64, batch 1, int8 beside CTranslate2"
    (timing,) = decode.measure(2, 1, only)
    assert timing.case == only and timing.ratio is None
    assert timing.skipped.endswith("pip install ctranslate2 to measure against it")


def test_bench_decode_prints_a_record_a_case(capsys):
    command = ["decode", "--tokens", "3", "--repeats", "1", "--only", "lstm", "--json"]
    assert run(command) == 0
    record, *reduced = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["case"] == "lstm 2 x 256, batch 1"
    names = [f"lstm 2 x 256, batch 1, {kind}" for kind in ("bf16", "int8")]
    assert [other["case"] for other in reduced] == names
    assert record["skipped"] is None
    pair = record["tokens_per_second"], record["baseline_tokens_per_second"]
    assert record["ratio"] == pytest.approx(pair[0] / pair[1])
    assert record["bandwidth_fraction"] > 0


@pytest.mark.slow
def test_bench_decode_measures_every_cell(capsys):
    command = ["decode", "--tokens", "2", "--repeats", "1", "--only", "cell", "--json"]
    assert run([*command, "--quiet"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["case"] for record in found] == [f"cell {name} 1 x 256" for name in RECURRENT]
    lstm = next(record for record in found if record["case"] == "cell lstm 1 x 256")
    assert lstm["baseline"] == "lstm 1 x 256"
    assert all(record["ratio"] > 0 for record in found)


def test_bench_decode_knows_its_cases(capsys):
    assert run(["decode", "--only", "lstn"]) == 2
    assert "no case has 'lstn' in its name; there are lstm 2 x 256" in capsys.readouterr().err
