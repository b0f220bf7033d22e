"""Words from their characters: a convolution over the spelling of each (Kim et al. 2016)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.engines.array_steps import Prepared

# Characters are the bytes of UTF-8, after the padding and what stands around a word.
PAD, BEGIN, END = range(3)
BYTES = 3
CHARACTERS = BYTES + 256
# Words whose vectors are made at a time, where all of the vocabulary are.
AT_ONCE = 2048
# A highway begins by passing on nearly all of its input (Srivastava et al. 2015).
CARRY = -2.0


class Spelling(Protocol):
    """The settings of words that are read from their characters."""

    vocab_size: int
    char_size: int
    char_length: int
    char_highways: int
    embedding_size: int | None
    filters: list[int]


class Highway(nn.Module):
    """A layer that passes on part of its input: z = t g(W_H y + b_H) + (1 - t) y, with ReLU as g.

    t = sigmoid(W_T y + b_T) is the transform gate (Srivastava et al. 2015).

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

    def forward(self, y: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(y))
        return t * torch.relu(self.transform(y)) + (1 - t) * y


class SpelledEmbedding(nn.Module):
    """A vector for each word, made of its characters, in the place of an embedding matrix.

    With C the vectors of the L characters of a word, and a filter H of width w,
    f_i = tanh(<C_i ... C_i+w-1, H> + b) for every place i, and y = max_i f_i (Kim et al. 2016,
    equations 5 and 6). The y of all filters pass through highway layers, and where the
    configuration has an `embedding_size`, through a linear map to that width (Jozefowicz et al.
    2016).

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
        """Tell how the V words are spelled; of a word that is too long, its beginning counts."""
        length = self.spelling.shape[1]
        for row, word in zip(self.spelling, words, strict=True):
            read = [BEGIN, *(BYTES + byte for byte in word.encode()), END][:length]
            row.zero_()
            row[: len(read)] = torch.tensor(read, dtype=row.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors (..., E) of words given by their ids."""
        if not torch.is_grad_enabled():
            return F.embedding(tokens, self.weight)
        words, places = torch.unique(tokens, return_inverse=True)
        return F.embedding(places, self.vectors(words))

    @property
    def weight(self) -> Tensor:
        """The vectors of all words, (V, E), in no graph."""
        known = self.__dict__.get("_table")
        if known is None or not known.holds():
            tensors = itertools.chain(self.parameters(), self.buffers())
            known = self.__dict__["_table"] = Prepared(tensors, self._table_of_all)
        return known.value

    @torch.no_grad()
    def _table_of_all(self) -> Tensor:
        every = torch.arange(len(self.spelling), device=self.spelling.device)
        return torch.cat([self.vectors(words) for words in every.split(AT_ONCE)])

    def vectors(self, words: Tensor) -> Tensor:
        """Return the vectors (U, E) of words (U,)."""
        c = self.characters(self.spelling[words].long()).transpose(1, 2)  # (U, C, L)
        y = [torch.tanh(convolve(c)).amax(-1) for convolve in self.convolutions]
        return self.projection(self.highways(torch.cat(y, dim=-1)))
