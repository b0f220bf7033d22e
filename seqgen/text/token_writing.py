"""Writing token files: encode a text on all cores in bounded memory, or store given ids."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from seqgen import __version__
from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.files import replacing
from seqgen.text.encoding import encode_blocks
from seqgen.text.framing import Framing
from seqgen.text.reading import Survey, Surveyor
from seqgen.text.tokenfile import FORMAT, HEAD, MAGIC, MARK, READ, SECTIONS, section_types

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.text.corpus import Corpus
    from seqgen.text.tokenizers import Tokenizer

PENDING = 8


class BackgroundThread:
    """Background thread that runs tasks in order, such as hashing and writing.

    Use it as a context: leaving it waits for all tasks, and raises the error of one that failed.
    At most `PENDING` tasks wait, so that memory is bounded.
    """

    def __enter__(self) -> BackgroundThread:
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[Future[Any]] = deque()
        return self

    def do(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Queue a task; raise the error of an earlier one that failed."""
        self._pending.append(self._pool.submit(work, *arguments))
        while len(self._pending) > PENDING:
            self._pending.popleft().result()

    def wait(self) -> None:
        """Wait for all tasks; raise the error of one that failed."""
        while self._pending:
            self._pending.popleft().result()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class WrittenTokens:
    """Statistics of a written token file.

    Attributes:
        tokens: how many.
        oov: how many of them are `<unk>`.
        facts: the text's characters, bytes, lines and SHA-256.
    """

    tokens: int
    oov: int
    facts: Survey


def write_token_file(
    path: Path,
    chunks: Iterable[str],
    tokenizer: Tokenizer,
    documents: Documents,
    progress: Callable[[int], None] = lambda done: None,
    workers: int | None = None,
) -> WrittenTokens:
    """Encode a text to a token file in several processes, in bounded memory.

    Args:
        path: written completely or not at all.
        chunks: the text in pieces cut anywhere.
        tokenizer: its ids.
        documents: "stream" or "line".
        progress: takes the bytes of text done so far.
        workers: the most processes; see `encode_blocks`.

    Raises:
        SeqgenError: the file cannot be written, or the text not be read.
    """
    if documents == "line" and not tokenizer.line_safe:
        raise SeqgenError(
            f"the tokenizer ({tokenizer.kind}) may join a newline to other text, so that lines "
            "cannot be told apart in a token file: use the text itself, or --documents stream"
        )
    surveyor = Surveyor()
    framing = Framing.of(tokenizer, documents)
    with open_sections(path, tokenizer, documents) as sections, BackgroundThread() as background:
        note, meter = partial(background.do, sections.add), PositionMeter(tokenizer)
        lines = LineMeter(tokenizer, framing.end) if framing.end is not None else None
        for raw, ids in encode_blocks(chunks, tokenizer, cores=workers):
            background.do(surveyor.take, raw)
            note("marks", meter.marks(raw, ids).ravel())
            note("tokens", ids if lines is None else lines.add(raw, ids, note))
            progress(meter.bytes)
        if lines is not None:
            note("tokens", lines.finish(note))
        background.wait()
        sections.facts = replace(surveyor.facts, characters=meter.characters)
    return WrittenTokens(sections.size("tokens"), sections.oov, sections.facts)


def write_corpus(path: Path, corpus: Corpus, facts: Survey, tokenizer: Tokenizer) -> None:
    """Write an encoded corpus as a token file, without position marks.

    Args:
        path: written completely or not at all.
        corpus: the documents.
        facts: those of their text.
        tokenizer: what made the ids.
    """
    documents, counted = "stream" if corpus.end is None else "line", corpus.counted
    with open_sections(path, tokenizer, documents) as sections:
        for at in range(0, corpus.tokens.size, READ):
            sections.add("tokens", corpus.tokens[at : at + READ])
        if documents == "line" or counted is not None:
            sections.add("ends", corpus.ends)
        if counted is not None:
            sections.add("counted", counted)
        sections.facts = facts


