"""GloVe: word vectors fitted to co-occurrence counts (Pennington et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.plugins.vectors.models.network import Windows, WordNetwork
from seqgen.plugins.vectors.models.settings import GloVeConfig


class GloVe(WordNetwork):
    """GloVe as a torch module, the registry's `glove`.

    X_ij adds up 1 / d over all places where word j stands d words from word i, d <= m. With
    f(x) = min(1, (x / x_max)^alpha),

    J = sum_ij f(X_ij) (w_i . u_j + b_i + c_j - log X_ij)^2

    (Pennington et al. 2014, equation 8). X is counted once. The sum is taken by reading the text:
    each place where j stands d words from i has the share 1 / (d X_ij) of the term of i and j, so
    that all places together are J, and any rows of text are an unbiased sample of it. Pairs whose
    words are in different rows are the only ones that a pass leaves out. The vector of a word is
    w_i + u_i, as in the paper.

    Attributes:
        pairs: (P,) int64, i V + j of all pairs that occur, sorted.
        times: (P,) float32, X_ij of each.
    """

    config: GloVeConfig

    def __init__(self, config: GloVeConfig) -> None:
        super().__init__(config)
        shape = (config.vocab_size, config.embedding_size)
        self.embedding, self.context = nn.Embedding(*shape), nn.Embedding(*shape)
        self.bias, self.context_bias = (nn.Embedding(shape[0], 1) for _ in range(2))
        for table in (self.embedding, self.context, self.bias, self.context_bias):
            nn.init.uniform_(table.weight, -0.5 / shape[1], 0.5 / shape[1])
        # Counted again whenever training goes on: they would be far larger than the model.
        self.register_buffer("pairs", torch.zeros(0, dtype=torch.int64), persistent=False)
        self.register_buffer("times", torch.zeros(0), persistent=False)

    def survey(
        self, tokens: np.ndarray, no_words: Sequence[int], ends: np.ndarray | None = None
    ) -> None:
        super().survey(tokens, no_words, ends)
        ends = np.array([tokens.size]) if ends is None else ends
        places = np.flatnonzero(~np.isin(tokens, list(no_words)))
        words = tokens[places].astype(np.int64)
        documents = np.searchsorted(ends, places, side="right")
        distances = range(1, self.config.context_size + 1)
        counted = [_pairs_at(words, documents, d, self.vocab_size) for d in distances]
        keys, where = np.unique(np.concatenate([keys for keys, _ in counted]), return_inverse=True)
        times = np.bincount(where, np.concatenate([times for _, times in counted]), keys.size)
        self.pairs = torch.from_numpy(keys).to(self.device)
        self.times = torch.from_numpy(times).to(self.times)

    def cost(self, windows: Windows) -> Tensor:
        scores = self.embedding(windows.centres) @ self.context(windows.around).mT
        scores = scores + self.bias(windows.centres)  # (B, N, b, b + 2m)
        scores = scores + self.context_bias(windows.around).mT
        keys = windows.centres[..., None] * self.vocab_size + windows.around[..., None, :]
        keys, scores = keys[windows.within], scores[windows.within]
        distance = windows.distance.expand(windows.within.shape)[windows.within]
        if not self.pairs.numel():
            return scores.sum() * 0.0
        place = torch.searchsorted(self.pairs, keys).clamp_max(self.pairs.numel() - 1)
        known = self.pairs[place] == keys  # all of the training part are
        x = self.times[place]
        weight = (x / self.config.count_limit).pow(self.config.count_power).clamp_max(1.0)
        share = known / (distance * x)
        return (share * weight * (scores - x.log()).square()).sum()


def _pairs_at(
    words: np.ndarray, documents: np.ndarray, distance: int, vocab_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count the word pairs (i, j) `distance` words apart: keys i V + j, and counts / distance.

    Args:
        words: (N,) int64, without what is no word.
        documents: (N,), the document of each.
        distance: d.
        vocab_size: V.
    """
    in_one_document = documents[:-distance] == documents[distance:]
    one, other = words[:-distance][in_one_document], words[distance:][in_one_document]
    keys = np.concatenate([one * vocab_size + other, other * vocab_size + one])
    keys, times = np.unique(keys, return_counts=True)
    return keys, times / distance
