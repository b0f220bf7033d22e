"""Tokenized passages of a text, and the model's predictions at each token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.ops import Leaf, ops_of, without_gradients
from seqgen.errors import SeqgenError
from seqgen.text.direction import reading_order

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.corpus import Corpus

NEWLINE = "\n"
# No token is read from more characters than this, on average.
CHARACTERS_OF_TOKEN = 64


@dataclass(frozen=True)
class TokenizedDocument:
    """A tokenized document: a whole text, or one of its lines.

    Attributes:
        loaded: the model that reads it.
        corpus: the document alone.
        number: which of the text's documents it is.
    """

    loaded: LoadedModel
    corpus: Corpus
    number: int

    @cached_property
    def tokens(self) -> list[int]:
        """The N target ids in text order."""
        return self.corpus.tokens.tolist()

    @cached_property
    def pieces(self) -> list[str]:
        """Readable form of each token."""
        return self.loaded.tokenizer.pieces(self.tokens)

    @cached_property
    def texts(self) -> list[str]:
        """Characters that each token adds to the text."""
        tokenizer = self.loaded.tokenizer
        decoder, ends = tokenizer.decoder(), (tokenizer.newline_id, tokenizer.eos_id)
        return [NEWLINE if token in ends else decoder.push(token) for token in self.tokens]

    @cached_property
    def order(self) -> np.ndarray:
        """Text position (N,) of each token in reading order."""
        if self.loaded.backward:
            return reading_order(self.corpus)
        return np.arange(len(self.tokens))

    @cached_property
    def targets(self) -> np.ndarray:
        """Target ids (N,), int64, in reading order."""
        return self.corpus.tokens[self.order].astype(np.int64)

    @cached_property
    def read(self) -> np.ndarray:
        """Input ids (N,), int64: the token before each target; the first is the start token."""
        return np.concatenate([[self.corpus.start], self.targets[:-1]])

    @property
    def read_to_end(self) -> np.ndarray:
        """Start token and all N tokens in reading order, (N + 1,) int64."""
        return np.append(self.read, self.targets[-1])

    @property
    def batch(self) -> Leaf:
        """Input ids as a batch of one row."""
        return self.loaded.model.ids(self.read[None])

    @property
    def row_of(self) -> np.ndarray:
        """Reading position (N,) of each token in text order."""
        return np.argsort(self.order)

    def head(self, count: int) -> TokenizedDocument:
        """Cut the document to its first tokens."""
        return self if count >= len(self.tokens) else self._cut(0, count)

    def around(self, places: list[int], count: int) -> TokenizedDocument:
        """Cut out at most `count` tokens: some positions and the context before them."""
        size = len(self.tokens)
        if self.loaded.backward:
            begin = max(0, min(places[0], size - count))
            return self._cut(begin, min(size, begin + count))
        end = min(size, max(places[-1] + 1, count))
        return self._cut(max(0, end - count), end)

    def without_end(self) -> TokenizedDocument:
        """Drop the document's end token, if it has one."""
        ended = bool(self.tokens) and self.tokens[-1] == self.corpus.end
        return self.head(len(self.tokens) - ended)

    def both_sides(self, places: list[int], count: int) -> TokenizedDocument:
        """Cut out at most `count` tokens: some positions and context on both sides."""
        size = len(self.tokens)
        begin = max(0, min((places[0] + places[-1] + 1 - count) // 2, size - count))
        return self._cut(begin, min(size, begin + count))

    def _cut(self, begin: int, end: int) -> TokenizedDocument:
        """Cut out a part of the document, with the token before it as input."""
        corpus, size = self.corpus, len(self.tokens)
        whole = (begin, end) == (0, size)
        start = corpus.start
        if self.loaded.backward and end < size:
            start = self.tokens[end]
        elif not self.loaded.backward and begin > 0:
            start = self.tokens[begin - 1]
        tokens = corpus.tokens[begin:end]
        ends = np.array([end - begin])
        end_id = corpus.end if whole or (end == size and not self.loaded.backward) else None
        cut = replace(corpus, tokens=tokens, ends=ends, start=start, end=end_id)
        return self if whole else replace(self, corpus=cut)


@dataclass(frozen=True)
class Passages:
    """The beginning of a text as tokenized documents.

    Attributes:
        documents: at least one, each with at least one token.
        cut: the text continues after them.
    """

    documents: list[TokenizedDocument]
    cut: bool

    @property
    def text(self) -> str:
        """Text of all documents."""
        return "".join("".join(document.texts) for document in self.documents)

    def head(self, count: int) -> Passages:
        """Cut the passages to the first `count` tokens."""
        return Passages(_cut_documents(self.documents, count), cut=True)


def _cut_documents(documents: Iterable[TokenizedDocument], count: int) -> list[TokenizedDocument]:
    """Cut documents to `count` tokens in all."""
    taken: list[TokenizedDocument] = []
    for document in documents:
        taken.append(document.head(count))
        count -= len(taken[-1].tokens)
        if count == 0:
            break
    return taken


def tokenize_passages(loaded: LoadedModel, chunks: Iterable[str], max_tokens: int) -> Passages:
    """Tokenize the beginning of a text document by document.

    Args:
        loaded: the model, whose --documents says what a document is.
        chunks: the text in pieces cut anywhere; no more of it is read than is needed.
        max_tokens: how many tokens are taken at most, one or more.

    Raises:
        UsageError: the model writes from sources, or from labels.
        SeqgenError: the text is empty.
    """
    loaded.conditioning.require_nothing("this")
    text, whole = _read_beginning(chunks, CHARACTERS_OF_TOKEN * max_tokens)
    corpus = loaded.encode([text])
    if corpus.tokens.size == 0:
        raise SeqgenError("the text is empty: there is nothing to look at")
    documents = (
        TokenizedDocument(loaded, corpus.take(np.array([number])), number)
        for number in range(corpus.ends.size)
    )
    cut = not whole or corpus.tokens.size > max_tokens
    return Passages(_cut_documents(documents, max_tokens), cut)


def _read_beginning(chunks: Iterable[str], most: int) -> tuple[str, bool]:
    """Read the first characters of a text; return whether that is all of it."""
    taken, size = [], 0
    for chunk in chunks:
        taken.append(chunk)
        size += len(chunk)
        if size > most:
            return "".join(taken)[:most], False
    return "".join(taken), True


@without_gradients
def distributions(
    document: TokenizedDocument,
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Yield a model's predictions in a document in blocks, in reading order.

    Yields:
        M places in the text; their tokens (M,) of int64; and the log-probabilities (M, V) of all
        tokens there, in float64 and nats.
    """
    model = document.loaded.model
    state: State = model.start(1)
    targets, order = document.targets, document.order.tolist()
    for begin in range(0, len(order), max(1, model.most_at_once)):
        piece = slice(begin, begin + max(1, model.most_at_once))
        predictions, state = model.predictions(document.batch[:, piece], state)
        places = order[piece]
        rows = predictions.rows(model.ids(np.arange(len(places))))
        yield places, targets[piece], ops_of(rows).array(rows).astype(np.float64)
