"""Measuring translations: the options of commands that translate in order to score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from seqgen.cli.completion import one_of
from seqgen.cli.help import value
from seqgen.cli.output import say
from seqgen.cli.tables import count, figure, interval, percentage
from seqgen.configs.panels import SCORES, SEARCH
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.scoring.evaluate import Evaluation
    from seqgen.commands.scoring.translations import Translating

Metrics = Annotated[
    list[str] | None,
    value(
        "KIND",
        SCORES,
        "For translators: score translations by bleu, chrf, chrf++ or ter. Give the option again "
        "for several.",
        "--metric",
        default="bleu, chrf, ter",
        complete=one_of("bleu", "chrf", "chrf++", "ter"),
    ),
]
ByLength = Annotated[
    str | None,
    value(
        "N,N,...",
        SCORES,
        "For translators: the longest source of each class of lengths, in words.",
        "--by-length",
        default="five classes of about equal size",
    ),
]
Beams = Annotated[
    int, value("N", SEARCH, "For translators: translate with so many beams.", "--beams", min=1)
]
LengthNorm = Annotated[
    str,
    value(
        "avg|gnmt|none",
        SEARCH,
        "For translators: how the search weighs lengths, as in `seqgen beam-search`.",
        "--length-norm",
        complete=one_of("avg", "gnmt", "none"),
    ),
]
Alpha = Annotated[float, value("X", SEARCH, "Exponent of --length-norm.", "--alpha")]
MaxTokens = Annotated[
    int | None,
    value(
        "N",
        SEARCH,
        "For translators: longest translation, in tokens.",
        "--max-tokens",
        default="100, or twice the longest target if that is more",
        min=1,
    ),
]


def translating(
    metrics: Sequence[str] | None = None,
    by_length: str | None = None,
    max_tokens: int | None = None,
    **search: Any,
) -> Translating:
    """Return how sources are translated and scored, as options say.

    Args:
        metrics: of `--metric`.
        by_length: of `--by-length`.
        max_tokens: of `--max-tokens`; None for a limit that follows from the targets.
        search: fields of `BeamOptions`.

    Raises:
        UsageError: an option is wrong.
    """
    from seqgen.commands.scoring.translations import METRICS, Translating
    from seqgen.commands.writing.beam_search import BeamOptions
    from seqgen.configs.scoring import MetricOptions

    if max_tokens is not None:
        search["max_tokens"] = max_tokens
    return Translating(
        search=BeamOptions(**search),
        fit_targets=max_tokens is None,
        metrics=tuple(MetricOptions(metric=tuple(metrics or ())).by_metric(METRICS)),
        lengths=None if by_length is None else _numbers(by_length),
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise UsageError(f"--by-length takes numbers such as 5,10,20, not {text!r}") from None


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


def say_cut(model: str, cut: int, pairs: int, most: int) -> None:
    """Say how many translations reached the greatest length, if any."""
    if cut:
        of = f"{count(cut)} of {plural(pairs, 'translation')}"
        say(f"{model}: {of} cut at {most} tokens (--max-tokens)")
