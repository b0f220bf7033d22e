"""The tokenizer that suits pairs of texts, where the user has not named one.

docs/recipes.md has the experiments behind the rule.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from seqgen.configs import DataConfig
from seqgen.data.text import Survey
from seqgen.tokenizers import KINDS
from seqgen.tokenizers.sentencepiece import SentencepieceTokenizer

SUBWORDS = {name for name, kind in KINDS.items() if issubclass(kind, SentencepieceTokenizer)}
# Pairs with fewer characters than this on average, both sides together, are short strings such
# as dates, and a text with fewer in all has too few to learn subwords from.
SENTENCES_FROM, SUBWORDS_FROM = 80, 200_000
# A vocabulary grows with the cube root of the text: 6,000 pieces for 4 million characters, and
# 37,000, as Vaswani et al. (2017) have, for a thousand million.
PIECES_BY_ROOT, LEAST_PIECES, MOST_PIECES = 38, 500, 40_000


def choose_tokenizer(config: DataConfig, given: Collection[str], facts: Survey) -> dict[str, Any]:
    """Return the settings of `DataConfig` that suit the text, and that are not given.

    Args:
        config: how the pairs are to be read.
        given: the names of the settings that stay as they are.
        facts: of the pairs as lines, source, tab, target; at least one.
    """
    chosen: dict[str, Any] = {}
    if not {"tokenizer", "min_count"} & set(given):  # a least count has no meaning for bpe
        long = (
            facts.characters / facts.lines >= SENTENCES_FROM and facts.characters >= SUBWORDS_FROM
        )
        chosen["tokenizer"] = "bpe" if long else "char"
    kinds = {chosen.get("tokenizer", config.tokenizer), config.source_tokenizer} - {None}
    if "vocab_size" not in given and kinds <= SUBWORDS:
        chosen["vocab_size"] = vocab_size_for(facts.characters)
    return chosen


def vocab_size_for(characters: int) -> int:
    """Return how many subwords suit a text of so many characters, in whole hundreds."""
    pieces = 100 * round(PIECES_BY_ROOT * characters ** (1 / 3) / 100)
    return min(max(pieces, LEAST_PIECES), MOST_PIECES)
