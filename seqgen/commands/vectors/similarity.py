"""How well the cosines between words agree with people's judgement."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from seqgen.commands.vectors.words import WordVectors
from seqgen.data.text import lines
from seqgen.errors import SeqgenError
from seqgen.metrics.rank_correlation import spearman

# WordSim-353 has commas, SimLex-999 and most others tabs or spaces.
SEPARATOR = re.compile(r"\t|,|\s+")


@dataclass(frozen=True)
class Agreement:
    """The keys of a record of `seqgen vectors --similarity --json`, in order.

    Attributes:
        file: which pairs.
        pairs: those whose words both have a vector.
        oov: those that were left out, since a word has none.
        spearman: the correlation of ranks, -1 to 1; None for fewer than two pairs.
        model: its name.
    """

    file: str
    pairs: int
    oov: int
    spearman: float | None
    model: str


def agreement(vectors: WordVectors, chunks: Iterable[str], file: str) -> Agreement:
    """Compare cosines with people's scores of pairs of words.

    Args:
        vectors: the words'.
        chunks: the text of a file with a line `word word score` for each pair.
        file: what messages call it.

    Raises:
        SeqgenError: a line is no pair with its score, or there is none; names the line.
    """
    cosines, scores, oov = [], [], 0
    for first, second, score in scored_pairs(chunks, file):
        if first in vectors and second in vectors:
            cosines.append(vectors.similarity(first, second))
            scores.append(score)
        else:
            oov += 1
    if not cosines and not oov:
        raise SeqgenError(f"{file} has no pairs: each line is two words and a score")
    correlation = spearman(np.array(cosines), np.array(scores))
    return Agreement(file, len(cosines), oov, correlation, vectors.model)


def scored_pairs(chunks: Iterable[str], file: str) -> Iterator[tuple[str, str, float]]:
    """Yield the pairs of a file: two words and a score, apart by a tab, a comma or spaces.

    Empty lines and lines that begin with `#` are left out, as is a first line of titles.

    Raises:
        SeqgenError: a line has another form.
    """
    for number, line in enumerate(lines(chunks, file), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in SEPARATOR.split(line)]
        score = _number(fields[2]) if len(fields) >= 3 else None
        if score is not None and all(fields[:2]):
            yield fields[0], fields[1], score
        elif number > 1 or len(fields) < 3:
            raise SeqgenError(f"{file}, line {number}: give two words and a score, not {line!r}")


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) else None
    return None
