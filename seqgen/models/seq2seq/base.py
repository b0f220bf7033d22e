"""What models that write from a source have in common: encode once, then decode over a memory."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqgen.configs import ModelConfig, by_ratio, ranges, require, setting
from seqgen.data.sources import Source, Sources
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import State

# Dropout by the overfitting ratio, as for models of text: where targets are sentences, and where
# they are spelled out, in characters or bytes.
DROPOUT = {
    False: ((30, 0.1), (150, 0.2), (1000, 0.3), (math.inf, 0.4)),
    True: ((200, 0.0), (1000, 0.1), (5000, 0.2), (math.inf, 0.3)),
}


@dataclass(frozen=True, kw_only=True)
class SourceConfig(ModelConfig):
    """What the configuration of a model with sources has besides its layers.

    A source is ids of the target's own vocabulary, unless `source_vocab_size` gives it one of its
    own or `source_features` says that it is vectors.
    """

    derived: ClassVar[frozenset[str]] = frozenset(
        {"vocab_size", "source_vocab_size", "source_features"}
    )

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 4e-3,
        "batch_size": 32,
        "weight_decay": 0.01,
    }

    source_vocab_size: int | None = setting(
        "Number of tokens of the source's own tokenizer; none if it is joint.", None, ranges.TOKENS
    )
    source_features: int | None = setting(
        "Width of source vectors; none for tokens.", None, ranges.WIDTHS
    )
    share_embeddings: bool | None = setting(
        "Use one embedding for source and target; by default if their tokenizer is joint.", None
    )

    @classmethod
    def regularised(
        cls, overfitting_ratio: float, spelled: bool = False, rate_is_open: bool = False
    ) -> dict[str, Any]:
        """Return the settings that reduce overfitting.

        A sentence has several good translations, so that certainty is discouraged too; a string
        that is spelled out, such as a date, has one.
        """
        return {
            "dropout": by_ratio(DROPOUT[spelled], overfitting_ratio),
            "label_smoothing": 0.0 if spelled else 0.1,
        }

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.source_vocab_size is None or self.source_features is None
        require(one, "a source is tokens or vectors: source_vocab_size or source_features")
        require(
            not self.share_embeddings or self.joint,
            "share_embeddings needs one tokenizer for both sides",
        )

    @property
    def joint(self) -> bool:
        """Whether source and target have the same tokens."""
        return self.source_vocab_size is None and self.source_features is None

    @property
    def shares_embeddings(self) -> bool:
        """Whether source and target have one embedding."""
        return self.joint if self.share_embeddings is None else self.share_embeddings


class EncoderDecoder(NeuralLanguageModel):
    """A distribution over the next token of a target, given its source and the tokens before it.

    It is a LanguageModel whose states are opened on a memory: `model(targets, memory)` is the
    training call, which keeps the graph and no cache, and `model.start(memory)` opens a state for
    scoring and decoding. `None` is no state of such a model.
    """

    config: SourceConfig
    encoder: nn.Module

    @abstractmethod
    def encode(self, values: Tensor, lengths: Sequence[int]) -> Memory:
        """Encode sources; row i of the memory reads source i.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: how long each is, S of them, each at least 1.
        """

    @abstractmethod
    def start(self, memory: Memory, stride: int | None = None) -> State:
        """Open a state for scoring and decoding with a row for each of the memory's owners.

        Raises:
            ValueError: there is no memory.
        """

    def attend(self, tokens: Tensor, memory: Memory) -> Tensor:
        """Return how much each prediction reads of each place of its source.

        A text past the window is read in windows, as it is written and scored.

        Args:
            tokens: (B, T) of int64, what the decoder reads, BOS first.
            memory: with B rows.

        Returns:
            (B, layers, heads, T, L); each row of L sums to one.

        Raises:
            UsageError: the model has no attention.
        """
        pieces = [
            self.attend_in_window(tokens[:, begin:end], memory)[:, :, :, past:]
            for begin, past, end in windows(tokens.shape[1], self.window)
        ]
        return torch.cat(pieces, 3)

    @abstractmethod
    def attend_in_window(self, tokens: Tensor, memory: Memory) -> Tensor:
        """Do what `attend` does, for no more tokens than the window holds."""

    def remember(self, source: Source) -> Memory:
        """Encode sources as `data` holds them."""
        values = torch.from_numpy(source.values).to(self.device)
        if values.is_floating_point():
            values = values.to(self.head.weight.dtype)
        return self.encode(values, source.lengths.tolist())

    def layers_in_order(self) -> list[list[nn.Module]]:
        """Return the modules in groups in the order of their use: the encoder comes first.

        What both sides share is the decoder's.
        """
        groups = super().layers_in_order()
        rest = ([module for module in group if module is not self.encoder] for group in groups)
        return [[self.encoder], *(group for group in rest if group)]

    def opens(
        self, sources: Sources, stride: int | None = None
    ) -> Callable[[Sequence[int]], State]:
        """Return what opens states on these sources, whose handles are their numbers.

        Each call encodes the distinct ones of its handles side by side.

        Args:
            sources: what is written from.
            stride: see `start`.
        """

        def opened(handles: Sequence[int]) -> State:
            distinct = list(dict.fromkeys(handles))
            number = {handle: i for i, handle in enumerate(distinct)}
            memory = self.remember(sources.rows(distinct))
            rows = [number[handle] for handle in handles]
            return self.start(memory.select(rows), stride)

        return opened


def windows(length: int, window: int | None) -> list[tuple[int, int, int]]:
    """Return what a text is read in: where each context begins, how much of it is past, its end.

    A row that holds W tokens falls back to its last W - S, S being half the window (see
    `KVCache`).

    Args:
        length: of the text, at least 1.
        window: W; None for one context.
    """
    if window is None or length <= window:
        return [(0, 0, length)]
    stride = max(1, window // 2)
    spans = [(0, 0, window)]
    while spans[-1][2] < length:
        begin = spans[-1][0] + stride
        spans.append((begin, window - stride, min(begin + window, length)))
    return spans


def source_input(config: SourceConfig, size: int, embedding: nn.Embedding) -> nn.Module:
    """Return what makes vectors (S, L, size) of source values: an embedding, or a linear map.

    Args:
        config: of the model.
        size: the width of the vectors.
        embedding: the target's, whose matrix may be the source's too.
    """
    if config.source_features is not None:
        return Linear(config.source_features, size)
    of_source = nn.Embedding(config.source_vocab_size or config.vocab_size, size)
    if config.shares_embeddings:
        # The matrix and not the module: torch's functional calls swap a shared module's twice.
        of_source.weight = embedding.weight
    return of_source


def require_memory(memory: Memory | None) -> Memory:
    """Return the memory.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(memory, Memory):
        raise ValueError("this model writes from a source: give encode(values, lengths)")
    return memory
