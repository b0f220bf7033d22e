"""Prompts that end inside a token or a character: the text's first token begins in the prompt."""

from __future__ import annotations

import bisect
import codecs
import functools
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqgen.engines.ops import without_gradients
from seqgen.errors import SeqgenError
from seqgen.generation.processors import IMPOSSIBLE, PromptOverlap, written
from seqgen.generation.prompts import Prompt
from seqgen.generation.text_batch import prefill
from seqgen.models.distributions import normalise, require_numbers
from seqgen.plugins.bytes.view import segmentation_of
from seqgen.text.tokenizers import Decoder

if TYPE_CHECKING:
    from seqgen.models.inference import InferenceModel
    from seqgen.models.state import State
    from seqgen.plugins.bytes.covers import Segmentation
    from seqgen.plugins.bytes.trie import Trie, TrieNode
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.tokenizers import Tokenizer

# Healing splits at least the last REACH bytes of a prompt anew. To compare the ways of splitting
# them, the model reads the CONTEXT tokens before.
REACH, CONTEXT = 16, 128
# Largest number of bytes of a character in UTF-8.
MOST_OF_CHARACTER = 4
# How many of the most probable first tokens are checked to be the tokenizer's own.
CHECKED = 32


@dataclass(frozen=True)
class ContinuesPrompt:
    """Allow at the beginning of a text only tokens that fit the end of the prompt.

    The first one begins with that end. If it is inside a character, the character is completed.
    """

    name: ClassVar[str] = "heal"

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        log_probs = log_probs.copy()
        for row, tokens in enumerate(history):
            overlap = getattr(tokens, "overlap", None)
            allowed = None if overlap is None else overlap.allowed(written(tokens))
            if allowed is not None:
                kept = log_probs[row, allowed]
                # What the model excludes altogether is equally probable.
                kept = np.zeros_like(kept) if kept.max() == IMPOSSIBLE else kept
                log_probs[row] = IMPOSSIBLE
                log_probs[row, allowed] = kept
        return normalise(log_probs)


@dataclass(frozen=True, eq=False)
class HealedEnd(PromptOverlap):
    """See `PromptOverlap`.

    Attributes:
        tokens: (N,), those that may be the first; None for all.
        pending: the last tokens of the prompt that are decoded with the text, because they hold
            the first bytes of the character that is cut.
        cut: the first bytes of that character, if the prompt ends inside one.
        segmentation: of the tokens.
    """

    tokens: np.ndarray | None
    pending: tuple[int, ...]
    cut: bytes
    segmentation: Segmentation

    def allowed(self, generated: Sequence[int]) -> np.ndarray | None:
        """Return the tokens that may follow those generated so far; None for all."""
        if self.tokens is not None and not len(generated):
            return self.tokens
        if not self.cut or len(generated) > MOST_OF_CHARACTER:
            return None
        texts = self.segmentation.texts
        raw = b"".join(texts[token] for token in (*self.pending, *generated))
        begun = raw[len(self.text.encode()) :]
        missing = _character_size(begun[0]) - len(begun)
        if missing <= 0:
            return None
        fits = [
            token
            for token, text in enumerate(texts)
            if text and not _begins_character(text[0]) and _is_utf8(begun + text[:missing])
        ]
        return np.array(fits) if fits else None

    def decoder(self, tokenizer: Tokenizer, history: Sequence[int]) -> Decoder:
        size = len(history) - len(self.pending)
        decoder = SkippingDecoder(tokenizer.decoder(history[:size]), len(self.text))
        for token in self.pending:
            decoder.push(token)
        return decoder


