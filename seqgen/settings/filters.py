"""Base classes of the options that plugins add to commands that generate or score texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import Any, ClassVar, Literal

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
    """Options of a plugin that restrict what `sample` and `beam-search` generate.

    Plugins name their subclasses in `hooks.Plugin.options`: at the place "writing" for both
    commands, at "sample" or "beam-search" for one of them. The defaults of all methods restrict
    nothing. A generator is the `generation.generator.Generator` that writes: it has the model
    (`loaded`), all options, and `dead_id`.

    Attributes:
        constraint_flag: what help calls the constraint in the order of filters; "" for none.
        filter_flag: the same of the filters that apply after constraints.
        flags_before_temperature: the same of `filters_before_temperature`.
        last_flags: the same of `last_filters`.
    """

    constraint_flag: ClassVar[str] = ""
    filter_flag: ClassVar[str] = ""
    flags_before_temperature: ClassVar[tuple[str, ...]] = ()
    last_flags: ClassVar[tuple[str, ...]] = ()

    @property
    def form(self) -> str | None:
        """The given flag that describes complete texts, and so decides where they end, if any.

        Such a flag is declared with `conflicts=WITH_A_FORM`.
        """
        return None

    @property
    def resampled(self) -> int:
        """Number of candidates from which one is resampled, to correct the constraint's bias.

        1 draws no text among several. Only for `sample`.
        """
        return 1

    @property
    def draws(self) -> bool:
        """Whether the filters draw random numbers, which depend on the seed."""
        return False

    def prepare(self, loaded: Any) -> Any:
        """Return the `LoadedModel` with the framing that prompts have; only for `sample`.

        Raises:
            SeqgenError: the model cannot read such prompts.
        """
        return loaded

    def constraint(self, generator: Any) -> Any:
        """Make the `generation.constraint.TextConstraint` of these options; None without one.

        Raises:
            UsageError: the model can write no such text.
        """
        return None

    def prompt(self, generator: Any, prompt: Any) -> Any:
        """Change how a `generation.prompts.Prompt` is read, and return it.

        Raises:
            SeqgenError: the model cannot read it so.
        """
        return prompt

    def filters(self, generator: Any) -> Sequence[Any]:
        """Make the sampling filters (`generation.processors.Processor`) of these options.

        They apply after the constraint. One that leaves a row no token gives it
        `generator.dead_id`, unless that is None.

        Raises:
            SeqgenError: they cannot be made for this model.
        """
        return ()

    def filters_before_temperature(self, generator: Any) -> Sequence[Any]:
        """Make sampling filters that apply after the penalties; only for `sample`.

        They leave every row a token.
        """
        return ()

    def last_filters(self, generator: Any) -> Sequence[Any]:
        """Make sampling filters that apply after all others; only for `sample`.

        They leave every row a token.
        """
        return ()

    def requirement(self, generator: Any) -> Any:
        """Make the `generation.constraint.Requirement` of a beam search, or None.

        Raises:
            SeqgenError: the model cannot meet it.
        """
        return None

    def describe(self) -> str | None:
        """Say for `--verbose` what the options did to the texts written; only for `sample`."""
        return None


class WordFilter(Options):
    """Options of a plugin that restrict the words for a blank ("fill")."""

    def matching(self, words: Sequence[str]) -> Any:
        """Mark the words that may fill the blank, (W,) of bool.

        Args:
            words: all that the model can write, without the spaces around them.

        Raises:
            UsageError: there are none.
        """
        raise NotImplementedError


class TextSet(Options):
    """Options of a plugin that describe a set of texts to score ("perplexity").

    If any is given, the probability of the set is printed in place of scoring a text.
    """

    def log_prob(self, loaded: Any) -> float:
        """Compute the log-probability, in nats, that a model generates a text of the set.

        Args:
            loaded: the `LoadedModel`.

        Raises:
            UsageError: it cannot be computed of this model.
        """
        raise NotImplementedError


class ViewOptions(Options):
    """Options of a plugin that say how it views a model ("view"); see `hooks.Plugin.views`."""

    def seen(self, name: str | None) -> str | None:
        """Add the options to the name of a model, as `-m` has it.

        Raises:
            UsageError: the model is not seen so.
        """
        raise NotImplementedError


class AdaptiveScoring(Options, ABC):
    """Options of a plugin with which a model changes while it is scored ("scoring").

    If any is given, it scores the text. The methods are called with the `LoadedModel`.
    """

    @abstractmethod
    def check_model(self, loaded: Any, documents: str) -> None:
        """Check that a model can be scored so.

        Raises:
            UsageError: it cannot.
        """

    @abstractmethod
    def score(self, loaded: Any, corpus: Any, want: Literal["ranks", "hits"]) -> Iterator[Any]:
        """Score a corpus; see `seqgen.scoring.loop.score_corpus`.

        Raises:
            SeqgenError: the model can no longer be used.
        """

    @classmethod
    @abstractmethod
    def default(cls) -> AdaptiveScoring:
        """Return the options for a text of which nothing is known."""

    @abstractmethod
    def predict(self, loaded: Any) -> Generator[Any, int]:
        """Yield the logits (V,) of each next token of a text, which must then be sent."""

    @abstractmethod
    def describe(self, loaded: Any) -> str:
        """Describe the options in the protocol."""

    @abstractmethod
    def signature(self, loaded: Any) -> dict[str, str]:
        """Return what the signature of a score has about the options, by name."""

    @abstractmethod
    def segment(self, loaded: Any) -> int:
        """Return the number of tokens between two changes of the model."""
