"""Settings by name, from flags or files, distributed to several configuration classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, UsageError, did_you_mean, reporting_unreadable
from seqgen.files import parse_json, parse_toml
from seqgen.settings.model import ModelConfig
from seqgen.settings.other_tools import settings_elsewhere
from seqgen.settings.setting import Config

# Of the architectures that have a setting, an error names so many.
MOST_OWNERS = 3


def resolve(
    settings: Mapping[str, Any],
    architecture: str,
    groups: Iterable[type[Config]],
    owners: Callable[[str], Sequence[str]] = lambda name: (),
) -> list[dict[str, Any]]:
    """Distribute settings by name to the configuration classes that have a field of that name.

    Args:
        settings: by name.
        architecture: whose they are.
        groups: the configuration classes.
        owners: which architectures have a setting, for one that this one does not have.

    Returns:
        For each class, in order, its share of the settings. A field of the same name in two
        classes goes to the first of them.

    Raises:
        UsageError: a setting that none of them has.
    """
    groups = list(groups)
    by_group: list[dict[str, Any]] = [{} for _ in groups]
    known = [name for group in groups for name in group.fields()]
    for name, value in settings.items():
        owner = next((i for i, group in enumerate(groups) if name in group.fields()), None)
        if owner is None:
            raise unknown_setting(name, architecture, known, owners(name))
        by_group[owner][name] = value
    return by_group


def unknown_setting(
    name: str, architecture: str, known: Iterable[str], owners: Sequence[str] = ()
) -> UsageError:
    """Build the error for an unknown setting, with a suggestion.

    Args:
        name: the setting's.
        architecture: which lacks it.
        known: what it has.
        owners: architectures that have the setting.
    """
    listed = f"seqgen models --architectures {architecture} lists all of them"
    if owners:
        more = ["others"] if len(owners) > MOST_OWNERS else []
        *others, last = (*owners[:MOST_OWNERS], *more)
        named = f"{', '.join(others)} and {last}" if others else last
        listed = listed.replace("all of them", f"the settings of {architecture}")
        return UsageError(f"{name} is for --model {named}, not {architecture} ({listed})")
    close = did_you_mean(name, known, settings_elsewhere())
    return UsageError(f"{architecture} has no setting {name!r}{close} ({listed})")


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file, or a model's `config.json`, as nested tables.

    Raises:
        SeqgenError: the file is missing or is not TOML or JSON.
    """
    try:
        with reporting_unreadable(path):
            raw = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SeqgenError(f"{path} cannot be read as a configuration: {error}") from None
    try:
        settings = parse_json(raw) if path.suffix == ".json" else parse_toml(raw)
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise SeqgenError(f"{path} is not {kind}: {error}") from None
    if not isinstance(settings, dict):
        raise SeqgenError(f"{path} contains no settings by name")
    return settings


def flatten_settings(
    nested: Mapping[str, Any], config_class: type[ModelConfig] = ModelConfig
) -> dict[str, Any]:
    """Flatten a configuration file's tables to settings by name.

    Tables (`model`, `training`, `data`) only group. What is derived, how texts of that model begin
    and end, what its adapters are of, how its parts are mixed and measured, and what describes the
    file itself, is left out.
    """
    about = {"format", "seqgen_version", "architecture", "plugin", "preset", "framing", "adapter"}
    about |= {"ngram", "scored_from"}
    settings: dict[str, Any] = {}
    for name, value in nested.items():
        if name in about or (name == "members" and isinstance(value, dict)):  # no number of them
            continue
        if isinstance(value, dict):
            derived = config_class.derived if name == "model" else ()
            settings.update({k: v for k, v in value.items() if k not in derived})
        else:
            settings[name] = value
    return settings
