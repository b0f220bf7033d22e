"""Generation from right to left, and the choice of a decoder by the model's direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqgen.generation.continuation import Continuation
from seqgen.text.tokenizers import Decoder, Tokenizer

if TYPE_CHECKING:
    from seqgen.generation.processors import PromptOverlap
    from seqgen.store.loaded import LoadedModel

UNFINISHED = "\ufffd"
# A character has so many bytes at most: tokens further apart are decoded on their own.
REACH = 4


class BackwardDecoder(Decoder):
    """Streaming decoder of tokens from right to left; returns the text mirrored.

    What is certain of a text is then never taken back, and a stop string is found by its mirror
    image, as forwards. Only the tokens whose text is not certain yet are decoded again, together
    with a few to the right of them, which a tokenizer may need to know.

    Args:
        tokenizer: whose ids they are.
        history: the ids that were read before, in that order: what stands to the right.
    """

    def __init__(self, tokenizer: Tokenizer, history: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self._right = [*reversed(history[-REACH:])]  # ids whose text is certain
        self._open: list[int] = []  # ids to the left of them, whose text is not
        self._sent = 0  # characters that were returned of the text of `_open`

    def push(self, token: int) -> str:
        self._open.insert(0, token)
        text = self._text(self._open)
        # A character may lack its first bytes, which come next.
        certain = text.lstrip(UNFINISHED)
        if certain == text:
            return self._settle(0)
        return self._new(certain) + self._settle(self._cut(text))

    def flush(self) -> str:
        return self._settle(0)

    def _text(self, ids: list[int]) -> str:
        whole = self.tokenizer.decode(ids + self._right)
        return whole[: len(whole) - len(self.tokenizer.decode(self._right))]

    def _new(self, text: str) -> str:
        piece = text[::-1][self._sent :]
        self._sent += len(piece)
        return piece

    def _cut(self, text: str) -> int:
        """Count the open ids whose text may still change when bytes on the left arrive.

        What follows them must be decoded alike with them and without them, as the bytes of a
        character that lacks its last one are not.

        Args:
            text: of all open ids.
        """
        for keep in range(REACH - 1, min(2 * REACH, len(self._open))):
            if self.tokenizer.decode(self._open[:keep]) + self._text(self._open[keep:]) == text:
                return keep
        return len(self._open)

    def _settle(self, keep: int) -> str:
        """Close all open ids except the first `keep`, and return their new text."""
        settled = self._open[keep:]
        if not settled:
            return ""
        text = self._text(settled)
        piece = self._new(text)
        self._sent -= len(text)
        self._open, self._right = self._open[:keep], [*settled, *self._right][:REACH]
        return piece


def decoder_of(
    loaded: LoadedModel, history: Sequence[int], overlap: PromptOverlap | None = None
) -> Decoder:
    """Make a streaming decoder, in the model's direction, for tokens that follow `history`.

    Args:
        loaded: the model.
        history: the tokens before.
        overlap: what the first token has in common with the prompt, which is left out.
    """
    if loaded.backward:
        return BackwardDecoder(loaded.tokenizer, history)
    if overlap is not None:
        return overlap.decoder(loaded.tokenizer, history)
    return loaded.tokenizer.decoder(history)


class BackwardContinuation(Continuation):
    """Text generated from right to left; it is shown only when finished.

    A stop string ends it as it does forwards: what is to the right of it remains.
    """

    reads = -1

    def push(self, token: int, logprob: float = 0.0) -> str:
        super().push(token, logprob)
        if self.finish_reason is None:
            return ""
        self.text = self.text[::-1]
        return self.text
