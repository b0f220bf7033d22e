"""Dynamic evaluation: a model keeps training on the text that it is scored on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqgen.errors import SeqgenError
from seqgen.models.base import LanguageModel
from seqgen.models.scores import FromLogits, ScoreDetail
from seqgen.scoring.loop import Scored, arrays_of, prefer_ranks
from seqgen.settings import MOST_NATS

if TYPE_CHECKING:
    from seqgen.models.base import NeuralLanguageModel
    from seqgen.text.corpus import Corpus


def score_dynamically(
    model: NeuralLanguageModel,
    corpus: Corpus,
    rate: float,
    decay: float,
    length: int,
    want: ScoreDetail = "hits",
) -> Iterator[Scored]:
    """Score a text segment by segment, and train the model on each scored segment.

    theta_i = theta_{i-1} - eta grad L(s_i) + lambda (theta_g - theta_{i-1})

    with L the mean nats per token of segment s_i under theta_{i-1}, and theta_g the weights as
    they were trained: SGD with global decay, of Krause, Kahembwe, Murray and Renals (2018),
    "Dynamic evaluation of neural sequence models", section 4, without the scaling by gradients of
    the training text. A recurrent state goes on from segment to segment without its graph; a
    transformer reads the last W tokens before the end of each segment.

    The model has its own weights again when the iteration ends.

    Args:
        model: in evaluation mode.
        corpus: one text.
        rate: eta.
        decay: lambda.
        length: of a segment.
        want: as `score_corpus`'s.

    Yields:
        The segments in order.

    Raises:
        SeqgenError: the weights grew without bounds.
    """
    want = prefer_ranks(model, want)
    weights = list(model.parameters())
    trained = [weight.detach().clone() for weight in weights]
    try:
        for segment in _segments(model, corpus, length):
            log_probs = segment.logits.log_softmax(-1)
            nats = -log_probs.gather(-1, segment.targets.unsqueeze(-1)).mean()
            if not nats <= MOST_NATS:
                raise SeqgenError(
                    f"dynamic evaluation has diverged after {segment.first:,} tokens; give a "
                    "smaller --dynamic"
                )
            _update(weights, trained, nats, rate, decay)
            yield segment.scored(want)
    finally:
        with torch.no_grad():
            torch._foreach_copy_(weights, trained)


def _update(
    weights: list[Tensor], trained: list[Tensor], nats: Tensor, rate: float, decay: float
) -> None:
    """Take one step of gradient descent, with decay towards the trained weights."""
    with torch.backends.cudnn.flags(enabled=False):
        gradients = torch.autograd.grad(nats, weights, allow_unused=True)
    pairs = [(w, g) for w, g in zip(weights, gradients, strict=True) if g is not None]
    with torch.no_grad():
        if decay:
            torch._foreach_lerp_(weights, trained, decay)
        torch._foreach_add_(*map(list, zip(*pairs, strict=True)), alpha=-rate)


@dataclass(frozen=True)
class _Segment:
    """A segment of a text under the current weights.

    Attributes:
        first: the number of its first token.
        targets: (1, n) of int64.
        logits: (1, n, V), with their graph.
    """

    first: int
    targets: Tensor
    logits: Tensor

    def scored(self, want: ScoreDetail) -> Scored:
        scores = FromLogits(self.logits.detach()).score(self.targets, want)
        tokens = self.targets[0].cpu().numpy()
        return Scored(np.zeros(tokens.size, dtype=np.int64), tokens, *arrays_of(scores, 0))


def _segments(model: LanguageModel, corpus: Corpus, length: int) -> Iterator[_Segment]:
    """Yield a text's segments, each run with the current weights."""
    text = np.concatenate([[corpus.start], corpus.tokens[:]]).astype(np.int64)
    ids = torch.from_numpy(text).to(model.device)[None]
    state = model.start(1) if model.window is None else None
    for first in range(0, text.size - 1, length):
        end = min(first + length, text.size - 1)
        begin = first if model.window is None else max(0, end - model.window)
        # cuDNN gives no gradients in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            logits, after = model(ids[:, begin:end], state, last=end - first)
        yield _Segment(first, ids[:, first + 1 : end + 1], logits)
        state = None if model.window is not None else after.detach()
