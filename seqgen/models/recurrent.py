"""What recurrent language models share: input, stacked layers, dropout, head, and the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import MOST_LAYERS, MOST_WIDTH, ModelConfig, Size, require, setting
from seqgen.models.array_steps import ArraySteps
from seqgen.models.arrays import Affine, Arrays, ArrayStep
from seqgen.models.base import NeuralLanguageModel, require_no_graph
from seqgen.models.cells.cell import Cell, LayerState
from seqgen.models.dropout import Dropout
from seqgen.models.state import State
from seqgen.registry import SHARED_DOCS

# So few rows step faster in NumPy, whose calls cost a fraction of torch's.
FEW_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """A stack of recurrent layers between an embedding and a softmax."""

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 1e-2,
        "batch_size": 32,
        "seq_len": 64,
        "weight_decay": 0.05,
    }

    # Found by runs of 9 seconds to 5 minutes on tiny Shakespeare (docs/recipes.md).
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 2, "hidden_size": 256}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 192}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 128}, tokens=1.6e6),
        Size({"num_layers": 1, "hidden_size": 128}),
    )

    bf16_pays_from: ClassVar[int] = 1 << 20
    """The multiplications of a gate, a time step, from which bf16 is faster (measured)."""

    hidden_size: int = setting(SHARED_DOCS["hidden_size"], 256, low=1, high=MOST_WIDTH)
    num_layers: int = setting(SHARED_DOCS["num_layers"], 2, low=1, high=MOST_LAYERS)
    input: Literal["embedding", "onehot"] = setting(
        "What the first layer reads: learned embeddings, or one-hot vectors.", "embedding"
    )
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size.", None, low=1, high=MOST_WIDTH
    )
    residual: bool = setting(
        "Add the input of each layer to its output, from the second layer on.", False
    )
    dropout: float = setting(
        SHARED_DOCS["dropout"]
        + " It applies to the input of each layer and of the head (Zaremba et al. "
        "2014).",
        0.1,
        low=0,
        below=1,
    )
    tie_weights: bool = setting(
        "Use the matrix of the embedding in the head too (Press and Wolf 2017).", False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_weights:
            require(self.input == "embedding", "tie_weights needs --set input=embedding")
            require(self.input_size == self.hidden_size, "tie_weights needs embedding_size = H")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= self.bf16_pays_from

    @property
    def input_size(self) -> int:
        """Width of the first layer's input."""
        if self.input == "onehot":
            return self.vocab_size
        return self.embedding_size or self.hidden_size


@dataclass
class RecurrentState(State):
    """For each layer, the parts that its cell hands on, (B, H) unless it says otherwise."""

    layers: tuple[LayerState, ...]


class ArrayState(RecurrentState):
    """The state between one-token steps over arrays: tensors are made when someone asks.

    Attributes:
        arrays: for each layer the parts of its state.
        steps: how the layers go on, with weights that do not change meanwhile.
        head: logits from the last layer's h.
    """

    def __init__(self, arrays: list[Arrays], steps: list[ArrayStep], head: Affine) -> None:
        self.arrays, self.steps, self.head = arrays, steps, head

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
    """A language model over a stack of layers of one kind of cell."""

    carries_state = True
    cell: ClassVar[type[Cell]]
    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = None
        if config.input == "embedding":
            self.embedding = nn.Embedding(config.vocab_size, config.input_size)
        output_size = self.cell.widths(config)[0]
        sizes = [config.input_size] + [output_size] * (config.num_layers - 1)
        self.layers = nn.ModuleList(self.cell(size, config) for size in sizes)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(output_size, config.vocab_size)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if config.tie_weights:
            self.embedding.weight = self.head.weight

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        return RecurrentState(tuple(layer.start(batch) for layer in self.layers))

    def hidden(self, tokens: Tensor, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        state = state or self.start(tokens.shape[0])
        one_step = tokens.shape[1] == 1 and not torch.is_grad_enabled()
        x = self._input(tokens)  # (B, T, E)
        after = []
        for index, (layer, past) in enumerate(zip(self.layers, state.layers, strict=True)):
            read = self.dropout(x)
            if one_step:
                past = layer.step(read[:, 0], past)
                y = past[0].unsqueeze(1)
            else:
                y, past = layer.sequence(read, past)  # (B, T, H)
            x = x + y if self.config.residual and index > 0 else y
            after.append(past)
        return self.dropout(x), RecurrentState(tuple(after))

    def _input(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            return self.embedding(tokens)
        return F.one_hot(tokens, self.vocab_size).to(self.head.weight.dtype)

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        if not isinstance(state, ArrayState):
            if len(tokens) > FEW_ROWS or not self.suits_arrays():
                return super().step(tokens, state)
            require_no_graph(state)
            arrays = [tuple(part.numpy() for part in layer) for layer in state.layers]
            state = ArrayState(arrays, *self.prepared(self._arrays))
        x, after = np.asarray(tokens), []
        for index, (step, past) in enumerate(zip(state.steps, state.arrays, strict=True)):
            arrays = step(x, past)
            # What a residual layer adds to is its input; the first layer has none.
            x = x + arrays[0] if self.config.residual and index > 0 else arrays[0]
            after.append(arrays)
        return state.head(x), ArrayState(after, state.steps, state.head)

    def _arrays(self) -> tuple[list[ArrayStep], Affine]:
        every = self._one_hots() if self.embedding is None else self.embedding.weight
        inputs = [every, *[None] * (len(self.layers) - 1)]
        steps = [layer.array_step(x) for layer, x in zip(self.layers, inputs, strict=True)]
        return steps, Affine(self.head.weight, self.head.bias)

    def _one_hots(self) -> Tensor:
        """Return the identity (V, V), of which only its ones take memory."""
        ids, ones = torch.arange(self.vocab_size), self.head.weight.new_ones(self.vocab_size)
        return torch.sparse_coo_tensor(ids.expand(2, -1), ones, check_invariants=True)
