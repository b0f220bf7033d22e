"""Streaming text output: incomplete characters and possible stop strings are held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from seqgen.text.tokenizers import Decoder

# Key among the finish reasons by end token: the reason of a text that reaches its token limit.
LIMIT = -1
# Why a text ends that no token can continue. The token that says so is no part of it.
DEAD_END = "dead-end"


class StopStrings:
    """Streaming search for the first of several stop strings.

    The first is the one that is complete first (the longest, if several are then), so that it
    does not depend on the pieces. What might be the beginning of one is held back until it is
    certain that it is not.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._begun = [0] * len(self._stops)  # how much of each stands at the end of the text
        self._held = ""
        self.matched = False

    def push(self, text: str) -> str:
        """Return the text that is safe to show; nothing comes after a stop string."""
        if not self._stops:
            return text
        # Only what is new is searched: a stop grows by so much, or begins there.
        new, text = len(text), self._held + text
        places = []
        for stop, begun in zip(self._stops, self._begun, strict=True):
            at = text.find(stop, len(text) - new - begun)
            if at >= 0:
                places.append((at + len(stop), at))
        if places:
            self.matched, self._held = True, ""
            return text[: min(places)[1]]
        pairs = zip(self._stops, self._begun, strict=True)
        self._begun = [_overlap(text, stop, begun + new) for stop, begun in pairs]
        keep = max(self._begun)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return the text held back, at the end of the stream."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str, most: int) -> int:
    """Compute the length of the longest suffix of `text` that begins `stop`, up to `most`."""
    longest = min(most, len(text), len(stop) - 1)
    while longest and not text.endswith(stop[:longest]):
        longest -= 1
    return longest


class Continuation:
    """Text being generated, token by token.

    Attributes:
        text: what is certain so far.
        ids: the tokens that were drawn, EOS and a trimmed stop's included.
        logprob: their total log-probability under the model, in nats.
        weight: the log of what a draw among several texts weighs it by.
        finish_reason: None while it grows, then "stop", "length" or one of `reasons` ("eos").
        reads: 1, or -1 where what comes next stands to the left.

    Args:
        decoder: of the row's ids.
        stops: what ends the text, and is no part of it.
        max_tokens: at most so many tokens.
        reasons: why it finishes, by the token that ends it.
        min_tokens: stop strings are not looked for in the text of the first so many tokens.
    """

    reads: ClassVar[int] = 1

    def __init__(
        self,
        decoder: Decoder,
        stops: Sequence[str],
        max_tokens: int,
        reasons: Mapping[int, str],
        min_tokens: int = 0,
    ) -> None:
        self._decoder = decoder
        self._stops = StopStrings([stop[:: self.reads] for stop in stops])
        self._max_tokens, self._reasons = max_tokens, reasons
        self._at_limit = self._reasons.get(LIMIT, "length")
        self._min_tokens = min_tokens
        self.text, self.logprob, self.weight = "", 0.0, 0.0
        self.ids: list[int] = []
        self.finish_reason: str | None = None
        if max_tokens == 0:
            self.finish_reason = self._at_limit

    @property
    def tokens(self) -> int:
        """Number of tokens drawn."""
        return len(self.ids)

    def push(self, token: int, logprob: float = 0.0) -> str:
        """Append the next token; return the text that is now certain."""
        reason = self._reasons.get(token)
        if reason == DEAD_END:
            return self._finish(reason)
        self.ids.append(token)
        self.logprob += logprob
        if reason is not None:
            return self._finish(reason)
        piece = self._decoder.push(token)
        # What the first `min_tokens` tokens write is not searched: it ends nothing.
        if self.tokens > self._min_tokens:
            piece = self._stops.push(piece)
        if self._stops.matched:
            self.finish_reason = "stop"
        elif self.tokens == self._max_tokens:
            return self._finish(self._at_limit, piece)
        self.text += piece
        return piece

    def _finish(self, reason: str, piece: str = "") -> str:
        piece += self._stops.push(self._decoder.flush())
        self.finish_reason = "stop" if self._stops.matched else reason
        piece += self._stops.flush()
        self.text += piece
        return piece
