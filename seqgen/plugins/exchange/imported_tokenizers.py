"""Tokenizers of imported models: Hugging Face's `tokenizer.json`, sentencepiece, Marian."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import UsageError
from seqgen.files import parse_json, require_regular
from seqgen.limits import read_whole, require_within_limit
from seqgen.text.tokenizers.base import TABLE, Decoder, Tokenizer
from seqgen.text.tokenizers.library import LibraryTokenizer, open_library
from seqgen.text.tokenizers.sentencepiece import (
    CONTROL,
    SPACE,
    USER,
    line_boundary,
    load_processor,
    pieces_of,
    read_normaliser,
)

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SIGNS, SPACES = r" ?[^\s\p{L}\p{N}]+", r"\s*[\r\n]+|\s+(?!\S)|\s+"
# How a text is split before bytes are merged, by the names that GGUF files give it (`pre`).
PATTERNS = {
    "qwen2": rf"{CONTRACTIONS}|{BEFORE}\p{{L}}+|\p{{N}}|{SIGNS}[\r\n]*|{SPACES}",
    "llama-bpe": rf"{CONTRACTIONS}|{BEFORE}\p{{L}}+|\p{{N}}{{1,3}}|{SIGNS}[\r\n]*|{SPACES}",
    "tekken": rf"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*|\p{{N}}|"
    rf"{SIGNS}[\r\n/]*|{SPACES}",
}
_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_GPT2 = {**_LEVEL, "use_regex": True}
# The steps of a `tokenizer.json` that split so. GPT-2's own pattern is part of ByteLevel.
SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_GPT2],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2],
} | {
    name: [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        {**_LEVEL, "use_regex": False},
    ]
    for name, regex in PATTERNS.items()
}
# A word ends and one of Latin letters begins, after one space: all of the patterns cut there.
_BETWEEN_WORDS = re.compile("[A-Za-z](?= [A-Za-z])")
BLOCK = 1 << 20


def _byte_names() -> dict[str, int]:
    """Map the characters of byte-level vocabularies to the bytes they stand for, as in GPT-2.

    Bytes that are printable characters of Latin-1 stand for themselves, the others for the
    characters from U+0100 on (Radford et al. 2019).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_names()


def name_of_split(steps: Any) -> str | None:
    """Name the splitting rule of a `tokenizer.json`; None if `SPLITS` lacks it.

    Args:
        steps: its `pre_tokenizer`.
    """
    steps = steps.get("pretokenizers", [steps]) if isinstance(steps, dict) else []
    found = [_without_defaults(step) for step in steps]
    known = ((name, list(map(_without_defaults, split))) for name, split in SPLITS.items())
    return next((name for name, split in known if split == found), None)


def _without_defaults(step: dict[str, Any]) -> dict[str, Any]:
    """Drop the keys of a pre-tokenizer step that do not change how it splits."""
    defaults = {"use_regex": True} if step.get("type") == "ByteLevel" else {}
    return defaults | {key: value for key, value in step.items() if key != "trim_offsets"}


def can_be_cut(table: Mapping[str, Any]) -> bool:
    """Check whether a text may be tokenized in the pieces of `blocks` without changing its ids."""
    normal = table.get("normalizer")
    plain = normal is None or normal.get("type") == "NFC"
    added = table.get("added_tokens") or []
    whole = all(
        " " not in token["content"] and not token["lstrip"] and not token["rstrip"]
        for token in added
    )
    level = table["model"].get("type") == "BPE"
    return plain and whole and level and name_of_split(table.get("pre_tokenizer")) is not None


def blocks(chunks: Iterable[str], size: int = BLOCK) -> Iterator[str]:
    """Re-cut a text between words into pieces of about `size` characters.

    Their ids, joined, are those of the whole text; see `can_be_cut`.
    """
    held, search_from = "", 2 * size
    for chunk in chunks:
        held += chunk
        while len(held) > search_from:
            cut = _BETWEEN_WORDS.search(held, size)
            if cut is None:
                require_within_limit(held, "the text: what no space between two words divides")
                # It is searched again when there is twice as much of it.
                search_from = 2 * len(held)
                break
            yield held[: cut.end()]
            held, search_from = held[cut.end() :], 2 * size
    yield held


