"""Subword tokenizers (BPE, unigram) by the sentencepiece library."""

from __future__ import annotations

import base64
import codecs
import io
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from seqgen.errors import SeqgenError, UsageError, reporting_unreadable
from seqgen.files import require_regular
from seqgen.hashing import uniforms
from seqgen.text.tokenizers.base import (
    SPECIALS,
    TABLE,
    Decoder,
    Tokenizer,
    cut_long_line,
    line_blocks,
)
from seqgen.text.tokenizers.interruptible import run_interruptible

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


def escape_text(text: str) -> str:
    """Escape U+2581 and the escape characters of a text, so that decoding is lossless."""
    return _ESCAPES.sub(lambda m: ESCAPED[m.group()], text)


def unescape_bytes(raw: bytes) -> bytes:
    """Undo `escape_text` on the bytes of a text."""
    if ESCAPE.encode() not in raw:
        return raw
    return _ESCAPED_BYTES.sub(lambda m: _BYTES_OF[m.group()], raw)


def line_boundary(text: str, at: int) -> int:
    """Find the first position at or after `at` that no piece of any vocabulary crosses.

    That is before a run of spaces, and around a newline.
    """
    if at <= 0 or at >= len(text):
        return min(max(at, 0), len(text))
    match = _SAFE.search(text, at - 1)
    return match.end() if match else len(text)


class Normaliser(NamedTuple):
    """A sentencepiece model's normalisation and training settings.

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
        """Whether decoding restores every text exactly."""
        changes = self.rules or self.dummy_prefix or self.squeeze or not self.escape
        return self.byte_fallback and not changes


def read_normaliser(model: bytes) -> Normaliser:
    """Parse the normalisation settings of a serialized model (sentencepiece_model.proto).

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


# Kinds of pieces (sentencepiece_model.proto), and of tokens in GGUF files.
NORMAL, UNKNOWN_PIECE, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
# Steps of the scores of a unigram model trained here.
PER_NAT = 16


class Subword(NamedTuple):
    """A piece of a sentencepiece model: its text, score and kind."""

    text: str
    score: float
    kind: int


def pieces_of(model: bytes) -> list[Subword]:
    """List the pieces of a serialized model in the order of their ids.

    Raises:
        ValueError: the bytes are no model.
    """
    pieces = (dict(_fields(piece)) for number, piece in _fields(model) if number == 1)
    return [
        Subword(piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0], piece.get(3, 1))
        for piece in pieces
    ]


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Parse the fields of a protocol buffer; yield numbers with ints or bytes."""
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


def round_scores(model: bytes) -> bytes:
    """Round the scores of a serialized model to 16ths.

    Sums of up to 2^20 nats are then exact in float32 and in float64. So two segmentations that are
    equally likely are so in every program, and all choose the same one.
    """
    rounded = (p._replace(score=round(p.score * PER_NAT) / PER_NAT) for p in pieces_of(model))
    rest = (encode_field(number, value) for number, value in _fields(model) if number != 1)
    return b"".join([*map(encode_piece, rounded), *rest])


def encode_piece(piece: Subword) -> bytes:
    """Serialize a piece as a protocol buffer field."""
    score = _varint(2 << 3 | 5) + struct.pack("<f", piece.score)
    return encode_field(1, encode_field(1, piece.text) + score + encode_field(3, piece.kind))


def encode_field(number: int, value: int | str | bytes) -> bytes:
    """Serialize a protocol buffer field."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def load_processor(model: bytes) -> SentencePieceProcessor:
    """Load a sentencepiece processor from a serialized model.

    Raises:
        ValueError: the bytes are no model.
    """
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise ValueError("not a sentencepiece model") from None


