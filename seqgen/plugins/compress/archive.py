"""Lossless compression with a model: a range coder spends -log2 p bits on each token.

A file is a header, the words of the range coder of the `constriction` library, and a checksum of
both. Both sides step through the text token by token, so that both compute the same predictions.
These become integers by integer arithmetic alone: under an n-gram model, whose tables are only
added up, a file decodes on every machine. The products of a network are rounded in another way by
another build; its file says what it was made with, and each block ends with a checksum of its text.

    file      MAGIC, length of the contents, contents, CRC-32 of all of these in 4 bytes
    contents  flags, 6 bytes of the model's digest, number of tokens, what made it (its length in a
              byte, UTF-8) unless PORTABLE, 32-bit words of the coder

Lengths and numbers are in 7 bits a byte, the lowest first, and words and checksums in little
endian. A file of the first format has `FIRST_MAGIC`, and then the contents alone.

With `adapt`, both sides also count which tokens follow which in the file, and mix these counts with
the model: a few sums, products and quotients of single numbers, which are the same everywhere too.
Networks, and mixtures of them with n-gram models, also learn from the file by dynamic evaluation,
in one thread, so that both sides add up in one order.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from math import floor, isqrt
from typing import Any

import numpy as np

from seqgen import __version__
from seqgen.engines.native.library import library
from seqgen.engines.ops import without_gradients
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.arrays import ArrayModel
from seqgen.models.ngram.arrays import NGramArrays
from seqgen.packages import require_packages
from seqgen.settings import require
from seqgen.settings.filters import AdaptiveScoring
from seqgen.settings.scoring import Adaptive
from seqgen.store.cache import processor
from seqgen.store.loaded import LoadedModel

MAGIC, FIRST_MAGIC = b"\x93SGC", b"\x93SG1"
CHECKSUM_BYTES = 4
# The most bytes of a number: 63 bits.
NUMBER_BYTES = 9
# Bits of the flags: the last line has no newline, there is no line that says what made it, the
# file's own counts are mixed in, and the model learns from the file.
OPEN, PORTABLE, ADAPTS, LEARNS = 1, 2, 4, 8
DIGEST_BYTES = 6
# Tokens of a block, which is written once its checksum is right.
BLOCK = 1 << 16
# Probabilities are rounded to so many steps a factor of two, and are 0 below 2^-40 of the largest.
# The coder, which has 24 bits, gives these its smallest probability.
STEPS, LEAST = 4096, 40
# The last length of an escape that is written at once: more follows.
LONGEST = 255
# Of the file's own counts: the numbers of last tokens after which it counts, the most contexts, and
# the most tokens seen after one that its weight still depends on.
CONTEXTS, MOST_CONTEXTS, MOST_SEEN = (6, 4, 2), 1 << 20, 8
# Its weight before anything is known, as if so many tokens had been predicted by the counts and by
# the model.
WON, LOST = 1.0, 3.0
CUT = "the file is damaged: it ends in its header"
# What mixed probabilities are rounded down to.
SCALE = 2.0**LEAST


def _powers() -> np.ndarray:
    """Tabulate 2^(LEAST - i / STEPS) for all i below STEPS, rounded down, without using floats."""
    scale = 128
    root = 1 << (scale - 1)
    for _ in range(STEPS.bit_length() - 1):
        root = isqrt(root << scale)
    powers, value = [], 1 << scale
    for _ in range(STEPS):
        powers.append(value >> (scale - LEAST))
        value = value * root >> scale
    return np.array(powers)


POWERS = _powers()


def weights_of(logits: np.ndarray) -> np.ndarray:
    """Convert logits (V,) to integer weights (V,) proportional to the probabilities.

    What floats do here, one subtraction, one product and a rounding, is the same everywhere.
    """
    wide = logits.astype(np.float64)
    steps = np.rint((wide.max() - wide) * (STEPS / np.log(2)))
    steps = np.minimum(steps, (LEAST + 1) * STEPS).astype(np.int64)
    return (POWERS[steps % STEPS] >> steps // STEPS).astype(np.float64)


class Adaptation:
    """Adaptive context model: counts of what followed the same recent tokens in this file.

    Of the contexts of `CONTEXTS` tokens it takes the longest that it has seen. Its counts c(w) of n
    tokens are mixed with the model, p(w) = s c(w) / n + (1 - s) p_model(w). The weight s is learned
    for each length and each n, by the share of the probability that the counts had of each token
    that came.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], dict[int, int]] = {}
        self._past: tuple[int, ...] = ()
        self._trust: dict[tuple[int, int], list[float]] = {}
        # Of the prediction that was asked for last: the counts' and the model's part of each token.
        self._parts: Callable[[int], tuple[float, float]] | None = None

    def mixed(self, weights: np.ndarray) -> np.ndarray:
        """Mix the model's integer weights (V,) of `weights_of` with the file's own counts."""
        for size in CONTEXTS:
            counts = self._after.get(self._past[-size:]) if len(self._past) >= size else None
            if counts is not None:
                break
        else:
            self._parts = None
            return weights
        seen = sum(counts.values())
        self._state = size, min(seen, MOST_SEEN)
        won, lost = self._trust.get(self._state, (WON, LOST))
        own = won / (won + lost) * SCALE / seen
        model = lost / (won + lost) * SCALE / int(weights.astype(np.int64).sum())
        self._parts = lambda token: (own * counts.get(token, 0), model * float(weights[token]))
        mixed = np.floor(weights * model)
        for token, count in counts.items():
            mixed[token] += floor(own * count)
        return mixed

    def read(self, token: int) -> None:
        """Count a token, and update the mixture weight by how well it was predicted."""
        if self._parts is not None:
            own, model = self._parts(token)
            share = own / (own + model) if own + model else 0.5
            won, lost = self._trust.get(self._state, (WON, LOST))
            self._trust[self._state] = [won + share, lost + 1 - share]
        for size in CONTEXTS:
            context = self._past[-size:]
            known = context in self._after
            if len(context) == size and (known or len(self._after) < MOST_CONTEXTS):
                counts = self._after.setdefault(context, {})
                counts[token] = counts.get(token, 0) + 1
        self._past = (*self._past, token)[-CONTEXTS[0] :]


