"""Texts that are written from their end to their beginning."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.decoding.continuation import Continuation
from seqgen.tokenizers import Decoder, Tokenizer

UNFINISHED = "\ufffd"


class BackwardDecoder(Decoder):
    """Decodes tokens that come from right to left; returns the text mirrored, as it comes.

    What is certain of a text is then never taken back, and a stop string is found by its mirror
    image, as forwards.

    Args:
        tokenizer: whose ids they are.
        history: the ids that were read before, in that order: what stands to the right.
    """

    def __init__(self, tokenizer: Tokenizer, history: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self._ids = [*reversed(history)]
        self._right = len(tokenizer.decode(self._ids))
        self._sent = 0

    def push(self, token: int) -> str:
        self._ids.insert(0, token)
        # A character may lack its first bytes, which come next.
        return self._new(self._text().lstrip(UNFINISHED))

    def flush(self) -> str:
        return self._new(self._text())

    def _text(self) -> str:
        whole = self.tokenizer.decode(self._ids)
        return whole[: len(whole) - self._right]

    def _new(self, text: str) -> str:
        piece = text[::-1][self._sent :]
        self._sent += len(piece)
        return piece


class BackwardContinuation(Continuation):
    """A text that grows to the left. It is shown when it is finished, as it is read.

    A stop string ends it as it does forwards: what is to the right of it remains.
    """

    def __init__(
        self,
        decoder: Decoder,
        stops: Sequence[str],
        max_tokens: int,
        eos_id: int | None,
        min_tokens: int = 0,
    ) -> None:
        mirrored = [stop[::-1] for stop in stops]
        super().__init__(decoder, mirrored, max_tokens, eos_id, min_tokens)

    def push(self, token: int, logprob: float = 0.0) -> str:
        super().push(token, logprob)
        if self.finish_reason is None:
            return ""
        self.text = self.text[::-1]
        return self.text
