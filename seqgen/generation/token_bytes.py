"""What each token adds to a text, in bytes; and tokens without text, which end it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from seqgen.generation.backward import BackwardDecoder
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.sentencepiece import ESCAPE, SentencepieceTokenizer


def end_and_dead_end(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return two tokens without text: for the end of a text, and for one that cannot go on."""
    reserved = [i for i in tokenizer.special_ids if i != tokenizer.unk_id]
    end = tokenizer.eos_id if tokenizer.eos_id in reserved else reserved[0]
    return end, next(i for i in reserved if i != end)


def bytes_within_and_first(
    tokenizer: Tokenizer, excluded: Collection[int | None], backward: bool
) -> list[dict[int, bytes]]:
    """Return the bytes of each token but those excluded, within a line and at its beginning."""
    known = [i for i in range(tokenizer.vocab_size) if i not in excluded]
    inside = next((i for i in known if tokenizer.decode([i]).strip()), known[0])
    return [dict(_bytes(tokenizer, known, past, backward)) for past in ((inside,), ())]


def _bytes(
    tokenizer: Tokenizer, ids: list[int], history: tuple[int, ...], backward: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield tokens and the bytes that each adds to a text after the tokens of `history`."""
    escapes = isinstance(tokenizer, SentencepieceTokenizer) and tokenizer.lossless
    for token in ids:
        raw = tokenizer.text_bytes(np.array([token]))
        if escapes and ESCAPE.encode() in raw:
            continue  # it depends on the next token what it stands for
        if backward:
            text = BackwardDecoder(tokenizer, history).push(token)[::-1]
        else:
            text = tokenizer.decoder(history).push(token)
        # Bytes of part of a character are no text yet, or one that stands for what is missing.
        yield token, text.encode() if text and "\ufffd" not in text else raw
