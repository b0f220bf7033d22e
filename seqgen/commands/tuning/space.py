"""What is searched: the settings that the user names, or those that an architecture suggests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from seqgen import registry
from seqgen.configs import (
    BUDGETS,
    Bounds,
    Choices,
    Config,
    DataConfig,
    Dimension,
    TrainingConfig,
    require,
)
from seqgen.configs.config_files import no_such_setting

# In the place of a setting: which architecture is trained.
MODEL = "model"
# Settings that say how long a trial is, what it begins from and what it keeps.
FIXED = (*BUDGETS, "seed", "init_from", "with_ngram", "keep", "checkpoint_every", "validate_every")

Space = dict[str, Dimension]


def check_space(searched: Mapping[str, Dimension], architectures: Iterable[str]) -> Space:
    """Return what the user searches, in the types of the settings.

    Args:
        searched: by setting; `model` is the architecture.
        architectures: that are trained; each must have every setting.

    Raises:
        UsageError: a setting is unknown, cannot be searched, or has wrong values.
    """
    space: Space = {}
    for name, dimension in searched.items():
        if name == MODEL:
            require(isinstance(dimension, Choices), "list the architectures, as model=gru,lstm")
            space[name] = dimension.of_type(name, str, Bounds())
            continue
        for architecture in architectures:
            space[name] = _typed(name, dimension, architecture)
    return space


def architectures_of(searched: Mapping[str, Dimension], given: str | None) -> list[str | None]:
    """Return the architectures that are trained; None is that of the preset or the default.

    Raises:
        UsageError: they are both given and searched, one is unknown, or they read different data.
    """
    dimension = searched.get(MODEL)
    if not isinstance(dimension, Choices):
        return [given]
    require(given is None, "the architecture is both searched and given: leave out one")
    rows = [registry.architecture(name) for name in dimension.values]
    for row in rows[1:]:
        same = row.task is rows[0].task
        require(same, f"{rows[0].name} and {row.name} learn from different data: tune one of them")
    return [row.name for row in rows]


def _groups(architecture: str) -> tuple[type[Config], ...]:
    return registry.architecture(architecture).load_config(), TrainingConfig


def _typed(name: str, dimension: Dimension, architecture: str) -> Dimension:
    """Return the values of a setting in its type."""
    require(name not in FIXED, f"{name} cannot be searched: it is the same for all trials")
    other = name in DataConfig.fields()
    require(not other, f"{name} cannot be searched: losses on other data are not comparable")
    groups = _groups(architecture)
    group = next((group for group in groups if name in group.fields()), None)
    if group is None:
        known = [known for group in groups for known in group.fields()]
        raise no_such_setting(name, architecture, known, registry.owners_of(name))
    bounds = group.fields()[name].metadata["bounds"]
    return dimension.of_type(name, group.types()[name], bounds)


def own_space(architecture: str, given: Collection[str], values: Mapping[str, Any]) -> Space:
    """Return what an architecture's settings suggest to search.

    Args:
        architecture: its name.
        given: settings that the user has fixed.
        values: of all settings, as `train` would have them.

    Raises:
        UsageError: the user has fixed everything that could be searched.
    """
    counted = registry.architecture(architecture).load_model().counted
    space: Space = {}
    for group in _groups(architecture)[: 1 if counted else 2]:
        for name, field in group.fields().items():
            suggested, value = field.metadata.get("search"), values.get(name, field.default)
            if suggested is None or name in given or value is None:
                continue
            kind = group.types()[name]
            space[name] = suggested.around(value).of_type(name, kind, field.metadata["bounds"])
    require(bool(space), f"{architecture} suggests nothing to search: give --search KEY=LOW:HIGH")
    return space
