"""Frozen features of a pretrained model, mixed over its layers, as input of another model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqgen import registry
from seqgen.errors import UsageError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.network import Network
from seqgen.plugins.labels.models.elmo import ELMo
from seqgen.plugins.labels.models.sentence_encoder import LastStates, SentenceEncoder
from seqgen.settings import ModelConfig


class Features(nn.Module):
    """Frozen feature extractor made from a trained model, without dropout.

    Its weights are buffers: they are stored with the model that reads the features, are no
    parameters of it, and nothing trains them.

    Attributes:
        size: the width D of a layer.
        names: of its N layers.
        window: how many tokens a sentence may have, its start included; None for any number.
    """

    size: int
    names: tuple[str, ...]
    window: int | None = None

    def train(self, mode: bool = True) -> Features:
        """Stay in evaluation mode whatever the argument."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute the features (N, S, L, D) of sentences; see `SentenceEncoder.forward`."""
        return self.layers(values, lengths)

    @abstractmethod
    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute the features (N, S, L, D) of all layers; implemented by each subclass."""


class ELMoFeatures(Features):
    """Features of ELMo: its embedding layer and its layers, both directions concatenated."""

    def __init__(self, model: ELMo) -> None:
        super().__init__()
        model.forwards.head = model.backwards.head = None
        self.size, self.model = model.size, frozen(model)
        self.names = tuple(f"layer {i}" for i in range(model.config.num_layers + 1))

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.model.layers(values, lengths)


class StateFeatures(Features):
    """Features of a language model: the one layer that its output layer reads."""

    names = ("states",)

    def __init__(self, model: NeuralLanguageModel) -> None:
        super().__init__()
        self.model = frozen(LastStates(model))
        self.size, self.window = self.model.size, self.model.window

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.model(values, lengths)[0].unsqueeze(0)


class WordFeatures(Features):
    """Features of word vectors, which do not depend on context."""

    names = ("words",)

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.register_buffer("vectors", model.token_vectors())
        self.size = self.vectors.shape[1]

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.vectors[values].unsqueeze(0)


def features_of(model: nn.Module) -> Features:
    """Turn a trained model into a feature extractor; the model loses its output layer.

    Raises:
        UsageError: it makes none.
    """
    if isinstance(model, ELMo):
        return ELMoFeatures(model).eval()
    if isinstance(model, NeuralLanguageModel):
        return StateFeatures(model).eval()
    if isinstance(model, Network) and model.config.static_vector_size is not None:
        return WordFeatures(model).eval()
    raise UsageError("--features takes elmo, word vectors, or a network that models text")


def features_like(about: Mapping[str, Any]) -> Features:
    """Build an uninitialized feature extractor from the stored configuration of its model.

    Args:
        about: its `architecture`, and as `model` its configuration.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    row = registry.architecture(about["architecture"])
    config = row.load_config().read(about["model"])
    model_class = row.load_model()
    options = {"predicts": False} if issubclass(model_class, ELMo) else {}
    return features_of(model_class(config, **options))


def frozen(module: nn.Module) -> nn.Module:
    """Turn a module's parameters into buffers of the same names, so that they are not trained."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return module


class LayerMix(nn.Module):
    """Weighted sum of layers: gamma sum_j s_j h_j, with s = softmax(w).

    ELMo's features for a task (Peters et al. 2018, equation 1). It begins as their mean.

    Args:
        layers: how many.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.w, self.gamma = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(1))

    @property
    def weights(self) -> Tensor:
        """The layer weights s_j, which sum to 1."""
        return self.w.softmax(0)

    def forward(self, layers: Tensor) -> Tensor:
        """Mix layers (N, S, L, D) into one feature tensor (S, L, D)."""
        return self.gamma * torch.einsum("n,nsld->sld", self.weights, layers)


class Featured(SentenceEncoder):
    """Sentence encoder whose inputs are [x_k; gamma sum_j s_j h_k,j] for each token k.

    x_k is a vector of the token that is learned, and h_k,j are the features of a trained model.

    Args:
        trunk_class: the encoder's.
        config: its configuration; `feature_model` says whose features these are.
    """

    def __init__(self, trunk_class: type[SentenceEncoder], config: ModelConfig) -> None:
        super().__init__()
        self.features = features_like(config.feature_model)
        self.mix = LayerMix(len(self.features.names))
        width = getattr(config, "embedding_size", None) or config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.trunk = trunk_class(config, width + self.features.size)
        self.size, self.pooling = self.trunk.size, self.trunk.pooling
        windows = [w for w in (self.features.window, self.trunk.window) if w is not None]
        self.window = min(windows, default=None)

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        values = values[:, : max(lengths)]
        mixed = self.mix(self.features(values, lengths))
        return self.trunk(torch.cat([self.embedding(values), mixed], -1), lengths)

    def layers_in_order(self) -> list[list[nn.Module]]:
        return [[self.embedding, self.mix], *self.trunk.layers_in_order()]

    @property
    def layer_weights(self) -> dict[str, float]:
        """The layer weights s_j by layer name, and gamma."""
        s = dict(zip(self.features.names, self.mix.weights.tolist(), strict=True))
        return {**s, "gamma": self.mix.gamma.item()}
