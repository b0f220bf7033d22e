"""Which files of the cache are seqgen's own: those that it has listed, and some of older versions.

A user may keep files there too, so nothing is deleted because of its name alone. A list says what
was written (`files.make_listed_folder`). Version 0.1.0 kept none; what it wrote is known by its
name and its content together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from seqgen.errors import SeqgenError
from seqgen.files import delete_own, is_listed, listed_files, open_file, parse_json
from seqgen.store.layout import home

NAME = re.compile(r"[0-9a-f]{32}(\.[a-z.]+)")
BLOCK = 1 << 20
# What a text that is indexed ends with.
PADDING = bytes(8)
# The parts of the names of token files, before their ending.
TOKENS = "", ".val", ".source", ".target"


def _is_token_file(path: Path, file: IO[bytes]) -> bool:
    from seqgen.text.tokenfile import MAGIC

    return file.read(len(MAGIC)) == MAGIC


def _has_facts(path: Path, file: IO[bytes]) -> bool:
    """Return whether a file says of a text what a survey does, and nothing else."""
    from seqgen.text.reading import Survey

    return parse_json(file.read()).keys() == {field.name for field in dataclasses.fields(Survey)}


def _is_held_out_text(path: Path, file: IO[bytes]) -> bool:
    """Return whether a text is the one that the token file beside it was made of."""
    from seqgen.text.tokenfile import open_token_file

    return open_token_file(path.with_suffix(".tok")).facts.sha256 == _sha256(file)


def _is_indexed_text(path: Path, file: IO[bytes]) -> bool:
    file.seek(-len(PADDING), os.SEEK_END)
    return file.read() == PADDING


def _is_order(path: Path, file: IO[bytes]) -> bool:
    """Return whether a file has a number of four or eight bytes for each byte of the text."""
    size = _indexed_bytes(path)
    return file.seek(0, os.SEEK_END) in (4 * size, 8 * size)


def _is_about_index(path: Path, file: IO[bytes]) -> bool:
    return _indexed_bytes(path) >= 0 and {"files", "lines"} >= {*parse_json(file.read())}


def _indexed_bytes(path: Path) -> int:
    """Return the size of the indexed text beside a file.

    Raises:
        OSError, ValueError: there is none.
    """
    with open_file(path.with_suffix(".text"), "rb") as text:
        if not _is_indexed_text(path, text):
            raise ValueError("it is no indexed text")
        return text.tell() - len(PADDING)


def _is_measurement(path: Path, file: IO[bytes]) -> bool:
    measured = parse_json(file.read())
    return path.stem == name_of_measurement(measured["machine"], measured["about"])


def _is_kept_text(path: Path, file: IO[bytes]) -> bool:
    return _sha256(file).startswith(path.stem)


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(BLOCK), b""):
        digest.update(block)
    return digest.hexdigest()


def name_of_measurement(machine: object, about: object) -> str:
    """Return what the file of a measurement is called, without its ending.

    Args:
        machine: what was measured on, as JSON can hold it.
        about: what was measured, likewise.
    """
    return hashlib.sha256(json.dumps([machine, about], sort_keys=True).encode()).hexdigest()[:32]


# What a file of an older version holds, by its folder and the ending of its name, in the order in
# which files are deleted: some are known by another one.
KNOWN: dict[tuple[str, str], Callable[[Path, IO[bytes]], bool]] = {
    ("tokens", ".val.txt"): _is_held_out_text,
    **dict.fromkeys([("tokens", f"{part}.tok") for part in TOKENS], _is_token_file),
    ("tokens", ".json"): _has_facts,
    ("index", ".order"): _is_order,
    ("index", ".json"): _is_about_index,
    ("index", ".text"): _is_indexed_text,
    ("text", ".txt"): _is_kept_text,
    ("machine", ".json"): _is_measurement,
}
ORDER = {kind: place for place, kind in enumerate(KNOWN)}


def _kind(path: Path) -> tuple[str, str]:
    """Return the folder and the ending of a file's name, which is empty for one of no such name."""
    match = NAME.fullmatch(path.name)
    return path.parent.name, match[1] if match else ""


class CacheFolder:
    """A folder of the cache.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listed = listed_files(path)

    @property
    def link(self) -> Path | None:
        """The folder, or the one that it is in, if that is a link, which nothing follows."""
        return next((one for one in (self.path.parent, self.path) if one.is_symlink()), None)

    def entries(self) -> list[Path]:
        """Return all that is in the folder, in the order in which it may be deleted."""
        found = sorted(self.path.iterdir()) if self.path.is_dir() else []
        return sorted(found, key=lambda path: ORDER.get(_kind(path), -1))

    def own(self) -> Iterator[Path]:
        """Yield the files that seqgen has written."""
        for path in self.entries():
            try:
                with open_file(path, "rb") as file:
                    own = self._is_own(path, file)
            except OSError:  # a link, a folder, a pipe, or a file that cannot be read
                continue
            if own:
                yield path

    def delete(self, path: Path) -> bool:
        """Delete a file of the folder if seqgen has written it; see `files.delete_own`."""
        return delete_own(path, home(), lambda file: self._is_own(path, file))

    def _is_own(self, path: Path, file: IO[bytes]) -> bool:
        if is_listed(path, os.fstat(file.fileno()), self._listed):
            return True
        try:
            return _kind(path) in KNOWN and KNOWN[_kind(path)](path, file)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, SeqgenError):
            return False
