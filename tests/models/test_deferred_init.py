"""Models that are built without memory are filled with what one built in memory holds."""

from __future__ import annotations

import pytest
import torch
from architectures import CASES, PAIRS, STANDING, Case, over
from torch import nn

from seqgen import registry
from seqgen.models.deferred_init import DeferredModel, InitRecorder, lend_memory

BUILT = [
    case
    for case in (*CASES, *PAIRS)
    if type(case) is Case and not registry.architecture(case.architecture).load_model().counted
]


def named(model):
    return dict(model.named_parameters()) | dict(model.named_buffers())


@pytest.mark.fast_for(*STANDING)
@over(BUILT)
def test_every_tensor_is_made_as_in_memory(case):
    kind, config = registry.architecture(case.architecture).load_model(), case.config()
    torch.manual_seed(3)
    wanted = kind(config).double()
    after = torch.get_rng_state()
    torch.manual_seed(3)
    unfilled = DeferredModel.build(lambda: kind(config).double())
    assert torch.equal(torch.get_rng_state(), after)
    assert all(parameter.is_meta for parameter in unfilled.model.parameters())
    without_content = named(unfilled.model)
    assert without_content.keys() == named(wanted).keys()
    for name, tensor in named(wanted).items():
        made = unfilled.recorder.made(without_content[name])
        assert made.dtype == tensor.dtype, name
        assert torch.equal(made, tensor), name
    assert torch.equal(torch.get_rng_state(), after)


def test_a_tensor_is_made_from_what_it_depends_on_alone():
    torch.manual_seed(1)
    first, second = torch.randn(40), torch.empty(3, 40)
    nn.init.orthogonal_(second)
    second[1] *= first
    torch.manual_seed(1)
    with InitRecorder() as recorder:
        a, b = torch.randn(40), torch.empty(3, 40)
        nn.init.orthogonal_(b)
        b[1] *= a
    assert torch.equal(recorder.made(b), second)
    assert torch.equal(recorder.made(a), first)


def test_a_shell_has_memory_only_when_it_is_lent():
    unfilled = DeferredModel.build(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    shell = unfilled.shell(torch.device("cpu"))
    parameters = list(shell.parameters())
    assert [p.shape for p in parameters] == [p.shape for p in unfilled.model.parameters()]
    assert [p.untyped_storage().nbytes() for p in parameters] == [4] * 4
    assert torch.equal(shell[1].running_var, torch.ones(4))
    with lend_memory(shell):
        with torch.no_grad():
            for parameter in parameters:
                parameter.fill_(1.0)
        assert (
            shell(torch.ones(2, 3)).tolist() == [pytest.approx([1 + 4 / (1 + 1e-5) ** 0.5] * 4)] * 2
        )
    assert [p.untyped_storage().nbytes() for p in parameters] == [4] * 4
