"""Measuring translations, for commands that translate in order to score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seqgen.cli.output import Output
from seqgen.cli.tables import count, figure, interval, percentage
from seqgen.configs.decoding import Translation
from seqgen.configs.scoring import TranslationScores
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.scoring.evaluate import Evaluation
    from seqgen.commands.scoring.translations import Translating


def translating(
    translation: Translation, scores: TranslationScores, batch_size: int
) -> Translating:
    """Return how sources are translated and scored, as options say.

    Raises:
        UsageError: an option is wrong.
    """
    from seqgen.commands.scoring.translations import METRICS, Translating
    from seqgen.configs.scoring import MetricOptions

    return Translating(
        search=translation.search(batch_size),
        fit_targets=translation.max_tokens is None,
        metrics=tuple(MetricOptions(metric=scores.metric).by_metric(METRICS)),
        lengths=scores.lengths,
    )


def score_rows(evaluations: Sequence[Evaluation]) -> Iterator[list[str]]:
    """Yield the rows of a table of evaluations: a metric each, then the classes of length.

    Args:
        evaluations: of models of pairs, by the same metrics on the same pairs.
    """
    records = [one.translations for one in evaluations]
    for scores in zip(*(record["metrics"] for record in records), strict=True):
        shown = (interval(one["score"], one.get("confidence_interval"), 2) for one in scores)
        yield [scores[0]["metric"], *shown]
    yield ["exact match", *(percentage(record["exact_match"]) for record in records)]
    for scores in zip(*(record["by_length"] for record in records), strict=True):
        first = scores[0]
        to = "" if first["least"] == first["most"] else f" to {first['most']}"
        lengths = f"{first['least']}{to} {first['unit']}"
        yield [
            f"{first['metric']}, {lengths} ({count(first['pairs'])})",
            *(figure(one["score"], 2) for one in scores),
        ]


def say_cut(model: str, cut: int, pairs: int, most: int, out: Output) -> None:
    """Say how many translations reached the greatest length, if any."""
    if cut:
        of = f"{count(cut)} of {plural(pairs, 'translation')}"
        out.notice(f"{model}: {of} cut at {most} tokens (--max-tokens)")
