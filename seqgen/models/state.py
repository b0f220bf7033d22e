"""What a model remembers of the past, as a tree of arrays or tensors with the batch in front."""

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
    """A tree of leaves, batch rows first: the base of every model's state.

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
        """Whether the leaves are arrays, as the first is."""
        value: Any = self
        while not is_leaf(value):
            value = next(iter(value if isinstance(value, tuple) else vars(value).values()))
        return isinstance(value, np.ndarray)

    def map(self: S, f: Callable[[Leaf], Leaf]) -> S:
        """Return the state with `f` applied to every leaf."""
        return self._each(f, lambda state: state.map(f))

    def tensors(self) -> list[Leaf]:
        """Return every leaf of the tree, in the order in which `map` visits them."""
        found: list[Leaf] = []
        self.map(lambda x: found.append(x) or x)
        return found

    def named(self) -> dict[str, Leaf]:
        """Return every leaf by its path of field names and places in tuples: `layers.0.1`."""
        return dict(_named(self, ""))

    def with_tensors(self: S, named: Mapping[str, Leaf]) -> S:
        """Return the state with other leaves, which `named` gave for one of the same structure.

        Raises:
            KeyError: it was of another structure.
        """
        paths = self.named()
        if paths.keys() != named.keys():
            raise KeyError(", ".join(sorted(paths.keys() ^ named.keys())))
        in_order = iter([named[path] for path in paths])
        return self.map(lambda _: next(in_order))

    def select(self: S, rows: Rows) -> S:
        """Return the state of the given rows, in that order: reordered, repeated or dropped."""
        rows = list(rows)
        return self._each(lambda x: x[rows], lambda state: state.select(rows))

    def copy(self: S) -> S:
        """Return a state that shares nothing with this one."""
        return self._each(lambda x: ops_of(x).copy(x), lambda state: state.copy())

    def detach(self: S) -> S:
        """Return the state without its graph: the cut of truncated backpropagation."""
        return self._each(lambda x: ops_of(x).detach(x), lambda state: state.detach())

    def as_arrays(self: S) -> S:
        """Return the state over arrays, whichever its leaves are."""
        return self.map(lambda x: ops_of(x).array(x))

    @classmethod
    def cat(cls: type[S], states: Sequence[S]) -> S:
        """Return one state with the rows of all, in order. They may be of different lengths."""
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
    """Yield every leaf of a tree with its path, in the order in which `map` visits them."""
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
