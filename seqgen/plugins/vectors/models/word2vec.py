"""word2vec: word vectors that predict neighbouring words (Mikolov et al. 2013)."""

from __future__ import annotations

import functools

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.engines.dropout import draw_for_rows
from seqgen.engines.precision import in_float64
from seqgen.hashing import uniforms
from seqgen.plugins.vectors.models.native import SampledCost
from seqgen.plugins.vectors.models.network import Windows, WordNetwork
from seqgen.plugins.vectors.models.settings import Word2VecConfig

# The words of a row that share so many noise words.
SHARING = 128
# Where evaluation draws noise words from: always the same numbers.
EVALUATION = 29


class Word2Vec(WordNetwork):
    """word2vec as a torch module, the registry's `word2vec`.

    Each word w has a vector v_w, as the word at the centre, and u_w, as one of its context. The
    skip-gram model is

    P(o | c) = exp(u_o . v_c) / sum_w exp(u_w . v_c)

    and -sum_t sum_{0 < |j| <= m} log P(w_{t+j} | w_t) is minimised. Negative sampling replaces
    -log P(o | c) by

    -log sigma(u_o . v_c) - sum_{k=1..K} E_{n ~ P_n} log sigma(-u_n . v_c)

    (Mikolov et al. 2013, "Distributed representations of words and phrases", equation 4), where
    the expectation is the mean over the noise words that a window shares. In CBOW the mean of
    the v of the context stands for v_c, and the word at the centre is predicted.

    On a CPU the compiled library computes skip-gram with negative sampling and its gradients
    (`native.py`); where it does not, `cost` does.

    Initialisation: v uniform in +-1 / (2 D), u zero, as in word2vec's own code.
    """

    config: Word2VecConfig

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__(config)
        shape = (config.vocab_size, config.embedding_size)
        self.embedding = nn.Embedding(*shape)
        self.context = nn.Embedding(*shape)
        nn.init.uniform_(self.embedding.weight, -0.5 / shape[1], 0.5 / shape[1])
        nn.init.zeros_(self.context.weight)

    def loss(self, tokens: Tensor) -> Tensor:
        draws, config = self.draw(tokens), self.config
        tables = self.embedding.weight, self.context.weight
        sampled = config.form == "skip-gram" and draws.noise is not None
        if not sampled or not SampledCost.fits(*tables):
            return self.cost(self.windows(tokens, draws))
        return SampledCost.apply(*tables, tokens, draws, config.context_size, config.negatives)

    def cost(self, windows: Windows) -> Tensor:
        if self.config.form == "cbow":
            return self._cbow(windows)
        v = self.embedding(windows.centres)  # (B, N, b, D)
        u = self.context(windows.around)  # (B, N, b + 2m, D)
        scores = v @ u.mT  # (B, N, b, b + 2m)
        times = windows.within.sum(-1).to(v.dtype)  # (B, N, b): how many words each predicts
        return self._against(scores, windows.within, v, times, windows.noise)

    def _cbow(self, windows: Windows) -> Tensor:
        around = self.embedding(windows.around)  # (B, N, b + 2m, D)
        within = windows.within.to(around.dtype)  # (B, N, b, b + 2m)
        count = within.sum(-1, keepdim=True)
        h = within @ around / count.clamp_min(1)  # (B, N, b, D)
        scores = (h * self.context(windows.centres)).sum(-1, keepdim=True)  # (B, N, b, 1)
        there = count > 0
        return self._against(scores, there, h, there.squeeze(-1).to(h.dtype), windows.noise)

    def _against(
        self, scores: Tensor, counts: Tensor, given: Tensor, times: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Compute the summed loss of predictions, with noise words or the full softmax.

        Args:
            scores: (B, N, b, P), the products of what is given with what is to be predicted.
            counts: which of them are predictions, of the same shape.
            given: (B, N, b, D), from which it is predicted.
            times: (B, N, b), how many predictions are made from each.
            noise: (B, K'), noise words; None for the full softmax.
        """
        if noise is None:
            over_all = (given @ self.context.weight.T).logsumexp(-1)  # (B, N, b)
            return (over_all * times).sum() - scores.masked_fill(~counts, 0.0).sum()
        from_noise = given.flatten(1, 2) @ self.context(noise).mT  # (B, N b, K')
        told = F.softplus(-scores).masked_fill(~counts, 0.0).sum()
        refused = F.softplus(from_noise).mean(-1)  # (B, N b)
        return told + self.config.negatives * (refused * times.flatten(1)).sum()

    def draw_noise(self, shape: tuple[int, int]) -> Tensor | None:
        if not self.config.negatives:
            return None
        rows, length = shape
        width = -(-length * self.config.noise_words // SHARING)
        cumulative = self.of_counts("noise", self._cumulative_noise)
        if self.training:
            draw = functools.partial(torch.rand, dtype=torch.float64, device=cumulative.device)
            uniform = draw_for_rows(draw, (rows, width))
        else:  # the same for every row, and whenever it is asked for
            fixed = torch.from_numpy(uniforms(EVALUATION, np.arange(width)))
            uniform = fixed.to(cumulative.device).expand(rows, -1)
        words = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
        return words.clamp_max(self.config.vocab_size - 1).to(self.device)

    def _cumulative_noise(self, counts: Tensor) -> Tensor:
        """Compute the cumulative sums of the noise distribution's weights, (V,) float64."""
        wide = in_float64(counts)
        return (wide.pow(self.config.noise_power) * (wide > 0)).cumsum(0)
