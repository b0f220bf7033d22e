"""Character tokenizer: one token per Unicode code point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from seqgen.text.tokenizers.base import SPECIALS, Tokenizer, remaining_vocab_size

UNKNOWN = "\ufffd"


class CharTokenizer(Tokenizer):
    """The default tokenizer: the text's characters in code-point order after four specials."""

    kind = "char"
    quick = True
    learns_from_whole_text = True

    def __init__(self, alphabet: Iterable[str]) -> None:
        self.alphabet = sorted({*alphabet, "\n"})
        self.vocab_size = len(SPECIALS) + len(self.alphabet)
        codes = np.array([ord(c) for c in self.alphabet], dtype=np.uint32)
        self._ids = np.full(int(codes.max()) + 1, self.unk_id, dtype=self.dtype)
        self._ids[codes] = np.arange(len(SPECIALS), self.vocab_size)
        self._text = ["", "", "", UNKNOWN, *self.alphabet]
        self.newline_id = int(self._ids[ord("\n")])

    @classmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> CharTokenizer:
        counts = np.zeros(0x110000, dtype=np.int64)
        for chunk in chunks:
            of_chunk = np.bincount(_codes(chunk))
            counts[: of_chunk.size] += of_chunk
        counts[ord("\n")] = 0  # always there, in a text that has none too
        codes = np.flatnonzero(counts >= max(1, min_count))
        order = np.argsort(-counts[codes], kind="stable")
        return cls(map(chr, codes[order[: remaining_vocab_size(vocab_size)]].tolist()))

    def encode(self, text: str) -> np.ndarray:
        codes = _codes(text)
        if codes.size and codes.max() >= self._ids.size:
            known = codes < self._ids.size
            ids = np.full(codes.size, self.unk_id, dtype=self.dtype)
            ids[known] = self._ids[codes[known]]
            return ids
        return self._ids[codes]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join([self._text[i] for i in ids])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [SPECIALS[i] if i < len(SPECIALS) else self._text[i] for i in ids]

    def byte_ends(self, text: str) -> np.ndarray:
        codes = _codes(text)
        lengths = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
        return np.cumsum(lengths, dtype=np.int64)

    def facts(self) -> dict[str, Any]:
        return {"alphabet": "".join(self.alphabet)}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> CharTokenizer:
        return cls(facts["alphabet"])


def _codes(text: str) -> np.ndarray:
    """Convert `text` to its code points, (N,) uint32."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
