"""Compare models on one text in bits per byte, with confidence intervals and p-values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen import store
from seqgen.errors import SeqgenError, UsageError
from seqgen.metrics.bootstrap import (
    RESAMPLES,
    group_into_blocks,
    p_value,
    percentile_interval,
    resampled_ratios,
    shorten_hash,
)
from seqgen.metrics.perplexity import ScoreTotals, bits_of_text
from seqgen.scoring.evaluate import held_out_text
from seqgen.scoring.loop import add_up, in_order
from seqgen.scoring.perplexity import for_model, protocol, score_as, scoring_signature
from seqgen.scoring.translations import Translating, paired_records, translate
from seqgen.store.loading import is_language_model
from seqgen.text.corpus import Unknowns
from seqgen.text.encoding import lines_of_tokens
from seqgen.text.pairs import Pairs
from seqgen.text.reading import lines
from seqgen.wording import ShortRepr, column, plural

if TYPE_CHECKING:
    from seqgen.settings.scoring import Scoring
    from seqgen.store.loaded import LoadedModel


@dataclass(frozen=True)
class LineBits:
    """Bits of each line of a text under one model.

    Attributes:
        bits: (L,) float64, the bits of each line, its end and its unknowns' bytes included.
        totals: of the whole text.
    """

    bits: np.ndarray
    totals: ScoreTotals


def score_each_line(loaded: LoadedModel, text: str | Pairs, scoring: Scoring) -> LineBits:
    """Score a text and return the bits of each line.

    A token that several lines have a part in counts for the line it begins in. Of pairs the
    targets are scored, each given its source.

    Raises:
        SeqgenError: the text holds no token.
    """
    unknowns, documents = Unknowns(loaded.tokenizer, each=True), scoring.documents
    whole = whole_of(text)
    corpus = loaded.encode([whole], documents, unknowns)
    if isinstance(text, Pairs):
        loaded.conditioning.check(text.source_features)
        corpus = replace(corpus, sources=text.encoded_sources(loaded.source_tokenizer, None))
    if corpus.tokens.size == 0:
        raise SeqgenError(f"the text contains no token of {loaded.stored.name}: nothing to score")
    scored = in_order(score_as(scoring, loaded, corpus))
    if documents == "line":
        line = scored.documents
    else:
        line = lines_of_tokens(loaded.tokenizer, whole, scored.tokens)
    count = len(list(lines([whole])))
    of_unknowns = line[unknowns.places].astype(np.int64)
    oov_bytes = np.bincount(of_unknowns, unknowns.sizes, minlength=count)
    totals = replace(
        add_up([scored], loaded.tokenizer),
        characters=len(whole),
        bytes=len(whole.encode()),
        oov_bytes=unknowns.bytes,
    )
    nats = np.bincount(line, -scored.log_probs, minlength=count)
    return LineBits(bits_of_text(nats, oov_bytes), totals)


def whole_of(text: str | Pairs) -> str:
    """Return the text that is scored: the targets of pairs, as lines; else the text itself."""
    return "".join(text.targets()) if isinstance(text, Pairs) else text


@dataclass(frozen=True, repr=False)
class Comparison(ShortRepr):
    """One model's row in a comparison: the keys of `seqgen compare --json`, in order.

    Attributes:
        model: its name.
        architecture: None for a mixture.
        parameters: how many numbers it has.
        tokens: how many it cuts the text into.
        characters: of the text.
        bytes: of the text.
        bits_per_char: as `seqgen perplexity` has it.
        bits_per_byte: as `seqgen perplexity` has it; what models are compared by.
        oov: how many tokens it does not know.
        oov_bits_per_byte: the part of `bits_per_byte` that is 8 bits for each byte of these.
        total_bits_per_byte: another name of `bits_per_byte`.
        low: the 95 % interval of `bits_per_byte`, from here ...
        high: ... to here; None where the text is one block, or has a token of probability 0.
        best: the model with the least `bits_per_byte`.
        difference: of `bits_per_byte`, to the best.
        difference_low: the 95 % interval of `difference`, from here ...
        difference_high: ... to here; None for the best, and where `high` is None.
        p_value: that there is no difference to the best, by paired bootstrap; None for the best.
        seconds: of training.
        tokens_per_second: in training.
        size_bytes: on disk, checkpoints left out.
        protocol: how the text was scored.
        precision: the type that it computed in.
        signature: how the figures were made.
    """

    model: str = column("model")
    architecture: str | None
    parameters: int = column("parameters", "short_count")
    tokens: int
    characters: int
    bytes: int
    bits_per_char: float = column("bits/char", "figure")
    bits_per_byte: float = column("bits/byte", "figure")
    oov: int
    oov_bits_per_byte: float = column("unknowns", "figure")
    total_bits_per_byte: float
    low: float | None = column("95 %")
    high: float | None
    best: str
    difference: float
    difference_low: float | None
    difference_high: float | None
    p_value: float | None = column("p")
    seconds: float | None = column("training", "duration")
    tokens_per_second: float | None = column("tokens/s", "count")
    size_bytes: int = column("size", "byte_size")
    protocol: str
    precision: str
    signature: str


@dataclass(frozen=True, repr=False)
class PairComparison(Comparison):
    """One translation model's row in a comparison; tokens and bytes are the targets'.

    Attributes:
        perplexity: per token of the targets, given their sources.
        bleu: of translations, as `paired_records` has it; None where they were not asked for.
        cut: how many translations reached the greatest length; None likewise.
        max_tokens: that length; None likewise.
    """

    perplexity: float | None = column("perplexity", "figure")
    bleu: dict[str, Any] | None
    cut: int | None
    max_tokens: int | None


# The keys of a comparison that the totals of a text have.
OF_TOTALS = (
    *("tokens", "characters", "bytes", "bits_per_char", "bits_per_byte"),
    *("oov", "oov_bits_per_byte", "total_bits_per_byte"),
)


def common_text(models: Sequence[LoadedModel]) -> str:
    """Open the held-out text that all models share.

    Two tokenizers may cut the same stream a word apart: where every held-out text ends with the
    shortest one, that one is held out by all.

    Raises:
        SeqgenError: they hold out different texts; says which.
    """
    texts = [held_out_text(loaded) for loaded in models]
    shortest = min(texts, key=len)
    for loaded, text in zip(models, texts, strict=True):
        if not text.endswith(shortest) or not shortest:
            other = models[texts.index(shortest)].stored.name
            digests = [shorten_hash(digest_of(t)) for t in (shortest, text)]
            raise SeqgenError(
                f"{other} and {loaded.stored.name} hold out different texts ({digests[0]} and "
                f"{digests[1]}), so that their figures cannot be compared: give a text that none "
                "was trained on (compare --data FILE, perplexity FILE, eval FILE)"
            )
    return shortest


def share_held_out_text(models: Sequence[LoadedModel]) -> bool:
    """Check whether all models hold out the same file, byte for byte, and all of it."""
    paths = [loaded.stored.validation_text for loaded in models]
    if None in paths or any(loaded.stored.scored_from for loaded in models):
        return False
    return len({hashlib.sha256(path.read_bytes()).digest() for path in paths}) == 1


def as_read(loaded: LoadedModel, text: str | Pairs) -> str | Pairs:
    """Convert the newlines of a text as the model reads them; pairs have been read as lines."""
    return text if isinstance(text, Pairs) else loaded.with_newlines(text)


def newlines_warning(models: Sequence[LoadedModel], text: str | Pairs) -> str | None:
    """Write a warning if only some models read CRLF as LF, and so count fewer bytes."""
    if isinstance(text, Pairs):
        return None
    shorter = [m.stored.name for m in models if as_read(m, text) != text]
    if not 0 < len(shorter) < len(models):
        return None
    ends = plural(text.count("\r\n"), "carriage return")
    return f"{' and '.join(shorter)} read the text without its {ends}, the others with them"


def trained_on(loaded: LoadedModel, text: str | Pairs) -> bool:
    """Check whether a text, or pairs, are exactly a model's training data."""
    data = record_of(loaded).get("data") or {}
    return data.get("sha256") == digest_of(as_read(loaded, text))