# How many tokens of the past a decoder looks at, so that spaces and accents come out right.
LOOK_BACK = 4
# Ids that a file may leave out; arrays are as long as the largest.
MOST_GAPS = 1000
# The names of tokens that stand for single bytes of unknown characters.
BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
SPECIAL_IDS = ("bos_id", "eos_id", "pad_id", "unk_id", "source_bos_id")


def size_of(names: Mapping[int, str]) -> int:
    """Compute the size of a vocabulary, given the name of each id.

    Raises:
        ValueError: too many ids have no name.
    """
    size = max(names, default=-1) + 1
    if size > MOST_GAPS + 2 * len(names):
        raise ValueError(f"its ids go up to {size - 1:,}, and it has {len(names):,}")
    return size


class TokenizerFromElsewhere(Tokenizer):
    """A tokenizer made by another tool, which encodes a whole text at once.

    A newline may be part of a longer token, special tokens may coincide, and a text may hold their
    names, which are then read as these tokens.

    Args:
        content: the file, as it is.
        vocab_size: V of the model, which may have more tokens than the file; None for the file's.
        special: the ids of pad, bos, eos and unk by name, as far as they are known otherwise than
            from the file.

    Raises:
        ValueError: the file is damaged, or has more tokens than the model.
    """

    line_safe = False
    boundary = staticmethod(line_boundary)
    file: ClassVar[str]  # what the folder of a stored model calls it

    def __init__(
        self,
        content: bytes,
        vocab_size: int | None = None,
        special: Mapping[str, Any] | None = None,
    ) -> None:
        self.content = content
        file_size = self._open()
        self.vocab_size = file_size if vocab_size is None else vocab_size
        if file_size > self.vocab_size:
            raise ValueError(f"it has {file_size:,} tokens, and the model {self.vocab_size:,}")
        for name, token in (special or {}).items():
            if name not in SPECIAL_IDS or not self._is_id(token):
                raise ValueError(f"its {str(name)[:20]} is {str(token)[:20]}")
            setattr(self, name, token)

    def _is_id(self, token: Any) -> bool:
        return token is None or (type(token) is int and 0 <= token < self.vocab_size)

    @abstractmethod
    def _open(self) -> int:
        """Load the file, set the special ids, and return the number of tokens."""

    @abstractmethod
    def name_of(self, token: int) -> str | None:
        """Look up a token's name in the file; None if the file lacks it."""

    @abstractmethod
    def _decode(self, ids: Sequence[int]) -> str:
        """Decode ids that the file contains, without special tokens."""

    @classmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> Tokenizer:
        raise UsageError(f"a {cls.kind} tokenizer comes from a file and is not trained here")

    def blocks(self, chunks: Iterable[str]) -> Iterator[str]:
        # There is no place where every such tokenizer can be cut.
        yield read_whole(chunks, f"a text for a {self.kind} tokenizer, which reads it whole,")

    def decode(self, ids: Sequence[int]) -> str:
        return self._decode([i for i in ids if self.name_of(i) is not None])

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        return WindowDecoder(self, history)

    @cached_property
    def token_bytes(self) -> list[bytes]:
        # A byte token by itself decodes to U+FFFD.
        texts = super().token_bytes
        if self.complete:
            for token, text in enumerate(texts):
                if byte := BYTE_PIECE.fullmatch(self.name_of(token) or ""):
                    texts[token] = bytes.fromhex(byte[1]) if text else b""
        return texts

    def facts(self) -> dict[str, Any]:
        special = {name: getattr(self, name) for name in SPECIAL_IDS}
        if self.source_bos_id is None:  # earlier versions read only what they know
            del special["source_bos_id"]
        return {
            "content": self.content.decode("latin-1"),
            "vocab_size": self.vocab_size,
            "special": special,
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> TokenizerFromElsewhere:
        return cls.of(facts["content"].encode("latin-1"), facts)

    def contents(self) -> tuple[bytes, ...]:
        """Return the original file, and a JSON file with the other attributes."""
        rest = {name: fact for name, fact in self.facts().items() if name != "content"}
        return self.content, self.table(rest)

    @classmethod
    def load(cls, folder: Path, facts: dict[str, Any]) -> TokenizerFromElsewhere:
        return cls.of(require_regular(folder / cls.file).read_bytes(), facts)

    @classmethod
    def of(cls, content: bytes, facts: Mapping[str, Any]) -> TokenizerFromElsewhere:
        """Restore the tokenizer from its file and stored attributes."""
        return cls(content, facts["vocab_size"], cls.special_of(facts))

    @staticmethod
    def special_of(facts: Mapping[str, Any]) -> dict[str, Any]:
        """Read the ids of special tokens from stored attributes, by name.

        Raises:
            ValueError: some are missing, or there are none.
        """
        special = facts["special"]
        needed = set(SPECIAL_IDS) - {"source_bos_id"}
        if not isinstance(special, dict) or needed - special.keys():
            raise ValueError("it does not say which tokens are special")
        return special


class WindowDecoder(Decoder):
    """Streaming decoder that decodes the last tokens together and yields the newest one's text.

    What a token adds may depend on those before it (a space, an unfinished character).
    """

    def __init__(self, tokenizer: TokenizerFromElsewhere, history: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(history[-LOOK_BACK:])
        self._decoded = len(self._ids)
        self._before = tokenizer.decode(self._ids)

    def push(self, token: int) -> str:
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd") or len(text) <= len(self._before):
            return ""
        added = text[len(self._before) :]
        self._ids = self._ids[self._decoded :]
        self._decoded, self._before = len(self._ids), self._tokenizer.decode(self._ids)
        return added

    def flush(self) -> str:
        text = self._tokenizer.decode(self._ids)
        added = text[len(self._before) :]
        self._decoded, self._before = len(self._ids), text
        return added


class HuggingFaceTokenizer(LibraryTokenizer, TokenizerFromElsewhere):
    """A `tokenizer.json`, run by Hugging Face's `tokenizers` library.

    Args:
        content: the file.
        vocab_size: see `TokenizerFromElsewhere`.
        special: see there.

    Raises:
        ValueError: see there.
        SeqgenError: the library is not installed.
    """

    kind = "huggingface"
    file = "huggingface.json"
    files = (file, TABLE)

    def _open(self) -> int:
        self._library = open_library(self.content)
        self._library.no_truncation()
        self._library.no_padding()
        ids = self._library.get_vocab(with_added_tokens=True)
        self._names = {token: name for name, token in ids.items()}
        self.pad_id = self.bos_id = self.eos_id = None
        unknown = getattr(self._library.model, "unk_token", None)
        self.unk_id = ids.get(unknown) if isinstance(unknown, str) else None
        self.newline_id = next((ids[name] for name in ("\n", "Ċ", "<0x0A>") if name in ids), None)
        table = parse_json(self.content)
        _check_template(table.get("post_processor") or {})
        self._can_be_cut = can_be_cut(table)
        decoder = json.dumps(table.get("decoder"))
        self._is_byte_level = self.joins_space = '"ByteLevel"' in decoder
        bytes_there = all(name in ids for name in BYTE_OF) if self._is_byte_level else False
        self.complete = bytes_there or all(f"<0x{byte:02X}>" in ids for byte in range(256))
        unchanged = bytes_there and self._library.normalizer is None
        self.lossless = unchanged and self._decode(self._encoding("a b").ids) == "a b"
        return size_of(self._names)

    def blocks(self, chunks: Iterable[str]) -> Iterator[str]:
        return blocks(chunks) if self._can_be_cut else super().blocks(chunks)

    def named_tokens(self) -> Mapping[str, bool]:
        added = self._library.get_added_tokens_decoder().values()
        return {token.content: token.special for token in added}

    def encode_as_text(self, text: str) -> np.ndarray:
        ids = self._library_without_names.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=self.dtype)

    @cached_property
    def _library_without_names(self) -> Any:
        return open_library(json.dumps({**parse_json(self.content), "added_tokens": []}).encode())

    def frame(self) -> tuple[list[int], list[int]]:
        """Return the ids that the file adds before and after every text.

        Raises:
            ValueError: it leaves out the text itself.
        """
        plain, whole = (self._library.encode("a", add_special_tokens=x).ids for x in (False, True))
        if not plain:
            raise ValueError("the text 'a' has no tokens")
        at = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
        return whole[:at], whole[at + len(plain) :]

    def id_of(self, name: str) -> int | None:
        """Look up a token's id by its name in the file; None if there is none."""
        return self._library.token_to_id(name)

    def name_of(self, token: int) -> str | None:
        return self._names.get(token)

    def _decode(self, ids: Sequence[int]) -> str:
        return self._library.decode(list(ids), skip_special_tokens=True)

    def byte_ends(self, text: str) -> np.ndarray:
        ends = super().byte_ends(text)
        if ends.size:
            ends[-1] = len(text.encode())
        return np.maximum.accumulate(ends)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._shown(token) for token in ids]

    def _shown(self, token: int) -> str:
        name = self.name_of(token)
        if name is None:
            return f"<unused {token}>"
        if not self._is_byte_level or not all(map(BYTE_OF.__contains__, name)):
            return name
        raw = bytes(map(BYTE_OF.__getitem__, name))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in raw)

    def text_bytes(self, ids: np.ndarray) -> bytes:
        if not self._is_byte_level:
            return self.decode(ids.tolist()).encode()
        return b"".join([self.token_bytes[token] for token in ids.tolist()])

    @cached_property
    def token_bytes(self) -> list[bytes]:
        if not self._is_byte_level:
            return super().token_bytes
        names = [self._names.get(token, "") for token in range(self.vocab_size)]
        foreign = set("".join(names)) - BYTE_OF.keys()
        table = str.maketrans({**BYTE_OF, **dict.fromkeys(foreign)})
        special = self._special_names
        return [
            b"" if name in special else name.translate(table).encode("latin-1") for name in names
        ]

    @cached_property
    def _special_names(self) -> frozenset[str]:
        added = self._library.get_added_tokens_decoder().values()
        special = {token.content for token in added if token.special}
        # Those that an export of seqgen has, which no text is read as.
        named = {name: i for i, name in self._names.items() if name.startswith("<")}
        return frozenset(special | {name for name, i in named.items() if not self._decode([i])})


