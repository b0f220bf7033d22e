"""Whole runs on a small text: resuming bit for bit, what is kept, what is written down."""

from __future__ import annotations

import json
import math
import shutil
import signal
from pathlib import Path

import pytest
import torch
from architectures import NEURAL, representatives
from helpers_cli import needs
from safetensors.torch import load_file
from training_runs import assert_same, both_ways, everything, settings_for

from seqgen import registry, store
from seqgen.errors import SeqgenError, UsageError
from seqgen.scoring.perplexity import perplexity
from seqgen.store import StoredModel
from seqgen.store.loading import load
from seqgen.tasks.language_modeling import LANGUAGE_MODELING
from seqgen.training import loop, validating
from seqgen.training.events import Notice, Progress, Validated
from seqgen.training.optimizers import OPTIMIZERS
from seqgen.training.resume import resume
from seqgen.training.train import train
from seqgen.training.validations import TextValidation

# Regularisers of matrices that read the past.
PAST = "state_dropout", "weight_drop"


# What is trained by gradients, and so has a state to go on from.
TRAINED = [
    name
    for name, row in registry.ARCHITECTURES.items()
    if row.task is LANGUAGE_MODELING and not row.load_model().counted
]


REPRESENTATIVES = {case.architecture for case in representatives(NEURAL)}
# A recurrent cell has no part in what an optimiser keeps: beyond a representative, one rule does.
RESUMED = [
    (name, optimizer)
    for name in TRAINED
    for optimizer in OPTIMIZERS
    if optimizer == "muon" or name in REPRESENTATIVES
]


@pytest.mark.fast_for("rnn-sgd", "lstm-muon", "transformer-adamw", rest="slow")
@pytest.mark.parametrize(("name", "optimizer"), RESUMED)
def test_resuming_is_bit_for_bit(name, optimizer, text):
    """With dropout, in pieces, with an average of the weights, and in another folder."""
    more = {"accumulate": 2, "ema": 0.9, "momentum": 0.9, "label_smoothing": 0.1}
    both_ways(text, name, [3], optimizer=optimizer, validate_every=2, **more)


@pytest.mark.fast_for("rnn-sgd", rest="slow")
@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_resuming_plainly_is_bit_for_bit(name, optimizer, text):
    both_ways(text, name, [3, 4], optimizer=optimizer)


@pytest.mark.fast_for("lstm-*", rest="slow")
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("lstm", ["layers.0.0", "layers.0.1", "layers.1.0", "layers.1.1"]),
        pytest.param("window", ["tokens"], marks=needs("window")),
    ],
)
def test_the_state_is_saved_by_field_name_and_read_by_number(name, fields, text):
    """Version 0.1.0 saved the tensors of the carried state by number, in their order."""
    settings = settings_for(name)
    train([text], architecture=name, name="whole", settings=settings)
    train([text], architecture=name, name="part", settings=settings, stop_after=3)
    part = store.find("part")
    tensors, facts = part.read_checkpoint()
    assert sorted(key for key in tensors if key.startswith("state.")) == [
        f"state.{field}" for field in fields
    ]
    old = {f"state.{number}": tensors.pop(f"state.{field}") for number, field in enumerate(fields)}
    part.write_checkpoint(tensors | old, facts)
    resume(part.path)
    assert_same(store.find("whole"), part)


@pytest.mark.fast_for("stream", rest="slow")
@pytest.mark.parametrize("documents", ["stream", "line"])
def test_resuming_with_a_gradient_over_several_windows(documents, text):
    both_ways(text, "gru", [2, 5], k2=14, steps=8, documents=documents)


@pytest.mark.slow
def test_resuming_while_layers_thaw_at_their_own_rates(text):
    both_ways(text, "lstm", [2, 4], unfreeze=0.8, layer_decay=0.4)


@pytest.mark.fast_for("lstm", rest="slow")
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_resuming_with_documents_epochs_and_several_stops(name, text):
    more = {"steps": None, "epochs": 2, "documents": "line", "batch_size": 6}
    both_ways(text, name, [1, 4, 5], **more)


@pytest.mark.slow
def test_resuming_in_bf16_with_the_state_in_bf16(text):
    both_ways(text, "gru", [3], precision="bf16")


