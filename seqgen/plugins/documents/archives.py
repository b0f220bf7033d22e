"""Zip and tar archives of texts, read as one text, which is kept in the cache."""

from __future__ import annotations

import functools
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from seqgen.errors import SeqgenError, first_line
from seqgen.packages import require_packages
from seqgen.plugins.documents.document import MOST_BYTES, MOST_EXPANSION, Unreadable
from seqgen.plugins.documents.reading import PACKAGES, READERS, extract_in_time, read_kept
from seqgen.text.file_kinds import HEAD_BYTES, UNPACKED, recognise_kind
from seqgen.text.reading import LINE_END, decode_blocks, join_files, zstd_pieces
from seqgen.wording import plural

BLOCK = 1 << 20
# Files up to this size are decoded as a whole, so that a damaged one can be left out.
WHOLE = 1 << 26
NAMED = 3
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError)
Opener = Callable[[], IO[bytes]]


def read_archive(path: Path) -> Generator[str, None, str]:
    """Yield the texts in an archive, one after another; return what was taken from it.

    Files that are not text are left out, as in a folder.

    Raises:
        SeqgenError: the archive is damaged or encrypted, has no text, or expands too far.
    """
    ending = "".join(path.suffixes[-2:]).lower()
    return (yield from read_kept(path, ending, lambda: _extract(path)))


def _extract(path: Path) -> Generator[str, None, str]:
    """Extract the texts in an archive; see `read_archive`.

    Raises:
        SeqgenError: the archive is damaged or encrypted, has no text, or expands too far.
    """
    archive = _Archive(path)
    try:
        for piece in join_files(archive.texts(), LINE_END):
            archive.characters += len(piece)
            yield piece
    except DAMAGED as error:
        raise SeqgenError(f"{path} is damaged: {first_line(error)}") from None
    left_out = _first_reasons(archive.left_out)
    if not archive.read:
        raise SeqgenError(f"{path} has no text" + (f": {left_out}" if left_out else ""))
    said = [plural(archive.read, "file"), plural(archive.characters, "character")]
    if left_out:
        said.append(f"{plural(len(archive.left_out), 'file')} left out ({left_out})")
    return ", ".join(said)


def _first_reasons(reasons: list[str]) -> str:
    """Join the first reasons, each without its advice, and the number of the rest."""
    most = NAMED + (len(reasons) == NAMED + 1)
    first = "; ".join(reason.partition("; ")[0] for reason in reasons[:most])
    return first + (f"; and {len(reasons) - most:,} more" if len(reasons) > most else "")


