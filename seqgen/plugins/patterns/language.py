"""Patterns as sets of texts: the option `--pattern` of `perplexity` and `fill`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqgen.settings.filters import TextSet, WordFilter
from seqgen.settings.generation import WritingOptions
from seqgen.settings.options import Panel, with_default
from seqgen.settings.setting import setting


class Language(TextSet, panel=Panel.TEXT):
    """Set of all texts that match a pattern, scored together."""

    pattern: str | None = setting(
        "Print the log-probability that an n-gram model or HMM writes a text that matches this "
        "regular expression, in place of scoring a text.",
        metavar="REGEX",
        conflicts=("FILE", "--label", "--source", "--source-vectors"),
    )
    max_tokens: int = with_default(
        WritingOptions,
        "max_tokens",
        100,
        panel=Panel.TEXT,
        without="with --pattern: 100",
        common=False,
        needs="--pattern",
    )

    def log_prob(self, loaded: Any) -> float:
        from seqgen.plugins.patterns.forms import log_prob_of

        return log_prob_of(loaded, self.pattern, self.max_tokens)


class WordPattern(WordFilter, panel=Panel.FORM):
    """Filter of words that match a pattern."""

    pattern: str | None = setting(
        "Fill blanks only with tokens that match this regular expression as a whole.",
        metavar="REGEX",
    )

    def matching(self, words: Sequence[str]) -> Any:
        from seqgen.plugins.patterns.forms import matching

        return matching(words, self.pattern)
