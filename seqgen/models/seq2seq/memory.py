"""What a decoder reads of its sources: encoded once, and shared by all rows of a source."""

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
    """Encoded sources, and which of them each row of a state reads.

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
        """Which places a source has, (S, L) of bool; None where every source has all."""
        size = self.width
        if min(self.lengths) == size:
            return None
        ops, like = ops_of(self.keys[0]), self.keys[0]
        return ops.count(like, size) < ops.ints(like, self.lengths)[:, None]

    @property
    def width(self) -> int:
        """L, the places that there is room for; 0 where nothing attends."""
        return self.keys[0].shape[-2] if self.keys else 0

    def put_in_order(self) -> None:
        """Lay out arrays of keys and values in the order in which each head is read."""
        self.keys, self.values = (
            tuple(map(np.ascontiguousarray, x)) for x in (self.keys, self.values)
        )

    def of_rows(self, x: Leaf) -> Leaf:
        """Repeat x (S, ...), a row a source, for the rows of the state, (B, ...)."""
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
        """Join the rows of all; states that read the very same sources go on sharing them."""
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
        """What two memories of the very same sources, unchanged, have in common."""
        return id(self.lengths), *map(id, self.tensors())

    def _widened(self, size: int) -> Memory:
        keys, values = (
            tuple(padded(x, -2, size) for x in leaves) for leaves in (self.keys, self.values)
        )
        return dataclasses.replace(self, keys=keys, values=values)

    def group(self, x: Leaf) -> Leaf:
        """Put rows (B, ...) of either engine beside those of the same source, (S, G, ...).

        G is the most rows that one source has; places that no row takes are zero.
        """
        groups, places = self._places
        if places is not None:
            room = ops_of(x).zeros(x, len(self.lengths) * groups, *x.shape[1:])
            x = ops_of(x).put(room, places, x)
        return x.reshape(len(self.lengths), groups, *x.shape[1:])

    def ungroup(self, x: Leaf) -> Leaf:
        """Return the rows (B, ...) of what `group` put together, (S, G, ...)."""
        _, places = self._places
        flat = x.reshape(-1, *x.shape[2:])
        return flat if places is None else flat[places]

    @cached_property
    def _places(self) -> tuple[int, list[int] | None]:
        """G, and each row's place among S G; None where the rows stand in that order already."""
        groups = max(Counter(self.owners).values())
        taken = [0] * len(self.lengths)
        places = []
        for owner in self.owners:
            places.append(owner * groups + taken[owner])
            taken[owner] += 1
        return groups, None if places == list(range(len(self.lengths) * groups)) else places