class _Predictions:
    """Distributions for the range coder: next token, and escaped bytes for unknown text.

    Args:
        loaded: the model.
        flags: `ADAPTS` mixes in the file's own counts; `LEARNS` lets the model learn, as a torch
            module.

    Attributes:
        escape: the symbol before bytes: the unknown token, or one more for a model without.
    """

    def __init__(self, loaded: LoadedModel, flags: int) -> None:
        import constriction

        self._adaptation = Adaptation() if flags & ADAPTS else None

        self._categorical = constriction.stream.model.Categorical
        self.byte = constriction.stream.model.Uniform(256)
        self._model, self._framing = loaded.model, loaded.framing
        size, unknown = loaded.model.vocab_size, loaded.tokenizer.unk_id
        self._more = [] if unknown is not None else [0.0]
        self.escape = size if unknown is None else unknown
        self._known = size
        self._learning = _learning(loaded) if flags & LEARNS else None
        lengths = np.arange(1, LONGEST + 2)
        self._lengths = 2.0**20 // (lengths * (lengths + 1))
        if self._learning is not None:
            self._logits = next(self._learning)
        else:
            self._first = self._model.step([self._framing.start], self._model.start(1))
            self._restart()

    def _restart(self) -> None:
        (self._logits,), state = self._first
        self._state = state.copy()

    @property
    def token(self) -> Any:
        """Distribution of the next token."""
        weights = np.append(weights_of(self._logits), self._more)
        if self._adaptation is not None:
            weights = self._adaptation.mixed(weights)
        return self._categorical(weights, perfect=False, lazy=True)

    def read(self, token: int) -> None:
        """Advance past a token; at the end of a document, restart the model."""
        if self._adaptation is not None:
            self._adaptation.read(token)
        if token == self._framing.end:
            self._restart()
        elif token >= self._known:
            pass
        elif self._learning is not None:
            self._logits = self._learning.send(token)
        else:
            (self._logits,), self._state = self._model.step([token], self._state)

    @property
    def length(self) -> Any:
        """Distribution of the length of an escape, minus 1."""
        return self._categorical(self._lengths, perfect=False, lazy=True)

    def read_length(self, length: int) -> None:
        """Raise the probability of an escape length that was seen."""
        self._lengths[length] += 2.0**18


