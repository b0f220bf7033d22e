"""State of a model between tokens: a tree of arrays or tensors, batch dimension first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from seqgen.engines.ops import Leaf, is_leaf, ops_of

S = TypeVar("S", bound="State")
# Metadata of a field that is no leaf, though it is an array: a note of the state's own.
NOTE = {"note": True}
Rows = Sequence[int]


@dataclasses.dataclass
class State:
    """Base class of model states: a tree of arrays or tensors, batch dimension first.

    The leaves are tensors in the state of a torch module, arrays in that of an array model. A
    subclass is a dataclass whose fields are leaves (B, ...), other states, tuples of these,
    or None. Every verb calls a child state's own. A model call, `select` and `cat` use up the
    states they are given, since caches are written in place: to branch, keep a `copy()` first.
    """

    def _each(self: S, leaf: Callable[[Leaf], Leaf], child: Callable[[State], State]) -> S:
        changed = {f.name: _visit(getattr(self, f.name), leaf, child) for f in _parts(self)}
        return dataclasses.replace(self, **changed)

    @property
    def is_of_arrays(self) -> bool:
        """Whether the leaves are NumPy arrays."""
        value: Any = self
        while not is_leaf(value):
            value = next(iter(value if isinstance(value, tuple) else vars(value).values()))
        return isinstance(value, np.ndarray)

    def map(self: S, f: Callable[[Leaf], Leaf]) -> S:
        """Apply `f` to every leaf."""
        return self._each(f, lambda state: state.map(f))

    def tensors(self) -> list[Leaf]:
        """List the leaves in the order of `map`."""
        leaves: list[Leaf] = []
        self.map(lambda x: leaves.append(x) or x)
        return leaves

    def named(self) -> dict[str, Leaf]:
        """List the leaves by their path of field names and tuple indices: `layers.0.1`."""
        return dict(_named(self, ""))

    def with_tensors(self: S, named: Mapping[str, Leaf]) -> S:
        """Replace the leaves by those of `named` of a state of the same structure.

        Raises:
            KeyError: it was of another structure.
        """
        paths = self.named()
        if paths.keys() != named.keys():
            raise KeyError(", ".join(sorted(paths.keys() ^ named.keys())))
        in_order = iter([named[path] for path in paths])
        return self.map(lambda _: next(in_order))

    def select(self: S, rows: Rows) -> S:
        """Reorder, repeat or drop rows of the batch."""
        rows = list(rows)
        return self._each(lambda x: x[rows], lambda state: state.select(rows))

    def copy(self: S) -> S:
        """Copy the state, so that calls on the copy leave this one unchanged."""
        return self._each(lambda x: ops_of(x).copy(x), lambda state: state.copy())

    def detach(self: S) -> S:
        """Detach the state from the autograd graph, as truncated backpropagation needs."""
        return self._each(lambda x: ops_of(x).detach(x), lambda state: state.detach())

    def as_arrays(self: S) -> S:
        """Convert the leaves to NumPy arrays."""
        return self.map(lambda x: ops_of(x).array(x))

    @classmethod
    def cat(cls: type[S], states: Sequence[S]) -> S:
        """Concatenate the rows of states, which may be of different lengths."""
        first = states[0]
        joined = {f.name: _join([getattr(s, f.name) for s in states]) for f in _parts(first)}
        return dataclasses.replace(first, **joined)


def _parts(state: State) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(state) if field.metadata != NOTE]


def _visit(value: Any, leaf: Callable, child: Callable) -> Any:
    if is_leaf(value):
        return leaf(value)
    if isinstance(value, State):
        return child(value)
    if isinstance(value, tuple):
        return tuple(_visit(v, leaf, child) for v in value)
    return value


def _named(value: Any, path: str) -> Iterator[tuple[str, Leaf]]:
    """Yield every leaf of a tree with its path, in the order of `map`."""
    if is_leaf(value):
        yield path, value
        return
    children: list[tuple[str, Any]] = []
    if isinstance(value, State):
        children = [(f.name, getattr(value, f.name)) for f in _parts(value)]
    elif isinstance(value, tuple):
        children = [(str(place), item) for place, item in enumerate(value)]
    for name, child in children:
        yield from _named(child, f"{path}.{name}" if path else name)


def _join(values: Sequence[Any]) -> Any:
    first = values[0]
    if is_leaf(first):
        if len({ops_of(value) for value in values}) > 1:  # of both engines
            values = [ops_of(value).array(value) for value in values]
        return ops_of(values[0]).along(0, *values)
    if isinstance(first, State):
        return type(first).cat(values)
    if isinstance(first, tuple):
        return tuple(_join(column) for column in zip(*values, strict=True))
    return first


# Handles of sources, one a row, to a state whose rows are written from those sources and hold no
# past yet. Decoding knows a source by its handle alone.
Opens = Callable[[Rows], State]
