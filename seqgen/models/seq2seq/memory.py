"""Encoder memory: sources encoded once and shared by all rows that read them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from seqgen.engines.ops import Leaf, ops_of, padded
from seqgen.models.state import Rows, State


@dataclasses.dataclass
class Memory(State):
    """Encoder output of several sources, and the source that each row of a state reads.

    The leaves have a row a source, not a row of the state, and no call writes to them. So the
    verbs of states move `owners` alone: rows of one source attend as several queries on its one
    memory, and a copy shares the leaves.

    Attributes:
        keys: for each layer that attends, (S, ..., L, D); what stands past a source's length
            means nothing.
        values: as keys.
        first: for each layer of a recurrent decoder the parts (S, H) that it begins with.
        lengths: how long each source is, S of them. Never changed in place.
        owners: for each row of the state, which source it has.
    """

    keys: tuple[Leaf, ...]
    values: tuple[Leaf, ...]
    first: tuple[tuple[Leaf, ...], ...]
    lengths: list[int]
    owners: list[int]

    @cached_property
    def there(self) -> Leaf | None:
        """Mask (S, L) of source positions that are not padding; None without padding."""
        size = self.width
        if min(self.lengths) == size:
            return None
        ops, like = ops_of(self.keys[0]), self.keys[0]
        return ops.count(like, size) < ops.ints(like, self.lengths)[:, None]

    @property
    def width(self) -> int:
        """Number L of source positions including padding; 0 without attention."""
        return self.keys[0].shape[-2] if self.keys else 0

    def put_in_order(self) -> None:
        """Copy keys and values to contiguous memory, in the order in which heads are read."""
        self.keys, self.values = (
            tuple(map(np.ascontiguousarray, x)) for x in (self.keys, self.values)
        )

    def of_rows(self, x: Leaf) -> Leaf:
        """Repeat x (S, ...), one row per source, for the rows of the state, (B, ...)."""
        if self.owners == list(range(len(self.lengths))):
            return x
        return x[self.owners]

    def select(self, rows: Rows) -> Memory:
        owners = [self.owners[row] for row in rows]
        if owners == self.owners:
            return self
        used = sorted(set(owners))
        # Copied only once half of the sources are no longer read, so seldom.
        if 2 * len(used) > len(self.lengths):
            return dataclasses.replace(self, owners=owners)
        number = {source: i for i, source in enumerate(used)}
        left = self.map(lambda x: x[used])
        left.lengths = [self.lengths[source] for source in used]
        left.owners = [number[source] for source in owners]
        return left

    def copy(self) -> Memory:
        return dataclasses.replace(self, owners=list(self.owners))

    @classmethod
    def cat(cls, states: Sequence[Memory]) -> Memory:
        """Join the rows of all states; identical sources stay shared."""
        parts = list({state._identity: state for state in states}.values())
        begins, count = {}, 0
        for part in parts:
            begins[part._identity] = count
            count += len(part.lengths)
        owners = [begins[state._identity] + owner for state in states for owner in state.owners]
        if len(parts) == 1:
            return dataclasses.replace(states[0], owners=owners)
        size = max(part.width for part in parts)
        joined = super().cat([part._widened(size) for part in parts])
        joined.lengths = [length for part in parts for length in part.lengths]
        joined.owners = owners
        return joined

    @property
    def _identity(self) -> tuple[int, ...]:
        """Key that is equal for two memories of the same unchanged sources."""
        return id(self.lengths), *map(id, self.tensors())

    def _widened(self, size: int) -> Memory:
        keys, values = (
            tuple(padded(x, -2, size) for x in leaves) for leaves in (self.keys, self.values)
        )
        return dataclasses.replace(self, keys=keys, values=values)

    def group(self, x: Leaf) -> Leaf:
        """Reshape rows (B, ...) to (S, G, ...), grouped by source.

        G is the most rows that one source has; places that no row takes are zero.
        """
        groups, places = self._places
        if places is not None:
            room = ops_of(x).zeros(x, len(self.lengths) * groups, *x.shape[1:])
            x = ops_of(x).put(room, places, x)
        return x.reshape(len(self.lengths), groups, *x.shape[1:])

    def ungroup(self, x: Leaf) -> Leaf:
        """Reshape (S, G, ...) back to rows (B, ...), the inverse of `group`."""
        _, places = self._places
        flat = x.reshape(-1, *x.shape[2:])
        return flat if places is None else flat[places]

    @cached_property
    def _places(self) -> tuple[int, list[int] | None]:
        """Group size G and each row's index in S G; None for indices already in order."""
        groups = max(Counter(self.owners).values())
        taken = [0] * len(self.lengths)
        places = []
        for owner in self.owners:
            places.append(owner * groups + taken[owner])
            taken[owner] += 1
        return groups, None if places == list(range(len(self.lengths) * groups)) else places
