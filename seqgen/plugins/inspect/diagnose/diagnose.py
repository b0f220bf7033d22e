"""Diagnosis of a trained model: gradients by distance, weights, units and attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.network import copy_network
from seqgen.models.transformer.model import Transformer
from seqgen.plugins.inspect.attention_figures import HeadFigures, attention_figures
from seqgen.plugins.inspect.diagnose.distance import (
    Distance,
    gradients_by_distance,
    longest_document,
    window_length,
    windows,
)
from seqgen.plugins.inspect.diagnose.layers import LayerFigures, Update, loss_unscaled, units_of
from seqgen.settings import require
from seqgen.settings.training import TrainingConfig
from seqgen.store.loaded import LoadedModel
from seqgen.text.corpus import Corpus
from seqgen.text.direction import orient_corpus
from seqgen.training.optimizers import UpdateRule, clip_gradients
from seqgen.wording import plural

# Over how many windows figures are means.
WINDOWS = 64


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Last record of `seqgen diagnose --json`.

    Attributes:
        model: its name.
        windows: how many windows of text the figures are means over.
        tokens: in each window, what the model reads.
        loss: nats per token over all positions of the windows.
        loss_unscaled: the same if attention left out its scale 1 / sqrt(D); None without
            attention.
    """

    model: str
    windows: int
    tokens: int
    loss: float
    loss_unscaled: float | None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Results of `seqgen diagnose`."""

    distances: list[Distance]
    layers: list[LayerFigures]
    heads: list[HeadFigures]
    summary: Summary


def diagnose(
    loaded: LoadedModel,
    chunks: Iterable[str],
    distance: int | None = None,
    layer: int | None = None,
) -> Diagnosis:
    """Diagnose a model while it reads a text.

    Args:
        loaded: the model.
        chunks: the text in pieces cut anywhere.
        distance: how far back gradients are followed, in tokens; None for 100, or for as far as
            the model's window and the text's documents go.
        layer: whose gradients are followed; see `gradients_by_distance`.

    Raises:
        UsageError: the model has no gradients or writes from sources, there is no such layer, or
            the distance is further than the model's window.
        SeqgenError: the text is too short.
    """
    name, model = loaded.stored.name, loaded.model
    loaded.conditioning.require_nothing("diagnose")
    loaded.stored.network_for("diagnose")
    require(
        isinstance(model, NeuralLanguageModel),
        f"diagnose needs one model that was trained by gradients, which {name} is not",
    )
    corpus = loaded.encode(chunks)
    corpus = orient_corpus(corpus, loaded.data.direction)
    length = _length(name, model, corpus, distance)
    tokens, targets = (
        torch.from_numpy(x).to(model.device) for x in windows(corpus, length, WINDOWS)
    )
    distances = gradients_by_distance(model, tokens, targets[:, -1], layer)
    loss, layers = _layers(loaded, tokens, targets)
    heads, unscaled = [], None
    if isinstance(model, Transformer):
        heads = attention_figures(model, tokens)
        unscaled = loss_unscaled(model, tokens, targets)
    summary = Summary(
        model=name, windows=len(tokens), tokens=length, loss=loss, loss_unscaled=unscaled
    )
    return Diagnosis(distances=distances, layers=layers, heads=heads, summary=summary)


def _length(name: str, model: NeuralLanguageModel, corpus: Corpus, distance: int | None) -> int:
    """Choose the window length: one more than the greatest distance of a gradient."""
    if distance is not None and model.window is not None:
        most = model.window - 1
        require(distance <= most, f"--distance is at most {most} for {name}, not {distance}")
    longest = longest_document(corpus)
    if longest < 1 or (distance is not None and longest <= distance):
        needed = 1 if distance is None else distance + 1
        raise SeqgenError(
            f"the text is too short: its longest document has {plural(longest, 'token')}, "
            f"and this needs {needed}; give a longer text or a smaller --distance"
        )
    return window_length(model, corpus) if distance is None else distance + 1


def _layers(
    loaded: LoadedModel, tokens: Tensor, targets: Tensor
) -> tuple[float, list[LayerFigures]]:
    """Compute the loss and all layers' figures, for one step of the model's own optimizer.

    The optimizer is new, so its step is the first one of a run, at the peak learning rate.
    """
    model = copy_network(loaded.model).eval()
    model.requires_grad_(True)
    config = loaded.stored.settings("training", TrainingConfig)
    with torch.enable_grad():
        logits, _ = model(tokens, None)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
    update = Update(model)
    units = units_of(model, tokens)
    clip_gradients(model.parameters(), config)
    UpdateRule(model, config).step(1.0)
    return float(loss.detach()), update.figures(units)