@pytest.mark.slow
def test_resuming_with_rows_divided_among_threads(text):
    both_ways(text, "lstm", [3], row_threads=2)


EVERYTHING = {
    "variational": True,
    "word_dropout": 0.1,
    "output_dropout": 0.3,
    "state_dropout": 0.2,
    "update_dropout": 0.2,
    "zoneout": 0.1,
    "zoneout_memory": 0.2,
    "weight_drop": 0.3,
    "batch_norm": True,
    "activation_penalty": 2.0,
    "temporal_penalty": 1.0,
}


@pytest.mark.fast_for("lstm-without1")
@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("lstm", ()),
        ("lstm", ("variational",)),
        pytest.param("mingru", ("zoneout_memory", *PAST), marks=needs("more_cells")),
    ],
)
def test_resuming_with_every_regulariser(name, without, text):
    more = {key: value for key, value in EVERYTHING.items() if key not in without}
    both_ways(text, name, [3], validate_every=2, **more)


def test_resuming_without_validation(text):
    both_ways(text, "rnn", [2, 3], val="none")


def test_resuming_after_the_folder_and_the_text_have_moved(text, tmp_path):
    settings = settings_for("lstm")
    train([text], name="whole", settings=settings)
    train([text], name="part", settings=settings, stop_after=3)
    elsewhere = tmp_path / "else where" / "moved"
    shutil.copytree(store.find("part").path, elsewhere)
    store.remove(store.find("part"))
    moved = text.rename(tmp_path / "other.txt")
    with pytest.raises(SeqgenError, match="is gone; give --data FILE"):
        resume(elsewhere)
    assert resume(elsewhere, data=[moved]).steps == 7
    assert_same(store.find("whole"), StoredModel(elsewhere))


def test_a_validation_is_not_lost_where_a_run_stops(text, monkeypatch):
    """The best score may be that of the very step at which the run is cut short."""
    monkeypatch.setattr(TextValidation, "quick", lambda self: next(figures))
    for name, stop in (("whole", None), ("part", 2)):
        figures = iter([1.0, 2.0, 3.0, 4.0])
        settings = settings_for("rnn", validate_every=2)
        train([text], architecture="rnn", name=name, settings=settings, stop_after=stop)
        if stop:
            resume(name)
        assert everything(store.find(name))[2]["best_step"] == 2
    assert_same(store.find("whole"), store.find("part"))


def test_a_run_validates_where_that_takes_a_tenth_of_the_steps(text, monkeypatch):
    """By numbers of tokens, so that a resumed run does as well."""

    def validated_at(name):
        lines = (store.models_folder() / name / store.METRICS).read_text().splitlines()
        return [record["step"] for record in map(json.loads, lines) if "val_loss" in record]

    settings = settings_for("rnn", steps=20, seq_len=8, batch_size=8, validate_every=None)
    # A text of 160 tokens takes longer to write than these steps take.
    steps_per_epoch = 20 / train([text], architecture="rnn", name="small", settings=settings).epochs
    assert validated_at("small") == [20]
    monkeypatch.setattr(validating, "SAMPLE_TOKENS", 10)
    seen = []
    score = TextValidation.quick
    monkeypatch.setattr(TextValidation, "quick", lambda self: seen.append(self) or score(self))
    both_ways(text, "rnn", [5], **settings)
    # Reading costs a third of training; a token that is written, as much as ten that are read.
    prepared = seen[0].prepared
    tokens_per_step = prepared.train.scored / steps_per_epoch
    every = math.ceil(10 * (prepared.val.scored + 100) / (3 * tokens_per_step))
    assert 2 < every <= 10
    assert validated_at("whole") == validated_at("moved") == sorted({*range(every, 21, every), 20})


def test_another_text_is_refused_unless_wanted(text, tmp_path):
    train([text], name="part", settings=settings_for("rnn"), stop_after=3)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("goes", "ends"))
    with pytest.raises(SeqgenError, match="is not the text part was trained on"):
        resume("part", data=[other])
    assert resume("part", data=[other], changed_data=True).steps == 7


