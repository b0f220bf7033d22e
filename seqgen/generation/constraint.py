"""What texts must be, or contain: the interfaces that plugins implement for generation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from seqgen.generation.beam_groups import RestrictedGroup
    from seqgen.generation.hypotheses import Hypothesis
    from seqgen.generation.prompts import Prompt


class TextConstraint(ABC):
    """A language that every text must belong to: a filter that allows only what can complete it.

    Where a text is complete, several tokens may end it; `outcomes` makes one token of them, whose
    probability is their sum.

    Attributes:
        name: what `--explain` calls the filter.
        never: the tokens that are never written.
        dead_id: the token that ends a text that cannot go on; None to leave it no token.
    """

    name: ClassVar[str]
    never: tuple[int, ...]
    dead_id: int | None

    @property
    @abstractmethod
    def reasons(self) -> Mapping[int, str]:
        """Why a text ends, by the token that ends it; `continuation.LIMIT` for the last token."""

    @abstractmethod
    def can_begin(self, tokens: Sequence[int]) -> bool:
        """Return whether a text of the language may begin with these tokens."""

    @abstractmethod
    def outcomes(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        """Return log-probabilities (B, V) in which one token has the probability of the end."""

    @abstractmethod
    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        """Filter log-probabilities (B, V); see `processors`."""


class Requirement(ABC):
    """What the texts that a beam search finds must contain."""

    @abstractmethod
    def group(self, prompt: Prompt, root: Hypothesis) -> RestrictedGroup | None:
        """Return the beam of a prompt's texts, from the hypothesis of no token on.

        None is a plain beam, of a prompt whose texts need not contain anything.

        Raises:
            UsageError: the model cannot write what they must contain.
        """

    @abstractmethod
    def missing(self, prompt: Prompt, text: str) -> list[str] | None:
        """Return what a text lacks; None for a prompt whose texts need not contain anything."""
