"""Storage of a study: a folder of this machine, a database, or a journal file on a shared disk.

Optuna keeps the trials; a storage also has the facts of the study's beginning, and its locks.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import store
from seqgen.errors import SeqgenError, UsageError, first_line
from seqgen.files import parse_json, require_regular, write_json
from seqgen.packages import install_command
from seqgen.plugins.tune.locks import ADVISORY_LOCKS, DatabaseLocks, FileLocks, StudyLocks
from seqgen.wording import first_names

if TYPE_CHECKING:
    import optuna
    from optuna.storages.journal import BaseJournalFileLock

FACTS, DATABASE = "study.json", "study.db"
# The fields of a study's facts.
KEPT = ("about", "seed", "budget")
# Trials that are complete before one is pruned, and tenths of a trial in which none is.
BEFORE_PRUNING, UNPRUNED_TENTHS = 4, 3
# Seconds that a process waits while another writes.
PATIENCE = 60
# The longest first line of a journal, in bytes.
LONGEST_RECORD = 1 << 20


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Hide Optuna's warnings about experimental features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class StudyStorage(ABC):
    """Storage of one study.

    Attributes:
        name: of the study.
        locks: its locks.
        place: where it is, as messages name it.
    """

    # What Optuna calls the study.
    title: str

    def __init__(self, name: str, locks: StudyLocks, place: str) -> None:
        store.check_name(name)
        self.name, self.locks, self.place = name, locks, place

    @property
    def folder(self) -> Path:
        """Folder on this machine with the models of running trials and the best settings."""
        return store.studies_folder() / self.name

    @cached_property
    def optuna(self) -> optuna.Study:
        """Optuna's study, created if it is not there; first use requires the lock."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with without_warnings():
            pruner = optuna.pruners.MedianPruner(BEFORE_PRUNING, UNPRUNED_TENTHS)
            return optuna.create_study(
                storage=self.backend, pruner=pruner, study_name=self.title, load_if_exists=True
            )

    @property
    @abstractmethod
    def backend(self) -> optuna.storages.BaseStorage:
        """Optuna's storage; first use requires the lock."""

    @abstractmethod
    def keep_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Store the facts of a study unless it has some; return the stored ones.

        Requires the lock.
        """

    @abstractmethod
    def read_facts(self) -> dict[str, Any] | None:
        """Read the facts stored when the study began; None if there is no such study.

        Raises:
            SeqgenError: the study is damaged, or its storage cannot be used.
        """

    def has_trials(self) -> bool:
        """Check whether any trial may have begun."""
        return True

    def delete(self) -> None:
        """Delete the study from Optuna's storage; requires the lock."""
        import optuna

        optuna.delete_study(study_name=self.title, storage=self.backend)

    @contextlib.contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Turn errors of the storage within a block into one-line SeqgenErrors."""
        from optuna.exceptions import OptunaError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (OptunaError, SQLAlchemyError) as error:
            cause = getattr(error, "orig", None) or error.__cause__ or error
            raise SeqgenError(f"{self.label}: {first_line(cause)}") from None

    @property
    def label(self) -> str:
        """Where the study is, as errors name it."""
        return self.place


class Connection(sqlite3.Connection):
    """SQLite connection with a write-ahead log: commits survive a kill and do not wait for disk.

    They are written to a log beside the file. Cut power may lose the last ones.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


class LocalStorage(StudyStorage):
    """Study in a folder of this machine, with the trials in a SQLite file."""

    title = "seqgen"

    def __init__(self, name: str) -> None:
        folder = store.studies_folder() / name
        super().__init__(name, FileLocks(folder), str(folder))

    @cached_property
    def backend(self) -> optuna.storages.BaseStorage:
        import optuna

        with without_warnings():
            return optuna.storages.RDBStorage(
                f"sqlite:///{self.folder.resolve() / DATABASE}",
                engine_kwargs={"connect_args": {"timeout": PATIENCE, "factory": Connection}},
            )

    def has_trials(self) -> bool:
        return (self.folder / DATABASE).exists()

    def read_facts(self) -> dict[str, Any] | None:
        path = self.folder / FACTS
        try:
            facts = parse_json(path.read_bytes())
            return {name: facts[name] for name in KEPT}
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError):
            raise SeqgenError(
                f"{path} is damaged: delete its folder, or give another --name"
            ) from None

    def keep_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        known = self.read_facts()
        if known is None:
            write_json(self.folder / FACTS, facts)
        return known or facts


