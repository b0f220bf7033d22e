"""Word tokenizers: words and punctuation, or text that is already tokenized."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np

from seqgen.text.tokenizers.base import (
    SPECIALS,
    Decoder,
    Tokenizer,
    line_blocks,
    remaining_vocab_size,
)

UNKNOWN = "<unk>"


class VocabularyTokenizer(Tokenizer):
    """Base class: split by a rule without a vocabulary, then look up each piece.

    The vocabulary is in order of frequency, ties in order of code points. It always has `\\n`.
    """

    pattern: ClassVar[re.Pattern[str]]
    split: Callable[[str], list[str]]

    def __init__(self, words: Iterable[str]) -> None:
        # One dict, filled in place: a vocabulary of millions of words is in several processes.
        self._ids = dict.fromkeys(chain(["\n"], words))
        for number, word in enumerate(self._ids, start=len(SPECIALS)):
            self._ids[word] = number
        self.vocab_size = len(SPECIALS) + len(self._ids)
        self._ids[UNKNOWN] = self.unk_id
        self.newline_id = self._ids["\n"]

    @cached_property
    def vocabulary(self) -> list[str]:
        """Pieces by id, those of special tokens first."""
        return [*SPECIALS, *islice(self._ids, self.vocab_size - len(SPECIALS))]

    @classmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> VocabularyTokenizer:
        counts: Counter[str] = Counter()
        for block in line_blocks(chunks, cls.boundary):
            counts.update(cls.split(block))
        counts.pop(UNKNOWN, None)
        counts.pop("\n", None)
        words = [word for word in counts if counts[word] >= min_count]
        words.sort(key=lambda w: (-counts[w], w))
        return cls(islice(words, remaining_vocab_size(vocab_size)))

    def encode(self, text: str) -> np.ndarray:
        ids, unknown = self._ids, self.unk_id
        return np.array([ids.get(w, unknown) for w in self.split(text)], dtype=self.dtype)

    def first_unknown(self, text: str) -> tuple[int, str] | None:
        for match, word in zip(self.pattern.finditer(text), self.split(text), strict=True):
            if word not in self._ids:
                return match.start(), match.group()
        return None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary[i] for i in ids]

    def byte_ends(self, text: str) -> np.ndarray:
        ends = [match.end() for match in self.pattern.finditer(text)]
        sizes = [len(text[a:b].encode()) for a, b in zip([0, *ends], ends, strict=False)]
        return np.cumsum(sizes, dtype=np.int64)

    @classmethod
    def boundary(cls, text: str, at: int) -> int:
        start = text.rfind("\n", 0, at) + 1
        around = next((m for m in cls.pattern.finditer(text, start) if m.end() >= at), None)
        return min(at, len(text)) if around is None or around.start() >= at else around.end()

    def facts(self) -> dict[str, Any]:
        return {"words": list(islice(self._ids, 1, self.vocab_size - len(SPECIALS)))}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> VocabularyTokenizer:
        if not all(isinstance(word, str) for word in facts["words"]):
            raise ValueError("its words are not all texts")
        return cls(facts["words"])


class WordTokenizer(VocabularyTokenizer):
    """Words and punctuation marks, each with the space before it, and other white space.

    `So, he said:` is `So` `,` ` he` ` said` `:`. A space belongs to what follows it, as in
    GPT-2, so that a bigram sees two words and not a word and a space.
    """

    kind = "word"
    joins_space = True
    pattern = re.compile(r" ?\w+(?:['\u2019]\w+)*| ?[^\w\s]|\s")
    split = pattern.findall

    def copied(self, word: str, before: str) -> str:
        # An unknown token has lost the space before it, which a word has and punctuation has not.
        apart = before[-1:].strip() != "" and word[:1].isalnum()
        return f" {word}" if apart else word

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(["" if i < self.unk_id else self.vocabulary[i] for i in ids])


class SpacedTokenizer(VocabularyTokenizer):
    """Base class: tokens decode with one space between them; other white space is lost."""

    joins_space = True
    lossless = False

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        return SpacedDecoder(self, history)


class WhitespaceTokenizer(SpacedTokenizer):
    """Tokenized text such as Penn Treebank: split on runs of white space.

    The line's end is the token `\\n`; a literal `<unk>` is the unknown id. Which white space
    stood between two tokens is lost: they are joined by one space.
    """

    kind = "whitespace"
    pattern = re.compile(r"\n|\S+")
    split = pattern.findall
    inside = re.compile(r"(?<=\S)\S+")

    @classmethod
    def boundary(cls, text: str, at: int) -> int:
        rest_of_token = cls.inside.match(text, at)
        return rest_of_token.end() if rest_of_token else min(at, len(text))


class SpacedDecoder(Decoder):
    """Incremental decoder that puts one space between two tokens of the same line."""

    def __init__(self, tokenizer: SpacedTokenizer, history: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.glue = len(history) == 0 or history[-1] in (tokenizer.newline_id, tokenizer.bos_id)

    def push(self, token: int) -> str:
        if token < self.tokenizer.unk_id:
            return ""
        newline = token == self.tokenizer.newline_id
        space = "" if self.glue or newline else " "
        self.glue = newline
        return space + self.tokenizer.vocabulary[token]
