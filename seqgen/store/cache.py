"""Cache folder: token files, search indexes, measurements and texts from standard input.

A user may keep files in the cache too, so nothing is deleted because of its name alone. A list says
what was written (`files.make_listed_folder`). Version 0.1.0 kept none; what it wrote is known by
its name and its content together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.files import (
    Piece,
    delete_own,
    is_listed,
    is_temporary,
    json_bytes,
    listed_files,
    make_listed_folder,
    named_when_written,
    open_file,
    parse_json,
    write_bytes,
)
from seqgen.store.layout import home

# Large texts that have been encoded; indexes, such as suffix arrays of texts; texts that came
# by standard input, named by their hash; and what was measured on this machine.
KINDS = ("tokens", "index", "text", "machine")
# The name of a text while it is being received.
ARRIVING = "arriving"


def keep_text(blocks: Iterator[bytes]) -> Path:
    """Store a text from standard input in the cache, named by its hash.

    Raises:
        SeqgenError: the cache cannot be written.
    """
    folder = cache_folder("text")
    digest = hashlib.sha256()
    with reporting_os_errors(f"{folder} cannot be written"):
        make_listed_folder(folder)
        with named_when_written(folder / ARRIVING, lambda: _kept_as(digest)) as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
        return _kept_as(digest)


def _kept_as(digest: hashlib._Hash) -> Path:
    return cache_folder("text") / f"{digest.hexdigest()[:32]}.txt"


def cache_folder(kind: str) -> Path:
    """Return the cache folder of one kind of files; see `KINDS`."""
    return home() / "cache" / kind


def tokens_folder() -> Path:
    """Return the cache folder of token files of large texts."""
    return cache_folder("tokens")


def kept_index_files(
    about: dict[str, Any], content: Callable[[], Mapping[str, Sequence[Piece]]], *endings: str
) -> list[Path]:
    """Return the files of a text's search index; build them if they are missing.

    Args:
        about: what identifies the text, as JSON can hold it.
        content: reads the text; returns what the files hold, by the endings of their names and in
            the order in which they are written.
        endings: of those files.

    Raises:
        SeqgenError: the cache cannot be written, or the text cannot be read.
    """
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder("index")
    if not all((folder / f"{key}.{ending}").exists() for ending in endings):
        made = content()
        with reporting_os_errors(f"{folder} cannot be written"):
            make_listed_folder(folder)
            for ending, pieces in made.items():
                write_bytes(folder / f"{key}.{ending}", *pieces)
    return [folder / f"{key}.{ending}" for ending in endings]


def measurements() -> list[Path]:
    """List the cached measurements of this machine."""
    return [*_finished(cache_folder("machine"))]


def cached_files() -> list[Path]:
    """List all cache files: token files, indexes, then texts from standard input."""
    folders = map(cache_folder, ("tokens", "index", "text"))
    return [path for folder in folders for path in sorted(_finished(folder))]


def _finished(folder: Path) -> Iterator[Path]:
    return (path for path in CacheFolder(folder).own() if not is_temporary(path))


def foreign_files() -> list[Path]:
    """List files in the cache that seqgen did not write, and so never deletes.

    Of folders that are behind a link, which is not followed, that is the link.
    """
    foreign: dict[Path, None] = {}
    for folder in map(CacheFolder, map(cache_folder, KINDS)):
        files = set(folder.own())
        there = [folder.link] if folder.link else sorted(folder.entries())
        foreign |= dict.fromkeys(path for path in there if path not in files)
    return [*foreign]


def clear_leftovers() -> list[Path]:
    """Delete unfinished cache files of killed runs; return their paths."""
    gone = []
    for folder in map(CacheFolder, map(cache_folder, KINDS)):
        with contextlib.suppress(OSError):
            gone += [p for p in folder.entries() if is_temporary(p) and folder.delete(p)]
    return gone


def clear_cache() -> list[Path]:
    """Delete all cache files that can be rebuilt; return their paths.

    Texts that came by standard input stay: a run that was trained on one needs it to go on.

    Raises:
        OSError: a folder cannot be written.
    """
    folders = map(cache_folder, ("tokens", "index", "machine"))
    return [
        path
        for folder in map(CacheFolder, folders)
        for path in folder.entries()
        if not is_temporary(path) and folder.delete(path)
    ]


def data_of(record: dict[str, Any]) -> dict[str, Any]:
    """Read the table `data` of a model's record; empty if missing or damaged."""
    data = record.get("data")
    return data if isinstance(data, dict) else {}


def text_of(data: dict[str, Any]) -> tuple[Path, ...]:
    """Find a model's training text: the original files, or a copy in the cache.

    Args:
        data: the model's record of it.

    Raises:
        SeqgenError: it is in neither place.
    """
    paths = tuple(map(Path, data["files"]))
    if all(path.exists() for path in paths):
        return paths
    kept = cache_folder("text") / f"{data['sha256'][:32]}.txt"
    if kept.exists():
        return (kept,)
    gone = next(path for path in paths if not path.exists())
    raise SeqgenError(f"the training text {gone} is gone; give --data FILE")


