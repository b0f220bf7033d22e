"""Figures of a translation model for the page: translations, references and BLEU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from seqgen.errors import UsageError
from seqgen.generation.beam_search import beam_search
from seqgen.metrics.bleu import BleuOptions, sentence_scores
from seqgen.scoring.bleu import record_of
from seqgen.scoring.translations import (
    Translating,
    Translations,
    by_source_length,
    scores,
    translate,
)
from seqgen.settings.generation import BeamOptions, SourceOptions
from seqgen.store.loaded import LoadedModel
from seqgen.text.pairs import Pairs
from seqgen.text.sources import Vectors

# Pairs that are translated, from the beginning; those of the worst that are shown.
MOST_PAIRS, WORST = 200, 10
# Translations that are shown with their attention, each of at most so many cells.
EXAMPLES, CELLS = 3, 1500
SEARCH = BeamOptions(beams=4)
# Lines are ordered by chrF, which unlike BLEU says something of a line of two words.
BY_LINE = BleuOptions(metric="chrf")


@dataclass(frozen=True)
class TranslatedLine:
    """Translation of one source, with its reference.

    Attributes:
        source: what it was made from; of vectors, how many.
        target: the reference.
        text: the translation.
        chrf: of this line.
        attention: (T, L), what each of its tokens read of the source, a mean over layers and
            heads; None where it is not shown, or the model has none.
        pieces: its T tokens and the L of the source; none without attention.
    """

    source: str
    target: str
    text: str
    chrf: float
    attention: np.ndarray | None = None
    pieces: tuple[Sequence[str], Sequence[str]] = ((), ())


@dataclass(frozen=True)
class Translated:
    """Translations and BLEU of a model on the first pairs of a text.

    Attributes:
        pairs: how many.
        metrics: BLEU, with the keys of `seqgen bleu --json`.
        by_length: BLEU by length of the source; see `by_source_length`.
        examples: the first that are short enough to show what they read.
        worst: the lowest by chrF, the lowest first.
        search: how they were made.
    """

    pairs: int
    metrics: list[dict[str, Any]]
    by_length: list[dict[str, Any]]
    examples: list[TranslatedLine]
    worst: list[TranslatedLine]
    search: str

    def record(self) -> dict[str, Any]:
        """Build the record of the figures for `--json`."""
        return {"pairs": self.pairs, "metrics": self.metrics, "by_length": self.by_length}


def translated(loaded: LoadedModel, pairs: Pairs) -> Translated:
    """Translate the first pairs of a text, and score the translations.

    Raises:
        SeqgenError: there are none, or they cannot be read.
    """
    bleu = BleuOptions()
    translating = Translating(search=SEARCH, metrics=(bleu,))
    first = list(islice(pairs, MOST_PAIRS))
    translating = translating.with_length_limit(loaded, first)
    made = translate(loaded, first, translating.search)
    lines = list(_lines(made))
    worst = sorted(range(len(lines)), key=lambda number: (lines[number].chrf, number))
    return Translated(
        pairs=len(lines),
        metrics=[record_of(score) for score in scores(made, translating.metrics)],
        by_length=list(by_source_length(made, bleu)),
        examples=_examples(loaded, made, lines, translating.search),
        worst=[lines[number] for number in worst[:WORST]],
        search=str(translating),
    )


def _lines(made: Translations) -> Iterable[TranslatedLine]:
    scored = sentence_scores(made.texts, [made.targets], BY_LINE)
    for source, target, text, score in zip(
        made.sources, made.targets, made.texts, scored, strict=True
    ):
        shown = f"{len(source.values)} vectors" if isinstance(source, Vectors) else source
        yield TranslatedLine(shown, target, text, score.score)


def _examples(
    loaded: LoadedModel, made: Translations, lines: Sequence[TranslatedLine], search: BeamOptions
) -> list[TranslatedLine]:
    """Select the first lines as examples, with attention matrices if these are small."""
    asked = dataclasses.replace(search, of_source=SourceOptions(attention=True))
    found: list[TranslatedLine] = []
    try:
        for source, line in zip(made.sources, lines, strict=True):
            (look,) = (beam.look for beam in beam_search(loaded, [source], asked) if not beam.rank)
            if look.attention[0, 0].size <= CELLS:
                mean = look.attention.mean((0, 1))
                pieces = look.target_pieces, look.source_pieces
                found.append(dataclasses.replace(line, attention=mean, pieces=pieces))
            if len(found) == EXAMPLES:
                break
    except UsageError:  # it has no attention
        return list(lines[:EXAMPLES])
    return found or list(lines[:EXAMPLES])
