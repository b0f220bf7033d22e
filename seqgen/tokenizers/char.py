"""Characters: one token a Unicode code point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from seqgen.tokenizers.base import SPECIALS, Tokenizer, room_for

UNKNOWN = "\ufffd"


class CharTokenizer(Tokenizer):
    """The default tokenizer: an alphabet in code-point order after the four specials."""

    kind = "char"
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
    def train(cls, chunks: Iterable[str], vocab_size: int | None = None) -> CharTokenizer:
        counts: Counter[str] = Counter()
        for chunk in chunks:
            counts.update(chunk) if vocab_size else counts.update(set(chunk))
        counts.pop("\n", None)  # always there, in a text that has none too
        return cls(islice(sorted(counts, key=lambda c: (-counts[c], c)), room_for(vocab_size)))

    def encode(self, text: str) -> np.ndarray:
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        if codes.size and codes.max() >= self._ids.size:
            known = codes < self._ids.size
            ids = np.full(codes.size, self.unk_id, dtype=self.dtype)
            ids[known] = self._ids[codes[known]]
            return ids
        return self._ids[codes]

    def encode_chunks(self, chunks: Iterable[str]) -> Iterator[np.ndarray]:
        return map(self.encode, chunks)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join([self._text[i] for i in ids])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [SPECIALS[i] if i < len(SPECIALS) else self._text[i] for i in ids]

    def boundary(self, text: str, at: int) -> int:
        return min(at, len(text))

    def facts(self) -> dict[str, Any]:
        return {"alphabet": "".join(self.alphabet)}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> CharTokenizer:
        return cls(facts["alphabet"])
