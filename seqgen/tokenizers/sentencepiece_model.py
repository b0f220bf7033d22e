"""sentencepiece model files: how one is trained without loss, what one does to a text, escapes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqgen.errors import SeqgenError, UsageError
from seqgen.hashing import uniforms
from seqgen.tokenizers.base import SPECIALS, line_blocks, segments
from seqgen.tokenizers.interruptible import run_interruptible

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# sentencepiece writes a space as U+2581. A real one is written as this escape and `_`, and a
# real escape (a control character that texts do not have) twice.
SPACE, ESCAPE = "\u2581", "\x10"
ESCAPED = {SPACE: ESCAPE + "_", ESCAPE: ESCAPE + ESCAPE}
_ESCAPES = re.compile(f"[{SPACE}{ESCAPE}]")
_ESCAPED = re.compile(f"{ESCAPE}[{ESCAPE}_]")
_ESCAPED_BYTES = re.compile(_ESCAPED.pattern.encode())
_BYTES_OF = {escaped.encode(): plain.encode() for plain, escaped in ESCAPED.items()}
# What ends right before a run of spaces, or right before or after a newline.
_SAFE = re.compile(r"\n|[^ \n](?=[ \n])|[ ](?=\n)")
# A vocabulary is learnt from at most so many characters: lines drawn from all of the text.
SAMPLE_CHARACTERS = 1 << 25
SAMPLE = 3  # the first word of the hash that draws them
ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


def escaped(text: str) -> str:
    """Return a text with its U+2581 and its escapes written so that they can be told apart."""
    return _ESCAPES.sub(lambda m: ESCAPED[m.group()], text)


def unescaped(raw: bytes) -> bytes:
    """Return the bytes that escaped ones were made from."""
    if ESCAPE.encode() not in raw:
        return raw
    return _ESCAPED_BYTES.sub(lambda m: _BYTES_OF[m.group()], raw)


def boundary(text: str, at: int) -> int:
    """Return the first place at or after `at` that no piece of any vocabulary crosses.

    That is before a run of spaces, and around a newline.
    """
    if at <= 0 or at >= len(text):
        return min(max(at, 0), len(text))
    match = _SAFE.search(text, at - 1)
    return match.end() if match else len(text)


class Normaliser(NamedTuple):
    """What a model does to a text before it cuts it, and how it was trained.

    Attributes:
        kind: the model's algorithm, as sentencepiece numbers them.
        byte_fallback: what has no piece becomes bytes.
        name: of the normalisation rule.
        rules: characters are rewritten.
        dummy_prefix: a space is put before the text.
        squeeze: runs of spaces become one, and those at the ends nothing.
        escape: spaces are written as U+2581.
        splits_words: no piece has a space after another character.
    """

    kind: str
    byte_fallback: bool
    name: str
    rules: bool
    dummy_prefix: bool
    squeeze: bool
    escape: bool
    splits_words: bool

    @property
    def lossless(self) -> bool:
        """Whether every text comes back as it was."""
        changes = self.rules or self.dummy_prefix or self.squeeze or not self.escape
        return self.byte_fallback and not changes


def read_normaliser(model: bytes) -> Normaliser:
    """Read a model's settings from its bytes (sentencepiece_model.proto).

    Raises:
        ValueError: they are not a model.
    """
    top = dict(_fields(model))
    trainer, rules = dict(_fields(top.get(2, b""))), dict(_fields(top.get(3, b"")))
    if 1 not in top:
        raise ValueError("not a sentencepiece model")
    return Normaliser(
        kind=ALGORITHMS.get(trainer.get(3, 1), "unknown"),
        byte_fallback=bool(trainer.get(35, 0)),
        name=bytes(rules.get(1, b"")).decode("utf-8", "replace") or "none",
        rules=bool(rules.get(2)),
        dummy_prefix=bool(rules.get(3, 1)),
        squeeze=bool(rules.get(4, 1)),
        escape=bool(rules.get(5, 1)) and not trainer.get(24, 0),
        splits_words=bool(trainer.get(22, 1)),
    )


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer: number, and an int or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError("not a sentencepiece model")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) if kind != 2 else varint()
        if size is None or at + size > len(message):
            raise ValueError("not a sentencepiece model")
        yield key >> 3, message[at : at + size]
        at += size


def load_processor(model: bytes) -> SentencePieceProcessor:
    """Return what encodes by a model.

    Raises:
        ValueError: the bytes are no model.
    """
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise ValueError("not a sentencepiece model") from None


def train_model(chunks: Iterable[str], algorithm: str, vocab_size: int) -> bytes:
    """Train a vocabulary that loses nothing; on a draw of the lines where the text is long.

    Args:
        chunks: the text, in pieces cut anywhere.
        algorithm: "bpe" or "unigram".
        vocab_size: how many pieces; fewer where the text has no more.

    Returns:
        The bytes of a `.model` file.

    Raises:
        UsageError: the vocabulary is too small for the text.
    """
    from sentencepiece import SentencePieceTrainer

    written = io.BytesIO()
    learnt_from = list(sentences(chunks))  # the library would swallow what reading them raises

    def learn() -> None:
        SentencePieceTrainer.train(
            sentence_iterator=iter(learnt_from),
            model_writer=written,
            model_type=algorithm,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=True,
            # As bytes, a space would come back as U+2581: it is always a piece.
            required_chars=SPACE,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            user_defined_symbols=["\n"],
            max_sentence_length=1 << 20,
            minloglevel=2,
            **{f"{name.strip('<>')}_id": i for i, name in enumerate(SPECIALS)},
            **{f"{name.strip('<>')}_piece": name for name in SPECIALS},
        )

    try:
        run_interruptible(learn)
    except (RuntimeError, OSError) as error:
        raise _training_problem(str(error), vocab_size) from None
    return written.getvalue()


def sentences(chunks: Iterable[str]) -> Iterator[str]:
    """Yield what a vocabulary is learnt from: lines, escaped; all of them, or a draw.

    A line is kept while its own uniform number is below a share that is halved whenever what is
    kept grows too large, so that the draw is even over a text of any length, and always the same.
    """
    kept: list[tuple[float, str]] = []
    fraction, size, number = 1.0, 0, 0
    for block in line_blocks(chunks, boundary):
        lines = [part for line in block.split("\n") for part in _short(line) if part]
        draws = uniforms(SAMPLE, number + np.arange(len(lines)))
        number += len(lines)
        for draw, line in zip(draws.tolist(), lines, strict=True):
            if draw < fraction:
                kept.append((draw, line))
                size += len(line)
        while size > SAMPLE_CHARACTERS:
            fraction /= 2
            kept = [(draw, line) for draw, line in kept if draw < fraction]
            size = sum(len(line) for _, line in kept)
    for _, line in kept:
        # The trainer takes no NUL: it is always a byte piece.
        yield escaped(line).replace("\0", "")
    yield " "  # the trainer wants something to learn, however little there is


def _short(line: str) -> list[str]:
    """Cut a line that is too long for the trainer."""
    return segments(line, boundary, 1 << 14)


def _training_problem(message: str, vocab_size: int) -> SeqgenError:
    needed = re.search(r"required_chars\. (\d+) vs (\d+)", message)
    if needed:
        return UsageError(
            f"vocab_size {vocab_size} is too small: the specials, 256 bytes and the characters "
            f"of this text need {needed.group(2)}"
        )
    return SeqgenError(f"sentencepiece cannot learn a vocabulary: {' '.join(message.split())}")
