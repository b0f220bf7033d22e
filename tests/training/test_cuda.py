"""The main job on a CUDA device, for every architecture: skipped where there is none."""

import json

import pytest
import torch
from benchmarks.__main__ import run as run_benchmark

from seqgen import registry
from seqgen.cli import run
from seqgen.tasks.language_modeling import LANGUAGE_MODELING

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def small(architecture):
    """Return flags that make a model small, as far as it has such settings."""
    wanted = {"hidden_size": 32, "num_heads": 2, "num_layers": 2}
    there = registry.architecture(architecture).load_config().fields()
    sets = [f"{name}={value}" for name, value in wanted.items() if name in there]
    return [flag for each in sets for flag in ("--set", each)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text.txt").write_text(
        "the cat sat on the mat, and the dog sat on the cat.\n" * 200
    )
    return tmp_path


def seqgen(capsys, *arguments, by=run):
    assert by([*map(str, arguments), "--json"]) == 0
    said = capsys.readouterr()
    assert "Warning" not in said.err
    assert "not compiled" not in said.err
    return [json.loads(line) for line in said.out.splitlines()]


@pytest.mark.parametrize("precision", ["auto", "float32"])
@pytest.mark.parametrize(
    "architecture",
    [name for name, row in registry.ARCHITECTURES.items() if row.task is LANGUAGE_MODELING],
)
def test_the_main_job(architecture, precision, home, capsys):
    budget = ["--steps", 30, "--precision", precision]
    train = ["train", home / "text.txt", "--model", architecture, "--seed", 1, *budget]
    given = [*small(architecture), "--device", "cuda"]
    (result,) = seqgen(capsys, *train, *given, "--name", "a", "--checkpoint-every", 10)
    if not registry.architecture(architecture).load_model().counted:
        assert result["val_loss"] < 3
        (longer,) = seqgen(capsys, "train", "--resume", "a", "--steps", 40, "--device", "cuda")
        assert longer["steps"] == 40
        result = longer
    (scored,) = seqgen(capsys, "perplexity", "-m", "a", "--device", "cuda")
    assert scored["nll_nats"] / scored["tokens"] == pytest.approx(result["val_loss"], rel=1e-5)
    (on_cpu,) = seqgen(capsys, "perplexity", "-m", "a", "--device", "cpu")
    assert on_cpu["nll_nats"] == pytest.approx(scored["nll_nats"], rel=1e-4)
    written = [
        seqgen(
            capsys, "sample", "the", "-m", "a", "--seed", 3, "--max-tokens", 40, "--device", place
        )
        for place in ("cuda", "cpu")
    ]
    assert [r["text"] for r in written[0]] == [r["text"] for r in written[1]]
    beams = seqgen(capsys, "beam-search", "the", "-m", "a", "--max-tokens", 9, "--device", "cuda")
    assert len(beams) == 1


def test_a_mixture(home, capsys):
    for name in ("a", "b"):
        train = ["train", home / "text.txt", "--model", "ngram", "--name", name, "--device", "cuda"]
        seqgen(capsys, *train, "--set", f"order={2 + (name == 'b')}")
    seqgen(capsys, "sample", "the", "-m", "a+b", "--seed", 1, "--max-tokens", 9, "--device", "cuda")
    seqgen(capsys, "perplexity", "-m", "a+b", "--fit", home / "text.txt", "--device", "cuda")


def test_compiled_steps_learn_what_plain_ones_do(home, capsys):
    train = ["train", home / "text.txt", "--model", "transformer", "--seed", 1, "--steps", 30]
    given = [*small("transformer"), "--precision", "float32", "--device", "cuda"]
    (plain,) = seqgen(capsys, *train, *given, "--set", "compile=false", "--dropout", 0)
    (compiled,) = seqgen(capsys, *train, *given, "--set", "compile=true", "--dropout", 0)
    assert compiled["val_loss"] == pytest.approx(plain["val_loss"], rel=1e-3)


def test_bench_train(capsys):
    bench = ["train", "--seconds", 0.1, "--repeats", 1, "--device", "cuda"]
    for record in seqgen(capsys, *bench, by=run_benchmark):
        assert record["device"] == "cuda"
        assert min(record["ratio"], record["gflops"], record["peak_memory"]) > 0
