"""Tokens ready to learn from or to score: documents, and where each begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from seqgen.configs import Documents
from seqgen.tokenizers import Tokenizer


@dataclass(frozen=True)
class Framing:
    """How a document starts and ends, as ids.

    A document is a sequence of scored tokens. The model reads `start` (never scored) before the
    first of them; where `end` is set, it is the last of them.
    """

    start: int
    end: int | None

    @classmethod
    def of(cls, tokenizer: Tokenizer, documents: Documents) -> Framing:
        """Return the framing of a model trained on a stream, or on one document a line.

        A stream starts after a newline that is not shown, and has no end; a line is
        BOS line EOS.
        """
        if documents == "line":
            return cls(tokenizer.bos_id, tokenizer.eos_id)
        return cls(tokenizer.newline_id, None)


@dataclass(frozen=True)
class Corpus:
    """Documents as one array of ids.

    Attributes:
        tokens: (N,) unsigned: every scored token, document after document, ends included.
        ends: (D,) int64: where each document ends in `tokens`; a stream is one document.
        start: the id each document starts after.
        oov: how many tokens are `<unk>`.
    """

    tokens: np.ndarray
    ends: np.ndarray
    start: int
    oov: int = 0

    @property
    def starts(self) -> np.ndarray:
        """(D,) int64: where each document begins in `tokens`."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)


def encode_corpus(chunks: Iterable[str], tokenizer: Tokenizer, documents: Documents) -> Corpus:
    """Encode a text as one stream, or as one document a line.

    A line ends at `\\n` or at the end of the text; its `\\n` becomes EOS, and an empty line is
    EOS alone.

    Args:
        chunks: the text in pieces cut anywhere.
        tokenizer: its ids.
        documents: "stream" or "line".
    """
    framing = Framing.of(tokenizer, documents)
    pieces = tokenizer.encode_chunks(chunks)
    tokens = _joined(pieces if framing.end is None else _ended(pieces, tokenizer, framing.end))
    ends = np.array([tokens.size] if tokens.size else [], dtype=np.int64)
    if framing.end is not None:
        ends = np.flatnonzero(tokens == framing.end) + 1
    oov = int(np.count_nonzero(tokens == tokenizer.unk_id))
    return Corpus(tokens, ends, framing.start, oov)


def _joined(pieces: Iterable[np.ndarray]) -> np.ndarray:
    pieces = list(pieces)
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint8)


def _ended(pieces: Iterable[np.ndarray], tokenizer: Tokenizer, end: int) -> Iterator[np.ndarray]:
    last = end
    for ids in pieces:
        if ids.size:
            ids = np.where(ids == tokenizer.newline_id, ids.dtype.type(end), ids)
            last = int(ids[-1])
            yield ids
    if last != end:
        yield np.array([end], dtype=tokenizer.dtype)