def train_model(chunks: Iterable[str], algorithm: str, vocab_size: int) -> bytes:
    """Train a lossless sentencepiece model, on sampled lines if the text is long.

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

    model_file = io.BytesIO()
    # Read first: the library would swallow what reading raises.
    learnt_from = list(sample_sentences(chunks))

    def learn() -> None:
        SentencePieceTrainer.train(
            sentence_iterator=iter(learnt_from),
            model_writer=model_file,
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
    model = model_file.getvalue()
    return round_scores(model) if algorithm == "unigram" else model


def sample_sentences(chunks: Iterable[str]) -> Iterator[str]:
    """Sample escaped training lines; all lines if the text is short.

    A line is kept while its own uniform number is below a share that is halved whenever what is
    kept grows too large, so that the draw is even over a text of any length, and always the same.
    """
    kept: list[tuple[float, str]] = []
    fraction, size, number = 1.0, 0, 0
    for block in line_blocks(chunks, line_boundary):
        # The trainer takes no longer lines.
        pieces = (cut_long_line(line, line_boundary, 1 << 14) for line in block.split("\n"))
        lines = [piece for several in pieces for piece in several if piece]
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
        yield escape_text(line).replace("\0", "")
    yield " "  # the trainer wants something to learn, however little there is


def _training_problem(message: str, vocab_size: int) -> SeqgenError:
    needed = re.search(r"required_chars\. (\d+) vs (\d+)", message)
    if needed:
        return UsageError(
            f"vocab_size {vocab_size} is too small: the specials, 256 bytes and the characters "
            f"of this text need {needed.group(2)}"
        )
    return SeqgenError(f"sentencepiece cannot learn a vocabulary: {' '.join(message.split())}")


MODEL_FILE = "tokenizer.model"
DEFAULT_SIZE = 4000
UNKNOWN = " \u2047 "  # as sentencepiece shows it


class SentencepieceTokenizer(Tokenizer):
    """Subword tokenizer of a sentencepiece model, applied line by line.

    Trained here, a model is lossless: it normalises nothing, keeps every space, falls back on
    bytes, and `\\n` is a symbol of its own. A model from elsewhere is used as it is, ids
    included; whether it is lossless follows from its settings. What it lacks of pad, bos, eos
    and a newline gets the ids after its own.

    Args:
        model: the bytes of a `.model` file.

    Raises:
        ValueError: they are not, or of another algorithm than `kind`.
    """

    algorithm: ClassVar[str]
    files = (MODEL_FILE, TABLE)
    joins_space = True
    boundary = staticmethod(line_boundary)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.normaliser = read_normaliser(model)
        if self.normaliser.kind != self.algorithm:
            raise ValueError(f"a sentencepiece model of type {self.normaliser.kind}")
        self.complete = self.normaliser.byte_fallback
        self._sp = load_processor(model)
        pieces = [self._sp.id_to_piece(i) for i in range(self._sp.vocab_size())]
        self.unk_id = self._sp.unk_id()
        for name in ("pad", "bos", "eos"):
            piece_id = getattr(self._sp, f"{name}_id")()
            setattr(self, f"{name}_id", piece_id if piece_id >= 0 else len(pieces))
            if piece_id < 0:
                pieces.append(f"<{name}>")
        known = [p for p in ("\n", "<0x0A>") if self._sp.piece_to_id(p) != self.unk_id]
        self.newline_id = self._sp.piece_to_id(known[0]) if known else len(pieces)
        if not known:
            pieces.append("\n")
        self._pieces = pieces
        self.vocab_size = len(pieces)
        self.lossless = self.normaliser.lossless and known[:1] == ["\n"]

    @classmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> SentencepieceTokenizer:
        """Train a subword vocabulary, on sampled lines if the text is long.

        Raises:
            UsageError: the vocabulary is too small for the text, or a minimum count is asked for.
        """
        if min_count > 1:
            raise UsageError(f"min_count has no meaning for {cls.kind}; give --vocab-size")
        return cls(train_model(chunks, cls.algorithm, vocab_size or DEFAULT_SIZE))

    def encode(self, text: str) -> np.ndarray:
        return self._ids(text, lambda lines: self._sp.encode(lines, out_type=int, num_threads=1))

    def encode_word(self, word: str) -> list[int]:
        """Encode a part of a line, or a newline, to ids."""
        return [self.newline_id] if word == "\n" else self._sp.encode(self._escape(word))

    def encode_sampled(self, text: str, alpha: float, seed: int) -> np.ndarray:
        """Encode `text` with sampled segmentation (subword regularisation, Kudo 2018).

        For unigram, segmentations are drawn with probability proportional to theirs to the power
        of `alpha`; for bpe, merges are left out with probability `alpha` (Provilkov et al. 2020).

        Args:
            text: what to encode.
            alpha: how much is left to chance.
            seed: 32 bits; the same seed cuts the same text the same way.
        """

        def draw(lines: list[str]) -> list[list[int]]:
            # One by one: a list would be dealt out to threads, each with its own chance.
            chance = {"enable_sampling": True, "alpha": alpha, "nbest_size": -1}
            return [self._sp.encode(line, out_type=int, **chance) for line in lines]

        # The library has one generator a thread, seeded when the thread first asks for it.
        import sentencepiece

        sentencepiece.set_random_generator_seed(seed)
        return run_interruptible(lambda: self._ids(text, draw))

    def _ids(self, text: str, encode: Any) -> np.ndarray:
        """Encode line by line, so that the ids do not depend on how the text is cut."""
        parts: list[str] = []
        ends: list[int] = []
        for line in text.split("\n"):
            parts += cut_long_line(line, self.boundary)
            ends.append(len(parts) - 1)
        encoded = encode([self._escape(part) for part in parts])
        for at in ends[:-1]:
            encoded[at].append(self.newline_id)
        return np.fromiter(chain.from_iterable(encoded), dtype=self.dtype)

    def _escape(self, text: str) -> str:
        if self.lossless and (SPACE in text or ESCAPE in text):
            return escape_text(text)
        return text

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """The bytes of each id; empty for pad, bos and eos."""
        table = [p.replace(SPACE, " ").encode() for p in self._pieces]
        for i in range(self._sp.vocab_size()):
            if self._sp.is_byte(i):
                table[i] = bytes([int(self._pieces[i][3:5], 16)])
            elif self._sp.is_control(i):
                table[i] = b""
        for i in (self.pad_id, self.bos_id, self.eos_id):
            table[i] = b""
        table[self.unk_id] = UNKNOWN.encode()
        table[self.newline_id] = b"\n"
        return table

    def text_bytes(self, ids: np.ndarray) -> bytes:
        raw = b"".join([self.piece_bytes[i] for i in ids.tolist()])
        return unescape_bytes(raw) if self.lossless else raw

    @cached_property
    def token_bytes(self) -> list[bytes]:
        return [unescape_bytes(raw) if self.lossless else raw for raw in self.piece_bytes]

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        return SubwordDecoder(self, history)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[i] for i in ids]

    def byte_ends(self, text: str) -> np.ndarray:
        ids = self.encode(text)
        total = len(text.encode())
        if not self.lossless:  # which bytes a piece came from cannot be told: spread evenly
            return np.arange(1, ids.size + 1) * total // max(1, ids.size)
        raw = [self.piece_bytes[i] for i in ids.tolist()]
        ends = np.cumsum([len(piece) for piece in raw], dtype=np.int64)
        if SPACE in text or ESCAPE in text:
            joined = b"".join(raw)
            ends = np.array([len(unescape_bytes(joined[:end])) for end in ends], dtype=np.int64)
        return ends

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "normaliser": self.normaliser.name,
            "byte_fallback": self.normaliser.byte_fallback,
            "dummy_prefix": self.normaliser.dummy_prefix,
            "model_bytes": len(self.model),
        }

    def facts(self) -> dict[str, Any]:
        return {"model": base64.b64encode(self.model).decode()}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> SentencepieceTokenizer:
        return cls(base64.b64decode(facts["model"], validate=True))

    def contents(self) -> tuple[bytes, ...]:
        """Return the `.model`, which other tools can read, and a table that names it."""
        return self.model, self.table({"file": MODEL_FILE})

    @classmethod
    def load(cls, folder: Path, facts: dict[str, Any]) -> SentencepieceTokenizer:
        return cls(require_regular(folder / Path(facts["file"]).name).read_bytes())


class BPETokenizer(SentencepieceTokenizer):
    """Byte-pair encoding (Sennrich et al. 2016): the most frequent pairs are merged repeatedly.

    No piece of a vocabulary learnt here crosses the start of a run of spaces, and a merge depends
    on nothing outside its word. So a word's ids are always the same, and are looked up.
    """

    kind = algorithm = "bpe"

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self._words = WordIds(self)

    def encode(self, text: str) -> np.ndarray:
        if not (self.lossless and self.normaliser.splits_words):
            return super().encode(text)
        if len(self._words) > WordIds.MOST:
            self._words.clear()
        ids_of_words = map(self._words.__getitem__, _WORD.findall(text))
        return np.fromiter(chain.from_iterable(ids_of_words), dtype=self.dtype)


_WORD = re.compile(r"\n| *[^ \n]+| +")


class WordIds(dict[str, list[int]]):
    """Cache of the ids of words, filled on demand."""

    MOST = 1 << 17

    def __init__(self, tokenizer: SentencepieceTokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> list[int]:
        ids = self[word] = self._tokenizer.encode_word(word)
        return ids


class UnigramTokenizer(SentencepieceTokenizer):
    """Unigram tokenizer: the most probable segmentation into pieces (Kudo 2018)."""

    kind = algorithm = "unigram"


class SubwordDecoder(Decoder):
    """Incremental decoder that holds back unfinished characters and escapes."""

    def __init__(self, tokenizer: SentencepieceTokenizer, history: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._table = tokenizer.piece_bytes
        normaliser = tokenizer.normaliser
        self._strips = normaliser.dummy_prefix or normaliser.squeeze
        self._line_start = len(history) == 0 or history[-1] in (
            tokenizer.newline_id,
            tokenizer.bos_id,
        )
        self._pending = b""

    def push(self, token: int) -> str:
        raw = self._table[token]
        if self._strips and raw:
            if self._line_start and token != self._tokenizer.unk_id:
                raw = raw.removeprefix(b" ")
            self._line_start = token == self._tokenizer.newline_id
        return self._finished_text(self._pending + raw)

    def _finished_text(self, raw: bytes) -> str:
        """Decode all but an unfinished end, which is held back."""
        whole, rest = raw, b""
        if self._tokenizer.lossless:
            run = len(raw) - len(raw.rstrip(ESCAPE.encode()))
            end = len(raw) - run % 2
            whole, rest = unescape_bytes(raw[:end]), raw[end:]
        text, used = codecs.utf_8_decode(whole, "replace", False)
        self._pending = whole[used:] + rest
        return text

    def flush(self) -> str:
        raw, self._pending = self._pending, b""
        return raw.decode("utf-8", "replace")


def load_model_file(path: Path) -> SentencepieceTokenizer:
    """Load a tokenizer from a sentencepiece `.model` file, unchanged.

    Raises:
        SeqgenError: it cannot be read, is no sentencepiece model, or is neither bpe nor unigram.
    """
    with reporting_unreadable(path):
        model = require_regular(path).read_bytes()
    try:
        kind = read_normaliser(model).kind
        kinds = {cls.algorithm: cls for cls in (BPETokenizer, UnigramTokenizer)}
        if kind not in kinds:
            raise ValueError(f"a sentencepiece model of type {kind}; bpe and unigram can be used")
        return kinds[kind](model)
    except ValueError as error:
        why = "; a file of Hugging Face's tokenizers must be named tokenizer.json"
        raise SeqgenError(f"{path} is {error}{why * model.lstrip().startswith(b'{')}") from None
