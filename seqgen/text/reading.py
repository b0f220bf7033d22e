"""Reading text: files and folders as one stream of characters, in bounded memory."""

from __future__ import annotations

import codecs
import functools
import glob
import gzip
import hashlib
import lzma
import os
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, AnyStr, Literal

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError, did_you_mean, reporting_unreadable
from seqgen.files import input_title
from seqgen.hooks import InstalledPlugin
from seqgen.limits import whole_lines
from seqgen.packages import require_packages
from seqgen.text.file_kinds import (
    HEAD_BYTES,
    MARKS,
    TEXTS,
    TOKENS,
    FileKind,
    extraction_advice,
    file_kinds,
    recognise_kind,
)
from seqgen.wording import first_names

if TYPE_CHECKING:
    from seqgen.settings import Documents

CHUNK_BYTES = 1 << 20
ZSTD_BYTES = 1 << 10
BOM = "\ufeff"
PYTHON_CACHE = "__pycache__"
# What Internet addresses begin with.
URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True)
class Text:
    """The UTF-8 text of several files, in order.

    Args:
        paths: the files, in order; each may begin with a byte order mark, which is dropped.
        newlines: "keep" leaves CRLF as it is; "lf" makes it LF.
        ending: what separates the files; see `join_files`.
        as_text: read documents as they are, not their text; see `document_reader`.
    """

    paths: tuple[Path, ...]
    newlines: Literal["keep", "lf"] = "keep"
    ending: str = ""
    as_text: bool = False

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
        files = (decode_file(path, self.as_text) for path in self.paths)
        joined = join_files(files, self.ending)
        return unix_newlines(joined) if self.newlines == "lf" else joined

    @property
    def name(self) -> str:
        """Name of the text in errors: its files."""
        return ", ".join(input_title(str(path)) for path in self.paths)

    def digest(self) -> str:
        """Compute the SHA-256 of the text as UTF-8, in hexadecimal."""
        return survey(self.chunks()).sha256


# What ends a record: a line, or the empty line after a sentence in columns.
LINE_END, SENTENCE_END = "\n", "\n\n"


def document_ending(documents: Documents) -> str:
    """Choose the string that ends a document: a newline for lines, none for a stream."""
    return LINE_END if documents == "line" else ""


def join_files(files: Iterable[Iterable[str]], ending: str) -> Iterator[str]:
    """Concatenate the texts of several files; yield them in pieces.

    Args:
        files: each in pieces.
        ending: of records. A file that does not end with it gets the newlines that it lacks before
            the next file begins, so that no record is in two files. Without it, texts are joined
            as `cat` would join them.
    """
    tail = ending
    for chunks in files:
        begins = True
        for chunk in filter(None, chunks):
            if begins and not tail.endswith(ending):
                yield ending.removeprefix("\n" if tail.endswith("\n") else "")
            tail, begins = (tail + chunk)[-len(ending) :] if ending else "", False
            yield chunk


@dataclass
class Survey:
    """Size and hash of a text, from one pass over it."""

    characters: int = 0
    bytes: int = 0
    lines: int = 0
    sha256: str = field(default=hashlib.sha256(b"").hexdigest())


class Surveyor:
    """Counts and hashes a text while it is read; `facts` covers the part read so far."""

    def __init__(self) -> None:
        self.characters = self.bytes = self._newlines = 0
        self._digest = hashlib.sha256()
        self._last = b"\n"

    def watch(self, chunks: Iterable[str]) -> Iterator[str]:
        """Pass the pieces through, counting and hashing them."""
        for chunk in chunks:
            self.characters += len(chunk)
            self.take(chunk.encode())
            yield chunk

    def take(self, raw: bytes) -> None:
        """Count and hash the next UTF-8 bytes, without counting characters."""
        self._digest.update(raw)
        self.bytes += len(raw)
        self._newlines += raw.count(b"\n")
        self._last = raw[-1:] or self._last

    @property
    def facts(self) -> Survey:
        """The survey so far; a line ends at a newline or at the end of the text."""
        lines = self._newlines + (self._last != b"\n")
        return Survey(self.characters, self.bytes, lines, self._digest.hexdigest())


class WordMeter:
    """Counts the words of a text while it is read.

    Attributes:
        words: runs of what is not white space.
        newlines: ends of lines.
    """

    def __init__(self) -> None:
        self.words = self.newlines = 0

    def watch(self, chunks: Iterable[str]) -> Iterator[str]:
        """Pass the pieces through, counting their words."""
        inside = False
        for chunk in chunks:
            if chunk:
                # A word that is split between two pieces is counted with the first.
                self.words += len(chunk.split()) - (inside and not chunk[0].isspace())
                self.newlines += chunk.count("\n")
                inside = not chunk[-1].isspace()
            yield chunk


