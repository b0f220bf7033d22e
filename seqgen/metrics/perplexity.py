"""Perplexity and its relatives, from totals that add up over texts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

LN2 = math.log(2)
# A model that says `<unk>` has not said the word: each of its bytes costs this much more.
OOV_BITS = 8


@dataclass(frozen=True, kw_only=True)
class ScoreTotals:
    """What scoring a text gives. The totals of two texts add up to those of both.

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
        """The cross-entropy, in nats a token; None for no token."""
        return self.nll_nats / self.tokens if self.tokens else None

    @property
    def perplexity(self) -> float | None:
        """exp(total nats / total tokens), `<unk>` scored as a word."""
        return _exp(self.nats_per_token)

    @property
    def perplexity_without_oov(self) -> float | None:
        """The same over the tokens that are not `<unk>`."""
        known = self.tokens - self.oov
        return _exp((self.nll_nats - self.oov_nats) / known) if known else None

    @property
    def bits_per_token(self) -> float | None:
        """The mean surprisal, in bits."""
        return self.nll_nats / LN2 / self.tokens if self.tokens else None

    @property
    def perplexity_per_word(self) -> float | None:
        """exp(total nats / words): comparable over tokenizers, as bits per byte are."""
        return _exp(self.nll_nats / self.words) if self.words else None

    @property
    def nats_per_word(self) -> float | None:
        """Total nats by words."""
        return self.nll_nats / self.words if self.words else None

    @property
    def bits_per_word(self) -> float | None:
        """Total bits by words."""
        return self.nll_nats / LN2 / self.words if self.words else None

    @property
    def bits_per_char(self) -> float | None:
        """Total bits by the characters of the text."""
        return self.nll_nats / LN2 / self.characters if self.characters else None

    @property
    def bits_per_byte(self) -> float | None:
        """Total bits by the UTF-8 bytes of the text: comparable over tokenizers."""
        return self.nll_nats / LN2 / self.bytes if self.bytes else None

    @property
    def oov_bits_per_byte(self) -> float | None:
        """What spelling unknowns out would cost, 8 bits for each of their bytes, by all bytes."""
        return OOV_BITS * self.oov_bytes / self.bytes if self.bytes else None

    @property
    def accuracy(self) -> float | None:
        """Share of tokens that were the most probable one."""
        return self.correct / self.tokens if self.tokens else None

    @property
    def top5_accuracy(self) -> float | None:
        """Share of tokens among the five most probable; None where not all ranks are known."""
        return self.top5 / self.tokens if self.tokens and self.ranked == self.tokens else None


def _exp(nats: float | None) -> float | None:
    if nats is None:
        return None
    return math.exp(nats) if nats < 700 else math.inf
