"""The trained models that another was trained from: its record names them, with their hashes."""

from __future__ import annotations

from seqgen.errors import SeqgenError
from seqgen.store.layout import RECORD
from seqgen.store.model import StoredModel
from seqgen.store.places import models_folder
from seqgen.store.reference import Reference

# Settings of training whose values are models.
KINDS = ("init_from", "features")


def origins_of(model: StoredModel) -> dict[str, StoredModel | None]:
    """Return the models that one was trained from, by setting, also if they were renamed.

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
