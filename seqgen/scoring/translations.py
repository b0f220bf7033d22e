"""Translate sources by beam search, and score against references, also by source length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.generation.beam_search import beam_search
from seqgen.metrics.bleu import SEED, Score, corpus_score, paired_scores
from seqgen.scoring.bleu import record_of
from seqgen.settings import require
from seqgen.settings.generation import BeamOptions
from seqgen.settings.scoring import BleuOptions
from seqgen.text.sources import Vectors

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.pairs import Pairs

METRICS = ("bleu", "chrf", "ter")
BOOTSTRAP = 1000
# Without `Translating.lengths`, sources are divided into so many classes of about equal size.
LENGTH_CLASSES = 5
# With `Translating.fit_targets`, a translation may be this many times the longest target.
LONGEST_BY_TARGET = 2


@dataclass(frozen=True, kw_only=True)
class Translating:
    """Options of translating sources and scoring the translations.

    Attributes:
        search: the beam search; the best hypothesis counts.
        metrics: what the translations are scored by; classes of length by the first of them.
        lengths: the longest source of each class of length but the last, which has no limit, in
            ascending order; None for classes of about equal size.
        fit_targets: raise the `max_tokens` of `search` to twice the tokens of the longest target,
            if that is more. The limit is one for all sources, so that none depends on how long its
            own target is.
    """

    search: BeamOptions = field(default_factory=BeamOptions)
    metrics: tuple[BleuOptions, ...] = tuple(BleuOptions(metric=name) for name in METRICS)
    lengths: tuple[int, ...] | None = None
    fit_targets: bool = True

    def __post_init__(self) -> None:
        require(bool(self.metrics), "give at least one --metric")
        rising = list(self.lengths or ()) == sorted({n for n in self.lengths or () if n >= 0})
        require(rising, "--by-length takes lengths in ascending order, such as 5,10,20")

    def with_length_limit(self, loaded: LoadedModel, pairs: Pairs) -> Translating:
        """Set the length limit that `fit_targets` asks for, for one model."""
        if not self.fit_targets:
            return self
        lengths = (len(loaded.ids(target)) + 1 for _, target in pairs)  # with the end
        most = max(self.search.max_tokens, LONGEST_BY_TARGET * max(lengths, default=0))
        return replace(self, search=replace(self.search, max_tokens=most), fit_targets=False)

    def __str__(self) -> str:
        search = self.search
        norm = f"{search.length_norm}{search.alpha:g}"
        return f"{search.beams}beams+{norm}+{search.max_tokens}tokens"


@dataclass(frozen=True)
class Translations:
    """A model's translations with their references.

    Attributes:
        sources: what was translated.
        targets: what it is compared with.
        texts: the translations.
        cut: how many of them were cut at the greatest number of tokens.
        max_tokens: that number.
    """

    sources: list[str | Vectors]
    targets: list[str]
    texts: list[str]
    cut: int
    max_tokens: int

    @property
    def exact_match(self) -> float:
        """Fraction of translations that equal the reference exactly."""
        pairs = zip(self.texts, self.targets, strict=True)
        return sum(text == target for text, target in pairs) / len(self.texts)


def translate(loaded: LoadedModel, pairs: Pairs, search: BeamOptions) -> Translations:
    """Translate the sources of pairs.

    Raises:
        SeqgenError: there are no pairs, or reading them fails.
    """
    both = list(pairs)
    if not both:
        raise SeqgenError("there are no pairs to translate")
    # Searching for sources of about equal length together is faster, and changes no result.
    order = sorted(range(len(both)), key=lambda number: _length(both[number][0]))
    best = beam_search(loaded, [both[number][0] for number in order], search)
    best_of = {order[beam.index]: beam for beam in best if beam.rank == 0}
    return Translations(
        sources=[source for source, _ in both],
        targets=[target for _, target in both],
        texts=[best_of[number].text for number in range(len(both))],
        cut=sum(beam.finish_reason == "length" for beam in best_of.values()),
        max_tokens=search.max_tokens,
    )


def scores(translations: Translations, metrics: Sequence[BleuOptions]) -> list[Score]:
    """Score translations by each metric, with confidence intervals where possible."""
    return [_with_interval(translations, options) for options in metrics]


def _with_interval(translations: Translations, options: BleuOptions) -> Score:
    references = [translations.targets]
    try:
        return corpus_score(translations.texts, references, options, bootstrap=BOOTSTRAP)
    except SeqgenError:  # too many lines are empty to resample them
        return corpus_score(translations.texts, references, options)


def translation_record(translations: Translations, translating: Translating) -> dict[str, Any]:
    """Make the record of a model's translation scores.

    Returns:
        The number of `pairs`; `exact_match`, a share; `cut` and `max_tokens`, see `Translations`;
        `metrics`, the keys of `seqgen bleu --json` for each; and `by_length`, see
        `by_source_length`.
    """
    return {
        "pairs": len(translations.texts),
        "exact_match": translations.exact_match,
        "cut": translations.cut,
        "max_tokens": translations.max_tokens,
        "metrics": [record_of(score) for score in scores(translations, translating.metrics)],
        "by_length": list(
            by_source_length(translations, translating.metrics[0], translating.lengths)
        ),
    }


def by_source_length(
    translations: Translations, options: BleuOptions, lengths: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the scores of translations grouped by source length, shortest first.

    Args:
        translations: the translations.
        options: the metric.
        lengths: see `Translating.lengths`.

    Yields:
        `unit` ("words"; "characters" where no source has two words; "vectors" of such), the range
        of lengths from `least` to `most` that there are, the number of `pairs`, the `metric`, its
        `score` and `exact_match`. A class without sources is left out.
    """
    unit, sizes = _sizes(translations.sources)
    if lengths is None:  # classes of about equal size
        quantiles = np.arange(1, LENGTH_CLASSES) / LENGTH_CLASSES
        limits = np.unique(np.quantile(sizes, quantiles, method="inverted_cdf"))
    else:
        limits = np.array(lengths, dtype=np.int64)
    classes = np.searchsorted(limits, sizes, side="left")  # (D,): a limit belongs to the class
    for number in np.unique(classes):
        members = np.flatnonzero(classes == number).tolist()
        of_class = Translations(
            *(
                [side[i] for i in members]
                for side in (translations.sources, translations.targets, translations.texts)
            ),
            cut=0,
            max_tokens=translations.max_tokens,
        )
        score = corpus_score(of_class.texts, [of_class.targets], options)
        yield {
            "unit": unit,
            "least": int(sizes[members].min()),
            "most": int(sizes[members].max()),
            "pairs": len(members),
            "metric": score.metric,
            "score": score.score,
            "exact_match": of_class.exact_match,
        }


