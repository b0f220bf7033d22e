"""Figures of one model for the page: its training, and its predictions on a text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from seqgen import registry, store
from seqgen.generation.beam_search import Tree, explain
from seqgen.metrics.perplexity import LN2
from seqgen.plugins.report.findings import Finding, findings
from seqgen.scoring.passages import (
    Passages,
    TokenizedDocument,
    distributions,
    tokenize_passages,
)
from seqgen.scoring.perplexity import for_model, protocol, scoring_signature
from seqgen.settings.generation import BeamOptions
from seqgen.store.loaded import LoadedModel

# Tokens of the text that figures are made from, at most; and numbers of whole distributions.
MOST_TOKENS, MOST_NUMBERS = 20_000, 40_000_000
SEARCH = BeamOptions(beams=4, nbest=2, max_tokens=12)
# Words of the prompt, from the first tokens of the text.
PROMPT_WORDS, PROMPT_TOKENS = 3, 400


@dataclass(frozen=True)
class Portrait:
    """Figures of a model on a text.

    Attributes:
        figures: over the first tokens of the text.
        tree: of the beam search from a prompt.
        found: what sections of plugins have found, by title.
        protocol: how the text was scored.
        signature: of the figures.
    """

    figures: PredictionFigures
    tree: Tree
    found: Mapping[str, Finding]
    protocol: str
    signature: str

    def record(self) -> dict[str, Any]:
        """Build the record of the figures for `--json`."""
        added = {
            finding.section.key: finding.record
            for finding in self.found.values()
            if finding.section.key
        }
        return {**asdict(self.figures), **added, "signature": self.signature}


def portrait(loaded: LoadedModel, chunks: Iterable[str], prompt: str | None = None) -> Portrait:
    """Compute a model's figures on a text.

    Args:
        loaded: the model.
        chunks: the text in pieces cut anywhere; no more of it is read than is needed.
        prompt: what the beam search continues; None for the text's first words.

    Raises:
        UsageError: the model writes from sources, or from labels.
        SeqgenError: the text is empty, or the model does not know a character of the prompt.
    """
    most = max(1000, min(MOST_TOKENS, MOST_NUMBERS // loaded.model.vocab_size))
    passages = tokenize_passages(loaded, chunks, most)
    scoring = for_model(loaded)
    if prompt is None:
        prompt = _prompt(passages.documents[0].head(PROMPT_TOKENS))
    (tree,) = explain(loaded, [prompt], SEARCH)
    data = hashlib.sha256(passages.text.encode()).hexdigest()
    return Portrait(
        figures=figures(passages),
        tree=tree,
        found=findings(loaded, passages),
        protocol=protocol(loaded, scoring),
        signature=scoring_signature("report", loaded, scoring, data),
    )


def _prompt(document: TokenizedDocument) -> str:
    """Take the first words of a document, up to one that the model does not know."""
    known = []
    for word in "".join(document.texts).split()[:PROMPT_WORDS]:
        if document.loaded.tokenizer.first_unknown(word) is not None:
            break
        known.append(word)
    return " ".join(known)


Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Course:
    """Course of a training run: losses, learning rates, gradient norms and samples.

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
    """Read the course of a model's training so far."""
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
    """Predictions of similar probability, over all tokens of the vocabulary.

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
    """Group of tokens in a text, with their surprisal.

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
    """Statistics of a model's predictions on a text.

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
    """Histogram of predictions by probability."""

    def __init__(self) -> None:
        self.sums = np.zeros((3, len(BIN_ENDS)))  # of probabilities, of hits, of counts

    def add(self, p: np.ndarray, hits: np.ndarray) -> None:
        """Add predicted probabilities (...), and whether each prediction came true."""
        at = np.searchsorted(BIN_ENDS[:-1], p.ravel())
        for row, weights in enumerate((p, hits, None)):
            weights = None if weights is None else weights.ravel()
            self.sums[row] += np.bincount(at, weights, minlength=len(BIN_ENDS))

    def bins(self) -> list[Bin]:
        """List the bins that are not empty."""
        return [
            Bin(float(said / count), float(hits / count), int(count))
            for said, hits, count in self.sums.T
            if count
        ]

    def error(self) -> float:
        """Compute the mean distance between frequency and probability, weighted by counts."""
        said, hits, count = self.sums
        return float(np.abs(hits - said).sum() / max(1.0, count.sum()))


def figures(passages: Passages) -> PredictionFigures:
    """Compute statistics of a model's predictions on a text."""
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
    """Name the range of a position, which doubles each time: 0, 1, 2 to 3, 4 to 7."""
    if position < 2:
        return str(position)
    low = 1 << (position.bit_length() - 1)
    return f"{low} to {2 * low - 1}"


def _positions(passage: TokenizedDocument) -> list[int]:
    """Count the tokens before each token on its line."""
    positions, position = [], 0
    for text in passage.texts:
        positions.append(position)
        position = 0 if text.endswith("\n") else position + 1
    return positions


def _classes(passage: TokenizedDocument) -> list[str]:
    """Classify tokens by their first character that is not white space."""
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
