"""What is known to be written by seqgen: models' folders, what is put aside, the files in them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath

from seqgen.errors import SeqgenError
from seqgen.files import name_when_written, open_file, parse_json
from seqgen.store import manifest
from seqgen.store.layout import (
    CHECKPOINTS,
    CONFIG,
    LAST,
    LOCK,
    METRICS,
    PARTS,
    RECORD,
    SAMPLES,
    SOURCE_TOKENIZER,
    TENSORBOARD,
    TOKENIZER,
    VALIDATION,
    VALIDATION_FOLDER,
    VALIDATION_PAIRS,
    VALIDATION_TOKENS,
    VALIDATION_VECTORS,
    WEIGHTS,
    models_folder,
)

FOLDERS = (TOKENIZER, SOURCE_TOKENIZER, VALIDATION_FOLDER, CHECKPOINTS, TENSORBOARD)
# The second line of the mark of a new model that is complete, and was to take its place next.
READY = b"ready"


@cache
def known_files() -> tuple[str, ...]:
    """Return the paths of all that seqgen writes into a model's folder, as patterns."""
    from seqgen.data.labels import Classes, Labels
    from seqgen.tokenizers import STORED

    tokenizers = {name for kind in STORED.values() for name in kind.files}
    return (
        *(CONFIG, WEIGHTS, RECORD, METRICS, SAMPLES, LOCK, manifest.MANIFEST),
        *(f"{TOKENIZER}/{name}" for name in sorted({*tokenizers, Classes.file})),
        *(f"{SOURCE_TOKENIZER}/{name}" for name in sorted({*tokenizers, Labels.file})),
        *(VALIDATION, VALIDATION_TOKENS, *VALIDATION_PAIRS, VALIDATION_VECTORS),
        *(f"{CHECKPOINTS}/{LAST}", f"{CHECKPOINTS}/step-*.safetensors"),
        f"{TENSORBOARD}/events.out.tfevents.*",
    )


def is_known(part: PurePath) -> bool:
    """Return whether seqgen writes a file of this path in a model's folder."""
    same_depth = (name for name in known_files() if len(PurePath(name).parts) == len(part.parts))
    return any(part.match(name) for name in same_depth)


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
    part = path.relative_to(folder)
    if part.parts[0] == PARTS and len(part.parts) > 2:  # of a model that a mixture has copied
        part = Path(*part.parts[2:])
    if (written := name_when_written(part.name)) is not None:  # of a run that was killed
        part = part.with_name(written)
    return is_known(part) and (path.is_symlink() or not path.is_dir())


def strangers(folder: Path) -> list[str]:
    """Return the files in a model's folder that seqgen did not write, as relative paths."""
    return [
        path.relative_to(folder).as_posix()
        for path in contents(folder)
        if not is_written_by_seqgen(path, folder)
    ]


def holds_no_weights(folder: Path) -> bool:
    """Return whether a model's folder has neither weights nor a checkpoint, and no strangers.

    A run of version 0.1.0 that was killed early left such folders behind.
    """
    return not strangers(folder) and not any(p.suffix == ".safetensors" for p in contents(folder))


def is_model(folder: Path) -> bool:
    """Return whether a folder holds a model of seqgen, perhaps one that is damaged.

    Its configuration says so; in the models' folder its manifest will do. One that is being built
    is known by its mark before it has either.
    """
    if not folder.is_dir():
        return False
    return _has_configuration(folder) or _has_manifest(folder) or is_marked(folder)


def require_model(folder: Path, untouched: str) -> None:
    """Refuse to change a folder that is not known to hold a model.

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
        if not (folder / CONFIG).is_file():  # nothing is waited for
            return False
        config = parse_json((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(config, dict) or "format" not in config:
        return False
    tables = isinstance(config.get("model"), dict) and isinstance(config.get("data"), dict)
    return tables and isinstance(config.get("architecture"), str)


def _has_manifest(folder: Path) -> bool:
    if folder.resolve().parent != models_folder().resolve():
        return False
    if not (folder / manifest.MANIFEST).is_file():
        return False
    with contextlib.suppress(SeqgenError):
        return CONFIG in manifest.read(folder)
    return False


def mark(folder: Path, name: str) -> None:
    """Write into the lock of a model's folder what it is called, or about to be, once put aside.

    A folder by another name is not marked, so a mark that a kill has left in a model says nothing.

    Args:
        folder: of a model.
        name: of a folder that is put aside.

    Raises:
        OSError: it cannot be written.
    """
    with open_file(folder / LOCK, "a+b") as file:
        file.truncate(0)
        file.write(os.fsencode(name) + b"\n")


def mark_ready(folder: Path) -> None:
    """Add to the mark of a new model that it is complete, and takes its place next.

    It is added by one write, so that a kill leaves the mark as it was or as it is to be.

    Raises:
        OSError: it cannot be written.
    """
    with open_file(folder / LOCK, "ab") as file:
        file.write(READY + b"\n")


def _marks(folder: Path) -> list[bytes]:
    """Return the lines of a folder's lock; none if that is no file."""
    try:
        with open_file(folder / LOCK, "rb") as file:
            return file.read().split(b"\n")
    except OSError:
        return []


def is_marked(folder: Path) -> bool:
    """Return whether seqgen has put a folder aside under its present name."""
    real = folder.is_dir() and not folder.is_symlink()
    return real and _marks(folder)[:1] == [os.fsencode(folder.name)]


def is_ready(folder: Path) -> bool:
    """Return whether a folder that is put aside holds a new model about to take its place."""
    return is_marked(folder) and _marks(folder)[1:2] == [READY]