def _length(source: str | Vectors) -> int:
    """Count the characters of a source, or its vectors."""
    return len(source.values if isinstance(source, Vectors) else source)


def _sizes(sources: Sequence[str | Vectors]) -> tuple[str, np.ndarray]:
    """Return the unit of source lengths, and the length of each source (D,)."""
    lengths = np.array([_length(source) for source in sources])
    if isinstance(sources[0], Vectors):
        return "vectors", lengths
    words = np.array([len(source.split()) for source in sources])
    return ("words", words) if words.max() > 1 else ("characters", lengths)


def paired_records(
    systems: Sequence[Translations], options: BleuOptions, samples: int, seed: int = SEED
) -> list[dict[str, Any]]:
    """Score several systems, with intervals and p-values against the first.

    Args:
        systems: translations of the same sources.
        options: the metric.
        samples: of the paired bootstrap (Koehn 2004).
        seed: of the resampling.

    Returns:
        For each system the number of `pairs`, `score`, the 95 % interval's `mean` and half-width
        `interval`, `p_value` (None for the best), `best` (whether it is), `exact_match`, and
        sacreBLEU's `signature`.
    """
    references = [systems[0].targets]
    if len(systems) == 1:
        return [_paired(_with_interval(systems[0], options), systems[0], best=True)]
    plain = [
        corpus_score(translations.texts, references, options).score for translations in systems
    ]
    sign = -1 if options.metric == "ter" else 1
    best = max(range(len(systems)), key=lambda number: sign * plain[number])
    order = [best, *(number for number in range(len(systems)) if number != best)]
    texts = [systems[number].texts for number in order]
    paired = paired_scores(texts, references, options, samples=samples, seed=seed)
    by_number = dict(zip(order, paired, strict=True))
    return [
        _paired(by_number[number], translations, best=number == best)
        for number, translations in enumerate(systems)
    ]


def _paired(score: Score, translations: Translations, best: bool) -> dict[str, Any]:
    return {
        "pairs": len(translations.texts),
        "score": score.score,
        "mean": score.mean,
        "interval": score.interval,
        "p_value": None if best else score.p_value,
        "best": best,
        "exact_match": translations.exact_match,
        "signature": score.signature,
    }
