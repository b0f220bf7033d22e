"""The gradient loop by itself: schedules, update rules, losses, clipping, carried states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import NEURAL, VOCAB, Case, first_of_each, ids, over

from seqgen.configs import TrainingConfig
from seqgen.data.batches import training_batches
from seqgen.data.corpus import Corpus
from seqgen.errors import UsageError
from seqgen.training import loop
from seqgen.training.events import Progress, Validated
from seqgen.training.loop import Budget, Hooks, Run, Trainer
from seqgen.training.optimizers import Muon, Rule, orthogonalised
from seqgen.training.schedules import rate

LSTM = Case("lstm", "plain", {})


def settings_of(**more):
    return TrainingConfig(**{"steps": 4, "precision": "float64", **more})


@pytest.mark.parametrize(
    ("schedule", "progress", "wanted"),
    [
        ("linear", 0.0, 0.01),  # never quite nothing
        ("linear", 0.05, 0.5),
        ("linear", 0.1, 1.0),
        ("linear", 0.55, 0.6),  # half-way down from 1 to 0.2
        ("linear", 1.0, 0.2),
        ("cosine", 0.05, 0.5),
        ("cosine", 0.4, 0.2 + 0.8 * 0.75),  # a third of the way: (1 + cos 60) / 2
        ("cosine", 0.55, 0.6),
        ("cosine", 1.0, 0.2),
        ("constant", 0.05, 0.5),
        ("constant", 0.9, 1.0),
    ],
)
def test_schedules_by_hand(schedule, progress, wanted):
    config = settings_of(schedule=schedule, warmup=0.1, min_lr=0.2)
    assert rate(config, progress) == pytest.approx(wanted, abs=1e-12)


def test_a_schedule_without_warm_up_begins_at_its_peak():
    assert rate(settings_of(warmup=0.0), 0.0) == 1.0
    assert rate(settings_of(warmup=0.0), 1.0) == 0.0


def test_budgets():
    by_steps = Budget.of(settings_of(steps=40), 7)
    assert by_steps.share(Run(step=10)) == 0.25
    assert Budget.of(settings_of(steps=None, epochs=2.5), 7).steps == 18  # 17.5 and up
    by_time = Budget.of(settings_of(steps=None, minutes=2), 7)
    assert (by_time.steps, by_time.seconds) == (None, 120)
    assert by_time.share(Run(step=1, seconds=30)) == 0.25
    assert by_time.share(Run(step=1, seconds=500)) == 1.0
    with pytest.raises(UsageError, match="one budget"):
        TrainingConfig(steps=1, epochs=1)


def without_gradients(model, optimizer, **more):
    """Take one step with all gradients zero; return each parameter's share that is left."""
    rule = Rule(model, settings_of(optimizer=optimizer, **more))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    rule.step(0.5)
    return {n: (p.detach() / before[n]) for n, p in model.named_parameters()}


@over(first_of_each(NEURAL))
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_only_matrices_decay(case, optimizer):
    model = case.loud()
    hidden = {id(p) for p, _ in model.hidden_matrices()}
    left = without_gradients(model, optimizer, lr=0.2, muon_lr=0.4, weight_decay=0.3)
    for name, parameter in model.named_parameters():
        peak = 0.4 if optimizer == "muon" and id(parameter) in hidden else 0.2
        share = 1 - 0.5 * peak * 0.3 if parameter.ndim == 2 else 1.0
        torch.testing.assert_close(left[name], torch.full_like(left[name], share))


def test_adamw_is_its_equations():
    model = LSTM.loud()
    config = settings_of(lr=0.1, weight_decay=0.2, beta1=0.8, beta2=0.9, eps=1e-3)
    rule, generator = Rule(model, config), torch.Generator().manual_seed(0)
    wanted = {n: p.detach().clone() for n, p in model.named_parameters()}
    m = {n: torch.zeros_like(p) for n, p in wanted.items()}
    v = {n: torch.zeros_like(p) for n, p in wanted.items()}
    for t, share in enumerate((1.0, 0.5, 0.25), start=1):
        for name, parameter in model.named_parameters():
            g = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad, lr = g, 0.1 * share
            m[name] = 0.8 * m[name] + 0.2 * g
            v[name] = 0.9 * v[name] + 0.1 * g**2
            step = (m[name] / (1 - 0.8**t)) / ((v[name] / (1 - 0.9**t)).sqrt() + 1e-3)
            decayed = wanted[name] * (1 - lr * 0.2 * (parameter.ndim == 2))
            wanted[name] = decayed - lr * step
        rule.step(share)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name])


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8), (1, 5), (6, 1)])
def test_orthogonalised_singular_values(shape):
    torch.manual_seed(0)
    u, s, v = torch.linalg.svd(torch.randn(5, *shape, dtype=torch.float64), full_matrices=False)
    s = torch.logspace(0, -1.5, s.shape[-1], dtype=torch.float64).expand_as(s) * 37.0
    result = orthogonalised(u * s[:, None] @ v)
    inside = u.mT @ result @ v.mT  # the singular vectors stay, the values move
    values = inside.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.6
    assert values.max() < 1.3
    torch.testing.assert_close(inside, torch.diag_embed(values), rtol=0, atol=1e-8)


