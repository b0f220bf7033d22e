"""Locks of a study and of its trials, which end with the process that holds them.

A process holds the lock of a trial as long as it trains it, so the trial of a process that was
killed is free at once. They are locks of files or, in a database, advisory locks of connections.
"""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.files import is_locked_elsewhere, open_file, take_lock

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TRIALS, LOCK = "trials", "lock"


class StudyLocks(ABC):
    """Locks of one study."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[None]:
        """Lock the study against other processes; not reentrant."""

    @abstractmethod
    def working(self, number: int) -> AbstractContextManager[None]:
        """Hold the lock of a trial within a block."""

    @abstractmethod
    def is_at_work(self, number: int | str) -> bool:
        """Check whether a process holds the lock of a trial."""


class FileLocks(StudyLocks):
    """Locks of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def locked(self) -> AbstractContextManager[None]:
        return _holding(self.folder / LOCK, wait=True)

    def working(self, number: int) -> AbstractContextManager[None]:
        return _holding(self._path(number), wait=False)

    def is_at_work(self, number: int | str) -> bool:
        try:
            with open_file(self._path(number), "rb") as file:
                return is_locked_elsewhere(file)
        except OSError:
            return False

    def _path(self, number: int | str) -> Path:
        return self.folder / TRIALS / str(number) / LOCK


@contextlib.contextmanager
def _holding(path: Path, wait: bool) -> Iterator[None]:
    """Hold the lock of a file, which is created, within a block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_file(path, "a+b") as file:
        take_lock(file, wait=wait)
        yield


@dataclass(frozen=True)
class AdvisoryLocks:
    """SQL of a kind of database for locks that end with their connection.

    Attributes:
        prepare: what lets a connection live through a long trial, and end with its machine.
        take: waits for the lock `:key`.
        take_if_free: is true if it was free.
        release: gives it back.
    """

    prepare: str
    take: str
    take_if_free: str
    release: str


MYSQL = AdvisoryLocks(
    prepare="SET SESSION wait_timeout = 2147483",
    take="SELECT GET_LOCK(CONCAT('seqgen ', :key), 2147483)",
    take_if_free="SELECT GET_LOCK(CONCAT('seqgen ', :key), 0)",
    release="SELECT RELEASE_LOCK(CONCAT('seqgen ', :key))",
)
ADVISORY_LOCKS = {
    "postgresql": AdvisoryLocks(
        prepare="SET tcp_keepalives_idle = 60",
        take="SELECT pg_advisory_lock(:key)",
        take_if_free="SELECT pg_try_advisory_lock(:key)",
        release="SELECT pg_advisory_unlock(:key)",
    ),
    "mysql": MYSQL,
    "mariadb": MYSQL,
}


class DatabaseLocks(StudyLocks):
    """Advisory locks of a database.

    Args:
        url: of the database, of a kind in `ADVISORY_LOCKS`.
        study: name of the study.
    """

    def __init__(self, url: str, study: str) -> None:
        self._url, self._study = url, study

    def locked(self) -> AbstractContextManager[None]:
        return self._holding("")

    def working(self, number: int) -> AbstractContextManager[None]:
        return self._holding(number)

    def is_at_work(self, number: int | str) -> bool:
        with self._connected() as (connection, sql):
            key = self._key(number)
            is_free = connection.scalar(*_statement(sql.take_if_free, key))
            if is_free:
                connection.scalar(*_statement(sql.release, key))
            return not is_free

    @contextlib.contextmanager
    def _holding(self, number: int | str) -> Iterator[None]:
        with self._connected() as (connection, sql):
            key = self._key(number)
            connection.scalar(*_statement(sql.take, key))
            try:
                yield
            finally:
                connection.scalar(*_statement(sql.release, key))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Connection, AdvisoryLocks]]:
        from sqlalchemy import text

        sql = ADVISORY_LOCKS[self._engine.url.get_backend_name()]
        with self._engine.connect() as connection:
            connection.execute(text(sql.prepare))
            yield connection, sql

    @cached_property
    def _engine(self) -> Engine:
        from sqlalchemy import NullPool, create_engine

        return create_engine(self._url, isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def _key(self, number: int | str) -> int:
        """Hash the names of the study and the trial to a positive 63-bit number."""
        digest = hashlib.sha256(f"seqgen {self._study}:{number}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1


def _statement(sql: str, key: int) -> tuple[object, dict[str, int]]:
    from sqlalchemy import text

    return text(sql), {"key": key}
