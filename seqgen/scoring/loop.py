"""Scoring loop of perplexity and validation: log-probabilities of a corpus in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.engines.ops import ops_of, without_gradients
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.text.direction import reading_order, reverse_corpus

if TYPE_CHECKING:
    from seqgen.models.inference import InferenceModel
    from seqgen.models.scores import ScoreDetail, Scores
    from seqgen.models.state import State
    from seqgen.settings import Direction
    from seqgen.text.corpus import Corpus
    from seqgen.text.tokenizers import Tokenizer

# Tokens fed in one call, over all rows: long enough for the matrix products to pay; fewer, from
# 12 million parameters on, so that what a large model computes of them takes little memory.
PIECE, LEAST_PIECE, PIECE_PRODUCTS = 8192, 512, 10**11
# Documents are sorted by length within pools of this many batches.
POOL = 16


@dataclass(frozen=True)
class Scored:
    """Log-probabilities, hits and ranks of some tokens.

    Attributes:
        documents: (N,) int64, which document of the corpus each is from; those of one document
            are consecutive.
        tokens: (N,) the scored ids.
        log_probs: (N,) float64, in nats.
        hits: (N,) bool, whether it was the most probable token; None where not wanted.
        ranks: (N,) int64, how many tokens were more probable; None where not wanted.
    """

    documents: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray
    hits: np.ndarray | None = None
    ranks: np.ndarray | None = None

    @property
    def columns(self) -> tuple[np.ndarray | None, ...]:
        """All columns, with one value per token."""
        return self.documents, self.tokens, self.log_probs, self.hits, self.ranks

    def take(self, where: np.ndarray | slice) -> Scored:
        """Select or reorder tokens."""
        return Scored(*(None if column is None else column[where] for column in self.columns))


def in_order(scored: Iterable[Scored]) -> Scored:
    """Concatenate pieces in corpus order; drop columns that some piece lacks."""
    each = zip(*(piece.columns for piece in scored), strict=True)
    whole = Scored(
        *(
            None if any(part is None for part in column) else np.concatenate(column)
            for column in each
        )
    )
    return whole.take(np.argsort(whole.documents, kind="stable"))


def add_up(scored: Iterable[Scored], tokenizer: Tokenizer) -> ScoreTotals:
    """Sum scores into totals; characters and bytes of the text are not known here."""
    total = ScoreTotals()
    for piece in scored:
        unknown = piece.tokens == tokenizer.unk_id
        hits = np.zeros(0) if piece.hits is None else piece.hits
        ranks = np.zeros(0) if piece.ranks is None else piece.ranks
        total += ScoreTotals(
            tokens=piece.tokens.size,
            nll_nats=-float(piece.log_probs.sum()),
            correct=int(np.count_nonzero(hits)),
            ranked=ranks.size,
            top5=int(np.count_nonzero(ranks < 5)),
            oov=int(np.count_nonzero(unknown)),
            oov_nats=-float(piece.log_probs[unknown].sum()),
        )
    return total


def score_corpus(
    model: InferenceModel,
    corpus: Corpus,
    batch_size: int = 32,
    stride: int | None = None,
    want: ScoreDetail = "hits",
    direction: Direction = "forward",
) -> Iterator[Scored]:
    """Score every document of a corpus, each from the start of a text.

    A token's past is all that stood before it in its document; what a transformer sees of that
    past its window follows from `stride`. Documents are scored side by side, which changes
    nothing: rows are independent, and what follows a row's end is thrown away.

    Args:
        model: in evaluation mode; one that writes from sources where the corpus has them.
        corpus: documents of at least one token. Only tokens that count are in the scores.
        batch_size: documents side by side, at most.
        stride: see `InferenceModel.start`.
        want: see `InferenceModel.score`; with hits come ranks where these are quick.
        direction: in which the model reads; the scores are in the order of the text either way.

    Yields:
        The pieces of each document in order; documents in order but for pools sorted by length.
        Backward, all of it at once.
    """
    if direction == "forward":
        yield from _score_documents(model, corpus, batch_size, stride, want)
        return
    read = list(_score_documents(model, reverse_corpus(corpus), batch_size, stride, want))
    if read:
        yield in_order(read).take(reading_order(corpus))


@without_gradients
def _score_documents(
    model: InferenceModel, corpus: Corpus, batch_size: int, stride: int | None, want: ScoreDetail
) -> Iterator[Scored]:
    """Score every document as it is; see `score_corpus`."""
    batch_size = max(batch_size, model.rows_at_least)
    want = prefer_ranks(model, want)
    opens = make_state_opener(model, corpus, stride)
    lengths = corpus.ends - corpus.starts
    for first in range(0, lengths.size, POOL * batch_size):
        pool = first + np.argsort(lengths[first : first + POOL * batch_size], kind="stable")
        for at in range(0, pool.size, batch_size):
            documents = pool[at : at + batch_size]
            yield from _score_rows(model, corpus, documents, opens, want)


def make_state_opener(
    model: InferenceModel, corpus: Corpus, stride: int | None
) -> Callable[[Sequence[int]], State]:
    """Make a function that opens decoding states for documents, on their sources if any."""
    if corpus.sources is None:
        return lambda documents: model.start(len(documents), stride)
    return model.opens(corpus.sources, stride)


def _score_rows(
    model: InferenceModel,
    corpus: Corpus,
    documents: np.ndarray,
    opens: Callable[[Sequence[int]], State],
    want: ScoreDetail,
) -> Iterator[Scored]:
    begin, end = corpus.first_targets[documents], corpus.ends[documents]
    state = opens(documents.tolist())
    continues = corpus.start is None
    products = PIECE_PRODUCTS // max(1, model.parameter_count())
    piece = min(PIECE, max(LEAST_PIECE, products))
    before = corpus.tokens[begin - 1] if continues else np.full(len(documents), corpus.start)
    while True:
        length = min(piece // len(documents) + 1, int((end - begin).max()))
        at = begin[:, None] + np.arange(length)
        inside = at < end[:, None]  # (B, T)
        targets = np.where(inside, corpus.tokens[np.where(inside, at, 0)], 0).astype(np.int64)
        tokens = np.concatenate([before[:, None], targets[:, :-1]], axis=1).astype(np.int64)
        scores, state = model.score(model.ids(tokens), model.ids(targets), state, want)
        counted = inside if corpus.counted is None else inside & corpus.counted[at * inside]
        of = np.repeat(documents, np.count_nonzero(counted, axis=1))
        yield Scored(of, targets[counted], *arrays_of(scores, counted))
        begin = begin + length
        alive = np.flatnonzero(begin < end)
        if alive.size == 0:
            return
        if alive.size < len(documents):
            state = state.select(alive.tolist())
        begin, end, documents = begin[alive], end[alive], documents[alive]
        before = targets[alive, -1]


def prefer_ranks(model: InferenceModel, want: ScoreDetail) -> ScoreDetail:
    """Request "ranks" in place of "hits" if the model computes both equally fast."""
    return "ranks" if want == "hits" and model.quick_ranks else want


def arrays_of(scores: Scores, places: Any) -> list[np.ndarray | None]:
    """Extract float64 log-probabilities, hits and ranks at some positions of (B, T)."""
    columns = scores.log_probs, scores.hits, scores.ranks
    at = [None if column is None else ops_of(column).array(column)[places] for column in columns]
    return [at[0].astype(np.float64), *at[1:]]


def parallel_rows(corpus: Corpus, rows: int, length: int) -> Corpus:
    """Cut a small fixed part of a corpus into parallel rows for quick scoring.

    Of a stream that is `rows` rows of `length` tokens, each read as if it began a text. A shorter
    stream is kept whole, in fewer rows: cold starts would tell more than the text does. Of
    documents the first are taken, as many tokens in all.
    """
    if corpus.ends.size > 1 or corpus.sources is not None or corpus.counted is not None:
        kept = max(1, int(np.searchsorted(corpus.ends, rows * length, side="right")))
        if corpus.sources is not None or corpus.counted is not None:
            return corpus.take(np.arange(kept))
        ends = corpus.ends[:kept]
        return replace(corpus, tokens=corpus.tokens[: ends[-1]], ends=ends)
    size = corpus.tokens.size
    if size < rows * length:
        rows = max(1, size // length)
        length = size // rows
    # Rows are spread over the whole part, which may change along the way.
    begins = np.linspace(0, size - length, rows).astype(np.int64)
    tokens = np.concatenate([corpus.tokens[begin : begin + length] for begin in begins])
    return replace(corpus, tokens=tokens, ends=length * np.arange(1, begins.size + 1))
