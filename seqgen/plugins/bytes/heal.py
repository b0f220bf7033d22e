"""Prompts that end inside a token: the first token of the text begins within the prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqgen.generation.processors import IMPOSSIBLE, PromptOverlap, normalise_or_end, written
from seqgen.generation.prompts import Prompt
from seqgen.plugins.bytes.view import require_view, seen_by_bytes, segmentation_of
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

if TYPE_CHECKING:
    from seqgen.plugins.bytes.covers import Cover
    from seqgen.store.loaded import LoadedModel

# So many bytes at the end of a prompt may be split differently, as the model sees it by so many
# tokens before them.
REACH, CONTEXT = 16, 128


@dataclass(frozen=True)
class FirstToken:
    """Allow as the first token only those that begin with the end of the prompt.

    Attributes:
        dead_id: see `normalise_or_end`.
    """

    name: ClassVar[str] = "heal"
    dead_id: int | None

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        begins = [
            row
            for row, tokens in enumerate(history)
            if getattr(tokens, "overlap", None) is not None and not len(written(tokens))
        ]
        if not begins:
            return log_probs
        log_probs = log_probs.copy()
        for row in begins:
            allowed = history[row].overlap.tokens
            kept = log_probs[row, allowed]
            log_probs[row] = IMPOSSIBLE
            log_probs[row, allowed] = kept
        return normalise_or_end(log_probs, self.dead_id)


def heal(loaded: LoadedModel, prompt: Prompt) -> Prompt:
    """Split the end of a prompt in the way that is most probable before any continuation.

    If the tokens of the prompt are the most probable cover of its bytes, it stays as it is.
    Otherwise it gets the tokens of the cover that is. If bytes are left after them, the first token
    of the text begins with these.

    Args:
        loaded: the model.
        prompt: with a text.

    Raises:
        UsageError: it is no model of text.
        SeqgenError: it cannot be seen byte by byte.
    """
    require_view(loaded, "--heal")
    if not prompt.text or isinstance(loaded.tokenizer, ByteTokenizer):
        return prompt
    segmentation = segmentation_of(loaded.tokenizer, False)
    framed = len(prompt.tokens) - len(loaded.ids(prompt.text))
    cut, size = len(prompt.tokens), 0
    while cut > framed and size < REACH:
        cut -= 1
        size += len(segmentation.texts[prompt.tokens[cut]])
    model = seen_by_bytes(loaded.model, segmentation, loaded.framing, least=0)
    before = prompt.tokens[:cut] or (loaded.framing.start,)
    raw = prompt.text.encode()
    raw = raw[len(raw) - size :]
    if raw != b"".join(segmentation.texts[token] for token in prompt.tokens[cut:]):
        return prompt  # the tokenizer has dropped something of it
    state = model.start_after(before[-CONTEXT:])
    for byte in raw:
        _, state = model.step([byte + OFFSET], state)
    covers = [cover for cover in state.texts[0].read if _rest(cover, raw) is not None]
    if not covers:
        return prompt
    best = max(covers, key=lambda cover: cover.mass)
    tokens = (*prompt.tokens[framed:cut], *_tokens(best))
    rest, node = _rest(best, raw), best.node
    overlap = PromptOverlap(rest, segmentation.trie.ids[node.longer : node.end]) if rest else None
    tokens = (*prompt.tokens[:framed], *tokens) or (loaded.framing.start,)
    return replace(prompt, tokens=tokens, overlap=overlap)


def _rest(cover: Cover, raw: bytes) -> str | None:
    """Return the text after the tokens of a cover; None if it begins inside a character."""
    with contextlib.suppress(UnicodeDecodeError):
        return raw[len(raw) - cover.node.depth :].decode()
    return None


def _tokens(cover: Cover) -> list[int]:
    """List the tokens of a cover after those that were read at first."""
    tokens, path = [], cover.prefix.path
    while path:
        path, token = path
        tokens.append(token)
    return tokens[::-1]
