"""Attention of a transformer's heads over a text: weights from one word, and entropies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.models.transformer.context import AnchoredContext
from seqgen.plugins.inspect.attention_figures import (
    HeadFigures,
    attention_figures,
    attention_weights,
)
from seqgen.scoring.passages import Passages, TokenizedDocument
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel
from seqgen.wording import plural


@dataclass(frozen=True)
class HeadWeights:
    """Record of `seqgen inspect --attention --token WORD --json`; its keys in order.

    Attributes:
        model: its name.
        layer: from 0.
        head: from 0.
        word: the word that reads.
        pieces: the N + 1 tokens that the model has read, the start symbol first; of a masked model
            N + 2, [CLS] first and [SEP] last.
        texts: what each adds to the text; these symbols add nothing.
        word_places: which of them make up the word.
        weights: how much the word reads of each, as a mean over the word's own tokens.
    """

    model: str
    layer: int
    head: int
    word: str
    pieces: list[str]
    texts: list[str]
    word_places: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Attended:
    """Attention of some heads: entropies, and weights from a word.

    Attributes:
        heads: the entropies of all that were asked for.
        words: what each reads for the word; none without a word.
        cut: how many tokens of the document the window leaves out.
    """

    heads: list[HeadFigures]
    words: list[HeadWeights]
    cut: int


def attended(
    passages: Passages, layer: int | None, heads: Sequence[int] | None, word: str | None
) -> Attended:
    """Compute the attention entropy of each head, and the weights from a word of the text.

    Args:
        passages: the text. With a word, the last document that has it is read, else the first.
            What does not fit the model's window is left out: of the text before a word its
            beginning, and for a masked model what is far from the word on either side.
        layer: from 0; None for all, or with a word for the last.
        heads: from 0; None for all.
        word: a string of the text; its last occurrence is looked at, as a whole word if it is
            one somewhere. None for entropies alone.

    Raises:
        UsageError: the model is no transformer of text, or has no such layer or head.
        SeqgenError: the text has no such word.
    """
    loaded = passages.documents[0].loaded
    model = require_attention(loaded)
    config, name = loaded.model.config, loaded.stored.name
    for flag, given, there in (
        ("--layer", [] if layer is None else [layer], config.num_layers),
        ("--head", heads or [], config.num_heads),
    ):
        wrong = next((number for number in given if number >= there), None)
        require(wrong is None, f"{flag} is from 0 to {there - 1} for {name}, not {wrong}")
    reading = (MaskedInputs if reads_both_sides(model) else DecoderInputs)(model)
    document, passage, places = _passage_of(passages, word, reading)
    layer = config.num_layers - 1 if layer is None and word is not None else layer
    chosen = range(config.num_heads) if heads is None else heads
    tokens = model.ids(reading.ids(passage))[None]
    # The figures are means over all positions, each with the tokens that it sees.
    figures = [
        head
        for head in attention_figures(model, tokens)
        if head.layer == (head.layer if layer is None else layer) and head.head in chosen
    ]
    seen = Attended(figures, [], len(document.tokens) - len(passage.tokens))
    if word is None:
        return seen
    every = attention_weights(model, tokens)[layer]  # (heads, T, T)
    seen.words.extend(
        _of_head(reading, passage, places, word, layer, head, every[head]) for head in chosen
    )
    return seen


@dataclass(frozen=True)
class DecoderInputs:
    """Input layout of a decoder: its start symbol, then the tokens in reading order.

    Attributes:
        model: the decoder.
    """

    model: Any

    @property
    def most(self) -> int:
        """Number of text tokens that fit the window."""
        return self.model.window - 1

    def whole(self, passage: TokenizedDocument) -> TokenizedDocument:
        """Cut a document to the part that the model reads."""
        return passage

    def around(self, passage: TokenizedDocument, places: list[int]) -> TokenizedDocument:
        """Cut a document to the window, around some of its places."""
        return passage.around(places, self.most)

    def ids(self, passage: TokenizedDocument) -> np.ndarray:
        """List the input ids in reading order, with symbols, (T,) of int64."""
        return passage.read_to_end

    def steps(self, passage: TokenizedDocument) -> np.ndarray:
        """List the step that reads each symbol and token, (T,); step r + 1 reads r's prediction."""
        return np.concatenate([[0], passage.row_of + 1])

    def symbols(self, passage: TokenizedDocument) -> tuple[list[str], list[str]]:
        """List the symbols before and after a passage."""
        return passage.loaded.tokenizer.pieces([passage.corpus.start]), []


