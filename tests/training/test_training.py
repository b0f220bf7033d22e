"""The gradient loop by itself: schedules, update rules, losses, clipping, carried states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import NEURAL, VOCAB, Case, first_of_each, ids, over, representatives
from training_runs import corpus_of, run_loop, settings_of

from seqgen.errors import UsageError
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import training_batches
from seqgen.text.corpus import Corpus
from seqgen.training.events import Validated
from seqgen.training.loop import Trainer
from seqgen.training.run import Budget, Hooks, Run

LSTM = Case("lstm", "plain", {})


def test_budgets():
    by_steps = Budget.of(settings_of(steps=40), 7)
    assert by_steps.share(Run(step=10)) == 0.25
    assert Budget.of(settings_of(steps=None, epochs=2.5), 7).steps == 18  # 17.5 and up
    by_time = Budget.of(settings_of(steps=None, minutes=2), 7)
    assert (by_time.steps, by_time.seconds) == (None, 120)
    # What comes before the first step counts, and 4 % and 1.5 seconds are left for the end.
    assert by_time.share(Run(step=1, seconds=28.425)) == pytest.approx(0.25)
    assert by_time.share(Run(step=1, seconds=25, setup_seconds=13.7)) == pytest.approx(0.25)
    short = Budget.of(settings_of(steps=None, minutes=0.1), 7)
    assert short.share(Run(step=1, seconds=2.7)) == pytest.approx(0.5)  # of nine tenths
    assert by_time.share(Run(step=1, seconds=500)) == 1.0
    assert by_time.share(Run(setup_seconds=500)) == 0.0  # one step is taken in any case
    assert by_time.share(Run(step=1, seconds=1, setup_seconds=500)) == 1.0
    with pytest.raises(UsageError, match="one budget"):
        TrainingConfig(steps=1, epochs=1)


def test_validations_in_passing_take_little_of_the_time():
    assert Budget(40, None).until_validation(cost=9.0) == 4  # steps
    assert Budget(3, None).until_validation(cost=0.0) == 1
    assert Budget(20, None).until_validation(cost=0.0, steps=0.85) == 9  # a tenth of the steps
    assert Budget(1000, None).until_validation(cost=0.0, steps=0.85) == 100
    long = Budget(1000, None).until_validation(cost=0.0, steps=4.0, is_long=True)
    assert long == 200  # a fiftieth
    assert Budget(20, None).until_validation(cost=0.0, steps=4.0, is_long=True) > 20
    five_minutes = Budget(None, 300.0)
    assert five_minutes.until_validation(cost=0.0) == 15.0
    assert five_minutes.until_validation(cost=0.1) == 15.0  # at most twenty
    assert five_minutes.until_validation(cost=1.0) == 50.0  # a fiftieth
    assert Budget(None, 9.0).until_validation(cost=0.0) > 9.0  # only the one at the end


def nats(model, tokens, targets, state=None):
    logits, state = model(torch.as_tensor(tokens)[None], state)
    return F.cross_entropy(logits[0], torch.as_tensor(targets), reduction="sum"), state


@over(representatives(first_of_each(NEURAL)))
def test_the_loss_of_padded_documents_is_that_of_a_loop_over_them(case, monkeypatch):
    model, corpus = case.loud(), corpus_of(1, 4, 2, 5, 3)
    wanted = count = 0
    with torch.no_grad():
        for begin, end in zip(corpus.starts, corpus.ends, strict=True):
            targets = corpus.tokens[begin:end].astype(np.int64)
            wanted += nats(model, [6, *targets[:-1]], targets)[0].item()
            count += targets.size
    _, (first,) = run_loop(monkeypatch, model, corpus, "line", batch_size=5, steps=1)
    assert first.train_loss == pytest.approx(wanted / count, rel=1e-12)
    assert first.tokens == count == 15


@pytest.mark.fast_for(
    "*-lstm-plain",
    "*-rnn-tanh",
    "*-window-plain",
    "False-hawk-default",
    "True-transformer-default",
    "True-grid-default",
    rest="slow",
)
@over(representatives(first_of_each(NEURAL)))
@pytest.mark.parametrize("reset", [False, True])
def test_the_state_is_carried_unless_it_is_reset(case, reset, monkeypatch):
    """With a rate of next to nothing the losses are those of one model over the whole rows.

    What a prediction sees in scoring, all of the row but for a transformer, it sees in training.
    """
    model, corpus = case.loud(), corpus_of(47)
    forgets = reset or model.window is not None
    rates = {"lr": 1e-30, "weight_decay": 0.0, "reset_state": reset, "steps": 7}
    trainer, events = run_loop(monkeypatch, model, corpus, **rates)
    states = [None] * 3
    for step, event in enumerate(events):
        batch, total = trainer.batches.batch(step), 0.0
        assert batch.fresh == (forgets or step % 3 == 0)  # a row has 15 tokens, a window 5
        for row in range(len(batch.tokens)):
            if batch.fresh:
                states[row] = None if model.window is not None else model.start(1)
            with torch.no_grad():
                loss, states[row] = nats(model, batch.tokens[row], batch.targets[row], states[row])
            total += loss.item()
        assert event.train_loss == pytest.approx(total / batch.count, rel=1e-10)
    assert len(events) == 7


def test_the_gradient_is_clipped_as_a_whole(monkeypatch):
    """AdamW's mean after one step is (1 - beta1) times the gradient used."""
    for limit in (0.01, 0.0):
        model, corpus = LSTM.loud(), corpus_of(30)
        trainer, events = run_loop(monkeypatch, model, corpus, steps=1, clip_norm=limit, beta1=0.5)
        again, batch = LSTM.loud(), trainer.batches.batch(0)
        logits, _ = again(torch.from_numpy(batch.tokens))
        F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).flatten()).backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in again.parameters()))
        assert events[0].grad_norm == pytest.approx(norm, rel=1e-10)
        scale = limit / norm if limit else 1.0
        states = trainer.rule.optimizers[0].state
        for (name, p), q in zip(model.named_parameters(), again.parameters(), strict=True):
            used = states[p]["exp_avg"] / 0.5
            torch.testing.assert_close(used, q.grad * scale, rtol=1e-4, atol=1e-12, msg=name)


