"""Token files: an encoded text on disk, with its tokenizer and facts about the text.

The file is a head of 64 bytes (a magic word, where the table is, the table's SHA-256), the
sections, and the table: JSON at the end, with the tokenizer whole, what the text was, and for each
section its place, type and CRC-32. The sections:

    tokens      the ids, documents one after the other, as `Corpus` has them
    ends        of `--documents line`: where each document ends, int64
    characters  of `--documents line`: each document's characters, its newline's one included
    bytes       of `--documents line`: each document's UTF-8 bytes
    marks       characters and bytes of the text up to each 65,536th token, int64, (M, 2)
    counted     of examples: 1 for each token that counts, 0 for one that is only read. A file with
                this section is a held-out part, and has `ends`, too

Numbers are little-endian. A file is checked completely when it is opened, so that nothing is
trained on one that was truncated or changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from seqgen.errors import SeqgenError, first_line, reporting_unreadable
from seqgen.files import begins_with, parse_json, require_regular
from seqgen.settings.data import DOCUMENTS, Documents
from seqgen.settings.setting import shorten
from seqgen.text.corpus import Corpus, release_pages
from seqgen.text.framing import Framing
from seqgen.text.reading import Survey, decode_blocks
from seqgen.text.tokenizers import Tokenizer, tokenizer_from_facts

SUFFIX = ".tok"
MAGIC = b"seqgen.tokens\r\n\0"
FORMAT = 1
HEAD = struct.Struct("<16sQQ32s")  # the magic word; the table's offset, length and SHA-256
MARK = 1 << 16
# Each section's type; the type of ids depends on how many tokens there are.
OTHER_TYPES = {
    "ends": "<i8",
    "characters": "<u4",
    "bytes": "<u4",
    "marks": "<i8",
    "counted": "|u1",
}
SECTIONS = ("tokens", *OTHER_TYPES)
READ = 1 << 22


def section_types(tokenizer: Tokenizer) -> dict[str, np.dtype]:
    """Return the little-endian number type of each section of a token file."""
    others = {name: np.dtype(kind) for name, kind in OTHER_TYPES.items()}
    return {"tokens": np.dtype(tokenizer.dtype).newbyteorder("<"), **others}


@dataclass(frozen=True)
class TokenFile:
    """An opened and checked token file: ids of one type, memory-mapped.

    Attributes:
        path: where it is.
        tokenizer: what made its ids.
        documents: "stream" or "line".
        corpus: its documents, mapped.
        facts: the text's characters, bytes, lines and SHA-256.
        sections: every section by name, mapped; also empty ones.
        parts: the files that it is joined of, and then `path` is their folder; none for one file.
    """

    path: Path
    tokenizer: Tokenizer
    documents: Documents
    corpus: Corpus
    facts: Survey
    sections: dict[str, np.ndarray]
    parts: tuple[TokenFile, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Path of the file, or of the files that it concatenates."""
        return tuple(part.path for part in self.parts) or (self.path,)

    @property
    def marks(self) -> np.ndarray:
        """(M, 2) int64: characters and bytes up to each `MARK`th token."""
        return self.sections["marks"].reshape(-1, 2)

    @property
    def tells_text(self) -> bool:
        """Whether the original text can be restored: no unknowns, no lost white space."""
        return self.tokenizer.lossless and self.corpus.oov == 0 and not self.is_examples

    @property
    def is_examples(self) -> bool:
        """Whether it contains examples, of which only marked tokens count."""
        return self.corpus.counted is not None

    def text(self) -> Iterator[str]:
        """Yield the original text in pieces; see `tells_text`.

        With `--documents line` the last line gets a newline even if it had none.
        """
        newline, eos = self.tokenizer.newline_id, self.tokenizer.eos_id
        tokens = self.corpus.tokens
        pieces = (tokens[at : at + MARK] for at in range(0, tokens.size, MARK))
        if self.documents == "line":
            pieces = (np.where(ids == eos, ids.dtype.type(newline), ids) for ids in pieces)
        # A piece may end within a character.
        return decode_blocks(map(self.tokenizer.text_bytes, pieces), str(self.path))


