"""Character CNN: word vectors from a convolution over their characters (Kim et al. 2016)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.engines.tensor_ops import TensorOps
from seqgen.models.array_steps import CachedValue
from seqgen.plugins.labels.models.spelling import (
    AT_ONCE,
    BEGIN,
    BYTES,
    CARRY,
    CHARACTERS,
    END,
    PAD,
    Spelling,
    char_cnn_vectors,
)


class Highway(nn.Module):
    """Highway layer, initialized to pass on nearly all of its input (Srivastava et al. 2015).

    Args:
        size: of y.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(size, size), nn.Linear(size, size)
        for layer in (self.transform, self.gate):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, CARRY)


class SpelledEmbedding(nn.Module):
    """Embedding layer that computes word vectors from characters.

    See `char_cnn_vectors`.

    In training the vectors are made of the words in a batch, once each. Otherwise those of all V
    words are made once, and kept until a weight changes.

    Attributes:
        spelling: (V, L) uint8 or wider, the characters of each word; kept with the weights.
    """

    def __init__(self, config: Spelling) -> None:
        super().__init__()
        counts = config.filters
        self.characters = nn.Embedding(CHARACTERS, config.char_size, padding_idx=PAD)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_size, count, width) for width, count in enumerate(counts, start=1)
        )
        self.highways = nn.Sequential(*(Highway(sum(counts)) for _ in range(config.char_highways)))
        self.projection = nn.Identity()
        if config.embedding_size is not None:
            self.projection = nn.Linear(sum(counts), config.embedding_size)
            nn.init.xavier_uniform_(self.projection.weight)
            nn.init.zeros_(self.projection.bias)
        shape = config.vocab_size, config.char_length
        self.register_buffer("spelling", torch.zeros(shape, dtype=torch.int16))
        # Until it is told, a word is spelled as its number.
        self.spell(map(str, range(config.vocab_size)))

    def spell(self, words: Iterable[str]) -> None:
        """Set the characters of the V words; words that are too long are truncated."""
        length = self.spelling.shape[1]
        for row, word in zip(self.spelling, words, strict=True):
            read = [BEGIN, *(BYTES + byte for byte in word.encode()), END][:length]
            row.zero_()
            row[: len(read)] = torch.tensor(read, dtype=row.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the vectors (..., E) of word ids."""
        if not torch.is_grad_enabled():
            return F.embedding(tokens, self.weight)
        words, places = torch.unique(tokens, return_inverse=True)
        # What an autocast makes of them is not what recurrent kernels take.
        return F.embedding(places, self.vectors(words).to(self.characters.weight.dtype))

    @property
    def weight(self) -> Tensor:
        """Vectors of all words, (V, E), without gradients."""
        known = self.__dict__.get("_table")
        if known is None or not known.holds():
            tensors = itertools.chain(self.parameters(), self.buffers())
            known = self.__dict__["_table"] = CachedValue(tensors, self._table_of_all)
        return known.value

    @torch.no_grad()
    def _table_of_all(self) -> Tensor:
        every = torch.arange(len(self.spelling), device=self.spelling.device)
        with torch.autocast(every.device.type, enabled=False):  # it is kept for calls outside
            return torch.cat([self.vectors(words) for words in every.split(AT_ONCE)])

    def vectors(self, words: Tensor) -> Tensor:
        """Compute the vectors (U, E) of words (U,)."""
        return char_cnn_vectors(TensorOps, self, self.spelling[words].long())
