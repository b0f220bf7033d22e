"""Hypotheses of a search, length normalisation, and the n best list."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.settings.generation import BeamOptions, LengthNormKind


@dataclass(frozen=True)
class LengthNorm:
    """Length normalisation: a hypothesis' log-probability is divided by a function of its length.

    The length L counts the tokens written, EOS included. `avg` divides by L^alpha (alpha 1: the
    mean), `gnmt` by ((5 + L) / 6)^alpha (Wu et al. 2016, equation 14), `none` by 1.
    Alpha is from -10 to 10.
    """

    kind: LengthNormKind = "avg"
    alpha: float = 1.0

    def __post_init__(self) -> None:
        BeamOptions.check("length_norm", self.kind)
        BeamOptions.check("alpha", self.alpha)

    def __call__(self, length: int) -> float:
        """Return the divisor for a length of at least 1."""
        if self.kind == "none":
            return 1.0
        return (length if self.kind == "avg" else (5 + length) / 6) ** self.alpha

    def bound(self, logprob: float, length: int, max_tokens: int) -> float:
        """Compute an upper bound on the final score of a hypothesis of `length` tokens.

        Its log-probability can only fall, and the divisor is monotonic, so it is largest at the
        next length or at the last.
        """
        return logprob / max(self(length + 1), self(max_tokens))


@dataclass(slots=True)
class Hypothesis:
    """Partial or finished text in a search.

    Attributes:
        tokens: the ids written, EOS included.
        logprob: their total log-probability under the model, in nats.
        score: what ranks it: `logprob` over its length's divisor, or the perturbed
            log-probability of a stochastic search. None while it grows.
        finish_reason: None while it grows, then "eos", "stop" or "length".
        row: where it stands in the batch, or its parent if it is new.
        weight: the total of filtered log-probabilities (stochastic searches).
        perturbed: that total with its Gumbel noise (stochastic searches).
        digest: a hash of seed, prompt and tokens (stochastic searches).
    """

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0
    score: float | None = None
    finish_reason: str | None = None
    row: int = 0
    weight: float = 0.0
    perturbed: float = 0.0
    digest: int = 0

    @property
    def rank(self) -> tuple[float, tuple[int, ...]]:
        """Sort key: best score first, ties by smaller tokens."""
        return -(self.score or 0.0), self.tokens


class NBest:
    """List of the n best distinct finished hypotheses."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.hypotheses: list[Hypothesis] = []

    def add(self, hypothesis: Hypothesis) -> None:
        """Insert a finished hypothesis if it is among the n best."""
        if all(hypothesis.tokens != other.tokens for other in self.hypotheses):
            self.hypotheses = sorted([*self.hypotheses, hypothesis], key=lambda h: h.rank)[: self.n]

    @property
    def full(self) -> bool:
        """Check whether the list holds n hypotheses."""
        return len(self.hypotheses) == self.n

    def beats(self, bound: float) -> bool:
        """Check whether the list is full and every hypothesis scores above `bound`."""
        return self.full and self.hypotheses[-1].score > bound
