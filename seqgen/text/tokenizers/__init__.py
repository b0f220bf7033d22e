"""Tokenizers: characters, bytes, words and subwords, looked up by kind."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqgen import hooks
from seqgen.errors import MissingPlugin, SeqgenError, UsageError, first_line, look_up
from seqgen.text.tokenizers.base import Decoder, Tokenizer, read_facts

# Those of the core, by kind: modules of this package, and classes.
TRAINED = {
    "char": "char:CharTokenizer",
    "byte": "byte:ByteTokenizer",
    "word": "word:WordTokenizer",
    "whitespace": "word:WhitespaceTokenizer",
    "bpe": "sentencepiece:BPETokenizer",
    "unigram": "sentencepiece:UnigramTokenizer",
}


class TokenizerKinds(Mapping[str, type[Tokenizer]]):
    """Registry of tokenizer classes by kind, from the core and plugins, imported on demand.

    Args:
        points: the hooks that name those of plugins.
    """

    def __init__(self, *points: str) -> None:
        self._points = points

    def __getitem__(self, name: str) -> type[Tokenizer]:
        if name in TRAINED:
            module, _, cls = TRAINED[name].partition(":")
            return getattr(importlib.import_module(f"{__name__}.{module}"), cls)
        plugin, target = self._of_plugins[name]
        return plugin.load(target)

    @property
    def _of_plugins(self) -> dict[str, tuple[hooks.InstalledPlugin, str]]:
        return {k: v for point in self._points for k, v in hooks.by_name(point).items()}

    def __iter__(self) -> Iterator[str]:
        return iter([*TRAINED, *self._of_plugins])

    def __len__(self) -> int:
        return len(list(iter(self)))


# What `--tokenizer` names, and what a stored model may have.
KINDS = TokenizerKinds("tokenizers")
STORED = TokenizerKinds("tokenizers", "stored_tokenizers")


def kind_in(folder: Path) -> str | None:
    """Read the kind of the tokenizer in a folder; None if there is none, or a damaged one."""
    try:
        return read_facts(folder).get("kind")
    except (OSError, ValueError):
        return None


def is_foreign(folder: Path) -> bool:
    """Check whether a folder has another tool's `tokenizer.json` and no seqgen tokenizer."""
    try:
        return "kind" not in read_facts(folder)
    except (OSError, ValueError):
        return False


def tokenizer_kind(name: str) -> type[Tokenizer]:
    """Import the tokenizer class of the given kind.

    Raises:
        UsageError: there is none; names the nearest, or the plugin that is missing.
    """
    hooks.require_plugin(str(name), f"the tokenizer {name}")
    return look_up("tokenizer", name, KINDS)


def _file_of(error: Exception) -> str:
    """Name the file of an OSError, followed by a colon; "" for other errors."""
    return f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""


def _stored_kind(name: str) -> type[Tokenizer]:
    """Look up the class of a stored tokenizer.

    Raises:
        UsageError: there is none of that name.
        MissingPlugin: its plugin is not installed.
    """
    if (gone := hooks.missing_plugin(str(name))) is not None:
        raise MissingPlugin(f"the tokenizer {name} needs the plugin {gone}, which is not installed")
    return look_up("tokenizer", name, STORED)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer that `Tokenizer.save` wrote to `folder`.

    Raises:
        SeqgenError: it is missing or damaged, or a plugin is missing.
    """
    try:
        facts = read_facts(folder)
        return _stored_kind(facts.pop("kind")).load(folder, facts)
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise SeqgenError(
            f"the tokenizer in {folder} is missing or damaged: {_file_of(error)}{first_line(error)}"
        ) from None


def tokenizer_from_facts(facts: dict[str, Any]) -> Tokenizer:
    """Rebuild a tokenizer from the table of its kind and facts.

    Raises:
        SeqgenError: they are not a tokenizer's, or a plugin is missing.
    """
    try:
        facts = dict(facts)
        return _stored_kind(facts.pop("kind")).from_facts(facts)
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise SeqgenError(f"a damaged tokenizer: {error}") from None
