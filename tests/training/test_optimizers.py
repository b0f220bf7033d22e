"""Update rules and schedules against their equations, by hand and on the lectures' problem."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from architectures import NEURAL, Case, first_of_each, over
from places import ROOT
from torch import nn

from seqgen.models.network import hidden_matrices
from seqgen.settings.training import TrainingConfig
from seqgen.training.optimizers import DECAYS, OPTIMIZERS, Muon, UpdateRule, orthogonalise, rate

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
    assert rate(config, progress, 0) == pytest.approx(wanted, abs=1e-12)


def test_a_schedule_without_warm_up_begins_at_its_peak():
    assert rate(settings_of(warmup=0.0), 0.0, 0) == 1.0
    assert rate(settings_of(warmup=0.0), 1.0, 0) == 0.0


def without_gradients(model, optimizer, **more):
    """Take one step with all gradients zero; return each parameter's share that is left."""
    rule = UpdateRule(model, settings_of(optimizer=optimizer, **more))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    rule.step(0.5)
    return {n: (p.detach() / before[n]) for n, p in model.named_parameters()}


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_what_is_prepared_of_the_weights_is_prepared_anew_after_a_step(optimizer):
    """Otherwise the samples along the way are all of the first weights."""
    model = LSTM.loud()
    rule = UpdateRule(model, settings_of(optimizer=optimizer))
    copy = model.prepared(lambda: model.head.weight.detach().clone())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    rule.step(1.0)
    again = model.prepared(lambda: model.head.weight.detach().clone())
    assert not torch.equal(copy, again)
    assert torch.equal(again, model.head.weight)


@over(first_of_each(NEURAL))
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_only_matrices_decay(case, optimizer):
    model = case.loud()
    hidden = {id(p) for p, _ in hidden_matrices(model)}
    left = without_gradients(model, optimizer, lr=0.2, muon_lr=0.4, weight_decay=0.3)
    for name, parameter in model.named_parameters():
        peak = 0.4 if optimizer == "muon" and id(parameter) in hidden else 0.2
        share = 1 - 0.5 * peak * 0.3 if parameter.ndim >= 2 else 1.0  # a kernel is matrices
        torch.testing.assert_close(left[name], torch.full_like(left[name], share))


@pytest.mark.parametrize(("final", "share"), [(1.0, 0.3), (0.2, 0.18), (0.0, 0.15)])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_weight_decay_falls_with_the_rate(optimizer, final, share):
    """At half the peak it is halfway between 0.3 and its final share of that."""
    more = {"lr": 0.2, "muon_lr": 0.2, "weight_decay": 0.3, "final_weight_decay": final}
    left = without_gradients(LSTM.loud(), optimizer, **more)
    for value in left.values():
        wanted = 1 - 0.5 * 0.2 * share if value.ndim >= 2 else 1.0
        torch.testing.assert_close(value, torch.full_like(value, wanted))


def test_adamw_is_its_equations():
    model = LSTM.loud()
    config = settings_of(lr=0.1, weight_decay=0.2, beta1=0.8, beta2=0.9, eps=1e-3)
    rule, generator = UpdateRule(model, config), torch.Generator().manual_seed(0)
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
    result = orthogonalise(u * s[:, None] @ v)
    inside = u.mT @ result @ v.mT  # the singular vectors stay, the values move
    values = inside.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.6
    assert values.max() < 1.3
    torch.testing.assert_close(inside, torch.diag_embed(values), rtol=0, atol=1e-8)


def test_orthogonalised_leaves_nothing_as_nothing():
    assert not orthogonalise(torch.zeros(2, 3, 4)).any()


def on_singular_values(g):
    """The iterations as what they do to singular values, the vectors staying as they are."""
    u, s, v = np.linalg.svd(g, full_matrices=False)
    s = s / (s**4).sum() ** 0.25
    for a, b, c in (
        (8.0172, -22.9410, 16.6113),
        (3.6119, -2.6521, 0.5123),
        (2.661, -1.9451, 0.4357),
    ):
        s = a * s + b * s**3 + c * s**5
    return u * s @ v


