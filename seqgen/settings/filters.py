"""Options that plugins add to commands that write: filters, forms, and what texts contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from seqgen.settings.options import Options
from seqgen.settings.setting import OptionRule

# What a flag that describes whole texts excludes: options that end texts, or that change what is
# in them.
WITH_A_FORM = (
    OptionRule(
        ("--stop", "--min-tokens", "--max-ratio", "--copy-unknown"),
        "{flag} says where a text ends and what is in it, so it cannot be combined with {other}",
    ),
    OptionRule(("--suggest",), "{other} writes no text, so it takes no {flag}"),
)


class FilterOptions(Options):
    """Options of a plugin that restrict what `sample` and `beam-search` write.

    Plugins name their subclasses in `hooks.Plugin.options`: at the place "writing" for both
    commands, at "sample" or "beam-search" for one of them. The defaults of all methods restrict
    nothing. A generator is the `generation.from_source.Generator` that writes: it has the model
    (`loaded`), all options, and `dead_id`.

    Attributes:
        constraint_flag: what help calls the constraint in the order of filters; "" for none.
        filter_flag: the same of the filters that apply after constraints.
    """

    constraint_flag: ClassVar[str] = ""
    filter_flag: ClassVar[str] = ""

    @property
    def form(self) -> str | None:
        """The flag that describes whole texts, and so decides where they end, if it was given.

        Such a flag is declared with `conflicts=WITH_A_FORM`.
        """
        return None

    @property
    def resampled(self) -> int:
        """The number of texts of which one is drawn, by the probability that the constraint kept.

        1 draws no text among several. Only for `sample`.
        """
        return 1

    def constraint(self, generator: Any) -> Any:
        """Make the `generation.constraint.TextConstraint` that every text must satisfy, or None.

        Raises:
            UsageError: the model can write no such text.
        """
        return None

    def filters(self, generator: Any) -> Sequence[Any]:
        """Make the filters (`generation.processors.Processor`) that are asked for.

        They apply after the constraint. One that leaves a row no token gives it
        `generator.dead_id`, unless that is None.

        Raises:
            SeqgenError: they cannot be made for this model.
        """
        return ()

    def requirement(self, generator: Any) -> Any:
        """Make the `generation.constraint.Requirement` of a beam search, or None.

        Raises:
            SeqgenError: the model cannot meet it.
        """
        return None


class WordFilter(Options):
    """Options of a plugin, at the place "fill", that restrict the words which fill a blank."""

    def matching(self, words: Sequence[str]) -> Any:
        """Find the words that may be written, (W,) of bool.

        Args:
            words: all that the model can write, without the spaces around them.

        Raises:
            UsageError: there are none.
        """
        raise NotImplementedError


class TextSet(Options):
    """Options of a plugin, at the place "perplexity", that describe a set of texts.

    If any is given, the probability of the set is printed in place of scoring a text.
    """

    def log_prob(self, loaded: Any) -> float:
        """Compute the log-probability, in nats, that a model writes a text of the set.

        Args:
            loaded: the `LoadedModel`.

        Raises:
            UsageError: it cannot be computed of this model.
        """
        raise NotImplementedError
