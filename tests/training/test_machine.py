"""What is measured on the machine: chosen by speed, kept, and the same ever after."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from seqgen import store
from seqgen.engines import arrays, precision, tensor_products
from seqgen.engines.arrays import Products
from seqgen.errors import SeqgenError
from seqgen.models.network import copy_network
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.settings.training import TrainingConfig
from seqgen.store import cache as kept
from seqgen.store import torch_models
from seqgen.store.cache import keep_measurement, kept_measurement
from seqgen.text.batches import Batches, training_batches
from seqgen.text.corpus import Corpus
from seqgen.training import choosing, deadline, speed
from seqgen.training.deadline import Deadline
from seqgen.training.events import Notice
from seqgen.training.resume import resume
from seqgen.training.train import train

CPU = torch.device("cpu")
LARGE = {"num_layers": 1, "hidden_size": 64, "batch_size": 32, "seq_len": 4}


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("so it goes on and on and ends\n" * 40)
    return path


@pytest.fixture(autouse=True)
def default_products(monkeypatch):
    monkeypatch.setattr(arrays._Settings, "products", Products())


@pytest.fixture(autouse=True)
def long_trials(monkeypatch):
    """As they are for users."""
    monkeypatch.setattr(speed, "LONG_TRIAL_SECONDS", 5.0)


@pytest.fixture(autouse=True)
def bf16_processor(monkeypatch):
    """Whatever processor runs the tests."""
    monkeypatch.setattr(precision, "_may_have_bf16", lambda: True)


def trained(text, **settings):
    """Train a step; return the resolved precision, and what was said of bf16."""
    said = []
    result = train(
        [text],
        architecture="lstm",
        name="x",
        overwrite=True,
        settings={**LARGE, "steps": 2, **settings},
        report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
        stop_after=1,
    )
    config = json.loads((Path(result.path) / "config.json").read_text())
    return config["training"]["precision"], [text for text in said if "bf16" in text]


def config_of(name):
    return store.find(name).config["training"]


def trained_with_rows(text, architecture="lstm", **settings):
    """Train a step in float32; return the resolved threads, and what was said of rows."""
    said = []
    settings = {"precision": "float32", "hidden_size": 8, "num_layers": 1, "seed": 1, **settings}
    if settings.get("minutes") is None:
        settings.setdefault("steps", 2)
    train(
        [text],
        architecture=architecture,
        name="x",
        overwrite=True,
        settings=settings,
        report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
        stop_after=1,
    )
    about_rows = [text.split(": ")[1] for text in said if "rows are divided" in text]
    return config_of("x")["row_threads"], about_rows


@pytest.mark.fast_for("budget0-*", rest="slow")
@pytest.mark.parametrize(
    ("times", "precision", "said"),
    [
        (1.96, "bf16", "training in bf16: bf16 is 1.96 times as fast as float32 here"),
        (1.11, "bf16", "training in bf16: bf16 is 1.11 times as fast as float32 here"),
        (1.09, "float32", "training in float32: bf16 is 1.09 times as fast as float32 here"),
    ],
)
@pytest.mark.parametrize("budget", [{"steps": 2}, {"steps": None, "epochs": 3}])
def test_auto_is_bf16_where_a_trial_finds_it_faster_by_a_tenth(
    text, times, precision, said, budget, monkeypatch
):
    monkeypatch.setattr(choosing, "bf16_speedup", lambda *_: (times, []))
    assert trained(text, **budget) == (precision, [said])
    # The answer is kept: a seed is to give the same weights tomorrow, and resuming asks no more.
    monkeypatch.setattr(choosing, "bf16_speedup", lambda *_: (3.05 - times, []))
    assert trained(text, **budget) == (precision, [said])
    resume("x")


@pytest.mark.parametrize("settings", [{"precision": "float32"}, {"hidden_size": 8}])
def test_what_is_given_or_small_is_not_tried(text, settings, monkeypatch):
    monkeypatch.setattr(choosing, "bf16_speedup", lambda *_: pytest.fail("tried"))
    assert trained(text, **settings) == ("float32", [])


def test_processors_without_instructions_for_bf16_try_nothing(text, monkeypatch):
    monkeypatch.setattr(precision, "_may_have_bf16", lambda: False)
    monkeypatch.setattr(choosing, "bf16_speedup", lambda *_: pytest.fail("tried"))
    assert trained(text) == ("float32", [])


def test_minutes_are_measured_in_the_precision_that_was_chosen(text, monkeypatch):
    seen = []
    monkeypatch.setattr(choosing, "bf16_speedup", lambda *_: (2.0, []))
    monkeypatch.setattr(
        choosing,
        "speeds_by_threads",
        lambda _, __, config, ___: seen.append(config.precision) or {1: 1e5},
    )
    chosen, _ = trained(text, steps=None, minutes=1)
    assert chosen == "bf16"
    assert set(seen) == {"bf16"}


@pytest.mark.parametrize("times", [2.0, 0.5])
def test_the_trial_of_bf16_also_measures_the_speed(text, times, monkeypatch):
    """With no time left for more, the size is chosen by it, not by the usual machine's speed."""
    speeds = {"bf16": 5e4, "float32": 5e4 / times}
    now = [0.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])

    def tried(model, batches, training, until):
        now[0] += 10
        return times, [(replace(training, precision=kind), speeds[kind]) for kind in speeds]

    monkeypatch.setattr(choosing, "bf16_speedup", tried)
    monkeypatch.setattr(choosing, "speeds_by_threads", lambda *_: pytest.fail("measured"))
    said = []
    train(
        [text],
        architecture="lstm",
        name="x",
        settings={**LARGE, "minutes": 1.0},
        report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
        stop_after=1,
    )
    enough = f"the budget is enough for up to {60 * max(speeds.values()):,.0f} tokens"
    assert any(enough in line for line in said)


