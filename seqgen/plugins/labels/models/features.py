"""Features that a trained model gives to another: frozen, and mixed over its layers."""

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
    """What a trained model knows of each token, without a gradient and without dropout.

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
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the features (N, S, L, D) of sentences; see `SentenceEncoder.forward`."""
        return self.layers(values, lengths)

    @abstractmethod
    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the same."""


class ELMoFeatures(Features):
    """Those of ELMo: its token layer, and each layer of both directions side by side."""

    def __init__(self, model: ELMo) -> None:
        super().__init__()
        model.forwards.head = model.backwards.head = None
        self.size, self.model = model.size, frozen(model)
        self.names = tuple(f"layer {i}" for i in range(model.config.num_layers + 1))

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.model.layers(values, lengths)


class StateFeatures(Features):
    """Those of a language model: the one layer from which it predicts."""

    names = ("states",)

    def __init__(self, model: NeuralLanguageModel) -> None:
        super().__init__()
        self.model = frozen(LastStates(model))
        self.size, self.window = self.model.size, self.model.window

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.model(values, lengths)[0].unsqueeze(0)


class WordFeatures(Features):
    """Those of vectors of words, which know no context."""

    names = ("words",)

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.register_buffer("vectors", model.token_vectors())
        self.size = self.vectors.shape[1]

    def layers(self, values: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.vectors[values].unsqueeze(0)


def features_of(model: nn.Module) -> Features:
    """Return the features that a model makes, which is used up: it loses its head.

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
    """Return the features of a model as a stored configuration describes it, without content.

    Args:
        about: its `architecture`, and as `model` its configuration.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    row = registry.architecture(about["architecture"])
    config = row.load_config().read(about["model"])
    model_class = row.load_model()
    more = {"predicts": False} if issubclass(model_class, ELMo) else {}
    return features_of(model_class(config, **more))


def frozen(module: nn.Module) -> nn.Module:
    """Return a module with its parameters turned into buffers of the same names."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return module


class LayerMix(nn.Module):
    """One vector of several layers: gamma sum_j s_j h_j, with s = softmax(w).

    ELMo's features for a task (Peters et al. 2018, equation 1). It begins as their mean.

    Args:
        layers: how many.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.w, self.gamma = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(1))

    @property
    def weights(self) -> Tensor:
        """The s_j, which sum to 1."""
        return self.w.softmax(0)

    def forward(self, layers: Tensor) -> Tensor:
        """Return the mixture (S, L, D) of layers (N, S, L, D)."""
        return self.gamma * torch.einsum("n,nsld->sld", self.weights, layers)


class Featured(SentenceEncoder):
    """An encoder that reads, of each token k, [x_k; gamma sum_j s_j h_k,j].

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
        """The s_j by the names of their layers, and gamma."""
        s = dict(zip(self.features.names, self.mix.weights.tolist(), strict=True))
        return {**s, "gamma": self.mix.gamma.item()}
