"""The attention of a transformer's heads over a text: for one word, and its entropy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.models.transformer.attention_figures import (
    HeadFigures,
    attention_figures,
    attention_weights,
)
from seqgen.models.transformer.context import AnchoredContext
from seqgen.scoring.passages import Passages, TokenizedDocument
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel
from seqgen.wording import plural


@dataclass(frozen=True)
class HeadWeights:
    """The keys of `seqgen inspect --attention --token WORD --json`, in order.

    Attributes:
        model: its name.
        layer: from 0.
        head: from 0.
        word: the word that reads.
        pieces: the N + 1 tokens that the model has read, the start symbol first.
        texts: what each adds to the text; the start symbol adds nothing.
        word_places: which of them make up the word.
        weights: (N + 1,): how much the word reads of each, as a mean over the word's own tokens.
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
    """What some heads read.

    Attributes:
        heads: the entropies of all that were asked for.
        words: what each reads for the word; none without a word.
        cut: how many of the text's tokens the window leaves out.
    """

    heads: list[HeadFigures]
    words: list[HeadWeights]
    cut: int


def attended(
    passages: Passages, layer: int | None, heads: Sequence[int] | None, word: str | None
) -> Attended:
    """Return the entropy of attention by head, and what heads read for a word of the text.

    Args:
        passages: the text. With a word, the last document that has it is read, else the first.
            What does not fit the model's window is left out: of the text before a word its
            beginning.
        layer: from 0; None for all, or with a word for the last.
        heads: from 0; None for all.
        word: a string of the text; its last occurrence is looked at, as a whole word if it is
            one somewhere. None for entropies alone.

    Raises:
        UsageError: the model is no transformer of text, or has no such layer or head.
        SeqgenError: the text has no such word.
    """
    loaded = passages.documents[0].loaded
    model = require_transformer(loaded)
    config, name = loaded.model.config, loaded.stored.name
    for flag, given, there in (
        ("--layer", [] if layer is None else [layer], config.num_layers),
        ("--head", heads or [], config.num_heads),
    ):
        wrong = next((number for number in given if number >= there), None)
        require(wrong is None, f"{flag} is from 0 to {there - 1} for {name}, not {wrong}")
    passage, places = _passage_of(passages, word, model.window)
    layer = config.num_layers - 1 if layer is None and word is not None else layer
    chosen = range(config.num_heads) if heads is None else heads
    tokens = loaded.model.ids(passage.read_to_end)[None]
    # The figures are means over all positions, each with the tokens that it sees.
    figures = [
        head
        for head in attention_figures(model, tokens)
        if head.layer == (head.layer if layer is None else layer) and head.head in chosen
    ]
    whole = sum(len(document.tokens) for document in passages.documents)
    seen = Attended(figures, [], whole - len(passage.tokens))
    if word is None:
        return seen
    every = attention_weights(model, tokens)[layer]  # (heads, T, T)
    seen.words.extend(_of_head(passage, places, word, layer, head, every[head]) for head in chosen)
    return seen


def require_transformer(loaded: LoadedModel) -> AnchoredContext:
    """Return the model, which must be a transformer.

    Raises:
        UsageError: it is none.
    """
    require(
        isinstance(loaded.model, AnchoredContext),
        f"--attention is for transformers, which {loaded.stored.name} is not; seqgen sample "
        "--attention shows what a model reads of its source",
    )
    return loaded.model


def _passage_of(
    passages: Passages, word: str | None, window: int
) -> tuple[TokenizedDocument, list[int]]:
    """Return a document as far as the window goes, and the places of a word in it."""
    if window < 2:
        raise SeqgenError(f"a window of {plural(window, 'token')} leaves nothing to attend to")
    if word is None:
        return passages.documents[0].head(window - 1), []
    for passage in reversed(passages.documents):
        if places := _places(passage, word):
            read = passage.around(places, window - 1)
            return read, _places(read, word)
    raise SeqgenError(f"the text has no {word!r} in the tokens that are looked at")


def _places(passage: TokenizedDocument, word: str) -> list[int]:
    """Return the tokens in which the last occurrence of a word stands; none without one."""
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
    passage: TokenizedDocument,
    places: list[int],
    word: str,
    layer: int,
    head: int,
    matrix: np.ndarray,
) -> HeadWeights:
    """Average the attention of one head from the tokens of a word, in the order of the text."""
    # In the order of reading, step r + 1 reads what step r predicted; step 0 the start symbol.
    steps = np.concatenate([[0], passage.row_of + 1])
    read = matrix[steps[np.array(places) + 1]].mean(0)[steps]
    (start,) = passage.loaded.tokenizer.pieces([passage.corpus.start])
    return HeadWeights(
        model=passage.loaded.stored.name,
        layer=layer,
        head=head,
        word=word,
        pieces=[start, *passage.pieces],
        texts=["", *passage.texts],
        word_places=[place + 1 for place in places],
        weights=read.tolist(),
    )
