"""How a decoder's blocks read a source: its equations and its state, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqgen.models.engines.ops import Leaf, Ops
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import Rows
from seqgen.models.transformer.equations import Attend, Heads, apart, together
from seqgen.models.transformer.kv_cache import KVCache


@dataclass
class MemoryCache(KVCache):
    """The keys and values of what has been written, and the memory of what it is written from.

    Attributes:
        memory: with a row for each of the cache's.
    """

    memory: Memory | None = None

    def select(self, rows: Rows) -> MemoryCache:
        rows = list(rows)
        memory = self.memory.select(rows)
        selected = super().select(rows)
        selected.memory = memory
        return selected


@dataclass(frozen=True)
class Reading:
    """What a decoder's blocks attend by: their own past, and a memory.

    Attributes:
        self_attend: the callback for the past.
        memory: with a row for each of the queries'.
        attend_to_all: what queries (S, heads, N, D) read of keys and values (S, heads, L, D), of
            which places (S, L) are there; None for all.
    """

    self_attend: Attend
    memory: Memory
    attend_to_all: Callable[[Leaf, Leaf, Leaf, Leaf | None], Leaf]

    def __call__(self, layer: int, q: Leaf, k: Leaf, v: Leaf) -> Leaf:
        return self.self_attend(layer, q, k, v)

    def source(self, layer: int, q: Leaf) -> Leaf:
        """Return what queries (B, heads, T, D) read of their sources, (B, heads, T, D)."""
        memory = self.memory
        grouped = memory.group(q).swapaxes(1, 2)  # (S, heads, G, T, D)
        asked = grouped.reshape(*grouped.shape[:2], -1, q.shape[-1])  # (S, heads, G T, D)
        read = self.attend_to_all(asked, memory.keys[layer], memory.values[layer], memory.there)
        return memory.ungroup(read.reshape(grouped.shape).swapaxes(1, 2))


def cross_attention(ops: Ops, p: Any, heads: Heads, x: Leaf, attend: Reading) -> Leaf:
    """Return softmax(Q K^T / sqrt(D)) V with Q of the target x (B, T, H), K and V of the source."""
    q = p.query_norm(apart(heads.activated(ops, p.query(x)), heads.numbers[0]))
    return p.output(together(attend.source(heads.index, heads.amplified(q))))


def remembered(ops: Ops, p: Any, heads: Heads, encoded: Leaf) -> tuple[Leaf, Leaf]:
    """Return the keys and values (S, heads, L, D) of features (S, L, H)."""
    parts = ops.split(heads.activated(ops, p.key_value(encoded)), 1, 1)
    k, v = (apart(part, heads.numbers[0]) for part in parts)
    return p.key_norm(k), v
