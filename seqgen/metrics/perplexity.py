"""Perplexity and related measures, from totals that add up over texts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np

LN2 = math.log(2)
# A model that predicts `<unk>` has not spelled the word: each of its bytes costs this much more.
OOV_BITS = 8

Numbers = TypeVar("Numbers", "float", "np.ndarray")


def bits_of_text(nats: Numbers, oov_bytes: Numbers) -> Numbers:
    """Compute the bits of a text under a model: those of its tokens, and 8 per unknown byte.

    Perplexity and nats per token leave the unknown bytes out, as is usual for word models. Bits per
    character and byte include them, so that models with different tokenizers can be compared.

    Args:
        nats: minus the sum of the tokens' log-probabilities, that of `<unk>` included.
        oov_bytes: UTF-8 bytes of what was scored as `<unk>`.
    """
    return nats / LN2 + OOV_BITS * oov_bytes


@dataclass(frozen=True, kw_only=True)
class ScoreTotals:
    """Totals of scoring a text: nats, tokens, words, bytes, hits. Totals of texts can be added.

    Attributes:
        tokens: tokens scored.
        nll_nats: minus the sum of their log-probabilities, in nats.
        correct: how many were the model's most probable token.
        ranked: how many have their rank among all tokens known.
        top5: how many of these were among the five most probable.
        oov: how many were `<unk>`.
        oov_nats: the part of `nll_nats` that is theirs.
        characters: characters of the text, newlines included.
        bytes: its UTF-8 bytes.
        words: its words: runs of what is not white space, and ends of lines that are scored;
            0 where they were not counted.
        oov_bytes: bytes of what was scored as `<unk>`; nan where only tokens were there.
    """

    tokens: int = 0
    nll_nats: float = 0.0
    correct: int = 0
    ranked: int = 0
    top5: int = 0
    oov: int = 0
    oov_nats: float = 0.0
    characters: int = 0
    bytes: int = 0
    words: int = 0
    oov_bytes: float = 0

    def __add__(self, other: ScoreTotals) -> ScoreTotals:
        return ScoreTotals(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(ScoreTotals)}
        )

    @property
    def nats_per_token(self) -> float | None:
        """Cross-entropy in nats per token; None without tokens."""
        return self.nll_nats / self.tokens if self.tokens else None

    @property
    def perplexity(self) -> float | None:
        """Perplexity per token, exp(total nats / tokens), with `<unk>` scored as a word."""
        return perplexity_of(self.nats_per_token)

    @property
    def perplexity_without_oov(self) -> float | None:
        """Perplexity over the tokens that are not `<unk>`."""
        known = self.tokens - self.oov
        return perplexity_of((self.nll_nats - self.oov_nats) / known) if known else None

    @property
    def bits_per_token(self) -> float | None:
        """Mean surprisal in bits per token."""
        return self.nll_nats / LN2 / self.tokens if self.tokens else None

    @property
    def perplexity_per_word(self) -> float | None:
        """Perplexity per word: comparable across tokenizers unless they have unknowns."""
        return perplexity_of(self.nll_nats / self.words) if self.words else None

    @property
    def nats_per_word(self) -> float | None:
        """Cross-entropy in nats per word."""
        return self.nll_nats / self.words if self.words else None

    @property
    def bits_per_word(self) -> float | None:
        """Cross-entropy in bits per word."""
        return self.nll_nats / LN2 / self.words if self.words else None

    @property
    def bits(self) -> float | None:
        """Total bits of the text, see `bits_of_text`; None if the bytes of unknowns are lost."""
        return None if math.isnan(self.oov_bytes) else bits_of_text(self.nll_nats, self.oov_bytes)

    @property
    def bits_per_char(self) -> float | None:
        """Bits per character of the text."""
        return self._bits_per(self.characters)

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per UTF-8 byte of the text: comparable across tokenizers."""
        return self._bits_per(self.bytes)

    @property
    def oov_bits_per_byte(self) -> float | None:
        """The part of `bits_per_byte` that encodes unknown tokens."""
        return self.with_loss(0.0).bits_per_byte

    @property
    def total_bits_per_byte(self) -> float | None:
        """Former name of `bits_per_byte`."""
        return self.bits_per_byte

    def _bits_per(self, size: int) -> float | None:
        bits = self.bits
        return None if bits is None or not size else bits / size

    def with_loss(self, nats_per_token: float) -> ScoreTotals:
        """Replace the total nats by those of a given mean loss per token."""
        return replace(self, nll_nats=nats_per_token * self.tokens)

    def with_bits_of_tokens(self, bits_per_byte: float) -> ScoreTotals:
        """Replace the total nats by those of given bits per byte for the tokens alone."""
        return replace(self, nll_nats=bits_per_byte * self.bytes * LN2)

    @property
    def accuracy(self) -> float | None:
        """Share of tokens that the model ranked first."""
        return self.correct / self.tokens if self.tokens else None

    @property
    def top5_accuracy(self) -> float | None:
        """Share of tokens among the model's five most probable; None if ranks are missing."""
        return self.top5 / self.tokens if self.tokens and self.ranked == self.tokens else None


def perplexity_of(nats: float | None) -> float | None:
    """Convert nats per token or word to perplexity; infinity on overflow."""
    if nats is None:
        return None
    return math.exp(nats) if nats < 700 else math.inf
