"""Beam search with required texts: dynamic beam allocation (Post and Vilar 2018).

Each text that must occur is a language of its own: all texts that contain it. What a hypothesis
still needs is the number of tokens that complete it in each. Hypotheses that need equally many are
a bank, and the banks share the beam.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.generation.beam_groups import (
    Candidate,
    Ending,
    Expansion,
    Fates,
    RestrictedGroup,
    extend_hypothesis,
)
from seqgen.generation.constraint import Requirement
from seqgen.generation.hypotheses import Hypothesis, NBest
from seqgen.generation.processors import IMPOSSIBLE, History
from seqgen.generation.prompts import Prompt
from seqgen.plugins.patterns.constraint import Constraint
from seqgen.plugins.patterns.forms import constraint_for, content
from seqgen.settings import require
from seqgen.settings.generation import BeamOptions
from seqgen.store.loaded import LoadedModel


@dataclass(frozen=True)
class IncludedTexts:
    """Texts that an output must contain.

    Attributes:
        constraints: the language of each of the texts that must occur, by that text.
        prompt: the ids before the text.
    """

    constraints: dict[str, Constraint]
    prompt: tuple[int, ...]

    def costs(self, tokens: Sequence[int], after: Sequence[int] | slice) -> np.ndarray:
        """Compute the tokens each text still needs after each of N next tokens, (texts, N)."""
        history = History(self.prompt + tuple(tokens), len(self.prompt))
        every = self.constraints.values()
        return np.array([c.automaton.costs(c.state(history))[after] for c in every])

    def needs(self, tokens: Sequence[int]) -> dict[str, int]:
        """Compute the tokens that each text still needs."""
        history = History(self.prompt + tuple(tokens), len(self.prompt))
        return {text: c.automaton.cost(c.state(history)) for text, c in self.constraints.items()}

    def missing(self, tokens: Sequence[int], ends: frozenset[int]) -> tuple[str, ...]:
        """List the required texts that an output lacks; its end token is ignored."""
        content = tokens[:-1] if tokens and tokens[-1] in ends else tokens
        return tuple(text for text, need in self.needs(content).items() if need)


class IncludingGroup(RestrictedGroup):
    """Beam divided into banks of hypotheses that need equally many tokens for required texts.

    Args:
        options: how to search.
        root: the hypothesis of no token.
        wanted: what a text must contain.
    """

    def __init__(self, options: BeamOptions, root: Hypothesis, wanted: IncludedTexts) -> None:
        super().__init__(options, root)
        self.wanted, self.failing = wanted, NBest(options.nbest)

    def allow(self, hypothesis: Hypothesis, log_probs: np.ndarray, ending: Ending) -> None:
        """Mask tokens in a row (V,) that leave too few tokens, or end before all is included."""
        left = ending.max_tokens - len(hypothesis.tokens)
        ends = [token for token in ending.rules.reasons if token >= 0]
        allowed = (self.wanted.costs(hypothesis.tokens, slice(None)) < left).all(0)
        allowed[ends] = not self.wanted.missing(hypothesis.tokens, frozenset())
        if (log_probs[allowed] > IMPOSSIBLE).any():
            log_probs[~allowed] = IMPOSSIBLE

    def advance(self, expansion: Expansion, taken: dict[int, int], ending: Ending) -> Fates:
        candidates, parents = self._with_next_words(expansion), self.live
        ends = frozenset(ending.rules.reasons)
        banks: dict[int, list[tuple[int, Candidate]]] = {}
        fates, finished = {}, 0
        for order, candidate in enumerate(candidates):
            _, place, token, _, logprob, _ = candidate
            parent = parents[place]
            fates[order] = (parent, token, logprob, "pruned")
            reason = ending(parent, token)
            if reason is None:
                bank = self.bank((*parent.tokens, token))
                banks.setdefault(bank, []).append((order, candidate))
            elif finished < self.size:
                finished += self._end(
                    extend_hypothesis(parent, token, logprob), reason, ending, ends
                )
                fates[order] = (parent, token, logprob, "finished")
        # Each bank gives its best, then each its second best, and so on, the fullest bank first.
        turns = zip_longest(*(banks[bank] for bank in sorted(banks)))
        kept = [given for turn in turns for given in turn if given is not None][: self.size]
        self.live = []
        for order, (_, place, token, _, logprob, _) in sorted(kept):
            self.live.append(extend_hypothesis(parents[place], token, logprob))
            fates[order] = (parents[place], token, logprob, "live")
        if len(self.live) < self.size and not expansion.complete:
            self.live = parents
            expansion.widen(4 * expansion.width)
            return self.advance(expansion, taken, ending)
        self._stop_if_certain(ending)
        return list(fates.values()), ()

    def bank(self, tokens: Sequence[int]) -> int:
        """Count the tokens that a hypothesis still needs for all required texts."""
        return sum(self.wanted.needs(tokens).values())

    def _with_next_words(self, expansion: Expansion) -> list[Candidate]:
        """List the candidates, plus the best token towards each text per hypothesis."""
        candidates = list(expansion.candidates(self))
        known = {(place, token) for _, place, token, *_ in candidates}
        for place, hypothesis in enumerate(self.live):
            costs = self.wanted.costs(hypothesis.tokens, slice(None))
            for need, after in zip(
                self.wanted.needs(hypothesis.tokens).values(), costs, strict=True
            ):
                token = expansion.best(hypothesis, after < need) if need else None
                if token is not None and (place, token) not in known:
                    known.add((place, token))
                    candidates.append(expansion.candidate(hypothesis, place, token))
        return sorted(candidates)

    def _end(
        self, hypothesis: Hypothesis, reason: str, ending: Ending, ends: frozenset[int]
    ) -> bool:
        """Finish a hypothesis; check whether it contains all required texts."""
        if not self.wanted.missing(hypothesis.tokens, ends):
            super()._finish(hypothesis, reason, ending)
            return True
        ending.rules.finish(hypothesis, reason)
        self.failing.add(hypothesis)
        return False

    def _finish(self, hypothesis: Hypothesis, reason: str, ending: Ending) -> None:
        self._end(hypothesis, reason, ending, frozenset())


def containing(
    loaded: LoadedModel, text: str, max_tokens: int, flag: str = "--include"
) -> Constraint:
    """Build the constraint for texts that contain `text`.

    Raises:
        UsageError: the model cannot write it, or not within `max_tokens`; names the flag.
    """
    form = f"(?s:.*){re.escape(text)}(?s:.*)"
    return constraint_for(loaded, "--pattern", form, max_tokens, None, f"{flag} {text!r}")


class Terms:
    """Terminology file: translations required if the source contains a term.

    Args:
        name: of a file with a term of the source, a tab and its translation a line.

    Raises:
        SeqgenError: it cannot be read, or a line is no such pair.
    """

    def __init__(self, name: str) -> None:
        self._pairs = []
        for number, line in enumerate(content(name).split("\n"), 1):
            source, tab, target = line.removesuffix("\r").partition("\t")
            if not line.strip():
                continue
            if not (tab and source and target):
                raise SeqgenError(f"{name}: line {number} has no term, tab and translation")
            word = re.compile(rf"(?<!\w){re.escape(source)}(?!\w)")
            self._pairs.append((word, target))

    def of(self, source: str) -> list[str]:
        """List the translations of terms that occur in a source as whole words."""
        return [target for word, target in self._pairs if word.search(source)]


@dataclass(frozen=True)
class RequiredTexts(Requirement):
    """Texts required by `--include` and `--terms`.

    Attributes:
        loaded: the model.
        options: how to search.
        include: what every text must contain.
        terms_file: the name of a file of `Terms`, or None.
        flag: what an error names.
    """

    loaded: LoadedModel
    options: BeamOptions
    include: tuple[str, ...]
    terms_file: str | None
    flag: str

    @cached_property
    def terms(self) -> Terms | None:
        """Terminology of `--terms`; None without it.

        Raises:
            UsageError: the model reads no sources of text.
            SeqgenError: the file cannot be read.
        """
        if self.terms_file is None:
            return None
        self.loaded.conditioning.require_sources("--terms")
        require(self.loaded.source_tokenizer is not None, "--terms is for sources of text")
        return Terms(self.terms_file)

    def required(self, prompt: Prompt) -> list[str]:
        """List the texts that the outputs for a prompt must contain."""
        of_source = [] if self.terms is None else self.terms.of(str(prompt.source))
        return list(dict.fromkeys([*self.include, *of_source]))

    def group(self, prompt: Prompt, root: Hypothesis) -> IncludingGroup | None:
        texts, most = self.required(prompt), self.options.max_tokens
        if not texts:
            return None
        languages = {text: containing(self.loaded, text, most, self.flag) for text in texts}
        return IncludingGroup(self.options, root, IncludedTexts(languages, prompt.tokens))

    def missing(self, prompt: Prompt, text: str) -> list[str] | None:
        required = self.required(prompt)
        return [one for one in required if one not in text] if required else None
