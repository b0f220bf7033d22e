"""`--parameters`: the width at which a model has as many parameters as are asked for."""

from __future__ import annotations

import contextlib
import json

import pytest
import torch
from helpers_cli import records, refusal
from places import STORED

from seqgen import registry, store
from seqgen.settings import UsageError
from seqgen.training import choosing, width_search
from seqgen.training.datasets.prepared import VocabSizes
from seqgen.training.plan import plan_of, preset_of
from seqgen.training.width_search import TOLERANCE, prepare_width_search

TEXT = STORED / "tiny.txt"
# Vectors of words have no hidden layer, and so no width of one.
TRAINED = [
    f"{name}-classifier" if row.is_encoder else name
    for name, row in registry.ARCHITECTURES.items()
    if not row.load_model().counted and "hidden_size" in row.load_config().fields()
]


def planned(architecture, settings=(), preset=None, config=()):
    settings, config = dict(settings), dict(config)
    beneath = preset_of(preset, architecture, config)
    return plan_of(architecture, beneath, settings, config, settings.keys())


def with_parameters(plan, *arguments):
    return width_search.with_parameters(prepare_width_search(plan, ()), *arguments)


def built_count(plan, sizes, seq_len):
    return plan.model_class(plan.model_config(sizes, seq_len)).parameter_count()


@pytest.mark.fast_for("window", "rnn", "lstm", "nas", "transformer", "seq2seq", "bert")
@pytest.mark.parametrize("architecture", TRAINED)
def test_every_architecture_gets_its_nearest_width(architecture):
    """The oracle builds real models at the neighbouring widths."""
    sizes = VocabSizes(target=23)
    if registry.architecture(architecture).task.takes_targets:
        sizes = VocabSizes(target=23, source=19)
    given = prepare_width_search(planned(architecture), ()).with_given({"hidden_size": 24})
    wanted = round(1.01 * built_count(given, sizes, 16))
    plan = with_parameters(planned(architecture), wanted, sizes, 16)
    width = plan.model["hidden_size"]
    reached = built_count(plan, sizes, 16)
    assert abs(reached - wanted) <= TOLERANCE * wanted
    others = []
    for further in (*range(width - 8, width), *range(width + 1, width + 9)):
        with contextlib.suppress(UsageError):  # the number of heads does not divide it
            others.append(built_count(plan.with_given({"hidden_size": further}), sizes, 16))
    assert others
    assert all(abs(reached - wanted) <= abs(other - wanted) for other in others)


def test_the_count_by_hand():
    """An LSTM of H units with an embedding of H: 5 H + 2 (8 H^2 + 4 H) + 5 H + 5."""
    plan = with_parameters(planned("lstm"), 6_000, VocabSizes(target=5), 16)
    by_width = {h: 5 * h + 2 * (8 * h * h + 4 * h) + 5 * h + 5 for h in range(1, 99)}
    assert plan.model["hidden_size"] == min(by_width, key=lambda h: abs(by_width[h] - 6_000)) == 19


def test_counting_draws_nothing():
    before = torch.get_rng_state()
    with_parameters(planned("transformer"), 3_000_000, VocabSizes(target=23), 16)
    assert torch.equal(before, torch.get_rng_state())


def test_a_preset_and_a_file_give_everything_but_the_width():
    words = VocabSizes(target=100)
    plan = with_parameters(planned(None, preset="awd-lstm"), 3_000_000, words, 70)
    assert plan.model["embedding_size"] == plan.model["last_size"] == 400
    assert plan.model["num_layers"] == 3
    assert built_count(plan, words, 70) == pytest.approx(3_000_000, rel=TOLERANCE)
    file = {"model": {"hidden_size": 7, "num_layers": 3}}
    plan = with_parameters(planned("gru", config=file), 50_000, words, 16)
    assert plan.model["num_layers"] == 3 and plan.model["hidden_size"] > 30


