"""The filters DRY, XTC and top-n-sigma, on the log-probabilities of the next token.

Each follows its first description, and llama.cpp where that says more. Log-probabilities are logits
up to a constant, on which none of the three depends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from seqgen.generation.processors import IMPOSSIBLE, likeliest, normalise, remove_tokens, written
from seqgen.hashing import uniforms
from seqgen.text.tokenizers import Tokenizer

# What sets the coins of XTC apart from all other draws.
COIN = 0x5854_43
# Nats. A larger penalty would overflow float32, and a token never recovers from far smaller ones.
LARGEST_PENALTY = 1e30


@dataclass
class _Repetitions:
    """Tokens of a growing row, and where repetitions may begin.

    Attributes:
        ids: the tokens, with room for more.
        count: how many there are.
        begin: the place after the last sequence breaker.
        end: the last bytes of the text, which may begin a sequence breaker.
    """

    ids: np.ndarray = field(default_factory=lambda: np.empty(256, np.int64))
    count: int = 0
    begin: int = 0
    end: bytes = b""

    def push(self, token: int) -> None:
        if self.count == len(self.ids):
            self.ids = np.concatenate([self.ids, np.empty_like(self.ids)])
        self.ids[self.count] = token
        self.count += 1


@dataclass(frozen=True)
class Dry:
    """Don't Repeat Yourself: a penalty that grows exponentially with the length of a repetition.

    If the last L tokens, prompt included, occurred before and the token v followed them there,
    multiplier * base^(L - allowed length) is subtracted from v, for the largest such L from the
    allowed length on. A repetition never crosses a sequence breaker, and a token that contains one
    has no penalty (p-e-w, pull request 5677 of text-generation-webui, 2024).

    Args:
        tokenizer: of the model.
        multiplier: in nats.
        base: at least 1.
        allowed_length: in tokens.
        breakers: texts, each a sequence breaker.
        backward: the model writes from right to left.
    """

    name: ClassVar[str] = "dry"
    tokenizer: Tokenizer
    multiplier: float
    base: float
    allowed_length: int
    breakers: tuple[str, ...]
    backward: bool = False

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        penalised = log_probs.copy()
        for row, tokens in enumerate(history):
            lengths = self.lengths(tokens, log_probs.shape[-1])
            ids = np.flatnonzero(lengths)
            ids = ids[[not self._breaks(int(token)) for token in ids]] if ids.size else ids
            powers = np.minimum(lengths[ids], self.longest) - self.allowed_length
            penalised[row, ids] -= (self.multiplier * self.base**powers).astype(log_probs.dtype)
        return normalise(penalised)

    def lengths(self, tokens: Sequence[int], size: int) -> np.ndarray:
        """Find the longest repetition that each token (V,) would continue; 0 for none."""
        known = self._read(tokens)
        ids, last, lengths = known.ids, known.count - 1, np.zeros(size, np.int64)
        most = min(known.count - known.begin, self.longest)
        if most < self.allowed_length:
            return lengths
        ends = np.flatnonzero(ids[:last] == ids[last])
        for length in range(1, most + 1):
            if not ends.size:
                break
            if length >= self.allowed_length:
                lengths[ids[ends + 1]] = length
            ends = ends[ends >= length]
            ends = ends[ids[ends - length] == ids[last - length]]
        return lengths

    @cached_property
    def longest(self) -> int:
        """The length at which the penalty no longer grows."""
        if self.base == 1:
            return self.allowed_length
        powers = math.log(LARGEST_PENALTY / self.multiplier) / math.log(self.base)
        return self.allowed_length + int(min(powers, 1e6))

    def _read(self, tokens: Sequence[int]) -> _Repetitions:
        kept = getattr(tokens, "kept", {})
        known = kept.setdefault(self, _Repetitions())
        for token in tokens[known.count :]:
            known.push(token)
            text, before = known.end + self._bytes_of(token), len(known.end)
            # A breaker that is found ends within this token.
            if any(b in text[max(0, before - len(b) + 1) :] for b in self._breakers):
                known.begin = known.count
            known.end = text[max(0, len(text) - self._reach) :]
        return known

    @cached_property
    def _breakers(self) -> list[bytes]:
        texts = [breaker.encode() for breaker in self.breakers]
        return [text[::-1] for text in texts] if self.backward else texts

    @cached_property
    def _reach(self) -> int:
        """Largest number of bytes of a sequence breaker that precede the next token."""
        return max(map(len, self._breakers), default=1) - 1

    def _bytes_of(self, token: int) -> bytes:
        raw = self.tokenizer.token_bytes[token]
        return raw[::-1] if self.backward else raw

    def _breaks(self, token: int) -> bool:
        """Check whether a token alone contains a sequence breaker."""
        return any(breaker in self._bytes_of(token) for breaker in self._breakers)


@dataclass(frozen=True)
class TopNSigma:
    """Keep tokens whose logit is at least the largest minus n standard deviations of all logits.

    The standard deviation is that of the possible tokens (Tang et al. 2024, "Top-n-sigma: Not All
    Logits Are You Need").
    """

    name: ClassVar[str] = "top-n-sigma"
    n: float

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        logits = log_probs.astype(np.float64)
        possible = logits > IMPOSSIBLE
        count = possible.sum(-1, keepdims=True)
        values = np.where(possible, logits, 0.0)
        mean = values.sum(-1, keepdims=True) / count
        squares = np.where(possible, (values - mean) ** 2, 0.0)
        sigma = np.sqrt(squares.sum(-1, keepdims=True) / count)  # (B, 1)
        return remove_tokens(log_probs, logits < logits.max(-1, keepdims=True) - self.n * sigma)


@dataclass(frozen=True)
class Xtc:
    """Exclude Top Choices: sometimes remove all but the least probable of the probable tokens.

    With `probability` at each token, of the tokens that have at least the probability `threshold`,
    only the least probable stays; of equals, the one with the largest id (p-e-w, pull request 6335
    of text-generation-webui, 2024). Whether it happens depends only on the seed and on the numbers
    of the prompt, the sample and the token.
    """

    name: ClassVar[str] = "xtc"
    probability: float
    threshold: float
    seed: int

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        removed = np.zeros_like(log_probs, dtype=bool)
        for row, tokens in enumerate(history):
            place = getattr(tokens, "place", (0, 0))
            if uniforms(COIN, self.seed, *place, len(written(tokens))) < self.probability:
                own = log_probs[row]
                probable = np.exp(own, dtype=np.float64) >= self.threshold
                top = np.flatnonzero(probable & (own > IMPOSSIBLE))
                removed[row, top[likeliest(own[top])[:-1]]] = True
        return remove_tokens(log_probs, removed)
