"""Reading text: files or folders as one stream of characters, in bounded memory."""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import itertools
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import AnyStr, Literal

from seqgen.errors import SeqgenError, UsageError, reported
from seqgen.limits import LineBuffer
from seqgen.packages import require_packages

CHUNK_BYTES = 1 << 20
ZSTD_BYTES = 1 << 10
BOM = "\ufeff"
# What is no text: images, archives, PDF and programs may have no NUL where they begin.
MAGIC_NUMBERS = (
    *(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-", b"PK\x03\x04", b"\x7fELF", b"BZh"),
    *(b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"),
)
PYTHON_CACHE = "__pycache__"
BINARY_WITHIN = 8192  # the first bytes, in which a NUL shows that a file is no text
# Token files, and the byte order marks of UTF-16.
TEXTS = (b"seqgen.tokens", b"\xff\xfe", b"\xfe\xff")
UNPACKED = frozenset({".gz", ".xz", ".zst"})


@dataclass(frozen=True)
class Text:
    """The text of some files, joined as `cat` would, in UTF-8.

    Args:
        paths: the files, in order; each may begin with a byte order mark, which is dropped.
        newlines: "keep" leaves CRLF as it is; "lf" makes it LF.
    """

    paths: tuple[Path, ...]
    newlines: Literal["keep", "lf"] = "keep"

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[str]:
        """Yield the characters from `start` to `end` in pieces.

        Raises:
            SeqgenError: a file cannot be read, or has bytes that are not UTF-8 (says where).
        """
        at = 0
        for chunk in self._all():
            if end is not None and at >= end:
                return
            piece = chunk[max(0, start - at) : None if end is None else end - at]
            at += len(chunk)
            if piece:
                yield piece

    def _all(self) -> Iterator[str]:
        # Joined first: a CRLF may stand across two files.
        joined = itertools.chain.from_iterable(map(decoded, self.paths))
        return unix_newlines(joined) if self.newlines == "lf" else joined

    @property
    def name(self) -> str:
        """What an error calls it: its files."""
        return ", ".join(map(str, self.paths))

    def digest(self) -> str:
        """Return the SHA-256 of the text as UTF-8, in hexadecimal."""
        return survey(self.chunks()).sha256


@dataclass
class Survey:
    """Facts about a text from one pass over it."""

    characters: int = 0
    bytes: int = 0
    lines: int = 0
    sha256: str = field(default=hashlib.sha256(b"").hexdigest())


class Surveyor:
    """Counts and hashes a text as it is read; `facts` covers what has been read so far."""

    def __init__(self) -> None:
        self.characters = self.bytes = self._newlines = 0
        self._digest = hashlib.sha256()
        self._last = b"\n"

    def watch(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the pieces unchanged, and count them."""
        for chunk in chunks:
            self.characters += len(chunk)
            self.take(chunk.encode())
            yield chunk

    def take(self, raw: bytes) -> None:
        """Count and hash the next UTF-8 bytes; characters are not counted here."""
        self._digest.update(raw)
        self.bytes += len(raw)
        self._newlines += raw.count(b"\n")
        self._last = raw[-1:] or self._last

    @property
    def facts(self) -> Survey:
        """The survey; a line ends at a newline or at the end of the text."""
        lines = self._newlines + (self._last != b"\n")
        return Survey(self.characters, self.bytes, lines, self._digest.hexdigest())


class WordMeter:
    """Counts the words of a text as it is read.

    Attributes:
        words: runs of what is not white space.
        newlines: ends of lines.
    """

    def __init__(self) -> None:
        self.words = self.newlines = 0

    def watch(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the pieces unchanged, and count them."""
        inside = False
        for chunk in chunks:
            if chunk:
                # A word that is split between two pieces is counted with the first.
                self.words += len(chunk.split()) - (inside and not chunk[0].isspace())
                self.newlines += chunk.count("\n")
                inside = not chunk[-1].isspace()
            yield chunk


def survey(chunks: Iterable[str]) -> Survey:
    """Count a text's characters, UTF-8 bytes and lines, and hash it."""
    surveyor = Surveyor()
    for _ in surveyor.watch(chunks):
        pass
    return surveyor.facts


def text_files(names: Sequence[str | Path]) -> tuple[Path, ...]:
    """Return the files that `names` mean; a folder is all its texts, by sorted path.

    A name that does not exist but has `*`, `?` or `[` is a pattern (`**` is any depth). Of folders
    and patterns, files that are not text are left out; see `binary_files`.

    Raises:
        UsageError: a name is empty.
        SeqgenError: a name does not exist, or a folder or a pattern has no file, or no text.
    """
    paths: list[Path] = []
    for given in names:
        files = _files_of(given)
        if files is None:
            paths.append(Path(given))
            continue
        texts = [path for path in files if not is_binary(path)]
        if not texts:
            raise SeqgenError(f"{given} has no text: {files[0]} and the like are binary files")
        paths += texts
    return tuple(paths)


def binary_files(name: str | Path) -> list[Path]:
    """Return the files of a folder or a pattern that `text_files` leaves out."""
    return [path for path in _files_of(name) or () if is_binary(path)]


def _files_of(given: str | Path) -> list[Path] | None:
    """Return the files of a folder or a pattern; None for the name of a file.

    Raises:
        UsageError: the name is empty.
        SeqgenError: it does not exist, or there is no file.
    """
    name = Path(given)
    # Path("") would be the current folder; a shell's unset variable does not mean that.
    if not str(given):
        raise UsageError("there is no file without a name")
    if name.is_dir():
        inside = sorted(p for p in name.rglob("*") if p.is_file() and not _hidden(p, name))
        if not inside:
            raise SeqgenError(f"the folder {name} contains no file")
        return inside
    if name.exists():
        return None
    if glob.has_magic(str(name)):
        matches = sorted(map(Path, glob.glob(str(name), recursive=True)))  # noqa: PTH207
        files = [p for p in matches if p.is_file() and not _in_cache(p, name)]
        if not files:
            raise SeqgenError(f"no file matches {name}")
        return files
    raise SeqgenError(f"there is no file {name}")


def is_binary(path: Path) -> bool:
    """Return whether a file begins as no text and no token file does; packed files are texts.

    A text in UTF-16 is a text: that it is not UTF-8 is an error where it is read.
    """
    if path.suffix.lower() in UNPACKED:
        return False
    try:
        with path.open("rb") as file:
            head = file.read(BINARY_WITHIN)
    except OSError:  # an error where it is read
        return False
    if head.startswith(TEXTS):
        return False
    return head.startswith(MAGIC_NUMBERS) or b"\0" in head


def _hidden(path: Path, top: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(top).parts)
    return hidden or _in_cache(path, top)


def _in_cache(path: Path, given: Path) -> bool:
    """Return whether a file is in a folder of compiled Python that was not asked for."""
    return PYTHON_CACHE in path.parts and PYTHON_CACHE not in given.parts


def decoded(path: Path) -> Iterator[str]:
    """Yield the text of one file in pieces, without its byte order mark.

    Raises:
        SeqgenError: the file cannot be read, or has bytes that are not UTF-8 (says where).
    """
    with reported(f"{path} cannot be read"):
        try:
            yield from decode_blocks(_blocks(path), str(path))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise SeqgenError(f"{path} is damaged: {error}") from None


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, decompressed if its name says that it is compressed."""
    suffix = path.suffix.lower()
    if suffix == ".zst":
        yield from joined_blocks(_zstd_pieces(path), CHUNK_BYTES)
        return
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(suffix, Path.open)
    with opened(path, "rb") as file:
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")


def _zstd_pieces(path: Path) -> Iterator[bytes]:
    """Yield what a file decompresses to; no piece has more than 32 MB."""
    require_packages(str(path), "zstandard")
    import zstandard

    unpacker = None
    with path.open("rb") as file:
        # Four bytes of a frame may stand for 128 kB of text, and all that is given is unpacked.
        for piece in iter(lambda: file.read(ZSTD_BYTES), b""):
            while piece:  # a file may have several frames
                if unpacker is None:
                    unpacker = zstandard.ZstdDecompressor().decompressobj()
                try:
                    yield unpacker.decompress(piece)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from None
                piece = unpacker.unused_data
                if unpacker.eof:
                    unpacker = None
    if unpacker is not None:
        raise EOFError("it ends too soon")


def joined_blocks(pieces: Iterable[AnyStr], size: int) -> Iterator[AnyStr]:
    """Join small pieces into blocks of at least `size`; the last may be shorter."""
    waiting: list[AnyStr] = []
    length = 0
    for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if length >= size:
            yield piece[:0].join(waiting)
            waiting, length = [], 0
    if waiting:
        yield waiting[0][:0].join(waiting)


def decode_blocks(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode UTF-8 that comes in blocks cut anywhere.

    Raises:
        SeqgenError: `name` has invalid bytes; gives the first one's offset.
    """
    offset, pending, first = 0, b"", True
    blocks = iter(blocks)
    while True:
        block = next(blocks, None)
        raw = pending + (block or b"")
        try:
            text, used = codecs.utf_8_decode(raw, "strict", block is None)
        except UnicodeDecodeError as error:
            at = offset + error.start
            what = f"not UTF-8 text: byte 0x{raw[error.start]:02x} at offset {at}"
            if offset == 0 and raw.startswith(b"PAR1"):
                what = "parquet: --field NAME reads a column of a .parquet file, not of a pipe"
            raise SeqgenError(f"{name} is {what}") from None
        offset, pending = offset + used, raw[used:]
        if first and text:
            text, first = text.removeprefix(BOM), False
        if text:
            yield text
        if block is None:
            return


def unix_newlines(chunks: Iterable[str]) -> Iterator[str]:
    """Turn every CRLF into LF, even one that is split between two pieces."""
    held = ""
    for chunk in chunks:
        chunk = held + chunk
        held = "\r" if chunk.endswith("\r") else ""
        chunk = chunk.removesuffix("\r").replace("\r\n", "\n")
        if chunk:
            yield chunk
    if held:
        yield held


def lines(chunks: Iterable[str], name: str = "the text") -> Iterator[str]:
    """Yield lines with their newline; only the last may lack one. Only LF ends a line.

    Args:
        chunks: the text in pieces cut anywhere.
        name: what an error calls it.

    Raises:
        SeqgenError: a line is longer than `limits.max_line_bytes`; names it.
    """
    held = LineBuffer(name)
    for chunk in chunks:
        first, *others = chunk.split("\n")
        held.add(first)
        if others:
            yield held.take() + "\n"
            *ended, last = others
            for line in held.ended(ended):
                yield line + "\n"
            held.add(last)
    if rest := held.take():
        yield rest