def test_the_gradient_stops_at_the_window(monkeypatch):
    """Truncated backpropagation: no graph grows from step to step."""
    trainer, _ = run_loop(monkeypatch, LSTM.loud(), corpus_of(60), steps=4)
    past = trainer.carried.state.detach()
    assert not any(tensor.requires_grad for tensor in past.tensors())
    logits, _ = trainer.model(ids(3, 2), past)
    assert logits.requires_grad


@pytest.mark.slow
def test_training_learns(monkeypatch):
    tokens = np.tile(np.array([1, 2, 3, 1, 4], dtype=np.uint8), 40)
    corpus = Corpus(tokens, np.array([tokens.size]), start=6)
    for case in representatives(first_of_each(NEURAL)):
        _, events = run_loop(monkeypatch, case.build(), corpus, steps=80, lr=0.03, seq_len=8)
        assert events[0].train_loss == pytest.approx(math.log(VOCAB), abs=0.7)
        assert events[-1].train_loss < 0.4, case


def test_validations_fall_on_steps_and_the_best_is_kept():
    losses, kept, events = iter([3.0, 2.0, 2.5, 2.0, 1.5]), [], []
    hooks = Hooks(
        validate=lambda: next(losses),
        keep_best=lambda: kept.append(trainer.run.step),
        checkpoint=lambda: None,
        report=events.append,
    )
    model, corpus = LSTM.build(), corpus_of(50)
    batches = training_batches(corpus, "stream", True, 2, 5, 0)
    trainer = Trainer(model, batches, settings_of(steps=10, validate_every=2), hooks)
    run = trainer.train()
    assert kept == [2, 4, 10]
    assert (run.best_step, run.best_loss, run.last_loss) == (10, 1.5, 1.5)
    validated = [(e.step, e.best) for e in events if isinstance(e, Validated)]
    assert validated == [(2, True), (4, True), (6, False), (8, False), (10, True)]
    assert model.training