class SkippingDecoder(Decoder):
    """Streaming decoder that leaves the first characters out.

    Args:
        decoder: of the tokens.
        left: how many characters are left out.
    """

    def __init__(self, decoder: Decoder, left: int) -> None:
        self._decoder, self._left = decoder, left

    def push(self, token: int) -> str:
        return self._rest(self._decoder.push(token))

    def flush(self) -> str:
        return self._rest(self._decoder.flush())

    def _rest(self, text: str) -> str:
        skipped, self._left = self._left, max(0, self._left - len(text))
        return text[skipped:]


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
def heal(loaded: LoadedModel, prompt: Prompt, keep_tokens: bool = False) -> Prompt:
    """Split the end of a prompt in the way that is most probable before any continuation.

    If some bytes are left after the tokens of the most probable cover of the prompt, the prompt
    gets these tokens, and the first token of the text begins with these bytes. Otherwise it stays
    as it is, unless it ends inside a character: it then gets the tokens of the cover.

    Args:
        loaded: a model that can be seen byte by byte.
        prompt: with a text, or the first bytes of a character.
        keep_tokens: keep the tokens of its whole characters as they are.

    Raises:
        SeqgenError: the model has no token for the character at which the prompt ends.
    """
    cut, raw = (len(prompt.tokens), b"") if keep_tokens else _end_of(loaded.tokenizer, prompt)
    before = prompt.tokens[:cut] or (loaded.framing.start,)
    cover, first = _most_probable_cover(loaded, before, raw + prompt.cut, bool(prompt.cut))
    if not prompt.cut and first is None:
        return prompt
    if cover is None:
        raise SeqgenError(
            f"prompt {prompt.index} ends inside a character, and no token of {loaded.stored.name} "
            "continues it: its bytes are all known to -m NAME:bytes"
        )
    sizes = [len(loaded.tokenizer.token_bytes[token]) for token in cover.tokens]
    kept = _count_whole(raw, sizes)
    text = raw[sum(sizes[:kept]) :].decode()
    tokens = (*prompt.tokens[:cut], *cover.tokens) or before
    segmentation, pending = segmentation_of(loaded.tokenizer, False), cover.tokens[kept:]
    overlap = HealedEnd(text, ContinuesPrompt(), first, pending, prompt.cut, segmentation)
    return replace(prompt, tokens=tokens, overlap=overlap, cut=b"")


def _most_probable_cover(
    loaded: LoadedModel, before: tuple[int, ...], raw: bytes, within: bool
) -> tuple[_Cover | None, np.ndarray | None]:
    """Search for the most probable cover of the end of a prompt.

    The covers are searched in the order of the probability of their tokens, which is at least that
    of everything that comes after them: no cover that is still to be read can be more probable than
    the best one when the search ends.

    Args:
        loaded: the model.
        before: the tokens before that end.
        raw: its bytes.
        within: the next token may begin within a character.

    Returns:
        The cover, or None if the model has no tokens for these bytes; and the tokens that may come
        next, or None if the cover has no rest.
    """
    segmentation = segmentation_of(loaded.tokenizer, False)
    trie, texts, rank = segmentation.trie, segmentation.texts, itertools.count()
    waiting = [(-1.0, next(rank), _Cover(1.0, (), raw))]
    state: State | None = None
    best, found, first = 0.0, None, None
    while waiting and -waiting[0][0] > best:
        cover = heapq.heappop(waiting)[2]
        if not cover.rest:
            best, found, first = cover.mass, cover, None
            continue
        probs, state = _read(loaded.model, before, cover, state)
        path = _path(trie, cover.rest)
        read = segmentation.path_of((*before[-REACH:], *cover.tokens))
        for size, node in enumerate(path[1:], start=1):
            for token in trie.ids[node.begin : node.longer].tolist():
                if segmentation.is_own(read, token, texts[token]):
                    mass, tokens = cover.mass * probs[token], (*cover.tokens, token)
                    longer = _Cover(mass, tokens, cover.rest[size:])
                    heapq.heappush(waiting, (-mass, next(rank), longer))
        if len(path) <= len(cover.rest) or not (within or _begins_character(cover.rest[0])):
            continue
        after = trie.ids[path[-1].longer : path[-1].end]
        if cover.mass * float(probs[after].sum()) <= best:
            continue
        likely = after[np.argsort(-probs[after], kind="stable")[:CHECKED]].tolist()
        foreign = [token for token in likely if not segmentation.is_own(read, token, texts[token])]
        after = after[~np.isin(after, foreign)]
        mass = cover.mass * float(probs[after].sum())
        if mass > best:
            best, found, first = mass, cover, after
    return found, first


def _count_whole(raw: bytes, sizes: Sequence[int]) -> int:
    """Count the first tokens that together have whole characters.

    Args:
        raw: whole characters; the tokens may go on after them.
        sizes: how many bytes each token has.
    """
    ends = [0, *itertools.accumulate(sizes)]
    inside = [(at, end) for at, end in enumerate(ends) if end <= len(raw)]
    return max(at for at, end in inside if end == len(raw) or _begins_character(raw[end]))


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
    while cut and (size < REACH or not _begins_character(raw[len(raw) - size])):
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


def _character_size(first: int) -> int:
    """Return the number of bytes of a character of UTF-8, by its first one."""
    return 2 + (first >= 0xE0) + (first >= 0xF0) if first >= 0x80 else 1


def _is_utf8(raw: bytes) -> bool:
    """Check whether bytes are UTF-8, of which the last character may lack its end."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return False
    return True
