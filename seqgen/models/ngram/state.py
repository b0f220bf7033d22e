"""What an n-gram model remembers: the last words of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqgen.models.ngram.steps import Context
from seqgen.models.state import Rows, State


@dataclass
class NGramState(State):
    """The last N - 1 words of each row, (B, N - 1); `NOTHING` of ngram.py before the start."""

    words: Tensor


class SteppedState(NGramState):
    """The state between one-token steps: a tensor is made when someone asks.

    Attributes:
        contexts: of each row, as `NGramSteps` reads on from them.
    """

    def __init__(self, contexts: list[Context]) -> None:
        self.contexts = contexts

    @property
    def words(self) -> Tensor:
        """The same words as a tensor."""
        width = len(self.contexts[0][0]) if self.contexts else 0
        words = [words for words, _ in self.contexts]
        return torch.tensor(words, dtype=torch.int64).view(len(words), width)

    def _each(self, leaf: Callable, child: Callable) -> NGramState:
        return NGramState(self.words)._each(leaf, child)

    def select(self, rows: Rows) -> SteppedState:
        return SteppedState([self.contexts[row] for row in rows])

    def copy(self) -> SteppedState:
        return SteppedState(list(self.contexts))

    @classmethod
    def cat(cls, states: Sequence[NGramState]) -> NGramState:
        return NGramState.cat([NGramState(state.words) for state in states])
