"""Which models can be mixed: those that read text alike."""

from __future__ import annotations

from typing import Any

from seqgen import store
from seqgen.commands.loaded import LoadedModel
from seqgen.errors import SeqgenError


def require_alike(first: LoadedModel, other: LoadedModel) -> None:
    """Refuse to mix two models that do not read text alike.

    Raises:
        SeqgenError: says what differs and, for tokenizers, how to train models that can be mixed.
    """
    names = f"{first.stored.name} and {other.stored.name}"
    if _vocabulary(other) != _vocabulary(first):
        way = _way_out(first, other)
        raise SeqgenError(f"{names} use different tokenizers and cannot be mixed{way}")
    if _source_vocabulary(other) != _source_vocabulary(first):
        way = _way_out(first, other)
        raise SeqgenError(f"{names} read their sources differently and cannot be mixed{way}")
    if other.framing != first.framing:
        raise SeqgenError(f"{names} were trained with different --documents and cannot be mixed")
    if other.backward != first.backward:
        raise SeqgenError(f"{names} read in different directions and cannot be mixed")


def _way_out(first: LoadedModel, other: LoadedModel) -> str:
    """Return how to train models with the same tokenizers; nothing if that would not help."""
    both, ways = (first, other), []
    if first.given.is_source != other.given.is_source:
        return ""
    if different := _vocabulary(other) != _vocabulary(first):
        ways.append("--tokenizer pointing at the other")
    joint = all(one.source_tokenizer is one.tokenizer for one in both)  # sources follow --tokenizer
    of_tokens = all(one.source_tokenizer is not None and one.labels is None for one in both)
    apart = _source_vocabulary(other) != _source_vocabulary(first)
    if apart and of_tokens and not (different and joint):
        own = first.source_tokenizer is not first.tokenizer
        folder = first.stored.path / store.SOURCE_TOKENIZER if own else first.stored.path
        ways.append(f"--source-tokenizer {folder}")
    return f"; train one with {' and '.join(ways)}" if ways else ""


def _vocabulary(loaded: LoadedModel) -> tuple[str, dict]:
    return loaded.tokenizer.kind, loaded.tokenizer.facts()


def _source_vocabulary(loaded: LoadedModel) -> tuple[str, Any] | None:
    """Return what a model's sources consist of; None for a model of text."""
    if loaded.given.features is not None:
        return "vectors", loaded.given.features
    tokenizer = loaded.source_tokenizer
    return None if tokenizer is None else (tokenizer.kind, tokenizer.facts())
