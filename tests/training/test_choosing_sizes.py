"""Sizes by budget and text, from minutes on two cores to hours on a GPU, at made-up speeds."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
from helpers_cli import known_architectures, needs

from seqgen import registry
from seqgen.engines.memory_limit import parameter_count
from seqgen.settings import DataConfig
from seqgen.text.corpus import Corpus
from seqgen.text.reading import Survey
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.training import choosing
from seqgen.training.datasets.prepared import Prepared, VocabSizes
from seqgen.training.deadline import Deadline
from seqgen.training.events import Notice
from seqgen.training.plan import plan_of
from seqgen.training.train import RunRequest, prepare_run

CPU = torch.device("cpu")
ALPHABET = "".join(map(chr, range(32, 102)))
MB = 1_000_000
# Useful operations per second: a step takes six for each parameter and token. Two cores train an
# LSTM of 2 x 256 on 10,000 tokens/s in float32; one GPU does a thousand times as much.
CORES, CORES_BF16, GPU = 6.5e10, 2.2e11, 1e14
FASTEST = 1e7


class Measured:
    """Stands for the measurement of a trial, at so many operations per second."""

    def __init__(self, operations, tokens=None, too_large=()):
        self.operations, self.tokens, self.too_large = operations, tokens or {}, too_large
        self.sizes = []

    def __call__(self, trial):
        model = trial.plan.model
        size = model["num_layers"], model["hidden_size"]
        self.sizes.append(size)
        if size in self.too_large:
            raise torch.OutOfMemoryError("no room")
        shape = trial.plan.model_config(trial.prepared.vocab_sizes, trial.training.seq_len)
        count = parameter_count(trial.plan.model_class, shape)
        speed = min(FASTEST, self.operations / (6 * count)) if self.operations else 0.0
        return self.tokens.get(size, 60 * trial.training.minutes * speed)


def text_of(tokens):
    """Return a text of so many characters, which takes no memory."""
    corpus = Corpus(np.broadcast_to(np.uint8(5), tokens), np.array([tokens]), start=1)
    facts = Survey(characters=tokens, bytes=tokens, lines=1)
    tokenizer = CharTokenizer.train([ALPHABET])
    return Prepared(None, facts, None, tokenizer, corpus, None, Survey(), DataConfig())


def chosen(monkeypatch, architecture, tokens, measured, **given):
    """Return the chosen settings of model and training, and what was said."""
    given, minutes = {"precision": "float32", **given}, given["minutes"]
    trial = choosing.SpeedTrial
    monkeypatch.setattr(trial, "measure", lambda trial: {1: measured(trial) / (60 * minutes)})
    monkeypatch.setattr(choosing, "speed_ratio", lambda one, other, deadline: one() / other())
    said = []
    report = lambda event: said.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    plan = plan_of(architecture, None, given, {}, given.keys())
    plan = choosing.choose_size(plan, text_of(int(tokens)), CPU, report, Deadline())
    return {**plan.training.to_dict(), **plan.model}, said


def shape_of(settings):
    return settings["num_layers"], settings["hidden_size"]


def sizes_of(architecture):
    return registry.architecture(architecture).load_config().sizes


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_large_sizes_need_four_tokens_for_each_parameter_and_two_of_text(architecture):
    """The rule of docs/evidence/experiments.md, from the first size on that it is about."""
    row = registry.architecture(architecture)
    config_class, from_text = row.load_config(), 3e6
    shapes = [size for size in config_class.sizes if size.text >= from_text]
    assert len(shapes) >= 3
    for size in shapes:
        model = {k: v for k, v in size.settings.items() if k in config_class.fields()}
        window = {"window": size.settings["seq_len"]} if "seq_len" in size.settings else {}
        config = config_class(vocab_size=71, **window, **model)
        count = parameter_count(row.load_model(), config)
        assert size.tokens == pytest.approx(4 * count, rel=0.05)
        assert size.text == pytest.approx(2 * count, rel=0.05)


@pytest.mark.parametrize("architecture", known_architectures(["lstm", "transformer", "hawk"]))
def test_sizes_stand_from_the_most_demanding_to_the_least(architecture):
    sizes = sizes_of(architecture)
    for larger, smaller in itertools.pairwise(sizes):
        assert (larger.tokens, larger.text) >= (smaller.tokens, smaller.text)
        assert shape_of(larger.settings) != shape_of(smaller.settings)


LSTM_SIZES = [shape_of(size.settings) for size in sizes_of("lstm")]


@pytest.mark.parametrize("fitting", [*LSTM_SIZES, None])
def test_the_largest_size_that_the_time_is_enough_for(monkeypatch, fitting):
    """Where none fits it is the smallest."""
    place = LSTM_SIZES.index(fitting) if fitting else len(LSTM_SIZES)
    needed = [size.tokens or 1.6e6 for size in sizes_of("lstm")]
    tokens = [0.9 * need for need in needed[:place]] + [1.1 * need for need in needed[place:]]
    tokens[-1] = max(tokens)  # no larger model is faster
    measured = Measured(0, dict(zip(LSTM_SIZES, tokens, strict=True)))
    settings, (said, *_) = chosen(monkeypatch, "lstm", 20 * MB, measured, minutes=1, batch_size=32)
    assert shape_of(settings) == (fitting or LSTM_SIZES[-1])
    layers, width = shape_of(settings)
    enough = measured.tokens[layers, width]
    size = f"num_layers {layers}, hidden_size {width}, embedding_size 64"
    fast = "head_factor 4, weight_decay 0.1, final_weight_decay 0, muon_momentum 0.9"
    start = rf"lstm with {size}, dropout 0, {fast}; "
    rest = rf"the budget is enough for up to {round(enough):,} tokens, [\d,.]+ passes over the text"
    assert re.fullmatch(start + rest, said)


@pytest.mark.fast_for("lstm-*", "*-wanted9", "*-wanted13", rest="slow")
@pytest.mark.parametrize(
    ("architecture", "minutes", "text", "operations", "wanted"),
    [
        ("lstm", 5, 1 * MB, CORES, (2, 256)),
        ("lstm", 60, 1 * MB, CORES, (2, 256)),
        ("lstm", 5, 10 * MB, CORES, (2, 256)),
        ("lstm", 20, 10 * MB, CORES_BF16, (2, 384)),
        ("lstm", 60, 10 * MB, CORES_BF16, (2, 512)),
        ("lstm", 60, 100 * MB, CORES, (2, 384)),
        ("lstm", 60, 1000 * MB, GPU, (3, 512)),
        ("transformer", 5, 1 * MB, CORES, (4, 128)),
        ("transformer", 60, 1 * MB, GPU, (4, 128)),
        ("transformer", 60, 10 * MB, CORES, (4, 192)),
        ("transformer", 60, 11 * MB, CORES_BF16, (6, 256)),
        ("transformer", 60, 100 * MB, GPU, (8, 512)),
        ("transformer", 60, 1000 * MB, CORES, (4, 192)),
        ("transformer", 60, 1000 * MB, GPU, (12, 768)),
    ],
)
def test_an_hour_and_a_gpu_are_used(monkeypatch, architecture, minutes, text, operations, wanted):
    measured = Measured(operations)
    settings, _ = chosen(monkeypatch, architecture, 0.9 * text, measured, minutes=minutes)
    assert shape_of(settings) == wanted
    assert settings["hidden_size"] % settings.get("num_heads", 1) == 0


def test_what_would_take_minutes_to_measure_is_not_measured(monkeypatch):
    """On two cores a step of the largest transformers takes longer than all of the choice."""
    measured = Measured(CORES)
    chosen(monkeypatch, "transformer", 900 * MB, measured, minutes=5, batch_size=8)
    assert set(measured.sizes) == {(4, 128)}


def test_what_does_not_fit_into_memory_is_left_out(monkeypatch):
    measured = Measured(GPU, too_large=[(12, 768)])
    settings, _ = chosen(monkeypatch, "transformer", 900 * MB, measured, minutes=60, batch_size=8)
    assert shape_of(settings) == (8, 512)
    assert (settings["seq_len"], settings["num_heads"]) == (512, 8)


def test_given_windows_and_heads_stay(monkeypatch):
    given = {"minutes": 60, "num_heads": 16, "seq_len": 64, "batch_size": 8}
    settings, _ = chosen(monkeypatch, "transformer", 900 * MB, Measured(GPU), **given)
    assert shape_of(settings) == (12, 768)
    assert (settings["seq_len"], settings["num_heads"]) == (64, 16)


@pytest.mark.fast_for("lstm", rest="slow")
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_rows_grow_on_a_gpu_and_the_rate_at_most_doubles(monkeypatch, architecture):
    """Each row more is for nothing there, until steps would be too few."""

    class Parallel(Measured):
        def __call__(self, trial):
            return super().__call__(trial) * trial.training.batch_size / 2**12

    settings, _ = chosen(monkeypatch, architecture, 900 * MB, Parallel(GPU), minutes=60)
    recipe = registry.architecture(architecture).load_config().recipe
    assert settings["batch_size"] > 8 * recipe["batch_size"]
    assert settings["lr"] == pytest.approx(2 * recipe["lr"])


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        (2, []),
        (4, ["about 100 passes, 3 minutes here"]),
        (60, ["about 100 passes, 3 minutes here"]),
    ],
)
def test_a_text_that_more_minutes_would_only_repeat_is_said_to_be_used_up(
    monkeypatch, minutes, said
):
    """150,000 tokens a pass and 5 million a minute."""
    tokens = dict.fromkeys(LSTM_SIZES, 5000000.0 * minutes)
    measured = Measured(0, tokens)
    _, told = chosen(monkeypatch, "lstm", 150_000, measured, minutes=minutes)
    found = [line for line in told if "used up" in line]
    assert len(found) == len(said)
    assert all(what in line for what, line in zip(said, found, strict=True))


def test_seconds_are_said_where_a_text_is_used_up_sooner(monkeypatch):
    measured = Measured(0, dict.fromkeys(LSTM_SIZES, 1e8))
    _, told = chosen(monkeypatch, "lstm", 100_000, measured, minutes=5)
    (line,) = [line for line in told if "used up" in line]
    assert "after about 100 passes, 30 seconds here: more minutes would hardly help" in line


@pytest.mark.parametrize(
    "given",
    [{"hidden_size": 128}, {"embedding_size": 32}, {"tie_weights": True}, {"input": "onehot"}],
)
def test_the_embedding_is_narrow_only_where_nothing_given_decides_about_it(monkeypatch, given):
    settings, _ = chosen(monkeypatch, "lstm", MB, Measured(CORES), minutes=5, **given)
    assert settings.get("embedding_size") == given.get("embedding_size")


@pytest.mark.parametrize(("vocabulary", "narrow"), [(70, 64), (512, 64), (513, None)])
def test_only_small_vocabularies_have_narrow_embeddings(vocabulary, narrow):
    sizes = registry.architecture("gru").load_config().sizes_for(vocabulary, set())
    assert {size.settings.get("embedding_size") for size in sizes} == {narrow}


@pytest.mark.parametrize(
    ("architecture", "given"),
    [
        pytest.param("elmo", {}, marks=needs("labels")),
        ("seq2seq", {"hidden_size": 96, "tie_weights": True}),
        ("seq2seq", {"hidden_size": 96, "encoder": "none"}),
    ],
)
def test_settings_that_rule_out_every_size_keep_the_other_defaults(architecture, given):
    # Characters: recurrent models of so few tokens have narrow embeddings by default.
    plan = plan_of(architecture, None, given, {}, given.keys())
    (size,) = choosing._allowed_sizes(plan, text_of(MB))
    assert size.settings == {}
    plan.model_config(VocabSizes(), plan.training.seq_len)


@pytest.mark.parametrize(
    ("given", "width"),
    [
        ({"hidden_size": 96}, 256),
        ({"hidden_size": 360}, 960),
        ({"hidden_size": 384}, 1024),
        ({"hidden_size": 512}, 1280),  # stored models have 1,368
        ({"hidden_size": 640}, 1792),
        ({"hidden_size": 296, "activation": "gelu"}, 1280),
        ({"hidden_size": 512, "ffn_size": 1368}, 1368),
        ({"hidden_size": 512, "ffn_size": None}, 1368),
    ],
)
def test_large_feed_forward_layers_of_new_models_are_multiples_of_256(given, width):
    plan = plan_of("transformer", None, given, {}, given.keys())
    config = plan.model_config(VocabSizes(), 16)
    assert config.feed_forward_size == width


def test_stored_models_keep_the_width_of_their_feed_forward_layers():
    config_class = registry.architecture("transformer").load_config()
    stored = config_class(vocab_size=1, window=16, hidden_size=512)
    assert stored.feed_forward_size == 1368


@pytest.mark.parametrize(
    ("share", "asked", "wanted"),
    [
        (1.01, {}, "transformer"),
        (1.01, {"val": 0.2, "memory": "8G"}, "transformer"),
        (0.99, {}, "lstm"),
        (1.01, {"lr": 0.01}, "lstm"),
        (1.01, {"num_layers": 2}, "lstm"),
        (1.01, {"documents": "line"}, "lstm"),
        (1.01, {"architecture": "lstm"}, "lstm"),
        (1.01, {"parameters": 100_000}, "lstm"),
    ],
)
def test_the_default_for_a_large_text_is_a_transformer_that_trains_long_enough(
    monkeypatch, tmp_path, share, asked, wanted
):
    """With a budget in minutes, where nothing that depends on the architecture is given."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 500)
    tokens = share * choosing.TRANSFORMER_FROM_TOKENS["transformer"]
    monkeypatch.setattr(choosing.SpeedTrial, "known_speeds", {1: tokens / 60})
    monkeypatch.setattr(choosing, "LARGE_TEXT", 9_000)

    def ready(**asked):
        asked = {"architecture": "auto", "precision": "float32", **asked}
        request = RunRequest.of([tmp_path / "text.txt"], **asked)
        return prepare_run(request, CPU, lambda event: None)

    chosen = ready(minutes=1.0, **asked)
    assert chosen.plan.architecture == wanted
    adds_ngrams = "architecture" not in asked
    assert (chosen.training.with_ngram is not None) == adds_ngrams
    assert ready(steps=1_000_000).plan.architecture == "lstm"
    monkeypatch.setattr(choosing, "LARGE_TEXT", 11_000)
    assert ready(minutes=1.0).plan.architecture == "lstm"
