"""The cache: texts, their tokens and indexes, and what was measured on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, reported
from seqgen.files import (
    Piece,
    is_temporary,
    json_bytes,
    make_listed_folder,
    named_when_written,
    write_bytes,
)
from seqgen.store.cache_ownership import CacheFolder, name_of_measurement
from seqgen.store.layout import home

# The name of a text while it is being received.
ARRIVING = "arriving"


def keep_text(blocks: Iterator[bytes]) -> Path:
    """Store a text from standard input in the cache, under its hash.

    Raises:
        SeqgenError: the cache cannot be written.
    """
    folder = texts_folder()
    digest = hashlib.sha256()
    with reported(f"{folder} cannot be written"):
        make_listed_folder(folder)
        with named_when_written(folder / ARRIVING, lambda: _kept_as(digest)) as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
        return _kept_as(digest)


def _kept_as(digest: hashlib._Hash) -> Path:
    return texts_folder() / f"{digest.hexdigest()[:32]}.txt"


def texts_folder() -> Path:
    """Return the folder of texts from standard input, named by their hash."""
    return home() / "cache" / "text"


def tokens_folder() -> Path:
    """Return the folder of large texts that have been encoded."""
    return home() / "cache" / "tokens"


def indexes_folder() -> Path:
    """Return the folder of texts that have been indexed, each with its suffix array."""
    return home() / "cache" / "index"


def kept_index_files(
    about: dict[str, Any], content: Callable[[], Mapping[str, Sequence[Piece]]], *endings: str
) -> list[Path]:
    """Return the files of a text's index, which are made once.

    Args:
        about: what identifies the text, as JSON can hold it.
        content: reads the text; returns what the files hold, by the endings of their names and in
            the order in which they are written.
        endings: of those files.

    Raises:
        SeqgenError: the cache cannot be written, or the text cannot be read.
    """
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
    folder = indexes_folder()
    if not all((folder / f"{key}.{ending}").exists() for ending in endings):
        made = content()
        with reported(f"{folder} cannot be written"):
            make_listed_folder(folder)
            for ending, pieces in made.items():
                write_bytes(folder / f"{key}.{ending}", *pieces)
    return [folder / f"{key}.{ending}" for ending in endings]


def measurements_folder() -> Path:
    """Return the folder that keeps what was measured on this machine, so that it is done once."""
    return home() / "cache" / "machine"


def measurements() -> list[Path]:
    """Return the files of what was measured on this machine."""
    return [*_finished(measurements_folder())]


def cached_files() -> list[Path]:
    """Return every file of the cache: tokens, indexes, then texts that came by standard input."""
    folders = tokens_folder(), indexes_folder(), texts_folder()
    return [path for folder in folders for path in sorted(_finished(folder))]


def _finished(folder: Path) -> Iterator[Path]:
    return (path for path in CacheFolder(folder).own() if not is_temporary(path))


def foreign_files() -> list[Path]:
    """Return what is in the cache and was not written by seqgen, which never deletes it.

    Of folders that are behind a link, which is not followed, that is the link.
    """
    foreign: dict[Path, None] = {}
    for folder in map(CacheFolder, _folders()):
        own = set(folder.own())
        there = [folder.link] if folder.link else sorted(folder.entries())
        foreign |= dict.fromkeys(path for path in there if path not in own)
    return [*foreign]


def _folders() -> tuple[Path, ...]:
    return tokens_folder(), indexes_folder(), texts_folder(), measurements_folder()


def clear_leftovers() -> list[Path]:
    """Delete files that killed runs left unfinished in the cache; return them."""
    gone = []
    for folder in map(CacheFolder, _folders()):
        with contextlib.suppress(OSError):
            gone += [p for p in folder.entries() if is_temporary(p) and folder.delete(p)]
    return gone


def clear_cache() -> list[Path]:
    """Delete what can be made again: tokens, indexes, measurements; return what was deleted.

    Texts that came by standard input stay: a run that was trained on one needs it to go on.

    Raises:
        OSError: a folder cannot be written.
    """
    folders = map(CacheFolder, (tokens_folder(), indexes_folder(), measurements_folder()))
    return [
        path
        for folder in folders
        for path in folder.entries()
        if not is_temporary(path) and folder.delete(path)
    ]


def data_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a model's record says of its data; nothing if it says none, or is damaged."""
    data = record.get("data")
    return data if isinstance(data, dict) else {}


def text_of(data: dict[str, Any]) -> tuple[Path, ...]:
    """Return the paths of a model's training text: its own, or a copy in the cache.

    Args:
        data: the model's record of it.

    Raises:
        SeqgenError: it is in neither place.
    """
    paths = tuple(map(Path, data["files"]))
    if all(path.exists() for path in paths):
        return paths
    kept = texts_folder() / f"{data['sha256'][:32]}.txt"
    if kept.exists():
        return (kept,)
    gone = next(path for path in paths if not path.exists())
    raise SeqgenError(f"the training text {gone} is gone; give --data FILE")


def kept_measurement(about: dict[str, Any]) -> dict[str, Any] | None:
    """Return the kept result of a measurement, or None.

    Args:
        about: what was measured, as JSON can hold it.
    """
    try:
        return json.loads(_measurement_file(about).read_text(encoding="utf-8"))["found"]
    except (OSError, SeqgenError, ValueError, TypeError, KeyError):
        return None


def keep_measurement(about: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any] | None:
    """Keep the result of a measurement; return the kept one, or None if none can be kept.

    If two processes measure at once, the first result that is kept counts for both.
    """
    content = json_bytes({"machine": _machine(), "about": about, "found": measured})
    try:
        place = _measurement_file(about)
        make_listed_folder(place.parent)
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        write_bytes(temporary, content)
        _put(temporary, place, lambda: kept_measurement(about) is None)
    except (OSError, SeqgenError):
        return None
    return kept_measurement(about)


def _put(temporary: Path, place: Path, damaged: Callable[[], bool]) -> None:
    """Move a file to its place, unless another process has put one there that is not damaged."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        # Asked only now: what another process has just put there is whole, because it was linked.
        if damaged():
            temporary.replace(place)
    except OSError:
        temporary.replace(place)  # a file system without links
    finally:
        temporary.unlink(missing_ok=True)


def _measurement_file(about: dict[str, Any]) -> Path:
    return measurements_folder() / f"{name_of_measurement(_machine(), about)}.json"


def _machine() -> dict[str, Any]:
    """Return what a measurement depends on."""
    import torch

    return {
        "node": platform.node(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def processor() -> str:
    """Return what this machine's processor is called."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