def test_without_a_cache_the_trial_still_decides(text, tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "keep_measurement", lambda *_: None)
    monkeypatch.setattr(choosing, "bf16_speedup", lambda *_: (2.0, []))
    assert trained(text)[0] == "bf16"


@pytest.mark.parametrize("slow", ["bf16", "float32"])
def test_a_trial_compares_speeds_in_turn(slow, monkeypatch):
    """The fastest of each count: the first, which warm up, and any that something else slows."""
    asked = []
    now = iter(range(1000))
    monkeypatch.setattr(deadline.time, "monotonic", lambda: next(now) / 8)

    def measured(model, batches, config):
        assert config.minutes is not None and config.steps is None
        asked.append(config.precision)
        fast = 10.0 if config.precision == slow else 30.0
        return 1.0 if len(asked) in (1, 2, 3, 6) else fast

    monkeypatch.setattr(speed, "speed", measured)
    monkeypatch.setattr(speed, "_loss_gap", lambda *_: 0.0)
    found, _ = speed.bf16_speedup(*untrained(), choosing.TrainingConfig(steps=5), Deadline())
    assert found == pytest.approx(1 / 3 if slow == "bf16" else 3)
    assert asked == ["bf16", "float32"] * 4  # in 0.8 seconds of this clock


def test_a_trial_ends_after_a_step_of_each_where_steps_are_long(monkeypatch):
    now = iter(range(0, 1000, 7))
    monkeypatch.setattr(deadline.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(
        speed, "speed", lambda _, __, config: 5.0 if config.precision == "bf16" else 2.0
    )
    monkeypatch.setattr(speed, "_loss_gap", lambda *_: 0.0)
    found, measured = speed.bf16_speedup(*untrained(), choosing.TrainingConfig(steps=5), Deadline())
    assert found == 2.5
    assert [(way.precision, rate) for way, rate in measured] == [("bf16", 5.0), ("float32", 2.0)]


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


TIMED = {"steps": None, "minutes": 0.5}


def has_speeds(monkeypatch, speeds):
    """Have trials find these speeds, by number of threads."""
    monkeypatch.setattr(choosing, "speeds_by_threads", lambda *_: speeds)


def tries_nothing(monkeypatch):
    monkeypatch.setattr(choosing, "speeds_by_threads", lambda *_: pytest.fail("tried"))


@pytest.mark.parametrize(("times", "threads"), [(1.31, 2), (0.96, 2), (0.94, 1)])
def test_rows_are_divided_unless_a_trial_finds_it_slower(
    text, times, threads, two_threads, monkeypatch
):
    """The answer is kept in the model's settings, and resuming asks no more."""
    # Higher than a run's own speed, which is kept too.
    has_speeds(monkeypatch, {1: 1e8, 2: times * 1e8})
    said = trained_with_rows(text, **TIMED)
    about = f"{times:.2f} times as fast as dividing each operation"
    assert said == (threads, [about][: threads - 1])
    has_speeds(monkeypatch, {1: 100.0, 2: 10.0})  # as other work may slow a trial down
    assert trained_with_rows(text, **TIMED) == said
    tries_nothing(monkeypatch)
    resume("x", stop_after=2)
    assert config_of("x")["row_threads"] == threads


@pytest.mark.parametrize(("settings", "threads"), [({}, 1), ({"row_threads": 3}, 3)])
def test_rows_are_not_tried_in_short_runs_or_where_it_is_given(
    text, settings, threads, two_threads, monkeypatch
):
    tries_nothing(monkeypatch)
    assert trained_with_rows(text, **settings) == (threads, [])


def test_threads_that_are_given_are_measured_alone(text, two_threads, monkeypatch):
    has_speeds(monkeypatch, {1: 1e5})
    assert trained_with_rows(text, **TIMED, row_threads=1) == (1, [])


def test_one_thread_divides_nothing(text, monkeypatch):
    has_speeds(monkeypatch, {1: 1e5, 2: 2e5})
    assert trained_with_rows(text, **TIMED) == (1, [])


@pytest.mark.parametrize(("steps", "long"), [(1000, False), (10**6, True)])
def test_how_many_steps_are_worth_a_trial(text, steps, long, two_threads, monkeypatch):
    tried = []
    monkeypatch.setattr(choosing, "speeds_by_threads", lambda *_: tried.append(1) or {1: 1.0})
    trained_with_rows(text, steps=steps)
    assert bool(tried) == long


def test_a_run_that_was_faster_than_its_trial_raises_what_is_known(text, monkeypatch):
    has_speeds(monkeypatch, {1: 1e-3})
    trained_with_rows(text, **TIMED)
    found = [json.loads(path.read_bytes())["found"] for path in kept.measurements()]
    [[[threads, highest]]] = [each["speeds"] for each in found if "speeds" in each]
    assert threads == 1
    assert highest > 1


def test_ways_to_divide_are_measured_beside_each_other(two_threads, monkeypatch):
    asked = []

    def measured(model, batches, config):
        asked.append(config.row_threads)
        return 10.0 * config.row_threads

    monkeypatch.setattr(speed, "speed", measured)
    assert speed.speeds_by_threads(*untrained(), SHORT, Deadline()) == {1: 10.0, 2: 20.0}
    assert asked == [1, 2] * speed.LEAST_SLICES
    given = replace(SHORT, row_threads=1)
    assert speed.speeds_by_threads(*untrained(), given, Deadline()) == {1: 10.0}


def test_values_are_taken_until_the_highest_agree(monkeypatch):
    """A burst of other work slows some of them down, at the start or later."""
    values = [1.0, 5.0, 8.0, 9.0, 7.0, 9.1]
    left = iter(values)
    assert speed.highest([lambda: next(left)], Deadline()) == [9.1]
    assert next(left, None) is None


def test_what_diverges_in_bf16_trains_in_float32(monkeypatch):
    def diverges(*_):
        raise SeqgenError("training has diverged")

    monkeypatch.setattr(speed, "speed", diverges)
    found, _ = speed.bf16_speedup(*untrained(), choosing.TrainingConfig(steps=5), Deadline())
    assert speed.faster_precision(found) == "float32"


SHORT = TrainingConfig(minutes=1.0, seq_len=8, batch_size=4, lr=1e-2, optimizer="muon")


def untrained(rows: int = 4, window: int = 8) -> tuple[RecurrentLM, Batches]:
    """Return a small network with dropout, and the windows of a short text."""
    torch.manual_seed(0)
    model = RecurrentLM(LSTMConfig(vocab_size=9, hidden_size=16, num_layers=1, dropout=0.3))
    tokens = np.arange(12 * rows * window + 16) ** 2 % 9
    corpus = Corpus(tokens.astype(np.uint8), np.array([tokens.size]), start=1)
    return model, training_batches(corpus, "stream", True, rows, window, seed=0)


def test_the_first_steps_in_bf16_have_the_losses_of_those_in_float32(monkeypatch):
    """With the same dropout; what is asked of them is far more than rounding needs."""
    # As many steps whatever the machine does: the losses of long runs part.
    monkeypatch.setattr(speed, "_timed", lambda training, _: speed._of_steps(training, 20))
    assert abs(speed._loss_gap(*untrained(), SHORT)) < speed.MOST_LOSS_GAP / 2


def test_what_diverges_in_float32_too_says_nothing_about_bf16(monkeypatch):
    class Diverging:
        def __init__(self, *_):
            pass

        def train(self):
            raise SeqgenError("training has diverged")

    monkeypatch.setattr(speed, "_trainer", Diverging)
    assert speed._loss_gap(*untrained(), SHORT) == 0


@pytest.mark.parametrize(("rows", "window"), [(32, 64), (1, 2048)])
def test_trials_of_long_steps_end(rows, window, monkeypatch):
    """By a clock that knows a hundredth of a second a token in float32, so 20 seconds a step."""
    now = [0.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])

    def compute(embedding, inputs):
        now[0] += inputs[0].numel() / (300 if torch.is_autocast_enabled("cpu") else 100)

    model, batches = untrained(rows, window)
    model.embedding.register_forward_pre_hook(compute)
    fits = {"seq_len": window, "batch_size": rows, "precision": "float32"}
    training = replace(SHORT, **fits, minutes=0.2)
    found, _ = speed.bf16_speedup(model, batches, training, Deadline())
    assert found == pytest.approx(3)
    assert now[0] < 20
    began = now[0]
    speeds = speed.speeds_by_threads(model, batches, training, Deadline())
    assert max(speeds.values()) == pytest.approx(100)
    assert now[0] - began < 10
    run = speed._trainer(model, batches, training).train()
    assert (run.step, run.tokens) == (1, rows * window)


