"""What `config.json` of a model must hold, whatever the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.store.folder import ModelFolder
from seqgen.store.layout import CONFIG, FORMAT
from seqgen.store.reference import Reference


def read_config(folder: ModelFolder) -> dict[str, Any]:
    """Return `config.json`: architecture, resolved configuration, versions.

    Raises:
        SeqgenError: it is missing, damaged, or of a later format.
    """
    config = folder.read_table(CONFIG)
    if config.get("format") != FORMAT:
        raise SeqgenError(
            f"{folder.path} has format {config.get('format')!r}, and this seqgen reads {FORMAT}"
        )
    tables = {"model": None, "data": None, "training": {}}
    tables = {name: config.get(name, missing) for name, missing in tables.items()}
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise SeqgenError(f"{folder.path / CONFIG} is damaged: it has no table {wrong[0]!r}")
    if not isinstance(config.get("architecture"), str):
        raise SeqgenError(f"{folder.path / CONFIG} is damaged: it names no architecture")
    return config


def read_parts(config: Mapping[str, Any], file: Path) -> list[Reference]:
    """Return how the configuration of a mixture, in a file, refers to its parts, two or more.

    Raises:
        SeqgenError: it is damaged.
    """
    facts = config.get("parts")
    if not isinstance(facts, list) or len(facts) < 2:
        raise SeqgenError(f"{file} is damaged: it names no parts")
    return [Reference.read(fact, file, "a part") for fact in facts]
