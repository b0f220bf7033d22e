"""Lists of all settings (of an architecture, training and data) and of presets, for help."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from seqgen import registry
from seqgen.cli.shell.flags import choices_of
from seqgen.cli.shell.help import put_panels
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.tables import put_facts
from seqgen.settings import Config, DataConfig, unknown_setting
from seqgen.settings.training import TrainingConfig

NAMES_OF_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def settings_of(name: str, only: str | None = None) -> list[dict[str, Any]]:
    """List all settings of `train --model NAME`, as `models --architectures` shows them.

    The architecture's own come from `registry.DEFAULTS` where that file has them, so that its code,
    and torch, is not loaded.

    Args:
        name: of the architecture.
        only: the one setting to return, or a part of the names or help of several.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    row = registry.architecture(name)
    stored = row.defaults()
    groups = {
        "model": stored.get("settings") or describe_settings(row.load_config()),
        "training": describe_settings(TrainingConfig),
        "data": describe_settings(DataConfig),
    }
    chosen = None if only is None else only.replace("-", "_")
    known = [setting for group in groups.values() for setting in group]
    selected = known if chosen is None else {chosen} & {*known}
    if not selected:
        selected = {
            setting
            for group in groups.values()
            for setting, facts in group.items()
            if chosen in setting or only.lower() in facts["doc"].lower()
        }
    if not selected:
        raise unknown_setting(chosen, name, known)
    recipe = stored["training"]
    return [
        {"architecture": name, "group": group, "setting": setting}
        | {**facts, "default": recipe.get(setting, facts["default"])}
        for group, settings in groups.items()
        for setting, facts in settings.items()
        if setting in selected
    ]


def describe_settings(config: type[Config]) -> dict[str, dict[str, Any]]:
    """Describe each setting of a configuration class: doc, type and default, by name."""
    kinds = config.types()
    return {
        name: {
            "doc": field.metadata["doc"],
            "type": _type_name(kinds[name]),
            "choices": list(choices_of(kinds[name])) or None,
            "default": None if field.default is dataclasses.MISSING else field.default,
            "bounds": str(field.metadata["bounds"].without_sanity_limit()) or None,
        }
        for name, field in config.fields().items()
    }


def _type_name(kind: Any) -> str:
    """Format a type for help; `T | None` is shown as T."""
    base = next((part for part in get_args(kind) if part in NAMES_OF_TYPES), kind)
    return "choice" if choices_of(kind) else NAMES_OF_TYPES[base]


def facts_line(setting: Mapping[str, Any]) -> str:
    """Describe a setting in one sentence: meaning, allowed values and default."""
    choices = setting["choices"]
    allowed = f"one of {', '.join(choices)}" if choices else setting["type"]
    bounds = f", {setting['bounds']}" if setting["bounds"] else ""
    default = setting["default"]
    shown = str(default).lower() if default is None or isinstance(default, bool) else default
    return f"{setting['doc']} ({allowed}{bounds}) [default: {shown}]"


def put_presets(out: Output) -> None:
    """Print all presets with their descriptions."""
    from seqgen.presets import PRESETS

    facts = "name", "architecture", "summary"
    if not out.records({f: getattr(one, f) for f in facts} for one in PRESETS.values()):
        put_facts({one.name: one.summary for one in PRESETS.values()})


def put_settings(architecture: str, out: Output, only: str | None = None) -> None:
    """Print the settings of an architecture, training and data, all or those that match a search.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    records = settings_of(architecture, only)
    if out.records(records):
        return
    panels: dict[str, list[tuple[str, str]]] = {
        architecture if record["group"] == "model" else record["group"]: [] for record in records
    }
    for record in sorted(records, key=lambda record: record["setting"]):
        heading = architecture if record["group"] == "model" else record["group"]
        panels[heading].append((record["setting"], facts_line(record)))
    put_panels(panels.items())