def test_a_timed_run_makes_the_validation_that_was_broken_off_when_it_is_resumed():
    """It was due at step 5 after half a minute, and Ctrl-C ended it."""

    class Validating(Exception):
        pass

    def validate():
        raise Validating

    hooks = Hooks(validate=validate)

    def trainer():
        batches = training_batches(corpus_of(50), "stream", True, 2, 5, 0)
        return Trainer(LSTM.build(), batches, settings_of(steps=None, minutes=1), hooks)

    broken_off, resumed = trainer(), trainer()
    broken_off.run.step, broken_off.run.seconds = 5, 30.0
    resumed.restore(*broken_off.snapshot())
    with pytest.raises(Validating):
        resumed.train()
    assert resumed.run.step == 5


def first_gradient(monkeypatch, model, corpus, documents="stream", step=0, **more):
    """Return the gradient of step `step`, unclipped, by name, and that step's Progress event."""
    rates = {"lr": 1e-30, "weight_decay": 0.0, "clip_norm": 0.0, "steps": step + 1, **more}
    trainer, events = run_loop(monkeypatch, model, corpus, documents, **rates)
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters()}, events[step]


@pytest.mark.fast_for("*-window-plain", "*-rnn-tanh", "*-lstm-plain", "stream-transformer-default")
@over(representatives(first_of_each(NEURAL)))
@pytest.mark.parametrize("documents", ["stream", "line"])
def test_accumulated_pieces_are_the_whole_batch(case, documents, monkeypatch):
    """Three pieces of seven rows, which are of unequal lengths with documents."""
    corpus = corpus_of(1, 9, 2, 5, 3, 8, 4, 6, 7, 2) if documents == "line" else corpus_of(150)
    results = [
        first_gradient(
            monkeypatch, case.loud(), corpus, documents, step=2, batch_size=7, accumulate=pieces
        )
        for pieces in (1, 3, 100)
    ]
    (whole, event), *others = results
    for gradient, other in others:
        assert other.train_loss == pytest.approx(event.train_loss, rel=1e-12)
        assert (other.tokens, other.step) == (event.tokens, event.step)
        for name, wanted in whole.items():
            torch.testing.assert_close(gradient[name], wanted, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.fast_for("rnn-tanh-*", "lstm-plain-line-3-*", "gru-after-stream-3-4")
@pytest.mark.parametrize(("k1", "k2"), [(1, 4), (3, 3), (3, 4), (3, 6), (3, 8), (4, 100)])
@pytest.mark.parametrize("documents", ["stream", "line"])
@over(
    [
        Case("rnn", "tanh", {"num_layers": 1}),
        Case("lstm", "plain", {}),
        Case("gru", "after", {}),
    ]
)
def test_the_gradient_goes_back_k2_tokens(case, documents, k1, k2, monkeypatch):
    """By definition: each token's past is read whole, and its graph cut k2 before the update."""
    corpus = corpus_of(23, 25, 24) if documents == "line" else corpus_of(72)
    for step in (0, 1, 3, 5):
        model = case.loud()
        given, event = first_gradient(
            monkeypatch, model, corpus, documents, step, batch_size=3, seq_len=k1, k2=k2
        )
        again = case.loud()
        windows = training_batches(corpus, documents, True, 3, k1, seed=3)
        read = [windows.batch(i) for i in range(step + 1)]
        first = max(i for i, batch in enumerate(read) if batch.fresh)
        tokens = torch.from_numpy(np.concatenate([b.tokens for b in read[first:]], axis=1))
        cut = max(0, tokens.shape[1] - k2)
        state = None
        if cut:
            with torch.no_grad():
                _, state = again(tokens[:, :cut])
        logits, _ = again(tokens[:, cut:], state)
        targets = torch.from_numpy(read[-1].targets)
        scored = logits[:, -targets.shape[1] :]
        loss = F.cross_entropy(scored.flatten(0, 1), targets.flatten(), reduction="sum")
        (loss / read[-1].count).backward()
        assert event.train_loss == pytest.approx(loss.item() / read[-1].count, rel=1e-9)
        for name, parameter in again.named_parameters():
            torch.testing.assert_close(given[name], parameter.grad, rtol=1e-7, atol=1e-10, msg=name)


def test_the_average_of_the_weights_is_validated_and_kept():
    """a <- d a + (1 - d) p with d = min(0.3, (1 + k) / (10 + k)), from the start on."""
    model, seen = LSTM.loud(), []
    weight = model.head.weight
    trained, averages = [], []
    average = weight.detach().clone()

    def look(kind):
        seen.append((kind, weight.detach().clone()))

    hooks = Hooks(
        validate=lambda: look("validated") or float(-len(seen)),
        keep_best=lambda: look("kept"),
        checkpoint=lambda: None,
        report=lambda event: None,
    )
    batches = training_batches(corpus_of(50), "stream", True, 2, 5, 0)
    config = settings_of(steps=6, validate_every=1, ema=0.3, lr=0.1)
    trainer = Trainer(model, batches, config, hooks)
    update = trainer.rule.step

    def step(rate):
        update(rate)
        trained.append(weight.detach().clone())

    trainer.rule.step = step
    trainer.train()
    for k, now in enumerate(trained):
        decay = min(0.3, (1 + k) / (10 + k))
        average = decay * average + (1 - decay) * now
        averages.append(average)
    assert [kind for kind, _ in seen] == ["validated", "kept"] * 6
    for k, wanted in enumerate(averages):
        torch.testing.assert_close(seen[2 * k][1], wanted)
        assert torch.equal(seen[2 * k][1], seen[2 * k + 1][1])
    assert torch.equal(weight, trained[-1])  # training goes on from its own weights


def test_label_smoothing_changes_the_gradient_and_no_reported_loss(monkeypatch):
    corpus = corpus_of(40)
    plain, event = first_gradient(monkeypatch, LSTM.loud(), corpus)
    given, smoothed = first_gradient(monkeypatch, LSTM.loud(), corpus, label_smoothing=0.2)
    assert smoothed.train_loss == pytest.approx(event.train_loss, rel=1e-12)
    again = LSTM.loud()
    batch = training_batches(corpus, "stream", True, 3, 5, seed=3).batch(0)
    logits, _ = again(torch.from_numpy(batch.tokens))
    wanted = 0.8 * F.one_hot(torch.from_numpy(batch.targets), VOCAB).double() + 0.2 / VOCAB
    (-(wanted * logits.log_softmax(-1)).sum() / batch.count).backward()
    for name, parameter in again.named_parameters():
        torch.testing.assert_close(given[name], parameter.grad, rtol=1e-9, atol=1e-12, msg=name)
        assert not torch.allclose(given[name], plain[name])


@pytest.mark.parametrize("kind", ["1", "2", "inf"])
def test_clipping_by_each_norm(kind, monkeypatch):
    corpus = corpus_of(30)
    gradient, event = first_gradient(monkeypatch, LSTM.loud(), corpus, clip_norm_type=kind)
    flat = torch.cat([g.flatten() for g in gradient.values()]).abs()
    norm = {"1": flat.sum(), "2": flat.square().sum().sqrt(), "inf": flat.max()}[kind].item()
    assert event.grad_norm == pytest.approx(norm, rel=1e-9)
    limit = {"clip_norm_type": kind, "clip_norm": norm / 4}
    clipped, _ = first_gradient(monkeypatch, LSTM.loud(), corpus, **limit)
    for name, g in gradient.items():
        torch.testing.assert_close(clipped[name], g / 4, rtol=1e-4, atol=1e-12)


def test_clipping_by_value(monkeypatch):
    corpus = corpus_of(30)
    gradient, _ = first_gradient(monkeypatch, LSTM.loud(), corpus)
    clipped, _ = first_gradient(monkeypatch, LSTM.loud(), corpus, clip_value=1e-3)
    for name, g in gradient.items():
        torch.testing.assert_close(clipped[name], g.clamp(-1e-3, 1e-3))
    assert any((g.abs() > 1e-3).any() for g in gradient.values())


def test_patience_ends_a_run_and_the_best_is_kept():
    losses, kept, events = iter([3.0, 2.0, 2.5, 2.1, 2.2, 1.0]), [], []
    hooks = Hooks(
        validate=lambda: next(losses),
        keep_best=lambda: kept.append(trainer.run.step),
        checkpoint=lambda: None,
        report=events.append,
    )
    batches = training_batches(corpus_of(50), "stream", True, 2, 5, 0)
    config = settings_of(steps=100, validate_every=2, patience=3)
    trainer = Trainer(LSTM.build(), batches, config, hooks)
    run = trainer.train()
    assert (run.stopped, run.step, run.worse) == ("patience", 10, 3)
    assert (run.best_step, run.best_loss, kept) == (4, 2.0, [2, 4])
