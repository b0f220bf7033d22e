"""Hidden folders beside the models: new ones being built, old ones being replaced or deleted.

Beside a model `m` may stand `.m.new`, which is being built; `.m.old`, which a new one is just
about to replace; and `.m.0123abcd.gone`, which is being deleted. Whenever a
run is killed, it leaves one of these, and the name says what the next run does with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePath

from seqgen.errors import SeqgenError
from seqgen.files import take_lock
from seqgen.store.layout import (
    CHECKPOINTS,
    CLASSES,
    CONFIG,
    LABELS,
    LAST,
    LOCK,
    METRICS,
    PARTS,
    RECORD,
    SAMPLES,
    SOURCE_TOKENIZER,
    TOKENIZER,
    VALIDATION,
    VALIDATION_PAIRS,
    VALIDATION_TOKENS,
    VALIDATION_VECTORS,
    WEIGHTS,
)
from seqgen.store.manifest import MANIFEST
from seqgen.store.places import alone, models_folder

NEW, OLD, GONE = "new", "old", "gone"
HIDDEN = re.compile(rf"\.(?P<name>.+)\.(?P<kind>{NEW}|{OLD}|{GONE})")
# All that seqgen writes into a model's folder.
FOLDERS = (TOKENIZER, SOURCE_TOKENIZER, "validation", CHECKPOINTS, "tensorboard")
FILES = (
    *(CONFIG, WEIGHTS, RECORD, METRICS, SAMPLES, LOCK, MANIFEST),
    *(f"{TOKENIZER}/tokenizer.json", f"{TOKENIZER}/tokenizer.model"),
    *(f"{SOURCE_TOKENIZER}/tokenizer.json", f"{SOURCE_TOKENIZER}/tokenizer.model"),
    f"{SOURCE_TOKENIZER}/{LABELS}",
    f"{TOKENIZER}/{CLASSES}",
    *(VALIDATION, VALIDATION_TOKENS, *VALIDATION_PAIRS, VALIDATION_VECTORS),
    *(f"{CHECKPOINTS}/{LAST}", f"{CHECKPOINTS}/step-*.safetensors"),
    "tensorboard/events.out.tfevents.*",
)


def hidden(place: Path, kind: str) -> Path:
    """Return the hidden folder of a model whose place is `place`."""
    token = f".{secrets.token_hex(4)}" if kind == GONE else ""
    return place.with_name(f".{place.name}{token}.{kind}")


def taken(place: Path) -> bool:
    """Return whether anything exists at `place`, even a broken link."""
    return os.path.lexists(place)


def contents(folder: Path) -> Iterator[Path]:
    """Yield what is in a model's folder: its entries, and those of the folders that it has.

    The copied parts of a mixture are models' folders too.
    """
    for path in sorted(folder.iterdir()):
        if path.name == PARTS and path.is_dir() and not path.is_symlink():
            for part in sorted(path.iterdir()):
                copied = part.is_dir() and not part.is_symlink()
                yield from contents(part) if copied else (part,)
        elif path.name in FOLDERS and path.is_dir() and not path.is_symlink():
            yield from sorted(path.iterdir())
        else:
            yield path


def is_written_by_seqgen(path: Path, folder: Path) -> bool:
    """Return whether an entry of a model's folder is a file that seqgen writes, by its name."""
    part = PurePath(path.relative_to(folder))
    if part.parts[0] == PARTS and len(part.parts) > 2:  # of a model that a mixture has copied
        part = PurePath(*part.parts[2:])
    if part.name.startswith(".") and part.suffix == ".tmp":  # of a run that was killed
        part = part.with_name(part.name[1:].removesuffix(".tmp").rpartition(".")[0] or ".")
    known = (name for name in FILES if len(PurePath(name).parts) == len(part.parts))
    return any(part.match(name) for name in known) and (path.is_symlink() or not path.is_dir())


def strangers(folder: Path) -> list[str]:
    """Return the files in a model's folder that seqgen did not write, as relative paths."""
    return [
        path.relative_to(folder).as_posix()
        for path in contents(folder)
        if not is_written_by_seqgen(path, folder)
    ]


def holds_no_weights(folder: Path) -> bool:
    """Return whether a folder holds nothing but parts of a model that has no weights.

    A run that was killed early, or a removal, by version 0.1.0 left such folders behind.
    """
    if not folder.is_dir() or folder.is_symlink():
        return False
    return not strangers(folder) and not any(p.suffix == ".safetensors" for p in contents(folder))


def discard(folder: Path) -> None:
    """Delete a model's folder: hide it in one step, then delete its files; do not follow links.

    Raises:
        OSError: it cannot be moved or deleted, or holds files that seqgen did not write, which
            stay.
    """
    known = HIDDEN.fullmatch(folder.name)
    if known is None or known["kind"] != GONE:
        folder = folder.rename(hidden(folder, GONE))
    _delete(folder)


def _delete(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
        return
    ours = [path for path in contents(folder) if is_written_by_seqgen(path, folder)]
    # The lock goes last: without it the folder would look as if no run were using it.
    for path in sorted(ours, key=lambda path: path.name == LOCK):
        path.unlink(missing_ok=True)
    for name in FOLDERS:
        if (folder / name).is_dir():
            (folder / name).rmdir()
    if (folder / PARTS).is_dir():
        for part in (folder / PARTS).iterdir():
            _delete(part)
        (folder / PARTS).rmdir()
    folder.rmdir()


def restore(place: Path) -> None:
    """Put a model back that a killed run was about to replace, if there is one."""
    if taken(hidden(place, OLD)) and not taken(place):
        with contextlib.suppress(OSError), alone():
            _put_back(place)


def restore_all() -> None:
    """Put back all models that killed runs were about to replace."""
    for path, place in _aside(OLD):
        if not taken(place) and path.exists():
            restore(place)


def _put_back(place: Path) -> None:
    if taken(hidden(place, OLD)) and not taken(place):
        hidden(place, OLD).rename(place)


def forget_replaced(place: Path) -> None:
    """Delete the old model that a killed run has left beside its replacement at `place`.

    Otherwise it would be restored as soon as the replacement is removed.

    Raises:
        OSError: it cannot be deleted.
    """
    if taken(hidden(place, OLD)):
        with alone():
            if taken(place) and taken(hidden(place, OLD)):
                discard(hidden(place, OLD))


def clean_models() -> list[Path]:
    """Delete what killed runs left in the models' folder; return what was deleted.

    Call it within `alone`. Folders of running processes are locked, and stay.
    """
    gone = []
    for _, place in _aside(OLD):
        _put_back(place)
    for path, _ in _aside(NEW, OLD, GONE):
        with contextlib.suppress(OSError, SeqgenError):
            if path.is_symlink() or (_is_free(path) and not strangers(path)):
                discard(path)
                gone.append(path)
    return gone


def _aside(*kinds: str) -> list[tuple[Path, Path]]:
    """Return the hidden folders, each with the place of its model."""
    folder = models_folder()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    matches = map(HIDDEN.fullmatch, names)
    return [(folder / m[0], folder / m["name"]) for m in matches if m and m["kind"] in kinds]


def _is_free(folder: Path) -> bool:
    """Return whether no running process holds the lock of a folder."""
    try:
        with (folder / LOCK).open("r+b") as file:
            return take_lock(file)
    except FileNotFoundError:
        return True
