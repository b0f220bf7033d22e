"""Bytes that each token adds to a text; textless tokens that end texts of a given form."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Container, Iterator
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError
from seqgen.generation.backward import BackwardDecoder
from seqgen.text.tokenizers.sentencepiece import ESCAPE, SentencepieceTokenizer

if TYPE_CHECKING:
    from seqgen.text.tokenizers import Tokenizer

# No character of UTF-8 has one of these bytes.
NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


@functools.lru_cache(maxsize=16)
def end_and_dead_end(tokenizer: Tokenizer) -> tuple[int, int]:
    """Choose two textless tokens: one ends a text, the other marks a dead end.

    A tokenizer from elsewhere may have one such token, as GPT-2's has, or none. The bytes of which
    no text consists, which tokenizers over bytes have as well, take the missing one's place.

    Raises:
        SeqgenError: it has neither.
    """
    reserved = dict.fromkeys(i for i in tokenizer.special_ids if i != tokenizer.unk_id)
    if tokenizer.eos_id in reserved:
        reserved = dict.fromkeys([tokenizer.eos_id, *reserved])
    unwritable = [*itertools.islice(itertools.chain(reserved, _unwritable(tokenizer, reserved)), 2)]
    if len(unwritable) < 2:
        raise SeqgenError(
            "the tokenizer has too few tokens without text to end texts of a given form: name an "
            "eos_token and a pad_token in its files"
        )
    return unwritable[0], unwritable[1]


def _unwritable(tokenizer: Tokenizer, reserved: Container[int]) -> Iterator[int]:
    """Yield the tokens whose bytes never occur in UTF-8."""
    for token, raw in enumerate(tokenizer.token_bytes):
        if token not in reserved and not NEVER_IN_UTF8.isdisjoint(raw):
            yield token


def bytes_within_and_first(
    tokenizer: Tokenizer, excluded: Collection[int | None], backward: bool
) -> list[dict[int, bytes]]:
    """Compute each token's bytes within a line and at its beginning, as two mappings."""
    known = [i for i in range(tokenizer.vocab_size) if i not in excluded]
    inside = next((i for i in known if tokenizer.decode([i]).strip()), known[0])
    return [dict(_bytes(tokenizer, known, past, backward)) for past in ((inside,), ())]


def _bytes(
    tokenizer: Tokenizer, ids: list[int], history: tuple[int, ...], backward: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield tokens with the bytes that each adds after the tokens of `history`."""
    escapes = isinstance(tokenizer, SentencepieceTokenizer) and tokenizer.lossless
    for token in ids:
        raw = tokenizer.token_bytes[token]
        if escapes and ESCAPE.encode() in raw:
            continue  # it depends on the next token what it stands for
        if backward:
            text = BackwardDecoder(tokenizer, history).push(token)[::-1]
        else:
            text = tokenizer.decoder(history).push(token)
        # Bytes of part of a character are no text yet, or one that stands for what is missing.
        yield token, text.encode() if text and "\ufffd" not in text else raw