class PositionMeter:
    """Counts a text's characters and bytes, and records both at every `MARK`th token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = self.characters = self.bytes = 0

    def marks(self, raw: bytes, ids: np.ndarray) -> np.ndarray:
        """Count a block of text; return its marks, (M, 2)."""
        places = np.arange(MARK - self.tokens % MARK, ids.size + 1, MARK)
        ends = self._byte_ends(raw, ids, places) if places.size else []
        codes = np.frombuffer(raw, dtype=np.uint8)
        plain = raw.isascii()
        kept, begin, characters = [], 0, self.characters
        for end in (*ends, len(raw)):
            characters += end - begin if plain else int(_heads(codes[begin:end]).sum())
            kept.append((characters, self.bytes + end))
            begin = end
        self.characters, self.bytes = kept.pop()
        self.tokens += ids.size
        return np.array(kept, dtype=np.int64).reshape(-1, 2)

    def _byte_ends(self, raw: bytes, ids: np.ndarray, places: np.ndarray) -> list[int]:
        """Compute the byte offsets in `raw` at which n tokens end, for each n of `places`.

        A newline is one token and one byte, so only the line of a place needs to be encoded.
        """
        if self.tokenizer.quick and ids.size == len(raw):
            return places.tolist()  # every token is a byte
        if not self.tokenizer.line_safe:
            return self.tokenizer.byte_ends(raw.decode())[places - 1].tolist()
        newlines = np.flatnonzero(np.frombuffer(raw, dtype=np.uint8) == ord("\n"))
        line_ends = np.flatnonzero(ids == self.tokenizer.newline_id)
        byte_ends = []
        for place in places.tolist():
            line = int(np.searchsorted(line_ends, place))
            begin = int(newlines[line - 1]) + 1 if line else 0
            within = place - (int(line_ends[line - 1]) + 1 if line else 0)
            if within:
                end = int(newlines[line]) + 1 if line < newlines.size else len(raw)
                ends = self.tokenizer.byte_ends(raw[begin:end].decode())
                begin += int(ends[within - 1])
            byte_ends.append(begin)
        return byte_ends


# Takes the name of a section and what to append to it.
Note = Callable[[str, np.ndarray], None]


class LineMeter:
    """Frames lines as documents, and counts the characters and bytes of each."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self.tokenizer, self.end = tokenizer, end
        self.tokens = 0
        self._open = np.zeros(2, dtype=np.int64)  # of a line that has begun but not ended
        self._begun = False

    def add(self, raw: bytes, ids: np.ndarray, note: Note) -> np.ndarray:
        """Count a block, record the documents that end in it, and return its framed ids."""
        at = np.flatnonzero(ids == self.tokenizer.newline_id)
        note("ends", self.tokens + at + 1)
        codes = np.frombuffer(raw, dtype=np.uint8)
        edges = np.concatenate([[0], np.flatnonzero(codes == ord("\n")) + 1, [codes.size]])
        heads = edges
        if not raw.isascii():
            counted = np.cumsum(_heads(codes))
            heads = np.concatenate([[0], counted])[edges]
        counts = np.stack([np.diff(heads), np.diff(edges)])  # (2, lines + 1)
        counts[:, 0] += self._open
        note("characters", counts[0, :-1])
        note("bytes", counts[1, :-1])
        self._open = counts[:, -1]
        self._begun = bool(self._open.any())
        self.tokens += ids.size
        return np.where(ids == self.tokenizer.newline_id, ids.dtype.type(self.end), ids)

    def finish(self, note: Note) -> np.ndarray:
        """End a last line without newline; return the ids that this adds."""
        if not self._begun:
            return np.zeros(0, dtype=self.tokenizer.dtype)
        note("ends", np.array([self.tokens + 1]))
        note("characters", self._open[:1])
        note("bytes", self._open[1:])
        return np.array([self.end], dtype=self.tokenizer.dtype)


def _heads(codes: np.ndarray) -> np.ndarray:
    """Mark the bytes that start a UTF-8 character, (N,) uint8."""
    return (codes & 0xC0) != 0x80


class Sections:
    """Sections of a file being written: tokens go to the file, others to temporary files."""

    def __init__(self, file: IO[bytes], folder: Path, tokenizer: Tokenizer) -> None:
        self.facts = Survey()
        self.oov = 0
        self._unknown = tokenizer.unk_id
        self._types = section_types(tokenizer)
        self._files = {"tokens": file}
        self._folder = folder
        self._sizes = dict.fromkeys(SECTIONS, 0)
        self._checks = dict.fromkeys(SECTIONS, 0)

    def add(self, name: str, values: np.ndarray) -> None:
        """Append values to a section."""
        if values.size == 0:
            return
        values = np.ascontiguousarray(values, dtype=self._types[name])
        if name == "tokens":
            self.oov += int(np.count_nonzero(values == self._unknown))
        elif name not in self._files:
            self._files[name] = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        content = memoryview(values).cast("B")
        self._files[name].write(content)
        self._checks[name] = zlib.crc32(content, self._checks[name])
        self._sizes[name] += values.size

    def size(self, name: str) -> int:
        """Return the number of items in a section."""
        return self._sizes[name]

    def finish(self) -> dict[str, dict[str, Any]]:
        """Append all sections to the file; return the position of each."""
        target, table = self._files["tokens"], {}
        for name in SECTIONS:
            if name == "counted" and name not in self._files:
                continue  # earlier versions know no such section
            if name == "tokens":
                offset = HEAD.size
            else:
                target.write(b"\0" * (-target.tell() % 8))
                offset = target.tell()
                self._copy(name, target)
            table[name] = {
                "offset": offset,
                "count": self._sizes[name],
                "dtype": self._types[name].str,
                "crc32": self._checks[name],
            }
        return table

    def _copy(self, name: str, target: IO[bytes]) -> None:
        if name in self._files:
            source = self._files[name]
            source.seek(0)
            for block in iter(lambda: source.read(READ), b""):
                target.write(block)

    def close(self) -> None:
        """Close the temporary files."""
        for name, file in self._files.items():
            if name != "tokens":
                file.close()


@contextlib.contextmanager
def open_sections(path: Path, tokenizer: Tokenizer, documents: Documents) -> Iterator[Sections]:
    """Create a token file atomically; write its table at the end.

    Raises:
        SeqgenError: it cannot be written; an earlier file is unchanged.
    """
    with reporting_os_errors(f"{path} cannot be written"), replacing(path) as file:
        file.write(b"\0" * HEAD.size)
        sections = Sections(file, path.parent, tokenizer)
        try:
            yield sections
            places = sections.finish()
        finally:
            sections.close()
        table = {
            "format": FORMAT,
            "seqgen_version": __version__,
            "documents": documents,
            "text": dataclasses.asdict(sections.facts),
            "oov": sections.oov,
            "sections": places,
            "tokenizer": {"kind": tokenizer.kind, **tokenizer.facts()},
        }
        content = json.dumps(table).encode()
        offset = file.tell()
        file.write(content)
        file.seek(0)
        file.write(HEAD.pack(MAGIC, offset, len(content), hashlib.sha256(content).digest()))