def is_token_file(path: str | Path) -> bool:
    """Check whether a path is a token file, by its name or its first bytes."""
    path = Path(path)
    if path.suffix == SUFFIX:
        return True
    try:  # reading from a pipe would consume it
        return begins_with(require_regular(path), MAGIC)
    except OSError:
        return False


def open_token_file(path: str | Path) -> TokenFile:
    """Open a token file and check all of it.

    Raises:
        SeqgenError: it cannot be read, is no token file, or was truncated or changed.
    """
    path = Path(path)
    with _reading(path) as (file, table):
        tokenizer = tokenizer_from_facts(table["tokenizer"])
        types = section_types(tokenizer)
        arrays = {
            name: _section(file, path, table, name, types[name])
            for name in SECTIONS
            if name in table["sections"] or name != "counted"
        }
        counted = arrays.get("counted")
        documents, facts = table["documents"], read_survey(table["text"])
        if documents not in DOCUMENTS:
            raise ValueError(f"documents are {shorten(repr(documents))}")
        check_ids(arrays["tokens"], tokenizer.vocab_size)
        check_sections(arrays, documents, MARK)
        for section in arrays.values():
            release_pages(section)
        oov = read_count(table, "oov", arrays["tokens"].size)
        framing = Framing.of(tokenizer, documents)
        ends, start = arrays["ends"], framing.start if counted is None else None
        if counted is not None:
            counted = np.asarray(counted, dtype=bool)
        elif documents == "stream":
            ends = np.array([arrays["tokens"].size][: arrays["tokens"].size], dtype=np.int64)
        corpus = Corpus(arrays["tokens"], ends, start, oov, end=framing.end, counted=counted)
    return TokenFile(path, tokenizer, documents, corpus, facts, arrays)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[tuple[IO[bytes], dict[str, Any]]]:
    """Open a token file and read its table; errors inside the block name the file.

    Raises:
        SeqgenError: it cannot be read, or is damaged.
    """
    with reporting_unreadable(path), require_regular(path).open("rb") as file:
        try:
            yield file, _read_table(file, path)
        except (KeyError, TypeError, ValueError) as error:
            what = f"its table has no {error}" if isinstance(error, KeyError) else first_line(error)
            what = f"{what}; write it again with seqgen tokenize"
            raise SeqgenError(f"{path} is damaged: {what}") from None


def check_tokenizer(file: TokenFile, tokenizer: Tokenizer, whose: str) -> None:
    """Refuse a token file with a different tokenizer.

    Raises:
        SeqgenError: its tokenizer is not `tokenizer`, which is that of `whose`.
    """
    if file.tokenizer.fingerprint != tokenizer.fingerprint:
        raise SeqgenError(
            f"{file.path} has another tokenizer ({_named(file.tokenizer)}) than {whose} "
            f"({_named(tokenizer)}): write it again with seqgen tokenize"
        )