def survey(chunks: Iterable[str]) -> Survey:
    """Count the characters, UTF-8 bytes and lines of a text, and hash it."""
    surveyor = Surveyor()
    for _ in surveyor.watch(chunks):
        pass
    return surveyor.facts


def text_files(names: Sequence[str | Path], as_text: bool = False) -> tuple[Path, ...]:
    """List the text files that names of files, folders and patterns refer to, sorted by path.

    A name that does not exist but has `*`, `?` or `[` is a pattern (`**` is any depth). Of folders
    and patterns, files that are not text or damaged are left out; see `file_facts`.

    Raises:
        UsageError: a name is empty.
        SeqgenError: a name does not exist, or a folder or a pattern has no file, or no text.
    """
    paths: list[Path] = []
    for given in names:
        files = files_in(given)
        texts = [Path(given)] if files is None else [p for p in files if not is_binary(p, as_text)]
        if not texts:
            raise no_text_error(given, files)
        paths += texts
    return tuple(paths)


def no_text_error(name: str | Path, files: Sequence[Path]) -> SeqgenError:
    """Build the error that a folder or pattern contains no text."""
    facts = filter(lambda facts: not facts.is_binary, map(file_facts, files))
    if fault := next((one.fault for one in facts if one.fault), None):
        return SeqgenError(f"{name} has no text: {fault}")
    known = [(file_kinds().index(kind), path, kind) for path in files if (kind := file_kind(path))]
    _, path, kind = min(known, default=(None, files[0], None))
    what = "a binary file" if kind is None else extraction_advice(kind, path, read_head(path))
    others = [each.name for each in files if each != path]
    more = f" (beside it: {first_names(others, 5)})" if others else ""
    return SeqgenError(f"{name} has no text: {path} is {what}{more}")


def file_kind(path: Path) -> FileKind | None:
    """Recognise a file's type by its name and first bytes; see `recognise_kind`.

    A document that a plugin reads is a text.
    """
    return None if document_reader(path) else recognise_kind(path, read_head(path))


# Bytes that no text in an encoding of one byte a character has.
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def left_out_files(name: str | Path, as_text: bool = False) -> dict[Path, str]:
    """List the files of a folder or pattern that `text_files` skips; and why, "" if not text."""
    listed = (_entries_of(name) or {}).items()
    left_out = [(path, why) for path, why in listed if why or is_binary(path, as_text)]
    return {path: why or file_facts(path, as_text).fault for path, why in left_out}


def files_in(given: str | Path) -> list[Path] | None:
    """List the files of a folder or pattern, each once; None for the name of a file.

    Raises:
        UsageError: the name is empty.
        SeqgenError: it does not exist, or there is no file.
    """
    listed = _entries_of(given)
    return None if listed is None else [path for path, why in listed.items() if not why]


def is_name_of_files(given: str | Path) -> bool:
    """Check whether a name is that of a file or folder, or a pattern that matches some."""
    return os.path.exists(given) or bool(glob.glob(str(given)))  # noqa: PTH110, PTH207


def _entries_of(given: str | Path) -> dict[Path, str] | None:
    """List what is in a folder or pattern, and why it is never read; see `files_in`."""
    name = Path(given)
    # Path("") would be the current folder; a shell's unset variable does not mean that.
    if not str(given):
        raise UsageError("there is no file without a name")
    # Functions of os.path, as a text that was given by mistake may be too long for a name.
    if os.path.isdir(name):  # noqa: PTH112
        inside = _why_not_read(p for p in name.rglob("*") if not _hidden(p, name))
        if "" not in inside.values():
            raise SeqgenError(f"the folder {name} contains no file")
        return inside
    if os.path.exists(name):  # noqa: PTH110
        return None
    hint = "; a text itself is read from standard input, or is text= in Python"
    hint = hint if re.search(r"\s", str(name)) else ""
    if URL.match(str(given)):
        raise SeqgenError(f"{given} is a URL, and seqgen reads files: download it first")
    if glob.has_magic(str(name)):
        matches = map(Path, glob.glob(str(name), recursive=True))  # noqa: PTH207
        files = _why_not_read(p for p in matches if not _in_cache(p, name))
        if "" not in files.values():
            raise SeqgenError(f"no file matches {name!s:.200}{hint}")
        return files
    if os.path.islink(name):  # noqa: PTH114
        raise SeqgenError(f"{name} is a link to {name.readlink()}, which does not exist")
    beside = map(os.path.basename, glob.glob(f"{glob.escape(str(name.parent))}/*"))  # noqa: PTH207
    raise SeqgenError(f"there is no file {name!s:.200}{did_you_mean(name.name, beside) or hint}")


