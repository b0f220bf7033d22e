"""Presets: settings of known models, by name.

A new preset is a table of `presets.toml`, or of a file of that name beside a plugin for its models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen import hooks
from seqgen.errors import look_up
from seqgen.files import parse_toml


@dataclass(frozen=True)
class Preset:
    """A known model: name, architecture, summary and settings.

    `settings` are fields of the architecture's, the training and the data configuration. What
    they leave out comes from the architecture's recipe, as without a preset. With `needs_origin`
    it fine-tunes a trained model, and has no meaning without one.
    """

    name: str
    architecture: str
    summary: str
    settings: Mapping[str, Any]
    needs_origin: bool = False

    @classmethod
    def read(
        cls, name: str, table: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]
    ) -> Preset:
        """Build a preset from its table in a file.

        Args:
            name: what it is called.
            table: of the file.
            shared: the settings that it may be `like`, by name.
        """
        own = dict(table)
        facts = {key: own.pop(key) for key in ("architecture", "summary")}
        needs_origin = own.pop("needs_origin", False)
        settings: dict[str, Any] = {}
        for like in own.pop("like", ()):
            settings |= shared[like]
        return cls(name, settings=settings | own, needs_origin=needs_origin, **facts)


def _tables(folder: Path) -> dict[str, Any]:
    """Read the preset file of a folder, if it has one."""
    path = folder / "presets.toml"
    return parse_toml(path.read_text(encoding="utf-8")) if path.exists() else {}


def _presets() -> dict[str, Preset]:
    """Collect the presets of the core, then of plugins; the first of a name counts."""
    presets = _read_all(_TABLES)
    for plugin in hooks.plugins():
        with plugin.guarded("presets.toml"):
            presets = presets | _read_all(_tables(plugin.folder)) | presets
    return presets


def _read_all(tables: Mapping[str, Any]) -> dict[str, Preset]:
    """Build the presets of a file, which may inherit from each other and from the core's."""
    shared = SHARED | tables.get("shared", {})
    return {
        name: Preset.read(name, table, shared) for name, table in tables.get("preset", {}).items()
    }


_TABLES = _tables(Path(__file__).parent)
# Settings that several presets of the core have, by name.
SHARED: dict[str, Mapping[str, Any]] = _TABLES["shared"]
PRESETS: dict[str, Preset] = _presets()


def preset(name: str) -> Preset:
    """Look up the preset called `name`.

    Raises:
        UsageError: there is none; names the nearest.
    """
    return look_up("preset", name, PRESETS)
