"""Create, publish and delete models; only files that seqgen wrote are deleted."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.files import move_folder, sync_folder
from seqgen.store.cache import clear_leftovers
from seqgen.store.finding import LATEST, LONGEST_NAME, check_free
from seqgen.store.layout import models_folder, models_locked
from seqgen.store.model import Reference, StoredModel, models_of
from seqgen.store.ownership import (
    clean_models,
    discard,
    foreign_paths,
    forget_replacements,
    hide_folder,
    is_being_built,
    mark_ready,
    new_folder,
    require_model,
)

# The most files that a message names.
NAMED = 3


def check_removable(model: StoredModel) -> Path:
    """Return the real folder that removing a model deletes; refuse foreign files.

    Raises:
        SeqgenError: it is no model, it holds files that seqgen did not write, or it is, or holds,
            the working directory.
    """
    path = model.path.resolve()
    untouched = "nothing was removed"
    require_model(path, untouched)
    with contextlib.suppress(FileNotFoundError):  # the working directory may be gone
        if Path.cwd().resolve().is_relative_to(path):
            raise SeqgenError(f"{path} is, or holds, the working directory; {untouched}")
    with reporting_os_errors(f"{path} cannot be removed"):
        others = foreign_paths(path)
    if others:
        names = ", ".join(others[:NAMED])
        names += f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        raise SeqgenError(
            f"{path} holds what seqgen did not write ({names}): move it elsewhere; {untouched}"
        )
    return path


def check_replaceable(place: Path) -> None:
    """Refuse to replace anything that is not a model.

    Of a link to a model only the link is replaced.

    Raises:
        SeqgenError: see `check_removable`.
    """
    if place.is_symlink():
        require_model(place.resolve(), "nothing was replaced")
    else:
        check_removable(StoredModel(place))


def is_replaceable(place: Path) -> bool:
    """Check whether a new model may replace what is at a path."""
    with contextlib.suppress(SeqgenError):
        check_replaceable(place)
        return True
    return False


def dependent_models(models: Collection[StoredModel]) -> list[str]:
    """List the names of other models that depend on these, as parts or as a base."""
    others = {model.name: model for model in models_of(models_folder())}
    for model in models:
        others.pop(model.name, None)
    references = {name: {r.digest for r in _outside_references(m)} for name, m in others.items()}
    if not any(references.values()):
        return []  # and nothing is read for a hash
    digests = set()
    for model in models:
        with contextlib.suppress(SeqgenError, OSError):
            digests |= {model.digest, *(part.digest for part in model.single_models)}
    return sorted(name for name, needed in references.items() if needed & digests)


def _outside_references(model: StoredModel) -> list[Reference]:
    """List a configuration's references to models outside its own folder."""
    with contextlib.suppress(SeqgenError):
        if model.is_mixture:
            return [part for part in model.part_references if not part.inside]
        if model.is_adapter:
            return [model.adapter.base]
    return []


def remove(model: StoredModel) -> None:
    """Delete a model's folder, and the link that named it.

    Raises:
        SeqgenError: it cannot be deleted, is being trained, or is no model; see
            `check_removable`.
    """
    path = check_removable(model)
    with reporting_os_errors(f"{path} cannot be removed"):
        with StoredModel(path).locked():
            forget_replacements()
            discard(hide_folder(path))
        if model.path.is_symlink():
            model.path.unlink()