def test_muon_is_its_equations_gate_by_gate():
    rng = np.random.default_rng(0)
    # The rows of the maps in each matrix, which may differ, and its columns.
    shapes = [((4, 4, 4), 5), ((4, 4), 4), ((4,), 6), ((4, 4, 4), 4), ((9,), 2), ((4, 2, 2), 4)]
    matrices = [
        (torch.nn.Parameter(torch.from_numpy(rng.normal(size=(sum(rows), columns)))), rows)
        for rows, columns in shapes
    ]
    muon = Muon([p for p, _ in matrices], dict(matrices), lr=0.1, momentum=0.9, weight_decay=0.5)
    wanted = [p.detach().numpy().copy() for p, _ in matrices]
    momentum = [np.zeros_like(w) for w in wanted]
    for _ in range(3):
        for i, (parameter, rows) in enumerate(matrices):
            cuts = np.cumsum(rows)[:-1]
            g = rng.normal(size=parameter.shape)
            parameter.grad = torch.from_numpy(g.copy())
            momentum[i] = 0.9 * momentum[i] + g
            update = g + 0.9 * momentum[i]
            gates = []
            for gate, own in zip(np.split(wanted[i], cuts), np.split(update, cuts), strict=True):
                scale = 0.1 * math.sqrt(max(1, gate.shape[0] / gate.shape[1]))
                gates.append(gate * (1 - 0.1 * 0.5) - scale * on_singular_values(own))
            wanted[i] = np.concatenate(gates)
        muon.step()
    for (parameter, _), expected in zip(matrices, wanted, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=0, atol=1e-10)


def test_muon_has_the_hidden_matrices_and_adamw_the_rest():
    model = LSTM.build()
    muon, adamw = UpdateRule(model, settings_of(optimizer="muon", lr=1e-3)).optimizers
    chosen = {id(p) for group in muon.param_groups for p in group["params"]}
    others = {id(p) for group in adamw.param_groups for p in group["params"]}
    assert chosen == {id(p) for layer in model.layers for p in (layer.weight_ih, layer.weight_hh)}
    assert others == {id(p) for p in model.parameters()} - chosen
    assert muon.param_groups[0]["lr"] == pytest.approx(5e-3)


# ---- the lectures' problem: 21 points from -10 to 10, squared error, from -20, one a step ----

POINTS = np.arange(-10.0, 11.0)
STEPS = 63


