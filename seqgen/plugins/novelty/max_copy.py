"""Token filter against copying: no N consecutive characters of a known text."""

from __future__ import annotations

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from seqgen.generation.processors import IMPOSSIBLE, normalise_or_end, written
from seqgen.generation.token_bytes import bytes_within_and_first
from seqgen.plugins.novelty.novelty import known_to
from seqgen.plugins.novelty.suffix_index import SuffixIndex
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel

# Ends of texts whose forbidden tokens are remembered.
MOST_REMEMBERED = 1000


def _decode(raw: bytes) -> tuple[str, bytes]:
    """Decode UTF-8 bytes; return the characters and the bytes of an incomplete last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    return decoder.decode(raw), decoder.getstate()[0]


class MaxCopy:
    """Filter that prevents `n` consecutive characters of the known text; prompts are exempt.

    Args:
        index: of the known text.
        n: characters.
        within: the bytes that each token adds to a line, None for one that adds none.
        first: those that it adds where a line begins.
        fresh_after: the tokens after which a line begins, as it does after none.
        dead_id: the token that ends a text that cannot go on; None to leave it no token.
    """

    name: ClassVar[str] = "max-copy"

    def __init__(
        self,
        index: SuffixIndex,
        n: int,
        within: Sequence[bytes | None],
        first: Sequence[bytes | None],
        fresh_after: Collection[int | None],
        dead_id: int | None,
    ) -> None:
        self.index, self.n, self.dead_id = index, n, dead_id
        self._bytes, self._fresh_after = {False: within, True: first}, fresh_after
        self._vocabularies: dict[tuple[bool, bytes], _Vocabulary] = {}
        self._removed: dict[tuple[bool, bytes, str], np.ndarray] = {}

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        kept = log_probs.copy()
        for row, tokens in enumerate(history):
            kept[row, self.removed(tokens)] = IMPOSSIBLE
        return normalise_or_end(kept, self.dead_id)

    def removed(self, tokens: Sequence[int]) -> np.ndarray:
        """Mark the tokens (V,) that would complete a copy after a row's tokens so far."""
        raw, fresh = self._end(tokens)
        text, pending = _decode(raw)
        key = (fresh, pending, text[max(0, len(text) - self.n + 1) :])
        if key not in self._removed:
            if len(self._removed) >= MOST_REMEMBERED:
                self._removed.clear()
            self._removed[key] = self._look_up(*key)
        return self._removed[key]

    def _end(self, tokens: Sequence[int]) -> tuple[bytes, bool]:
        """Collect the last bytes that a row has written, and whether a line begins after them."""
        begin = len(tokens) - len(written(tokens))
        pieces, size = [], 0
        for at in range(len(tokens) - 1, begin - 1, -1):
            piece = self._bytes[self._is_fresh(tokens, at)][tokens[at]] or b""
            pieces.append(piece)
            size += len(piece)
            if size >= 4 * self.n:
                break
        return b"".join(reversed(pieces)), self._is_fresh(tokens, len(tokens))

    def _is_fresh(self, tokens: Sequence[int], at: int) -> bool:
        return at == 0 or tokens[at - 1] in self._fresh_after

    def _look_up(self, fresh: bool, pending: bytes, text: str) -> np.ndarray:
        if (fresh, pending) not in self._vocabularies:
            pieces = self._bytes[fresh]
            whole = [None if piece is None else _decode(pending + piece)[0] for piece in pieces]
            self._vocabularies[fresh, pending] = _Vocabulary(self.index, self.n, whole)
        vocabulary = self._vocabularies[fresh, pending]
        removed = vocabulary.copies.copy()
        least = max(1, self.n - vocabulary.longest)
        for size in range(min(len(text), self.n - 1), least - 1, -1):
            end = text[len(text) - size :].encode()
            for prefix in self._that_follow(end, vocabulary.prefixes(self.n - size)):
                removed[vocabulary.tokens(prefix)] = True
        return removed

    def _that_follow(self, end: bytes, prefixes: Sequence[str]) -> list[str]:
        """Select the strings, of one length, that follow `end` in the known text.

        Args:
            end: in UTF-8.
            prefixes: in order. They and what follows are two ordered lists; each is searched for
                the next string of the other.
        """
        low, high = self.index.suffixes_with(end)
        if low == high or not prefixes:
            return []
        length, found, number = len(prefixes[0]), [], 0

        def following(at: int) -> str:
            raw = self.index.bytes_at(at + len(end), 4 * length)
            return raw.decode("utf-8", "ignore")[:length]

        order = self.index.order
        while low < high:
            text = following(order[low])
            number = bisect_left(prefixes, text, number)
            if number == len(prefixes):
                break
            if prefixes[number] == text:
                found.append(text)
                low = bisect_right(order, text, low, high, key=following)
            else:
                low = bisect_left(order, prefixes[number], low, high, key=following)
        return found


def max_copy(loaded: LoadedModel, n: int, dead_id: int | None) -> MaxCopy:
    """Create the filter against copying `n` characters of a model's training text.

    Args:
        loaded: the model.
        n: how many characters are a copy.
        dead_id: the token that ends a text that cannot go on; None to leave it no token.

    Raises:
        UsageError: the model writes from right to left.
        SeqgenError: the text that it was trained on is not known.
    """
    require(not loaded.backward, "--max-copy is for models that write from left to right")
    tokenizer = loaded.tokenizer
    within, first = (
        [table.get(i) for i in range(tokenizer.vocab_size)]
        for table in bytes_within_and_first(tokenizer, tokenizer.special_ids, False)
    )
    fresh_after = (tokenizer.newline_id, tokenizer.bos_id)
    return MaxCopy(known_to(loaded).index, n, within, first, fresh_after, dead_id)


class _Vocabulary:
    """Token texts indexed by prefix.

    Args:
        index: of the known text.
        n: characters that are a copy.
        texts: of the tokens, None for one that is no text.

    Attributes:
        longest: characters of the longest.
    """

    def __init__(self, index: SuffixIndex, n: int, texts: Sequence[str | None]) -> None:
        self._index, self._n, self._texts = index, n, texts
        self.longest = max((len(text) for text in texts if text), default=0)
        self._by_prefix: dict[int, dict[str, list[int]]] = {}

    @cached_property
    def copies(self) -> np.ndarray:
        """Mask of tokens (V,) whose own text contains a copy."""
        n = self._n
        return np.array(
            [
                text is not None
                and any(
                    self._index.first(text[at : at + n].encode()) is not None
                    for at in range(len(text) - n + 1)
                )
                for text in self._texts
            ]
        )

    def prefixes(self, length: int) -> list[str]:
        """List the distinct prefixes of `length` characters in order."""
        if length not in self._by_prefix:
            by_prefix: dict[str, list[int]] = {}
            for token, text in enumerate(self._texts):
                if text is not None and len(text) >= length:
                    by_prefix.setdefault(text[:length], []).append(token)
            self._by_prefix[length] = dict(sorted(by_prefix.items()))
        return list(self._by_prefix[length])

    def tokens(self, prefix: str) -> list[int]:
        """List the tokens that begin with a prefix."""
        return self._by_prefix[len(prefix)][prefix]
