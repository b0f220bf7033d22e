"""Classifiers and taggers as torch modules, on an encoder or a language model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqgen.engines.dropout import Dropout
from seqgen.engines.fast_layers import FastLinear
from seqgen.engines.parts import glorot
from seqgen.models.base import NeuralLanguageModel, TorchModel
from seqgen.models.network import Network
from seqgen.models.state import State
from seqgen.plugins.labels.models.features import Featured
from seqgen.plugins.labels.models.labelling import LabelsOfFeatures, head_width
from seqgen.plugins.labels.models.sentence_encoder import LastStates, SentenceEncoder
from seqgen.plugins.labels.settings import LabellingConfig
from seqgen.text.batches import Batch

# Of the settings of a trunk, the dropout before the head: the first of these that is not None.
HEAD_DROPOUT = ("output_dropout", "dropout")


class Predictor(TorchModel, Network):
    """Base class of networks that predict classes of a whole input; not a language model.

    Attributes:
        counts_start: `window` counts the start symbol.
        layer_weights: what each layer counts of a model whose features it reads; None without one.
        window: how many tokens it reads at most, its start included; None for any number.
    """

    trained_by: ClassVar[str] = "seqgen.plugins.labels.regimes:Predicting"
    over_tensors: ClassVar[Callable[..., Tensor] | None] = None
    counts_start: ClassVar[bool] = True
    layer_weights: dict[str, float] | None = None
    window: int | None = None
    source_window: int | None = None

    def predict(self, batch: Batch) -> tuple[Tensor, State | None]:
        """Compute logits (B, T', C) for the batch's targets (B, T'), and the next state."""
        raise NotImplementedError


class Labeller(LabelsOfFeatures, Predictor):
    """Classifier or tagger as a torch module; see `LabelsOfFeatures`."""

    trunk_class: ClassVar[type[nn.Module]]
    forward = LabelsOfFeatures.logits

    def __init__(self, config: LabellingConfig) -> None:
        super().__init__()
        self.config = config
        self.trunk = self._make_trunk(config)
        self.window = self.trunk.window
        self.pooling = config.pooling or self.trunk.pooling
        dropouts = (getattr(config, name, None) for name in HEAD_DROPOUT)
        self.output_dropout = Dropout(next((p for p in dropouts if p is not None), 0.0))
        width = head_width(config, self.trunk.pooling, self.by_word, self.trunk.size)
        self.head = FastLinear(width, config.classes)
        glorot(self.head)

    def _make_trunk(self, config: LabellingConfig) -> SentenceEncoder:
        if config.feature_model is not None:
            return Featured(self.trunk_class, config)
        trunk = self.trunk_class(config)
        return LastStates(trunk) if isinstance(trunk, NeuralLanguageModel) else trunk

    def predict(self, batch: Batch) -> tuple[Tensor, State | None]:
        return self(batch.source), None

    def layers_in_order(self) -> list[list[nn.Module]]:
        """List the layer groups of the trunk, then the head."""
        return [*self.trunk.layers_in_order(), [self.output_dropout, self.head]]

    @property
    def layer_weights(self) -> dict[str, float] | None:
        """Layer weights and gamma of the pretrained features; None without such features."""
        return self.trunk.layer_weights if isinstance(self.trunk, Featured) else None

    def token_vectors(self) -> Tensor | None:
        if self.trunk.embedding is None:
            return None
        with torch.no_grad():
            return self.trunk.embedding(torch.arange(self.vocab_size, device=self.device))

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        self.trunk.spell(words, spelled_out)

    def begin_from(self, origin: TorchModel, same_labels: bool) -> None:
        """Initialize the trunk from another model's weights, and the head if the labels agree.

        Args:
            origin: a model of text of the trunk's architecture and shape, or what was trained on
                such a trunk.
            same_labels: whether its labels are this one's, so that its head is taken over.
        """
        if not isinstance(origin, Labeller):
            self.trunk.begin_from(origin)
            return
        self.trunk.load_state_dict(origin.trunk.state_dict())
        if same_labels and self.head.weight.shape == origin.head.weight.shape:
            self.head.load_state_dict(origin.head.state_dict())


@functools.cache
def labeller_of(trunk: type[nn.Module], by_word: bool) -> type[Labeller]:
    """Build the class of classifiers on a trunk, or of taggers if `by_word`.

    Args:
        trunk: the class of a language model that is trained by gradients, of an encoder, or of a
            model that names its `sentence_encoder`.
        by_word: the taggers.
    """
    about = {"trunk_class": getattr(trunk, "sentence_encoder", trunk), "by_word": by_word}
    return type(f"{trunk.__name__}{'Tagger' if by_word else 'Classifier'}", (Labeller,), about)


classifier_of = functools.partial(labeller_of, by_word=False)
tagger_of = functools.partial(labeller_of, by_word=True)