def test_counts_that_no_width_has_name_the_nearest_two():
    sizes = VocabSizes(target=23)
    with pytest.raises(UsageError) as refused:
        with_parameters(planned("transformer"), 8_000, sizes, 16)
    assert "8,000 parameters; the nearest are" in str(refused.value)
    assert "(hidden_size 8)" in str(refused.value) and "(hidden_size 16)" in str(refused.value)
    with pytest.raises(UsageError, match=r"hidden_size 1\) and .*hidden_size 2\)"):
        with_parameters(planned("rnn"), 1, sizes, 16)
    with pytest.raises(UsageError, match="hidden_size 1,048,576"):
        with_parameters(planned("rnn"), 10**15, sizes, 16)
    tied = {"tie_weights": True, "embedding_size": 10}
    with pytest.raises(UsageError, match=r"nearest is [\d,]+ \(hidden_size 10\)"):
        with_parameters(planned("gru", tied | {"num_layers": 1}), 50_000, sizes, 16)


def test_the_width_follows_the_heads():
    """Six heads do not divide the default width, which nobody asked for."""
    plan = with_parameters(
        planned("transformer", {"num_heads": 6}), 700_000, VocabSizes(target=23), 16
    )
    assert plan.model["hidden_size"] % 12 == 0


def test_the_record_has_what_was_asked_for(capsys):
    (result,) = records(
        capsys,
        *("train", TEXT, "--model", "rnn", "--parameters", "3k", "--name", "small"),
        *("--steps", "1", "--seed", "1", "--precision", "float32"),
    )
    assert result["parameters"] == pytest.approx(3_000, rel=TOLERANCE)
    assert store.find("small").config["model"]["num_layers"] == 2


def test_a_budget_in_minutes_chooses_everything_but_the_width(capsys, monkeypatch):
    monkeypatch.setattr(choosing.SpeedTrial, "known_speeds", {1: 1e6})
    monkeypatch.setattr(choosing, "speed_ratio", lambda first, second, deadline: 1.0)
    (result,) = records(
        capsys,
        *("train", TEXT, "--model", "gru", "--parameters", "5k", "--minutes", "0.001"),
        *("--precision", "float32", "--seed", "1", "--name", "timed"),
    )
    assert result["parameters"] == pytest.approx(5_000, rel=TOLERANCE)
    assert store.find("timed").config["model"]["dropout"] > 0.1  # chosen for the passes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--parameters", "3k", "--hidden-size", "8"], "--parameters or --hidden-size, not both"),
        (["--parameters", "3k", "--set", "hidden_size=8"], "--parameters or --hidden-size"),
        (["--parameters", "3k", "--model", "ngram"], "ngram is counted, and has no width"),
        (["--parameters", "few"], "must be a whole number"),
        (["--parameters", "20", "--model", "gru"], "the nearest are"),
        (["--parameters", "3k", "--resume", "latest"], "--parameters has no meaning with --resume"),
    ],
)
def test_bad_requests_are_one_line(arguments, said, capsys):
    assert said in refusal(capsys, "train", TEXT, *arguments)


def test_a_fine_tuned_model_has_its_width(capsys):
    lstm = TEXT.parent / "models" / "lstm-char"
    line = refusal(capsys, "train", TEXT, "--init-from", lstm, "--parameters", "3k")
    assert "--parameters is fixed by --init-from" in line


def test_positions_count_with_the_window_of_the_run(capsys, tmp_path):
    """Learned positions have a row a token of the window, which a short text shortens."""
    short = tmp_path / "short.txt"
    short.write_text("ab\n" * 40)
    (result,) = records(
        capsys,
        *("train", short, "--model", "transformer", "--set", "positions=learned", "--steps", "1"),
        *(
            "--seq-len",
            "4000",
            "--parameters",
            "22k",
            "--name",
            "learned",
            "--seed",
            "1",
            "--precision",
            "float32",
        ),
    )
    config = json.loads((store.find("learned").path / "config.json").read_text())
    assert config["model"]["window"] < 200
    assert result["parameters"] == pytest.approx(22_000, rel=TOLERANCE)
