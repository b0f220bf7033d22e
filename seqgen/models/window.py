"""The network over the last few tokens as a torch module; see `window_arrays.py`."""

from __future__ import annotations

from torch import Tensor

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.parts import fill, glorot
from seqgen.models.engines.tensor_products import as_tensor
from seqgen.models.window_arrays import OverWindow, WindowArrays, WindowConfig, WindowState


class Window(OverWindow, ArraySteps, NeuralLanguageModel):
    """The registry's `window`; see `OverWindow`.

    Training carries the last tokens from one window to the next, so that it sees no other
    beginnings.

    Initialisation: embeddings normal, matrices as Glorot and Bengio (2010), biases zero.
    """

    carries_state = True
    arrays = WindowArrays
    config: WindowConfig

    def __init__(self, config: WindowConfig) -> None:
        super().__init__()
        self.config = config
        fill(self, self.pieces(config))
        for linear in filter(None, (self.layer, self.head)):
            glorot(linear)

    def hidden(self, tokens: Tensor, state: WindowState | None) -> tuple[Tensor, WindowState]:
        return super().hidden(tokens, state and state.map(as_tensor))
