"""Options of scoring: by a model, with a cache, and by BLEU and related metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from seqgen.settings import ranges
from seqgen.settings.data import Documents
from seqgen.settings.filters import AdaptiveScoring
from seqgen.settings.generation import WritingOptions
from seqgen.settings.options import Options, Panel, added_options, group, redeclare, with_default
from seqgen.settings.setting import OptionRule, require, setting

MetricName = Literal["bleu", "chrf", "chrf++", "ter"]
METRICS: tuple[str, ...] = get_args(MetricName)
# More resamples change no digit that is shown.
MOST_RESAMPLES = 10**5
# NumPy's generators, which sacreBLEU draws from, take 32 bits.
MOST_BLEU_SEED = (1 << 32) - 1


class AddedMeasure(Options, ABC):
    """A measure that a plugin adds to `seqgen eval`: a `TextMeasure` or a `FileMeasure`.

    Plugins name their subclasses in `hooks.Plugin.options["eval"]`. A subclass has one flag, whose
    name is the measure's key in the record.
    """

    @property
    def key(self) -> str:
        """The name of its flag, and its key in the record."""
        return next(iter(self.fields()))

    @property
    def is_asked(self) -> bool:
        """Whether the measure's flag was given."""
        return bool(self.given)


class TextMeasure(AddedMeasure, ABC, panel=Panel.SCORES):
    """A measure of generated texts. Its flag is a bool.

    Attributes:
        rows: the lines of the table: a title, and what shows a figure of `measure`.
    """

    rows: ClassVar[tuple[tuple[str, Callable[[dict[str, Any]], str]], ...]] = ()

    @abstractmethod
    def measure(self, loaded: Any, real: Sequence[str], written: Sequence[str]) -> dict[str, Any]:
        """Compute the figures of the generated texts (`model`) and of the real ones (`text`).

        Args:
            loaded: the `LoadedModel`.
            real: how passages of the text continue.
            written: how the model continues each of them.

        Raises:
            SeqgenError: they cannot be measured.
        """


class FileMeasure(AddedMeasure, ABC, panel=Panel.SCORES):
    """A measure of files of its own, whose names its flag takes."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files."""
        return getattr(self, self.key)

    @abstractmethod
    def read(self, sources: Sequence[Any]) -> Any:
        """Read the files (`seqgen.cli.shell.inputs.Input`).

        Raises:
            SeqgenError: one of them is damaged.
        """

    @abstractmethod
    def measure(self, loaded: Any, content: Any, scoring: Scoring) -> list[dict[str, Any]]:
        """Score a model of text on what `read` returned; each record has a `signature`."""

    @abstractmethod
    def table(self, records: Sequence[list[dict[str, Any]]]) -> Iterator[list[str]]:
        """Yield the rows of the table: a title, and a figure of each model.

        Args:
            records: those of each model.
        """


Adaptive = added_options("scoring")


class TextScoring(Options, panel=Panel.TEXT):
    """Options of how a model reads a scored text. `batch_size` never changes a figure."""

    documents: Documents | None = setting(
        "Read the text as one continuous stream, or each line as a separate document.",
        without="as the model was trained",
        common=True,
    )
    stride: int | None = setting(
        "How many tokens a transformer's full context window moves on at a time.",
        low=1,
        panel=Panel.MODEL,
        without="half the window",
    )
    batch_size: int = with_default(WritingOptions, "batch_size", 32)


class Scoring(TextScoring, panel=Panel.SCORES):
    """Options of scoring a text with a model."""

    top5: bool = setting("Report top-5 accuracy also for n-grams over words, where it is slow.")
    no_end: bool = setting(
        "Leave the ends of lines out of all figures: each line counts without its newline."
    )
    adaptive: Adaptive = group(Adaptive)

    @property
    def adaptation(self) -> AdaptiveScoring | None:
        """Options of dynamic evaluation that were given; None for static scoring."""
        return next((each for each in self.adaptive.groups if each.given), None)

    @property
    def want(self) -> Literal["ranks", "hits"]:
        """The `models.scores.ScoreDetail` that is needed beside log-probabilities."""
        return "ranks" if self.top5 else "hits"


class ScoreOptions(Options, panel=Panel.SCORES):
    """Options that BLEU, chrF and TER share; the defaults are sacreBLEU's."""

    lowercase: bool = setting("Ignore case.", conflicts="--case-sensitive")
    tokenize: str | None = setting(
        "BLEU: tokenizer, such as 13a, intl, char, zh or none.",
        metavar="KIND",
        without="13a",
        only_for="--metric bleu",
    )
    smooth: Literal["exp", "floor", "add-k", "none"] = setting(
        "BLEU: smoothing of n-grams without a match.", "exp", only_for="--metric bleu"
    )
    smooth_value: float | None = setting(
        "BLEU: value of the smoothing floor or add-k.", low=0, high=1e6, only_for="--metric bleu"
    )
    # No sentence has matches of more than 100 words, and each order takes its time.
    max_order: int = setting(
        "BLEU: length of the longest n-grams.", 4, low=1, high=100, only_for="--metric bleu"
    )
    effective_order: bool = setting(
        "BLEU: use only n-grams that the text is long enough for; always so for single sentences.",
        only_for="--metric bleu",
    )
    case_sensitive: bool = setting(
        "TER: treat upper and lower case as different.", only_for="--metric ter"
    )
    normalized: bool = setting("TER: normalise punctuation first.", only_for="--metric ter")


