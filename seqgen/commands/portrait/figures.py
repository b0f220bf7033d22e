"""How well a model predicts: calibration, and loss by position and by class of token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqgen.commands.inspect.passage import InspectedText, Passages, distributions
from seqgen.metrics.perplexity import LN2

# Probabilities are sorted into bins with these upper ends.
BIN_ENDS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
CLASSES = (
    "beginning of a word",
    "inside a word",
    "digit",
    "punctuation",
    "white space",
    "end of a line",
    "unknown",
)


@dataclass(frozen=True)
class Bin:
    """Predictions of about the same probability, over all tokens of the vocabulary.

    Attributes:
        said: the mean probability.
        frequency: the share of them whose token came.
        count: how many there are.
    """

    said: float
    frequency: float
    count: int


@dataclass(frozen=True)
class TokenGroup:
    """Some tokens of a text.

    Attributes:
        name: what they have in common.
        tokens: how many there are.
        bits: the mean surprisal.
        share: their part of the total surprisal.
    """

    name: str
    tokens: int
    bits: float
    share: float


@dataclass(frozen=True)
class PredictionFigures:
    """How a model predicted a text.

    Attributes:
        tokens: how many.
        bits_per_token: their mean surprisal.
        calibration: bins from low to high, those without a prediction left out.
        calibration_error: the mean distance of frequency and said, over the likeliest token of
            each place, weighted by how many are in a bin (Guo et al. 2017).
        by_position: by tokens since the line began.
        by_class: by kind of token.
    """

    tokens: int
    bits_per_token: float
    calibration: list[Bin]
    calibration_error: float
    by_position: list[TokenGroup]
    by_class: list[TokenGroup]


class _Bins:
    """Adds up predictions by their probability."""

    def __init__(self) -> None:
        self.sums = np.zeros((3, len(BIN_ENDS)))  # of probabilities, of hits, of counts

    def add(self, p: np.ndarray, hits: np.ndarray) -> None:
        """Add predictions (...), and whether the token of each came."""
        at = np.searchsorted(BIN_ENDS[:-1], p.ravel())
        for row, weights in enumerate((p, hits, None)):
            weights = None if weights is None else weights.ravel()
            self.sums[row] += np.bincount(at, weights, minlength=len(BIN_ENDS))

    def bins(self) -> list[Bin]:
        """Return those that hold a prediction."""
        return [
            Bin(float(said / count), float(hits / count), int(count))
            for said, hits, count in self.sums.T
            if count
        ]

    def error(self) -> float:
        """Return the mean distance of frequency and said, weighted by the counts."""
        said, hits, count = self.sums
        return float(np.abs(hits - said).sum() / max(1.0, count.sum()))


def figures(passages: Passages) -> PredictionFigures:
    """Return how a model predicts a text."""
    everything, likeliest = _Bins(), _Bins()
    bits, positions, classes = [], [], []
    for passage in passages.documents:
        log_probs = np.empty(len(passage.tokens))
        for places, targets, rows in distributions(passage):
            p, each = np.exp(rows), np.arange(len(rows))
            log_probs[places] = rows[each, targets]
            came = np.zeros(p.shape, bool)
            came[each, targets] = True
            everything.add(p, came)
            likeliest.add(p.max(1), p.argmax(1) == targets)
        bits.append(-log_probs / LN2)
        positions += _positions(passage)
        classes += _classes(passage)
    each = np.concatenate(bits)
    names = [_range(position) for position in positions]
    order = sorted(set(names), key=lambda name: int(name.split(" ")[0]))
    return PredictionFigures(
        tokens=each.size,
        bits_per_token=float(each.mean()),
        calibration=everything.bins(),
        calibration_error=likeliest.error(),
        by_position=_groups(order, names, each),
        by_class=_groups(CLASSES, classes, each),
    )


def _groups(
    order: tuple[str, ...] | list[str], names: list[str], bits: np.ndarray
) -> list[TokenGroup]:
    group_of = np.array(names)
    total = max(float(bits.sum()), 1e-300)
    groups = []
    for name in order:
        in_group = bits[group_of == name]
        if in_group.size:
            share = float(in_group.sum()) / total
            groups.append(TokenGroup(name, in_group.size, float(in_group.mean()), share))
    return groups


def _range(position: int) -> str:
    """Return the range of positions that doubles from one to the next: 0, 1, 2 to 3, 4 to 7."""
    if position < 2:
        return str(position)
    low = 1 << (position.bit_length() - 1)
    return f"{low} to {2 * low - 1}"


def _positions(passage: InspectedText) -> list[int]:
    """Return for each token how many there are before it on its line."""
    positions, position = [], 0
    for text in passage.texts:
        positions.append(position)
        position = 0 if text.endswith("\n") else position + 1
    return positions


def _classes(passage: InspectedText) -> list[str]:
    """Return what kind of token each is, by its first character that is no white space."""
    unknown, before = passage.loaded.tokenizer.unk_id, "\n"
    classes = []
    for token, text in zip(passage.tokens, passage.texts, strict=True):
        classes.append("unknown" if token == unknown else _class(text, before))
        before = text[-1:] or before
    return classes


def _class(text: str, before: str) -> str:
    first = next((c for c in text if not c.isspace()), "")
    if not first:
        return "end of a line" if "\n" in text else "white space"
    if first.isdigit():
        return "digit"
    if not first.isalpha():
        return "punctuation"
    lead = text[: text.index(first)]
    starts = lead != "" or not before.isalnum()
    return "beginning of a word" if starts else "inside a word"