@dataclass(frozen=True)
class Compressed:
    """Result of a compression: the file, its number of tokens, and of escaped bytes.

    Attributes:
        content: the file.
        tokens: how many were coded.
        escaped: bytes that the model has no token for.
    """

    content: bytes
    tokens: int
    escaped: int


def require_lossless(loaded: LoadedModel) -> None:
    """Raise an error for a model that cannot encode every text.

    Raises:
        UsageError: it reads more than a text, or backward, or its tokens lose something.
        SeqgenError: constriction is not installed.
    """
    require_packages("seqgen compress", "constriction")
    name = loaded.stored.name
    loaded.conditioning.require_nothing("compression")
    require(not loaded.backward, f"{name} reads backward, and compression reads forward")
    lossless = loaded.tokenizer.lossless
    require(lossless, f"{name} cannot give a text back: {loaded.tokenizer.kind} tokens lose spaces")


def learning_by(loaded: LoadedModel) -> AdaptiveScoring | None:
    """Return the options by which a model can learn from the file; None if it cannot."""
    for group in Adaptive().groups:
        options = type(group).default()
        with contextlib.suppress(UsageError):
            options.check_model(loaded, loaded.data.documents)
            return options
    return None


def was_learning(content: bytes) -> bool:
    """Check whether the model that made a file learned from it.

    Raises:
        SeqgenError: it is no such file, or it is damaged.
    """
    return bool(_contents(content)[:1] and _contents(content)[0] & LEARNS)


def _learning(loaded: LoadedModel) -> Generator[np.ndarray, int]:
    """Yield the logits (V,) of each next token, and receive it by `send`; on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from learning_by(loaded).predict(loaded)
    finally:
        torch.set_num_threads(threads)


@without_gradients
def compress(loaded: LoadedModel, raw: bytes, adapt: bool = False) -> Compressed:
    """Compress arbitrary bytes with a model.

    Args:
        loaded: the model.
        raw: the bytes.
        adapt: learn from the file while it is coded; see `Adaptation`. A network or a mixture
            that is loaded as a torch module learns by dynamic evaluation, too.

    Raises:
        UsageError: see `require_lossless`.
    """
    require_lossless(loaded)
    import constriction

    has_end = loaded.framing.end is not None
    flags = OPEN * (has_end and not raw.endswith(b"\n")) + ADAPTS * adapt
    flags |= PORTABLE * isinstance(loaded.model, NGramArrays)
    flags |= LEARNS * (adapt and learning_by(loaded) is not None)
    predictions, encoder = _Predictions(loaded, flags), constriction.stream.queue.RangeEncoder()
    tokens, escapes = _tokens_of(loaded, raw, predictions.escape)
    coming, at, whole = iter(escapes), 0, raw + b"\n" * (flags & OPEN)
    for first in range(0, len(tokens), BLOCK):
        block, unknown = tokens[first : first + BLOCK], []
        for token in block:
            encoder.encode(token, predictions.token)
            predictions.read(token)
            if token == predictions.escape:
                unknown.append(next(coming))
                _encode_escape(encoder, predictions, unknown[-1])
        text = _text_of(loaded, block, unknown, predictions.escape)
        if text != whole[at : at + len(text)]:
            raise SeqgenError(f"the tokens of {loaded.stored.name} do not give this text back")
        at += len(text)
        _encode_bytes(encoder, predictions, _checksum(text, flags))
    contents = bytes([flags]) + _digest(loaded) + _number(len(tokens))
    if not flags & PORTABLE:
        made_with = _build(loaded).encode()
        contents += bytes([len(made_with)]) + made_with
    contents += encoder.get_compressed().astype("<u4").tobytes()
    file = MAGIC + _number(len(contents)) + contents
    return Compressed(file + _checksum(file), len(tokens), sum(map(len, escapes)))


@without_gradients
def decompress(loaded: LoadedModel, content: bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes, block by block, after verifying each checksum.

    Raises:
        UsageError: see `require_lossless`.
        SeqgenError: it is no such file, was made by another model, is damaged, or the model's
            predictions are not the same here as where it was made.
    """
    require_lossless(loaded)
    import constriction

    contents = _contents(content)
    flags, count, made_with, coded = _header(loaded, contents)
    if flags & PORTABLE:
        why = "it is damaged"
    elif made_with == _build(loaded):
        why = "it is damaged, or was made with other settings of NumPy or PyTorch"
    else:
        why = f"it was made with {made_with}, and this is {_build(loaded)}"
    problem = SeqgenError(f"the file cannot be decompressed here: {why}")
    if flags & LEARNS and learning_by(loaded) is None:
        raise problem
    predictions = _Predictions(loaded, flags)
    if len(coded) % 4 or bool(coded) != bool(count):
        raise problem
    decoder = constriction.stream.queue.RangeDecoder(np.frombuffer(coded, "<u4").astype(np.uint32))
    for first in range(0, count, BLOCK):
        last = first + BLOCK >= count
        try:
            block, unknown = [], []
            for _ in range(first, min(count, first + BLOCK)):
                token = int(decoder.decode(predictions.token))
                predictions.read(token)
                block.append(token)
                if token == predictions.escape:
                    unknown.append(_decode_escape(decoder, predictions, len(coded)))
            checksum = decoder.decode(predictions.byte, 4).astype(np.uint8).tobytes()
        except (AssertionError, ValueError):  # no text is coded so
            raise problem from None
        text = _text_of(loaded, block, unknown, predictions.escape)
        if _checksum(text, flags) != checksum or (last and not decoder.maybe_exhausted()):
            raise problem
        yield text[:-1] if last and flags & OPEN else text


