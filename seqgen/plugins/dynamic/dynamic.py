"""Dynamic evaluation: a model keeps learning from the text that it is scored on.

The weights of a network take a step of gradient descent after each segment (Krause, Kahembwe,
Murray and Renals 2018). In a mixture each network follows its own loss, as if it were alone, and an
n-gram model counts every token once it is scored; the weights of the mixture, or its gate, stay as
they were fitted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.mixture.equations import Mixed
from seqgen.models.ngram.model import NGram
from seqgen.models.scores import FromLogits, ScoreDetail
from seqgen.plugins.dynamic.adaptive_ngram import ADAPTABLE, AdaptiveNGram
from seqgen.scoring.loop import Scored, arrays_of, prefer_ranks
from seqgen.settings import MOST_NATS, require

if TYPE_CHECKING:
    from seqgen.models.base import LanguageModel
    from seqgen.store.loaded import LoadedModel
    from seqgen.store.model import StoredModel
    from seqgen.text.corpus import Corpus

# The discounts of an n-gram model, a sequence for each order; see `AdaptiveNGram`.
Discounts = Sequence[Sequence[float]]


@dataclass(frozen=True)
class LearningRule:
    """Update rule of dynamic evaluation: SGD with decay towards the trained weights.

    Attributes:
        rate: eta.
        decay: lambda.
        length: of a segment, in tokens.
    """

    rate: float
    decay: float
    length: int


def discounts_of(loaded: LoadedModel) -> list[Discounts]:
    """Read the discounts of each n-gram model in a mixture; empty for a network alone.

    Raises:
        UsageError: the model is neither a network nor a mixture of networks and n-gram models that
            can go on counting.
    """
    name, model = loaded.stored.name, loaded.model
    if isinstance(model, NeuralLanguageModel):
        return []
    neither = f"--dynamic trains networks on the text; {name} is neither one nor a mixture with one"
    require(isinstance(model, Mixed), neither)
    parts = list(zip(model.components, loaded.stored.parts, strict=True))
    for part, stored in parts:
        known = isinstance(part, NeuralLanguageModel | NGram)
        require(known, f"--dynamic adapts networks and n-gram models; {stored.name} is neither")
    some = any(isinstance(part, NeuralLanguageModel) for part, _ in parts)
    require(some, neither)
    return [_ngram_discounts(part, stored) for part, stored in parts if isinstance(part, NGram)]


def _ngram_discounts(model: NGram, stored: StoredModel) -> Discounts:
    """Read the discounts of an n-gram model from its record.

    Raises:
        UsageError: it has another smoothing, is pruned, or its record has none.
    """
    config = model.config
    smooth = config.smoothing in ADAPTABLE
    what = f"the n-gram model {stored.name}"
    wanted = f"--dynamic counts on with Kneser-Ney smoothing; {what} has {config.smoothing}"
    require(smooth, wanted)
    whole = not any(config.thresholds) and not config.prune_entropy
    require(whole, f"--dynamic needs all n-grams; {what} is pruned")
    discounts: list[Sequence[float]] = []
    with contextlib.suppress(SeqgenError, LookupError, TypeError):
        discounts = [fact["discounts"] for fact in stored.record["ngrams"]]
    complete = len(discounts) == model.order and all(discounts)
    require(complete, f"--dynamic needs the discounts of {what}, which has none: count it again")
    return discounts


class NetworkLearner:
    """Network that takes a step of gradient descent after each segment of a text.

    theta_i = theta_{i-1} - eta grad L(s_i) + lambda (theta_g - theta_{i-1})

    with L the mean nats per token of segment s_i under theta_{i-1}, and theta_g the weights as
    they were trained: SGD with global decay, of Krause, Kahembwe, Murray and Renals (2018),
    "Dynamic evaluation of neural sequence models", section 4, without the scaling by gradients of
    the training text. A recurrent state goes on from segment to segment without its graph; a
    transformer reads the last W tokens before the end of each segment.

    Args:
        model: in evaluation mode.
        rule: how networks learn.
        start: the token that the text begins after.
    """

    def __init__(self, model: NeuralLanguageModel, rule: LearningRule, start: int) -> None:
        self.model, self._rule = model, rule
        self._weights = list(model.parameters())
        self._trained = [weight.detach().clone() for weight in self._weights]
        # What the next segment is read after: its last token, and a state or more tokens.
        self._past, self._read = [start], 0
        self._state = model.start(1) if model.window is None else None

    def predict(self, segment: Sequence[int]) -> Tensor:
        """Compute the log-probabilities (1, n, V) at each token of a segment, with their graph."""
        text = [*self._past, *segment[:-1]]
        if self.model.window is not None:
            text = text[-self.model.window :]
        # cuDNN gives no gradients in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            logits, self._after = self.model(self._ids(text), self._state, last=len(segment))
            return logits.log_softmax(-1)

    def learn(self, segment: Sequence[int], log_probs: Tensor) -> None:
        """Take a step of gradient descent on a segment, with decay towards the trained weights.

        Args:
            segment: its tokens.
            log_probs: of `predict`.

        Raises:
            SeqgenError: the weights have grown without bounds.
        """
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            nats = -log_probs.gather(-1, self._ids(segment)[..., None]).mean()
            if not nats <= MOST_NATS:
                raise SeqgenError(
                    f"dynamic evaluation has diverged after {self._read:,} tokens; give a "
                    "smaller --dynamic"
                )
            gradients = torch.autograd.grad(nats, self._weights, allow_unused=True)
        pairs = [(w, g) for w, g in zip(self._weights, gradients, strict=True) if g is not None]
        with torch.no_grad():
            if self._rule.decay:
                torch._foreach_lerp_(self._weights, self._trained, self._rule.decay)
            torch._foreach_add_(*map(list, zip(*pairs, strict=True)), alpha=-self._rule.rate)
        self._read += len(segment)
        if self.model.window is None:
            self._past, self._state = [segment[-1]], self._after.detach()
        else:
            self._past = [*self._past, *segment][-self.model.window :]

    def begin_segment(self) -> np.ndarray:
        """Compute the logits (1, V) of a segment's first token; `step` goes on from there."""
        *before, last = self._past
        if self.model.window is None:
            self._step_state = self._state.copy()
        else:
            room = self.model.window - self._rule.length
            before, self._step_state = before[-room:] if room else [], self.model.start(1)
        if before:
            with torch.no_grad():
                _, self._step_state = self.model(self._ids(before), self._step_state, last=1)
        return self.step(last)

    def step(self, token: int) -> np.ndarray:
        """Read a token; compute the logits (1, V) of the next one."""
        with torch.no_grad():
            logits, self._step_state = self.model.step([token], self._step_state)
        return logits

    def forget(self) -> None:
        """Give the model its trained weights again."""
        with torch.no_grad():
            torch._foreach_copy_(self._weights, self._trained)

    def _ids(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor([list(tokens)], device=self.model.device)


class DynamicModel:
    """Network, or mixture of networks and n-gram models, that learns from the text it predicts.

    Args:
        model: in evaluation mode.
        rule: how networks learn.
        start: the token that the text begins after.
        discounts: of each n-gram model in it.
    """

    def __init__(
        self, model: LanguageModel, rule: LearningRule, start: int, discounts: Sequence[Discounts]
    ) -> None:
        self._mixture = model if isinstance(model, Mixed) else None
        self.segment_length = rule.length
        of_ngrams, self._learners = iter(discounts), []
        for part in model.components if self._mixture else [model]:
            if isinstance(part, NGram):
                learner = AdaptiveNGram(part.arrays, next(of_ngrams), start)
            else:
                learner = NetworkLearner(part, rule, start)
            self._learners.append(learner)

    def read_segment(self, segment: Sequence[int]) -> Tensor:
        """Predict a segment, and learn from it; return the logits (1, n, V) of its tokens.

        Raises:
            SeqgenError: see `NetworkLearner.learn`.
        """
        each, matched = [], None
        for place, learner in enumerate(self._learners):
            if isinstance(learner, NetworkLearner):
                log_probs = learner.predict(segment)
                learner.learn(segment, log_probs)
                each.append(log_probs.detach())
                continue
            rows, orders = zip(*(_count(learner, token) for token in segment), strict=True)
            each.append(torch.from_numpy(np.stack(rows)[None]))
            if self._mixture.guide == place:
                matched = torch.tensor([orders])
        if self._mixture is None:
            return each[0]
        device = self._mixture.device
        matched = None if matched is None else matched.to(device)
        return self._mixture.joined([part.to(device) for part in each], matched)

    def predict_token(self, segment: Sequence[int]) -> np.ndarray:
        """Compute the logits (V,) of the next token.

        Args:
            segment: the tokens since the last step of gradient descent; fewer than a segment has.
        """
        each, matched = [], None
        for place, learner in enumerate(self._learners):
            if isinstance(learner, NetworkLearner):
                each.append(learner.step(segment[-1]) if segment else learner.begin_segment())
                continue
            row, order = learner.predict()
            each.append(row[None])
            if self._mixture.guide == place:
                matched = np.array([order])
        return (self._mixture.joined_step(each, matched) if self._mixture else each[0])[0]

    def read_token(self, segment: Sequence[int]) -> None:
        """Learn from the last token of a segment; networks from all of it once it is full."""
        for learner in self._learners:
            if isinstance(learner, AdaptiveNGram):
                learner.read(segment[-1])
            elif len(segment) == self.segment_length:
                learner.learn(segment, learner.predict(segment))

    def forget(self) -> None:
        """Give the networks their trained weights again."""
        for learner in self._learners:
            if isinstance(learner, NetworkLearner):
                learner.forget()


@torch.inference_mode(False)
def predict_tokens(
    model: LanguageModel, rule: LearningRule, start: int, discounts: Sequence[Discounts]
) -> Generator[np.ndarray, int]:
    """Yield the logits (V,) of each next token, which must then be sent.

    A text is predicted as by `score_dynamically` but for rounding and, by a transformer, for a last
    segment that is not full, which that function reads after more tokens.

    Args:
        model: see `DynamicModel`, also for the others.
        rule: how networks learn.
        start: the token that the text begins after.
        discounts: of each n-gram model.
    """
    learning, segment = DynamicModel(model, rule, start, discounts), []
    try:
        while True:
            segment.append((yield learning.predict_token(segment)))
            learning.read_token(segment)
            segment = segment if len(segment) < learning.segment_length else []
    finally:
        learning.forget()


def _count(learner: AdaptiveNGram, token: int) -> tuple[np.ndarray, int]:
    """Predict a token, and count it."""
    predicted = learner.predict()
    learner.read(token)
    return predicted


def score_dynamically(
    model: LanguageModel,
    corpus: Corpus,
    rule: LearningRule,
    want: ScoreDetail = "hits",
    discounts: Sequence[Discounts] = (),
) -> Iterator[Scored]:
    """Score a text segment by segment; the model learns from each scored segment.

    The model has its own weights again when the iteration ends.

    Args:
        model: in evaluation mode.
        corpus: one text.
        rule: how networks learn.
        want: as `score_corpus`'s.
        discounts: of each n-gram model in it.

    Yields:
        The segments in order.

    Raises:
        SeqgenError: the weights grew without bounds.
    """
    want, learning = (
        prefer_ranks(model, want),
        DynamicModel(model, rule, corpus.start, discounts),
    )
    with contextlib.ExitStack() as at_end:
        at_end.callback(learning.forget)
        for first in range(0, corpus.tokens.size, learning.segment_length):
            tokens = np.array(corpus.tokens[first : first + learning.segment_length], np.int64)
            logits = learning.read_segment(tokens.tolist())
            scores = FromLogits(logits).score(model.ids(tokens[None]), want)
            yield Scored(np.zeros(tokens.size, np.int64), tokens, *arrays_of(scores, 0))
