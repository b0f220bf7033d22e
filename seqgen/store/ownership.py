"""Check which folders are models, and manage hidden folders of new and deleted models.

Beside a model `m` there may be `.m.0123abcd.new`, which is being built, and `.m.0123abcd.gone`,
which is being deleted. Each has a mark inside (`mark`) that says its name; nothing without one
is moved or deleted, whatever it is called. A run that is killed at any time leaves one of these,
and the next run deletes it, or moves it to its place if it was complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from seqgen.errors import SeqgenError
from seqgen.files import (
    final_name,
    move_folder,
    open_file,
    parse_json,
    take_lock,
    unlink_within,
)
from seqgen.store import layout, manifest
from seqgen.store.layout import models_folder, models_locked

# The second line of the mark of a new model that is complete, and was to take its place next.
READY = b"ready"


def contents(folder: Path) -> Iterator[Path]:
    """Yield the paths in a model's folder and its subfolders.

    The copied parts of a mixture are models' folders too.
    """
    for path in sorted(folder.iterdir()):
        if path.name == layout.PARTS and path.is_dir() and not path.is_symlink():
            for part in sorted(path.iterdir()):
                copied = part.is_dir() and not part.is_symlink()
                yield from contents(part) if copied else (part,)
        elif path.name in layout.FOLDERS and path.is_dir() and not path.is_symlink():
            yield from sorted(path.iterdir())
        else:
            yield path


def is_written_by_seqgen(path: Path, folder: Path) -> bool:
    """Check by its name whether a path in a model's folder is a file of seqgen."""
    part = path.relative_to(folder)
    if part.parts[0] == layout.PARTS and len(part.parts) > 2:  # of a copied part
        part = Path(*part.parts[2:])
    if (name := final_name(part.name)) is not None:  # of a run that was killed
        part = part.with_name(name)
    return layout.is_known(part) and (path.is_symlink() or not path.is_dir())


def foreign_paths(folder: Path) -> list[str]:
    """List relative paths of files in a model's folder that seqgen did not write."""
    return [
        path.relative_to(folder).as_posix()
        for path in contents(folder)
        if not is_written_by_seqgen(path, folder)
    ]


def is_empty_model(folder: Path) -> bool:
    """Check whether a model's folder has no weights, checkpoints or foreign files.

    A run of version 0.1.0 that was killed early left such folders behind.
    """
    if foreign_paths(folder):
        return False
    return not any(path.suffix == ".safetensors" for path in contents(folder))


def is_model(folder: Path) -> bool:
    """Check whether a folder contains a model of seqgen, possibly damaged.

    Its configuration says so; in the models' folder its manifest will do. One that is being built
    is known by its mark before it has either.
    """
    if not folder.is_dir():
        return False
    return _has_configuration(folder) or _has_manifest(folder) or is_marked(folder)


def require_model(folder: Path, untouched: str) -> None:
    """Refuse to change a folder that is not known to be a model.

    Args:
        folder: the folder.
        untouched: what was not done to it, as the end of a message.

    Raises:
        SeqgenError: it holds none.
    """
    if not folder.is_dir():
        raise SeqgenError(f"{folder} is not a folder; {untouched}")
    if not is_model(folder):
        raise SeqgenError(f"{folder} does not look like a model; {untouched}")


