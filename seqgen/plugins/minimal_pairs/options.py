"""Option `seqgen eval --pairs`, and its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.cli.shell.tables import count, figure, percentage
from seqgen.settings.options import Panel
from seqgen.settings.scoring import FileMeasure, Scoring
from seqgen.settings.setting import setting
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.cli.shell.inputs import Input
    from seqgen.plugins.minimal_pairs.scoring import Pair
    from seqgen.store.loaded import LoadedModel


class MinimalPairs(FileMeasure, panel=Panel.SCORES):
    """Share of the pairs of a better and a worse text whose better one is more probable."""

    pairs: tuple[str, ...] = setting(
        "Count how often the first text of a pair is more probable: lines "
        "better<TAB>worse[<TAB>group]; - is standard input.",
        reads="file",
        common=True,
    )

    def read(self, sources: Sequence[Input]) -> dict[str, list[Pair]]:
        from seqgen.plugins.minimal_pairs.scoring import read_pairs

        return {source.title: read_pairs(source.chunks(), source.title) for source in sources}

    def measure(
        self, loaded: LoadedModel, content: Mapping[str, Sequence[Pair]], scoring: Scoring
    ) -> list[dict[str, Any]]:
        from seqgen.plugins.minimal_pairs.scoring import score_pairs

        return [
            asdict(score)
            for name, pairs in content.items()
            for score in score_pairs(loaded, pairs, name, scoring)
        ]

    def table(self, records: Sequence[list[dict[str, Any]]]) -> Iterator[list[str]]:
        for results in zip(*records, strict=True):
            first = results[0]
            about = f"{first['group'] or 'all'} ({count(first['pairs'])})"
            yield [f"{Path(first['file']).stem}: {about}", *map(_share_preferred, results)]


def _share_preferred(record: dict[str, Any]) -> str:
    """Format the share of pairs in which the better text is more probable, with its interval."""
    more = f", {plural(record['ties'], 'tie')}" if record["ties"] else ""
    if record["oov"]:
        more += f", {count(record['oov'])} unknown"
    low, high = (figure(100 * record[end], 1) for end in ("low", "high"))
    return f"{percentage(record['share'], 1)} [{low}, {high}]{more}"
