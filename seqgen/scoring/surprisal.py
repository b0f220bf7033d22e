"""Surprisal of a text line by line and token by token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.generation.prompts import available_batches
from seqgen.metrics.perplexity import LN2, ScoreTotals
from seqgen.scoring.loop import POOL, Scored, add_up, in_order
from seqgen.scoring.perplexity import (
    Perplexity,
    figures,
    for_model,
    protocol,
    score_as,
    scoring_signature,
)
from seqgen.text.corpus import Unknowns
from seqgen.text.pairs import Pairs
from seqgen.text.reading import lines
from seqgen.text.sources import Sources, Vectors, content_of

if TYPE_CHECKING:
    from seqgen.settings.scoring import Scoring
    from seqgen.store.loaded import LoadedModel

NEWLINE = "\n"


@dataclass(frozen=True)
class ScoredLine:
    """Score of one line.

    Attributes:
        index: its number.
        text: without its newline.
        totals: of its tokens, the end's included unless `no_end`.
        scored: its tokens.
        source: what it is scored given; None for a line of a text.
        source_unknown: how many of the source's tokens the model does not know.
    """

    index: int
    text: str
    totals: ScoreTotals
    scored: Scored
    source: str | Vectors | None = None
    source_unknown: int = 0


@dataclass(frozen=True)
class Token:
    """One scored token: the keys of `seqgen perplexity --per-token --json` after the model.

    Attributes:
        line: the number of its line.
        index: its number in the text, or in the line where lines are scored alone.
        token: as `seqgen tokenize --pieces` writes it.
        logprob: in nats.
        surprisal_bits: minus that, in bits.
        rank: how many tokens the model held likelier; None where that is slow and not asked for.
        text: what it adds to the text.
    """

    line: int
    index: int
    token: str
    logprob: float
    surprisal_bits: float
    rank: int | None
    text: str


def score_lines(
    loaded: LoadedModel, chunks: Iterable[str] | Pairs, scoring: Scoring
) -> Iterator[ScoredLine]:
    """Score each line alone, from the start of a text; yield them in order.

    Lines may come slowly: those that are there are scored together.

    Args:
        loaded: the model.
        chunks: the text in pieces cut anywhere; pairs for a model that reads them.
        scoring: how.
    """
    return (liked.lines[0] for liked in attribute_lines([loaded], chunks, scoring))


def _score_group(
    loaded: LoadedModel, items: Sequence[str | tuple[str | Vectors, str]], scoring: Scoring
) -> Iterator[ScoredLine]:
    """Score a group of lines, or of targets of pairs, in one batch."""
    if not loaded.conditioning.in_pairs:
        yield from _score_texts(loaded, list(map(loaded.with_newlines, items)), None, scoring)
        return
    sources = loaded.conditioning.encode([source for source, _ in items])
    targets = [loaded.with_newlines(target + NEWLINE) for _, target in items]
    lines_scored = _score_texts(loaded, targets, sources, scoring)
    for line, (source, _), begin, end in zip(
        lines_scored, items, sources.starts, sources.ends, strict=True
    ):
        read = sources.values[begin:end]
        yield replace(line, source=source, source_unknown=loaded.conditioning.unknown_in(read))


def _score_texts(
    loaded: LoadedModel, texts: Sequence[str], sources: Sources | None, scoring: Scoring
) -> Iterator[ScoredLine]:
    unknowns = Unknowns(loaded.tokenizer, each=True)
    corpus = loaded.encode(texts, "line", unknowns)
    corpus = replace(corpus, sources=sources)
    of_unknowns = np.searchsorted(corpus.ends, unknowns.places, side="right")
    oov_bytes = np.bincount(of_unknowns, unknowns.sizes, minlength=len(texts))
    whole = in_order(score_as(scoring, loaded, corpus))
    for number, (begin, end) in enumerate(zip(corpus.starts, corpus.ends, strict=True)):
        of_line = whole.take(slice(begin, end - scoring.no_end))
        text = texts[number].removesuffix(NEWLINE) if scoring.no_end else texts[number]
        totals = replace(
            add_up([of_line], loaded.tokenizer),
            characters=len(text),
            bytes=len(text.encode()),
            words=len(text.split()) + (not scoring.no_end),
            oov_bytes=int(oov_bytes[number]),
        )
        yield ScoredLine(number, text.removesuffix(NEWLINE), totals, of_line)


def score_tokens(
    loaded: LoadedModel, chunks: Iterable[str] | Pairs, scoring: Scoring
) -> Iterator[Token]:
    """Yield the score of every token of a text in order."""
    scoring = for_model(loaded, scoring)
    if scoring.documents == "line":
        lines = score_lines(loaded, chunks, scoring)
        end = loaded.framing_of("line").end
        return chain.from_iterable(_tokens(loaded, [x.scored], end, x.index) for x in lines)
    corpus = loaded.encode(chunks, "stream")
    return _tokens(loaded, score_as(replace(scoring, batch_size=1), loaded, corpus))


def _tokens(
    loaded: LoadedModel, scored: Iterable[Scored], end: int | None = None, line: int = 0
) -> Iterator[Token]:
    """Yield the token scores of one document that starts at `line`."""
    tokenizer, index = loaded.tokenizer, 0
    decoder, ends = tokenizer.decoder(), [end]
    if tokenizer.line_safe:
        ends.append(tokenizer.newline_id)
    for piece in scored:
        ids = piece.tokens.tolist()
        ranks = [None] * len(ids) if piece.ranks is None else piece.ranks.tolist()
        shown = tokenizer.pieces(ids)
        for token, name, log_prob, rank in zip(
            ids, shown, piece.log_probs.tolist(), ranks, strict=True
        ):
            text = NEWLINE if token in ends else decoder.push(token)
            yield Token(line, index, name, log_prob, -log_prob / LN2, rank, text)
            index += 1
            line += text.count(NEWLINE)


@dataclass(frozen=True)
class LineAttribution:
    """A line's scores under several models, and the model with the best one.

    Attributes:
        best: the place of the model that it is likeliest under; of equals the first.
        lines: the line as each model found it.
    """

    best: int
    lines: tuple[ScoredLine, ...]


def attribute_lines(
    models: Sequence[LoadedModel], chunks: Iterable[str] | Pairs, scoring: Scoring
) -> Iterator[LineAttribution]:
    """Score each line under several models; yield the most probable model of each.

    Args:
        models: of whatever tokens: what counts is the bits of the whole line.
        chunks: the text in pieces cut anywhere; pairs for models that read them.
        scoring: how.
    """
    each = [for_model(loaded, replace(scoring, documents="line")) for loaded in models]
    items = iter(chunks) if isinstance(chunks, Pairs) else lines(chunks)
    index = 0
    for group in available_batches(items, POOL * scoring.batch_size):
        by_model_and_target = [
            _score_group(loaded, group, resolved)
            for loaded, resolved in zip(models, each, strict=True)
        ]
        for by_model in zip(*by_model_and_target, strict=True):
            bits = [line.totals.bits for line in by_model]
            numbered = tuple(replace(line, index=index) for line in by_model)
            yield LineAttribution(bits.index(min(bits)), numbered)
            index += 1


def line_record(
    file: str | None,
    loaded: LoadedModel,
    line: ScoredLine,
    scoring: Scoring,
    part: str | None = None,
) -> dict[str, Any]:
    """Make the record of `seqgen perplexity --per-line --json`, with its keys in order."""
    scoring = for_model(loaded, replace(scoring, documents="line"))
    whole = line.text if line.source is None else f"{content_of(line.source)}\t{line.text}"
    data = hashlib.sha256(whole.encode()).hexdigest()
    record = Perplexity(
        file=file,
        model=loaded.stored.name,
        protocol=protocol(loaded, scoring, part=part),
        signature=scoring_signature("perplexity", loaded, scoring, data),
        **figures(line.totals),
    )
    about = {"line": line.index, "text": line.text}
    if line.source is not None and not loaded.conditioning.is_source:
        about |= {"label": line.source}
    elif line.source is not None:
        about |= {"source": str(line.source), "source_unknown": line.source_unknown}
    return {**asdict(record), **about}
