"""Feed-forward language model over a window of tokens, in torch; see `equations.py`."""

from __future__ import annotations

from seqgen.engines.parts import glorot
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import NeuralLanguageModel
from seqgen.plugins.window.arrays import WindowArrays
from seqgen.plugins.window.equations import WindowNetwork
from seqgen.plugins.window.settings import WindowConfig


class Window(WindowNetwork, ArraySteps, NeuralLanguageModel):
    """Feed-forward window model in torch (architecture `window`); see `WindowNetwork`.

    Training carries the last tokens from one window to the next, so that it sees no other
    beginnings.

    Initialisation: embeddings normal, matrices as Glorot and Bengio (2010), biases zero.
    """

    carries_state = True
    arrays = WindowArrays
    config: WindowConfig

    def __init__(self, config: WindowConfig) -> None:
        super().__init__(config)
        for linear in filter(None, (self.layer, self.head)):
            glorot(linear)
