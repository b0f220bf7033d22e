"""What a page shows of one model: its training, how it predicts, how new its texts are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqgen import registry, store
from seqgen.errors import SeqgenError
from seqgen.generation.beam_search import BeamOptions, Tree, explain
from seqgen.generation.sample import texts_of
from seqgen.metrics.perplexity import LN2
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.transformer.model import Transformer
from seqgen.plugins.inspect.heads import Attended, attended
from seqgen.plugins.inspect.passage import (
    InspectedText,
    InspectedToken,
    Passages,
    distributions,
    likeliest,
)
from seqgen.plugins.inspect.passage import passages as passages_of
from seqgen.plugins.inspect.steps import Unit, UnitValues, unit_values, units
from seqgen.plugins.novelty.novelty import Copies, known_to, like_lengths, novelty
from seqgen.scoring.perplexity import for_model, protocol, scoring_signature
from seqgen.store.loaded import LoadedModel


@dataclass(frozen=True)
class Originality:
    """What a model's texts, and a text, have in common with the text that it was trained on.

    Attributes:
        samples: of the texts that the model writes.
        text: of as much of the text that is looked at.
        words: of both, how many they have; white space separates them.
    """

    samples: Copies
    text: Copies
    words: tuple[int, int]

    def record(self) -> dict[str, Any]:
        """Return the figures, with the shares of n-grams that are new (McCoy et al. 2023)."""
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
    """Look up what a model writes, and a text, in the part of its text that it was trained on.

    Args:
        loaded: the model, of text.
        text: what is looked at; as many characters of it are taken as the model writes.

    Raises:
        SeqgenError: the training text is not known, is gone, or has changed; says so.
    """
    known, written = known_to(loaded), texts_of(loaded)
    of_text = like_lengths(text, written) or [""]
    words = (sum(len(each.split()) for each in texts) for texts in (written, of_text))
    return Originality(novelty(known, written), novelty(known, of_text), tuple(words))


# Tokens of the text that figures are made from, at most; and numbers of whole distributions.
MOST_TOKENS, MOST_NUMBERS = 20_000, 40_000_000
# Tokens of the passage that is shown, candidates at each, and tokens whose attention is.
SHOWN, CANDIDATES, ATTENDED = 400, 5, 60
# Tokens over which units are observed, and units and heads that are shown.
OBSERVED, UNITS, HEADS = 2000, 10, 4
SEARCH = BeamOptions(beams=4, nbest=2, max_tokens=12)
PROMPT_WORDS = 3


@dataclass(frozen=True)
class Portrait:
    """How a model deals with a text.

    Attributes:
        figures: over the first tokens of the text.
        passage: the beginning of it, with the likeliest tokens at each place.
        originality: how much of what the model writes is new; None where that is not known.
        not_known: why it is not; None where it is.
        tree: of the beam search from a prompt.
        attended: how many tokens of the text attention was looked at over; 0 for others than
            transformers.
        attention: what heads of a transformer read for a word of the passage; None for others.
        units: of a recurrent network, those that remember longest; none for others.
        unit: the first of them over the passage; None for others.
        protocol: how the text was scored.
        signature: of the figures.
    """

    figures: PredictionFigures
    passage: list[InspectedToken]
    originality: Originality | None
    not_known: str | None
    tree: Tree
    attended: int
    attention: Attended | None
    units: list[Unit]
    unit: UnitValues | None
    protocol: str
    signature: str


def portrait(loaded: LoadedModel, chunks: Iterable[str], prompt: str | None = None) -> Portrait:
    """Look at how a model deals with a text.

    Args:
        loaded: the model.
        chunks: the text in pieces cut anywhere; no more of it is read than is needed.
        prompt: what the beam search continues; None for the text's first words.

    Raises:
        UsageError: the model writes from sources, or from labels.
        SeqgenError: the text is empty, or the model does not know a character of the prompt.
    """
    most = max(1000, min(MOST_TOKENS, MOST_NUMBERS // loaded.model.vocab_size))
    passages = passages_of(loaded, chunks, most)
    scoring = for_model(loaded)
    shown = passages.head(SHOWN)
    if prompt is None:
        prompt = _prompt(shown.documents[0])
    (tree,) = explain(loaded, [prompt], SEARCH)
    text = "".join("".join(passage.texts) for passage in passages.documents)
    data = hashlib.sha256(text.encode()).hexdigest()
    try:
        novel, not_known = originality(loaded, text), None
    except SeqgenError as error:
        novel, not_known = None, str(error)
    model = loaded.model
    attended_tokens = min(ATTENDED, model.window - 1) if isinstance(model, Transformer) else 0
    recurrent = isinstance(model, RecurrentLM)
    listed = units(passages.head(OBSERVED)) if recurrent else []
    return Portrait(
        figures=figures(passages),
        passage=list(likeliest(shown, CANDIDATES)),
        originality=novel,
        not_known=not_known,
        tree=tree,
        attended=attended_tokens,
        attention=_attention(loaded, passages.head(attended_tokens)) if attended_tokens else None,
        units=listed[:UNITS],
        unit=unit_values(shown, listed[0].layer, listed[0].unit) if listed else None,
        protocol=protocol(loaded, scoring),
        signature=scoring_signature("report", loaded, scoring, data),
    )


def _prompt(passage: InspectedText) -> str:
    """Return the first words of a passage that the model knows."""
    known = []
    for word in "".join(passage.texts).split()[:PROMPT_WORDS]:
        if passage.loaded.tokenizer.first_unknown(word) is not None:
            break
        known.append(word)
    return " ".join(known)


def _attention(loaded: LoadedModel, passages: Passages) -> Attended:
    """Return what the first heads of the last layer read for the last word of a passage."""
    words = "".join(passages.documents[-1].texts).split()
    every = attended(passages, None, None, None)
    if not words:
        return every
    heads = range(min(HEADS, loaded.model.config.num_heads))
    read = attended(passages, None, heads, words[-1])
    return Attended(every.heads, read.words, 0)


Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Course:
    """A training run.

    Attributes:
        unit: what losses are per, "token" or "label".
        train_loss: nats per unit, by step.
        val_loss: the same, of validations during training.
        lr: by step, the learning rate.
        grad_norm: by step, before clipping.
        samples: steps, and what the model wrote at each from the same draws.
        running: another process is training the model now.
    """

    unit: str
    train_loss: Points
    val_loss: Points
    lr: Points
    grad_norm: Points
    samples: list[tuple[int, str]]
    running: bool


def course(model: store.StoredModel) -> Course:
    """Return how a model's training went so far."""
    records = model.logged(store.METRICS)
    curves = {
        key: [(r["step"], r[key]) for r in records if isinstance(r.get(key), int | float)]
        for key in ("train_loss", "val_loss", "lr", "grad_norm")
    }
    peak = (model.config.get("training") or {}).get("lr")
    curves["lr"] = [(step, share * peak) for step, share in curves["lr"]] if peak else []
    samples = [(r["step"], r["text"]) for r in model.logged(store.SAMPLES) if "text" in r]
    unit = registry.unit_of(model.config["architecture"])
    return Course(unit, **curves, samples=samples, running=model.is_locked)


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
