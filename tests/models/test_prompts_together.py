"""Prompts of any lengths that a transformer reads at once, against each of them alone."""

import numpy as np
import pytest
import torch

from seqgen.engines.native.library import library
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig

VOCAB, LENGTHS = 17, (3, 1, 60, 31, 128, 2, 90, 31)
FORMS = {
    "rope": {},
    "learned": {"positions": "learned"},
    "sliding": {"sliding_window": 20},
    "grouped": {"num_kv_heads": 2},
}


@pytest.fixture(params=FORMS)
def module(request):
    if library() is None:
        pytest.skip("there is no compiled library")
    torch.manual_seed(3)
    sizes = {"vocab_size": VOCAB, "window": 200, "hidden_size": 32, "num_layers": 2}
    return Transformer(TransformerConfig(**sizes, num_heads=4, **FORMS[request.param])).eval()


def prompts_of(lengths):
    draw = np.random.default_rng(5)
    return [tuple(draw.integers(0, VOCAB, length).tolist()) for length in lengths]


@pytest.mark.fast_for("*-None", "sliding-int8", rest="slow")
@torch.inference_mode()
@pytest.mark.parametrize("precision", [None, "int8"])
def test_prompts_read_together_are_those_read_alone(module, precision):
    if precision:
        module.quantize(precision)
    model = module.over_arrays()
    prompts = prompts_of(LENGTHS)
    assert max(LENGTHS) <= model.most_together
    logits, state = model.read_together(prompts)
    after = [  # the longest come to the end of the window
        model.step([token % VOCAB] * len(prompts), state)[0] for token in range(100)
    ]
    for row, prompt in enumerate(prompts):
        alone, own = model(model.ids(np.array([prompt])), model.start(1), last=1)
        np.testing.assert_array_equal(logits[row], alone[0, 0])
        for token, found in enumerate(after):
            np.testing.assert_array_equal(found[row], model.step([token % VOCAB], own)[0][0])
        if not precision:
            windows = torch.tensor([prompt])
            wanted = module(windows)[0][0, -1]
            np.testing.assert_allclose(logits[row], wanted, atol=1e-4)


@torch.inference_mode()
def test_what_follows_prompts_may_be_long(module):
    """NumPy, which reads it, sees slots before a row's start, too."""
    model = module.over_arrays()
    prompts, rest = prompts_of([3, 40, 1]), np.array(prompts_of([140] * 3))
    found, _ = model(rest, model.read_together(prompts)[1])
    for row, prompt in enumerate(prompts):
        whole = torch.tensor([[*prompt, *rest[row]]])
        wanted = module(whole)[0][0, len(prompt) :]
        np.testing.assert_allclose(found[row], wanted, atol=1e-4)