@pytest.mark.fast_for("Progress-2", "Validated-15")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", [Progress, Validated])
def test_an_interrupt_leaves_a_run_that_goes_on(kind, number, text, monkeypatch):
    """Whenever it comes: after a step, or while a validation runs."""
    monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 0.0)
    settings = settings_for("lstm", validate_every=2)
    train([text], name="whole", settings=settings)

    def interrupt(event):
        if isinstance(event, kind) and event.step in (3, 4):
            signal.raise_signal(number)

    before = signal.getsignal(number)
    result = train([text], name="part", settings=settings, report=interrupt)
    assert signal.getsignal(number) is before
    assert result.stopped == "interrupted"
    assert result.val_loss is not None  # of step 2, in passing
    assert load("part").model.vocab_size
    resume("part")
    assert_same(store.find("whole"), store.find("part"))


def test_a_finished_run_says_so_and_goes_on_with_a_longer_budget(text):
    done = train([text], name="a", settings=settings_for("rnn"))
    events = []
    assert resume("a", report=events.append) == done
    assert any(isinstance(e, Notice) and "has finished" in e.text for e in events)
    assert resume("a", settings={"steps": 9}).steps == 9
    with pytest.raises(UsageError, match="cannot change lr"):
        resume("a", settings={"lr": 1.0})


@pytest.mark.fast_for("longer0", rest="slow")
@pytest.mark.parametrize("longer", [{"steps": 1000}, {"minutes": 100.0}])
def test_a_far_longer_budget_does_not_warm_up_again(longer, text, monkeypatch):
    """Warm-up was a tenth of twenty steps; all of them are no tenth of the longer budget."""
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    how = {"steps": 20, "warmup": 0.1, "schedule": "constant"}
    train([text], name="m", settings={**settings_for("rnn"), **how})
    resume("m", settings=longer, stop_after=25)
    logged = map(json.loads, (store.find("m").path / store.METRICS).read_text().splitlines())
    rates = [record["lr"] for record in logged if "lr" in record]
    assert rates[0] < max(rates) and len(rates) == 25 and {*rates[3:]} == {max(rates)}


def test_a_resumed_run_was_created_when_it_began(text, monkeypatch):
    times = iter(f"2026-01-0{day}" for day in range(1, 9))
    monkeypatch.setattr(store, "now", lambda: next(times))
    train([text], name="a", settings=settings_for("rnn"), stop_after=3)
    created = store.find("a").record["created"]
    resume("a")
    assert store.find("a").record["created"] == created


@pytest.mark.parametrize(
    ("first", "spent"),
    [
        ({"steps": 7}, {"steps": 7}),
        ({"epochs": 2}, {"epochs": 1.5}),
        ({"minutes": 0.01}, {"minutes": 0.005}),
    ],
)
def test_a_budget_that_is_spent_is_no_longer_one(first, spent, text):
    """It is refused before anything is written down."""
    train([text], name="a", settings=settings_for("rnn", **{"steps": None, **first}))
    before = store.find("a").config
    for more in (spent, first, {"keep": 2}):
        with pytest.raises(UsageError, match=r"has spent .* already; give a longer budget"):
            resume("a", settings=more)
    assert store.find("a").config == before


def test_the_random_numbers_of_others_are_left_alone(text):
    torch.manual_seed(11)
    wanted = torch.rand(3)
    torch.manual_seed(11)
    train([text], settings=settings_for("rnn"))
    assert torch.equal(torch.rand(3), wanted)


# A loss of 1e15 is a number, and as lost as NaN; a transformer's norms can hide it.
BREAKING = [
    *((name, math.inf) for name in ("gru", "lstm", "transformer")),
    *((name, 1e15) for name in ("gru", "lstm")),
]


