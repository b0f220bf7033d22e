"""Recurrent language models in torch; see `equations.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.engines.choice import MOST_ROWS_OF_NUMPY
from seqgen.engines.dropout import WordDropout
from seqgen.engines.native.library import library
from seqgen.engines.parts import Piece
from seqgen.engines.tensor_products import as_array, as_tensor
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.recurrent.arrays import RecurrentArrays
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.models.recurrent.equations import RecurrentStack, RecurrentState
from seqgen.settings import require

if TYPE_CHECKING:
    from seqgen.models.recurrent.settings import RecurrentConfig


@dataclass(frozen=True)
class ModulePiece(Piece):
    """Piece that wraps an existing module, such as another model's layer."""

    built: Any

    def module(self) -> Any:
        return self.built


class RecurrentLM(RecurrentStack, ArraySteps, NeuralLanguageModel):
    """Recurrent language model in torch, with layers of one kind of cell.

    Args:
        config: of the model.
        shares: a model of the same configuration whose embedding and head this one has too.
        predicts: whether it has a head; without one it only makes features.
    """

    carries_state = True
    recurrent = True
    quantizable = True
    arrays = RecurrentArrays

    def __init__(
        self,
        config: RecurrentConfig,
        shares: RecurrentLM | None = None,
        predicts: bool = True,
    ) -> None:
        config.equation.require_suits(config)
        pieces = self.pieces(config)
        if shares is not None:
            pieces |= {"embedding": ModulePiece(shares.embedding), "head": ModulePiece(shares.head)}
        super().__init__(config, pieces if predicts else {**pieces, "head": None})
        self.word_dropout = WordDropout(config.word_dropout, config.vocab_size)
        if config.tie_weights and self.head:
            self.embedding.weight = self.head.weight
        for own, name in config.equation.of_head.items() if self.head else ():
            for layer in self.layers:
                setattr(layer, own, getattr(self.head, name))

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        if self.config.input == "char-cnn":
            require(not spelled_out, "input=char-cnn is for words; these tokens are characters")
            self.embedding.spell(words)

    def first_input(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        if self.embedding is not None:
            x = self.embedding(tokens)
        else:
            x = F.one_hot(tokens, self.vocab_size).to(next(self.parameters()).dtype)
        x = self.word_dropout(x, tokens)  # (B, T, E)
        return x, x

    def step_or_sequence(
        self, layer: Cell, x: Tensor, past: LayerState
    ) -> tuple[Tensor, LayerState]:
        if x.shape[1] > 1 or torch.is_grad_enabled():
            return layer.sequence(x, past)
        parts = layer.step(x[:, 0], past)
        return parts[0].unsqueeze(1), parts

    def outputs(
        self, tokens: Tensor, state: RecurrentState
    ) -> tuple[list[Tensor | None], tuple[LayerState, ...]]:
        if self.quantized is None:
            return super().outputs(tokens, state)
        # Token by token over arrays, so that matrices in fewer bits give the same numbers in a
        # long text as in a step.
        model, state, steps = self.over_arrays(), state.map(as_array), []
        for ids in tokens.numpy().T:
            outputs, layers = model.outputs(ids, state)
            state = RecurrentState(layers)
            steps.append(outputs[1:])
        layers = (torch.from_numpy(np.stack(layer, 1)) for layer in zip(*steps, strict=True))
        return [None, *layers], state.map(as_tensor).layers

    @property
    def most_array_rows(self) -> int | None:
        return None if self.quantized or library() is not None else MOST_ROWS_OF_NUMPY