def _why_not_read(paths: Iterable[Path]) -> dict[Path, str]:
    """Say why each file of a folder is never read, "" if it may be, in sorted order.

    A file with several names is read by the first that is no link.
    """
    reasons: dict[Path, str] = {}
    first_of: dict[tuple[int, int], Path] = {}
    for path in sorted(set(paths), key=lambda path: (path.is_symlink(), path)):
        if path.is_file():
            status = path.stat()
            first = first_of.setdefault((status.st_dev, status.st_ino), path)
            reasons[path] = "" if first == path else f"{path} is {first} again"
        elif not path.is_dir():
            dangling = not path.exists() and f"a link to {path.readlink()}, which does not exist"
            reasons[path] = f"{path} is {dangling or 'a pipe or a device'}"
    return dict(sorted(reasons.items()))


def is_binary(path: Path, as_text: bool = False) -> bool:
    """Check whether a file of a folder is left out, as no text or damaged; see `file_facts`."""
    facts = file_facts(path, as_text)
    return facts.is_binary or bool(facts.fault)


def has_nul(path: Path) -> bool:
    """Check whether the beginning of a text contains NUL characters."""
    try:
        text = next(decode_blocks([read_head(path)], str(path)), "")
    except SeqgenError:  # it is no text, which is an error where it is read
        return False
    return 0 < text.count("\0") < len(text)


def read_head(path: Path, as_text: bool = False) -> bytes:
    """Read the first bytes of a file, decompressed if its name says that it is compressed.

    None of a pipe, which could be read only once, of a document that a plugin reads (unless it is
    read `as_text`), nor where a file cannot be read.
    """
    if document_reader(path, as_text):
        return b""
    try:
        return next(_blocks(path, HEAD_BYTES), b"")[:HEAD_BYTES] if path.is_file() else b""
    except (OSError, EOFError, zlib.error, lzma.LZMAError, SeqgenError):
        return b""  # an error where it is read


def _hidden(path: Path, top: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(top).parts)
    return hidden or _in_cache(path, top)


def _in_cache(path: Path, given: Path) -> bool:
    """Check whether a file is in a `__pycache__` folder that was not asked for by name."""
    return PYTHON_CACHE in path.parts and PYTHON_CACHE not in given.parts


def document_reader(path: Path, as_text: bool = False) -> tuple[InstalledPlugin, str] | None:
    """Look up the plugin and the reader target for a document's file ending, or None.

    Args:
        path: the file; of an ending such as ".tar.gz", the whole counts before its last part.
        as_text: read every file as it is: there is none.
    """
    readers = {} if as_text else hooks.by_name("document_readers")
    endings = "".join(path.suffixes[-2:]).lower(), path.suffix.lower()
    return next((readers[ending] for ending in endings if ending in readers), None)


def read_document(
    path: Path, plugin: InstalledPlugin, target: str
) -> Generator[str, None, str | None]:
    """Yield the text of a document in pieces, extracted by a plugin's reader.

    Returns:
        what was taken from it, if the reader says so.

    Raises:
        SeqgenError: the plugin cannot read it.
    """
    try:
        return (yield from plugin.load(target)(path))
    except (SeqgenError, OSError):
        raise
    except hooks.FAULTS as error:
        why = hooks.format_fault(error)
        raise SeqgenError(f"{path} cannot be read by the plugin {plugin.title}: {why}") from error


@dataclass(frozen=True)
class FileFacts:
    """Result of reading a file to its end: what was extracted, or why it is not read in a folder.

    Attributes:
        taken: such as "12 pages, 34,567 characters"; "" if the reader of documents does not say it.
        fault: why it cannot be read, with its name; "" if it can.
        is_binary: whether it begins as no text does, nor a token file; it is then not read further,
            and its fault says how to extract the text that it may have.
        is_empty: whether its text has no character.
    """

    taken: str = ""
    fault: str = ""
    is_binary: bool = False
    is_empty: bool = False


def document_facts(path: Path) -> FileFacts | None:
    """Read a document to its end; return what was taken from it. None for other files."""
    return file_facts(path) if document_reader(path) and path.is_file() else None


def file_facts(path: Path, as_text: bool = False) -> FileFacts:
    """Read a file to its end, once in a process, to find out whether it is a text.

    Args:
        path: the file.
        as_text: read a document as it is, not its text.
    """
    status = path.stat()
    return _file_facts(path, as_text, status.st_mtime_ns, status.st_size)