def test_first_steps_that_take_long_to_set_up_shorten_no_trial(monkeypatch):
    """The first of a process takes 2 seconds, and the next one half of one, whatever its tokens."""
    now, set_up = [0.0], iter([2.0, 0.5])
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])

    def compute(embedding, inputs):
        now[0] += next(set_up, 0.0) + inputs[0].numel() / 10_000

    model, batches = untrained(32, 64)
    model.embedding.register_forward_pre_hook(compute)
    training = replace(SHORT, seq_len=64, batch_size=32, precision="float32")
    assert speed.with_short_steps(model, batches, [training], Deadline()) is batches


def test_a_copy_of_a_model_shares_the_text_that_it_was_shown():
    model, _ = untrained()
    model.shown = np.arange(5)
    other = copy_network(model)
    assert other.shown is model.shown
    with torch.no_grad():
        other.head.weight.zero_()
    assert model.head.weight.any()


@pytest.mark.fast_for("1.00?-*", rest="slow")
@pytest.mark.parametrize(("worse", "taken"), [(1.004, True), (1.006, False), (math.inf, False)])
def test_bf16_is_not_taken_where_it_costs_loss(worse, taken, monkeypatch):
    """Here its losses are that much larger from the same weights on."""
    asked, losses_of = [], speed._losses

    def losses(model, batches, config):
        asked.append((config.precision, model.head.weight.clone()))
        found = losses_of(model, batches, replace(config, precision="float32"))
        return [(worse if config.precision == "bf16" else 1.0) * loss for loss in found]

    monkeypatch.setattr(speed, "_losses", losses)
    rates = {"bf16": 3.0, "float32": 1.0}
    monkeypatch.setattr(speed, "speed", lambda _, __, config: rates[config.precision])
    found, _ = speed.bf16_speedup(*untrained(), SHORT, Deadline())
    assert found == (3.0 if taken else 0.0)
    (first, exact), (second, rounded) = asked
    assert (first, second) == ("float32", "bf16")
    assert torch.equal(exact, rounded)


