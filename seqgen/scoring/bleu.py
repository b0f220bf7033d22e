"""BLEU and other metrics of text files against references, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.metrics.bleu import SEED, Score, paired_scores
from seqgen.text.reading import lines
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.settings.scoring import BleuOptions


@dataclass(frozen=True)
class ComparedTexts:
    """Hypotheses and references, compared line by line.

    Attributes:
        systems: the lines of each hypothesis file by its name, the one to judge by first.
        references: the lines of each reference file.
    """

    systems: Mapping[str, list[str]]
    references: list[list[str]]

    @property
    def hypotheses(self) -> list[str]:
        """Lines of the first hypothesis file."""
        return next(iter(self.systems.values()))


def read_texts(
    systems: Mapping[str, Iterable[str]], references: Mapping[str, Iterable[str]]
) -> ComparedTexts:
    """Read hypothesis and reference files with one segment a line; only `\n` ends a line.

    Args:
        systems: the text of each hypothesis file, in pieces, by the file's name.
        references: the same of each reference file.

    Raises:
        SeqgenError: a file has no line, or two have different numbers of lines.
    """
    read = [
        {
            name: [line.removesuffix("\n") for line in lines(chunks, name)]
            for name, chunks in files.items()
        }
        for files in (systems, references)
    ]
    first, count = next((name, len(file_lines)) for name, file_lines in read[0].items())
    for name, file_lines in [*read[0].items(), *read[1].items()]:
        if not file_lines:
            raise SeqgenError(f"{name} has no line: there is nothing to score")
        if len(file_lines) != count:
            raise SeqgenError(
                f"{first} has {plural(count, 'line')} and {name} has {len(file_lines):,}: line n "
                "is scored against line n, so all files must have the same number of lines"
            )
    return ComparedTexts(read[0], list(read[1].values()))


def paired_bleu(
    texts: ComparedTexts, options: BleuOptions, test: str, samples: int, seed: int = SEED
) -> Iterator[tuple[str, Score]]:
    """Yield every system's name and score, with a p-value against the first."""
    systems = list(texts.systems.values())
    paired = paired_scores(
        systems, texts.references, options, test=test, samples=samples, seed=seed
    )
    return zip(texts.systems, paired, strict=True)


def record_of(score: Score, **place: Any) -> dict[str, Any]:
    """Make the record of `seqgen bleu --json`, with its keys in order.

    Args:
        score: the score.
        place: the file or the line that it is of, by its key.
    """
    record = {"metric": score.metric, "score": score.score, "signature": score.signature}
    figures = {
        "confidence_mean": score.mean,
        "confidence_interval": score.interval,
        "p_value": score.p_value,
    }
    known = {name: value for name, value in figures.items() if value is not None}
    return {**record, **place, **score.parts, **known}