class _Archive:
    """One pass over an archive.

    Attributes:
        read: how many files were read.
        characters: of their texts.
        left_out: why the others are not read, each with its name.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._is_zip = path, path.suffix.lower() == ".zip"
        self.read = self.characters = 0
        self.left_out: list[str] = []
        self._bytes_left = max(MOST_BYTES, MOST_EXPANSION * path.stat().st_size)

    def texts(self) -> Iterator[Iterator[str]]:
        """Yield the text of each file, in pieces."""
        for name, opener in self._zipped() if self._is_zip else self._tarred():
            if any(_is_hidden(part) for part in PurePosixPath(name).parts):
                continue
            try:
                text = self._text(name, opener)
            except Unreadable as error:
                self.left_out.append(str(error))
            else:
                self.read += 1
                yield text

    def _text(self, name: str, opener: Opener) -> Iterator[str]:
        """Return the text of a file, in pieces.

        Raises:
            Unreadable: it is left out; says why, with its name.
        """
        path, ending = Path(name), Path(name).suffix.lower()
        whole, blocks = self._read_whole(name, opener)
        is_whole, head = len(whole) <= WHOLE, whole[:HEAD_BYTES]
        if ending in READERS:
            if not is_whole:
                raise Unreadable(f"{name} is a document of more than {WHOLE >> 20} MB")
            return iter([_document_text(name, ending, whole)])
        kind = recognise_kind(path, head)
        if kind is not None and kind.holds != "markup":
            raise Unreadable(f"{name} is {kind.name}")
        if ending in UNPACKED or b"\0" in head:
            raise Unreadable(f"{name} is not text")
        if not is_whole:
            return decode_blocks(_chain(whole, blocks), f"{self.path}: {name}")
        try:
            return iter([*decode_blocks([whole], name)])
        except SeqgenError as error:
            raise Unreadable(str(error)) from None

    def _read_whole(self, name: str, opener: Opener) -> tuple[bytes, Iterator[bytes]]:
        """Read a file up to about `WHOLE` bytes; return them, and the blocks that follow.

        Raises:
            Unreadable: a file of a zip archive is encrypted, damaged, or packed in another way.
        """
        read, size = [], 0
        try:
            blocks = self._blocks(opener())
            while size <= WHOLE and (block := next(blocks, b"")):
                read.append(block)
                size += len(block)
        except (*DAMAGED, NotImplementedError) as error:
            if not self._is_zip:  # the files after it cannot be found
                raise
            raise Unreadable(f"{name} cannot be unpacked: {first_line(error)}") from None
        return b"".join(read), blocks

    def _blocks(self, file: IO[bytes]) -> Iterator[bytes]:
        for block in iter(lambda: file.read(BLOCK), b""):
            self._bytes_left -= len(block)
            if self._bytes_left < 0:
                raise SeqgenError(
                    f"{self.path} expands to more than {MOST_EXPANSION} times its size, as a zip "
                    "bomb does: unpack it, and give the folder"
                )
            yield block

    def _zipped(self) -> Iterator[tuple[str, Opener]]:
        with zipfile.ZipFile(self.path) as archive:
            for facts in archive.infolist():
                if not facts.is_dir():
                    yield facts.filename, functools.partial(_open_zipped, archive, facts)

    def _tarred(self) -> Iterator[tuple[str, Opener]]:
        zstd = self.path.suffix.lower() in (".zst", ".tzst")
        stream = _Stream(zstd_pieces(self.path)) if zstd else None
        with tarfile.open(self.path, "r|" if zstd else "r|*", fileobj=stream) as archive:
            for facts in archive:
                if facts.isreg():
                    yield facts.name, functools.partial(archive.extractfile, facts)


def _is_hidden(part: str) -> bool:
    """Check whether a file or folder is hidden; `..` is not, as nothing is unpacked to it."""
    return part.startswith((".", "__MACOSX")) and part != ".."


def _open_zipped(archive: zipfile.ZipFile, facts: zipfile.ZipInfo) -> IO[bytes]:
    """Open a file of a zip archive.

    Raises:
        Unreadable: it is encrypted, or packed by a method that Python does not have.
    """
    if facts.flag_bits & 1:
        raise Unreadable(f"{facts.filename} is encrypted")
    try:
        return archive.open(facts)
    except NotImplementedError:
        methods = zipfile.compressor_names
        method = methods.get(facts.compress_type, f"method {facts.compress_type}")
        raise Unreadable(
            f"{facts.filename} is compressed in a way that Python cannot read ({method})"
        ) from None


def _document_text(name: str, ending: str, raw: bytes) -> str:
    """Extract the text of a document.

    Raises:
        Unreadable: it cannot be read; says why, with its name.
    """
    try:
        if ending in PACKAGES:
            require_packages(name, PACKAGES[ending])
        return extract_in_time(io.BytesIO(raw), ending).text
    except Unreadable as error:
        raise Unreadable(f"{name} {error}") from None
    except SeqgenError as error:
        raise Unreadable(str(error)) from None


class _Stream:
    """File of bytes that come in pieces, for `tarfile`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._waiting = pieces, bytearray()

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer than `size` only at the end."""
        while len(self._waiting) < size and (piece := next(self._pieces, None)) is not None:
            self._waiting += piece
        read = bytes(self._waiting[:size])
        del self._waiting[:size]
        return read


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
