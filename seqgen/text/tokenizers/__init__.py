"""Text to token ids and back: characters, bytes, words, subwords."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError, first_line, named
from seqgen.text.tokenizers.base import Decoder, Tokenizer, read_facts
from seqgen.text.tokenizers.byte import ByteTokenizer
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.from_elsewhere import HuggingFaceTokenizer, WholeSentencepieceTokenizer
from seqgen.text.tokenizers.marian import MarianTokenizer
from seqgen.text.tokenizers.sentencepiece import BPETokenizer, UnigramTokenizer
from seqgen.text.tokenizers.word import (
    BlankTokenizer,
    UncasedTokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
)
from seqgen.text.tokenizers.wordpiece import WordPieceTokenizer


class TokenizerKinds(Mapping[str, type[Tokenizer]]):
    """Kinds of tokenizer by name: some of the core, and all of plugins, loaded when they are asked.

    Args:
        classes: those of the core.
    """

    def __init__(self, *classes: type[Tokenizer]) -> None:
        self.own = {cls.kind: cls for cls in classes}

    def __getitem__(self, name: str) -> type[Tokenizer]:
        if name in self.own:
            return self.own[name]
        plugin, target = hooks.tokenizers()[name]
        return plugin.load(target)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.own, **hooks.tokenizers()})

    def __len__(self) -> int:
        return len({**self.own, **hooks.tokenizers()})


TRAINED = (
    CharTokenizer,
    ByteTokenizer,
    WordTokenizer,
    WhitespaceTokenizer,
    UncasedTokenizer,
    BPETokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
)
IMPORTED = (
    HuggingFaceTokenizer,
    WholeSentencepieceTokenizer,
    MarianTokenizer,
    BlankTokenizer,
)
# What `--tokenizer` names, and what a stored model may have.
KINDS = TokenizerKinds(*TRAINED)
STORED = TokenizerKinds(*TRAINED, *IMPORTED)


def kind_in(folder: Path) -> str | None:
    """Return the kind of the tokenizer in a folder; None where it has none, or a damaged one."""
    try:
        return read_facts(folder).get("kind")
    except (OSError, ValueError):
        return None


def is_foreign(folder: Path) -> bool:
    """Return whether a folder has a `tokenizer.json` of another tool, and not one of seqgen."""
    try:
        return "kind" not in read_facts(folder)
    except (OSError, ValueError):
        return False


def tokenizer_kind(name: str) -> type[Tokenizer]:
    """Return the tokenizer class called `name`.

    Raises:
        UsageError: there is none; names the nearest.
    """
    return named("tokenizer", name, KINDS)


def _file_of(error: Exception) -> str:
    """Return the file that an error of the system is about, with a colon; "" for other errors."""
    return f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer that `Tokenizer.save` wrote into `folder`.

    Raises:
        SeqgenError: it is missing or damaged.
    """
    try:
        facts = read_facts(folder)
        return named("tokenizer", facts.pop("kind"), STORED).load(folder, facts)
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise SeqgenError(
            f"the tokenizer in {folder} is missing or damaged: {_file_of(error)}{first_line(error)}"
        ) from None


def tokenizer_from_facts(facts: dict[str, Any]) -> Tokenizer:
    """Rebuild the tokenizer whose `kind` and facts these are.

    Raises:
        SeqgenError: they are not a tokenizer's.
    """
    try:
        facts = dict(facts)
        return named("tokenizer", facts.pop("kind"), STORED).from_facts(facts)
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise SeqgenError(f"a damaged tokenizer: {error}") from None
