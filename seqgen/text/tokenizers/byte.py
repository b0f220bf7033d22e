"""Byte tokenizer: one token per byte of UTF-8, so that nothing is unknown."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from seqgen.errors import UsageError
from seqgen.text.tokenizers.base import SPECIALS, Decoder, Tokenizer

OFFSET = len(SPECIALS)


class ByteTokenizer(Tokenizer):
    """Byte tokenizer: byte b is token 4 + b. Invalid UTF-8 decodes to U+FFFD."""

    kind = "byte"
    quick = True
    complete = True
    vocab_size = OFFSET + 256
    newline_id = OFFSET + ord("\n")

    @classmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> ByteTokenizer:
        if vocab_size is not None or min_count > 1:
            flag = "min_count" if vocab_size is None else "--vocab-size"
            raise UsageError(f"{flag} has no meaning for bytes: there are always 256")
        return cls()

    def encode(self, text: str) -> np.ndarray:
        return self.encode_utf8(text.encode())

    def encode_utf8(self, raw: bytes) -> np.ndarray:
        return np.add(np.frombuffer(raw, dtype=np.uint8), OFFSET, dtype=np.uint16)

    def text_bytes(self, ids: np.ndarray) -> bytes:
        return (ids[ids >= OFFSET] - OFFSET).astype(np.uint8).tobytes()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [SPECIALS[i] if i < OFFSET else _show(i - OFFSET) for i in ids]

    def byte_ends(self, text: str) -> np.ndarray:
        return np.arange(1, len(text.encode()) + 1)

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        return Utf8Decoder()

    def facts(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> ByteTokenizer:
        return cls()


class Utf8Decoder(Decoder):
    """Incremental decoder that holds back bytes until they complete a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        if token == Tokenizer.unk_id:
            return self.flush() + "\ufffd"
        if token < OFFSET:
            return ""
        return self._decoder.decode(bytes([token - OFFSET]))

    def flush(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def _show(byte: int) -> str:
    return chr(byte) if byte < 128 else f"<0x{byte:02X}>"
