"""Models of every architecture with drawn settings, and texts for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from architectures import TINY
from drawn_settings import settings_of
from hypothesis import HealthCheck
from hypothesis import settings as run_with
from hypothesis import strategies as st
from torch import Tensor

from seqgen import registry
from seqgen.engines.memory_limit import parameter_count
from seqgen.models.base import LanguageModel
from seqgen.tasks.language_modeling import LANGUAGE_MODELING

LENGTH = 11  # more than the window of the drawn transformers
TEXT = [
    name
    for name, row in registry.ARCHITECTURES.items()
    if row.task is LANGUAGE_MODELING and row.estimator is None
]
few = run_with(
    deadline=None,
    max_examples=4,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def drawn_model(data: st.DataObject, architecture: str) -> LanguageModel:
    """Return a model in float64 with drawn settings, and weights that are far from zero."""
    row = registry.architecture(architecture)
    model_class, config_class = row.load_model(), row.load_config()
    config = config_class(**data.draw(settings_of(architecture, {**TINY, "source_window": LENGTH})))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = model_class(config).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    spell(model)
    assert parameter_count(model_class, config) == model.parameter_count()
    return model.eval()


def spell(model: LanguageModel) -> None:
    """Give a model that reads the characters of words some words."""
    if hasattr(getattr(model, "embedding", None), "spell"):
        model.spell([letter * 3 for letter in "abcdefghi"[: model.vocab_size]], False)


def text_for(model: LanguageModel, length: int = LENGTH) -> Tensor:
    """Return random tokens (2, length)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.vocab_size, (2, length), generator=generator)


def window_of(model: LanguageModel) -> int:
    """Return how many tokens a training call may hold here."""
    return min(LENGTH - 1, model.window or LENGTH)


def loss_of(model: LanguageModel, *past: object) -> Tensor:
    """Return the loss of a training call, of two where a state is carried."""
    length = window_of(model)
    text = text_for(model, length + 1)
    tokens, targets = text[:, :-1], text[:, 1:]
    logits, state = model(tokens, *past)
    if model.carries_state:
        logits = logits + model(tokens, state.detach())[0]
    assert logits.shape == (*tokens.shape, model.vocab_size)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
