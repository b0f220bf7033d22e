"""Text to token ids and back: characters, bytes, words, subwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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

KINDS: dict[str, type[Tokenizer]] = {
    cls.kind: cls
    for cls in (
        CharTokenizer,
        ByteTokenizer,
        WordTokenizer,
        WhitespaceTokenizer,
        UncasedTokenizer,
        BPETokenizer,
        UnigramTokenizer,
        WordPieceTokenizer,
    )
}
# Those that are trained here, and those that come in a file of another tool.
STORED: dict[str, type[Tokenizer]] = {
    **KINDS,
    **{
        cls.kind: cls
        for cls in (
            HuggingFaceTokenizer,
            WholeSentencepieceTokenizer,
            MarianTokenizer,
            BlankTokenizer,
        )
    },
}


def kind_in(folder: Path) -> str | None:
    """Return the kind of the tokenizer in a folder; None where it has none, or a damaged one."""
    try:
        return read_facts(folder).get("kind")
    except (OSError, ValueError):
        return None


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
