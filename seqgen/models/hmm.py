"""Hidden Markov models: a chain of hidden states, each of which emits a token.

Notation as in Rabiner (1989), "A tutorial on hidden Markov models": K states, the initial
distribution pi, transitions a_ij = p(state j | state i), emissions b_j(v) = p(token v | state j).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqgen.configs import Choices, ModelConfig, setting
from seqgen.models.counted import CountedModel
from seqgen.models.reader import LOGITS_AT_ONCE
from seqgen.models.state import State

# The tables of 10,000 states fill 400 MB, and a token takes 0.1 s.
MOST_STATES = 10_000


@dataclass(frozen=True, kw_only=True)
class HMMConfig(ModelConfig):
    """A hidden Markov model, and how its probabilities are estimated by EM."""

    num_states: int = setting(
        "Number of hidden states; the cost of a token grows with its square.",
        64,
        low=1,
        high=MOST_STATES,
        search=Choices((0.5, 1, 2), relative=True),
    )
    delta: float = setting(
        "Number added to the expected count of every token in every state.",
        0.01,
        low=0,
        high=1e9,
    )
    tolerance: float = setting(
        "Stop once an iteration gains less than this, in nats per token; 0 uses the whole budget.",
        1e-4,
        low=0,
        high=1e9,
    )


@dataclass
class HMMState(State):
    """The logarithm of p(next hidden state | tokens so far), (B, K)."""

    predicted: Tensor


class HMM(CountedModel):
    """The registry's `hmm`; the forward algorithm reads a text.

    The chain begins from pi, at the first token. It begins again after a token that no state
    emits: BOS, which stands before a line, is one.

    Until it is filled, every state and every token is equally probable.
    """

    config: HMMConfig
    initial: Tensor
    transition: Tensor
    emission: Tensor

    def __init__(self, config: HMMConfig) -> None:
        super().__init__()
        self.config = config
        k, v = config.num_states, config.vocab_size
        self.register_buffer("initial", torch.full((k,), 1 / k))  # pi
        self.register_buffer("transition", torch.full((k, k), 1 / k))  # a: from, to
        self.register_buffer("emission", torch.full((k, v), 1 / v))  # b

    def fill(self, initial: Tensor, transition: Tensor, emission: Tensor) -> None:
        """Take probabilities pi (K,), a (K, K) and b (K, V)."""
        self.initial.copy_(initial)
        self.transition.copy_(transition)
        self.emission.copy_(emission)

    @property
    def most_at_once(self) -> int:
        return LOGITS_AT_ONCE // max(self.vocab_size, self.config.num_states)

    def start(self, batch: int, stride: int | None = None) -> HMMState:
        return HMMState(self.initial.log().repeat(batch, 1))

    def forward(
        self, tokens: Tensor, state: HMMState | None = None, last: int | None = None
    ) -> tuple[Tensor, HMMState | None]:
        with torch.autocast(tokens.device.type, enabled=False):  # products of probabilities
            return self._read(tokens, state, last)

    def _read(
        self, tokens: Tensor, state: HMMState | None, last: int | None
    ) -> tuple[Tensor, HMMState | None]:
        after = (state or self.start(tokens.shape[0])).predicted  # (B, K)
        log_emission = self.emission.T[tokens].log()  # (B, T, K)
        predicted = []
        for emitted in log_emission.unbind(1):
            after = self._advance(after, emitted)
            predicted.append(after)
        kept = torch.stack(predicted[-(last or len(predicted)) :], 1)
        logits = (kept.exp() @ self.emission).log()  # (B, T, V)
        return logits, None if state is None else HMMState(after)

    def _advance(self, predicted: Tensor, log_emission: Tensor) -> Tensor:
        """Take log p(z_t | x_1 .. x_{t-1}) to log p(z_{t+1} | x_1 .. x_t), both (B, K).

        alpha_{t+1}(j) = sum_i alpha_t(i) a_ij b_j(x_{t+1}) (Rabiner 1989, equation 20), with each
        alpha divided by its sum.

        Args:
            predicted: before the token.
            log_emission: log b_j(x_t), (B, K).
        """
        joint = predicted + log_emission
        most = joint.amax(-1, keepdim=True)  # (B, 1)
        emitted = most > -torch.inf
        filtered = (joint - torch.where(emitted, most, 0)).exp()
        # All zeros for a token that no state emits: their logarithm is not used.
        after = (filtered @ self.transition).log() - filtered.sum(-1, keepdim=True).log()
        return torch.where(emitted, after, self.initial.log())
