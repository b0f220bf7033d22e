"""Watching a run: the same result with and without it, and warnings that fire where they should."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from architectures import Case
from helpers_cli import known_architectures, needs, refusal
from places import CORPORA

from seqgen import presets, registry, store
from seqgen.cli import run
from seqgen.plugins.inspect.attention_figures import attention_figures
from seqgen.plugins.inspect.diagnose.distance import gradients_by_distance, windows
from seqgen.plugins.inspect.diagnose.events import Diagnosed
from seqgen.plugins.inspect.diagnose.layers import LayerFigures, units_of
from seqgen.plugins.inspect.diagnose.warnings import Warnings
from seqgen.plugins.inspect.diagnose.watch import LOOKS, TrainingWatch
from seqgen.settings.training import TrainingConfig
from seqgen.store.loading import load
from seqgen.tasks.language_modeling import LANGUAGE_MODELING
from seqgen.text.batches import training_batches
from seqgen.text.corpus import Corpus
from seqgen.training.events import Notice
from seqgen.training.loop import Trainer
from seqgen.training.run import Budget, Diverged, Hooks, Run
from seqgen.training.train import train

TEXT = "the cat sat on the mat and the dog sat on the log\n" * 40


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "cat.txt"
    path.write_text(TEXT)
    return path


def watched(model, records=False, **more):
    """Train on a repeating text; return the trainer and what the watch reported."""
    settings = {"steps": 40, "precision": "float64", "warmup": 0.0, "seq_len": 8, "batch_size": 4}
    config = TrainingConfig(**{**settings, **more})
    tokens = np.tile(np.array([1, 2, 3, 1, 4, 5], dtype=np.uint8), 60)
    corpus = Corpus(tokens, np.array([tokens.size]), start=6)
    batches = training_batches(corpus, "stream", model.carries_state, 4, 8, seed=3)
    events = []
    hooks = Hooks()
    trainer = Trainer(model, batches, config, hooks)
    hooks.listener = TrainingWatch(model, config, trainer.budget, events.append, records, corpus)
    try:
        trainer.train()
    except Diverged as error:
        events.append(Notice(text=str(error)))
    return trainer, events


def warnings_of(model, **more):
    _, events = watched(model, **more)
    return [event.text for event in events if isinstance(event, Notice)]


def small(architecture="lstm", **more):
    return Case(architecture, "plain", more).build()


def test_a_healthy_run_says_nothing():
    for architecture in ("lstm", "transformer"):
        assert warnings_of(small(architecture), lr=3e-3, optimizer="muon") == []


@pytest.mark.fast_for("lstm")
@pytest.mark.parametrize("architecture", ["lstm", "gru", "transformer"])
def test_a_rate_a_hundred_times_too_high_is_called_that(architecture):
    said = warnings_of(small(architecture), lr=0.4, optimizer="muon")
    assert sum("learning rate is too high" in line for line in said) == 1
    assert all("try" in line and "\n" not in line for line in said)


def test_a_rate_of_nothing_is_called_too_low():
    (line,) = warnings_of(small(), lr=1e-12)
    assert "learning rate is too low" in line


def test_dead_relus_are_seen():
    model = small("rnn", activation="relu", num_layers=1)
    with torch.no_grad():
        model.layers[0].bias.fill_(-100.0)
    said = warnings_of(model, lr=1e-3)
    assert sum("100% of the ReLUs of layers.0 are dead" in line for line in said) == 1


def test_an_exploding_net_without_clipping_is_seen_and_with_it_is_left_alone():
    def exploding():
        model = small("rnn", activation="relu", num_layers=1)
        with torch.no_grad():
            model.layers[0].weight_hh.mul_(4.0)
            model.layers[0].bias.fill_(1.0)
        return model

    said = warnings_of(exploding(), lr=1e-9, clip_norm=0.0)
    assert sum("the gradient explodes" in line for line in said) == 1
    assert not any("explodes" in line for line in warnings_of(exploding(), lr=1e-9))


@pytest.mark.parametrize(("norm", "clip_norm", "fires"), [
    (1001.0, 1.0, True), (999.0, 1.0, False), (1001.0, 5.0, False), (5001.0, 5.0, True),
    (999.0, 0.1, False),
])  # fmt: skip
def test_a_gradient_that_stays_enormous_before_clipping_is_seen(norm, clip_norm, fires):
    said = []
    warnings = Warnings(TrainingConfig(steps=99, clip_norm=clip_norm), said.append)
    for step in range(1, 41):  # twenty jumps among forty steps are no explosion
        warnings.step(Run(step=step), 1.0, norm if step % 2 else 1.0)
    assert said == []
    layers = [LayerFigures(layer=n, weight_norm=1.0, grad_norm=g, update_ratio=None)
              for n, g in (("embedding", 3.0), ("layers.0", 6.0), ("head", 2.0))]  # fmt: skip
    warnings.layers(Run(step=40), layers, 1.0)
    for step in range(41, 99):
        warnings.step(Run(step=step), 1.0, norm)
    assert len(said) == fires
    if fires:  # 36 / 49
        assert (
            "the gradient explodes" in said[0]
            and "73% of its square is that of layers.0" in said[0]
        )


def test_warnings_that_were_said_before_a_checkpoint_are_not_repeated():
    """And one that is half on its way there comes where it would have come."""
    config = TrainingConfig(steps=9, clip_norm=0.0)
    losses = [2.0] * 100 + [3.0] * 60
    norms = [1.0] * 120 + [500.0] + [1.0] * 39
    held_out = [2.0, 2.2, 2.2, 2.2]

    def said(stops, forget=False):
        lines = []
        warnings = Warnings(config, lines.append)
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            if step in stops:
                state = {} if forget else warnings.tensors()
                warnings = Warnings(config, lines.append)
                warnings.restore(state)
            warnings.step(Run(step=step), loss, norm)
            if step % 40 == 0:
                warnings.validation(held_out[step // 40])
        return lines

    whole = said([])
    assert len(whole) == 3
    for stop in (1, 15, 105, 121, 150, 159):
        assert said([stop, stop + 1]) == whole
    assert said([105], forget=True) != whole


def test_a_gradient_that_vanishes_on_its_way_down_is_seen():
    model = small("rnn", activation="sigmoid", num_layers=3, hidden_size=4)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight_ih.mul_(1e-5)
    said = warnings_of(model, lr=1e-6)
    assert sum("the gradient vanishes" in line for line in said) == 1


@pytest.mark.parametrize(("after", "why"), [(1.0, "overfits"), (3.0, "a smaller --lr")])
def test_a_rising_held_out_loss_is_blamed_on_what_the_training_loss_does(after, why):
    said = []
    warnings = Warnings(TrainingConfig(steps=1), said.append)
    for loss, held_out in ((2.0, 2.1), (after, 2.3), (after, 2.4), (after, 2.5)):
        for step in range(10):
            warnings.step(Run(step=step), loss, 1.0)
        warnings.validation(held_out)
    (line,) = [text for text in said if "held-out" in text]
    assert why in line and line.count("try") == 1


def test_a_rising_loss_and_a_rising_held_out_loss_are_said_once():
    said = []
    warnings = Warnings(TrainingConfig(steps=1), said.append, "label")
    for step in range(200):
        warnings.step(Run(step=step), 2.0 if step < 100 else 3.0, 1.0)
    for loss in (2.0, 1.9, 1.95, 2.1, 2.2, 2.3, 2.4):
        warnings.validation(loss)
    assert [line.split(":")[1] for line in said] == [" the loss rises", " the held-out loss rises"]
    assert all("nats/label" in line for line in said)
    said.clear()
    calm = Warnings(TrainingConfig(steps=1), said.append)
    for step in range(200):
        calm.step(Run(step=step), 4.0 * math.exp(-step / 50) + 0.2 * math.sin(step), 1.0)
    for loss in (2.0, 2.09, 2.0, 2.2, 2.2, 2.05, 2.2):
        calm.validation(loss)
    assert said == []


@pytest.mark.parametrize(("rise", "warned"), [(0.5, False), (2.0, True)])
def test_batches_whose_losses_differ_much_are_no_rise(rise, warned):
    """Of batches of sentences sorted by length, the loss may be 1.5 or 3 nats, in any order."""
    said = []
    warnings = Warnings(TrainingConfig(steps=1), said.append)
    for step in range(200):
        warnings.step(Run(step=step), 1.5 + step % 2 + (rise if step >= 100 else 0.0), 1.0)
    assert any("the loss rises" in line for line in said) is warned


@pytest.mark.fast_for("lstm", rest="slow")
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_training_is_the_same_bit_for_bit_with_and_without(architecture):
    weights = []
    for records_too in (False, True):
        torch.manual_seed(5)
        model = small(architecture, dropout=0.3)
        _, events = watched(model, records_too)
        weights.append([p.detach().clone() for p in model.parameters()])
        found = [event for event in events if isinstance(event, Diagnosed)]
        assert bool(found) == records_too
        assert not records_too or len(found) >= 20
    torch.manual_seed(5)
    plain = small(architecture, dropout=0.3)
    trainer, _ = watched(plain)
    unwatched = small(architecture, dropout=0.3)
    torch.manual_seed(5)
    unwatched = small(architecture, dropout=0.3)
    hooks = Hooks()
    Trainer(unwatched, trainer.batches, trainer.config, hooks).train()
    for other in (weights[1], list(plain.parameters()), list(unwatched.parameters())):
        assert all(torch.equal(a, b) for a, b in zip(weights[0], other, strict=True))


@pytest.mark.parametrize("steps", [7, 20, 97])
def test_a_resumed_run_is_looked_at_where_it_would_have_been(steps):
    """Wherever it was stopped."""

    def looked_at(begin, end):
        config = TrainingConfig(steps=steps)
        watch = TrainingWatch(None, config, Budget(steps, None), lambda event: None, True)
        return [step for step in range(begin, end) if watch._is_due(Run(step=step))]

    whole = looked_at(0, steps)
    assert whole[0] == 0 and len(whole) >= min(steps, LOOKS)
    for stop in range(1, steps):
        assert looked_at(0, stop) + looked_at(stop, steps) == whole


@pytest.mark.slow
def test_units_are_looked_at_only_where_somebody_asks(monkeypatch):
    """Warnings are about ReLUs: a network without them is asked once."""
    seen = []
    asked = lambda *how: seen.append(1) or units_of(*how)  # noqa: E731
    monkeypatch.setattr("seqgen.plugins.inspect.diagnose.watch.units_of", asked)
    looks = {}
    for name, logs in (("lstm", False), ("lstm", True), ("rnn", False)):
        seen.clear()
        watched(small(name, **({"activation": "relu"} if name == "rnn" else {})), logs)
        looks[name, logs] = len(seen)
    assert looks["lstm", False] == 1
    assert looks["rnn", False] == 4  # after 4, 8, 16 and 32 steps of 40
    assert looks["lstm", True] >= LOOKS


def test_the_usual_norm_is_computed_only_where_nothing_clips(monkeypatch):
    medians = []
    monkeypatch.setattr(
        "seqgen.plugins.inspect.diagnose.warnings.statistics.median",
        lambda x: medians.append(1) or 1.0,
    )
    for clip_norm, wanted in ((1.0, 0), (0.0, 20)):
        warnings = Warnings(TrainingConfig(steps=30, clip_norm=clip_norm), print)
        for step in range(30):
            warnings.step(Run(step=step), 1.0, 1.0)
        assert len(medians) == wanted


@pytest.mark.slow
def test_diagnose_logs_every_layer_and_ends_with_a_summary(text, tmp_path, capsys):
    arguments = ["train", text, "--steps", 30, "--hidden-size", 8, "--layers", 1, "--seed", 1]
    results = []
    for name, more in (("a", ["--diagnose"]), ("b", [])):
        assert run([*map(str, [*arguments, "--name", name, "--seq-len", 8, *more])]) == 0
        results.append(capsys.readouterr().err)
    assert "layers.0" in results[0] and "update ratio" in results[0]
    assert "update ratio" not in results[1]
    homes = [tmp_path / "home" / "models" / name for name in "ab"]
    logged = [json.loads(line) for line in (homes[0] / "metrics.jsonl").read_text().splitlines()]
    found = [record for record in logged if "layers" in record]
    assert len(found) >= 20
    assert [r["layer"] for r in found[0]["layers"]] == ["embedding", "layers.0", "head"]
    assert 1e-6 < found[-3]["layers"][1]["update_ratio"] < 0.3
    one, other = ((home / "model.safetensors").read_bytes() for home in homes)
    assert one == other


@pytest.mark.fast_for("rnn", rest="slow")
@pytest.mark.parametrize("model", ["rnn", "transformer"])
def test_the_records_of_a_run_end_with_what_diagnose_finds(model, text, tmp_path, capsys):
    """Of the same windows, on the last weights, which without validation are those stored."""
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")
    arguments = ["train", text, "--model", model, "--steps", 8, "--hidden-size", 8, "--layers", 1]
    arguments += ["--seq-len", 16, "--seed", 1, "--precision", "float32", "--val", "none"]
    picture = tmp_path / "reach.svg"
    more = ["--name", "seen", "--set", "ema=0", "--diagnose", "--plot", picture, "-q"]
    assert run([*map(str, [*arguments, *more])]) == 0
    assert "its bound" in picture.read_text() if model == "rnn" else picture.read_text()
    lines = (tmp_path / "home" / "models" / "seen" / "metrics.jsonl").read_text().splitlines()
    logged = [record for record in map(json.loads, lines) if "distances" in record]
    assert len(logged) == 8
    last = logged[-1]
    seen = load("seen", "cpu", "float64")
    ids = seen.tokenizer.encode(TEXT)
    corpus = Corpus(np.array(ids), np.array([len(ids)]), start=seen.tokenizer.encode("\n")[0])
    length = len(last["distances"])
    tokens, targets = map(torch.from_numpy, windows(corpus, length, 4))
    expected = gradients_by_distance(seen.model, tokens, targets[:, -1])
    assert length == (16 if model == "transformer" else 101)
    for record, one in zip(last["distances"], expected, strict=True):
        assert_close(record, one)
    if model == "rnn":
        weight = seen.model.layers[0].weight_hh.detach().numpy()
        radius = np.abs(np.linalg.eigvals(weight)).max()
        assert last["layers"][1]["spectral_radius"] == pytest.approx(radius, rel=1e-6)
        assert last["heads"] == []
    else:
        for record, head in zip(last["heads"], attention_figures(seen.model, tokens), strict=True):
            assert_close(record, head)


def assert_close(record, figures):
    """The same figures but for rounding, and missing where those are."""
    expected = dataclasses.asdict(figures)
    missing = {name for name, value in expected.items() if value is None}
    assert {name for name, value in record.items() if value is None} == missing
    for name in expected.keys() - missing:
        assert record[name] == pytest.approx(expected[name], rel=1e-9), name


TINY = {"hidden_size": 8, "num_heads": 2, "steps": 12, "seed": 1}
OF_TEXT = [
    name
    for name, row in registry.ARCHITECTURES.items()
    if row.task is LANGUAGE_MODELING and "ngram" not in name
]


def alarms(text, known, **chosen):
    said = []
    settings = {key: value for key, value in TINY.items() if key in (*known, "steps", "seed")}
    settings["precision"] = "float32"  # whether bf16 is faster would take seconds to measure
    report = lambda event: said.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    train([text], name="m", overwrite=True, settings=settings, report=report, **chosen)
    return [line for line in said if line.startswith("warning")]


@pytest.mark.fast_for("rnn", "lstm", rest="slow")
@pytest.mark.parametrize(
    "name", known_architectures(["rnn", "lstm", "gru", "transformer", "window"])
)
def test_no_recipe_raises_a_false_alarm(name, text):
    known = registry.architecture(name).load_config().fields()
    assert alarms(text, known, architecture=name) == []


@pytest.mark.fast_for("hmm", "window", "lstm", "mut1", "nas", "jordan", "grid", "transformer")
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OF_TEXT if not name.startswith("large")])
def test_no_other_recipe_raises_one_either(name, text):
    known = registry.architecture(name).load_config().fields()
    if not registry.architecture(name).load_model().counted:
        assert alarms(text, known, architecture=name) == []


@pytest.mark.fast_for("lectures-lstm", "gpt", "transformer-2017", "bert-tiny", "elmo", "ulmfit")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name == "awd-lstm" else pytest.mark.slow)
        for name in presets.PRESETS
    ],
)
def test_no_preset_raises_a_false_alarm(name):
    """On a text with thousands of words: a rate of 30 is too high for a vocabulary of ten."""
    text = CORPORA / "play.txt"
    row = registry.architecture(presets.preset(name).architecture)
    if row.task is LANGUAGE_MODELING and not row.load_model().counted:
        known = {"hidden_size"} & set(row.load_config().fields())
        assert alarms(text, known, preset=name) == []


def test_a_warning_is_no_record_of_a_step(text):
    said = []
    settings = {"hidden_size": 8, "steps": 12, "seed": 1, "lr": 1e-30, "muon_lr": 1e-30}
    train([text], architecture="rnn", name="m", settings=settings, report=said.append)
    assert any(isinstance(e, Notice) and "rate is too low" in e.text for e in said)
    lines = (store.find("m").path / store.METRICS).read_text().splitlines()
    assert lines and all("step" in json.loads(line) for line in lines)


@needs("labels")
def test_a_plot_without_figures_is_refused(text, capsys):
    assert "--plot is for --diagnose" in refusal(capsys, "train", text, "--plot", "a.svg")
    plot = ["--diagnose", "--plot", "a.svg", "--quiet"]
    for model in (["--task", "classify"], ["--model", "seq2seq"], ["--model", "ngram"]):
        said = refusal(capsys, "train", text, *model, *plot)  # before the text is read as such data
        assert "--plot draws how far gradients reach, which only networks that model text" in said


@pytest.mark.fast_for("seq2seq", rest="slow")
@pytest.mark.parametrize("architecture", ["seq2seq", "seq2seq-transformer"])
def test_models_of_pairs_are_watched_too(architecture, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{'ab'[n % 2]} {'cd'[n % 3 // 2]}\tx{n % 2}\n" for n in range(40)))
    asked = ["train", pairs, "--model", architecture, "--hidden-size", 8, "--steps", 5]
    assert run([*map(str, asked), "--diagnose", "--name", "p"]) == 0
    said = capsys.readouterr().err
    assert "encoder" in said and "head" in said and "warning" not in said