def test_losses_are_compared_only_where_bf16_is_faster(monkeypatch):
    monkeypatch.setattr(speed, "speed", lambda *_: 1.0)
    monkeypatch.setattr(speed, "_losses", lambda *_: pytest.fail("compared"))
    found, _ = speed.bf16_speedup(*untrained(), SHORT, Deadline())
    assert found == 1.0


def test_steps_use_what_was_measured_first_and_keep_to_it(monkeypatch):
    first = Products("threaded", "whole")
    monkeypatch.setattr(torch_models, "fastest_products", lambda: first)
    torch_models.choose_products(CPU)
    assert arrays._Settings.products == first
    monkeypatch.setattr(torch_models, "fastest_products", lambda: pytest.fail("measured again"))
    arrays.use_products(Products())
    torch_models.choose_products(CPU)
    assert arrays._Settings.products == first


def test_another_torch_or_number_of_threads_is_another_machine(monkeypatch):
    assert keep_measurement({"question": 1}, {"answer": 2}) == {"answer": 2}
    assert kept_measurement({"question": 1}) == {"answer": 2}
    assert kept_measurement({"question": 3}) is None
    for name, value in (("torch", "9.9"), ("threads", 77), ("processor", "of another maker")):
        facts = {**kept._machine(), name: value}
        with monkeypatch.context() as patched:
            patched.setattr(kept, "_machine", lambda facts=facts: facts)
            assert kept_measurement({"question": 1}) is None


