"""Vectors of texts, or of each token in its context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from seqgen.engines.ops import ops_of, without_gradients
from seqgen.errors import SeqgenError
from seqgen.models.inference import InferenceModel
from seqgen.plugins.vectors.words import WordVectors
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.word import VocabularyTokenizer
from seqgen.wording import ShortRepr, plural

Pooling = Literal["mean", "last", "none"]


@dataclass(frozen=True, repr=False)
class TextVector(ShortRepr):
    """Record of one text from `seqgen vectors --file --json`.

    Attributes:
        index: of the line.
        text: the line.
        vector: D numbers.
        tokens: how many the line has; of vectors of words, how many words.
        unknown: how many of these the model does not know. If these are all, a line has no
            vector of words, and gets zeros.
        model: its name.
    """

    index: int
    text: str
    vector: list[float]
    tokens: int
    unknown: int
    model: str


@dataclass(frozen=True, repr=False)
class TokenVector(ShortRepr):
    """Record of one token from `seqgen vectors --file --pool none --json`.

    Attributes:
        index: of the line.
        position: of the token in it.
        token: as it is shown to a person.
        vector: D numbers.
        model: its name.
    """

    index: int
    position: int
    token: str
    vector: list[float]
    model: str


def check_pooling(loaded: LoadedModel, pooling: str, layer: int | None = None) -> None:
    """Check that a model supports the requested pooling and layer.

    Raises:
        UsageError: there is no such pooling or layer, the model writes from sources, or it has no
            states.
        SeqgenError: it is no network.
    """
    kinds = get_args(Pooling)
    require(pooling in kinds, f"--pool is mean, last or none, not {pooling!r}")
    knows_context = hasattr(loaded.model, "layer_features")
    vectors_of = getattr(loaded.model, "token_vectors", None)
    if not knows_context and (vectors_of is None or vectors_of() is None):
        raise SeqgenError(
            f"{loaded.stored.name} has no vectors for texts: give a network, not a model that is "
            "estimated from counts, nor a mixture"
        )
    name, model = loaded.stored.name, loaded.model
    if isinstance(model, InferenceModel):
        loaded.conditioning.require_nothing("--file")
    else:
        require(pooling != "last", f"{name} has no state after a text: only --pool mean or none")
    if not knows_context:
        require(pooling == "mean", f"{name} knows no context: only --pool mean")
        require(layer is None, f"{name} has one vector for each word: leave out --layer")
        return
    layers = len(model.layer_features(model.ids(np.array([[loaded.framing.start]]))))
    what = plural(layers, "layer")
    require(layer is None or layer < layers, f"--layer counts from 0, and {name} has {what}")


def text_vectors(
    loaded: LoadedModel, lines: Iterable[str], pooling: Pooling, layer: int | None = None
) -> Iterator[TextVector | TokenVector]:
    """Compute the vector of each line, or of each of its tokens, as lines are read.

    That of a language model is made of the features that its softmax layer reads, after each
    token of the line ("mean") or after its last ("last"); that of a masked model, or of elmo, is
    the mean of the features of the line's tokens. That of word vectors is their mean. An empty
    line has the features after the start symbol, or a vector of zeros.

    Args:
        loaded: the model.
        lines: without their newlines.
        pooling: how one vector is made of several; "none" gives each token its own.
        layer: whose features, from 0; the last if None.

    Raises:
        SeqgenError: a line has more tokens than the model reads at once.
    """
    words = None if hasattr(loaded.model, "layer_features") else WordVectors.of(loaded)
    for index, line in enumerate(lines):
        if words is not None:
            vector, tokens, unknown = words.mean(pieces_of(loaded.tokenizer, line))
        elif pooling == "none":
            yield from _token_vectors(loaded, index, line, layer)
            continue
        else:
            ids = loaded.ids(line)
            tokens, unknown = len(ids), ids.count(loaded.tokenizer.unk_id)
            features = _features(loaded, ids, layer, index)
            vector = features[-1] if pooling == "last" else features.mean(0)
        yield TextVector(index, line, vector.tolist(), tokens, unknown, loaded.stored.name)


def _token_vectors(
    loaded: LoadedModel, index: int, line: str, layer: int | None
) -> Iterator[TokenVector]:
    """Yield the contextual vector of each token of a line."""
    if not (ids := loaded.ids(line)):
        return
    vectors = _features(loaded, ids, layer, index).tolist()
    pieces = loaded.tokenizer.pieces(ids)
    for position, (piece, vector) in enumerate(zip(pieces, vectors, strict=True)):
        yield TokenVector(index, position, piece, vector, loaded.stored.name)


@without_gradients
def _features(loaded: LoadedModel, ids: Sequence[int], layer: int | None, index: int) -> np.ndarray:
    """Compute the features (T, H) of a line's tokens; for an empty line the start token's, (1, H).

    Raises:
        SeqgenError: it is longer than the window, where that is read at once; names the line.
    """
    model = loaded.model
    if (symbols := getattr(model, "symbols", None)) is not None:
        row, inside = [symbols.cls, *ids, symbols.sep], slice(1, -1) if ids else slice(1)
    else:
        row, inside = loaded.framing.opened(ids), slice(-max(1, len(ids)), None)
    tokens = model.ids(np.array([row], np.int64))
    if layer is None and isinstance(model, InferenceModel):
        features, _ = model.hidden(tokens, model.start(1))  # (1, N, H)
    else:
        window = model.window
        if window is not None and getattr(model, "counts_start", False):
            window -= 1
        if window is not None and len(ids) > window:
            raise SeqgenError(
                f"line {index + 1} has {len(ids):,} tokens, and {loaded.stored.name} reads at most "
                f"{window:,}"
            )
        features = model.layer_features(tokens)[-1 if layer is None else layer]
    return ops_of(features).array(features)[0, inside].astype(np.float32, copy=False)


def pieces_of(tokenizer: Tokenizer, line: str) -> list[str]:
    """Split a line into pieces, including those that have no token."""
    if isinstance(tokenizer, VocabularyTokenizer):
        return tokenizer.split(line)
    return tokenizer.pieces(tokenizer.encode(line).tolist())
