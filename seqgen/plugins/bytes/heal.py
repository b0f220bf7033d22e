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
    from seqgen.models.inference import InferenceModel
    from seqgen.models.state import State
    from seqgen.plugins.bytes.trie import Trie, TrieNode
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.tokenizers import Tokenizer

# So many bytes at the end of a prompt may be split differently, as the model sees it by so many
# tokens before them.
REACH, CONTEXT = 16, 128
# So many of the most probable first tokens are checked to be the tokenizer's own.
CHECKED = 32


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
    ends = [raw[at:] for at, byte in enumerate(raw) if _begins_character(byte)]
    return not any(token.startswith(end) for end in ends for token in _next(tokens, end))


@dataclass(frozen=True)
class _Cover:
    """Tokens that cover the beginning of the end of a prompt.

    Attributes:
        mass: their probability after the tokens before.
        tokens: these tokens.
        rest: the bytes of the prompt after them.
    """

    mass: float
    tokens: tuple[int, ...]
    rest: bytes


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
    trie, rank = segmentation.trie, itertools.count()
    waiting = [(-1.0, next(rank), _Cover(1.0, (), raw))]
    state: State | None = None
    best, healed = 0.0, prompt
    while waiting and -waiting[0][0] > best:
        cover = heapq.heappop(waiting)[2]
        if not cover.rest:
            best, healed = cover.mass, prompt
            continue
        probs, state = _read(loaded.model, before, cover, state)
        path = _path(trie, cover.rest)
        read = segmentation.path_of((*before[-REACH:], *cover.tokens))
        for size, node in enumerate(path[1:], start=1):
            for token in trie.ids[node.begin : node.longer].tolist():
                if segmentation.is_own(read, token, segmentation.texts[token]):
                    mass, tokens = cover.mass * probs[token], (*cover.tokens, token)
                    longer = _Cover(mass, tokens, cover.rest[size:])
                    heapq.heappush(waiting, (-mass, next(rank), longer))
        if len(path) <= len(cover.rest) or not _begins_character(cover.rest[0]):
            continue
        first = trie.ids[path[-1].longer : path[-1].end]
        if cover.mass * float(probs[first].sum()) <= best:
            continue
        likely = first[np.argsort(-probs[first], kind="stable")[:CHECKED]].tolist()
        texts = segmentation.texts
        foreign = [token for token in likely if not segmentation.is_own(read, token, texts[token])]
        first = first[~np.isin(first, foreign)]
        mass = cover.mass * float(probs[first].sum())
        if mass > best:
            tokens = (*prompt.tokens[:cut], *cover.tokens) or before
            overlap = HealedEnd(cover.rest.decode(), FirstToken(), first)
            best, healed = mass, replace(prompt, tokens=tokens, overlap=overlap)
    return healed


def _read(
    model: InferenceModel, before: tuple[int, ...], cover: _Cover, state: State | None
) -> tuple[np.ndarray, State]:
    """Compute the probabilities (V,) of the token after a cover.

    Only the state after the tokens before all covers is kept: a state of a large model takes more
    memory than a cover takes time to be read again.

    Args:
        model: in evaluation mode.
        before: the tokens before the end of the prompt.
        cover: of that end.
        state: after `before`; None if it is not read yet.

    Returns:
        The probabilities, and the state after `before`.
    """
    if state is None:
        logits, state = prefill(model, [before[-CONTEXT:]])
    if cover.tokens:
        kept = state
        logits, _ = prefill(model, [cover.tokens], lambda _: kept.copy(), [0])
    log_probs = require_numbers(logits if model.normalised else normalise(logits))
    return np.exp(log_probs[0].astype(np.float64)), state


def _path(trie: Trie, raw: bytes) -> list[TrieNode]:
    """List the root of a trie and the nodes that bytes lead to, as far as there are any."""
    path = [trie.root]
    for byte in raw:
        if (node := path[-1].child(byte, trie)) is None:
            break
        path.append(node)
    return path


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
    """Sort the bytes of all tokens: faster than their trie, which most prompts do not need."""
    return sorted(tokenizer.token_bytes)


def _next(tokens: list[bytes], end: bytes) -> list[bytes]:
    """List the first of the sorted tokens after `end`, if there is one."""
    at = bisect.bisect_right(tokens, end)
    return tokens[at : at + 1]


def _begins_character(byte: int) -> bool:
    """Check whether a byte of UTF-8 is the first of a character."""
    return byte & 0xC0 != 0x80
