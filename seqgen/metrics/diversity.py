"""Diversity of generated texts: distinct n-grams, repetition, self-BLEU and Zipf's exponent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.metrics.bleu import sentence_scores
from seqgen.settings.scoring import BleuOptions

# Beyond these ranks a short text's words are seen once, and no exponent can be estimated.
ZIPF_RANKS = 500
# Self-BLEU compares every text with every other.
COMPARED = 50

Words = Sequence[str]


@dataclass(frozen=True)
class Diversity:
    """Diversity figures of a set of texts split at white space; None where undefined.

    Attributes:
        texts: how many.
        words: in all.
        distinct_1: different words by words (Li et al. 2016).
        distinct_2: the same of pairs of words.
        distinct_3: the same of triples.
        self_bleu: mean BLEU of a text against all others (Zhu et al. 2018); high is monotonous.
        repetition: share of a text's 4-grams that it had before, mean over texts (seq-rep-4 of
            Welleck et al. 2020).
        zipf: the exponent s of frequency ~ 1 / rank^s, least squares in logarithms.
    """

    texts: int
    words: int
    distinct_1: float | None
    distinct_2: float | None
    distinct_3: float | None
    self_bleu: float | None
    repetition: float | None
    zipf: float | None


def diversity(texts: Sequence[str]) -> Diversity:
    """Compute the diversity figures of a set of texts."""
    split = [text.split() for text in texts]
    return Diversity(
        texts=len(texts),
        words=sum(map(len, split)),
        distinct_1=distinct(split, 1),
        distinct_2=distinct(split, 2),
        distinct_3=distinct(split, 3),
        self_bleu=self_bleu(texts),
        repetition=repetition(split),
        zipf=zipf_exponent([word for words in split for word in words]),
    )


def ngrams(words: Words, n: int) -> list[tuple[str, ...]]:
    """List the n-grams of a text, in order."""
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def distinct(texts: Sequence[Words], n: int) -> float | None:
    """Compute distinct-n: the share of different n-grams among all n-grams of all texts."""
    ngrams_seen = [ngram for words in texts for ngram in ngrams(words, n)]
    return len(set(ngrams_seen)) / len(ngrams_seen) if ngrams_seen else None


def repetition(texts: Sequence[Words], n: int = 4) -> float | None:
    """Compute the mean share of n-grams that repeat an earlier one of the same text."""
    by_text = [ngrams(words, n) for words in texts]
    repeated = [1 - len(set(grams)) / len(grams) for grams in by_text if grams]
    return sum(repeated) / len(repeated) if repeated else None


def self_bleu(texts: Sequence[str]) -> float | None:
    """Compute self-BLEU: the mean BLEU of each text against the other texts."""
    texts = [text for text in texts if text.strip()][:COMPARED]
    if len(texts) < 2:
        return None
    # Reference k of text i is the k-th text after it, round and round.
    references = [texts[k:] + texts[:k] for k in range(1, len(texts))]
    scores = [score.score for score in sentence_scores(texts, references, BleuOptions())]
    return sum(scores) / len(scores)


def zipf_exponent(words: Words) -> float | None:
    """Fit Zipf's exponent: minus the slope of log frequency over log rank."""
    counts = sorted(Counter(words).values(), reverse=True)[:ZIPF_RANKS]
    if len(counts) < 2:
        return None
    slope, _ = np.polyfit(np.log(np.arange(1, len(counts) + 1)), np.log(counts), 1)
    return float(-slope)
