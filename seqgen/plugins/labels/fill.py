"""Prediction of the blanks of a text with a masked model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.engines.ops import ArrayOps, ops_of, without_gradients
from seqgen.errors import SeqgenError
from seqgen.generation.prompts import Lines
from seqgen.plugins.labels.masking import tokens_besides
from seqgen.plugins.labels.models.transformer_arrays import MaskedModel
from seqgen.settings.filters import WordFilter
from seqgen.store.loaded import LoadedModel
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.sentencepiece import SPACE
from seqgen.wording import ShortRepr

# What stands for a hidden token in a text.
MASK = "[MASK]"


@dataclass(frozen=True, repr=False)
class Filled(ShortRepr):
    """Record of one text from `seqgen fill --json`.

    Attributes:
        index: of the text, from 0.
        text: as it was given.
        tokens: for each [MASK] the most probable tokens, the first one first.
        probabilities: of these tokens.
        filled: the text with the first token in each place.
        unknown: how many tokens of the text the model does not know.
        model: its name.
    """

    index: int
    text: str
    tokens: list[list[str]]
    probabilities: list[list[float]]
    filled: str
    unknown: int
    model: str


def fill(
    loaded: LoadedModel,
    texts: Iterable[str],
    top: int = 1,
    filters: Sequence[WordFilter] = (),
) -> Iterator[Filled]:
    """Predict the most probable tokens for the blanks of each text, yielding as texts are read.

    Each [MASK] is predicted from all other tokens of its text, of which other [MASK]s are part:
    tokens for several blanks need not fit together. Tokens that differ only in the spaces around
    them are one word, whose probability is their sum; the more probable of them is written.

    Args:
        loaded: a masked model.
        texts: each with one or several [MASK].
        top: how many tokens for each blank, at most.
        filters: only tokens are considered that match all of these, without the spaces around
            them. Their probabilities remain the model's own.

    Raises:
        UsageError: no token matches a filter.
        SeqgenError: a text has no [MASK], or more tokens than the model reads at once.
    """
    tokenizer, model = loaded.tokenizer, loaded.model
    tokens = tokens_besides(model.vocab_size, [*tokenizer.special_ids, *line_breaks(tokenizer)])
    spelled = [shown(piece) for piece in tokenizer.pieces(tokens.tolist())]
    words = list(dict.fromkeys(spelled))
    number = {word: n for n, word in enumerate(words)}
    word_of = np.array([number[word] for word in spelled])  # (T,) the word of each token
    matching = [each.matching(words) for each in filters]
    allowed = np.flatnonzero(np.logical_and.reduce([np.ones(len(words), bool), *matching]))
    for index, text in enumerate(texts):
        where = f"{texts.source}, line" if isinstance(texts, Lines) else "text"
        parts = parts_of(tokenizer, text)
        ids, places = hidden(tokenizer, parts, model.config.symbols.mask)
        _check(loaded, ids, places, f"{where} {index + 1}")
        by_token = probabilities_at(model, ids, places)[:, tokens]  # (M, T)
        by_word = np.array([np.bincount(word_of, row, len(words)) for row in by_token])  # (M, W)
        ranked = np.argsort(-by_word[:, allowed], axis=1, kind="stable")
        order = allowed[ranked[:, :top]]  # (M, top)
        likeliest = [
            tokens[np.where(word_of == best, row, -1.0).argmax()].item()
            for row, best in zip(by_token, order[:, 0], strict=True)
        ]
        yield Filled(
            index=index,
            text=text,
            tokens=[[words[word] for word in row] for row in order],
            probabilities=np.take_along_axis(by_word, order, 1).tolist(),
            filled=filled(tokenizer, text, likeliest),
            unknown=ids.count(tokenizer.unk_id),
            model=loaded.stored.name,
        )


def line_breaks(tokenizer: Tokenizer) -> list[int]:
    """List the tokens that contain a line break, which must not fill a blank."""
    return [i for i in range(tokenizer.vocab_size) if {"\n", "\r"} & set(tokenizer.decode([i]))]


def shown(piece: str) -> str:
    """Strip the spaces around a token, unless it consists of spaces only."""
    return piece.replace(SPACE, " ").strip(" ") or piece


def _check(loaded: LoadedModel, ids: list[int], places: list[int], where: str) -> None:
    """Check that a text has a blank and fits the model's window.

    Raises:
        SeqgenError: names it.
    """
    if not places:
        raise SeqgenError(f"{where} has no {MASK}: put one in the place of each token to predict")
    most = loaded.model.window
    if len(ids) > most:
        raise SeqgenError(
            f"{where} has {len(ids):,} tokens, and {loaded.stored.name} reads at most {most:,}"
        )


def parts_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """Split a text at each [MASK], dropping the space that the predicted token brings itself."""
    *parts, last = text.split(MASK)
    if tokenizer.joins_space:
        parts = [part.removesuffix(" ") for part in parts]
    return [*parts, last]


def hidden(tokenizer: Tokenizer, parts: Sequence[str], mask: int) -> tuple[list[int], list[int]]:
    """Encode text parts with mask tokens between them; return the ids and the masks' positions."""
    ids, places = tokenizer.encode(parts[0]).tolist(), []
    for part in parts[1:]:
        places.append(len(ids))
        ids += [mask, *tokenizer.encode(part).tolist()]
    return ids, places


def filled(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> str:
    """Replace each [MASK] of a text by a token, with spaces as the tokenizer decodes them.

    A word that has no space of its own keeps the one before its blank; and one that has a space
    loses it where none is due: at the beginning, or after white space.
    """
    *given, last = text.split(MASK)
    written, ids = "", []
    for token, part, read in zip(tokens, given, parts_of(tokenizer, text), strict=False):
        written += read
        ids += tokenizer.encode(read).tolist()
        decoder = tokenizer.decoder(ids)
        piece = decoder.push(token) + decoder.flush()
        if read != part and not piece[:1].isspace():
            piece = tokenizer.copied(piece, written)
        elif tokenizer.joins_space and not written[-1:].strip():
            piece = piece.removeprefix(" ") or piece
        written += piece
        ids.append(token)
    return written + last


@without_gradients
def probabilities_at(model: MaskedModel, ids: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """Compute the probability of every token at each masked position, (M, V) float64."""
    symbols = model.config.symbols
    row = np.array([[symbols.cls, *ids, symbols.sep]])
    logits, _ = model(model.ids(row), [row.shape[1]], model.ids(np.array([places]) + 1))
    logits = ops_of(logits).array(logits)[0].astype(np.float64)
    return ArrayOps.softmax(logits)[:, : model.vocab_size]