def _has_configuration(folder: Path) -> bool:
    try:
        if not (folder / layout.CONFIG).is_file():  # nothing is waited for
            return False
        config = parse_json((folder / layout.CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(config, dict) or "format" not in config:
        return False
    tables = isinstance(config.get("model"), dict) and isinstance(config.get("data"), dict)
    return tables and isinstance(config.get("architecture"), str)


def _has_manifest(folder: Path) -> bool:
    if folder.resolve().parent != models_folder().resolve():
        return False
    if not (folder / layout.MANIFEST).is_file():
        return False
    with contextlib.suppress(SeqgenError):
        return layout.CONFIG in manifest.read(folder)
    return False


def mark(folder: Path, name: str) -> None:
    """Write a hidden folder's own name into its lock, to recognise it later.

    A folder by another name is not marked, so a mark that a kill has left in a model says nothing.

    Args:
        folder: of a model.
        name: of a folder that is put aside.

    Raises:
        OSError: it cannot be written.
    """
    with open_file(folder / layout.LOCK, "a+b") as file:
        file.truncate(0)
        file.write(os.fsencode(name) + b"\n")


def mark_ready(folder: Path) -> None:
    """Mark a new model as complete and about to replace the old one.

    It is added by one write, so that a kill leaves the mark as it was or as it is to be.

    Raises:
        OSError: it cannot be written.
    """
    with open_file(folder / layout.LOCK, "ab") as file:
        file.write(READY + b"\n")


def _read_marks(folder: Path) -> list[bytes]:
    """Read the lines of a folder's lock; empty if it is not a file."""
    try:
        with open_file(folder / layout.LOCK, "rb") as file:
            return file.read().split(b"\n")
    except OSError:
        return []


def is_marked(folder: Path) -> bool:
    """Check whether seqgen created or moved a hidden folder under its present name."""
    real = folder.is_dir() and not folder.is_symlink()
    return real and _read_marks(folder)[:1] == [os.fsencode(folder.name)]


def is_ready(folder: Path) -> bool:
    """Check whether a hidden folder is a complete new model about to be published."""
    return is_marked(folder) and _read_marks(folder)[1:2] == [READY]


NEW, GONE = "new", "gone"
HIDDEN = re.compile(rf"\.(?P<name>[^/]+)\.[0-9a-f]{{8}}\.(?P<kind>{NEW}|{GONE})")


def _new_hidden_name(place: Path, kind: str) -> Path:
    """Make a new hidden name next to a model's final path, `place`."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.{kind}")


def new_folder(place: Path, journal: IO[bytes]) -> Path:
    """Create and mark a hidden folder for a new model.

    Args:
        place: where the model will be.
        journal: what `models_locked` yields.

    Raises:
        OSError: it cannot be made.
    """
    folder = _new_hidden_name(place, NEW)
    with _journal_entry(folder, journal):
        folder.mkdir()
        mark(folder, folder.name)
    return folder


def hide_folder(place: Path) -> Path | None:
    """Rename a model's folder to a hidden name before deletion; return the new path.

    A link is deleted, and what it leads to stays; then there is nothing to discard.

    Raises:
        OSError: it cannot be moved.
    """
    if place.is_symlink():
        place.unlink()
        return None
    gone = _new_hidden_name(place, GONE)
    mark(place, gone.name)
    return move_folder(place, gone, reopen=False)


def discard(folder: Path) -> None:
    """Delete a hidden folder without following links.

    Raises:
        OSError: it cannot be deleted, or holds files that seqgen did not write, which stay.
    """
    _delete_contents(folder)
    with models_locked() as journal:
        _delete(folder, journal)


def _delete_contents(folder: Path) -> None:
    """Delete seqgen's files in a model's folder, except the lock."""
    for path in list(contents(folder)):
        if is_written_by_seqgen(path, folder) and path != folder / layout.LOCK:
            unlink_within(path, folder.parent)
    _delete_folders(folder)


def delete_parts(folder: Path) -> None:
    """Delete the models inside a model's folder, without following links.

    Raises:
        OSError: they cannot be deleted, or contain files that seqgen did not write, which stay.
    """
    for path in list(contents(folder)):
        if path.is_relative_to(folder / layout.PARTS) and is_written_by_seqgen(path, folder):
            unlink_within(path, folder.parent)
    _delete_part_folders(folder)


def _delete_folders(folder: Path) -> None:
    """Delete the empty subfolders of a model's folder."""
    for name in layout.FOLDERS:
        if (folder / name).is_dir():
            (folder / name).rmdir()
    _delete_part_folders(folder)


def _delete_part_folders(folder: Path) -> None:
    """Delete the empty folders of the models inside a model's folder."""
    if (folder / layout.PARTS).is_dir():
        for part in list((folder / layout.PARTS).iterdir()):
            _delete_folders(part)
            part.rmdir()
        (folder / layout.PARTS).rmdir()


def _delete(folder: Path, journal: IO[bytes]) -> None:
    """Delete a folder that contains only its mark."""
    if _names(folder) - {layout.LOCK}:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
    with _journal_entry(folder, journal):
        (folder / layout.LOCK).unlink(missing_ok=True)
        folder.rmdir()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@contextlib.contextmanager
def _journal_entry(folder: Path, journal: IO[bytes]) -> Iterator[None]:
    """Record a folder's name in a journal while it exists without its mark.

    Args:
        folder: the folder.
        journal: what `models_locked` yields.
    """
    _forget_unmarked(journal)
    journal.write(os.fsencode(folder.name))
    yield
    journal.truncate(0)


def _forget_unmarked(journal: IO[bytes]) -> None:
    """Delete the unmarked folder of a process that was killed while making or deleting it."""
    journal.seek(0)
    name = os.fsdecode(journal.read())
    folder = models_folder() / name
    if HIDDEN.fullmatch(name) and folder.is_dir() and not folder.is_symlink():
        with contextlib.suppress(OSError):
            if _names(folder) == {layout.LOCK}:
                (folder / layout.LOCK).unlink()
            folder.rmdir()  # only if it is empty
    journal.truncate(0)


def is_being_built(place: Path) -> bool:
    """Check whether a running process is building a model for the path `place`."""
    there = _hidden_folders(place.parent, NEW) if place.parent.is_dir() else ()
    return any(own == place and not _is_free(path) for path, own in there)


def restore(place: Path) -> None:
    """Finish a replacement that was interrupted after the old model had been moved away."""
    if not os.path.lexists(place) and any(own == place for _, own in _ready_models(place.parent)):
        with contextlib.suppress(OSError), models_locked():
            for path, own in _ready_models(place.parent):
                if own == place and not os.path.lexists(place) and _is_free(path):
                    path.rename(place)


def restore_all() -> None:
    """Finish all interrupted replacements."""
    for _, place in list(_ready_models(models_folder())):
        restore(place)


def clean_models(journal: IO[bytes]) -> list[Path]:
    """Delete leftovers of killed runs in the models' folder; return their paths.

    Folders of running processes are locked, and stay.

    Args:
        journal: what `models_locked` yields.
    """
    _forget_unmarked(journal)
    gone = []
    for path, place in list(_hidden_folders(models_folder(), NEW, GONE)):
        with contextlib.suppress(OSError, SeqgenError):
            if not _is_free(path) or foreign_paths(path):
                continue
            if is_ready(path) and not os.path.lexists(place):
                path.rename(place)
                continue
            _delete_contents(path)
            _delete(path, journal)
            gone.append(path)
    return gone


def forget_replacements() -> None:
    """Delete leftovers of interrupted replacements before a model is removed for good.

    Otherwise one that was complete, but had not taken that place yet, would take it then.

    Raises:
        OSError: the home cannot be written.
    """
    with models_locked() as journal:
        clean_models(journal)


def _ready_models(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield complete hidden new models in a folder, each with its final path."""
    return ((path, place) for path, place in _hidden_folders(folder, NEW) if is_ready(path))


def _hidden_folders(folder: Path, *kinds: str) -> Iterator[tuple[Path, Path]]:
    """Yield the hidden folders in a folder, each with its model's final path."""
    names = _names(folder) if folder.is_dir() else ()
    for known in filter(None, map(HIDDEN.fullmatch, sorted(names))):
        if known["kind"] in kinds and is_marked(folder / known[0]):
            yield folder / known[0], folder / known["name"]


def _is_free(folder: Path) -> bool:
    """Check whether no running process holds a folder's lock."""
    with open_file(folder / layout.LOCK, "r+b") as file:
        return take_lock(file)
