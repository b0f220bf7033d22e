"""The models of a server: loaded when first asked for; the least recently used makes room."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from seqgen import registry, store
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import require
from seqgen.store import StoredMixture, StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import Work, load, require_language_model

# What a model takes in memory beside its file: its matrices are laid out once more.
TIMES_ITS_SIZE = 2


class Unknown(SeqgenError):  # noqa: N818
    """There is no such model here."""


class Damaged(SeqgenError):  # noqa: N818
    """A model cannot be loaded; the log says why."""


class Shelf:
    """Models by the names that requests give; no other name means anything.

    Args:
        names: of stored models or mixtures; none for every stored model that can write.
        most_bytes: of all models in memory; None for no limit.

    Attributes:
        stored: the models.
        left_out: the names of those that are too large, where `names` are none.

    Raises:
        SeqgenError: there is no such model, or none at all.
        UsageError: one is no language model, or larger than the limit, or all are.
    """

    def __init__(self, names: Sequence[str], most_bytes: int | None = None) -> None:
        found = [store.find_all(name) for name in names]
        if not names:
            found = [model for model in store.list_models() if _writes(model)]
            found = [store.find_all(model.name) for model in found]
        for stored in found:
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
        self._loaded: dict[str, LoadedModel] = {}  # the one used last stands last
        self._sizes: dict[str, int] = {}  # of all that have been loaded
        self._lock = threading.Lock()

    @property
    def loaded(self) -> list[str]:
        """The names of the models in memory."""
        return list(self._loaded)

    def written(self) -> dict[str, float]:
        """Return when each model was written, in seconds since the epoch, but of removed ones."""
        found = {}
        for name, stored in self.stored.items():
            with contextlib.suppress(OSError):
                found[name] = stored.written
        return found

    @staticmethod
    def bytes_of(stored: StoredModel | StoredMixture) -> int:
        """Return what a model is taken to need in memory."""
        return TIMES_ITS_SIZE * stored.size

    def get(self, name: str | None) -> LoadedModel:
        """Return a model, which is loaded if need be; the first for None.

        Raises:
            Unknown: it is not served, or has been removed.
            Damaged: it cannot be loaded any more.
        """
        name = next(iter(self.stored)) if name is None else name
        if name not in self.stored:
            raise Unknown(f"there is no model {name!r} here; GET /v1/models lists those there are")
        with self._lock:
            loaded = self._loaded.pop(name, None)
            self._loaded[name] = self._load(name) if loaded is None else loaded
            return self._loaded[name]

    def _load(self, name: str) -> LoadedModel:
        try:
            size = self.bytes_of(self.stored[name])
        except OSError:
            raise Unknown(f"the model {name!r} has been removed") from None
        self._make_room(size)
        self._sizes[name] = size
        try:
            # As `seqgen sample` does for one prompt, whatever is asked later.
            return replace(load(name, work=Work(lasting=True)), title=name)
        except SeqgenError as error:
            logging.getLogger(__name__).warning("%s", error)  # it names files: not for clients
            why = f"the model {name!r} cannot be loaded; the server's log says why"
            raise Damaged(why) from None

    def _make_room(self, size: int) -> None:
        """Drop the models that were used least recently until another fits."""
        while self._loaded and self._most is not None and self._most < size + self._size:
            del self._loaded[next(iter(self._loaded))]

    @property
    def _size(self) -> int:
        return sum(self._sizes[name] for name in self._loaded)


def _writes(stored: StoredModel) -> bool:
    """Return whether a stored model is a language model."""
    with contextlib.suppress(SeqgenError, UsageError):
        if stored.is_mixture:
            return True
        row = registry.known_architecture(stored.config["architecture"])
        return row is not None and row.task.model_is is None
    return False
