"""The likeliest tokens at each place of a text, and how the one that came compares with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from seqgen.commands.inspect.passage import Passage, Passages
from seqgen.configs import require
from seqgen.metrics.perplexity import LN2
from seqgen.models.scores import ranks_in
from seqgen.models.state import State


@dataclass(frozen=True)
class Candidate:
    """A token that was possible at a place."""

    token: int
    piece: str
    probability: float


@dataclass(frozen=True)
class Place:
    """The keys of `seqgen inspect --json`, in order: a token, and what was predicted for it.

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
    candidates: list[Candidate]


def likeliest(passages: Passages, count: int) -> Iterator[Place]:
    """Yield each place of a text with its `count` likeliest tokens.

    Raises:
        UsageError: `count` is below 1.
    """
    require(count >= 1, f"--top must be at least 1, not {count}")
    for passage in passages.documents:
        yield from _places(passage, count)


@torch.inference_mode()
def distributions(passage: Passage) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield what a model predicts in a document, some places at a time, in the order of reading.

    Yields:
        M places in the text; their tokens (M,) of int64; and the log-probabilities (M, V) of all
        tokens there, in float64 and nats.
    """
    model = passage.loaded.model
    state: State = model.start(1)
    targets = torch.from_numpy(passage.targets).to(model.device)
    order = passage.order.tolist()
    for begin in range(0, len(order), max(1, model.most_at_once)):
        piece = slice(begin, begin + max(1, model.most_at_once))
        predictions, state = model.predictions(passage.batch[:, piece], state)
        places = order[piece]
        rows = predictions.rows(torch.arange(len(places), device=model.device))
        yield places, targets[piece], rows.double()


def _places(passage: Passage, count: int) -> list[Place]:
    """Return the places of a document, in the order of the text."""
    by_place: dict[int, Place] = {}
    for places, targets, rows in distributions(passage):
        best = (-rows).argsort(dim=-1, stable=True)[:, :count]
        columns = (
            rows.gather(1, targets[:, None])[:, 0].tolist(),
            ranks_in(rows, targets).tolist(),
            (-torch.xlogy(rows.exp(), rows.exp()).sum(-1) / LN2).tolist(),
            best.tolist(),
            rows.gather(1, best).exp().tolist(),
        )
        for place, *figures in zip(places, *columns, strict=True):
            by_place[place] = _place(passage, place, *figures)
    return [by_place[place] for place in range(len(by_place))]


def _place(
    passage: Passage,
    place: int,
    logprob: float,
    rank: int,
    entropy: float,
    best: list[int],
    probabilities: list[float],
) -> Place:
    pieces = passage.loaded.tokenizer.pieces(best)
    return Place(
        model=passage.loaded.stored.name,
        document=passage.number,
        index=place,
        token=passage.tokens[place],
        piece=passage.pieces[place],
        text=passage.texts[place],
        logprob=logprob,
        surprisal_bits=-logprob / LN2,
        rank=rank,
        entropy_bits=entropy,
        candidates=[Candidate(*each) for each in zip(best, pieces, probabilities, strict=True)],
    )