def _digest(loaded: LoadedModel) -> bytes:
    return bytes.fromhex(loaded.stored.digest)[:DIGEST_BYTES]


def _build(loaded: LoadedModel) -> str:
    """Describe the library versions and the processor on which a network's rounding depends."""
    engine = f"numpy {np.__version__}"
    if not isinstance(loaded.model, ArrayModel):
        import torch

        engine = f"torch {torch.__version__}"
    if (kernels := library()) is not None:
        engine += f"+{kernels.mark():x}"
    return f"{__version__}, {engine}, {processor()[:18].strip()}"


def _contents(file: bytes) -> bytes:
    """Check the signature and checksum of a compressed file; return its contents.

    Raises:
        SeqgenError: it is no such file, was cut short, or is damaged.
    """
    if file.startswith(FIRST_MAGIC):
        return file[len(FIRST_MAGIC) :]
    if not file.startswith(MAGIC):
        raise SeqgenError("this is not a file that seqgen compress has made")
    length, at = _read_number(file, len(MAGIC))
    expected = at + length + CHECKSUM_BYTES
    if len(file) < expected:
        raise SeqgenError(
            f"the file is damaged: it has {len(file):,} bytes of {expected:,}; copy it again"
        )
    if len(file) > expected or _checksum(file[:-CHECKSUM_BYTES]) != file[-CHECKSUM_BYTES:]:
        raise SeqgenError("the file is damaged: its checksum is wrong; copy it again")
    return file[at:-CHECKSUM_BYTES]


def _header(loaded: LoadedModel, contents: bytes) -> tuple[int, int, str, bytes]:
    """Parse a file's flags, number of tokens, build description, and range coder data.

    Raises:
        SeqgenError: it ends in its header, or is another model's.
    """
    flags, digest = contents[:1], contents[1 : 1 + DIGEST_BYTES]
    if len(digest) == DIGEST_BYTES and digest != _digest(loaded):
        raise SeqgenError(
            f"the file was made by another model than {loaded.stored.name}: its digest begins "
            f"with {digest.hex()}"
        )
    count, at = _read_number(contents, 1 + DIGEST_BYTES)
    if flags[0] & PORTABLE:
        return flags[0], count, "", contents[at:]
    end = at + 1 + sum(contents[at : at + 1])
    if end > len(contents) or at == len(contents):
        raise SeqgenError(CUT)
    return flags[0], count, contents[at + 1 : end].decode("utf-8", "replace"), contents[end:]


def _checksum(raw: bytes, start: int = 0) -> bytes:
    return zlib.crc32(raw, start).to_bytes(CHECKSUM_BYTES, "little")


