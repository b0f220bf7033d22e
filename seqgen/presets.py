"""Settings of known models, by name. A new preset is a table of `presets.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.errors import named
from seqgen.settings.config_files import parse_toml


@dataclass(frozen=True)
class Preset:
    """A known model: its name, its architecture, what it is in one line, and its settings.

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
    def read(cls, name: str, table: Mapping[str, Any]) -> Preset:
        """Return the preset that a table of the file describes."""
        own = dict(table)
        facts = {key: own.pop(key) for key in ("architecture", "summary")}
        needs_origin = own.pop("needs_origin", False)
        settings: dict[str, Any] = {}
        for like in own.pop("like", ()):
            settings |= SHARED[like]
        return cls(name, settings=settings | own, needs_origin=needs_origin, **facts)


_TABLES = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# Settings that several presets have, by name.
SHARED: dict[str, Mapping[str, Any]] = _TABLES["shared"]
PRESETS: dict[str, Preset] = {name: Preset.read(name, t) for name, t in _TABLES["preset"].items()}


def preset(name: str) -> Preset:
    """Return the preset called `name`.

    Raises:
        UsageError: there is none; names the nearest.
    """
    return named("preset", name, PRESETS)