def _named(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {tokenizer.vocab_size} tokens"


def read_tokenizer(path: Path) -> Tokenizer:
    """Load the tokenizer stored in a token file, without reading its tokens.

    Raises:
        SeqgenError: the file cannot be read, or its table is damaged.
    """
    with _reading(path) as (_, table):
        return tokenizer_from_facts(table["tokenizer"])


def _read_table(file: IO[bytes], path: Path) -> dict[str, Any]:
    head = file.read(HEAD.size)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise SeqgenError(f"{path} is not a token file of seqgen (or is cut short)")
    _, offset, length, digest = HEAD.unpack(head)
    size = file.seek(0, os.SEEK_END)
    if size != offset + length:
        raise SeqgenError(f"{path} is cut short or longer than it was: write it again")
    file.seek(offset)
    content = file.read(length)
    if hashlib.sha256(content).digest() != digest:
        raise SeqgenError(f"{path} is damaged: its table was changed; write it again")
    table = parse_json(content)
    if not isinstance(table, dict):
        raise ValueError("its table is none")
    if table.get("format") != FORMAT:
        raise SeqgenError(
            f"{path} has format {shorten(repr(table.get('format')))}; this seqgen reads {FORMAT}"
        )
    return table


def _section(
    file: IO[bytes], path: Path, table: dict[str, Any], name: str, kind: np.dtype
) -> np.ndarray:
    """Verify the checksum of a section and memory-map its items.

    Raises:
        SeqgenError: the sum is wrong.
        ValueError: the table describes a section that the file cannot have.
    """
    place = table["sections"][name]
    size = file.seek(0, os.SEEK_END)
    count = read_count(place, "count", size // kind.itemsize)
    offset = read_count(place, "offset", size)
    if place["dtype"] != kind.str:
        raise ValueError(f"its {name} are of type {shorten(place['dtype'])}, not {kind.str}")
    if count == 0:
        return np.zeros(0, dtype=kind)
    file.seek(offset)
    left, check = count * kind.itemsize, 0
    while left:
        block = file.read(min(READ, left))
        if not block:
            break
        check = zlib.crc32(block, check)
        left -= len(block)
    if left or check != place["crc32"]:
        raise SeqgenError(f"{path} is damaged: its {name} were changed; write it again")
    return np.asarray(np.memmap(path, kind, "r", offset=offset, shape=(count,)))


# Items that are checked at once, so that a file of any size is checked in bounded memory.
CHECKED = 1 << 20


def read_count(table: object, name: str, most: int) -> int:
    """Read a count from a table, checked to be a whole number up to `most`.

    Raises:
        ValueError: it is missing, no whole number, negative, or above `most`.
    """
    value = table.get(name) if isinstance(table, dict) else None
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is not a whole number from 0 to {most}")
    return value


def read_survey(table: object) -> Survey:
    """Read the survey of the original text from a table.

    Raises:
        ValueError: some are missing or wrong.
    """
    if not isinstance(table, dict) or not isinstance(table.get("sha256"), str):
        raise ValueError("the text's facts are not a table with a sha256")
    counts = {name: read_count(table, name, 1 << 62) for name in ("characters", "bytes", "lines")}
    return Survey(**counts, sha256=table["sha256"])


def check_ids(tokens: np.ndarray, vocab_size: int) -> None:
    """Refuse ids outside the vocabulary.

    Raises:
        ValueError: names the largest.
    """
    for at in range(0, tokens.size, CHECKED):
        largest = int(tokens[at : at + CHECKED].max())
        release_pages(tokens)  # what was read of a mapped file counts as memory of the process
        if largest >= vocab_size:
            raise ValueError(f"there is a token {largest}, and the vocabulary has {vocab_size}")


def check_sections(sections: Mapping[str, np.ndarray], documents: str, mark: int) -> None:
    """Refuse document ends that do not divide the tokens, and marks that do not increase.

    Args:
        sections: by name, each of its own type.
        documents: "stream" or "line".
        mark: tokens between two marks.

    Raises:
        ValueError: says what does not fit.
    """
    tokens, ends = sections["tokens"].size, sections["ends"]
    parted, counted = bool(ends.size) == bool(tokens), sections.get("counted")
    if counted is not None and counted.size != tokens:
        raise ValueError("not every token is marked as counted or not")
    in_documents = documents == "line" or counted is not None
    if in_documents and not (parted and _is_rising(ends, 1, tokens, tokens)):
        raise ValueError("the documents' ends are not in order, or not the text's")
    for name in ("characters", "bytes"):
        if documents == "line" and sections[name].size not in (0, ends.size):
            raise ValueError(f"there are not as many {name} as documents")
    marks = sections["marks"]
    # The newline that ended the last document came after the last possible mark.
    fits = (0, tokens // mark, (tokens - 1) // mark) if documents == "line" else (0, tokens // mark)
    if marks.size % 2 or marks.size // 2 not in fits:
        raise ValueError("there are not as many marks as the tokens have")
    for column in marks.reshape(-1, 2).T:
        if not _is_rising(column, 0, 1 << 62, None, steps=0):
            raise ValueError("the marks are not in order")


def _is_rising(values: np.ndarray, low: int, high: int, last: int | None, steps: int = 1) -> bool:
    """Check that values rise by at least `steps` each, from `low` to `high`, up to `last`."""
    if not values.size:
        return True
    inside = low <= int(values[0]) and int(values[-1]) <= high
    ends_well = last is None or int(values[-1]) == last
    pieces = (values[at : at + CHECKED + 1] for at in range(0, values.size, CHECKED))
    # Compared element by element: a difference of distant numbers could overflow their type.
    ordered = all(bool(np.all(piece[1:] >= piece[:-1] + steps)) for piece in pieces)
    return inside and ends_well and ordered
