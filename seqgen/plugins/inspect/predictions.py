"""Predictions at each place of a text: the most likely tokens and the real token's surprisal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqgen.metrics.perplexity import LN2
from seqgen.models.scores import ranks_in
from seqgen.scoring.passages import Passages, TokenizedDocument, distributions

# A finite number below every logarithm of a probability that is not 0.
LEAST = -1e9


@dataclass(frozen=True)
class LikelyToken:
    """Token of the vocabulary, with its probability at a place of a text."""

    token: int
    piece: str
    probability: float


@dataclass(frozen=True)
class TokenPrediction:
    """Token of a text, with the model's prediction at its place.

    Its fields, in order, are the keys of `seqgen inspect --json`.

    Attributes:
        model: the model's name.
        document: the number of its document; 0 in a stream.
        index: its number in the document.
        token: its id.
        piece: as `seqgen tokenize --pieces` writes it.
        text: what it adds to the text.
        logprob: in nats.
        surprisal_bits: minus that, in bits.
        rank: how many tokens were likelier.
        entropy_bits: of the whole distribution.
        candidates: the likeliest tokens, most probable first; of equals the smaller id first.
    """

    model: str
    document: int
    index: int
    token: int
    piece: str
    text: str
    logprob: float
    surprisal_bits: float
    rank: int
    entropy_bits: float
    candidates: list[LikelyToken]


def token_predictions(passages: Passages, count: int) -> Iterator[TokenPrediction]:
    """Yield the prediction at each place of a text, with the `count` most likely tokens."""
    for document in passages.documents:
        yield from _of_document(document, count)


def _of_document(document: TokenizedDocument, count: int) -> list[TokenPrediction]:
    """List the predictions in a document, in text order."""
    by_place: dict[int, TokenPrediction] = {}
    spelled = document.loaded.tokenizer.pieces
    for places, targets, rows in distributions(document):
        best = (-rows).argsort(-1, kind="stable")[:, :count]
        log_probs = rows[np.arange(len(rows)), targets]
        # No probability times the logarithm of none is nothing.
        entropies = -(np.exp(rows) * np.maximum(rows, LEAST)).sum(-1) / LN2
        ranks, shares = ranks_in(rows, targets), np.exp(np.take_along_axis(rows, best, 1))
        for row, place in enumerate(places):
            likely = best[row].tolist()
            candidates = zip(likely, spelled(likely), shares[row].tolist(), strict=True)
            by_place[place] = TokenPrediction(
                model=document.loaded.stored.name,
                document=document.number,
                index=place,
                token=document.tokens[place],
                piece=document.pieces[place],
                text=document.texts[place],
                logprob=float(log_probs[row]),
                surprisal_bits=-float(log_probs[row]) / LN2,
                rank=int(ranks[row]),
                entropy_bits=float(entropies[row]),
                candidates=[LikelyToken(*each) for each in candidates],
            )
    return [by_place[place] for place in range(len(by_place))]
