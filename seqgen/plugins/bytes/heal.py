"""Prompts that end inside a token: the first token of the text begins within the prompt."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqgen.engines.ops import without_gradients
from seqgen.generation.processors import IMPOSSIBLE, PromptOverlap, written
from seqgen.generation.prompts import Prompt
from seqgen.generation.text_batch import prefill
from seqgen.models.distributions import normalise, require_numbers
from seqgen.plugins.bytes.view import segmentation_of

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.tokenizers import Tokenizer

# So many bytes at the end of a prompt may be split differently, as the model sees it by so many
# tokens before them.
REACH, CONTEXT = 16, 128


@dataclass(frozen=True)
class FirstToken:
    """Allow as the first token only those that begin with the end of the prompt."""

    name: ClassVar[str] = "heal"

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        log_probs = log_probs.copy()
        for row, tokens in enumerate(history):
            overlap = getattr(tokens, "overlap", None)
            if overlap is not None and not len(written(tokens)):
                kept = log_probs[row, overlap.tokens]
                # What the model excludes altogether is equally probable.
                kept = np.zeros_like(kept) if kept.max() == IMPOSSIBLE else kept
                log_probs[row] = IMPOSSIBLE
                log_probs[row, overlap.tokens] = kept
        return normalise(log_probs)


@dataclass(frozen=True, eq=False)
class HealedEnd(PromptOverlap):
    """See `PromptOverlap`.

    Attributes:
        tokens: (N,), those that may be the first.
    """

    tokens: np.ndarray


def ends_at_boundary(tokenizer: Tokenizer, prompt: Prompt) -> bool:
    """Check that no token begins with the end of a prompt and goes on after it.

    The tokenizer then splits texts there, whatever follows.
    """
    _, raw = _end_of(tokenizer, prompt)
    tokens = _sorted_tokens(tokenizer)
    ends = [raw[at:] for at in _whole_characters(raw)]
    return not any(token.startswith(end) for end in ends for token in _next(tokens, end))


@without_gradients
def heal(loaded: LoadedModel, prompt: Prompt) -> Prompt:
    """Split the end of a prompt in the way that is most probable before any continuation.

    If some bytes are left after the tokens of the most probable cover of the prompt, the prompt
    gets these tokens, and the first token of the text begins with these bytes. Otherwise it stays
    as it is.

    The covers are searched in the order of the probability of their tokens, which is at least that
    of everything that comes after them: no cover that is still to be read can be more probable than
    the best one when the search ends.

    Args:
        loaded: a model that can be seen byte by byte.
        prompt: with a text.
    """
    segmentation = segmentation_of(loaded.tokenizer, False)
    cut, raw = _end_of(loaded.tokenizer, prompt)
    before = prompt.tokens[:cut] or (loaded.framing.start,)
    trie, model, starts = segmentation.trie, loaded.model, _whole_characters(raw)
    best, chosen, end, rest = 0.0, (), None, ""
    number, waiting = itertools.count(), []
    prefix: tuple[float, int, tuple[int, ...], State | None] = (1.0, 0, (), None)
    while prefix is not None:
        mass, at, tokens, state = prefix
        if state is None:
            logits, state = prefill(model, [before[-CONTEXT:]])
        else:
            logits, state = model.step([tokens[-1]], state.copy())
        log_probs = require_numbers(logits if model.normalised else normalise(logits))
        probs = np.exp(log_probs[0].astype(np.float64))
        last = tokens[-1] if tokens else before[-1]
        node = trie.root
        for place in range(at, len(raw)):
            node = node.child(raw[place], trie)
            if node is None:
                break
            for token in trie.ids[node.begin : node.longer].tolist():
                if segmentation.allows(last, segmentation.texts[last], token):
                    child = mass * probs[token], place + 1, (*tokens, token), state
                    heapq.heappush(waiting, (-child[0], next(number), child))
        if node is not None and (at in starts or at == len(raw)):
            possible = trie.ids[node.longer : node.end] if at < len(raw) else None
            found = mass if possible is None else mass * float(probs[possible].sum())
            if found > best:
                best, chosen, end = found, tokens, possible
                rest = raw[at:].decode()
        prefix = heapq.heappop(waiting)[2] if waiting and -waiting[0][0] > best else None
    if end is None:
        return prompt
    tokens = (*prompt.tokens[:cut], *chosen) or before
    return replace(prompt, tokens=tokens, overlap=HealedEnd(rest, FirstToken(), end))


def _end_of(tokenizer: Tokenizer, prompt: Prompt) -> tuple[int, bytes]:
    """Find the place of the first of the last tokens of a prompt, and the bytes from there on."""
    raw, texts = prompt.text.encode(), tokenizer.token_bytes
    cut, size = len(prompt.tokens), 0
    while cut and size < REACH:
        text = texts[prompt.tokens[cut - 1]]
        if not (text and raw.endswith(text, 0, len(raw) - size)):
            break
        cut, size = cut - 1, size + len(text)
    return cut, raw[len(raw) - size :]


@functools.lru_cache(maxsize=8)
def _sorted_tokens(tokenizer: Tokenizer) -> list[bytes]:
    return sorted(tokenizer.token_bytes)


def _next(tokens: list[bytes], end: bytes) -> list[bytes]:
    """List the first of the sorted tokens after `end`, if there is one."""
    at = bisect.bisect_right(tokens, end)
    return tokens[at : at + 1]


def _whole_characters(raw: bytes) -> list[int]:
    """List where characters begin in bytes that end with a whole one."""
    return [at for at, byte in enumerate(raw) if byte & 0xC0 != 0x80]