def digest_of(text: str | Pairs) -> str:
    """Compute the SHA-256 of a text; of pairs, as tab-separated lines."""
    if isinstance(text, Pairs):
        return text.survey().sha256
    return hashlib.sha256(text.encode()).hexdigest()


def record_of(loaded: LoadedModel) -> dict:
    """Read a model's `training.json`; empty for a mixture or where it is missing."""
    try:
        return {} if loaded.architecture is None else loaded.stored.record
    except SeqgenError:
        return {}


def compare(
    models: Sequence[LoadedModel],
    text: str | Pairs,
    *,
    scoring: Scoring | None = None,
    translating: Translating | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    part: str | None = None,
) -> list[Comparison]:
    """Score one text under several models; return their rows in the order given.

    Args:
        models: at least one, with whatever tokens; all of text, or all of pairs.
        text: not empty; every model reads it as it does its own, with CRLF or LF; pairs for
            models that read them.
        scoring: how; by default, each model in the way it was trained.
        translating: how sources are translated; None for no translations.
        seed: of the resampling.
        resamples: of the text's blocks, the same for all models.
        part: which part of a held-out text it is, for the protocol; None for the whole.

    Raises:
        UsageError: two models have one name, or the stride does not suit a window; or a model
            of pairs is given a text, or the other way round.
        SeqgenError: the text is empty, or holds no token of some model.
    """
    check_kinds(models, text)
    translates = models[0].conditioning.is_source
    if not whole_of(text):
        raise SeqgenError("the text is empty: there is nothing to score")
    each = [for_model(loaded, scoring) for loaded in models]
    texts = [as_read(loaded, text) for loaded in models]
    scores = [score_each_line(*one) for one in zip(models, texts, each, strict=True)]
    ranked = rank(models, scores, list(map(whole_of, texts)), seed, resamples)
    records = [
        _size_and_time(loaded)
        | figures
        | {
            "protocol": protocol(loaded, scoring, part=part),
            "precision": loaded.precision,
            "signature": scoring_signature(
                "compare", loaded, scoring, digest_of(scored_text), bootstrap=resamples, seed=seed
            ),
        }
        for loaded, scored_text, scoring, figures in zip(models, texts, each, ranked, strict=True)
    ]
    if not translates:
        return [Comparison(**record) for record in records]
    translations = _translations(models, text, translating, seed, resamples)
    return [
        PairComparison(**record, perplexity=score.totals.perplexity, **figures)
        for record, score, figures in zip(records, scores, translations, strict=True)
    ]