@functools.cache
def _file_facts(path: Path, as_text: bool, changed: int, size: int) -> FileFacts:
    """Read a file as it was `changed` last; see `file_facts`."""
    head = read_head(path, as_text)
    if head.startswith(TOKENS):
        return FileFacts()
    kind = None if document_reader(path, as_text) else recognise_kind(path, head)
    zero = b"\0" in head and not head.startswith(TEXTS)
    if zero or (kind is not None and not kind.is_text):
        advised = kind is not None and kind.holds == "data"
        fault = f"{path} is {extraction_advice(kind, path, head)}" if advised else ""
        return FileFacts(fault=fault, is_binary=True)
    pieces, is_empty = decode_file(path, as_text), True
    try:
        while True:
            is_empty &= not next(pieces)
    except StopIteration as end:
        return FileFacts(taken=end.value or "", is_empty=is_empty)
    except SeqgenError as error:
        return FileFacts(fault=str(error))


def decode_file(path: Path, as_text: bool = False) -> Generator[str, None, str | None]:
    """Yield the text of one file in pieces, without byte order mark.

    Args:
        path: the file.
        as_text: read a document as it is, not its text.

    Returns:
        what was taken from a document, if its reader says so.

    Raises:
        SeqgenError: the file cannot be read, or has bytes that are not UTF-8 (says where).
    """
    with reporting_unreadable(path):
        if (reader := document_reader(path, as_text)) is not None:
            return (yield from read_document(path, *reader))
        try:
            yield from decode_blocks(_blocks(path), str(path))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise SeqgenError(f"{path} is damaged: {error}") from None
    return None


def _blocks(path: Path, size: int | None = None) -> Iterator[bytes]:
    """Yield a file's bytes in blocks, decompressed if its name says that it is compressed."""
    size = size or CHUNK_BYTES
    suffix = path.suffix.lower()
    if suffix == ".zst":
        yield from joined_blocks(zstd_pieces(path), size)
        return
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(suffix, Path.open)
    with opened(path, "rb") as file:
        yield from iter(lambda: file.read(size), b"")


def zstd_pieces(path: Path) -> Iterator[bytes]:
    """Decompress a Zstandard file in pieces of at most 32 MB."""
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
    """Join small pieces to blocks of at least `size`; the last may be shorter."""
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
    """Decode UTF-8 from blocks that may split characters.

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
            if "unexpected end" not in error.reason and not NO_TEXT.search(raw):
                what += "; if it is Latin-1, convert it with iconv -f latin1 -t utf-8"
            path, head = Path(name), raw[:HEAD_BYTES]
            kind = recognise_kind(path, head) if offset == 0 else None
            if kind is not None and not kind.is_text:
                what = extraction_advice(kind, path, head)
            elif encoding := wide_encoding_of(raw, offset):
                what = _not_utf8(encoding)
            raise SeqgenError(f"{name} is {what}") from None
        if first and "\0" in text and (encoding := wide_encoding_of(raw)):
            raise SeqgenError(f"{name} is {_not_utf8(encoding)}")
        offset, pending = offset + used, raw[used:]
        if first and text:
            text, first = text.removeprefix(BOM), False
        if text:
            yield text
        if block is None:
            return


def _not_utf8(encoding: str) -> str:
    return f"not UTF-8 text but {encoding}; convert it with iconv -f {encoding} -t UTF-8"


def wide_encoding_of(raw: bytes, offset: int = 0) -> str | None:
    """Detect UTF-16 or UTF-32 in a text's bytes; return iconv's name of it, or None.

    It begins with a byte order mark, or the high bytes of most of its characters are 0, as those of
    Latin letters are. If all of these are ASCII, the text is UTF-8 as well, with a NUL beside each.

    Args:
        raw: bytes of it.
        offset: where they are in it.
    """
    for name, marks in MARKS.items():
        if offset == 0 and raw.startswith(marks):
            return name
    zeros = [raw[(at - offset) % 4 :: 4].count(0) for at in range(4)]
    for name, (low, middle, high, highest) in (("UTF-32LE", zeros), ("UTF-32BE", zeros[::-1])):
        latin = min(middle, high) >= max(8, len(raw) / 8) and low <= highest / 16
        if latin and highest >= len(raw) // 4:
            return name
    even, odd = zeros[0] + zeros[2], zeros[1] + zeros[3]
    most, other = max(even, odd), min(even, odd)
    if most < max(8, len(raw) / 4) or other > most / 16:
        return None
    return "UTF-16LE" if odd > even else "UTF-16BE"


def unix_newlines(chunks: Iterable[str]) -> Iterator[str]:
    """Convert CRLF to LF, even if split between two pieces."""
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
    """Yield lines with their newline, which the last may lack. Only LF ends a line.

    Args:
        chunks: the text in pieces cut anywhere.
        name: what an error calls it.

    Raises:
        SeqgenError: a line is longer than `limits.max_line_bytes`; names it.
    """
    for block in whole_lines(chunks, name):
        *ended, last = block.split("\n")
        for line in ended:
            yield line + "\n"
        if last:
            yield last
