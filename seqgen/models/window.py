"""The network over the last few tokens as a torch module; see `window_arrays.py`."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.engines.tensor_products import as_tensor
from seqgen.models.window_arrays import OverWindow, WindowArrays, WindowConfig, WindowState


class Window(OverWindow, ArraySteps, NeuralLanguageModel):
    """The registry's `window`; see `OverWindow`.

    Training carries the last tokens from one window to the next, so that it sees no other
    beginnings.

    Initialisation: embeddings normal, matrices as Glorot and Bengio (2010), biases zero.
    """

    carries_state = True
    ops: ClassVar[Ops] = TensorOps
    arrays = WindowArrays
    config: WindowConfig

    def __init__(self, config: WindowConfig) -> None:
        super().__init__()
        self.config = config
        inputs = config.context_size * config.embedding_size
        self.embedding = nn.Embedding(config.vocab_size + 1, config.embedding_size)
        nn.init.normal_(self.embedding.weight)
        self.layer = Linear(inputs, config.hidden_size) if config.hidden_size else None
        self.dropout = Dropout(config.dropout)
        features = config.hidden_size + (inputs if config.direct else 0)
        self.head = Linear(features, config.vocab_size)
        for linear in filter(None, (self.layer, self.head)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def hidden(self, tokens: Tensor, state: WindowState | None) -> tuple[Tensor, WindowState]:
        return super().hidden(tokens, state and state.map(as_tensor))