def test_orthogonalised_leaves_nothing_as_nothing():
    assert not orthogonalised(torch.zeros(2, 3, 4)).any()


def newton_schulz(g):
    x = g / (np.linalg.norm(g) + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


def test_muon_is_its_equations_gate_by_gate():
    rng = np.random.default_rng(0)
    shapes = [((12, 5), 3), ((8, 4), 2), ((4, 6), 1), ((12, 4), 3), ((9, 2), 1)]
    matrices = [
        (torch.nn.Parameter(torch.from_numpy(rng.normal(size=shape))), stacked)
        for shape, stacked in shapes
    ]
    muon = Muon(matrices, lr=0.1, momentum=0.9, weight_decay=0.5)
    wanted = [p.detach().numpy().copy() for p, _ in matrices]
    momentum = [np.zeros_like(w) for w in wanted]
    for _ in range(3):
        for i, (parameter, stacked) in enumerate(matrices):
            g = rng.normal(size=parameter.shape)
            parameter.grad = torch.from_numpy(g.copy())
            momentum[i] = 0.9 * momentum[i] + g
            update = g + 0.9 * momentum[i]
            gates = []
            for gate, own in zip(
                np.split(wanted[i], stacked), np.split(update, stacked), strict=True
            ):
                scale = 0.1 * math.sqrt(max(1, gate.shape[0] / gate.shape[1]))
                gates.append(gate * (1 - 0.1 * 0.5) - scale * newton_schulz(own))
            wanted[i] = np.concatenate(gates)
        muon.step()
    for (parameter, _), expected in zip(matrices, wanted, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=0, atol=1e-10)


def test_muon_has_the_hidden_matrices_and_adamw_the_rest():
    model = LSTM.build()
    muon, adamw = Rule(model, settings_of(optimizer="muon", lr=1e-3)).optimizers
    chosen = {id(p) for group in muon.param_groups for p in group["params"]}
    others = {id(p) for group in adamw.param_groups for p in group["params"]}
    assert chosen == {id(p) for layer in model.layers for p in (layer.weight_ih, layer.weight_hh)}
    assert others == {id(p) for p in model.parameters()} - chosen
    assert muon.param_groups[0]["lr"] == pytest.approx(5e-3)


def corpus_of(*lengths):
    return Corpus(ids(sum(lengths)).numpy().astype(np.uint8), np.cumsum(lengths), start=6)


def run_loop(monkeypatch, model, corpus, documents="stream", batch_size=3, seq_len=5, **more):
    """Train with every step logged; return the trainer and its Progress events."""
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    config = settings_of(batch_size=batch_size, seq_len=seq_len, **more)
    carry = model.carries_state and not config.reset_state
    batches = training_batches(corpus, documents, carry, batch_size, seq_len, seed=3)
    events = []
    hooks = Hooks(keep_best=lambda: None, checkpoint=lambda: None, report=events.append)
    trainer = Trainer(model, batches, config, hooks)
    trainer.train()
    return trainer, [event for event in events if isinstance(event, Progress)]


def nats(model, tokens, targets, state=None):
    logits, state = model(torch.as_tensor(tokens)[None], state)
    return F.cross_entropy(logits[0], torch.as_tensor(targets), reduction="sum"), state


@over(first_of_each(NEURAL))
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


@over(first_of_each(NEURAL))
@pytest.mark.parametrize("reset", [False, True])
def test_the_state_is_carried_unless_it_is_reset(case, reset, monkeypatch):
    """With a rate of next to nothing the losses are those of one model over the whole rows."""
    model, corpus = case.loud(), corpus_of(47)
    rates = {"lr": 1e-30, "weight_decay": 0.0, "reset_state": reset, "steps": 7}
    trainer, events = run_loop(monkeypatch, model, corpus, **rates)
    states = [None] * 3
    for step, event in enumerate(events):
        batch, total = trainer.batches.batch(step), 0.0
        for row in range(len(batch.tokens)):
            if batch.fresh or reset or not model.carries_state:
                states[row] = None
            with torch.no_grad():
                loss, states[row] = nats(model, batch.tokens[row], batch.targets[row], states[row])
            total += loss.item()
        assert event.train_loss == pytest.approx(total / batch.count, rel=1e-10)
    assert len(events) == 7


def test_the_gradient_is_clipped_as_a_whole(monkeypatch):
    """SGD is not there; AdamW's mean after one step is (1 - beta1) times the gradient used."""
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
    past = trainer.state.detach()
    assert not any(tensor.requires_grad for tensor in past.tensors())
    logits, _ = trainer.model(ids(3, 2), past)
    assert logits.requires_grad


def test_training_learns(monkeypatch):
    tokens = np.tile(np.array([1, 2, 3, 1, 4], dtype=np.uint8), 40)
    corpus = Corpus(tokens, np.array([tokens.size]), start=6)
    for case in first_of_each(NEURAL):
        _, events = run_loop(monkeypatch, case.build(), corpus, steps=120, lr=0.02, seq_len=8)
        assert events[0].train_loss == pytest.approx(math.log(VOCAB), abs=0.7)
        assert events[-1].train_loss < 0.25, case


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
