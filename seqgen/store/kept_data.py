"""The cache of texts and tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.files import is_temporary, named_when_written, remove_leftovers
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with named_when_written(folder / ARRIVING, lambda: _kept_as(digest)) as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
        return _kept_as(digest)
    except OSError as error:
        raise SeqgenError(f"{folder} cannot be written: {error.strerror}") from None


def _kept_as(digest: hashlib._Hash) -> Path:
    return texts_folder() / f"{digest.hexdigest()[:32]}.txt"


def texts_folder() -> Path:
    """Return the folder of texts from standard input, named by their hash."""
    return home() / "cache" / "text"


def tokens_folder() -> Path:
    """Return the folder of large texts that have been encoded."""
    return home() / "cache" / "tokens"


def measurements_folder() -> Path:
    """Return the folder that keeps what was measured on this machine, so that it is done once."""
    return home() / "cache" / "machine"


def measurements() -> list[Path]:
    """Return the files of what was measured on this machine."""
    return sorted(measurements_folder().glob("*.json"))


def cached_files() -> list[Path]:
    """Return every file of the cache: tokens, then texts that came by standard input."""
    return [path for path in _files() if not _is_arriving(path)]


def _files() -> Iterator[Path]:
    for folder in (tokens_folder(), texts_folder()):
        yield from filter(Path.is_file, sorted(folder.iterdir()) if folder.is_dir() else ())


def _is_arriving(path: Path) -> bool:
    """Return whether a file of the cache is unfinished; version 0.1.0 had two such names."""
    return is_temporary(path) or path.name.startswith(f"{ARRIVING}-")


def clear_leftovers() -> list[Path]:
    """Delete files that killed runs left unfinished in the cache; return them."""
    return remove_leftovers(filter(_is_arriving, list(_files())))


def clear_cache() -> list[Path]:
    """Delete cached tokens and measurements, which can be made again; return what was deleted.

    Texts that came by standard input stay: a run that was trained on one needs it to go on.
    """
    gone = [path for path in cached_files() if path.parent == tokens_folder()] + measurements()
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


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
