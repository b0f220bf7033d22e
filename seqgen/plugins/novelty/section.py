"""Section "Novelty" on the page of `seqgen report`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqgen.cli.shell.page import ReportSection, table, visible
from seqgen.plugins.novelty.novelty import (
    Copied,
    Copies,
    known_to,
    like_lengths,
    novelty,
    sample_fixed_texts,
)
from seqgen.scoring.passages import Passages
from seqgen.store.loaded import LoadedModel


@dataclass(frozen=True)
class Originality:
    """Overlap of a model's samples, and of a text, with the training text.

    Attributes:
        samples: of the texts that the model writes.
        text: of as much of the text that is looked at.
        words: of both, how many they have; white space separates them.
    """

    samples: Copies
    text: Copies
    words: tuple[int, int]

    def record(self) -> dict[str, Any]:
        """Build the record of the figures, with shares of novel n-grams (McCoy et al. 2023)."""
        return {
            who: {
                "words": words,
                "novel": {
                    unit: {n: None if share is None else 1 - share for n, share in by_n.items()}
                    for unit, by_n in copies.share.items()
                },
                "copied_words": len(copies.longest.copied.split()),
                **copies.figures(),
            }
            for who, copies, words in zip(
                ("samples", "text"), (self.samples, self.text), self.words, strict=True
            )
        }


def originality(loaded: LoadedModel, text: str) -> Originality:
    """Search a model's samples and a text for passages of the training text.

    Args:
        loaded: the model, of text.
        text: what is looked at; as many characters of it are taken as the model writes.

    Raises:
        SeqgenError: the training text is not known, is gone, or has changed; says so.
    """
    known, written = known_to(loaded), sample_fixed_texts(loaded)
    of_text = like_lengths(text, written) or [""]
    words = (sum(len(each.split()) for each in texts) for texts in (written, of_text))
    return Originality(novelty(known, written), novelty(known, of_text), tuple(words))


class NoveltySection(ReportSection[Originality]):
    """Section on the novelty of a model's samples, and their longest copied passages."""

    title = "Novelty"
    after = "Loss by class of token"
    key = "novelty"

    def look(self, loaded: LoadedModel, passages: Passages) -> Originality:
        return originality(loaded, passages.text)

    def body(self, found: Originality) -> str:
        record = found.record()
        rows = [
            [f"{n} {unit}", *(_share(record[who]["novel"][unit][n]) for who in ("samples", "text"))]
            for unit, by_n in found.samples.share.items()
            for n in by_n
        ]
        caption = (
            "Share of n-grams that do not occur in the training text, in "
            f"{found.words[0]:,} words that the model writes, and in as much of the text"
        )
        return table(["n-grams of", "written", "the text"], rows, caption) + "".join(
            table(["copied", "place", "characters"], map(_copied, copies.texts), of_which, left=2)
            for copies, of_which in (
                (found.samples, "The longest part of each text written that the training text has"),
                (found.text, "The same of parts of the text"),
            )
        )

    def commands(self, found: Originality, model: str, file: str) -> list[str]:
        return [f"seqgen novelty -m {model}"]

    def record(self, found: Originality) -> dict[str, Any]:
        return found.record()


def _copied(one: Copied) -> tuple[str, str, str]:
    place = "-" if one.file is None else f"{one.file}:{one.line + 1}"
    return visible(one.copied), place, f"{one.longest:,}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


SECTION = NoveltySection()
