"""Several arrays as one, which is read piece by piece and never held as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# A slice over several arrays is copied if it has no more items than this.
COPIED = 1 << 24


def span(items: np.ndarray | Joined, begin: int, end: int) -> np.ndarray | Joined:
    """Return the items between two places, mapped as they are."""
    return Joined(items.within(begin, end)) if isinstance(items, Joined) else items[begin:end]


class Joined:
    """Arrays of one type, mapped from files, as one array (N,) that is only read.

    It takes what corpora are asked for: items by slices and by arrays of places. A large slice is
    joined too. `numpy.asarray` copies all of it into memory.

    Args:
        parts: one-dimensional, in order.
    """

    ndim = 1

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts = [part for part in parts if part.size]
        self.dtype = parts[0].dtype
        bounds = np.cumsum([0, *(part.size for part in self.parts)])
        self.starts, self.ends = bounds[:-1], bounds[1:]  # of each part
        self.size = int(bounds[-1])
        self.shape = (self.size,)

    def __len__(self) -> int:
        return self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.concatenate([np.zeros(0, self.dtype), *self.parts])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def astype(self, dtype: Any) -> np.ndarray:
        """Return a copy in memory."""
        return np.asarray(self).astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(*key.indices(self.size))
        places = np.asarray(key)
        if places.dtype == bool:
            return np.asarray(self)[places]
        if places.ndim == 0:
            return self._at(places[None])[0]
        return self._at(places)

    def _slice(self, begin: int, end: int, step: int) -> Any:
        if step != 1:
            return np.asarray(self)[begin : end if end >= 0 else None : step]
        pieces = self.within(begin, end)
        if len(pieces) == 1:
            return pieces[0]
        if end - begin <= COPIED:
            return np.concatenate([np.zeros(0, self.dtype), *pieces])
        return Joined(pieces)

    def within(self, begin: int, end: int) -> list[np.ndarray]:
        """Return the pieces of the parts between two places."""
        pieces = [
            part[max(0, begin - start) : max(0, end - start)]
            for part, start in zip(self.parts, self.starts.tolist(), strict=True)
        ]
        return [piece for piece in pieces if piece.size] or [np.zeros(0, self.dtype)]

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Return the items at some places, in their shape; negative ones count from the end."""
        if places.size and not (-self.size <= places.min() and places.max() < self.size):
            raise IndexError(f"a place is outside of {self.size} items")
        places = np.where(places < 0, places + self.size, places)
        which = np.searchsorted(self.ends, places, "right")
        items = np.empty(places.shape, self.dtype)
        for number in np.unique(which).tolist():
            there = which == number
            part = self.parts[number]
            items[there] = part[places[there] - int(self.starts[number])]
        return items
