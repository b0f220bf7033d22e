"""Minimal pairs: how often a model assigns the better of two texts the higher probability."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError
from seqgen.metrics.bootstrap import wilson_interval
from seqgen.scoring.perplexity import scoring_signature
from seqgen.scoring.surprisal import ScoredLine, score_lines
from seqgen.settings.scoring import Scoring
from seqgen.text.reading import lines, unix_newlines

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel

# Two texts of the same words in another order have the same probability under a unigram model;
# their sums may differ in the last bits.
TIE_NATS = 1e-6


@dataclass(frozen=True)
class Pair:
    """A minimal pair: the better text, the worse text and their group."""

    better: str
    worse: str
    group: str | None = None


@dataclass(frozen=True)
class PairScore:
    """Accuracy of a model on a group of minimal pairs.

    Attributes:
        file: where they are from.
        group: which of them, or None for all.
        pairs: how many.
        preferred: how many times the first was likelier.
        ties: how many times neither was.
        share: of the first, a tie being half.
        low: the 95 % interval of the share, from here ...
        high: ... to here (Wilson).
        oov: how many tokens the model did not know.
        signature: how it was made.
    """

    file: str
    group: str | None
    pairs: int
    preferred: int
    ties: int
    share: float
    low: float
    high: float
    oov: int
    signature: str


def read_pairs(chunks: Iterable[str], name: str) -> list[Pair]:
    """Read minimal pairs: lines `better<TAB>worse` or `better<TAB>worse<TAB>group`.

    A CRLF ends a line as a newline does: it must not count against the worse text alone.

    Raises:
        SeqgenError: a line has another form (says which), or there is none.
    """
    pairs = []
    for number, line in enumerate(lines(unix_newlines(chunks), name), start=1):
        columns = line.removesuffix("\n").split("\t")
        if len(columns) not in (2, 3):
            raise SeqgenError(
                f"{name}, line {number}: a pair is better<TAB>worse or better<TAB>worse<TAB>group, "
                f"not {len(columns)} columns"
            )
        pairs.append(Pair(*columns))
    if not pairs:
        raise SeqgenError(f"{name} contains no pair")
    return pairs


def score_pairs(
    loaded: LoadedModel, pairs: Sequence[Pair], name: str, scoring: Scoring
) -> Iterator[PairScore]:
    """Score each text with its end token; yield the result of each group, then of all.

    Args:
        loaded: the model.
        pairs: at least one.
        name: of their file.
        scoring: how; each text is a line.
    """
    texts = list(chain.from_iterable((p.better + "\n", p.worse + "\n") for p in pairs))
    scored = list(score_lines(loaded, texts, scoring))
    margins = [_margin(*both) for both in zip(scored[::2], scored[1::2], strict=True)]
    oov = [a.totals.oov + b.totals.oov for a, b in zip(scored[::2], scored[1::2], strict=True)]
    data = hashlib.sha256("".join(texts).encode()).hexdigest()
    line_by_line = Scoring(documents="line", stride=scoring.stride)
    signature = scoring_signature("pairs", loaded, line_by_line, data, ties="half")
    groups = dict.fromkeys(pair.group for pair in pairs)
    for group in [*(g for g in groups if g is not None), None]:
        members = [i for i, pair in enumerate(pairs) if group in (None, pair.group)]
        ties = sum(abs(margins[i]) <= TIE_NATS for i in members)
        preferred = sum(margins[i] > TIE_NATS for i in members)
        successes = preferred + ties / 2
        low, high = wilson_interval(successes, len(members))
        yield PairScore(
            file=name,
            group=group,
            pairs=len(members),
            preferred=preferred,
            ties=ties,
            share=successes / len(members),
            low=low,
            high=high,
            oov=sum(oov[i] for i in members),
            signature=signature,
        )


def _margin(better: ScoredLine, worse: ScoredLine) -> float:
    """Compute the log-probability difference in nats; 0 if both texts are impossible."""
    nats = better.totals.nll_nats, worse.totals.nll_nats
    return 0.0 if nats == (math.inf, math.inf) else nats[1] - nats[0]