def kept_measurement(about: dict[str, Any]) -> dict[str, Any] | None:
    """Load a cached measurement; None if there is none.

    Args:
        about: what was measured, as JSON can hold it.
    """
    try:
        return json.loads(_measurement_file(about).read_text(encoding="utf-8"))["found"]
    except (OSError, SeqgenError, ValueError, TypeError, KeyError):
        return None


def keep_measurement(about: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any] | None:
    """Cache a measurement; return the cached value, or None if it cannot be written.

    If two processes measure at once, the first result that is kept counts for both.
    """
    return _write_measurement(about, measured, lambda: kept_measurement(about) is None)


def replace_measurement(about: dict[str, Any], measured: dict[str, Any]) -> None:
    """Cache a measurement in place of an earlier one, if it can be written."""
    _write_measurement(about, measured, lambda: True)


def _write_measurement(
    about: dict[str, Any], measured: dict[str, Any], replaces: Callable[[], bool]
) -> dict[str, Any] | None:
    """Write a measurement; one that is there already only if `replaces` returns true."""
    content = json_bytes({"machine": _machine(), "about": about, "found": measured})
    try:
        place = _measurement_file(about)
        make_listed_folder(place.parent)
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        write_bytes(temporary, content)
        _move_into_place(temporary, place, replaces)
    except (OSError, SeqgenError):
        return None
    return kept_measurement(about)


def _move_into_place(temporary: Path, place: Path, replaces: Callable[[], bool]) -> None:
    """Move a file into place; where there is one already, only if it `replaces` that."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        # Asked only now: what another process has just put there is whole, because it was linked.
        if replaces():
            temporary.replace(place)
    except OSError:
        temporary.replace(place)  # a file system without links
    finally:
        temporary.unlink(missing_ok=True)


def _measurement_file(about: dict[str, Any]) -> Path:
    return cache_folder("machine") / f"{name_of_measurement(_machine(), about)}.json"


def _machine() -> dict[str, Any]:
    """Collect the facts about machine and PyTorch that a measurement depends on."""
    import torch

    return {
        "node": platform.node(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def processor() -> str:
    """Look up the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


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
    """Check whether a file contains a text survey and nothing else."""
    from seqgen.text.reading import Survey

    return parse_json(file.read()).keys() == {field.name for field in dataclasses.fields(Survey)}


def _is_held_out_text(path: Path, file: IO[bytes]) -> bool:
    """Check whether a text is the source of the token file next to it."""
    from seqgen.text.tokenfile import open_token_file

    return open_token_file(path.with_suffix(".tok")).facts.sha256 == _sha256(file)


def _is_indexed_text(path: Path, file: IO[bytes]) -> bool:
    file.seek(-len(PADDING), os.SEEK_END)
    return file.read() == PADDING


def _is_order(path: Path, file: IO[bytes]) -> bool:
    """Check whether a file has four or eight bytes per byte of the text: a suffix array."""
    size = _indexed_bytes(path)
    return file.seek(0, os.SEEK_END) in (4 * size, 8 * size)


def _is_about_index(path: Path, file: IO[bytes]) -> bool:
    return _indexed_bytes(path) >= 0 and {"files", "lines"} >= {*parse_json(file.read())}


def _indexed_bytes(path: Path) -> int:
    """Return the size of the indexed text next to a file.

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
    """Hash machine and measured setup to a file name, without its ending.

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
    """Split a cache path into folder and file ending; the ending is empty for foreign names."""
    match = NAME.fullmatch(path.name)
    return path.parent.name, match[1] if match else ""


class CacheFolder:
    """One folder of the cache, with the rules for which files seqgen wrote.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listed = listed_files(path)

    @property
    def link(self) -> Path | None:
        """The folder or its parent if that is a symbolic link; links are never followed."""
        return next((one for one in (self.path.parent, self.path) if one.is_symlink()), None)

    def entries(self) -> list[Path]:
        """List the folder's entries in the order in which they may be deleted."""
        files = sorted(self.path.iterdir()) if self.path.is_dir() else []
        return sorted(files, key=lambda path: ORDER.get(_kind(path), -1))

    def own(self) -> Iterator[Path]:
        """Yield the files that seqgen wrote."""
        for path in self.entries():
            try:
                with open_file(path, "rb") as file:
                    is_own = self._is_own(path, file)
            except OSError:  # a link, a folder, a pipe, or a file that cannot be read
                continue
            if is_own:
                yield path

    def delete(self, path: Path) -> bool:
        """Delete a file of the folder if seqgen wrote it; see `files.delete_own`."""
        return delete_own(path, home(), lambda file: self._is_own(path, file))

    def _is_own(self, path: Path, file: IO[bytes]) -> bool:
        if is_listed(path, os.fstat(file.fileno()), self._listed):
            return True
        try:
            return _kind(path) in KNOWN and KNOWN[_kind(path)](path, file)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, SeqgenError):
            return False
