"""Base class of models that learn word vectors; they are not language models."""

from __future__ import annotations

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.engines.dropout import draw_for_rows
from seqgen.models.base import TorchModel
from seqgen.models.network import Network
from seqgen.plugins.vectors.models.settings import SampledWordConfig, WordConfig


class Draws(NamedTuple):
    """Random choices for rows of text (B, T): kept words, context sizes and noise words.

    Attributes:
        kept: (B, T) bool, the words that are not left out.
        reach: (B, T) int64, how many words on each side are a word's context.
        noise: (B, K') int64, words that are no context; None if none are needed.
    """

    kept: Tensor
    reach: Tensor
    noise: Tensor | None


class Windows(NamedTuple):
    """Rows of text cut into N blocks of b words, each with the m words before and after it.

    Attributes:
        centres: (B, N, b) int64, the words of each block.
        around: (B, N, b + 2m) int64, these and those around.
        within: (B, N, b, b + 2m) bool: which of these are in the context of which word.
        noise: see `Draws`.
        distance: (b, b + 2m) int64: how far each of these is from each word.
    """

    centres: Tensor
    around: Tensor
    within: Tensor
    noise: Tensor | None
    distance: Tensor


class WordNetwork(TorchModel, Network):
    """Base class of networks that learn word vectors from neighbouring words.

    Attributes:
        counts: (V,) float64: how often each word occurs in the training part; 0 for what is no
            word, which is left out of the text before contexts are formed, as unknown words are.
    """

    over_tensors: ClassVar[Callable[..., Tensor] | None] = None
    window: int | None = None
    source_window: int | None = None
    head = None
    settles: ClassVar[int] = (
        32  # vectors begin near zero, and grow at first by more than their norm
    )
    config: WordConfig
    counts: Tensor

    def __init__(self, config: WordConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("counts", torch.ones(config.vocab_size, dtype=torch.float64))
        self._tables: dict[str, tuple[Tensor, int, Tensor]] = {}

    def layers_in_order(self) -> list[list[nn.Module]]:
        """Return all tables as one layer group."""
        return [list(self.children())]

    def token_vectors(self) -> Tensor:
        tables = (getattr(self, name).weight for name in self.config.vectors)
        return functools.reduce(operator.add, tables).detach()

    def survey(
        self, tokens: np.ndarray, no_words: Sequence[int], ends: np.ndarray | None = None
    ) -> None:
        """Count the words of the training part.

        Args:
            tokens: (N,), all of it.
            no_words: tokens that are no words, such as ends and unknown words.
            ends: (D,), where each document ends; None for one.
        """
        counts = np.bincount(tokens, minlength=self.vocab_size).astype(np.float64)
        counts[list(no_words)] = 0
        self.counts.copy_(torch.from_numpy(counts))

    def loss(self, tokens: Tensor) -> Tensor:
        """Compute the loss of rows of text, summed over their words.

        In training words are left out, contexts and noise words drawn at random; in evaluation
        every word has its whole context, and noise words are always the same.

        Args:
            tokens: (B, T) int64; below 0 where a row has ended.
        """
        return self.cost(self.windows(tokens, self.draw(tokens)))

    @abstractmethod
    def cost(self, windows: Windows) -> Tensor:
        """Compute the summed loss of all words and their contexts."""

    def draw_noise(self, shape: tuple[int, int]) -> Tensor | None:
        """Draw noise words (B, K') for rows of text (B, T); None if the model needs none."""
        return None

    def draw(self, tokens: Tensor) -> Draws:
        """Draw the words to keep, the context sizes and the noise words for `loss`."""
        config, known = self.config, tokens.clamp_min(0)
        kept = (tokens >= 0) & (self.counts[known] > 0)
        reach = torch.full_like(tokens, config.context_size)
        if not self.training or not isinstance(config, SampledWordConfig):
            return Draws(kept, reach, self.draw_noise(tuple(tokens.shape)))
        if config.kept_share:
            keep = self.of_counts("keep", self._keep)
            draw = functools.partial(torch.rand, device=tokens.device)
            uniform = draw_for_rows(draw, tokens.shape)
            kept = kept & (uniform < keep[known])
        if config.draws_contexts:
            draw = functools.partial(
                torch.randint, 1, config.context_size + 1, device=tokens.device
            )
            reach = draw_for_rows(draw, tokens.shape)
        return Draws(kept, reach, self.draw_noise(tuple(tokens.shape)))

    def _keep(self, counts: Tensor) -> Tensor:
        """Compute the probability of keeping each word, (V,) float32; above 1 for rare words.

        The paper keeps a word with probability sqrt(ratio). word2vec's own code adds the ratio
        itself, which keeps more words, and so does gensim.
        """
        ratio = self.config.kept_share * counts.sum() / counts
        return (ratio.sqrt() + ratio).float()

    def of_counts(self, name: str, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return a table computed from the word counts, cached until the counts change.

        Args:
            name: of the table.
            make: takes the counts.
        """
        counts = self.counts
        known = self._tables.get(name)
        if known is None or known[0] is not counts or known[1] != counts._version:
            known = self._tables[name] = counts, counts._version, make(counts)
        return known[2]

    def windows(self, tokens: Tensor, draws: Draws) -> Windows:
        """Drop the words that are not kept, and cut the rest into blocks with their contexts.

        Args:
            tokens: (B, T) int64.
            draws: what of them is kept, and how far the context of each reaches.
        """
        m = self.config.context_size
        block = 2 * m
        length = max(1, int(draws.kept.sum(1).max()))
        padded = block * -(-length // block) + 2 * m
        # The kept words first, in their order.
        order = (~draws.kept).to(torch.uint8).argsort(dim=1, stable=True)[:, :length]
        moved = tokens.new_zeros(len(tokens), padded)
        kept, reach = draws.kept.new_zeros(moved.shape), moved.clone()
        inside = slice(m, m + length)
        moved[:, inside] = tokens.gather(1, order).clamp_min(0)
        kept[:, inside] = draws.kept.gather(1, order)
        reach[:, inside] = draws.reach.gather(1, order)
        around, there = (x.unfold(1, block + 2 * m, block) for x in (moved, kept))
        block_slice = slice(m, m + block)
        distance = torch.arange(block + 2 * m, device=tokens.device)
        distance = (distance - distance[block_slice, None]).abs()  # (b, b + 2m)
        near = distance <= reach.unfold(1, block + 2 * m, block)[..., block_slice, None]
        within = near & (distance > 0) & there[..., block_slice, None] & there[..., None, :]
        return Windows(around[..., block_slice], around, within, draws.noise, distance)