def check_kinds(models: Sequence[LoadedModel], text: str | Pairs) -> None:
    """Refuse a model given twice, and a mix of text models and translation models.

    Raises:
        UsageError: says which.
    """
    if len({loaded.name for loaded in models}) < len(models):
        raise UsageError("a model is given twice")
    for loaded in models:
        if not isinstance(text, Pairs):
            loaded.conditioning.require_nothing("a text")
        elif not loaded.conditioning.in_pairs:
            raise UsageError(f"{loaded.stored.name} reads text, and cannot be compared on pairs")


def _size_and_time(loaded: LoadedModel) -> dict[str, Any]:
    """Collect a model's size and training time for a comparison."""
    result = record_of(loaded).get("result") or {}
    return {
        "model": loaded.name,
        "architecture": loaded.architecture,
        "parameters": loaded.model.parameter_count(),
        "seconds": result.get("seconds"),
        "tokens_per_second": result.get("tokens_per_second"),
        "size_bytes": loaded.stored.size,
    }


def rank(
    models: Sequence[LoadedModel],
    scores: Sequence[LineBits],
    texts: Sequence[str],
    seed: int,
    resamples: int,
) -> list[dict[str, Any]]:
    """Add intervals, and p-values against the best model, to the models' bits per byte.

    Args:
        models: M of them.
        scores: the lines of one text under each.
        texts: that text as each model reads it; not empty.
        seed: of the resampling.
        resamples: of the text's blocks, the same for all models.
    """
    # (L, M), the bytes of each line, its end included
    sizes = np.array([[len(line.encode()) for line in lines([text])] for text in texts]).T
    bits = np.stack([score.bits for score in scores], axis=1)  # (L, M)
    totals = np.array([score.totals.bits_per_byte for score in scores])
    best = int(totals.argmin())
    samples = _bootstrap(bits, sizes, seed, resamples)
    ranked = []
    for i, score in enumerate(scores):
        interval = of_difference = None, None
        p = None
        if samples is not None and math.isfinite(totals[i]):
            interval = percentile_interval(samples[:, i])
            if i != best:
                differences = samples[:, i] - samples[:, best]
                of_difference, p = percentile_interval(differences), p_value(differences)
        ranked.append(
            {name: getattr(score.totals, name) for name in OF_TOTALS}
            | {
                "low": interval[0],
                "high": interval[1],
                "best": models[best].name,
                "difference": float(totals[i]) - float(totals[best]),
                "difference_low": of_difference[0],
                "difference_high": of_difference[1],
                "p_value": p,
            }
        )
    return ranked


def _translations(
    models: Sequence[LoadedModel],
    pairs: Pairs,
    translating: Translating | None,
    seed: int,
    resamples: int,
) -> list[dict[str, Any]]:
    """Translate and score pairs by each model: `bleu`, `cut` and `max_tokens`."""
    if translating is None:
        return [{"bleu": None, "cut": None, "max_tokens": None}] * len(models)
    written = [
        translate(loaded, pairs, translating.with_length_limit(loaded, pairs).search)
        for loaded in models
    ]
    scored = paired_records(written, translating.metrics[0], resamples, seed)
    return [
        {"bleu": record, "cut": translations.cut, "max_tokens": translations.max_tokens}
        for record, translations in zip(scored, written, strict=True)
    ]


def _bootstrap(bits: np.ndarray, sizes: np.ndarray, seed: int, resamples: int) -> np.ndarray | None:
    """Draw bootstrap samples (R, M) of bits per byte; None for a text of one block.

    Args:
        bits: (L, M), the bits of each line under each model.
        sizes: (L, M), the bytes of each line as each model reads it.
        seed: of the draws.
        resamples: R.
    """
    blocks = group_into_blocks(sizes.max(1))
    count = int(blocks.max()) + 1
    if count < 2:
        return None
    totals = np.zeros((count, bits.shape[1]))
    # A model with a token of probability 0 has no interval; its column must not become nan.
    np.add.at(totals, blocks, np.where(np.isfinite(bits), bits, 0))
    bytes_of = np.zeros((count, bits.shape[1]))
    np.add.at(bytes_of, blocks, sizes)
    return resampled_ratios(totals, bytes_of, seed, resamples)


def all_models() -> Iterator[str]:
    """Yield the names of all stored language models, the newest last."""
    yield from (one.name for one in reversed(store.list_models()) if is_language_model(one))
