"""`seqgen tokenize --stats`: how well a vocabulary fits a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqgen.cli.shell.tables import count, figure, percentage, put_facts
from seqgen.cli.tokenize import InputCodec, escape_piece
from seqgen.text.encoding import encode_blocks
from seqgen.text.reading import Surveyor
from seqgen.text.tokenfile import TokenFile
from seqgen.text.tokenizers import Tokenizer
from seqgen.training.datasets.tokenizing import refuse_tabs
from seqgen.wording import ShortRepr

SHOWN = 20  # pieces in each list of the statistics
STEP = 1 << 22


@dataclass(frozen=True, repr=False)
class Statistics(ShortRepr):
    """Vocabulary statistics of a text: the keys of `seqgen tokenize --stats --json`.

    Attributes:
        tokens: tokens of the text.
        characters: its characters.
        bytes: its UTF-8 bytes.
        characters_per_token: their mean, or None for no token.
        bytes_per_token: their mean, or None for no token.
        vocab_size: tokens there are.
        used: tokens that occur.
        unknown: how often `<unk>` occurs.
        longest: the longest pieces that occur, with how often.
        frequent: the most frequent pieces, with how often.
    """

    tokens: int
    characters: int
    bytes: int
    characters_per_token: float | None
    bytes_per_token: float | None
    vocab_size: int
    used: int
    unknown: int
    longest: list[tuple[str, int]]
    frequent: list[tuple[str, int]]


def put_statistics(codec: InputCodec) -> None:
    """Print statistics of how well the vocabulary fits the texts."""
    text = codec.token_file() or codec.text
    if codec.of_sources is not None:
        text = refuse_tabs(text, "--stats", codec.of_sources)
    figures = statistics(text, codec.tokenizer)
    if codec.out.record(figures):
        return
    rows: dict[str, str] = {
        "tokens": count(figures.tokens),
        "characters": count(figures.characters),
        "bytes": count(figures.bytes),
    }
    if figures.tokens:
        rows["characters/token"] = figure(figures.characters_per_token)
        rows["bytes/token"] = figure(figures.bytes_per_token)
    used = percentage(figures.used / figures.vocab_size, 1)
    rows["vocabulary used"] = f"{count(figures.used)} of {count(figures.vocab_size)} ({used})"
    rows["unknown"] = count(figures.unknown)
    rows["longest pieces"] = _listed(figures.longest)
    rows["most frequent"] = _listed(figures.frequent)
    put_facts(rows)


def _listed(pieces: Iterable[tuple[str, int]]) -> str:
    return "  ".join(f"{escape_piece(piece)} ({count(times)})" for piece, times in pieces)


def statistics(text: Iterable[str] | TokenFile, tokenizer: Tokenizer) -> Statistics:
    """Compute vocabulary statistics of a text of any size.

    Args:
        text: in pieces cut anywhere, or a token file.
        tokenizer: its ids.
    """
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    if isinstance(text, TokenFile):
        tokens, facts = text.corpus.tokens, text.facts
        for at in range(0, tokens.size, STEP):
            counts += np.bincount(tokens[at : at + STEP], minlength=counts.size)
    else:
        surveyor = Surveyor()
        for _, ids in encode_blocks(surveyor.watch(text), tokenizer):
            counts += np.bincount(ids, minlength=counts.size)
        facts = surveyor.facts
    total = int(counts.sum())
    return Statistics(
        tokens=total,
        characters=facts.characters,
        bytes=facts.bytes,
        characters_per_token=facts.characters / total if total else None,
        bytes_per_token=facts.bytes / total if total else None,
        vocab_size=tokenizer.vocab_size,
        used=int(np.count_nonzero(counts)),
        unknown=0 if tokenizer.unk_id is None else int(counts[tokenizer.unk_id]),
        **_top_pieces(counts, tokenizer),
    )


def _top_pieces(counts: np.ndarray, tokenizer: Tokenizer) -> dict[str, Any]:
    """Find the longest and the most frequent pieces; ties are ordered by id."""
    used = np.flatnonzero(counts)
    pieces = tokenizer.pieces(used.tolist())
    number = counts[used]
    # In bytes of text: a byte's piece, say, is shown as `<0xC3>`.
    lengths = np.array([len(tokenizer.token_bytes[i]) for i in used])

    def listed(order: np.ndarray) -> list[tuple[str, int]]:
        return [(pieces[i], int(number[i])) for i in order[:SHOWN]]

    return {
        "longest": listed(np.lexsort((-number, -lengths))),
        "frequent": listed(np.argsort(-number, kind="stable")),
    }
