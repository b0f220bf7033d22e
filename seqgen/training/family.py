"""`--with-ngram`: names and family ids of a network, its n-gram model and their mixture.

The network, the n-gram model and the mixture are a family: their records hold the same random mark.
By it a later run knows which models it may replace.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

from seqgen import registry, store
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import DataConfig
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.training.datasets.prepared import Prepared

# The key of a record that holds the mark.
FAMILY = "family"
# The most characters of a network's name, so that there is room for the others' endings.
LONGEST = store.LONGEST_NAME - len("-mixture-999")


def why_not_mixable(
    architecture: str,
    training: TrainingConfig,
    data: DataConfig,
    name: str | None = None,
    prepared: Prepared | None = None,
) -> str | None:
    """Explain why a network cannot be mixed with an n-gram model of its text; None if it can.

    Args:
        architecture: of the network.
        training: its training settings.
        data: how it reads text.
        name: its name; None if it has none yet.
        prepared: its text; None before that is read.
    """
    row = registry.architecture(architecture)
    if row.estimator is not None:
        return f"is for networks, which {architecture} is not"
    if not row.task.of(data.labels).beside_ngrams:
        return "is for models of text; n-grams know no sources and no labels"
    if data.val == "none":
        return "fits the weights of a mixture on held-out text: leave out --val none"
    if training.lora is not None:
        return (
            "stores a copy of the network, and one of adapters (lora) would still need their "
            "base: leave out either, or count an n-gram model and use seqgen mix"
        )
    if prepared is not None and (prepared.val is None or prepared.val.tokens.size < 2):
        return "needs two held-out tokens or more: hold out more with --val"
    if name is not None and len(name) > LONGEST:
        return (
            f"adds -mixture to the network's name, which may have {LONGEST} characters then, "
            f"not {len(name)}: choose a shorter one, with --name or seqgen models rename"
        )
    return None


def family_names(name: str) -> tuple[str, str]:
    """Return the names of the n-gram model and the mixture that belong to a network."""
    return f"{name}-ngram", f"{name}-mixture"


def check_family_names(name: str, overwrite: bool) -> None:
    """Refuse a network's name if its n-gram model's or mixture's name is in use.

    Args:
        name: of the network that is to be trained.
        overwrite: it replaces the network of that name, and so may its family.

    Raises:
        UsageError: says what to do.
    """
    family = family_to_join(name, overwrite)
    for beside in family_names(name):
        own = next(models_of_family(beside, family), None)
        if own is None and not store.is_free(beside):
            raise UsageError(
                f"a model named {beside!r} already exists, and --with-ngram stores another under "
                "that name; give another --name, or rename it with seqgen models rename"
            )


def new_family() -> str:
    """Draw a new random family id."""
    return secrets.token_hex(8)


def family_of(model: StoredModel) -> str | None:
    """Return the family id of a stored model; None if there is none."""
    try:
        return model.record.get(FAMILY)
    except SeqgenError:
        return None


def family_to_join(name: str | None, overwrite: bool) -> str:
    """Return the family id for a new network: of the model that it replaces, or a new one."""
    replaced = StoredModel(store.models_folder() / name) if overwrite and name else None
    return (replaced and family_of(replaced)) or new_family()


def models_of_family(stem: str, family: str) -> Iterator[StoredModel]:
    """Yield the stored models of a family named `stem`, `stem-2`, `stem-3` ..."""
    for path in sorted(store.models_folder().glob(f"{stem}*")):
        named_by_run = re.fullmatch(rf"{re.escape(stem)}(-\d+)?", path.name)
        if named_by_run and family_of(StoredModel(path)) == family:
            yield StoredModel(path)


def find_replaceable(stem: str, family: str) -> str | None:
    """Find the family's model of that name that a new one may replace; None if there is none.

    One that other models need, such as a mixture made by hand, stays.
    """
    own = (model for model in models_of_family(stem, family) if not store.dependent_models([model]))
    return next((model.name for model in own), None)
