"""What a page shows of one model: its training, how it predicts, how new its texts are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from seqgen import registry, store
from seqgen.commands.inspect.heads import Attended, attended
from seqgen.commands.inspect.passage import InspectedText, InspectedToken, Passages, likeliest
from seqgen.commands.inspect.passage import passages as passages_of
from seqgen.commands.inspect.steps import UnitValues, unit_values
from seqgen.commands.inspect.units import Unit, units
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.novelty import training_text
from seqgen.commands.portrait.figures import PredictionFigures, figures
from seqgen.commands.scoring.perplexity import for_model, protocol, scoring_signature
from seqgen.commands.writing.beam_search import BeamOptions, Tree, explain
from seqgen.commands.writing.sample import texts_of
from seqgen.errors import SeqgenError
from seqgen.metrics.novelty import Novelty, novelty
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.transformer.model import Transformer


@dataclass(frozen=True)
class Originality:
    """How much is new, by word n-grams that do not occur in the training text.

    Attributes:
        samples: of texts that the model writes.
        text: of as many words of the text that is looked at.
    """

    samples: Novelty
    text: Novelty


def originality(loaded: LoadedModel, text: str) -> Originality:
    """Compare what a model writes, and a text, with the part of its text that it was trained on.

    Args:
        loaded: the model, of text.
        text: what is looked at; as many words of it are taken as the model writes.

    Raises:
        SeqgenError: the training text is not known, is gone, or has changed; says so.
    """
    _, train, _ = training_text(loaded)
    texts = texts_of(loaded)
    lengths = [len(one.split()) for one in texts]
    samples, of_text = novelty([texts, list(_cut(text.split(), lengths))], train())
    return Originality(samples, of_text)


def _cut(words: Sequence[str], lengths: Sequence[int]) -> Iterator[str]:
    """Yield consecutive texts of so many words each, as far as they go."""
    begin = 0
    for length in lengths:
        yield " ".join(words[begin : begin + length])
        begin += length


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
        prompt: what the beam search goes on from; None for the text's first words.

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
