"""Find models by name, by path or as the latest, and the models they were trained from."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError, did_you_mean, reporting_os_errors
from seqgen.files import move_folder
from seqgen.settings import require
from seqgen.settings.other_tools import pretrained_hint
from seqgen.store.layout import RECORD, models_folder
from seqgen.store.manifest import CHEAP
from seqgen.store.mixtures import StoredMixture, mixture_weights, resolve, scored_from_of
from seqgen.store.model import Reference, StoredModel, models_of
from seqgen.store.ownership import (
    forget_replacements,
    is_empty_model,
    is_model,
    require_model,
    restore,
    restore_all,
)

LATEST = "latest"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The most characters of a new name: the hidden folder `.NAME.0123abcd.gone` has 255 then, as many
# as file systems allow.
LONGEST_NAME = 240


def check_name(name: str) -> None:
    """Refuse an invalid model name.

    Raises:
        UsageError: says what a valid name is.
    """
    require(name != LATEST, "the name 'latest' is reserved: it means the model written last")
    if not NAME.fullmatch(name):
        rule = "use letters, digits and . _ -, and begin with a letter or digit"
        if ":" in name:
            rule = "a name has no colon; to read models, -m takes NAME:bytes, and A:0.7+B:0.3"
        raise UsageError(f"{name!r} cannot be a model's name: {rule}")


def check_new_name(name: str) -> None:
    """Refuse a name that is not allowed for new models.

    Raises:
        UsageError: it is invalid or too long.
    """
    check_name(name)
    if len(name) > LONGEST_NAME:
        raise UsageError(f"a model's name has at most {LONGEST_NAME} characters, not {len(name)}")


def check_free(name: str | None, overwrite: bool) -> None:
    """Refuse an invalid name, or one in use unless it may be overwritten.

    A model without weights is none; its name is free. A name that is to be made (None) is.

    Raises:
        UsageError: it is in use, by a model or by something that is none; says what to do.
        SeqgenError: models cannot be stored at all; see `home`.
    """
    models_folder()
    if name is None:
        return
    check_new_name(name)
    if is_free(name):
        return
    if not is_model(models_folder() / name):
        raise UsageError(f"{models_folder() / name} exists and is not a model; give another --name")
    if not overwrite:
        raise UsageError(
            f"a model named {name!r} already exists; give --overwrite or another --name"
        )


def is_free(name: str) -> bool:
    """Check whether a name is unused, or used only by a model without weights."""
    place = models_folder() / name
    restore(place)
    return not os.path.lexists(place) or (is_model(place) and is_empty_model(place))


def is_stored(name: str) -> bool:
    """Check whether a text is the exact name of a stored model."""
    named = len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None
    return named and is_model(models_folder() / name)


def list_models() -> list[StoredModel]:
    """List all loadable models, the latest written first."""
    restore_all()
    return sorted(models_of(models_folder()), key=lambda m: (-m.written, m.name))


def find(name: str | Path | None) -> StoredModel:
    """Find the model that `-m` names: a name, a path (with a separator), or the latest.

    Raises:
        UsageError: it is the mixture of several.
        SeqgenError: there is none; names the nearest.
    """
    if name is None or name == LATEST:
        for model in list_models():
            with contextlib.suppress(SeqgenError):
                model.check(largest=CHEAP)
                with_parts(model)
                return model
        raise SeqgenError("there is no trained model yet; run seqgen train FILE first")
    if _is_path(name):
        model = StoredModel(Path(name))
        if not model.path.is_dir():
            hint = pretrained_hint(name) if isinstance(name, str) else ""
            raise SeqgenError(f"there is no model folder {name}{hint}")
        return model
    if "+" in name:
        raise UsageError(
            f"{name} is a mixture, and this takes a stored model: store it with seqgen mix"
        )
    check_name(name)
    model = StoredModel(models_folder() / name)
    restore(model.path)
    if not model.path.is_dir():
        hint = pretrained_hint(name) or did_you_mean(name, [m.name for m in list_models()])
        hint = hint or "; seqgen models lists the stored models"
        raise SeqgenError(f"there is no model named {name!r}{hint}")
    return model


def find_all(name: str | Path | None) -> StoredModel | StoredMixture:
    """Find the model or mixture that `-m` names; `A+B` and `A:0.7+B:0.3` are mixtures.

    Parts without a weight share the rest equally. `A:VIEW` is A in one of the plugins' `views`.

    Raises:
        UsageError: a weight is not from 0 to 1, or they do not sum to 1.
        SeqgenError: there is no such model; names the nearest.
    """
    if not isinstance(name, str):
        return with_parts(find(name))
    if "+" not in name or _is_folder(name):
        return with_parts(_find_viewed(name))
    given = [_weighted(part) for part in name.split("+")]
    weights = [weight for _, weight in given]
    left = 1 - sum(weight for weight in weights if weight is not None)
    missing = weights.count(None)
    if left < -1e-4 or (not missing and left > 1e-4):
        raise UsageError(f"the weights of {name} sum to {1 - left:g}, not to 1")
    weights = [max(0.0, left) / missing if w is None else w for w in weights]
    models = _find_different(part for part, _ in given)
    each = [
        (part, weight * share / sum(weights))
        for model, weight in zip(models, weights, strict=True)
        for part, share in _shares(model)
    ]
    parts, shares = zip(*each, strict=True)
    return StoredMixture(parts[0].path, parts, shares, fitted_to=scored_from_of(models))


def find_parts(names: Iterable[str]) -> tuple[StoredModel, ...]:
    """Find the models to be mixed by their names; one with an n-gram part gives both its parts.

    Raises:
        UsageError: one is another mixture, or given twice.
        SeqgenError: there is no such model; names the nearest.
    """
    return tuple(part for model in _find_different(names) for part, _ in _shares(model))


def _find_different(names: Iterable[str]) -> list[StoredModel]:
    """Find models by their names; see `find_parts`."""
    models = list(map(_find_viewed, names))
    places = [model.path.resolve() for model in models]
    for model in models:
        model.network_for("mixing")
        if places.count(model.path.resolve()) > 1:
            said = f"{model.name} is given twice: the parts of a mixture are different models"
            raise UsageError(said)
    return models


def _shares(model: StoredModel) -> list[tuple[StoredModel, float]]:
    """Return the parts that a model brings into a mixture, and their shares of its weight."""
    shares = mixture_weights(model).fixed if model.is_mixture else [1.0]
    parts = [replace(part, view=model.view) for part in model.single_models]
    return list(zip(parts, shares, strict=True))


def with_parts(stored: StoredModel) -> StoredModel | StoredMixture:
    """Resolve the parts of a stored mixture; other models are returned unchanged.

    Raises:
        SeqgenError: a part, or the base of adapters, is gone or has changed; or it is damaged.
    """
    if stored.is_mixture:
        return resolve(stored)
    if stored.is_adapter:
        _ = stored.base  # which is looked for, and raises
    return stored


def _find_viewed(name: str) -> StoredModel:
    """Find the model of `NAME`, `NAME:VIEW` or `NAME:VIEW=OPTION`; NAME may be a path with a colon.

    Raises:
        SeqgenError: there is none, or no plugin with such a view.
    """
    start, _, view = name.rpartition(":")
    kind = view.partition("=")[0]
    if start and not _is_folder(name):
        hooks.require_plugin(f":{kind}", name)
        if kind in hooks.by_name("views"):
            return replace(find(start), view=view)
    return find(name)


def _is_path(name: str | Path) -> bool:
    """Check whether a model is given by its path, with a separator, and not by its name."""
    return isinstance(name, Path) or any(sep in name for sep in (os.sep, os.altsep) if sep)


def _is_folder(name: str) -> bool:
    return _is_path(name) and Path(name).is_dir()


def _weighted(part: str) -> tuple[str, float | None]:
    """Split `name:weight`; the name may be a path with a colon."""
    name, colon, number = part.rpartition(":")
    if not part or (colon and not name):
        raise UsageError("a mixture is written A+B or A:0.7+B:0.3")
    try:
        weight = float(number) if colon else None
    except ValueError:
        return part, None
    if weight is None:
        return part, None
    require(0 <= weight <= 1, f"the weight of {name} must be from 0 to 1, not {number}")
    return name, weight


def rename(model: StoredModel, name: str) -> StoredModel:
    """Rename a model atomically: at every moment it has the old name or the new one.

    Returns:
        The model under its new name, in the folder it was in.

    Raises:
        UsageError: not a name, or one in use.
        SeqgenError: it is no model, is being trained, or cannot be renamed; or the path is a link,
            which would lead nowhere afterwards.
    """
    check_new_name(name)
    require_model(model.path, "nothing was renamed")
    if model.path.is_symlink():
        raise SeqgenError(
            f"{model.path} is a link to {model.path.resolve()}: rename that, or the link itself"
        )
    path = model.path.resolve().with_name(name)
    if os.path.lexists(path):
        raise UsageError(f"a model named {name!r} already exists; choose another name")
    with reporting_os_errors(f"{model.path} cannot be renamed"), model.locked():
        forget_replacements()
        move_folder(model.path.resolve(), path)
    return StoredModel(path)


def now() -> str:
    """Format the current time as ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# Settings of training whose values are models.
KINDS = ("init_from", "features")


def origins_of(model: StoredModel) -> dict[str, StoredModel | None]:
    """Find the models that a model was trained from, by setting, even if renamed.

    None stands for one that is gone or has been trained again. Records of earlier versions have
    no hashes: then the name in `config.json` counts.
    """
    known = model.record.get("origins")
    known = known if isinstance(known, dict) else {}
    given = model.config.get("training") or {}
    return {kind: _found(model, known.get(kind), given[kind]) for kind in KINDS if given.get(kind)}


def _found(model: StoredModel, fact: object, given: str) -> StoredModel | None:
    if fact is None:
        named = StoredModel(models_folder() / given)  # an absolute path stays itself
        return named if named.loadable else None
    try:
        reference = Reference.read(fact, model.path / RECORD, "an origin")
        return model.referred(reference, "was trained from", "it cannot be trained again")
    except (SeqgenError, OSError):
        return None
