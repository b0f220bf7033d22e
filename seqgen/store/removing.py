"""Deleting models, and only files that seqgen wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from seqgen.errors import SeqgenError
from seqgen.store.adapter import Adapter
from seqgen.store.aside import discard, forget_replacements, put_aside
from seqgen.store.layout import CONFIG
from seqgen.store.model import StoredModel, models_of
from seqgen.store.ours import require_model, strangers
from seqgen.store.places import models_folder
from seqgen.store.reference import Reference

# The most files that a message names.
NAMED = 3


def check_removable(model: StoredModel) -> Path:
    """Return the folder that removing a model deletes, without links and `.` in its path.

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
    try:
        others = strangers(path)
    except OSError as error:
        raise SeqgenError(f"{path} cannot be removed: {error.strerror or error}") from None
    if others:
        names = ", ".join(others[:NAMED])
        names += f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        raise SeqgenError(
            f"{path} holds what seqgen did not write ({names}): move it elsewhere; {untouched}"
        )
    return path


def check_replaceable(place: Path) -> None:
    """Refuse to put a new model in the place of what is no model.

    Of a link to a model only the link is replaced.

    Raises:
        SeqgenError: see `check_removable`.
    """
    if place.is_symlink():
        require_model(place.resolve(), "nothing was replaced")
    else:
        check_removable(StoredModel(place))


def is_replaceable(place: Path) -> bool:
    """Return whether a new model may be put in the place of what is there."""
    try:
        check_replaceable(place)
    except SeqgenError:
        return False
    return True


def needing(models: Collection[StoredModel]) -> list[str]:
    """Return the names of the other models that refer to one of these, as parts or as a base."""
    others = {model.name: model for model in models_of(models_folder())}
    for model in models:
        others.pop(model.name, None)
    wanted = {name: {r.digest for r in _references(m)} for name, m in others.items()}
    if not any(wanted.values()):
        return []  # and nothing is read for a hash
    digests = set()
    for model in models:
        with contextlib.suppress(SeqgenError, OSError):
            digests.add(model.digest)
    return sorted(name for name, needed in wanted.items() if needed & digests)


def _references(model: StoredModel) -> list[Reference]:
    """Return how a configuration refers to other models that are not in its own folder."""
    with contextlib.suppress(SeqgenError):
        if model.is_mixture:
            return [part for part in model.part_references if not part.inside]
        if model.is_adapter:
            return [Adapter.read(model.config, model.path / CONFIG).base]
    return []


def remove(model: StoredModel) -> None:
    """Delete a model's folder, and the link by which it was named.

    Raises:
        SeqgenError: it cannot be deleted, is being trained, or is no model; see
            `check_removable`.
    """
    path = check_removable(model)
    try:
        with StoredModel(path).locked():
            forget_replacements()
            discard(put_aside(path))
        if model.path.is_symlink():
            model.path.unlink()
    except OSError as error:
        raise SeqgenError(f"{path} cannot be removed: {error.strerror or error}") from None
