"""WordPiece tokenizer, as used by BERT, by the `tokenizers` library."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqgen.errors import UsageError
from seqgen.text.tokenizers.base import SPECIALS, Decoder, line_blocks, remaining_vocab_size
from seqgen.text.tokenizers.interruptible import run_interruptible
from seqgen.text.tokenizers.library import LibraryTokenizer, open_library
from seqgen.text.tokenizers.word import SpacedDecoder, WhitespaceTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

DEFAULT_SIZE = 4000
# What the pieces of a word begin with, but for its first.
CONTINUES = "##"
# A longer word is unknown, as in BERT.
LONGEST_WORD = 100
# How often a word is written in a line for the trainer, which counts for itself.
REPEATED = 1 << 10


class WordPieceTokenizer(LibraryTokenizer):
    """WordPiece (Schuster and Nakajima 2012; Wu et al. 2016): words as pieces of a vocabulary.

    A word is cut from its beginning into the longest pieces that the vocabulary has; if it cannot
    be, all of it is unknown. Punctuation marks are words of their own, and `\\n` is a token. Which
    other white space stood between two words is lost.

    Args:
        pieces: the vocabulary after the special tokens and the newline.

    Raises:
        SeqgenError: the library is not installed.
    """

    kind = "wordpiece"
    lossless = False
    joins_space = True
    boundary = WhitespaceTokenizer.boundary

    def __init__(self, pieces: Iterable[str]) -> None:
        self.vocabulary = list(dict.fromkeys((*SPECIALS, "\n", *pieces)))
        self.vocab_size = len(self.vocabulary)
        self.newline_id = len(SPECIALS)
        self._library = build_library_tokenizer(self.vocabulary)

    @classmethod
    def train(
        cls, chunks: Iterable[str], vocab_size: int | None = None, min_count: int = 1
    ) -> WordPieceTokenizer:
        """Learn pieces: characters first, then the most frequent pair is merged repeatedly.

        Raises:
            UsageError: the vocabulary is too small for the characters of the text.
            SeqgenError: the library is not installed.
        """
        cut, counts = build_library_tokenizer([*SPECIALS]).pre_tokenizer, Counter()
        for block in line_blocks(chunks, cls.boundary):
            counts.update(word for word, _ in cut.pre_tokenize_str(block))
        words = {word: counts[word] for word in sorted(counts) if len(word) <= LONGEST_WORD}
        first = {character for word in words for character in word}
        later = {CONTINUES + character for word in words for character in word[1:]}
        characters = [*sorted(first), *sorted(later)]
        size = vocab_size or DEFAULT_SIZE
        if remaining_vocab_size(size) < len(characters):
            least = len(characters) + len(SPECIALS) + 1
            raise UsageError(f"vocab_size {size} is too small: the characters need {least}")
        return cls(learn_pieces(words, characters, remaining_vocab_size(size), min_count))

    def decoder(self, history: Sequence[int] = ()) -> Decoder:
        return WordPieceDecoder(self, history)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary[i] for i in ids]

    def facts(self) -> dict[str, Any]:
        return {"pieces": self.vocabulary[len(SPECIALS) + 1 :]}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> WordPieceTokenizer:
        if not all(isinstance(piece, str) for piece in facts["pieces"]):
            raise ValueError("its pieces are not all texts")
        return cls(facts["pieces"])


class WordPieceDecoder(SpacedDecoder):
    """Incremental decoder that puts spaces between words, not between pieces of a word."""

    def push(self, token: int) -> str:
        piece = self.tokenizer.vocabulary[token]
        if piece.startswith(CONTINUES) and len(piece) > len(CONTINUES) and not self.glue:
            return piece.removeprefix(CONTINUES)
        return super().push(token)


def build_library_tokenizer(vocabulary: Sequence[str]) -> Library:
    """Build a `tokenizers` WordPiece tokenizer from a vocabulary.

    Raises:
        SeqgenError: the library is not installed.
    """
    ids = {piece: i for i, piece in enumerate(vocabulary)}
    model = {
        "type": "WordPiece",
        "unk_token": SPECIALS[3],
        "continuing_subword_prefix": CONTINUES,
        "max_input_chars_per_word": LONGEST_WORD,
        "vocab": ids,
    }
    newline = {"id": ids.get("\n", 0), "content": "\n", "special": False, "normalized": False}
    newline |= {"single_word": False, "lstrip": False, "rstrip": False}
    table = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None}
    table |= {"added_tokens": [newline] if "\n" in ids else [], "post_processor": None}
    table |= {"pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": None, "model": model}
    return open_library(json.dumps(table).encode())


def learn_pieces(
    words: Mapping[str, int], characters: Sequence[str], size: int, min_count: int
) -> list[str]:
    """Learn word pieces: characters, then the merged pairs in order of merging.

    Args:
        words: how often each occurs.
        characters: the first pieces. The library would number them in an order of chance, on which
            ties between pairs depend: so it is given them as its own.
        size: how many pieces there are at most.
        min_count: join only pairs that occur so often.
    """
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import WordPieceTrainer

    library = build_library_tokenizer([*SPECIALS])
    library.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_count,
        show_progress=False,
        special_tokens=[*characters],
        continuing_subword_prefix=CONTINUES,
    )
    run_interruptible(lambda: library.train_from_iterator(_lines(words), trainer))
    vocabulary = library.get_vocab(with_added_tokens=False)
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _lines(words: Mapping[str, int]) -> Iterator[str]:
    """Yield lines in which each word occurs as often as counted."""
    for word, count in words.items():
        for at in range(0, count, REPEATED):
            yield " ".join([word] * min(REPEATED, count - at))
