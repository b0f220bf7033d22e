"""Scoring text under a trained model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from seqgen.configs import Documents
from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.text import Survey, Surveyor, Text
from seqgen.data.tokenfile import TokenFile, check_tokenizer, is_token_file, open_token_file
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
    text: Iterable[str] | TokenFile,
    *,
    file: str | None = None,
    documents: Documents | None = None,
    batch_size: int = 32,
) -> Perplexity:
    """Score a text in the way the model was trained, or as `documents` says.

    Args:
        loaded: the model.
        text: in pieces cut anywhere, or as a token file.
        file: what to call the text in the record.
        documents: "stream" or "line"; how the model was trained if None.
        batch_size: documents scored side by side; changes no figure.

    Raises:
        SeqgenError: the text holds no token.
    """
    documents = documents or loaded.data.documents
    score = score_tokens if isinstance(text, TokenFile) else score_text
    totals = score(loaded, text, documents, batch_size)
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
    surveyor = Surveyor()
    framing = loaded.framing_of(documents)
    corpus = encode_corpus(surveyor.watch(chunks), loaded.tokenizer, documents, framing=framing)
    return _score(loaded, corpus, surveyor.facts, batch_size)


def score_tokens(
    loaded: LoadedModel, file: TokenFile, documents: Documents, batch_size: int = 32
) -> Totals:
    """Return the totals of a token file.

    Raises:
        SeqgenError: its tokenizer is not the model's, or it was written the other way.
    """
    check_tokenizer(file, loaded.tokenizer, f"the model {loaded.stored.name}")
    if file.documents != documents:
        raise SeqgenError(
            f"{file.path} was written with --documents {file.documents}, and is to be scored with "
            f"--documents {documents}: write it again, or give --documents {file.documents}"
        )
    return _score(loaded, file.corpus, file.facts, batch_size)


def score_held_out(loaded: LoadedModel) -> Totals:
    """Return the totals of a model's held-out text, which it must have."""
    path, documents = loaded.stored.validation_text, loaded.data.documents
    if is_token_file(path):
        return score_tokens(loaded, open_token_file(path), documents)
    return score_text(loaded, Text((path,)).chunks(), documents)


def _score(loaded: LoadedModel, corpus: Corpus, facts: Survey, batch_size: int) -> Totals:
    totals = add_up(score_corpus(loaded.model, corpus, batch_size), loaded.tokenizer)
    return replace(totals, characters=facts.characters, bytes=facts.bytes)


def protocol(loaded: LoadedModel, documents: Documents) -> str:
    """Say how a text is scored, in one string."""
    end = "EOS" if loaded.data.documents == "line" else "newline"
    parts = [
        f"each line alone, {end} scored" if documents == "line" else "one stream after a newline",
        f"{loaded.tokenizer.kind} tokens",
    ]
    if loaded.model.window is not None:
        window = loaded.model.window
        parts.append(f"window {window}, stride {max(1, window // 2)}")
    return "; ".join(parts)
