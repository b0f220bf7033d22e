"""A vector for each text, or for each of its tokens in their context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from seqgen.configs import require
from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.bert import Bert
from seqgen.models.network import Network
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.vectors.words import WordVectors
from seqgen.tokenizers import Tokenizer
from seqgen.tokenizers.word import VocabularyTokenizer
from seqgen.wording import plural

Pooling = Literal["mean", "last", "none"]


@dataclass(frozen=True)
class TextVector:
    """The keys of a record of `seqgen vectors --text --json`, in order.

    Attributes:
        index: of the line.
        text: the line.
        vector: D numbers.
        model: its name.
    """

    index: int
    text: str
    vector: list[float]
    model: str


@dataclass(frozen=True)
class TokenVector:
    """The keys of a record of `seqgen vectors --text --pool none --json`, in order.

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
    """Refuse what a model cannot do.

    Raises:
        UsageError: there is no such pooling or layer, the model writes from sources, or it has no
            states.
        SeqgenError: it is no network.
    """
    kinds = get_args(Pooling)
    require(pooling in kinds, f"--pool is mean, last or none, not {pooling!r}")
    if not isinstance(loaded.model, Network):
        raise SeqgenError(
            f"{loaded.stored.name} has no vectors for texts: give a network, not a model that is "
            "estimated from counts, nor a mixture"
        )
    if isinstance(loaded.model, NeuralLanguageModel):
        loaded.require_text("--text")
        layers = len(loaded.model.layer_features(torch.tensor([[loaded.framing.start]])))
        what = plural(layers, "layer")
        require(layer is None or layer < layers, f"--layer counts from 0, and there are {what}")
        return
    name = loaded.stored.name
    require(layer is None, f"--layer is for language models, and {name} is none")
    read = ("mean", "none") if isinstance(loaded.model, Bert) else ("mean",)
    require(
        pooling in read,
        f"{name} has no state after a text: only --pool {' or '.join(read)}",
    )


def text_vectors(
    loaded: LoadedModel, lines: Iterable[str], pooling: Pooling, layer: int | None = None
) -> Iterator[TextVector | TokenVector]:
    """Yield the vector of each line, or those of its tokens, as soon as it is read.

    That of a language model is made of the features that its softmax layer reads, after each
    token of the line ("mean") or after its last ("last"); that of a masked model is the mean of
    the features of the line's tokens. That of word vectors is their mean. An empty line has the
    features after the start symbol, or a vector of zeros.

    Args:
        loaded: the model.
        lines: without their newlines.
        pooling: how one vector is made of several; "none" gives each token its own.
        layer: of a language model, from 0; the last if None.

    Raises:
        SeqgenError: a line has more tokens than the model reads at once.
    """
    reads = isinstance(loaded.model, (NeuralLanguageModel, Bert))
    words = None if reads else WordVectors.of(loaded)
    for index, line in enumerate(lines):
        if words is not None:
            vector = words.mean(pieces_of(loaded.tokenizer, line))
        elif pooling == "none":
            yield from _token_vectors(loaded, index, line, layer)
            continue
        else:
            features = _features(loaded, loaded.ids(line), layer)
            vector = features[-1] if pooling == "last" else features.mean(0)
        yield TextVector(index, line, vector.tolist(), loaded.stored.name)


def _token_vectors(
    loaded: LoadedModel, index: int, line: str, layer: int | None
) -> Iterator[TokenVector]:
    """Yield the vector of each token of a line, which knows the tokens around it."""
    if not (ids := loaded.ids(line)):
        return
    vectors = _features(loaded, ids, layer).tolist()
    pieces = loaded.tokenizer.pieces(ids)
    for position, (piece, vector) in enumerate(zip(pieces, vectors, strict=True)):
        yield TokenVector(index, position, piece, vector, loaded.stored.name)


@torch.inference_mode()
def _features(loaded: LoadedModel, ids: Sequence[int], layer: int | None) -> np.ndarray:
    """Return the features (T, H) of a line's tokens; those of its start, (1, H), of no tokens."""
    model = loaded.model
    if isinstance(model, Bert):
        return _of_masked(model, ids).float().cpu().numpy()
    tokens = torch.tensor([loaded.framing.opened(ids)], device=model.device)
    if layer is None:
        hidden, _ = model.hidden(tokens, model.start(1))  # (1, N, H), the line's last
    else:
        _require_window(tokens.shape[1], model.window)
        hidden = model.layer_features(tokens)[layer]
    return hidden[0, -max(1, len(ids)) :].float().cpu().numpy()


def _require_window(size: int, window: int | None) -> None:
    if window is not None and size > window:
        raise SeqgenError(f"a line has {size:,} tokens, and the model reads at most {window:,}")


def _of_masked(model: Bert, ids: Sequence[int]) -> Tensor:
    """Return the features (T, H) of a line's tokens; those of [CLS], (1, H), of an empty one.

    Raises:
        SeqgenError: it is longer than the window.
    """
    _require_window(len(ids), model.window)
    cls, sep, _ = model.config.symbols
    row = torch.tensor([[cls, *ids, sep]], device=model.device)
    features = model.features(row, [row.shape[1]])[0]
    return features[1:-1] if ids else features[:1]


def pieces_of(tokenizer: Tokenizer, line: str) -> list[str]:
    """Return the pieces of a line, those without a token included."""
    if isinstance(tokenizer, VocabularyTokenizer):
        return tokenizer.split(line)
    return tokenizer.pieces(tokenizer.encode(line).tolist())
