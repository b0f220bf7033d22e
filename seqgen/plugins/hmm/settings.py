"""Settings of hidden Markov models."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.settings import ModelConfig, setting
from seqgen.settings.setting import Choices

# The tables of 10,000 states fill 400 MB, and a token takes 0.1 s.
MOST_STATES = 10_000


@dataclass(frozen=True, kw_only=True)
class HMMConfig(ModelConfig):
    """Configuration of a hidden Markov model and of its estimation by EM."""

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