def _check_template(step: Mapping[str, Any]) -> None:
    """Check that a post-processor adds only known tokens; others would crash the library.

    Raises:
        ValueError: a token is not.
    """
    for inner in step.get("processors", ()):
        _check_template(inner)
    for piece in (*step.get("single", ()), *step.get("pair", ())):
        name = piece.get("SpecialToken", {}).get("id")
        if name is not None and name not in step["special_tokens"]:
            raise ValueError(f"its post_processor has no id of {name[:40]!r}")


class WholeSentencepieceTokenizer(TokenizerFromElsewhere):
    """A sentencepiece `.model` applied to whole texts, newlines included, as in Llama 2.

    (`--tokenizer FILE.model` uses the same file line by line, with a newline of its own.)
    """

    kind = "sentencepiece"
    joins_space = True
    file = "sentencepiece.model"
    files = (file, TABLE)

    def _open(self) -> int:
        self.normaliser = read_normaliser(self.content)
        self._library = load_processor(self.content)
        for name in SPECIAL_IDS[:4]:
            token = getattr(self._library, name)()
            setattr(self, name, token if token >= 0 else None)
        newline = self._library.piece_to_id("<0x0A>")
        self.newline_id = None if newline == self.unk_id else newline
        self.complete = self.normaliser.byte_fallback
        self.lossless = False  # U+2581 itself comes back as a space
        return self._library.vocab_size()

    def encode(self, text: str) -> np.ndarray:
        return np.array(self._library.encode(text, out_type=int), dtype=self.dtype)

    def named_tokens(self) -> Mapping[str, bool]:
        kinds = {CONTROL: True, USER: False}
        return {x.text: kinds[x.kind] for x in pieces_of(self.content) if x.kind in kinds}

    def encode_with_names(self, text: str) -> np.ndarray:
        ids: list[int] = []
        for number, part in enumerate(self._control_names.split(text)):
            is_name = number % 2 == 1
            ids += [self._library.piece_to_id(part)] if is_name else self._library.encode(part)
        return np.array(ids, dtype=self.dtype)

    @cached_property
    def _control_names(self) -> re.Pattern[str]:
        names = (re.escape(name) for name, special in self.named_tokens().items() if special)
        return re.compile(f"({'|'.join(names) or '(?!)'})")

    def name_of(self, token: int) -> str | None:
        return self._library.id_to_piece(token) if token < self._library.vocab_size() else None

    def _decode(self, ids: Sequence[int]) -> str:
        # Texts of a stream begin after a newline, which is text nevertheless.
        special = {self.pad_id, self.bos_id, self.eos_id} - {self._library.piece_to_id("\n")}
        return self._library.decode([i for i in ids if i not in special])

    def cut(self, text: str) -> list[str]:
        """Split a text into pieces, and return their names."""
        return self._library.encode(text, out_type=str)

    def byte_ends(self, text: str) -> np.ndarray:
        total = len(text.encode())
        ends = np.cumsum([self._width(name) for name in self.cut(text)], dtype=np.int64)
        if self.normaliser.dummy_prefix:
            ends -= 1
        if ends.size and ends[-1] != total:  # the text was rewritten: spread evenly
            return np.arange(1, ends.size + 1) * total // ends.size
        return np.maximum(ends, 0)

    def _width(self, name: str) -> int:
        """Count the bytes of text that a piece stands for."""
        is_byte = self._library.is_byte(self._library.piece_to_id(name))
        return 1 if is_byte else len(name.replace(SPACE, " ").encode())

    def first_unknown(self, text: str) -> tuple[int, str] | None:
        ids = self.encode(text).tolist()
        both = zip(self.cut(text), ids, strict=True)
        unknown = (name for name, token in both if token == self.unk_id)
        piece = next(unknown, "").replace(SPACE, " ").strip()
        return (max(0, text.find(piece)), piece) if piece else None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.name_of(token) or f"<unused {token}>" for token in ids]


