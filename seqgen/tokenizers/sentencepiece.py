"""Subwords by the sentencepiece library: encoding with a model, decoding, and saving it."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import SeqgenError, UsageError
from seqgen.files import regular
from seqgen.tokenizers.base import TABLE, Decoder, Tokenizer, segments
from seqgen.tokenizers.sentencepiece_model import (
    ESCAPE,
    SPACE,
    boundary,
    escaped,
    load_processor,
    read_normaliser,
    train_model,
    unescaped,
)

MODEL_FILE = "tokenizer.model"
DEFAULT_SIZE = 4000
UNKNOWN = " \u2047 "  # as sentencepiece shows it


class SentencepieceTokenizer(Tokenizer):
    """A sentencepiece model, one line of text at a time.

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
        """Learn a vocabulary; from a draw of the lines where the text is long.

        Raises:
            UsageError: the vocabulary is too small for the text, or a minimum count is asked for.
        """
        if min_count > 1:
            raise UsageError(f"min_count has no meaning for {cls.kind}; give --vocab-size")
        return cls(train_model(chunks, cls.algorithm, vocab_size or DEFAULT_SIZE))

    @classmethod
    def boundary(cls, text: str, at: int) -> int:
        """Return the first place at or after `at` that no piece of any vocabulary crosses.

        That is before a run of spaces, and around a newline.
        """
        return boundary(text, at)

    def encode(self, text: str) -> np.ndarray:
        return self._ids(text, lambda lines: self._sp.encode(lines, out_type=int, num_threads=1))

    def encode_word(self, word: str) -> list[int]:
        """Return the ids of a piece of a line, or of a newline."""
        return [self.newline_id] if word == "\n" else self._sp.encode(self._escape(word))

    def encode_sampled(self, text: str, alpha: float, seed: int) -> np.ndarray:
        """Cut `text` in a way drawn at random: subword regularisation (Kudo 2018).

        For unigram, segmentations are drawn with probability proportional to theirs to the power
        of `alpha`; for bpe, merges are left out with probability `alpha` (Provilkov et al. 2020).

        Args:
            text: what to encode.
            alpha: how much is left to chance.
            seed: 32 bits; the same seed cuts the same text the same way.
        """
        result: list[np.ndarray] = []

        def draw(lines: list[str]) -> list[list[int]]:
            # One by one: a list would be dealt out to threads, each with its own chance.
            chance = {"enable_sampling": True, "alpha": alpha, "nbest_size": -1}
            return [self._sp.encode(line, out_type=int, **chance) for line in lines]

        def work() -> None:
            result.append(self._ids(text, draw))

        # The library has one generator a thread, seeded when the thread first asks for it.
        import sentencepiece

        sentencepiece.set_random_generator_seed(seed)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return result[0]

    def _ids(self, text: str, encode: Any) -> np.ndarray:
        """Encode every line alone, so that the ids do not depend on how a text is cut."""
        parts: list[str] = []
        ends: list[int] = []
        for line in text.split("\n"):
            parts += segments(line, self.boundary)
            ends.append(len(parts) - 1)
        encoded = encode([self._escape(part) for part in parts])
        for at in ends[:-1]:
            encoded[at].append(self.newline_id)
        return np.fromiter(chain.from_iterable(encoded), dtype=self.dtype)

    def _escape(self, text: str) -> str:
        if self.lossless and (SPACE in text or ESCAPE in text):
            return escaped(text)
        return text

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """The bytes each id stands for; none for pad, bos and eos."""
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

    def decode(self, ids: Sequence[int]) -> str:
        decoder = self.decoder()
        return "".join(map(decoder.push, ids)) + decoder.flush()

    def text_bytes(self, ids: np.ndarray) -> bytes:
        raw = b"".join([self.piece_bytes[i] for i in ids.tolist()])
        return unescaped(raw) if self.lossless else raw

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
            ends = np.array([len(unescaped(joined[:end])) for end in ends], dtype=np.int64)
        return ends

    def describe(self) -> dict[str, Any]:
        bytes_of_model = len(self.model)
        return {
            **super().describe(),
            "normaliser": self.normaliser.name,
            "byte_fallback": self.normaliser.byte_fallback,
            "dummy_prefix": self.normaliser.dummy_prefix,
            "model_bytes": bytes_of_model,
        }

    def facts(self) -> dict[str, Any]:
        return {"model": base64.b64encode(self.model).decode()}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> SentencepieceTokenizer:
        return cls(base64.b64decode(facts["model"], validate=True))

    def contents(self) -> tuple[bytes, ...]:
        """Return the `.model`, which other tools read too, and a table that names it."""
        return self.model, self.table({"file": MODEL_FILE})

    @classmethod
    def load(cls, folder: Path, facts: dict[str, Any]) -> SentencepieceTokenizer:
        return cls(regular(folder / Path(facts["file"]).name).read_bytes())


class BPETokenizer(SentencepieceTokenizer):
    """Byte-pair encoding (Sennrich et al. 2016): the commonest pairs merged, again and again.

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
    """The ids of the words seen so far."""

    MOST = 1 << 17

    def __init__(self, tokenizer: SentencepieceTokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> list[int]:
        ids = self[word] = self._tokenizer.encode_word(word)
        return ids


class UnigramTokenizer(SentencepieceTokenizer):
    """The likeliest segmentation under a unigram model of pieces (Kudo 2018)."""

    kind = algorithm = "unigram"


class SubwordDecoder(Decoder):
    """Holds back bytes of an unfinished character, and an escape whose end has not come."""

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
        """Return the text of all but an unfinished end, which is kept for later."""
        end = len(raw)
        if self._tokenizer.lossless:
            run = len(raw) - len(raw.rstrip(ESCAPE.encode()))
            end -= run % 2
        cut = end - _unfinished(raw[:end])
        self._pending = raw[cut:]
        return self._text(raw[:cut])

    def _text(self, raw: bytes) -> str:
        raw = unescaped(raw) if self._tokenizer.lossless else raw
        return raw.decode("utf-8", "replace")

    def flush(self) -> str:
        raw, self._pending = self._pending, b""
        return self._text(raw)


def _unfinished(raw: bytes) -> int:
    """Return how many bytes at the end of `raw` begin a character that they do not finish."""
    for back in range(1, min(3, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC2:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF5 else 1
            return back if needed > back else 0
        if byte < 0x80:
            return 0
    return 0


def load_model_file(path: Path) -> SentencepieceTokenizer:
    """Use a `.model` file as it is.

    Raises:
        SeqgenError: it cannot be read, is no sentencepiece model, or is neither bpe nor unigram.
    """
    try:
        model = regular(path).read_bytes()
        kind = read_normaliser(model).kind
        kinds = {cls.algorithm: cls for cls in (BPETokenizer, UnigramTokenizer)}
        if kind not in kinds:
            raise ValueError(f"a sentencepiece model of type {kind}; bpe and unigram can be used")
        return kinds[kind](model)
    except OSError as error:
        raise SeqgenError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise SeqgenError(f"{path} is {error}") from None
