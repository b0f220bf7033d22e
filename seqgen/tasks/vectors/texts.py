"""A vector for each text: the mean of its tokens' vectors, or what a model knows at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from seqgen.configs import require
from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
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
    token of the line ("mean") or after its last ("last"). That of word vectors is their mean. An
    empty line has the features after the start symbol, or a vector of zeros.

    Args:
        loaded: the model.
        lines: without their newlines.
        pooling: how one vector is made of several.
    """
    reads = isinstance(loaded.model, NeuralLanguageModel)
    words = None if reads else WordVectors.of(loaded)
    for index, line in enumerate(lines):
        if words is None:
            vector = _features(loaded, line, pooling)
        else:
            vector = words.mean(pieces_of(loaded.tokenizer, line))
        yield TextVector(index, line, vector.tolist(), loaded.stored.name)


@torch.inference_mode()
def _features(loaded: LoadedModel, line: str, pooling: Pooling) -> np.ndarray:
    ids = loaded.ids(line)
    tokens = torch.tensor([loaded.framing.opened(ids)], device=loaded.model.device)
    hidden, _ = loaded.model.hidden(tokens, loaded.model.start(1))  # (1, N, H), the line's last
    features = hidden[0, -max(1, len(ids)) :]
    return (features[-1] if pooling == "last" else features.mean(0)).float().cpu().numpy()


def pieces_of(tokenizer: Tokenizer, line: str) -> list[str]:
    """Return the pieces of a line, those without a token included."""
    if isinstance(tokenizer, VocabularyTokenizer):
        return tokenizer.split(line)
    return tokenizer.pieces(tokenizer.encode(line).tolist())