@pytest.mark.fast_for(
    "gru-inf-adamw-none", "lstm-*-muon-none", "transformer-inf-muon-0.1", "lstm-inf-adamw-0.1"
)
@pytest.mark.parametrize("val", ["0.1", "none"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(("name", "broken"), BREAKING)
def test_a_run_that_diverges_ends_in_one_line(name, optimizer, val, broken, text, monkeypatch):
    """The update of the third step breaks the weights; nothing may be saved after the second."""

    def rate(config, share, number, warmed):
        return broken if number > 1 else 1e-3

    monkeypatch.setattr(loop, "rate", rate)
    monkeypatch.setattr(loop, "LOG_SECONDS", math.inf)  # a record would show the broken rate
    more = {"optimizer": optimizer, "checkpoint_every": 1, "val": val}
    with pytest.raises(SeqgenError, match="diverged after step 3") as caught:
        train([text], architecture=name, name="bad", settings=settings_for(name, **more))
    assert "\n" not in str(caught.value)
    stored = store.find("bad")
    assert stored.read_checkpoint()[1]["run"]["step"] == 2
    with torch.no_grad():
        logits, _ = load("bad").model(torch.tensor([[5, 6, 7]]))
    assert logits.abs().max() < 100
    for line in (stored.path / store.METRICS).read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_budget_of_time_ends_in_time(text):
    result = train([text], settings=settings_for("lstm", steps=None, minutes=0.02))
    assert result.stopped == "minutes"
    assert result.steps > 3
    assert 0.6 < result.seconds < 1.8  # of 1.2, on a machine that may be busy


@pytest.mark.fast_for("window-*", "rnn-stream", "lstm-line", "transformer-stream")
@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("name", [name for name in TRAINED if name in REPRESENTATIVES])
def test_the_final_loss_is_that_of_perplexity(name, documents, text):
    result = train([text], architecture=name, settings=settings_for(name, documents=documents))
    loaded = load(result.name)
    held_out = (Path(result.path) / store.VALIDATION).read_text()
    figures = perplexity(loaded, [held_out])
    assert result.val_loss == pytest.approx(figures.nll_nats / figures.tokens, abs=1e-12)
    assert result.val_bits_per_char == pytest.approx(figures.bits_per_char, abs=1e-12)
    assert result.val_bits_per_byte == pytest.approx(figures.bits_per_byte, abs=1e-12)
    assert figures.tokens == len(held_out)  # an end stands for each line's newline
    assert loaded.stored.record["result"]["val_loss"] == result.val_loss


def test_without_validation_the_last_weights_are_kept(text):
    result = train([text], name="a", settings=settings_for("gru", val="none"))
    assert result.val_loss is result.val_bits_per_char is None
    weights, checkpoint, _ = everything(store.find("a"))
    assert store.find("a").validation_text is None
    for name, tensor in weights.items():
        assert torch.equal(tensor, checkpoint[f"model.{name}"])


def test_the_best_weights_are_kept_and_not_the_last(tmp_path):
    """What is learned here is wrong of the held-out text, the more so the longer it goes on."""
    learned, held_out = tmp_path / "a.txt", tmp_path / "b.txt"
    learned.write_text("ab" * 200)
    held_out.write_text("aabb" * 40)
    files, losses = {}, {}

    def report(event):
        if isinstance(event, Validated):
            losses[event.step] = event.val_loss
            (weights,) = store.models_folder().glob(f"*/{store.WEIGHTS}")  # hidden at first
            files[event.step] = weights.read_bytes()

    more = {"val": str(held_out), "validate_every": 4, "lr": 0.05, "warmup": 0.0, "steps": 60}
    train([learned], name="m", settings=settings_for("lstm", **more), report=report)
    best = min(losses, key=losses.get)
    assert 4 <= best < 60
    assert (store.find("m").path / store.WEIGHTS).read_bytes() == files[best]
    weights, checkpoint, run = everything(store.find("m"))
    assert (run["best_step"], run["best_loss"]) == (best, losses[best])
    assert not torch.equal(weights["head.weight"], checkpoint["model.head.weight"])


def test_the_same_seed_gives_the_same_model_and_another_another(text):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train([text], name=name, settings=settings_for("lstm", seed=seed))
    a, b, c = (load_file(store.find(n).path / store.WEIGHTS) for n in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINED)
def test_real_text_is_learned(name, shared_data):
    """A quarter of Shakespeare is worth more than counting all of its pairs of letters."""
    path = shared_data("tinyshakespeare.txt")
    pairs = train([path], architecture="ngram", settings={"order": 2, "val": "0.01"})
    settings = {"epochs": 0.25, "hidden_size": 64, "seed": 1, "val": "0.01"}
    settings |= {"seq_len": 32, "batch_size": 16, "precision": "float32"}
    result = train([path], architecture=name, settings=settings)
    assert result.val_loss < pairs.val_loss - 0.1
