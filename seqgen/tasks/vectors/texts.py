"""A vector for each text: the mean of its tokens' vectors, or what a model knows at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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

Pooling = Literal["mean", "last"]


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


def check_pooling(loaded: LoadedModel, pooling: str) -> None:
    """Refuse what a model cannot do.

    Raises:
        UsageError: there is no such pooling, the model writes from sources, or it has no states.
        SeqgenError: it is no network.
    """
    require(pooling in ("mean", "last"), f"--pool is mean or last, not {pooling!r}")
    if not isinstance(loaded.model, Network):
        raise SeqgenError(
            f"{loaded.stored.name} has no vectors for texts: give a network, not a model that is "
            "estimated from counts, nor a mixture"
        )
    if isinstance(loaded.model, NeuralLanguageModel):
        loaded.require_text("--text")
    else:
        name = loaded.stored.name
        require(pooling == "mean", f"{name} has no state after a text: only --pool mean")


def text_vectors(
    loaded: LoadedModel, lines: Iterable[str], pooling: Pooling
) -> Iterator[TextVector]:
    """Yield the vector of each line, as soon as it is read.

    That of a language model is made of the features that its softmax layer reads, after each
    token of the line ("mean") or after its last ("last"); that of a masked model is the mean of
    the features of the line's tokens. That of word vectors is their mean. An empty line has the
    features after the start symbol, or a vector of zeros.

    Args:
        loaded: the model.
        lines: without their newlines.
        pooling: how one vector is made of several.

    Raises:
        SeqgenError: a line has more tokens than a masked model reads.
    """
    reads = isinstance(loaded.model, (NeuralLanguageModel, Bert))
    words = None if reads else WordVectors.of(loaded)
    for index, line in enumerate(lines):
        if words is None:
            vector = _features(loaded, line, pooling)
        else:
            vector = words.mean(pieces_of(loaded.tokenizer, line))
        yield TextVector(index, line, vector.tolist(), loaded.stored.name)


@torch.inference_mode()
def _features(loaded: LoadedModel, line: str, pooling: Pooling) -> np.ndarray:
    ids, model = loaded.ids(line), loaded.model
    if isinstance(model, Bert):
        features = _of_masked(model, ids)
    else:
        tokens = torch.tensor([loaded.framing.opened(ids)], device=model.device)
        hidden, _ = model.hidden(tokens, model.start(1))  # (1, N, H), the line's last
        features = hidden[0, -max(1, len(ids)) :]
    return (features[-1] if pooling == "last" else features.mean(0)).float().cpu().numpy()


def _of_masked(model: Bert, ids: Sequence[int]) -> Tensor:
    """Return the features (T, H) of a line's tokens; those of [CLS], (1, H), of an empty one.

    Raises:
        SeqgenError: it is longer than the window.
    """
    if len(ids) > model.window:
        raise SeqgenError(
            f"a line has {len(ids):,} tokens, and the model reads at most {model.window:,}"
        )
    cls, sep, _ = model.config.symbols
    row = torch.tensor([[cls, *ids, sep]], device=model.device)
    features = model.features(row, [row.shape[1]])[0]
    return features[1:-1] if ids else features[:1]


def pieces_of(tokenizer: Tokenizer, line: str) -> list[str]:
    """Return the pieces of a line, those without a token included."""
    if isinstance(tokenizer, VocabularyTokenizer):
        return tokenizer.split(line)
    return tokenizer.pieces(tokenizer.encode(line).tolist())
