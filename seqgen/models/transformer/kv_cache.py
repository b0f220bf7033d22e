"""KV cache: keys and values of past tokens, in one block for all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from seqgen.engines.native.library import address, library
from seqgen.engines.ops import Leaf, ops_of
from seqgen.models.state import NOTE, Rows, State

# Room for a short text, so that it never moves; the machine lends it page by page.
FEWEST_SLOTS = 256


@dataclasses.dataclass
class KVCache(State):
    """Last tokens of each row with their keys and values.

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

    tokens: Leaf
    keys: tuple[Leaf, ...]
    values: tuple[Leaf, ...]
    starts: list[int]
    end: int
    stride: int
    shared: np.ndarray | None = dataclasses.field(default=None, metadata=NOTE)

    def length(self, row: int) -> int:
        """Count the tokens in the window of `row`."""
        return self.end - self.starts[row]

    def append(self, tokens: Leaf) -> None:
        """Append tokens (B, T), whose keys and values are written later."""
        more = tokens.shape[1]
        if self.end + more > self.tokens.shape[1]:
            self._relocate(_capacity(self.end - min(self.starts) + more))
        self.tokens[:, self.end : self.end + more] = tokens
        self.end += more

    def _relocate(self, capacity: int, rows: Rows | None = None) -> None:
        """Move the used slots, of all rows or of `rows`, to the front of new blocks."""
        first = min(self.starts, default=self.end)
        picked = slice(None) if rows is None else rows

        def moved(x: Leaf) -> Leaf:
            used = _slots(x, first, self.end)[picked]
            block = _empty(used, len(used), capacity)
            _slots(block, 0, self.end - first)[...] = used
            return block

        self._set(moved)
        self.starts = [start - first for start in self.starts]
        self.end -= first
        if self.shared is not None:
            self.shared = np.maximum(self.shared - first, 0)

    def _set(self, changed: Callable[[Leaf], Leaf]) -> None:
        """Apply a function to every block and store the results."""
        self.tokens = changed(self.tokens)
        self.keys, self.values = tuple(map(changed, self.keys)), tuple(map(changed, self.values))

    def rewritten(self, rows: Rows) -> None:
        """Mark `rows` as no longer shared, since their slots are overwritten."""
        if self.shared is not None:
            rows = list(rows)
            self.shared[rows, :] = self.shared[:, rows] = 0

    def select(self, rows: Rows) -> KVCache:
        rows = list(rows)
        moved = [row for row, source in enumerate(rows) if row != source]
        stay = all(rows[rows[row]] == rows[row] for row in moved if rows[row] < len(rows))
        fewer = len(rows) < len(self.starts) and all(a < b for a, b in pairwise(rows))
        in_place = fewer or (len(rows) == len(self.starts) and stay)
        capacity = self.tokens.shape[1]
        if len(rows) > len(self.starts):  # each of more rows has less room
            capacity = _capacity(self.end - min(self.starts, default=self.end) + 1)
        shared = self._shared_by(rows)
        if in_place:
            # Every row that is read keeps its place, or is read before another takes it.
            self._overwrite(moved, [rows[row] for row in moved])
        if fewer:
            self._set(lambda x: x[: len(rows)])
        self.starts = [self.starts[row] for row in rows]
        self.shared = shared
        if not in_place:
            self._relocate(capacity, rows)
        return self

    @property
    def origins(self) -> tuple[np.ndarray, np.ndarray] | None:
        """For each row, the earlier row with the longest shared prefix, and the prefix's end.

        None where no two rows are known to hold the same.
        """
        if self.shared is None:
            return None
        earlier = np.tril(self.shared, -1)
        rows = earlier.argmax(1)
        return rows, np.take_along_axis(earlier, rows[:, None], 1)[:, 0]

    def _shared_by(self, rows: Sequence[int]) -> np.ndarray:
        """Select rows and columns of `shared` for `select`."""
        known = self.shared
        if known is None:
            known = np.zeros((len(self.starts),) * 2, dtype=np.int64)
        np.fill_diagonal(known, self.end)
        return known[np.ix_(rows, rows)]

    def _overwrite(self, targets: Sequence[int], sources: Sequence[int]) -> None:
        """Copy rows `sources` to `targets` in place, from the first slot that differs."""
        firsts = [0] * len(targets)
        if self.shared is not None:
            firsts = self.shared[targets, sources].tolist()
        moves, blocks = [*zip(targets, sources, firsts, strict=True)], (*self.keys, *self.values)
        if moves and library() is not None and all(map(_in_one_piece, blocks)):
            places, numbers = (np.array(x, np.int64) for x in ([*map(address, blocks)], moves))
            _, heads, slots, width = blocks[0].shape
            whole = len(blocks), heads, slots, width * blocks[0].itemsize
            library().overwrite(address(places), *whole, address(numbers), len(moves), self.end)
            blocks = ()
        for target, source, first in moves:
            for block in (self.tokens, *blocks):
                used = _slots(block, first, self.end)
                used[target] = used[source]

    def copy(self) -> KVCache:
        branch = super().copy()
        branch.starts = list(self.starts)
        branch.shared = None if self.shared is None else self.shared.copy()
        return branch

    @classmethod
    def cat(cls, states: Sequence[KVCache]) -> KVCache:
        """Join rows of different lengths, aligned at the newest slot.

        The first state's rows stay where they are if its blocks have room for the others.
        """
        end = max(state.end for state in states)
        rows = sum(len(state.starts) for state in states)
        fits = states[0].end == end < states[0].tokens.shape[1]
        capacity = _capacity(end + 1)

        def joined(parts: Sequence[Leaf]) -> Leaf:
            if len({ops_of(part) for part in parts}) > 1:  # of both engines
                parts = [ops_of(part).array(part) for part in parts]
            block, stay = _with_more_rows(parts[0], rows) if fits else None, 1
            if block is None:  # with room for others, which takes no memory before it is used
                spare = rows // 2 if isinstance(parts[0], np.ndarray) else 0
                block, stay = _empty(parts[0], rows + spare, capacity)[:rows], 0
            row = sum(map(len, parts[:stay]))
            for state, part in zip(states[stay:], parts[stay:], strict=True):
                own = block[row : row + len(part)]
                _slots(own, 0, end - state.end)[...] = 0
                _slots(own, end - state.end, end)[...] = _slots(part, 0, state.end)
                row += len(part)
            return block

        return dataclasses.replace(
            states[0],
            tokens=joined([state.tokens for state in states]),
            keys=tuple(map(joined, zip(*(state.keys for state in states), strict=True))),
            values=tuple(map(joined, zip(*(state.values for state in states), strict=True))),
            starts=[start + end - state.end for state in states for start in state.starts],
            end=end,
            shared=None,
        )


