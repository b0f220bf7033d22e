"""What a recurrent decoder hands on from token to token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqgen.models.engines.ops import Leaf, padded
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import State


@dataclass
class Seq2SeqState(State):
    """What a recurrent decoder hands on.

    Attributes:
        layers: for each layer, the parts (B, H) of its cell.
        memory: of the sources, with B rows.
        fed: the features (B, H) of the step before, with input feeding.
        covered: how much of each place has been read, (B, L), with coverage.
    """

    layers: tuple[tuple[Leaf, ...], ...]
    memory: Memory
    fed: Leaf | None = None
    covered: Leaf | None = None

    @classmethod
    def cat(cls, states: Sequence[Seq2SeqState]) -> Seq2SeqState:
        """Join rows whose sources may be of different widths."""
        size = max(state.memory.width for state in states)
        return super().cat([state._widened(size) for state in states])

    def _widened(self, size: int) -> Seq2SeqState:
        known = self.covered is None
        return self if known else replace(self, covered=padded(self.covered, 1, size))
