"""BLEU, chrF, chrF++ and TER by sacreBLEU (Post 2018), which is imported on first use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.settings import require
from seqgen.settings.scoring import BleuOptions, BleuTest

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.base import Score as SacreScore

SEED = 12345  # sacreBLEU's own, so that its figures are ours
SEED_VARIABLE = "SACREBLEU_SEED"
# What a score is made of, by sacreBLEU's names.
PARTS = {
    "bleu": ("counts", "totals", "precisions", "bp", "sys_len", "ref_len"),
    "chrf": ("char_order", "word_order", "beta"),
    "chrf++": ("char_order", "word_order", "beta"),
    "ter": ("num_edits", "ref_length"),
}


def build_metric(options: BleuOptions, sentences: bool = False) -> Metric:
    """Build the sacreBLEU metric for some options.

    Args:
        options: which, and how.
        sentences: it measures single sentences.

    Raises:
        UsageError: it has no such tokenizer.
        SeqgenError: the tokenizer needs what is not installed.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    if options.metric == "ter":
        return TER(case_sensitive=options.case_sensitive, normalized=options.normalized)
    if options.metric != "bleu":
        return CHRF(word_order=2 if options.metric == "chrf++" else 0, lowercase=options.lowercase)
    known = sorted(BLEU.TOKENIZERS)
    known_tokenizer = options.tokenize is None or options.tokenize in known
    require(known_tokenizer, f"--tokenize is one of {', '.join(known)}, not {options.tokenize!r}")
    try:
        return BLEU(
            lowercase=options.lowercase,
            force=True,  # whether the text looks tokenized is said once, by us
            tokenize=options.tokenize,
            smooth_method=options.smooth,
            smooth_value=options.smooth_value,
            max_ngram_order=options.max_order,
            effective_order=options.effective_order or sentences,
        )
    except (ImportError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise SeqgenError(f"--tokenize {options.tokenize} cannot be used: {reason}") from None


@dataclass(frozen=True)
class Score:
    """A corpus or sentence score with its components, its text and sacreBLEU's signature.

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
        """The score as sacreBLEU prints it, without the signature."""
        return self.text.replace(f"|{self.signature}", "", 1)


def corpus_score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: BleuOptions,
    *,
    bootstrap: int = 0,
    seed: int = SEED,
) -> Score:
    """Score a whole text by one metric against one or several references.

    Args:
        hypotheses: its lines, at least one.
        references: each has as many lines.
        options: what to measure.
        bootstrap: resample the lines so many times for a confidence interval (Koehn 2004).
        seed: of the resampling.

    Raises:
        SeqgenError: sacreBLEU cannot resample these lines.
    """
    metric = build_metric(options)
    if bootstrap:
        BleuTest.check("samples", bootstrap)
    try:
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
    """Score each line by one metric; yield the scores in order. See `corpus_score`."""
    metric = build_metric(options, sentences=True)
    for hypothesis, *references_of_line in zip(hypotheses, *references, strict=True):
        score = metric.sentence_score(hypothesis, references_of_line)
        yield _score(score, options, metric.get_signature().format())


def paired_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    options: BleuOptions,
    *,
    test: str = "bootstrap",
    samples: int = 1000,
    seed: int = SEED,
) -> list[Score]:
    """Score several systems by one metric; test each against the first for significance.

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

    BleuTest.check("samples", samples)

    kind = "bs" if test == "bootstrap" else "ar"
    metric = build_metric(options)
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
        score = build_metric(options).corpus_score(lines, references)
        # For a text compared with itself sacreBLEU gives a p-value that looks significant.
        p_value = 1.0 if scores and list(lines) == list(systems[0]) else result.p_value
        figures = {"mean": result.mean, "interval": result.ci, "p_value": p_value}
        scores.append(_score(score, options, signature.format(), **figures))
    return scores


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Check whether most lines that end a sentence have a space before the final mark.

    BLEU tokenizes by itself: text that is tokenized already gets another score.
    """
    ends = [line.rstrip() for line in lines if line.rstrip()[-1:] in (".", "!", "?")]
    return 2 * sum(end[:-1].endswith(" ") for end in ends) > len(ends)


def _score(score: SacreScore, options: BleuOptions, signature: str, **figures: Any) -> Score:
    parts = {name: getattr(score, name) for name in PARTS[options.metric]}
    text = score.format(signature=signature)
    # NumPy's single precision, as resampled scores have it, is not JSON's.
    figures = {name: None if value is None else float(value) for name, value in figures.items()}
    return Score(score.name, float(score.score), signature, parts, text, **figures)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Set sacreBLEU's seed, which it reads from the environment, within a block."""
    BleuTest.check("seed", seed)
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before
