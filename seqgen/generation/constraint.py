"""Interfaces of constraints that plugins implement for sampling and beam search."""

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
    """Formal language that every text must belong to; a filter that masks impossible tokens.

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
        """Finish reasons by end token; `continuation.LIMIT` stands for the last token allowed."""

    @abstractmethod
    def can_begin(self, tokens: Sequence[int]) -> bool:
        """Check whether a text of the language can begin with these tokens."""

    @abstractmethod
    def outcomes(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        """Merge the log-probabilities (B, V) of all tokens that end the text into one token."""

    @abstractmethod
    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        """Filter log-probabilities (B, V); see `processors`."""


class Requirement(ABC):
    """Requirement on texts of beam search, such as words in them; makes the beams that meet it."""

    @abstractmethod
    def group(self, prompt: Prompt, root: Hypothesis) -> RestrictedGroup | None:
        """Create the beam of a prompt's texts from the empty hypothesis.

        None is a plain beam, of a prompt whose texts need not contain anything.

        Raises:
            UsageError: the model cannot write what they must contain.
        """

    @abstractmethod
    def missing(self, prompt: Prompt, text: str) -> list[str] | None:
        """List the required parts that a text lacks; None if the prompt requires nothing."""
