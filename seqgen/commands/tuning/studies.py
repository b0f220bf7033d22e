"""The studies that are kept: which there are, and deleting one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqgen import store
from seqgen.commands.tuning.study import (
    BEST,
    DATABASE,
    FACTS,
    LOCK,
    TRIALS,
    Study,
    kept_facts,
    require_optuna,
)
from seqgen.errors import SeqgenError

WRITTEN = {FACTS, BEST, LOCK, TRIALS, *(DATABASE + end for end in ("", "-wal", "-shm", "-journal"))}


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """The keys of a record of `seqgen tune --list --json`, in order; None where it is damaged.

    `complete` trials were trained to their end; `val_loss` is the lowest of theirs.
    """

    name: str
    trials: int | None
    complete: int | None
    val_loss: float | None
    path: str


def kept_studies() -> Iterator[StudyRecord]:
    """Yield what is known of every study, by name.

    Raises:
        SeqgenError: Optuna is not installed.
    """
    require_optuna()
    folder = store.studies_folder()
    paths = folder.iterdir() if folder.is_dir() else ()
    for path in sorted(path for path in paths if path.is_dir()):
        try:
            facts = kept_facts(path.name)
            there = facts is not None and (path / DATABASE).exists()
            records = Study(path, facts).records() if there else []
        except Exception:  # of the facts, of SQLite, of SQLAlchemy or of Optuna
            nothing = {"trials": None, "complete": None, "val_loss": None}
            yield StudyRecord(name=path.name, path=str(path), **nothing)
            continue
        if facts is not None:
            losses = [record.val_loss for record in records if record.is_complete]
            counts = {"trials": len(records), "complete": len(losses)}
            best = min(losses, default=None)
            yield StudyRecord(name=path.name, path=str(path), **counts, val_loss=best)


def check_deletable(name: str) -> Path:
    """Return the folder of a study.

    Raises:
        UsageError: the name is none.
        SeqgenError: there is no such study, it holds files that seqgen did not write, or a process
            works on it.
    """
    store.check_name(name)
    path = store.studies_folder() / name
    if not path.is_dir():
        raise SeqgenError(f"there is no study {name!r}; see seqgen tune --list")
    if others := sorted(file.name for file in path.iterdir() if file.name not in WRITTEN):
        raise SeqgenError(
            f"{path} holds what seqgen did not write ({others[0]}): move it elsewhere; nothing was "
            "removed"
        )
    if Study(path, {}).is_at_work():
        raise SeqgenError(f"a process works on the study {name!r}: stop it; nothing was removed")
    return path


def delete_study(path: Path) -> None:
    """Delete a study that `check_deletable` has returned.

    Raises:
        SeqgenError: the system refuses, or a process has begun to work on it.
    """
    if Study(path, {}).is_at_work():
        raise SeqgenError(f"a process works on the study {path.name!r}: stop it")
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise SeqgenError(f"{path} cannot be removed: {error.strerror or error}") from None