def test_where_nothing_can_be_kept_steps_use_the_default(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(torch_models, "fastest_products", lambda: Products("threaded"))
    arrays.use_products(Products("threaded"))
    torch_models.choose_products(CPU)
    assert arrays._Settings.products == Products()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"found": {"one": "both"}}', '{"found": 3}'])
def test_a_damaged_answer_is_found_again_or_the_default(damage, home):
    torch_models.choose_products(CPU)
    (path,) = (home / "cache" / "machine").iterdir()
    path.write_text(damage)
    torch_models.choose_products(CPU)
    assert arrays._Settings.products.one in arrays.ONE_ROW
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_of_many_that_measure_at_once_all_keep_the_first_answer(home):
    start, answers = threading.Barrier(8), []

    def ask(number):
        start.wait()
        answers.append(keep_measurement({"question": 1}, {"answer": number})["answer"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert set(answers) == {kept_measurement({"question": 1})["answer"]}
    assert len(list((home / "cache" / "machine").iterdir())) == 1


def test_the_fastest_way_is_taken_if_it_is_so_by_a_tenth(monkeypatch):
    """By a clock that knows how long each way takes; the first is the default."""
    now = [0.0]
    monkeypatch.setattr(tensor_products.time, "perf_counter", lambda: now[0])

    def taking(seconds):
        def way(weight, bias):
            return lambda x: now.__setitem__(0, now[0] + seconds)

        return way

    weight = np.ones((2, 2))
    for times, wanted in (((1.0, 0.5), "b"), ((1.0, 0.95), "a"), ((1.0, 2.0), "a")):
        ways = dict(zip("ab", map(taking, times), strict=True))
        monkeypatch.setattr(tensor_products, "MAP_BUILDERS", ways)
        assert tensor_products._fastest("ab", weight, weight[0], rows=1) == wanted
    monkeypatch.undo()
    assert math.isfinite(tensor_products.time.perf_counter())
    assert isinstance(tensor_products.fastest_products(), Products)
