"""Cache of the served models: loaded on first use, and reloaded when replaced on disk.

The one that was used least recently makes room for others.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from seqgen import store
from seqgen.errors import SeqgenError
from seqgen.settings import require
from seqgen.store import StoredMixture, StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import Work, is_language_model, load, parts_of, require_language_model

# What a model takes in memory beside its file: its matrices are laid out once more.
TIMES_ITS_SIZE = 2
# How often a model is loaded that is replaced meanwhile, and seconds between two tries.
TRIES, PAUSE = 3, 0.05
# The inode, size and time of each file of a model.
Stamp = tuple[tuple[int, int, int], ...]


class Unknown(SeqgenError):  # noqa: N818
    """Error: no such model is served."""


class Damaged(SeqgenError):  # noqa: N818
    """Error: a model cannot be loaded; the log has the reason."""


class Shelf:
    """Served models by name, loaded on demand within a memory limit.

    Args:
        names: of stored models or mixtures; none for every stored model that can write.
        most_bytes: of all models in memory; None for no limit.

    Attributes:
        stored: the models.
        left_out: the names of those that are too large, where `names` are none.

    Raises:
        SeqgenError: there is no such model, one needs a plugin that is missing, or none is stored.
        UsageError: one is no language model, or larger than the limit, or all are.
    """

    def __init__(self, names: Sequence[str], most_bytes: int | None = None) -> None:
        found = [store.find_all(name) for name in names]
        if not names:
            found = [model for model in store.list_models() if is_language_model(model)]
            found = [store.find_all(model.name) for model in found]
        for stored in found:
            for part in parts_of(stored):
                _ = part.task  # refused if its plugin is missing
            require_language_model(stored)
        if not found:
            raise SeqgenError("there is no trained model yet; run seqgen train FILE first")
        self.stored = dict(zip(names or [model.name for model in found], found, strict=True))
        self._most = most_bytes
        self.left_out: list[str] = []
        sizes = {} if most_bytes is None else {x: self.bytes_of(y) for x, y in self.stored.items()}
        for name, size in sizes.items():
            if size > most_bytes:
                why = f"{name} needs {size:,} bytes, more than --memory: allow more"
                require(not names, f"{why}, or serve other models")
                self.left_out.append(name)
                del self.stored[name]
                require(bool(self.stored), f"no model fits in --memory; {why}")
        self._loaded: dict[str, LoadedModel] = {}  # least recently used first
        self._sizes: dict[str, int] = {}  # of all that have been loaded
        self._files = {name: stored.files for name, stored in self.stored.items()}
        self._stamps: dict[str, Stamp | None] = {}  # of the files that were loaded
        self._lock = threading.Lock()  # of `_loaded`; the rest is written under `_load_lock`
        self._load_lock = threading.Lock()  # one load at a time; models in memory stay available

    @property
    def loaded(self) -> list[str]:
        """Names of the models in memory."""
        return list(self._loaded)

    def written(self) -> dict[str, float]:
        """Read the times when models were written, in seconds since the epoch."""
        found = {}
        for name, stored in self.stored.items():
            with contextlib.suppress(OSError):
                found[name] = stored.written
        return found

    @staticmethod
    def bytes_of(stored: StoredModel | StoredMixture) -> int:
        """Estimate the memory that a model needs when loaded."""
        return TIMES_ITS_SIZE * stored.size

    def get(self, name: str | None) -> LoadedModel:
        """Get the current version of a model, loaded if necessary; the first one for None.

        One that has been replaced since it was loaded is loaded again, whatever memory holds; one
        that has been removed is returned while it is in memory.

        Raises:
            Unknown: it is not served, or has been removed.
            Damaged: it cannot be loaded any more.
        """
        name = next(iter(self.stored)) if name is None else name
        if name not in self.stored:
            raise Unknown(
                f"there is no model {name!r} here; GET /v1/models lists the served models"
            )
        loaded = self._current_or_evict(name)
        if loaded is None:
            with self._load_lock:
                # Another request may have loaded it meanwhile.
                loaded = self._current_or_evict(name) or self._load(name)
        return loaded

    def _current_or_evict(self, name: str) -> LoadedModel | None:
        """Get a model that is loaded and has not been replaced since; else drop it."""
        with self._lock:
            loaded = self._loaded.pop(name, None)
            if loaded is None or self._is_replaced(name):
                return None
            self._loaded[name] = loaded
            return loaded

    def _is_replaced(self, name: str) -> bool:
        return self._stamp(name) not in (None, self._stamps[name])

    def _stamp(self, name: str) -> Stamp | None:
        """Read a stamp that changes when a model file is replaced; None if one is missing."""
        with contextlib.suppress(OSError):
            found = [path.stat() for path in self._files[name]]
            return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)
        return None

    def _load(self, name: str) -> LoadedModel:
        """Load a model; retry if its files are replaced in the meantime."""
        for left in reversed(range(TRIES)):
            loaded, error, before = None, None, self._stamp(name)
            try:
                loaded = self._load_now(name)
            except SeqgenError as raised:
                error = raised
            self._stamps[name] = self._stamp(name)
            if before == self._stamps[name] is not None or not left:
                break
            time.sleep(PAUSE)
        if loaded is None:
            raise error
        with self._lock:
            self._loaded[name] = loaded
        return loaded

    def _load_now(self, name: str) -> LoadedModel:
        stored = self.stored[name]
        try:
            size = self.bytes_of(stored)
        except OSError:
            gone = [part.name for part in parts_of(stored) if not part.path.is_dir()]
            if isinstance(stored, StoredMixture) and gone:
                needs = f"the model {name!r} needs {' and '.join(gone)}, which has been removed"
                raise Damaged(needs) from None
            raise Unknown(f"the model {name!r} has been removed") from None
        except SeqgenError as error:
            raise _damaged(name, error) from None
        self._make_room(size)
        self._sizes[name] = size
        try:
            # As `seqgen sample` does for one prompt, whatever is asked later.
            loaded = replace(load(name, work=Work(lasting=True)), title=name)
        except SeqgenError as error:
            raise _damaged(name, error) from None
        self.stored[name], self._files[name] = loaded.stored, loaded.stored.files
        return loaded

    def _make_room(self, size: int) -> None:
        """Drop the least recently used models until a new one fits."""
        with self._lock:
            while self._loaded and self._most is not None and self._most < size + self._size:
                del self._loaded[next(iter(self._loaded))]

    @property
    def _size(self) -> int:
        return sum(self._sizes[name] for name in self._loaded)


def _damaged(name: str, error: SeqgenError) -> Damaged:
    """Log why a model cannot be loaded; return the error for clients, which names no files."""
    logging.getLogger(__name__).warning("%s", error)
    return Damaged(f"the model {name!r} cannot be loaded; the server's log says why")
