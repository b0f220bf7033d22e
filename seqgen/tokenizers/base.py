"""What a tokenizer is: text to ids and back, without loss."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import UsageError
from seqgen.files import write_json

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
UNSIGNED = (np.uint8, np.uint16, np.uint32)


class Decoder(ABC):
    """Turns a growing sequence of ids into text that is never taken back."""

    @abstractmethod
    def push(self, token: int) -> str:
        """Return the text that `token` makes certain; empty while a character is incomplete."""

    def flush(self) -> str:
        """Return what an incomplete end decodes to."""
        return ""


class PieceDecoder(Decoder):
    """For tokenizers whose text is the pieces, one after the other."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def push(self, token: int) -> str:
        return self.tokenizer.decode([token])


class Tokenizer(ABC):
    """A vocabulary and the two ways through it.

    Ids 0 to 3 are `<pad> <bos> <eos> <unk>` in every kind; none of them ever stands for text.
    `\\n` is always a token of its own, so that a text can be encoded line by line, and a line's
    end can be told from the ids alone.
    """

    kind: ClassVar[str]
    lossless: ClassVar[bool] = True
    learns_from_whole_text: ClassVar[bool] = False
    pad_id, bos_id, eos_id, unk_id = range(len(SPECIALS))

    vocab_size: int
    newline_id: int

    @classmethod
    @abstractmethod
    def train(cls, chunks: Iterable[str], vocab_size: int | None = None) -> Tokenizer:
        """Make a tokenizer from text that comes in pieces.

        Args:
            chunks: the text, cut anywhere.
            vocab_size: keep only the most frequent tokens, so that V is at most this.
        """

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """Return the ids of `text`, (N,), in the smallest unsigned type that holds V."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; pad, bos and eos are nothing, unk a stand-in."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each id as it would be shown to a person."""

    @abstractmethod
    def boundary(self, text: str, at: int) -> int:
        """Return the first token boundary of `text` (which begins a line) at or after `at`."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return all that `from_facts` needs, as JSON can hold it."""

    @classmethod
    @abstractmethod
    def from_facts(cls, facts: dict[str, Any]) -> Tokenizer:
        """Rebuild the tokenizer that gave `facts`."""

    @property
    def dtype(self) -> type:
        """The smallest unsigned integer type that holds every id."""
        return next(t for t in UNSIGNED if self.vocab_size - 1 <= np.iinfo(t).max)

    def encode_chunks(self, chunks: Iterable[str]) -> Iterator[np.ndarray]:
        """Encode a text that comes in pieces cut anywhere; the joined ids are `encode`'s."""
        for block in line_blocks(chunks):
            yield self.encode(block)

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        """Return an incremental decoder for what follows the ids of `history`."""
        return PieceDecoder(self)

    def first_unknown(self, text: str) -> tuple[int, str] | None:
        """Return the offset and the text of the first piece without an id, or None."""
        if not (self.encode(text) == self.unk_id).any():
            return None
        start = 0
        while True:
            end = self.boundary(text, start + 1)
            if (self.encode(text[start:end]) == self.unk_id).any():
                return start, text[start:end]
            start = end

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "tokenizer.json", {"kind": self.kind, **self.facts()})


def room_for(vocab_size: int | None) -> int | None:
    """Return how many tokens fit beside the specials and the newline, or None for any number.

    Raises:
        UsageError: not even those fit.
    """
    least = len(SPECIALS) + 1
    if vocab_size is not None and vocab_size < least:
        raise UsageError(
            f"--vocab-size is at least {least}, for {' '.join(SPECIALS)} and the newline, "
            f"not {vocab_size}"
        )
    return None if vocab_size is None else vocab_size - least


def line_blocks(chunks: Iterable[str]) -> Iterator[str]:
    """Cut a text anew so that every piece but the last ends with a newline."""
    waiting: list[str] = []
    for chunk in chunks:
        end = chunk.rfind("\n") + 1
        if end:
            yield "".join(waiting) + chunk[:end]
            waiting = []
        if end < len(chunk):
            waiting.append(chunk[end:])
    if waiting:
        yield "".join(waiting)


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what `Tokenizer.save` wrote.

    Raises:
        OSError, ValueError: it is missing or damaged.
    """
    facts = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise ValueError("it holds no table")
    return facts
