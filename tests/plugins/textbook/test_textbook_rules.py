"""Update rules in the forms of textbooks: resumed, and beside those of PyTorch."""

from __future__ import annotations

import pytest
import torch
from architectures import Case as ModelCase
from torch import nn

from seqgen.errors import UsageError
from seqgen.settings.training import TrainingConfig
from seqgen.training.optimizers import OPTIMIZERS, ParameterGroup, UpdateRule

TEXTBOOK = {
    "adagrad": {"adagrad_window": 3},
    "rmsprop": {"eps_inside": True},
    "adam": {"eps_inside": True},
    "adamw": {"eps_inside": True, "weight_decay": 0.1},
}


@pytest.mark.parametrize("rule", TEXTBOOK)
def test_textbook_forms_come_back_from_a_checkpoint(rule):
    """Six steps equal three, a restored state, and three more."""

    def step(model, update, number):
        generator = torch.Generator().manual_seed(number)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        update.step(1.0)

    config = TrainingConfig(steps=6, optimizer=rule, precision="float64", **TEXTBOOK[rule])
    whole, first, second = (ModelCase("rnn", "tanh", {}).build() for _ in range(3))
    update = UpdateRule(whole, config)
    for number in range(6):
        step(whole, update, number)
    before = UpdateRule(first, config)
    for number in range(3):
        step(first, before, number)
    second.load_state_dict(first.state_dict())
    after = UpdateRule(second, config)
    after.restore({name: tensor.clone() for name, tensor in before.tensors().items()})
    for number in range(3, 6):
        step(second, after, number)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True)
    )


def test_with_eps_outside_the_textbook_forms_are_those_of_torch():
    """The two differ in where eps stands: by little where the gradients are large."""
    gradients = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for rule in ("adagrad", "rmsprop", "adam", "adamw"):
        ends = []
        for inside in (False, True):
            theta = nn.Parameter(torch.ones(1, 4, dtype=torch.float64))
            config = TrainingConfig(
                steps=5, optimizer=rule, lr=0.1, weight_decay=0.1, eps=1e-12, eps_inside=inside
            )
            (optimizer,) = OPTIMIZERS[rule]([ParameterGroup(theta, 0, 1.0, (1,))], config)
            for gradient in gradients:
                theta.grad = gradient[None].clone()
                optimizer.step()
            ends.append(theta.detach())
        torch.testing.assert_close(ends[0], ends[1], rtol=1e-8, atol=1e-8)


def test_momentum_with_eps_inside_is_refused_for_rmsprop():
    with pytest.raises(UsageError, match="rmsprop without momentum"):
        TrainingConfig(steps=1, optimizer="rmsprop", momentum=0.5, eps_inside=True)