@dataclass(frozen=True, eq=False)
class NewModel(StoredModel):
    """A model under construction in a hidden folder, until it is published.

    Attributes:
        place: its final folder.
        replaces: whether it may replace a model there.
    """

    place: Path
    replaces: bool

    @property
    def name(self) -> str:
        """Name of the model once it is published."""
        return self.place.name

    @property
    def published(self) -> bool:
        """Whether it is in its final folder."""
        return self.path == self.place

    @property
    def kept(self) -> str:
        """End of an error message: which files remain if writing fails now."""
        if self.published:
            return super().kept
        return f"{self.name} is as it was" if self.replaces else "nothing was saved"

    def publish(self) -> None:
        """Move the model to its final folder, and delete the model that it replaces.

        Open files and locks stay valid. If another model has taken the place meanwhile, this
        one gets the next free name.

        Raises:
            SeqgenError: the folder cannot be renamed.
        """
        if self.published:
            return
        with self.writing(), models_locked():
            place, old = self.place, None
            if os.path.lexists(place) and not (self.replaces and is_replaceable(place)):
                place = _free_place(place.parent, place.name)
            # If the next two steps are broken off, the next run completes them.
            mark_ready(self.path)
            if os.path.lexists(place):
                old = hide_folder(place)
                if old is not None:  # of a link, nothing is replaced
                    _keep_modes(old, self.path)
            try:
                move_folder(self.path, place)
            except OSError:
                if old is not None:
                    old.rename(place)
                raise
            # Stored models are frozen; this is the only change that one undergoes.
            object.__setattr__(self, "path", place)
            object.__setattr__(self, "place", place)
            sync_folder(place.parent)
        if old is not None:
            with contextlib.suppress(OSError):  # the next run tries again
                discard(old)


def _keep_modes(old: Path, new: Path) -> None:
    """Copy the file modes of a replaced model to the new one, where possible."""
    for path in (new, *new.rglob("*")):
        before = old / path.relative_to(new)
        if before.is_symlink() or path.is_symlink() or not before.exists():
            continue
        with contextlib.suppress(OSError):
            path.chmod(before.stat().st_mode & 0o777)


@contextlib.contextmanager
def building(
    name: str | None, stem: str, overwrite: bool, folder: Path | None = None
) -> Iterator[NewModel]:
    """Create a new model in a locked hidden folder; delete it if it is never published.

    Args:
        name: the user's name for it; if None, `stem`, or `stem-2`, `stem-3` ...
        stem: a name made from the corpus and the architecture.
        overwrite: replace a model of that name.
        folder: where the model goes; the models' folder if None.

    Raises:
        UsageError: not a name, or one in use.
        SeqgenError: the folder cannot be written; a run is at a model of that name; or what is to
            be replaced is no model.
    """
    check_free(name, overwrite)
    with contextlib.ExitStack() as held:
        model = _begin(folder or models_folder(), name, stem, held)
        try:
            yield model
        finally:
            if not model.published:
                with contextlib.suppress(OSError):  # the next run tries again
                    discard(model.path)


def _begin(folder: Path, name: str | None, stem: str, held: contextlib.ExitStack) -> NewModel:
    try:
        with models_locked() as journal:
            folder.mkdir(parents=True, exist_ok=True)
            clean_models(journal)
            place = folder / name if name else _free_place(folder, stem)
            if is_being_built(place):
                raise SeqgenError(f"{place.name} is being trained by another run; wait for it")
            replaces = os.path.lexists(place)
            if replaces:
                check_replaceable(place)
            if replaces and not place.is_symlink():
                held.enter_context(StoredModel(place).locked())
            model = NewModel(new_folder(place, journal), place, replaces)
            held.enter_context(model.locked())
    except OSError as error:
        raise SeqgenError(
            f"{folder} cannot be written: {error.strerror}; set SEQGEN_HOME to another folder"
        ) from None
    clear_leftovers()
    return model


def name_of_stem(stem: str) -> str:
    """Make a model's name of the name of a file."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._") or "model"
    return stem[: LONGEST_NAME - len("-999")]


def _free_place(folder: Path, stem: str) -> Path:
    """Choose a free model path that no running process is about to use."""
    number, path = 2, folder / (stem := name_of_stem(stem))
    while os.path.lexists(path) or is_being_built(path) or path.name == LATEST:
        path = folder / f"{stem}-{number}"
        number += 1
    return path


def clean() -> list[Path]:
    """Delete leftovers of killed runs in the models' folder and the cache.

    Returns:
        What was deleted.
    """
    gone: list[Path] = []
    if models_folder().is_dir():
        with contextlib.suppress(OSError), models_locked() as journal:
            gone += clean_models(journal)
    return gone + clear_leftovers()
