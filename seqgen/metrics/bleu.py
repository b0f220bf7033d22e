"""BLEU, chrF, chrF++ and TER, all by sacreBLEU (Post 2018), which is loaded when it is needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from seqgen.configs import Bounds, choice, require
from seqgen.errors import SeqgenError
from seqgen.metrics.bootstrap import MOST_RESAMPLES

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.base import Score as SacreScore

MetricName = Literal["bleu", "chrf", "chrf++", "ter"]
Smoothing = Literal["exp", "floor", "add-k", "none"]
PairedTest = Literal["bootstrap", "randomization"]
METRICS: tuple[str, ...] = get_args(MetricName)
SMOOTHINGS: tuple[str, ...] = get_args(Smoothing)
PAIRED_TESTS: tuple[str, ...] = get_args(PairedTest)
SEED = 12345  # sacreBLEU's own, so that its figures are ours
SEED_VARIABLE = "SACREBLEU_SEED"
# What a score is made of, by sacreBLEU's names.
PARTS = {
    "bleu": ("counts", "totals", "precisions", "bp", "sys_len", "ref_len"),
    "chrf": ("char_order", "word_order", "beta"),
    "chrf++": ("char_order", "word_order", "beta"),
    "ter": ("num_edits", "ref_length"),
}


# No sentence has matches that long, and each order takes its time.
MOST_ORDER = 100
# NumPy's generators, which sacreBLEU draws from, take 32 bits.
MOST_SEED = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class BleuOptions:
    """What to measure, and how. The defaults are sacreBLEU's.

    Attributes:
        metric: "bleu", "chrf", "chrf++" or "ter".
        tokenize: BLEU's tokenizer, by sacreBLEU's name.
        lowercase: compare in lower case; TER always does, unless `case_sensitive`.
        smooth: of BLEU's n-grams without a match.
        smooth_value: of "floor" and "add-k".
        max_order: BLEU's longest n-grams.
        effective_order: BLEU of the orders that a text is long enough for; always so for
            single sentences.
        case_sensitive: TER sees case.
        normalized: TER normalises punctuation and entities first.
    """

    metric: MetricName = "bleu"
    tokenize: str | None = None
    lowercase: bool = False
    smooth: Smoothing = "exp"
    smooth_value: float | None = None
    max_order: int = 4
    effective_order: bool = False
    case_sensitive: bool = False
    normalized: bool = False

    def __post_init__(self) -> None:
        choice("--metric", self.metric, METRICS)
        choice("--smooth", self.smooth, SMOOTHINGS)
        Bounds(low=1, high=MOST_ORDER).check("--max-order", self.max_order)
        Bounds(low=0, high=1e6).check("--smooth-value", self.smooth_value)
        for owner, flags in self.given_of().items():
            if flags and self.metric != owner:
                require(False, f"{flags[0]} is for --metric {owner}, not {self.metric}")
        both = self.lowercase and self.case_sensitive
        require(not both, "give --lowercase or --case-sensitive, not both")

    def given_of(self) -> dict[str, list[str]]:
        """Return the flags that differ from the defaults, by the metric they are for."""
        bleu = {
            "--tokenize": self.tokenize is not None,
            "--smooth": self.smooth != "exp",
            "--smooth-value": self.smooth_value is not None,
            "--max-order": self.max_order != 4,
            "--effective-order": self.effective_order,
        }
        ter = {"--case-sensitive": self.case_sensitive, "--normalized": self.normalized}
        return {
            owner: [flag for flag, given in flags.items() if given]
            for owner, flags in (("bleu", bleu), ("ter", ter))
        }

    def build(self, sentences: bool = False) -> Metric:
        """Return sacreBLEU's metric.

        Raises:
            UsageError: it has no such tokenizer.
            SeqgenError: the tokenizer needs what is not installed.
        """
        from sacrebleu.metrics import BLEU, CHRF, TER

        if self.metric == "ter":
            return TER(case_sensitive=self.case_sensitive, normalized=self.normalized)
        if self.metric != "bleu":
            return CHRF(word_order=2 if self.metric == "chrf++" else 0, lowercase=self.lowercase)
        known = sorted(BLEU.TOKENIZERS)
        known_tokenizer = self.tokenize is None or self.tokenize in known
        require(known_tokenizer, f"--tokenize is one of {', '.join(known)}, not {self.tokenize!r}")
        try:
            return BLEU(
                lowercase=self.lowercase,
                force=True,  # whether the text looks tokenized is said once, by us
                tokenize=self.tokenize,
                smooth_method=self.smooth,
                smooth_value=self.smooth_value,
                max_ngram_order=self.max_order,
                effective_order=self.effective_order or sentences,
            )
        except (ImportError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise SeqgenError(f"--tokenize {self.tokenize} cannot be used: {reason}") from None


# Options by the metric they are for; the others are for all.
OWNED = {
    "bleu": ("tokenize", "smooth", "smooth_value", "max_order", "effective_order"),
    "ter": ("case_sensitive", "normalized"),
}


def options_by_metric(metrics: Sequence[str], **given: Any) -> list[BleuOptions]:
    """Return the options of each metric; one that is for a single metric goes to that alone.

    Raises:
        UsageError: a metric is unknown or named twice, or an option is for one not asked for.
    """
    require(len(set(metrics)) == len(metrics), "give each --metric once")
    every = []
    for metric in metrics:
        others = {
            name for owner in metrics if owner != metric for name in OWNED.get(owner, ())
        } - set(OWNED.get(metric, ()))
        applicable = {name: value for name, value in given.items() if name not in others}
        every.append(BleuOptions(metric=metric, **applicable))
    return every


@dataclass(frozen=True)
class Score:
    """A score, and exactly how it was made.

    Attributes:
        metric: sacreBLEU's name of it.
        score: not rounded.
        signature: sacreBLEU's.
        parts: what it is made of; see `PARTS`.
        text: as sacreBLEU writes it, with the parts rounded.
        mean: over bootstrap samples, if there were any.
        interval: half the width of the 95 % confidence interval around that mean.
        p_value: that it differs from the first system's by chance, if it is not the first.
    """

    metric: str
    score: float
    signature: str
    parts: dict[str, Any]
    text: str
    mean: float | None = None
    interval: float | None = None
    p_value: float | None = None

    @property
    def short_text(self) -> str:
        """The text without the signature."""
        return self.text.replace(f"|{self.signature}", "", 1)


def corpus_score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: BleuOptions,
    *,
    bootstrap: int = 0,
    seed: int = SEED,
) -> Score:
    """Score a text against one or several references.

    Args:
        hypotheses: its lines, at least one.
        references: each has as many lines.
        options: what to measure.
        bootstrap: resample the lines so many times for a confidence interval (Koehn 2004).
        seed: of the resampling.

    Raises:
        SeqgenError: sacreBLEU cannot resample these lines.
    """
    metric = options.build()
    try:
        Bounds(low=0, high=MOST_RESAMPLES).check("--samples", bootstrap)
        with _seeded(seed):
            score = metric.corpus_score(hypotheses, references, n_bootstrap=bootstrap)
    except TypeError as error:
        # Samples without a word score a Python 0.0 and others a float32, which
        # `statistics.mean` in sacreBLEU's `estimate_ci` does not add.
        if not bootstrap:
            raise
        raise SeqgenError(
            f"sacreBLEU has no interval for these lines, some of which are empty ({error}): "
            "leave out --confidence"
        ) from None
    signature = metric.get_signature().format()
    mean, interval = (score._mean, score._ci) if bootstrap > 1 else (None, None)
    return _score(score, options, signature, mean=mean, interval=interval)


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: BleuOptions
) -> Iterator[Score]:
    """Yield the score of every line; see `corpus_score`."""
    metric = options.build(sentences=True)
    for hypothesis, *references_of_line in zip(hypotheses, *references, strict=True):
        score = metric.sentence_score(hypothesis, references_of_line)
        yield _score(score, options, metric.get_signature().format())


def paired_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    options: BleuOptions,
    *,
    test: PairedTest = "bootstrap",
    samples: int = 1000,
    seed: int = SEED,
) -> list[Score]:
    """Score several systems; all but the first get a p-value against the first.

    The null hypothesis is that both systems are as good. Paired bootstrap resampling is Koehn's
    (2004), approximate randomization Riezler and Maxwell's (2005).

    Args:
        systems: the lines of each.
        references: as `corpus_score`'s.
        options: what to measure.
        test: how; "bootstrap" also gives confidence intervals.
        samples: resamples, or random exchanges.
        seed: of the test.
    """
    from numpy.random import SeedSequence
    from sacrebleu.significance import PairedTest as SacreTest

    Bounds(low=2, high=MOST_RESAMPLES).check("--samples", samples)

    kind = "bs" if test == "bootstrap" else "ar"
    metric = options.build()
    named = [(str(number), lines) for number, lines in enumerate(systems)]
    with _seeded(seed):
        paired = SacreTest(named, {"metric": metric}, references, kind, samples)
        if seed == 0:  # sacreBLEU takes 0 for no seed, and would draw a new one each time
            paired._seed = SeedSequence(0)
        signatures, results = paired()
    # Both are by the name of the score, which sacreBLEU makes from its settings.
    ((name, signature),) = signatures.items()
    scores = []
    for lines, result in zip(systems, results[name], strict=True):
        score = options.build().corpus_score(lines, references)
        # For a text compared with itself sacreBLEU gives a p-value that looks significant.
        p_value = 1.0 if scores and list(lines) == list(systems[0]) else result.p_value
        figures = {"mean": result.mean, "interval": result.ci, "p_value": p_value}
        scores.append(_score(score, options, signature.format(), **figures))
    return scores


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Return whether most of the lines that end a sentence have a space before its last mark.

    BLEU tokenizes by itself: text that is tokenized already gets another score.
    """
    ends = [line.rstrip() for line in lines if line.rstrip()[-1:] in (".", "!", "?")]
    spaced = sum(end[:-1].endswith(" ") for end in ends)
    return 2 * spaced > len(ends)


def _score(score: SacreScore, options: BleuOptions, signature: str, **figures: Any) -> Score:
    parts = {name: getattr(score, name) for name in PARTS[options.metric]}
    text = score.format(signature=signature)
    # NumPy's single precision, as resampled scores have it, is not JSON's.
    figures = {name: None if value is None else float(value) for name, value in figures.items()}
    return Score(score.name, float(score.score), signature, parts, text, **figures)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Hand a seed to sacreBLEU, which takes it from the environment alone."""
    Bounds(low=0, high=MOST_SEED).check("--seed", seed)
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before
