"""Steps of fixed shapes, against steps over just the slots that are used.

A CUDA graph needs a GPU (tests/training/test_cuda.py); what it captures is computed here without.
"""

import copy

import numpy as np
import pytest
import torch

from seqgen.models.transformer import kv_cache
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.plugins.graphs.steps import FixedStep, ReplayedSteps, replay_steps

GPT2 = {"positions": "learned", "norm": "layernorm", "activation": "gelu", "bias": True}
LLAMA = {"positions": "rope", "norm": "rmsnorm", "activation": "swiglu", "num_kv_heads": 1}
GEMMA = {
    **LLAMA,
    "attention_softcap": 5.0,
    "logit_softcap": 9.0,
    "sliding_window": 3,
    "norm_position": "both",
}
SETTINGS = {"gpt2": GPT2, "llama": LLAMA, "gemma": GEMMA}


class EagerStep(FixedStep):
    """A `FixedStep` that is computed operation by operation, as no CPU has CUDA graphs."""

    made = 0

    def __init__(self, model, state):
        super().__init__(model, state)
        EagerStep.made += 1

    def run(self, tokens, state):
        self.set_inputs(tokens, state.starts, state.end)
        self.compute()
        state.end += 1
        return self.logits[: len(tokens)].numpy()


def model_of(kind, window=64):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "window": window}
    model = Transformer(TransformerConfig(vocab_size=11, **sizes, **SETTINGS[kind])).eval()
    model.takes_arrays = False  # as on a GPU: torch computes every step
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def replayed(model):
    steps = ReplayedSteps(model)
    steps.kind = EagerStep
    return steps


def state_after(model, prompts):
    """Return the state after prompts of several lengths, in which unused slots hold NaN."""
    states = [model(torch.tensor([prompt]), model.start(1))[1] for prompt in prompts]
    state = kv_cache.KVCache.cat(states)
    for block in (*state.keys, *state.values):
        block[:, :, state.end :] = torch.nan
    return state


@pytest.mark.parametrize("kind", SETTINGS)
@torch.no_grad()
def test_rows_of_several_lengths_that_leave(kind, monkeypatch):
    monkeypatch.setattr(kv_cache, "FEWEST_SLOTS", 16)
    model = model_of(kind)
    steps, plain = replayed(model), model.step
    prompts = [[1, 2, 3, 4, 5], [6, 7], [8], [9, 10, 1]]
    a, b = state_after(model, prompts), state_after(model, prompts)
    rng, rows, before = np.random.default_rng(1), 4, EagerStep.made
    for number in range(50):
        tokens = rng.integers(1, 11, rows).tolist()
        expected, a = plain(tokens, a)
        found, b = steps.step(tokens, b)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
        assert b.starts[0] - b.end == a.starts[0] - a.end
        if number in (15, 20, 35):
            stay = [row for row in range(rows) if row != rows // 2]
            a, b, rows = a.select(stay), b.select(stay), rows - 1
    assert EagerStep.made > before


@torch.no_grad()
def test_rows_past_the_window_and_in_another_order():
    model = model_of("llama", window=24)
    steps, plain = replayed(model), model.step
    a, b = (state_after(model, [[1, 2], [3, 4, 5], [6]]) for _ in range(2))
    rng = np.random.default_rng(2)
    for number in range(60):
        tokens = rng.integers(1, 11, 3).tolist()
        expected, a = plain(tokens, a)
        found, b = steps.step(tokens, b)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
        if number % 9 == 8:  # as a beam search does
            a, b = a.select([1, 1, 2]), b.select([1, 1, 2])


@torch.no_grad()
def test_a_second_text_after_the_first_one():
    model = model_of("gpt2")
    steps, plain = replayed(model), model.step
    for prompt in ([1, 2, 3], [4]):
        a, b = (state_after(model, [prompt]) for _ in range(2))
        for token in range(1, 11):
            expected, a = plain([token], a)
            found, b = steps.step([token], b)
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@torch.no_grad()
def test_weights_that_moved_get_another_graph():
    model = model_of("gpt2")
    steps = replayed(model)
    for _ in range(2):
        state, before = state_after(model, [[1, 2, 3]]), EagerStep.made
        plain = state.copy()
        for token in range(1, 9):
            found, state = steps.step([token], state)
            expected, plain = steps.plain([token], plain)
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
        assert found.dtype == expected.dtype
        assert EagerStep.made == before + 1
        model.double()


def test_a_copy_of_a_model_replays_its_own_steps():
    model = model_of("gpt2")
    model.step = replayed(model).step
    twin = copy.deepcopy(model)
    assert twin.step.__self__.model is twin


def test_a_model_on_a_cpu_stays_as_it_is():
    model = model_of("gpt2")
    replay_steps(model)
    assert "step" not in vars(model)
