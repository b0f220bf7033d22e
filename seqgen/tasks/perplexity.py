"""Scoring text under a trained model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from seqgen.configs import Documents
from seqgen.data.corpus import encode_corpus
from seqgen.data.text import survey
from seqgen.errors import SeqgenError
from seqgen.metrics.perplexity import Totals
from seqgen.scoring import add_up, score_corpus
from seqgen.tasks.loaded import LoadedModel


@dataclass(frozen=True)
class Perplexity:
    """The keys of `seqgen perplexity --json`, in order."""

    file: str | None
    model: str
    tokens: int
    characters: int
    bytes: int
    nll_nats: float
    perplexity: float | None
    perplexity_without_oov: float | None
    bits_per_token: float | None
    bits_per_char: float | None
    bits_per_byte: float | None
    oov: int
    accuracy: float | None
    protocol: str


def perplexity(
    loaded: LoadedModel,
    chunks: Iterable[str],
    *,
    file: str | None = None,
    documents: Documents | None = None,
    batch_size: int = 32,
) -> Perplexity:
    """Score a text in the way the model was trained, or as `documents` says.

    Args:
        loaded: the model.
        chunks: the text, in pieces cut anywhere.
        file: what to call the text in the record.
        documents: "stream" or "line"; how the model was trained if None.
        batch_size: documents scored side by side; changes no figure.

    Raises:
        SeqgenError: the text holds no token.
    """
    documents = documents or loaded.data.documents
    totals = score_text(loaded, chunks, documents, batch_size)
    if totals.tokens == 0:
        raise SeqgenError(f"{file or 'the text'} is empty: there is nothing to score")
    figures = {
        name: getattr(totals, name)
        for name in Perplexity.__dataclass_fields__
        if hasattr(totals, name)
    }
    return Perplexity(
        file=file, model=loaded.stored.name, protocol=protocol(loaded, documents), **figures
    )


def score_text(
    loaded: LoadedModel, chunks: Iterable[str], documents: Documents, batch_size: int = 32
) -> Totals:
    """Return the totals of a text: every token once, each document from the start of a text."""
    pieces = list(chunks)
    facts = survey(pieces)
    corpus = encode_corpus(_giving_up(pieces), loaded.tokenizer, documents)
    scored = score_corpus(loaded.model, corpus, batch_size)
    totals = add_up(scored, loaded.tokenizer)
    return replace(totals, characters=facts.characters, bytes=facts.bytes)


def _giving_up(pieces: list[str]) -> Iterator[str]:
    """Yield the pieces, letting go of each, so that text and ids are not held side by side."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


def protocol(loaded: LoadedModel, documents: Documents) -> str:
    """Say how a text is scored, in one string."""
    parts = [
        "each line alone, EOS scored" if documents == "line" else "one stream after a newline",
        f"{loaded.tokenizer.kind} tokens",
    ]
    if loaded.model.window is not None:
        window = loaded.model.window
        parts.append(f"window {window}, stride {max(1, window // 2)}")
    return "; ".join(parts)
