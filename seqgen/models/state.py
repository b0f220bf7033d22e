"""What a model remembers of the past, as a tree of tensors with the batch in front."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

S = TypeVar("S", bound="State")
Rows = Sequence[int]


@dataclasses.dataclass
class State:
    """A tree of tensors, batch rows first: the base of every model's state.

    A subclass is a dataclass whose fields are tensors (B, ...), other states, tuples of these,
    or None. Every verb calls a child state's own. A model call, `select` and `cat` use up the
    states they are given, since caches are written in place: to branch, keep a `copy()` first.
    """

    def _each(self: S, leaf: Callable[[Tensor], Tensor], child: Callable[[State], State]) -> S:
        changed = {
            f.name: _visit(getattr(self, f.name), leaf, child) for f in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **changed)

    def map(self: S, f: Callable[[Tensor], Tensor]) -> S:
        """Return the state with `f` applied to every tensor."""
        return self._each(f, lambda state: state.map(f))

    def tensors(self) -> list[Tensor]:
        """Return every tensor of the tree, in the order in which `map` visits them."""
        leaves: list[Tensor] = []
        self.map(lambda x: leaves.append(x) or x)
        return leaves

    def named(self) -> dict[str, Tensor]:
        """Return every tensor by its path of field names and places in tuples: `layers.0.1`."""
        return dict(_named(self, ""))

    def with_tensors(self: S, named: Mapping[str, Tensor]) -> S:
        """Return the state with other tensors, which `named` gave for one of the same structure.

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
        return self._each(Tensor.clone, lambda state: state.copy())

    def detach(self: S) -> S:
        """Return the state without its graph: the cut of truncated backpropagation."""
        return self._each(Tensor.detach, lambda state: state.detach())

    @classmethod
    def cat(cls: type[S], states: Sequence[S]) -> S:
        """Return one state with the rows of all, in order. They may be of different lengths."""
        first = states[0]
        joined = {
            f.name: _join([getattr(s, f.name) for s in states]) for f in dataclasses.fields(first)
        }
        return dataclasses.replace(first, **joined)


def _visit(value: Any, leaf: Callable, child: Callable) -> Any:
    if isinstance(value, Tensor):
        return leaf(value)
    if isinstance(value, State):
        return child(value)
    if isinstance(value, tuple):
        return tuple(_visit(v, leaf, child) for v in value)
    return value


def _named(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a tree with its path, in the order in which `map` visits them."""
    if isinstance(value, Tensor):
        yield path, value
        return
    children: list[tuple[str, Any]] = []
    if isinstance(value, State):
        children = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    elif isinstance(value, tuple):
        children = [(str(place), item) for place, item in enumerate(value)]
    for name, child in children:
        yield from _named(child, f"{path}.{name}" if path else name)


def _join(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(list(values))
    if isinstance(first, State):
        return type(first).cat(values)
    if isinstance(first, tuple):
        return tuple(_join(column) for column in zip(*values, strict=True))
    return first
