"""Texts and tokens that can be used again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.files import replacing
from seqgen.store.places import home


def keep_text(blocks: Iterator[bytes]) -> Path:
    """Keep a text that came by standard input in the cache, under its hash.

    Raises:
        SeqgenError: the cache cannot be written.
    """
    folder = home() / "cache" / "text"
    digest = hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        arriving = folder / f"arriving-{os.getpid()}.txt"
        with replacing(arriving) as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
        return arriving.replace(folder / f"{digest.hexdigest()[:32]}.txt")
    except OSError as error:
        raise SeqgenError(f"{folder} cannot be written: {error.strerror}") from None


def tokens_folder() -> Path:
    """Return the folder that keeps large texts as tokens, so that they are encoded once."""
    return home() / "cache" / "tokens"


def cached_files() -> list[Path]:
    """Return every file of the cache: tokens, then texts that came by standard input."""
    folders = (tokens_folder(), home() / "cache" / "text")
    found = [sorted(folder.iterdir()) if folder.is_dir() else [] for folder in folders]
    return [path for paths in found for path in paths if path.is_file()]


def clear_tokens() -> list[Path]:
    """Delete the cached tokens, which can be made again; return what was deleted.

    Texts that came by standard input stay: a run that was trained on one needs it to go on.
    """
    gone = [path for path in cached_files() if path.parent == tokens_folder()]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def text_of(data: dict[str, Any]) -> tuple[Path, ...]:
    """Return where a model's training text is: where it was, or in the cache by its hash.

    Args:
        data: the model's record of it.

    Raises:
        SeqgenError: it is nowhere.
    """
    paths = tuple(map(Path, data["files"]))
    if all(path.exists() for path in paths):
        return paths
    kept = home() / "cache" / "text" / f"{data['sha256'][:32]}.txt"
    if kept.exists():
        return (kept,)
    gone = next(path for path in paths if not path.exists())
    raise SeqgenError(f"the training text {gone} is gone; give --data FILE")
