"""Settings: their bounds, what is read of a text, and what is refused."""

import re

import numpy as np
import pytest
from architectures import RECURRENT
from helpers_cli import needs, refusal
from places import STORED

from seqgen import registry
from seqgen.settings import (
    Bounds,
    DataConfig,
    UsageError,
    parse_count,
    resolve,
    setting,
)
from seqgen.settings.training import TrainingConfig


def test_bounds_are_said_as_they_are():
    assert str(Bounds(low=1, high=1000)) == "from 1 to 1,000"
    assert str(Bounds(above=0, below=1)) == "more than 0 and less than 1"
    assert 1 in Bounds(low=1, high=1) and 1 not in Bounds(above=1) and 1 not in Bounds(below=1)
    with pytest.raises(
        UsageError, match=r"^x must be at most 5, not 11111111111111111111... .400 char"
    ):
        Bounds(high=5).check("x", int("1" * 400))
    assert setting("doc", 1, low=1).metadata["bounds"] == Bounds(low=1)


def test_every_number_that_can_be_set_has_bounds():
    """What a person may write there is known, so that help and docs can say it."""
    models = [row.load_config() for row in registry.ARCHITECTURES.values()]
    for kind in (TrainingConfig, DataConfig, *models):
        for name, field in kind.fields().items():
            if re.search(r"\b(int|float)\b", str(field.type)):
                assert field.metadata["bounds"] != Bounds(), name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("30000", 30_000),
        ("3e4", 30_000),
        ("3E+4", 30_000),
        ("100k", 100_000),
        ("1.5M", 1_500_000),
        ("0.0012M", 1_200),
        (".5k", 500),
        ("2B", 2_000_000_000),
    ],
)
def test_counts_are_read(text, number):
    assert parse_count("--parameters", text) == number


@pytest.mark.parametrize("text", ["", "0", "-3", "1.5", "k", "3e", "1e4x", "nan", "1,000", "1e-3"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(UsageError, match="--parameters must be a whole number"):
        parse_count("--parameters", text)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nesterov": True}, "nesterov needs momentum"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "no dampening"),
        ({"optimizer": "sgdm"}, "optimizer must be one of sgd, adagrad"),
        ({"schedule": "triangle"}, "schedule must be one of constant, inverse_time"),
        ({"clip_norm_type": "3"}, "clip_norm_type must be one of 1, 2, inf"),
        ({"k2": 3, "seq_len": 4}, "k2 must be at least seq_len, 4, not 3"),
        ({"ema": 1.0}, "ema must be at least 0 and less than 1"),
        ({"accumulate": 0}, "accumulate must be at least 1"),
    ],
)
def test_wrong_settings_are_named(more, message):
    with pytest.raises(UsageError, match=message):
        TrainingConfig(**more)


def test_numbers_of_numpy_are_numbers():
    config = TrainingConfig(minutes=np.int32(3), lr=np.float32(0.5), seed=np.int64(7))
    assert (config.minutes, config.lr, config.seed) == (3.0, 0.5, 7)
    assert [type(x) for x in (config.minutes, config.lr, config.seed)] == [float, float, int]
    for wrong in (np.float64(0.5), np.bool_(True), np.array([1, 2]), np.float32("nan")):
        with pytest.raises(UsageError, match="seed must be a whole number"):
            TrainingConfig(seed=wrong)


def test_each_schedule_has_its_own_warm_up_and_end():
    assert TrainingConfig().warmup == 0.02 and TrainingConfig().min_lr == 0.0
    slanted = TrainingConfig(schedule="slanted_triangular")
    assert (slanted.warmup, slanted.min_lr) == (0.1, 1 / 32)
    assert TrainingConfig(schedule="inverse_time").warmup == 0.0
    assert TrainingConfig(schedule="inverse_time", warmup=0.3).warmup == 0.3


@pytest.mark.parametrize("architecture", RECURRENT)
def test_a_setting_of_another_cell_is_refused_in_one_line(architecture):
    configs = {name: registry.architecture(name).load_config() for name in RECURRENT}
    groups = [configs[architecture], TrainingConfig, DataConfig]
    known = {name for group in groups for name in group.fields()}
    foreign = {name for config in configs.values() for name in config.fields()} - known
    for name in foreign:
        with pytest.raises(UsageError, match=f"{architecture} has no setting '{name}'") as refused:
            resolve({name: 1}, architecture, groups)
        assert "\n" not in str(refused.value)
    nearly = next(iter(configs[architecture].fields()))[:-1]
    with pytest.raises(UsageError, match=f"did you mean '{nearly}"):
        resolve({nearly: 1}, architecture, groups)


@pytest.mark.parametrize(
    ("architecture", "name", "said"),
    [
        pytest.param(
            "gru",
            "forget_gate=false",
            "forget_gate is for --model lstm and elmo, not gru (seqgen",
            marks=needs("labels"),
        ),
        pytest.param(
            "lstm",
            "depth=3",
            "depth is for --model rhn, not lstm",
            marks=needs("more_cells"),
        ),
        ("lstm", "num_kv_heads=2", "num_kv_heads is for --model transformer"),
        pytest.param(
            "lstm",
            "num_heads=2",
            " is for --model transformer, seq2seq-transformer, bert and others, not lstm",
            marks=needs("labels"),
        ),
        pytest.param(
            "ngram",
            "hidden_size=9",
            " is for --model window, rnn, gru and others, not ngram",
            marks=needs("window"),
        ),
    ],
)
def test_the_refusal_says_which_cell_has_the_setting(architecture, name, said, capsys):
    text = STORED / "tiny.txt"
    assert said in refusal(capsys, "train", text, "--model", architecture, "--set", name)