MARIAN_TABLE = "vocab.json"
# What a piece of no language is called in the table. A text may begin with the name of another
# language (>>fr<<), which is one token.
MARIAN_NAMES = {"pad_id": "<pad>", "eos_id": "</s>", "unk_id": "<unk>"}
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


class MarianTokenizer(WholeSentencepieceTokenizer):
    """Source or target tokenizer of a Marian model; the two sides use different models.

    Args:
        content: the sentencepiece `.model`.
        vocabulary: the id of each piece. Pieces that it lacks are `<unk>`.
        vocab_size: see `TokenizerFromElsewhere`.
        special: see there.

    Raises:
        ValueError: the file or the table is damaged.
    """

    kind = "marian"

    def __init__(
        self,
        content: bytes,
        vocabulary: Mapping[str, int],
        vocab_size: int | None = None,
        special: Mapping[str, Any] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        super().__init__(content, vocab_size, special)

    def _open(self) -> int:
        super()._open()
        known = self.vocabulary
        ids = known.values() if isinstance(known, dict) else [None]
        if not all(type(token) is int and token >= 0 for token in ids):
            raise ValueError(f"{MARIAN_TABLE} is not a table of pieces and their ids")
        self._names = {token: name for name, token in known.items()}
        size = size_of(self._names)
        self.bos_id = None
        for which, name in MARIAN_NAMES.items():
            setattr(self, which, known.get(name))
        if self.unk_id is None or self.eos_id is None:
            raise ValueError(
                f"{MARIAN_TABLE} has no {MARIAN_NAMES['unk_id']} or no {MARIAN_NAMES['eos_id']}"
            )
        self.newline_id = known.get("<0x0A>")
        self.complete = False
        special = (re.escape(name) for name in MARIAN_NAMES.values() if name in known)
        self._special = re.compile(f"({'|'.join(special)})")
        return size

    def cut(self, text: str) -> list[str]:
        """Split a text into pieces, keeping a language name and special tokens whole."""
        names = []
        for part in self._special.split(text):
            if part in MARIAN_NAMES.values():
                names.append(part)
                continue
            language = LANGUAGE.match(part)
            if language:
                names.append(language.group())
                part = part[language.end() :]
            names += super().cut(part)
        return names

    def encode(self, text: str) -> np.ndarray:
        ids = [self.vocabulary.get(name, self.unk_id) for name in self.cut(text)]
        return np.array(ids, dtype=self.dtype)

    def name_of(self, token: int) -> str | None:
        return self._names.get(token)

    def _decode(self, ids: Sequence[int]) -> str:
        special = (self.pad_id, self.bos_id, self.eos_id)
        return self._library.decode_pieces([self._names[i] for i in ids if i not in special])

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "vocabulary": self.vocabulary}

    @classmethod
    def of(cls, content: bytes, facts: Mapping[str, Any]) -> MarianTokenizer:
        return cls(content, facts["vocabulary"], facts["vocab_size"], cls.special_of(facts))
