"""What `--with-ngram` stores with a network: for which networks, and under which names.

The network, the n-gram model and the mixture are a family: their records hold the same random mark.
By it a later run knows which models it may replace.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

from seqgen import registry, store
from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.errors import SeqgenError, UsageError
from seqgen.store import StoredModel
from seqgen.tasks.datasets.prepared import Prepared

# The key of a record that holds the mark.
FAMILY = "family"
# The most characters of a network's name, so that there is room for the others' endings.
LONGEST = store.LONGEST_NAME - len("-mixture-999")


def why_not_mixed(
    architecture: str,
    training: TrainingConfig,
    data: DataConfig,
    *,
    name: str | None = None,
    prepared: Prepared | None = None,
) -> str | None:
    """Return why a network cannot be mixed with an n-gram model of its text; None if it can.

    Args:
        architecture: the network's.
        training: its settings of training.
        data: how it reads text.
        name: what it is called; None if it has no name yet.
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
            "stores a copy of the network, and one of adapters (lora) would still need their base: "
            "leave out either, or count an n-gram model and use seqgen mix"
        )
    if prepared is not None and (prepared.val is None or prepared.val.tokens.size < 2):
        return "needs two held-out tokens or more: hold out more with --val"
    if name is not None and len(name) > LONGEST:
        return (
            f"adds -mixture to the network's name, which may have {LONGEST} characters then, not "
            f"{len(name)}: choose a shorter one, with --name or seqgen models rename"
        )
    return None


def check_mixable(
    architecture: str,
    training: TrainingConfig,
    data: DataConfig,
    *,
    name: str | None = None,
    prepared: Prepared | None = None,
) -> None:
    """Refuse `--with-ngram` for a network that cannot be mixed; see `why_not_mixed`.

    Raises:
        UsageError: says why.
    """
    why_not = why_not_mixed(architecture, training, data, name=name, prepared=prepared)
    require(why_not is None, f"--with-ngram {why_not}")


def names_beside(name: str) -> tuple[str, str]:
    """Return the names of the n-gram model and of the mixture that go with a network."""
    return f"{name}-ngram", f"{name}-mixture"


def check_names_beside(name: str, overwrite: bool) -> None:
    """Refuse a network's name if those of its n-gram model and its mixture are in use.

    Args:
        name: of the network that is to be trained.
        overwrite: it replaces the network of that name, and so may its family.

    Raises:
        UsageError: says what to do.
    """
    family = family_to_join(name, overwrite)
    for beside in names_beside(name):
        own = next(stored_beside(beside, family), None)
        if own is None and not store.is_free(beside):
            raise UsageError(
                f"a model named {beside!r} already exists, and --with-ngram stores another under "
                "that name; give another --name, or rename it with seqgen models rename"
            )


def new_family() -> str:
    """Return a mark that no other family has."""
    return secrets.token_hex(8)


def family_of(model: StoredModel) -> str | None:
    """Return the mark of a stored model's family; None if it has none, or there is no model."""
    try:
        return model.record.get(FAMILY)
    except SeqgenError:
        return None


def family_to_join(name: str | None, overwrite: bool) -> str:
    """Return the mark of a new network's family: of that which it replaces, or a new one."""
    replaced = StoredModel(store.models_folder() / name) if overwrite and name else None
    return (replaced and family_of(replaced)) or new_family()


def stored_beside(stem: str, family: str) -> Iterator[StoredModel]:
    """Yield the models of a family that are called `stem`, or `stem-2`, `stem-3` ..."""
    for path in sorted(store.models_folder().glob(f"{stem}*")):
        named_by_run = re.fullmatch(rf"{re.escape(stem)}(-\d+)?", path.name)
        if named_by_run and family_of(StoredModel(path)) == family:
            yield StoredModel(path)


def replaceable(stem: str, family: str) -> str | None:
    """Return the name of the model of a family that a new one may replace; None if there is none.

    One that other models need, such as a mixture made by hand, stays.
    """
    own = (model for model in stored_beside(stem, family) if not store.needing([model]))
    return next((model.name for model in own), None)