def _number(value: int) -> bytes:
    """Encode an integer with 7 bits per byte, lowest bits first (a varint)."""
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _read_number(raw: bytes, at: int) -> tuple[int, int]:
    """Decode an integer at an offset; return it and the offset after it.

    Raises:
        SeqgenError: it does not end.
    """
    value = 0
    for place, byte in enumerate(raw[at : at + NUMBER_BYTES]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise SeqgenError(CUT)


def _encode_bytes(encoder: Any, predictions: _Predictions, raw: bytes) -> None:
    encoder.encode(np.frombuffer(raw, np.uint8).astype(np.int32), predictions.byte)


def _encode_escape(encoder: Any, predictions: _Predictions, raw: bytes) -> None:
    """Encode the length of escaped bytes, then the bytes."""
    left = len(raw) - 1
    while True:
        length = min(left, LONGEST)
        encoder.encode(length, predictions.length)
        predictions.read_length(length)
        left -= LONGEST
        if length < LONGEST:
            break
    _encode_bytes(encoder, predictions, raw)


def _decode_escape(decoder: Any, predictions: _Predictions, most: int) -> bytes:
    """Decode the bytes of an escape.

    Raises:
        ValueError: there are more than `most`, those of the file.
    """
    size, length = 1, LONGEST
    while length == LONGEST:
        if size > most:
            raise ValueError
        length = int(decoder.decode(predictions.length))
        predictions.read_length(length)
        size += length
    return decoder.decode(predictions.byte, size).astype(np.uint8).tobytes()


def _tokens_of(loaded: LoadedModel, raw: bytes, escape: int) -> tuple[list[int], list[bytes]]:
    """Tokenize a text with its document ends; also return the escaped bytes."""
    tokens: list[int] = []
    escapes: list[bytes] = []
    end = loaded.framing.end
    documents = [raw] if end is None else raw.split(b"\n")
    if end is not None and not documents[-1]:
        documents.pop()
    for document in documents:
        for ids, unknown in _parts_of(loaded, document, escape):
            tokens += ids
            escapes += unknown
        if end is not None:
            tokens.append(end)
    return tokens, escapes


# What Python makes of bytes that are not UTF-8.
INVALID = re.compile("([\udc80-\udcff]+)")


def _parts_of(
    loaded: LoadedModel, raw: bytes, escape: int
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Tokenize a document part by part; yield tokens and escaped bytes of each part."""
    tokenizer = loaded.tokenizer
    try:  # bytes that are tokens need not be UTF-8
        parts = [(raw, tokenizer.encode_utf8(raw))]
    except UnicodeDecodeError:
        texts = filter(None, INVALID.split(raw.decode("utf-8", "surrogateescape")))
        parts = (
            (
                text.encode("utf-8", "surrogateescape"),
                None if INVALID.match(text) else tokenizer.encode(text),
            )
            for text in texts
        )
    for part, ids in parts:
        if ids is None:
            yield [escape], [part]
            continue
        tokens, unknown = ids.tolist(), []
        places = np.flatnonzero(ids == escape)
        if places.size:
            ends = [0, *tokenizer.byte_ends(part.decode()).tolist()]
            unknown = [part[ends[place] : ends[place + 1]] for place in places.tolist()]
        if _text_of(loaded, tokens, unknown, escape) == part:
            yield tokens, unknown
        else:  # the tokens of this part lose something
            yield [escape], [part]


def _text_of(loaded: LoadedModel, tokens: list[int], escapes: list[bytes], escape: int) -> bytes:
    """Decode tokens to bytes, inserting the escaped bytes."""
    ids, end = np.array(tokens, np.int64), loaded.framing.end
    special = [] if end is None else [end]
    coming = iter(escapes)
    pieces, begin = [], 0
    for at in np.flatnonzero(np.isin(ids, [escape, *special])).tolist():
        pieces.append(loaded.tokenizer.text_bytes(ids[begin:at]))
        pieces.append(b"\n" if ids[at] == end else next(coming))
        begin = at + 1
    pieces.append(loaded.tokenizer.text_bytes(ids[begin:]))
    return b"".join(pieces)