def _in_one_piece(x: Leaf) -> bool:
    """Check whether x is a C-contiguous NumPy array."""
    return isinstance(x, np.ndarray) and x.flags.c_contiguous


def _slots(x: Leaf, begin: int, end: int) -> Leaf:
    """Slice slots of tokens (B, C), or of keys or values (B, heads, C, D)."""
    return x[:, begin:end] if x.ndim == 2 else x[:, :, begin:end]


def _capacity(slots: int) -> int:
    """Compute the number of slots to allocate when `slots` are needed.

    Doubling makes the copying a constant share of the work.
    """
    return max(FEWEST_SLOTS, 2 * slots)


def _with_more_rows(x: Leaf, rows: int) -> np.ndarray | None:
    """Extend the view x to more rows of its base array; None if it has fewer."""
    whole = x.base if isinstance(x, np.ndarray) else None
    if not isinstance(whole, np.ndarray) or len(whole) < rows:
        return None
    same = whole.strides == x.strides and whole.shape[1:] == x.shape[1:]
    return whole[:rows] if same and whole.ctypes.data == x.ctypes.data else None


def _empty(like: Leaf, rows: int, capacity: int) -> Leaf:
    """Allocate a block like another, with `rows` rows and `capacity` slots."""
    shape = list(like.shape)
    shape[0], shape[1 if like.ndim == 2 else 2] = rows, capacity
    return ops_of(like).empty(like, *shape)


def empty_cache(
    batch: int, layers: int, heads: int, width: int, stride: int, like: Leaf
) -> KVCache:
    """Create a cache without slots for `batch` rows, with the data type and device of `like`."""
    ops = ops_of(like)
    blocks = tuple(ops.empty(like, batch, heads, 0, width) for _ in range(layers))
    tokens = ops.ints(like, []).reshape(batch, 0)
    return KVCache(tokens, blocks, blocks, [0] * batch, 0, stride)
