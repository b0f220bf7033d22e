"""Table of the names that other tools have for commands, options and settings.

The words are data: `other_tools.toml` beside this module, and beside each plugin that has some. A
command or an option that means exactly the same works; any other gets one line that names ours.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from seqgen import hooks
from seqgen.files import parse_toml

WORDS = "other_tools.toml"


@dataclass(frozen=True, kw_only=True)
class Word:
    """A command or an option of other tools, with what seqgen has for it.

    Attributes:
        same: commands or options of seqgen that mean exactly the same. The first that exists is
            used instead; a name in capitals is an argument, such as PROMPT.
        near: options that do something similar. The first that exists is suggested.
        says: what to do instead, as part of a message.
    """

    same: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    says: str = ""


@functools.cache
def _tables() -> dict[str, dict[str, Any]]:
    """Read the words of seqgen and of all plugins; those of seqgen take precedence."""
    tables = parse_toml(Path(__file__).with_name(WORDS).read_text(encoding="utf-8"))
    for plugin in hooks.plugins():
        path = plugin.folder / WORDS
        if path.exists():
            with plugin.guarded(WORDS):
                for kind, added in parse_toml(path.read_text(encoding="utf-8")).items():
                    tables[kind] = {**added, **tables.get(kind, {})}
    return tables


@functools.cache
def words_elsewhere(kind: str) -> Mapping[str, Word]:
    """Collect the words of other tools by name.

    Args:
        kind: "commands" or "options".
    """
    return {
        name: Word(
            same=_names(row.get("same")), near=_names(row.get("near")), says=row.get("says", "")
        )
        for name, row in _tables()[kind].items()
    }


def _names(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def settings_elsewhere() -> Mapping[str, str]:
    """List what other tools call a setting, with seqgen's name for it."""
    return _tables()["settings"]


def find_setting(name: str) -> str:
    """Look up the setting that an option, or another tool's name for it, refers to."""
    name = name.lstrip("-").replace("-", "_")
    return settings_elsewhere().get(name, name)


def pretrained_hint(name: str) -> str:
    """Say what to do for a model that other tools know by name, or download; else empty.

    Args:
        name: what was given as a model: a well-known name such as gpt2, or OWNER/NAME, perhaps
            with the prefix of an address.
    """
    if says := _tables()["models"].get(name):
        return f"; {says}"
    about = _tables().get("pretrained")
    if about is None:
        return ""
    if Path(name).is_file():
        return f"; it is a file: seqgen import {name} makes a model of it"
    owner, _, own = name.removeprefix(about["prefix"]).rpartition("/")
    if "/" in owner or (owner and (owner[0] in ".~" or Path(owner).exists())):
        return ""
    known = (o for pattern, o in about["owners"].items() if fnmatchcase(own.lower(), pattern))
    owner = owner or next(known, "")
    said = about["says"].format(address=f"{about['prefix']}{owner}/{own}")
    return f"; {said}" if owner else ""
