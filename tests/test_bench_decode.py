"""`seqgen bench decode`: that both sides make the tokens they count, and what it prints."""

import json

import pytest
from architectures import RECURRENT

from seqgen.benchmarks import writing_cases
from seqgen.cli import run


def test_the_plain_lstm_makes_what_it_counts():
    assert writing_cases.plain_lstm(9, 5, hidden_size=4)() == 5


@pytest.mark.parametrize(
    "build",
    [
        lambda: writing_cases.transformer(3, 2),
        lambda: writing_cases.transformer(3, 2, writing_cases.Shape(1, 64), "int8", "bf16"),
        lambda: writing_cases.beams(3),
        lambda: writing_cases.translator(1, 64, 3),
    ],
)
def test_both_sides_make_as_many_tokens(build):
    pytest.importorskip("transformers", reason="transformers is not installed")
    case = build()
    assert case.ours() == case.theirs() > 0


def test_bench_decode_prints_a_record_a_case(capsys):
    command = ["bench", "decode", "--tokens", "3", "--repeats", "1", "--only", "lstm", "--json"]
    assert run(command) == 0
    record, *reduced = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["case"] == "lstm 2 x 256, batch 1"
    names = [f"lstm 2 x 256, batch 1, {kind}" for kind in ("bf16", "int8")]
    assert [other["case"] for other in reduced] == names
    assert record["skipped"] is None
    pair = record["tokens_per_second"], record["baseline_tokens_per_second"]
    assert record["ratio"] == pytest.approx(pair[0] / pair[1])
    assert record["bandwidth_fraction"] > 0


def test_bench_decode_measures_every_cell(capsys):
    command = ["bench", "decode", "--tokens", "2", "--repeats", "1", "--only", "cell", "--json"]
    assert run([*command, "--quiet"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["case"] for record in found] == [f"cell {name} 1 x 256" for name in RECURRENT]
    lstm = next(record for record in found if record["case"] == "cell lstm 1 x 256")
    assert lstm["baseline"] == "lstm 1 x 256"
    assert all(record["ratio"] > 0 for record in found)


def test_bench_decode_knows_its_cases(capsys):
    assert run(["bench", "decode", "--only", "lstn"]) == 2
    assert "no case has 'lstn' in its name; there are lstm 2 x 256" in capsys.readouterr().err
