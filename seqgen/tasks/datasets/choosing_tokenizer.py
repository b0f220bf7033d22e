"""The tokenizer that suits pairs of texts, where the user has not named one.

Sentences are made of words that come back; strings such as names, dates and figures are made of
characters. docs/recipes.md has the experiments behind the rule.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqgen.configs import DataConfig
from seqgen.data.pairs import Pairs
from seqgen.tokenizers import KINDS
from seqgen.tokenizers.sentencepiece import SentencepieceTokenizer

SUBWORDS = {name for name, kind in KINDS.items() if issubclass(kind, SentencepieceTokenizer)}
# Words are counted in at most this many pairs, so that their frequencies mean the same in a large
# text: with a million pairs, rare names occur ten times, too.
SAMPLED_PAIRS = 2_000
# A word that occurs this often in the sample comes back, and can be learned as one token.
OFTEN = 10
# Sentences have 0.39 and more on both sides, even 300 short ones; names and other strings have 0.17
# and less on one side.
LEAST_RECURRING = 0.3
# Words with a digit are spelled, however few there are: days and years come back, too. Sentences
# have a tenth of them at most, dates half and more.
MOST_NUMBERS = 0.3
# Scripts without spaces between words (Han, kana, Thai, Lao, Burmese, Khmer): each of their
# characters counts as a word.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
EDGES = re.compile(r"^[\W_]+|[\W_]+$")
# A vocabulary grows with the cube root of the text: 6,000 pieces for 4 million characters, and
# 37,000, as Vaswani et al. (2017) have, for a thousand million.
PIECES_BY_ROOT, LEAST_PIECES, MOST_PIECES = 38, 500, 40_000


@dataclass(frozen=True)
class WordUse:
    """How the words of pairs recur, on the side where they do so least.

    Attributes:
        recurring: share of the words that occur `OFTEN` times or more and have no digit, 0 to 1.
        numbers: share of the words that have a digit, on the side with more of them.
        sampled: in how many pairs words were counted.
    """

    recurring: float
    numbers: float
    sampled: int

    @property
    def sentences(self) -> bool:
        """Whether both sides are sentences: few numbers, and words that come back."""
        return self.recurring >= LEAST_RECURRING and self.numbers <= MOST_NUMBERS

    def __str__(self) -> str:
        pairs = f"in {self.sampled:,} pairs"
        if self.numbers > MOST_NUMBERS:
            return f"{self.numbers:.0%} of the words of a side have digits {pairs}"
        return f"{self.recurring:.0%} of the words occur {OFTEN} times or more {pairs}"


def word_use(pairs: Pairs, count: int) -> WordUse:
    """Count words in pairs, or in a sample of `SAMPLED_PAIRS` that is the same every time.

    Args:
        pairs: read once.
        count: how many there are, at least one.
    """
    keep = np.ones(count, dtype=bool)
    if count > SAMPLED_PAIRS:
        keep[:] = False
        keep[np.random.default_rng(0).choice(count, SAMPLED_PAIRS, replace=False)] = True
    sources, targets = zip(*pairs.some(keep), strict=True)
    # Vectors have no words: their targets decide.
    sides = [targets] if pairs.source_features is not None else [sources, targets]
    counts = [Counter(itertools.chain.from_iterable(map(words_in, side))) for side in sides]
    return WordUse(
        recurring=min(map(_recurring, counts)),
        numbers=max(map(_numbers, counts)),
        sampled=len(targets),
    )


def words_in(line: str) -> Iterator[str]:
    """Yield what white space separates, without the punctuation around it."""
    for match in WORD.finditer(line):
        if word := EDGES.sub("", match.group()):
            yield word


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _recurring(counts: Counter[str]) -> float:
    """Return the share of running words without a digit that occur often; 0 of no words."""
    often = (n for word, n in counts.items() if n >= OFTEN and not _has_digit(word))
    return sum(often) / max(1, counts.total())


def _numbers(counts: Counter[str]) -> float:
    """Return the share of running words with a digit; 0 of no words."""
    return sum(n for word, n in counts.items() if _has_digit(word)) / max(1, counts.total())


def choose_tokenizer(
    config: DataConfig, given: Collection[str], characters: int, words: Callable[[], WordUse]
) -> tuple[dict[str, Any], str]:
    """Return the settings of `DataConfig` that suit the text and are not given, and why.

    Args:
        config: how the pairs are to be read.
        given: the names of the settings that stay as they are.
        characters: of all pairs, tabs and ends of lines included.
        words: counts how words recur in the pairs; called only if that decides.
    """
    chosen: dict[str, Any] = {}
    why = ""
    if not {"tokenizer", "min_count"} & set(given):  # a least count has no meaning for bpe
        use = words()
        chosen["tokenizer"], why = "bpe" if use.sentences else "char", str(use)
    kinds = {chosen.get("tokenizer", config.tokenizer), config.source_tokenizer} - {None}
    if "vocab_size" not in given and kinds <= SUBWORDS:
        chosen["vocab_size"] = vocab_size_for(characters)
        why = why or f"pairs have {characters:,} characters in all"
    return chosen, why


def vocab_size_for(characters: int) -> int:
    """Return how many subwords suit a text of so many characters, in whole hundreds."""
    pieces = 100 * round(PIECES_BY_ROOT * characters ** (1 / 3) / 100)
    return min(max(pieces, LEAST_PIECES), MOST_PIECES)
