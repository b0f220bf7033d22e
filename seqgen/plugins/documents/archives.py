"""Zip and tar archives of texts, read as one text, which is kept in the cache."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from seqgen.errors import SeqgenError, first_line
from seqgen.plugins.documents.document import MOST_BYTES, MOST_EXPANSION
from seqgen.plugins.documents.reading import READERS, open_document, read_kept
from seqgen.text.file_kinds import HEAD_BYTES, UNPACKED, recognise_kind
from seqgen.text.reading import LINE_END, decode_blocks, join_files
from seqgen.wording import first_names, plural

BLOCK = 1 << 20
# Files up to this size are decoded as a whole, so that a damaged one can be left out.
WHOLE = 1 << 26
NAMED = 3
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError)


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
    except (*DAMAGED, NotImplementedError, RuntimeError) as error:
        raise SeqgenError(f"{path} is damaged: {first_line(error)}") from None
    left_out = first_names(archive.left_out, NAMED)
    if not archive.read:
        more = f": it has {left_out}" if left_out else ""
        raise SeqgenError(f"{path} has no text{more}")
    said = [plural(archive.read, "file"), plural(archive.characters, "character")]
    if left_out:
        said.append(f"{plural(len(archive.left_out), 'file')} left out ({left_out})")
    return ", ".join(said)


class _Archive:
    """One pass over an archive.

    Attributes:
        read: how many files were read.
        characters: of their texts.
        left_out: the names of the others.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = self.characters = 0
        self.left_out: list[str] = []
        self._bytes_left = max(MOST_BYTES, MOST_EXPANSION * path.stat().st_size)

    def texts(self) -> Iterator[Iterator[str]]:
        """Yield the text of each file, in pieces."""
        members = self._zipped() if self.path.suffix.lower() == ".zip" else self._tarred()
        for name, file in members:
            parts = PurePosixPath(name).parts
            if any(part.startswith((".", "__MACOSX")) for part in parts):
                continue
            text = self._text(name, file)
            if text is None:
                self.left_out.append(name)
            else:
                self.read += 1
                yield text

    def _text(self, name: str, file: IO[bytes]) -> Iterator[str] | None:
        """Return the text of a file, in pieces; None if it is left out."""
        path, blocks = Path(name), self._blocks(file)
        whole = b""
        for block in blocks:
            whole += block
            if len(whole) > WHOLE:
                break
        ending, head = path.suffix.lower(), whole[:HEAD_BYTES]
        is_whole = len(whole) <= WHOLE
        if ending in READERS:
            return self._document(whole, ending, name) if is_whole else None
        kind = recognise_kind(path, head)
        if ending in UNPACKED or b"\0" in head or (kind and kind.holds != "markup"):
            return None
        title = f"{self.path}: {name}"
        if not is_whole:
            return decode_blocks(_chain(whole, blocks), title)
        try:
            return iter([*decode_blocks([whole], title)])
        except SeqgenError:
            return None

    def _document(self, raw: bytes, ending: str, name: str) -> Iterator[str] | None:
        try:
            return iter([open_document(io.BytesIO(raw), ending, f"{self.path}: {name}").text])
        except (SeqgenError, ImportError):
            return None

    def _blocks(self, file: IO[bytes]) -> Iterator[bytes]:
        for block in iter(lambda: file.read(BLOCK), b""):
            self._bytes_left -= len(block)
            if self._bytes_left < 0:
                raise SeqgenError(
                    f"{self.path} expands to more than {MOST_EXPANSION} times its size, as a zip "
                    "bomb does: unpack it, and give the folder"
                )
            yield block

    def _zipped(self) -> Iterator[tuple[str, IO[bytes]]]:
        with zipfile.ZipFile(self.path) as archive:
            for facts in archive.infolist():
                if facts.flag_bits & 1:
                    raise SeqgenError(f"{self.path} is encrypted: unpack it, and give the folder")
                if not facts.is_dir():
                    with archive.open(facts) as file:
                        yield facts.filename, file

    def _tarred(self) -> Iterator[tuple[str, IO[bytes]]]:
        with tarfile.open(self.path, "r|*") as archive:
            for facts in archive:
                file = archive.extractfile(facts) if facts.isreg() else None
                if file is not None:
                    yield facts.name, file


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