class SharedStorage(StudyStorage):
    """Study in a storage that processes on other machines share."""

    @property
    def title(self) -> str:
        """Name of the study, by which other programs show it."""
        return self.name

    def read_facts(self) -> dict[str, Any] | None:
        with self.reporting_errors(), self.locks.locked():
            return self.optuna.user_attrs.get("facts") if self.name in self.names() else None

    def names(self) -> list[str]:
        """List the studies in the storage; requires the lock."""
        import optuna

        with without_warnings():
            return optuna.get_all_study_names(self.backend)

    def keep_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        known = self.optuna.user_attrs.get("facts")
        if known is None:
            self.optuna.set_user_attr("facts", facts)
        return known or facts

    @property
    def label(self) -> str:
        return f"--storage {self.place}"


class DatabaseStorage(SharedStorage):
    """Study in a database.

    Args:
        name: of the study.
        url: of the database, as SQLAlchemy has it.

    Raises:
        UsageError: it is no URL, or of a database without advisory locks.
        SeqgenError: the package of the database is not installed.
    """

    def __init__(self, name: str, url: str) -> None:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError

        try:
            parsed = make_url(url)
            place, kind = parsed.render_as_string(hide_password=True), parsed.get_backend_name()
            if kind not in ADVISORY_LOCKS:
                kinds = first_names([f"{known}://" for known in ADVISORY_LOCKS])
                raise UsageError(
                    f"--storage is a database ({kinds}) or the path of a journal file, and not "
                    f"{kind}://"
                )
            parsed.get_dialect().import_dbapi()
        except (ArgumentError, NoSuchModuleError):
            raise UsageError(
                "--storage is a URL, such as postgresql://USER@HOST/DATABASE, or a path"
            ) from None
        except ImportError as error:
            module = error.name or parsed.get_driver_name()
            package = PACKAGES.get(module, module)
            needed = f"needs the package {package}: {install_command(shlex.quote(package))}"
            raise SeqgenError(f"--storage {place} {needed}") from None
        self._url = url
        super().__init__(name, DatabaseLocks(url, name), place)

    @cached_property
    def backend(self) -> optuna.storages.BaseStorage:
        import optuna

        with without_warnings():
            return optuna.storages.RDBStorage(self._url, engine_kwargs={"pool_pre_ping": True})


# Packages that have another name than their module.
PACKAGES = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}


class JournalStorage(SharedStorage):
    """Study in a journal file of Optuna, with the locks in a folder beside it."""

    def __init__(self, name: str, path: Path) -> None:
        if not path.parent.is_dir():
            raise SeqgenError(f"--storage {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise SeqgenError(f"--storage {path} is a folder: give the path of a file in it")
        super().__init__(name, FileLocks(path.with_name(f"{path.name}.locks") / name), str(path))
        self._path = path

    def delete(self) -> None:
        super().delete()
        shutil.rmtree(self.locks.folder, ignore_errors=True)

    @cached_property
    def backend(self) -> optuna.storages.BaseStorage:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        path = str(self._path)
        try:
            with without_warnings():
                lock = JournalFileOpenLock(path)
                _mend_journal(self._path, lock)
                return JournalStorage(JournalFileBackend(path, lock))
        except OSError as error:
            raise SeqgenError(f"--storage {path}: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, AssertionError):
            raise SeqgenError(f"--storage {path} is no journal file of Optuna") from None


def _mend_journal(path: Path, lock: BaseJournalFileLock) -> None:
    """Drop the last record of a journal if a full disk or a kill has cut it.

    Optuna would append the next one to it. The file is cut under the journal's lock, so no process
    is writing then.

    Raises:
        OSError: it cannot be read, or is a pipe or the like.
        ValueError: it is no journal.
    """
    if not path.exists():
        return
    with require_regular(path).open("rb") as file:
        first = file.readline(LONGEST_RECORD)
        if first and "op_code" not in parse_json(first):
            raise ValueError
        if not first or (file.seek(-1, os.SEEK_END) and file.read(1) == b"\n"):
            return
    lock.acquire()
    try:
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    finally:
        lock.release()


def open_storage(name: str, url: str | None) -> StudyStorage:
    """Open the storage of a study.

    Args:
        name: of the study.
        url: what `--storage` gives: of a database, or the path of a journal file; None for a folder
            of this machine.

    Raises:
        UsageError: it is no valid name, or a URL of another kind.
        SeqgenError: a package is missing, or the folder of a journal file.
    """
    if url is None:
        return LocalStorage(name)
    return DatabaseStorage(name, url) if "://" in url else JournalStorage(name, Path(url))


def study_names(url: str | None) -> list[str]:
    """List the names of the studies in a storage, or in the folder of this machine's studies.

    Raises:
        SeqgenError: the storage cannot be used.
    """
    if url is None:
        folder = store.studies_folder()
        return sorted(path.name for path in folder.glob("*") if path.is_dir())
    storage = open_storage("names", url)
    with storage.reporting_errors(), storage.locks.locked():
        return sorted(storage.names())
