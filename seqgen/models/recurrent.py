"""What recurrent language models share: input, stacked layers, dropout, head, and the state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import ModelConfig, Size, require, setting
from seqgen.models.arrays import Affine, Arrays, ArrayStep
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout
from seqgen.models.state import State
from seqgen.registry import SHARED_DOCS

LayerState = tuple[Tensor, ...]
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

    # Found by runs of 9 seconds to 5 minutes on tiny Shakespeare (README, "Recipes").
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 2, "hidden_size": 256}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 192}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 128}, tokens=1.6e6),
        Size({"num_layers": 1, "hidden_size": 128}),
    )

    bf16_pays_from: ClassVar[int] = 1 << 20
    """The multiplications of a gate, a time step, from which bf16 is faster (measured)."""

    hidden_size: int = setting(SHARED_DOCS["hidden_size"], 256)
    num_layers: int = setting(SHARED_DOCS["num_layers"], 2)
    input: Literal["embedding", "onehot"] = setting(
        "What the first layer reads: learned embeddings, or one-hot vectors.", "embedding"
    )
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size.", None
    )
    residual: bool = setting(
        "Add the input of each layer to its output, from the second layer on.", False
    )
    dropout: float = setting(
        SHARED_DOCS["dropout"]
        + " It applies to the input of each layer and of the head (Zaremba et al. "
        "2014).",
        0.1,
    )
    tie_weights: bool = setting(
        "Use the matrix of the embedding in the head too (Press and Wolf 2017).", False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden_size", "num_layers"):
            require(getattr(self, name) >= 1, f"{name} is at least 1, not {getattr(self, name)}")
        require(0 <= self.dropout < 1, f"dropout is at least 0 and below 1, not {self.dropout}")
        size = self.embedding_size
        require(size is None or size >= 1, f"embedding_size is at least 1, not {size}")
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
    """For each layer, the tensors (B, H) that its cell hands on: h, or h and c."""

    layers: tuple[LayerState, ...]


class ArrayState(RecurrentState):
    """The state between one-token steps over arrays: tensors are made when someone asks.

    Attributes:
        arrays: for each layer its arrays (B, H).
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


class RecurrentLayer(nn.Module):
    """One recurrent layer: its cell's equation, and a whole sequence through a fused kernel.

    The gates' matrices lie below one another: `weight_ih` (G H, E), `weight_hh` (G H, H), with
    one `bias` (G H,), G being the number of gates, in the order of torch's kernels.

    Initialisation: input matrices uniform as Glorot and Bengio (2010) for each gate, recurrent
    matrices orthogonal for each gate (Saxe et al. 2014), biases zero.
    """

    gates: ClassVar[int]
    state_parts: ClassVar[int] = 1

    def __init__(self, input_size: int, config: RecurrentConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.hidden_size, self.stacked = hidden, self.gates
        self.weight_ih = nn.Parameter(torch.empty(self.gates * hidden, input_size))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(self.gates * hidden))
        for gate in self.weight_ih.detach().chunk(self.gates):
            nn.init.xavier_uniform_(gate)
        for gate in self.weight_hh.detach().chunk(self.gates):
            nn.init.orthogonal_(gate)

    @abstractmethod
    def step(self, x: Tensor, state: LayerState) -> LayerState:
        """Take one step: x (B, E) and the state's tensors (B, H) to the next ones; h is first."""

    @abstractmethod
    def array_step(self, inputs: Tensor | None) -> ArrayStep:
        """Return `step` over NumPy arrays, for weights that do not change.

        Args:
            inputs: (V, E), the vectors that ids stand for, where the step is to take ids.
        """

    @abstractmethod
    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Take a whole sequence: x (B, T, E) to every h (B, T, H), and the state after."""


class RecurrentLM(NeuralLanguageModel):
    """A language model over a stack of one kind of recurrent layer."""

    carries_state = True
    layer: ClassVar[type[RecurrentLayer]]
    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = None
        if config.input == "embedding":
            self.embedding = nn.Embedding(config.vocab_size, config.input_size)
        sizes = [config.input_size] + [config.hidden_size] * (config.num_layers - 1)
        self.layers = nn.ModuleList(self.layer(size, config) for size in sizes)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(config.hidden_size, config.vocab_size)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if config.tie_weights:
            self.embedding.weight = self.head.weight

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        zero = self.head.weight.new_zeros(batch, self.config.hidden_size)
        parts = self.layer.state_parts
        return RecurrentState(tuple(tuple(zero.clone() for _ in range(parts)) for _ in self.layers))

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
