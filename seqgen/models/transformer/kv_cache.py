"""The keys and values of a transformer's past, in one block for all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.models.state import NOTE, Rows, State

# Room for a short text, so that it never moves; the machine lends only the pages written to.
FEWEST_SLOTS = 256


@dataclasses.dataclass
class KVCache(State):
    """Each row's last tokens with their keys and values.

    Slots are shared: every row's newest token lies in slot `end - 1`, and row r's window begins
    in slot `starts[r]`, so its tokens stand at positions 0 .. end - 1 - starts[r]. Slots before
    `end - W` are never needed, and those before every row's start are given back when room is
    wanted.

    Attributes:
        tokens: (B, C) int64, C being the slots there are.
        keys: for each layer (B, heads, C, D).
        values: for each layer (B, heads, C, D).
        starts: for each row the first slot of its window.
        end: slots in use.
        stride: how many of its oldest tokens a full window drops.
        shared: (B, B) of int64, the slot before which two rows hold the same, because one was
            made from the other by `select`; None where no two are known to.
    """

    tokens: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    starts: list[int]
    end: int
    stride: int
    shared: np.ndarray | None = dataclasses.field(default=None, metadata=NOTE)

    def length(self, row: int) -> int:
        """Return how many tokens the window of `row` holds."""
        return self.end - self.starts[row]

    def append(self, tokens: Tensor) -> None:
        """Take the next slots for tokens (B, T); their keys and values are yet to be written."""
        self._make_room(tokens.shape[1])
        self.tokens[:, self.end : self.end + tokens.shape[1]] = tokens
        self.end += tokens.shape[1]

    def _make_room(self, more: int) -> None:
        capacity = self.tokens.shape[1]
        if self.end + more <= capacity:
            return
        # Doubling makes the copying a constant share of the work.
        used = self.end - min(self.starts)
        self._relocate(max(FEWEST_SLOTS, 2 * (used + more)))

    def _relocate(self, capacity: int, rows: Rows | None = None) -> None:
        """Move what is used, of all rows or of `rows`, to the front of new blocks."""
        first = min(self.starts, default=self.end)
        picked = slice(None) if rows is None else rows

        def moved(x: Tensor, dim: int) -> Tensor:
            return _moved(x.narrow(dim, first, self.end - first)[picked], capacity, dim)

        self.tokens = moved(self.tokens, dim=1)
        self.keys = tuple(moved(k, dim=2) for k in self.keys)
        self.values = tuple(moved(v, dim=2) for v in self.values)
        self.starts = [start - first for start in self.starts]
        self.end -= first
        if self.shared is not None:
            self.shared = np.maximum(self.shared - first, 0)

    def rewritten(self, rows: Rows) -> None:
        """Forget what `rows` share with others: their slots are written anew."""
        if self.shared is not None:
            rows = list(rows)
            self.shared[rows, :] = self.shared[:, rows] = 0

    def select(self, rows: Rows) -> KVCache:
        rows = list(rows)
        moved = [row for row, source in enumerate(rows) if row != source]
        stay = all(rows[rows[row]] == rows[row] for row in moved if rows[row] < len(rows))
        in_place = len(rows) == len(self.starts) and stay
        shared = self._shared_by(rows)
        if in_place:
            # Every row that is read keeps its place, so the others can be written over.
            self._overwrite(moved, [rows[row] for row in moved])
        self.starts = [self.starts[row] for row in rows]
        self.shared = shared
        if not in_place:
            self._relocate(self.tokens.shape[1], rows)
        return self

    def _shared_by(self, rows: Sequence[int]) -> np.ndarray:
        """Return `shared` of the rows that `select` is asked for."""
        known = self.shared
        if known is None:
            known = np.zeros((len(self.starts),) * 2, dtype=np.int64)
        np.fill_diagonal(known, self.end)
        return known[np.ix_(rows, rows)]

    def _overwrite(self, targets: Sequence[int], sources: Sequence[int]) -> None:
        """Make rows `targets` those of `sources`, from the slot where each two parted."""
        tensors = self.tokens[:, None], *self.keys, *self.values
        # A few slots of one row: NumPy has copied them before torch begins.
        known = self.tokens.device.type == "cpu" and self.keys[0].dtype != torch.bfloat16
        blocks = [x.numpy() for x in tensors] if known else tensors
        for pair in zip(targets, sources, strict=True):
            first = 0 if self.shared is None else int(self.shared[pair])
            target, source = pair
            for block in blocks:
                block[target, :, first : self.end] = block[source, :, first : self.end]

    def copy(self) -> KVCache:
        branch = super().copy()
        branch.starts = list(self.starts)
        branch.shared = None if self.shared is None else self.shared.copy()
        return branch

    @classmethod
    def cat(cls, states: Sequence[KVCache]) -> KVCache:
        """Join rows of different lengths, aligned at the newest slot."""
        end = max(state.end for state in states)
        aligned = [state._aligned(end) for state in states]
        joined = super().cat(aligned)
        joined.starts = [start for state in aligned for start in state.starts]
        joined.shared = None
        return joined

    def _aligned(self, end: int) -> KVCache:
        shift = end - self.end

        def pad(x: Tensor, dim: int) -> Tensor:
            used = x.narrow(dim, 0, self.end)
            return F.pad(used, (*[0, 0] * (x.dim() - 1 - dim), shift, 0))

        return dataclasses.replace(
            self,
            tokens=pad(self.tokens, 1),
            keys=tuple(pad(k, 2) for k in self.keys),
            values=tuple(pad(v, 2) for v in self.values),
            starts=[start + shift for start in self.starts],
            end=end,
        )


def _moved(used: Tensor, capacity: int, dim: int) -> Tensor:
    """Return `used` at the front of a larger tensor; what lies behind is yet to be written."""
    shape = list(used.shape)
    shape[dim] = capacity
    moved = used.new_empty(shape)
    moved.narrow(dim, 0, used.shape[dim]).copy_(used)
    return moved


def empty_cache(
    batch: int, layers: int, heads: int, width: int, stride: int, like: Tensor
) -> KVCache:
    """Return a cache without slots for `batch` rows, with the type and device of `like`."""
    blocks = tuple(like.new_zeros(batch, heads, 0, width) for _ in range(layers))
    tokens = torch.zeros(batch, 0, dtype=torch.int64, device=like.device)
    return KVCache(tokens, blocks, blocks, [0] * batch, 0, stride)
