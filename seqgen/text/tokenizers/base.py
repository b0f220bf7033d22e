"""Tokenizer base class: text to ids and back."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import UsageError
from seqgen.files import json_bytes, parse_json, require_regular, write_bytes
from seqgen.limits import require_within_limit

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
UNSIGNED = (np.uint8, np.uint16, np.uint32)
# A line longer than this is cut at token boundaries, so that no line need be held whole.
LONG_LINE = 1 << 16


class Decoder(ABC):
    """Incremental decoder: turns a growing sequence of ids into text that is never revised."""

    @abstractmethod
    def push(self, token: int) -> str:
        """Add a token; return the text that is now certain, empty within a character."""

    def flush(self) -> str:
        """Decode an incomplete end."""
        return ""


class PieceDecoder(Decoder):
    """Incremental decoder for tokenizers whose text is the concatenation of pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def push(self, token: int) -> str:
        return self.tokenizer.decode([token])


# The file of a tokenizer's folder that says what kind it is.
TABLE = "tokenizer.json"


class Tokenizer(ABC):
    """Base class of tokenizers: a vocabulary, encoding and decoding.

    Ids 0 to 3 are `<pad> <bos> <eos> <unk>` in every kind that is trained here; a sentencepiece
    model from elsewhere keeps its own, and None is the id of one that it lacks. None of them ever
    stands for text.
    """

    kind: ClassVar[str]
    # The names of the files that `save` writes.
    files: ClassVar[tuple[str, ...]] = (TABLE,)
    lossless: bool = True
    # Whether it has a token for every text, so that nothing is ever `<unk>`.
    complete: bool = False
    learns_from_whole_text: ClassVar[bool] = False
    # `\n` is always a token of its own, so that a text can be encoded line by line, and a line's
    # end can be told from the ids alone.
    line_safe: ClassVar[bool] = True
    # A space is part of the token after it, where that can be.
    joins_space: bool = False
    # Encoding takes hardly longer than passing the text to another process would.
    quick: ClassVar[bool] = False
    pad_id, bos_id, eos_id, unk_id = range(len(SPECIALS))
    # What a source begins with; it always ends with EOS.
    source_bos_id: int | None = None

    vocab_size: int
    newline_id: int | None

    @classmethod
    @abstractmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> Tokenizer:
        """Train a tokenizer on a text given in pieces.

        Args:
            chunks: the text, cut anywhere.
            vocab_size: keep only the most frequent tokens, so that V is at most this.
            min_count: keep only what occurs at least so often.
        """

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """Encode `text` to ids (N,), in the smallest unsigned type that holds V."""

    def encode_utf8(self, raw: bytes) -> np.ndarray:
        """Encode a text given as UTF-8 to ids."""
        return self.encode(raw.decode())

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text; pad, bos and eos are skipped, unk becomes a placeholder.

        A kind overrides this or `decoder`.
        """
        decoder = self.decoder()
        return "".join(map(decoder.push, ids)) + decoder.flush()

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the printable form of each id."""

    @classmethod
    def boundary(cls, text: str, at: int) -> int:
        """Find the first token boundary of `text`, the start of a line, at or after `at`.

        It needs no vocabulary; where one could move a boundary, it is one that none crosses. By
        default every place is a boundary.
        """
        return min(at, len(text))

    @abstractmethod
    def byte_ends(self, text: str) -> np.ndarray:
        """Compute the UTF-8 byte offset at which each token of `text` ends, (N,) int64."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Describe the tokenizer completely as a JSON table; `from_facts` rebuilds it."""

    @classmethod
    @abstractmethod
    def from_facts(cls, facts: dict[str, Any]) -> Tokenizer:
        """Rebuild a tokenizer from its `facts`."""

    def as_source(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Add the start and end tokens of a source to its ids."""
        begin = () if self.source_bos_id is None else (self.source_bos_id,)
        return (*begin, *ids, self.eos_id)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of `<pad>`, `<bos>`, `<eos>` and `<unk>`, as far as they exist."""
        ids = self.pad_id, self.bos_id, self.eos_id, self.unk_id
        return tuple(i for i in ids if i is not None)

    @property
    def dtype(self) -> type:
        """The smallest unsigned integer type that holds every id."""
        return next(t for t in UNSIGNED if self.vocab_size - 1 <= np.iinfo(t).max)

    def blocks(self, chunks: Iterable[str]) -> Iterator[str]:
        """Re-cut a text so that encoding the pieces equals encoding the whole."""
        return line_blocks(chunks, self.boundary)

    def encode_sampled(self, text: str, alpha: float, seed: int) -> np.ndarray:
        """Encode with a randomly sampled segmentation, if the tokenizer has several.

        Raises:
            UsageError: this kind cuts every text in one way only.
        """
        raise UsageError(f"subword_sampling is for bpe and unigram, not for {self.kind}")

    def text_bytes(self, ids: np.ndarray) -> bytes:
        """Decode ids to UTF-8 bytes, which may start or end within a character."""
        return self.decode(ids.tolist()).encode()

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The UTF-8 bytes of each id by itself, which may be part of a character."""
        return [self.text_bytes(np.array([i])) for i in range(self.vocab_size)]

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        """Return an incremental decoder that continues after the ids of `history`."""
        return PieceDecoder(self)

    def copied(self, word: str, before: str) -> str:
        """Format a source word that is copied in place of an unknown token.

        Args:
            word: without white space around it.
            before: the text that stands before it.
        """
        return word

    def named_tokens(self) -> Mapping[str, bool]:
        """Map the names that a chat template can write as tokens to whether they are special.

        By default there are none: no text becomes a special token.
        """
        return {}

    def encode_with_names(self, text: str) -> np.ndarray:
        """Encode a text in which each of `named_tokens` becomes its token."""
        return self.encode(text)

    def encode_as_text(self, text: str) -> np.ndarray:
        """Encode a text in which the `named_tokens` are text like any other."""
        return self.encode(text)

    def first_unknown(self, text: str) -> tuple[int, str] | None:
        """Find the first piece without an id: its offset and text, or None."""
        if not (self.encode(text) == self.unk_id).any():
            return None
        start = 0
        while True:
            end = self.boundary(text, start + 1)
            if (self.encode(text[start:end]) == self.unk_id).any():
                return start, text[start:end]
            start = end

    @property
    def fingerprint(self) -> str:
        """Hash of the tokenizer: equal for equal tokenizers."""
        facts = json.dumps({"kind": self.kind, **self.facts()}, sort_keys=True)
        return hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Summarise the tokenizer's kind, vocabulary size and losses, for JSON."""
        return {"kind": self.kind, "vocab_size": self.vocab_size, "lossless": self.lossless}

    @classmethod
    def load(cls, folder: Path, facts: dict[str, Any]) -> Tokenizer:
        """Load the tokenizer that `save` wrote to `folder`; `facts` is its table."""
        return cls.from_facts(facts)

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files to `folder`, creating it if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(self.files, self.contents(), strict=True):
            write_bytes(folder / name, content)

    def contents(self) -> tuple[bytes, ...]:
        """Serialise the tokenizer: the bytes of each file in `files`, in order."""
        return (self.table(self.facts()),)

    def table(self, facts: Mapping[str, Any]) -> bytes:
        """Serialize the tokenizer's JSON table: its kind, and facts for `load`."""
        return json_bytes({"kind": self.kind, **facts})


def remaining_vocab_size(vocab_size: int | None) -> int | None:
    """Compute the vocabulary size left after the special tokens and the newline.

    Raises:
        UsageError: not even those fit.
    """
    least = len(SPECIALS) + 1
    if vocab_size is not None and vocab_size < least:
        raise UsageError(
            f"--vocab-size must be at least {least}, for {' '.join(SPECIALS)} and the newline, "
            f"not {vocab_size}"
        )
    return None if vocab_size is None else vocab_size - least


Boundary = Callable[[str, int], int]


def line_blocks(chunks: Iterable[str], boundary: Boundary) -> Iterator[str]:
    """Re-cut a text at newlines, except the last piece and parts of long lines.

    A very long line is not waited for: it is cut as `cut_long_line` does.

    Args:
        chunks: the text in pieces cut anywhere.
        boundary: finds where a line can be cut.

    Raises:
        SeqgenError: what cannot be cut is longer than `limits.max_line_bytes`.
    """
    waiting: list[str] = []
    size, cut_from = 0, 16 * LONG_LINE
    for chunk in chunks:
        end = chunk.rfind("\n") + 1
        if end:
            yield "".join(waiting) + chunk[:end]
            waiting, size = [], 0
        if end < len(chunk):
            waiting.append(chunk[end:])
            size += len(chunk) - end
        if size > cut_from:
            *whole, rest = cut_long_line("".join(waiting), boundary)
            yield from whole
            require_within_limit(rest, "the text: a word")
            waiting, size = [rest], len(rest)
            # What cannot be cut is looked at again when there is twice as much of it.
            cut_from = max(16 * LONG_LINE, 2 * size)
    if waiting:
        yield "".join(waiting)


def cut_long_line(line: str, boundary: Boundary, longest: int = LONG_LINE) -> list[str]:
    """Cut a line at the first token boundary after every `longest` characters.

    A line that goes on is cut in the same places, but for the last piece or two.
    """
    pieces: list[str] = []
    start, width = 0, 2 * longest
    while len(line) - start > width:
        end = boundary(line[start : start + width], longest)
        # What stands behind a boundary can move it: one is sure with enough of the line behind.
        if end > width - longest // 2:
            width *= 2
            continue
        pieces.append(line[start : start + end])
        start, width = start + end, 2 * longest
    return [*pieces, line[start:]]


def read_facts(folder: Path) -> dict[str, Any]:
    """Read the JSON table that `Tokenizer.save` wrote to a folder.

    Raises:
        OSError, ValueError: it is missing or damaged.
    """
    facts = parse_json(require_regular(folder / TABLE).read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise ValueError("it contains no table")
    return facts