class Points(nn.Module):
    """One number theta, as a 1 x 1 matrix, so that it decays and Muon takes it."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([[-20.0]], dtype=torch.float64))

    head = None

    def parameters_in_order(self):
        return [[self.theta]]


def descended(config, batches):
    """Return theta after each step of the real rule at the real rates."""
    model = Points()
    rule, thetas = UpdateRule(model, config), []
    for k, points in enumerate(batches):
        model.zero_grad()
        (torch.from_numpy(points) - model.theta).square().mean().backward()
        rule.step(rate(config, k / len(batches), k))
        thetas.append(model.theta.item())
    return np.array(thetas)


def drawn(steps, seed=0):
    return [np.array([x]) for x in np.random.default_rng(seed).choice(POINTS, steps)]


def sgd(c):
    b = None

    def update(theta, g, lr, t):
        nonlocal b
        g = g + c.weight_decay * theta
        if c.momentum:
            b = g if b is None else c.momentum * b + (1 - c.dampening) * g
            g = g + c.momentum * b if c.nesterov else b
        return theta - lr * g

    return update


def adagrad(c):
    total = 0.0

    def update(theta, g, lr, t):
        nonlocal total
        g = g + c.weight_decay * theta
        total += g**2
        return theta - lr * g / (math.sqrt(total) + c.eps)

    return update


def rmsprop(c):
    v = b = 0.0

    def update(theta, g, lr, t):
        nonlocal v, b
        g = g + c.weight_decay * theta
        v = c.beta2 * v + (1 - c.beta2) * g**2
        b = c.momentum * b + g / (math.sqrt(v) + c.eps)
        return theta - lr * b

    return update


def adam(c, decoupled=False):
    m = v = 0.0

    def update(theta, g, lr, t):
        nonlocal m, v
        if decoupled:
            theta = theta - lr * c.weight_decay * theta
        else:
            g = g + c.weight_decay * theta
        m = c.beta1 * m + (1 - c.beta1) * g
        v = c.beta2 * v + (1 - c.beta2) * g**2
        return theta - lr * (m / (1 - c.beta1**t)) / (math.sqrt(v / (1 - c.beta2**t)) + c.eps)

    return update


def muon(c):
    m = 0.0

    def update(theta, g, lr, t):
        nonlocal m
        m = c.muon_momentum * m + g
        step = on_singular_values(np.array([[g + c.muon_momentum * m]])).item()
        return theta * (1 - 5 * lr * c.weight_decay) - 5 * lr * step

    return update


REFERENCES = {
    "sgd": sgd,
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": lambda c: adam(c, decoupled=True),
    "muon": muon,
}

WARM = 6  # steps of warm-up, where there are any


def after_warm_up(decay, least=0.0):
    """Return the rates of a schedule whose warm-up rises from nothing."""
    share = [max(0.0, (k - WARM) / (STEPS - WARM)) for k in range(STEPS)]
    down = [least + (1 - least) * decay(s, k) for k, s in enumerate(share)]
    return [max(0.01, k / WARM) if k < WARM else down[k] for k in range(STEPS)]


def slanted_triangular():
    """Howard and Ruder (2018), equation 3, with cut_frac 6/63 and ratio 32."""
    rates = []
    for t in range(STEPS):
        p = t / WARM if t < WARM else 1 - (t - WARM) / (WARM * (STEPS / WARM - 1))
        rates.append((1 + p * (32 - 1)) / 32)
    return rates


SCHEDULES = {
    "constant": after_warm_up(lambda s, k: 1.0),
    "linear": after_warm_up(lambda s, k: 1 - s, 0.1),
    "cosine": after_warm_up(lambda s, k: (1 + math.cos(math.pi * s)) / 2, 0.1),
    "inverse_time": [1 / (1 + k) for k in range(STEPS)],
    "inverse_sqrt": after_warm_up(lambda s, k: math.sqrt(WARM / max(k, 1))),
    # 57 steps after warm-up, a drop every 19.
    "step": after_warm_up(lambda s, k: 0.3 ** max(0, (k - WARM) // 19), 0.1),
    "slanted_triangular": slanted_triangular(),
    # 57 steps after warm-up, the last 19 of which decay.
    "wsd": after_warm_up(lambda s, k: 1.0 if k < 44 else (63 - k) / 19, 0.1),
}
SETTINGS = {
    "constant": {},
    "linear": {"min_lr": 0.1},
    "cosine": {"min_lr": 0.1},
    "inverse_time": {"warmup": None},
    "inverse_sqrt": {},
    "step": {"step_share": 1 / 3, "step_factor": 0.3, "min_lr": 0.1},
    "slanted_triangular": {},
    "wsd": {"decay_share": 1 / 3, "min_lr": 0.1},
}


def test_every_rule_and_schedule_has_a_reference():
    assert REFERENCES.keys() == OPTIMIZERS.keys()
    assert SCHEDULES.keys() == SETTINGS.keys() == DECAYS.keys()


@pytest.mark.fast_for("*-constant", "sgd-*", "adamw-cosine", "muon-inverse_sqrt", rest="slow")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", REFERENCES)
def test_rules_and_schedules_on_the_points(optimizer, schedule):
    config = settings_of(
        optimizer=optimizer,
        schedule=schedule,
        lr=0.3,
        weight_decay=0.02,
        momentum=0.6,
        muon_momentum=0.7,
        beta1=0.8,
        beta2=0.9,
        eps=1e-6,
        **{"warmup": WARM / STEPS, **SETTINGS[schedule]},
    )
    batches, update = drawn(STEPS), REFERENCES[optimizer](config)
    theta, wanted = -20.0, []
    for k, (x,) in enumerate(batches):
        gradient = 2 * (theta - x)
        theta = update(theta, gradient, 0.3 * SCHEDULES[schedule][k], k + 1)
        wanted.append(theta)
    np.testing.assert_allclose(descended(config, batches), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"momentum": 0.7},
        {"momentum": 0.7, "dampening": 0.4},
        {"momentum": 0.7, "nesterov": True},
        {"momentum": 0.7, "weight_decay": 0.1},
    ],
)
def test_sgd_in_all_its_forms(more):
    config = settings_of(optimizer="sgd", schedule="constant", warmup=0.0, lr=0.1, **more)
    batches, update, theta, wanted = drawn(30), sgd(config), -20.0, []
    for k, (x,) in enumerate(batches):
        theta = update(theta, 2 * (theta - x), 0.1, k + 1)
        wanted.append(theta)
    np.testing.assert_allclose(descended(config, batches), wanted, rtol=1e-9)


def plain(schedule):
    return settings_of(
        optimizer="sgd", schedule=schedule, lr=0.5, weight_decay=0.0, warmup=0.0, steps=1
    )


def test_a_constant_step_keeps_bouncing():
    """With a step of 0.5 theta is the point just seen, for ever."""
    batches = drawn(500)
    thetas = descended(plain("constant"), batches)
    np.testing.assert_allclose(thetas, np.concatenate(batches), atol=1e-9)
    assert np.ptp(thetas[-100:]) == 20


def test_robbins_and_monro_converge():
    """alpha_0 / (1 + k) with alpha_0 = 0.5 makes theta the mean of the points seen."""
    batches = drawn(2000)
    thetas = descended(plain("inverse_time"), batches)
    means = np.cumsum(np.concatenate(batches)) / np.arange(1, 2001)
    np.testing.assert_allclose(thetas, means, atol=1e-9)
    assert abs(thetas[-1]) < 0.5 and np.ptp(thetas[-100:]) < 0.5


def test_the_full_batch_converges():
    assert abs(descended(plain("constant"), [POINTS] * 3)[-1]) < 1e-12


# ---- layers ----


@over(first_of_each(NEURAL))
def test_every_parameter_is_of_one_layer(case):
    model = case.build()
    layers = model.parameters_in_order()
    assert sorted(id(p) for layer in layers for p in layer) == sorted(map(id, model.parameters()))
    assert any(p is model.head.weight for p in layers[-1])
    if hasattr(model, "embedding"):
        assert any(p is model.embedding.weight for p in layers[0])


def test_layers_learn_at_their_own_rates():
    """SGD's first step is the rate times the gradient, which is one everywhere here."""
    model = Case("lstm", "plain", {"num_layers": 2}).build()
    before = [p.detach().clone() for p in model.parameters()]
    rates = {"lr": 0.5, "layer_decay": 0.5, "head_factor": 3.0}
    rule = UpdateRule(model, settings_of(optimizer="sgd", weight_decay=0.0, **rates))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    rule.step(1.0)
    factor = {"embedding": 0.125, "layers.0": 0.25, "layers.1": 0.5, "head": 3.0}
    for (name, now), was in zip(model.named_parameters(), before, strict=True):
        own = next(value for start, value in factor.items() if name.startswith(start))
        torch.testing.assert_close(was - now.detach(), torch.full_like(was, 0.5 * own))


