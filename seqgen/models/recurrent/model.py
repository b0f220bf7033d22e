"""What recurrent language models share: input, stacked layers, dropout, head, and the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import require
from seqgen.models.base import NeuralLanguageModel, require_no_graph
from seqgen.models.dropout import Dropout, WordDropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.arrays import ArrayMap, Arrays, ArrayStep
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_products import affine_of
from seqgen.models.memory.pointer import Pointer
from seqgen.models.memory.recent import Recent
from seqgen.models.recurrent.batch_norm import BatchNorm
from seqgen.models.recurrent.cells.cell import Cell, LayerState
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.state import State
from seqgen.models.words.char_cnn import SpelledEmbedding

# So few rows step faster in NumPy, whose calls cost a fraction of torch's.
FEW_ROWS = 8


@dataclass
class RecurrentState(State):
    """What the layers hand on, and what a pointer looks back at.

    Attributes:
        layers: for each layer, the parts that its cell hands on, (B, H) unless it says otherwise.
        recent: the last positions; None in a model without a pointer.
    """

    layers: tuple[LayerState, ...]
    recent: Recent | None = None


@dataclass(frozen=True)
class ArrayStack:
    """The layers of a model over arrays, with weights that do not change.

    Attributes:
        steps: how each layer goes on.
        norms: for each layer what its output is multiplied by, and what is added; or none.
        vectors: the first layer's input (B, E) of ids (B,), where later layers read it too; None
            without dense connections.
    """

    steps: list[ArrayStep]
    norms: list[Arrays]
    vectors: ArrayMap | None


class ArrayState(RecurrentState):
    """The state between one-token steps over arrays: tensors are made when someone asks.

    A model with a pointer has none.

    Attributes:
        arrays: for each layer the parts of its state.
        stack: how the layers go on.
        head: logits from the last layer's h.
    """

    def __init__(self, arrays: list[Arrays], stack: ArrayStack, head: ArrayMap) -> None:
        self.arrays, self.stack, self.head = arrays, stack, head

    @property
    def layers(self) -> tuple[LayerState, ...]:
        """The same arrays as tensors."""
        return tuple(tuple(map(torch.from_numpy, layer)) for layer in self.arrays)

    def _each(self, leaf: Callable, child: Callable) -> RecurrentState:
        return RecurrentState(self.layers)._each(leaf, child)

    @classmethod
    def cat(cls, states: Sequence[RecurrentState]) -> RecurrentState:
        return RecurrentState.cat([RecurrentState(state.layers) for state in states])


class RecurrentLM(ArraySteps, NeuralLanguageModel):
    """A language model over a stack of layers of one kind of cell.

    Args:
        config: of the model.
        shares: a model of the same configuration whose embedding and head this one has too.
        predicts: whether it has a head; without one it only makes features.
    """

    carries_state = True
    reducible = True
    cell: ClassVar[type[Cell]]
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
        self.cell.require_suits(config)
        self.layers, size, below = nn.ModuleList(), config.input_size, 0
        for layer in [config] * (config.num_layers - 1) + [config.last]:
            below = below + size if config.dense else size
            self.layers.append(self.cell(below, layer))
            size = self.layers[-1].sizes[0]
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
        self.pointer = Pointer(size, config.pointer) if config.pointer else None

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        if isinstance(self.embedding, SpelledEmbedding):
            require(not spelled_out, "input=char-cnn is for words; these tokens are characters")
            self.embedding.spell(words)

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        recent = Recent.empty(batch, self.pointer.sentinel) if self.pointer else None
        return RecurrentState(tuple(layer.start(batch) for layer in self.layers), recent)

    def hidden(self, tokens: Tensor, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        state = state or self.start(tokens.shape[0])
        if self.reduced is not None:
            x, after = self._by_steps(tokens, state.layers)
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
        recent = (past or self.start(tokens.shape[0])).recent
        return self.pointer(logits, features, recent.extended(features, tokens))

    def suits_arrays(self) -> bool:
        return not self.pointer and super().suits_arrays()

    def _input(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(tokens)
        else:
            x = F.one_hot(tokens, self.vocab_size).to(next(self.parameters()).dtype)
        return self.word_dropout(x, tokens)

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        if not isinstance(state, ArrayState):
            if len(tokens) > FEW_ROWS or not self.suits_arrays():
                return super().step(tokens, state)
            require_no_graph(state)
            arrays = [tuple(part.numpy() for part in layer) for layer in state.layers]
            state = ArrayState(arrays, *self.prepared(self._arrays))
        x, after = self._stepped(np.asarray(tokens), state.arrays, state.stack)
        return state.head(x), ArrayState(after, state.stack, state.head)

    def _stepped(
        self, tokens: np.ndarray, past: list[Arrays], stack: ArrayStack
    ) -> tuple[np.ndarray, list[Arrays]]:
        """Read a token of each row; return the features (B, H), and each layer's state after."""
        x, after = tokens, []
        outputs = [] if stack.vectors is None else [stack.vectors(tokens)]
        for index, (step, before) in enumerate(zip(stack.steps, past, strict=True)):
            arrays = step(np.hstack(outputs) if outputs and index > 0 else x, before)
            y = arrays[0]
            if stack.norms:
                scale, shift = stack.norms[index]
                y = y * scale + shift
            # What a residual layer adds to is its input; the first layer has none.
            x = x + y if self.config.residual and index > 0 else y
            if outputs:
                outputs.append(x)
            after.append(arrays)
        return x, after

    def _by_steps(
        self, tokens: Tensor, layers: tuple[LayerState, ...]
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Return the features (B, T, H) and the layers' states, token by token over arrays.

        So matrices in fewer bits give the same numbers in a long text as in a step.
        """
        arrays = [tuple(part.numpy() for part in layer) for layer in layers]
        stack, _ = self.prepared(self._arrays)
        outputs = []
        for ids in tokens.numpy().T:
            x, arrays = self._stepped(ids, arrays, stack)
            outputs.append(x)
        after = tuple(tuple(map(torch.from_numpy, layer)) for layer in arrays)
        return torch.from_numpy(np.stack(outputs, 1)), after

    def _arrays(self) -> tuple[ArrayStack, ArrayMap]:
        every = self._one_hots() if self.embedding is None else self.embedding.weight
        inputs = [every, *[None] * (len(self.layers) - 1)]
        steps = [layer.array_step(x) for layer, x in zip(self.layers, inputs, strict=True)]
        norms = [
            tuple(part.detach().numpy() for part in norm.scale_and_shift()) for norm in self.norms
        ]
        vectors = None
        if self.config.dense and self.embedding is None:
            vectors = self._one_hot_rows
        elif self.config.dense:
            vectors = every.detach().numpy().__getitem__
        return ArrayStack(steps, norms, vectors), affine_of(self.head)

    def _one_hot_rows(self, ids: np.ndarray) -> np.ndarray:
        """Return the one-hot vectors (B, V) of ids (B,)."""
        rows = np.zeros((len(ids), self.vocab_size), self.head.weight.detach().numpy().dtype)
        rows[np.arange(len(ids)), ids] = 1
        return rows

    def _one_hots(self) -> Tensor:
        """Return the identity (V, V), of which only its ones take memory."""
        ids, ones = torch.arange(self.vocab_size), self.head.weight.new_ones(self.vocab_size)
        return torch.sparse_coo_tensor(ids.expand(2, -1), ones, check_invariants=True)


def _embedding(config: RecurrentConfig) -> nn.Module | None:
    """Return what makes the input vectors of tokens; None for one-hot vectors."""
    if config.input == "onehot":
        return None
    if config.input == "char-cnn":
        return SpelledEmbedding(config)
    return nn.Embedding(config.vocab_size, config.input_size)