@dataclass(frozen=True)
class MaskedInputs(DecoderInputs):
    """Input layout of a masked model: [CLS] text [SEP], without the text's end token."""

    @property
    def most(self) -> int:
        return self.model.window

    def whole(self, passage: TokenizedDocument) -> TokenizedDocument:
        return passage.without_end()

    def around(self, passage: TokenizedDocument, places: list[int]) -> TokenizedDocument:
        return passage.both_sides(places, self.most)

    def ids(self, passage: TokenizedDocument) -> np.ndarray:
        symbols = self.model.config.symbols
        return np.array([symbols.cls, *passage.tokens, symbols.sep])

    def steps(self, passage: TokenizedDocument) -> np.ndarray:
        return np.arange(len(passage.tokens) + 2)

    def symbols(self, passage: TokenizedDocument) -> tuple[list[str], list[str]]:
        return ["[CLS]"], ["[SEP]"]


def reads_both_sides(model: Any) -> bool:
    """Check whether a model is bidirectional with framing symbols, like BERT."""
    return hasattr(model.config, "symbols")


def require_attention(loaded: LoadedModel) -> Any:
    """Return the model if it is a transformer; otherwise raise an error.

    Raises:
        UsageError: it is none.
    """
    require(
        isinstance(loaded.model, AnchoredContext) or reads_both_sides(loaded.model),
        f"--attention is for transformers and masked models, which {loaded.stored.name} is not; "
        "seqgen sample --attention shows what a model reads of its source",
    )
    return loaded.model


def _passage_of(
    passages: Passages, word: str | None, reading: DecoderInputs
) -> tuple[TokenizedDocument, TokenizedDocument, list[int]]:
    """Choose a document; return it, its part within the window, and a word's places there."""
    if reading.most < 1:
        window = plural(reading.model.window, "token")
        raise SeqgenError(f"a window of {window} leaves nothing to attend to")
    documents = [reading.whole(passage) for passage in passages.documents]
    if word is None:
        return documents[0], documents[0].head(reading.most), []
    for passage in reversed(documents):
        if places := _places(passage, word):
            read = reading.around(passage, places)
            return passage, read, _places(read, word)
    raise SeqgenError(f"the text has no {word!r} in the tokens that are looked at")


def _places(passage: TokenizedDocument, word: str) -> list[int]:
    """Find the tokens of the last occurrence of a word; empty if it does not occur."""
    text = "".join(passage.texts)
    exact = re.escape(word)
    matches = [*re.finditer(rf"(?<!\w){exact}(?!\w)", text)] or [*re.finditer(exact, text)]
    if not matches:
        return []
    begin, end = matches[-1].span()
    ends = np.cumsum([len(piece) for piece in passage.texts])
    starts = ends - [len(piece) for piece in passage.texts]
    return np.flatnonzero((starts < end) & (ends > begin)).tolist()


def _of_head(
    reading: DecoderInputs,
    passage: TokenizedDocument,
    places: list[int],
    word: str,
    layer: int,
    head: int,
    matrix: np.ndarray,
) -> HeadWeights:
    """Average the attention of one head from the tokens of a word, in text order."""
    steps = reading.steps(passage)
    read = matrix[steps[np.array(places) + 1]].mean(0)[steps]
    before, after = reading.symbols(passage)
    return HeadWeights(
        model=passage.loaded.stored.name,
        layer=layer,
        head=head,
        word=word,
        pieces=[*before, *passage.pieces, *after],
        texts=[*([""] * len(before)), *passage.texts, *([""] * len(after))],
        word_places=[place + 1 for place in places],
        weights=read.tolist(),
    )
