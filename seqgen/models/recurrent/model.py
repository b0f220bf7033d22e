"""What recurrent language models share: input, stacked layers, dropout, head, and the state."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import require
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout, WordDropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.native.library import library
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.engines.tensor_products import as_array, as_tensor
from seqgen.models.memory.pointer import pointed
from seqgen.models.memory.recent import Recent
from seqgen.models.recurrent.array_model import RecurrentArrays
from seqgen.models.recurrent.batch_norm import BatchNorm
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.state import RecurrentState
from seqgen.models.words.char_cnn import SpelledEmbedding

# So few rows step faster in NumPy, whose calls cost a fraction of torch's; any number does where
# the kernels are compiled.
FEW_ROWS = 8


class RecurrentLM(ArraySteps, NeuralLanguageModel):
    """A language model over a stack of layers of one kind of cell.

    Args:
        config: of the model.
        shares: a model of the same configuration whose embedding and head this one has too.
        predicts: whether it has a head; without one it only makes features.
    """

    carries_state = True
    reducible = True
    arrays = RecurrentArrays
    config: RecurrentConfig

    def __init__(
        self,
        config: RecurrentConfig,
        shares: RecurrentLM | None = None,
        predicts: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = _embedding(config) if shares is None else shares.embedding
        config.equation.require_suits(config)
        cells = [Cell(equation.input_size, equation.config) for equation in config.equations()]
        self.layers, size = nn.ModuleList(cells), cells[-1].sizes[0]
        self.norms = nn.ModuleList(
            BatchNorm(layer.sizes[0]) for layer in self.layers if config.norms == "output"
        )
        self.word_dropout = WordDropout(config.word_dropout, config.vocab_size)
        self.input_dropout, self.dropout, self.output_dropout = (
            Dropout(config.dropout if p is None else p, config.dropout_shares)
            for p in (config.input_dropout, None, config.output_dropout)
        )
        self.head = None if shares is None else shares.head
        if shares is None and predicts:
            self.head = Linear(size, config.vocab_size)
            nn.init.xavier_uniform_(self.head.weight)
            nn.init.zeros_(self.head.bias)
            if config.tie_weights:
                self.embedding.weight = self.head.weight
        for own, name in config.equation.of_head.items() if self.head else ():
            for layer in self.layers:
                setattr(layer, own, getattr(self.head, name))
        self.pointer = Pointer(size, config.pointer) if config.pointer else None

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        if isinstance(self.embedding, SpelledEmbedding):
            require(not spelled_out, "input=char-cnn is for words; these tokens are characters")
            self.embedding.spell(words)

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        recent = Recent.empty(batch, self.pointer.sentinel) if self.pointer else None
        return RecurrentState(tuple(layer.start(batch) for layer in self.layers), recent)

    def hidden(self, tokens: Tensor, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        state = (state or self.start(tokens.shape[0])).map(as_tensor)
        if self.reduced is not None:
            x, after = self._by_steps(tokens, state)
        else:
            outputs, after = self.outputs(tokens, state)
            x = outputs[-1]
        features, recent = self.output_dropout(x), None
        if self.pointer:
            # A position sees itself, so the next one sees all of these but the oldest.
            recent = state.recent.extended(features, tokens).last(self.pointer.reach - 1)
        return features, RecurrentState(after, recent)

    def layer_features(self, tokens: Tensor) -> list[Tensor]:
        return self.outputs(tokens, self.start(len(tokens)))[0][1:]

    def outputs(
        self, tokens: Tensor, state: RecurrentState
    ) -> tuple[list[Tensor], tuple[LayerState, ...]]:
        """Return the input vectors and what each layer makes of them, (B, T, H) each.

        Args:
            tokens: (B, T).
            state: of what came before.

        Returns:
            These, residual connections added up, and the state of each layer after the tokens.
            With dense connections a layer reads all that is before its own output in the list.
        """
        one_step = tokens.shape[1] == 1 and not torch.is_grad_enabled()
        x = self._input(tokens)  # (B, T, E)
        outputs, after = [x], []
        for index, (layer, past) in enumerate(zip(self.layers, state.layers, strict=True)):
            below = torch.cat(outputs, -1) if self.config.dense else x
            read = (self.dropout if index > 0 else self.input_dropout)(below)
            if one_step:
                past = layer.step(read[:, 0], past)
                y = past[0].unsqueeze(1)
            else:
                y, past = layer.sequence(read, past)  # (B, T, H)
            if self.norms:
                y = self.norms[index](y)
            x = x + y if self.config.residual and index > 0 else y
            outputs.append(x)
            after.append(past)
        return outputs, tuple(after)

    def logits(
        self,
        features: Tensor,
        tokens: Tensor,
        past: RecurrentState | None,
        last: int | None = None,
    ) -> Tensor:
        logits = super().logits(features, tokens, past, last)
        if not self.pointer:
            return logits
        recent = (past or self.start(len(tokens))).recent.map(as_tensor)
        return self.pointer(logits, features, recent.extended(features, tokens))

    def _input(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(tokens)
        else:
            x = F.one_hot(tokens, self.vocab_size).to(next(self.parameters()).dtype)
        return self.word_dropout(x, tokens)

    def takes_arrays_for(self, rows: int) -> bool:
        return rows <= FEW_ROWS or bool(self.reduced) or library() is not None

    def _by_steps(
        self, tokens: Tensor, state: RecurrentState
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Return the features (B, T, H) and the layers' states, token by token over arrays.

        So matrices in fewer bits give the same numbers in a long text as in a step.
        """
        model, state, outputs = self.over_arrays(), state.map(as_array), []
        for ids in tokens.numpy().T:
            of_layers, state = model.outputs(ids, state)
            outputs.append(of_layers[-1])
        return torch.from_numpy(np.stack(outputs, 1)), state.map(as_tensor).layers


class Pointer(nn.Module):
    """See `pointed`.

    Args:
        size: the width of the features.
        reach: L.
    """

    def __init__(self, size: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.query = nn.Linear(size, size)
        self.sentinel = nn.Parameter(torch.empty(size))
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        nn.init.normal_(self.sentinel, std=1 / math.sqrt(size))

    def forward(self, logits: Tensor, features: Tensor, recent: Recent) -> Tensor:
        with torch.autocast(logits.device.type, enabled=False):
            return pointed(TensorOps, self, self.reach, logits, features, recent)


def _embedding(config: RecurrentConfig) -> nn.Module | None:
    """Return what makes the input vectors of tokens; None for one-hot vectors."""
    if config.input == "onehot":
        return None
    if config.input == "char-cnn":
        return SpelledEmbedding(config)
    return nn.Embedding(config.vocab_size, config.input_size)