class BleuOptions(ScoreOptions, panel=Panel.SCORES):
    """Options of one metric: BLEU, chrF, chrF++ or TER."""

    metric: MetricName = setting("Metric.", "bleu")


class MetricOptions(ScoreOptions, panel=Panel.SCORES):
    """Options of several metrics at once."""

    metric: tuple[MetricName, ...] = setting(
        "Metric: bleu, chrf, chrf++ or ter. Can be repeated.", metavar="KIND", without="bleu"
    )

    def by_metric(self, default: Sequence[str] = ("bleu",)) -> list[BleuOptions]:
        """Split into the options of each metric; metric-specific ones go to their metric.

        Raises:
            UsageError: a metric is named twice.
        """

        def only_for(name: str) -> str:
            return ScoreOptions.fields()[name].metadata["flag"].only_for or ""

        given: dict[str, Any] = {name: getattr(self, name) for name in ScoreOptions.fields()}
        metrics = self.metric or tuple(default)
        require(len(set(metrics)) == len(metrics), "give each --metric once")
        every = []
        for metric in metrics:
            suits = "", f"--metric {metric}"
            values = {name: value for name, value in given.items() if only_for(name) in suits}
            every.append(BleuOptions(metric=metric, **values))
        return every


class TranslationScores(Options, panel=Panel.TRANSLATED):
    """Options of scoring translations: metrics, and classes of source length."""

    metric: tuple[MetricName, ...] = redeclare(
        MetricOptions, "metric", panel=Panel.TRANSLATED, without="bleu, chrf, ter"
    )
    by_length: tuple[int, ...] = setting(
        "The longest source of each class of lengths, in words.",
        listed=True,
        metavar="N,N,...",
        without="five classes of about equal size",
    )


class BleuTest(Options, panel=Panel.TESTS):
    """Options of confidence intervals and significance tests of metrics."""

    confidence: bool = setting("Add a 95 % interval, from resampling the lines.")
    against: tuple[str, ...] = setting(
        "Output of another system: test whether its score differs significantly from HYP's.",
        reads="file",
    )
    paired_test: Literal["bootstrap", "randomization"] = setting("Test of --against.", "bootstrap")
    samples: int = setting(
        "Number of resamples for --confidence and --against.", 1000, low=2, high=MOST_RESAMPLES
    )
    seed: int = setting(
        "Random seed of the resampling; the default is sacreBLEU's.",
        12345,
        low=0,
        high=MOST_BLEU_SEED,
    )
    sentence_level: bool = setting(
        "Print a score for each line; several metrics are columns.",
        panel=Panel.OUTPUT,
        conflicts=OptionRule(
            ("--confidence", "--against"), "{other} is about a whole text; leave out {flag}"
        ),
    )


STRENGTH, FLATNESS = 0.1, 0.3
BELONGS_TO_A_CACHE = OptionRule(("--cache",), "{flag} belongs to a cache: give --cache N as well")


class CacheOptions(Options, panel=Panel.MODEL):
    """Command-line options of the cache model."""

    cache: int | None = setting(
        "Remember the last N positions, and make more probable what followed at similar ones (a "
        "continuous cache). For networks.",
        bounds=ranges.WIDTHS,
        without="no cache",
    )
    cache_strength: float | None = setting(
        "Weight of the cache, from 0 to below 1.",
        bounds=ranges.SHARES_BELOW_1,
        without=str(STRENGTH),
        needs=BELONGS_TO_A_CACHE,
    )
    cache_flatness: float | None = setting(
        "Multiply products of features by this: the smaller, the flatter the cache's distribution.",
        low=0,
        high=1000,
        without=str(FLATNESS),
        needs=BELONGS_TO_A_CACHE,
    )

    @property
    def config(self) -> CacheConfig | None:
        """The configuration of the cache, if one is asked for."""
        strength, flatness = self.cache_strength, self.cache_flatness
        if self.cache is None:
            return None
        return CacheConfig(
            self.cache,
            STRENGTH if strength is None else strength,
            FLATNESS if flatness is None else flatness,
        )


@dataclass(frozen=True)
class CacheConfig:
    """Configuration of a continuous cache over past hidden states (Grave et al. 2017).

    Attributes:
        size: how many past positions are kept.
        strength: lambda, the weight of the cache; the rest is the model's.
        flatness: theta, by which products of features are multiplied; 0 counts words alone.

    Raises:
        UsageError: a value is out of bounds.
    """

    size: int
    strength: float = STRENGTH
    flatness: float = FLATNESS

    def __post_init__(self) -> None:
        CacheOptions.check("cache", self.size)
        CacheOptions.check("cache_strength", self.strength)
        CacheOptions.check("cache_flatness", self.flatness)

    def __str__(self) -> str:
        """Return the options that mean this."""
        return (
            f"--cache {self.size} --cache-strength {self.strength:g} "
            f"--cache-flatness {self.flatness:g}"
        )