@pytest.mark.parametrize(("first", "then"), [(1.0, 3.0), (3.0, 1.0)])
def test_a_rule_takes_other_rates_and_keeps_what_it_knows(first, then):
    """With a momentum of 0.9 the second step is 1.9 times the gradient, at the new rates."""
    model = Case("lstm", "plain", {"num_layers": 1}).build()

    def rule_of(factor):
        plain = {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.0}
        return UpdateRule(model, settings_of(lr=0.5, head_factor=factor, **plain))

    rule = rule_of(first)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    rule.step(1.0)
    rule.take_rates(rule_of(then))
    before = [p.detach().clone() for p in model.parameters()]
    rule.step(1.0)
    for (name, now), was in zip(model.named_parameters(), before, strict=True):
        wanted = 0.5 * 1.9 * (then if name.startswith("head") else 1.0)
        torch.testing.assert_close(was - now.detach(), torch.full_like(was, wanted))
    resumed = rule_of(then)
    resumed.restore(rule.tensors())
    assert resumed.tensors().keys() == rule.tensors().keys()


def test_layers_thaw_from_the_head_down():
    model = Case("lstm", "plain", {"num_layers": 2}).build()
    rule = UpdateRule(model, settings_of(unfreeze=0.6))
    seen = []
    for progress in (0.0, 0.19, 0.2, 0.39, 0.4, 0.59, 0.6, 1.0):
        rule.thaw(progress)
        trained = {n.split(".weight")[0] for n, p in model.named_parameters() if p.requires_grad}
        seen.append(
            sum(
                any(name.startswith(part) for name in trained)
                for part in ("embedding", "layers.0", "layers.1", "head")
            )
        )
    assert seen == [1, 1, 2, 2, 3, 3, 4, 4]


LOADS = """
import sys
from seqgen.cli import run
for optimizer in ("adamw", "muon", "sgd"):
    assert run([*sys.argv[1:], "--optimizer", optimizer]) == 0
sys.exit(str(sorted(m for m in sys.modules if m in ("torch._dynamo", "torch.distributed.fsdp"))))
"""


@pytest.mark.slow
def test_training_does_not_load_the_compiler(text):
    """It takes half as long to load as all the rest."""
    train = ["train", text, "--model", "lstm", "--steps", "2", "--overwrite", "--quiet"]
    command = [sys.executable, "-c", LOADS, *map(str, train), "--hidden-size", "8"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stderr == "[]\n"
