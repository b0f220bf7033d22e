"""ELMo: a forward and a backward language model whose states serve as features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from torch import Tensor, nn

from seqgen.models.base import TorchModel
from seqgen.models.network import Network
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.plugins.labels.models.elmo_arrays import BothWays
from seqgen.plugins.labels.models.settings import ELMoConfig


class ELMo(BothWays, TorchModel, Network):
    """ELMo as a torch module, the registry's `elmo`; see `BothWays`."""

    trained_by: ClassVar[str] = "seqgen.plugins.labels.regimes:BothDirections"
    over_tensors: ClassVar[Callable[..., Tensor] | None] = None
    window: int | None = None
    source_window: int | None = None

    def __init__(self, config: ELMoConfig, predicts: bool = True) -> None:
        super().__init__()
        self.config = config
        self.forwards = RecurrentLM(config, predicts=predicts)
        self.backwards = RecurrentLM(config, shares=self.forwards)
        self.size = 2 * config.output_size

    @property
    def embedding(self) -> nn.Module:
        """Token embedding shared by both directions, Theta_x."""
        return self.forwards.embedding

    @property
    def head(self) -> nn.Linear | None:
        """Output layer shared by both directions, Theta_s."""
        return self.forwards.head

    @property
    def output_dropout(self) -> nn.Module:
        """Dropout applied to the last layer's features of one direction."""
        return self.forwards.output_dropout

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        self.forwards.spell(words, spelled_out)

    def layers_in_order(self) -> list[list[nn.Module]]:
        """List the shared embedding, each layer of both directions, and the head."""
        both = self.forwards, self.backwards
        layers = [list(pair) for pair in zip(*(lm.layers for lm in both), strict=True)]
        layers[-1] += [norm for lm in both for norm in lm.norms]
        return [[self.embedding], *layers, [] if self.head is None else [self.head]]

    @staticmethod
    def outputs_of(model: RecurrentLM, tokens: Tensor) -> list[Tensor]:
        return model.outputs(tokens, model.start(len(tokens)))[0]
