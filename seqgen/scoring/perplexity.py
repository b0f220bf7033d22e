"""Perplexity of a text under a model: totals, signatures and the records of the command."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.files import input_title
from seqgen.metrics.bootstrap import figure_signature, shorten_hash
from seqgen.metrics.perplexity import OOV_BITS, ScoreTotals
from seqgen.models.distributions import require_numbers
from seqgen.scoring.loop import Scored, add_up, score_corpus
from seqgen.settings import Documents, require
from seqgen.settings.scoring import Scoring
from seqgen.text.corpus import Corpus, Unknowns
from seqgen.text.framing import Framing
from seqgen.text.pairs import Pairs, open_pairs
from seqgen.text.reading import Survey, Surveyor, Text, WordMeter
from seqgen.text.tokenfile import TokenFile, check_tokenizer, is_token_file, open_token_file
from seqgen.wording import ShortRepr, column, plural

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Sources


def for_model(loaded: LoadedModel, scoring: Scoring | None = None) -> Scoring:
    """Resolve scoring options for one model, such as its document mode.

    Raises:
        UsageError: the stride does not suit its window, or the model cannot learn so.
    """
    scoring = scoring or Scoring()
    if loaded.conditioning.in_pairs:
        name, each = loaded.stored.name, loaded.conditioning.noun
        fits = scoring.documents != "stream"
        require(fits, f"--documents stream has no meaning: {name} scores {each}, one by one")
    window, stride = loaded.model.window, scoring.stride
    fits = stride is None or window is None or stride <= window
    most = f"from 1 to {window}, the window of {loaded.stored.name}"
    require(fits, f"--stride must be {most}, not {stride}")
    documents = scoring.documents or loaded.data.documents
    lines = documents == "line" or loaded.conditioning.in_pairs
    require(lines or not scoring.no_end, "--no-end goes with --documents line or --per-line")
    if (adaptation := scoring.adaptation) is not None:
        adaptation.check_model(loaded, documents)
    return replace(scoring, documents=documents)


def warning_of(loaded: LoadedModel, scoring: Scoring) -> str | None:
    """Write a warning about scoring options that differ from the model's training, if any."""
    if scoring.documents != "stream" or loaded.data.documents != "line":
        return None
    return (
        f"{loaded.stored.name} was trained on single lines and has never seen a newline: "
        "--documents stream scores every \\n as something it has not learned"
    )


@dataclass(frozen=True, repr=False)
class Perplexity(ShortRepr):
    """Result of `seqgen perplexity`: the keys of its JSON, in order."""

    file: str | None = column("file")
    model: str = column("model")
    tokens: int = column("tokens", "count")
    characters: int
    bytes: int
    nll_nats: float
    perplexity: float | None = column("perplexity", "figure")
    perplexity_without_oov: float | None
    bits_per_token: float | None
    bits_per_char: float | None = column("bits/char", "figure")
    bits_per_byte: float | None = column("bits/byte", "figure")
    oov: int = column("oov", "count")
    accuracy: float | None = column("accuracy", "percentage")
    protocol: str
    top5_accuracy: float | None = column("top 5", "percentage", unless=None)
    nats_per_token: float | None = column("nats/token", "figure")
    words: int
    nats_per_word: float | None
    bits_per_word: float | None
    perplexity_per_word: float | None = column("per word", "figure")
    oov_bytes: float
    oov_bits_per_byte: float | None = column("unknowns", "figure", unless=0)
    total_bits_per_byte: float | None
    signature: str


@dataclass(frozen=True, repr=False)
class PairPerplexity(Perplexity):
    """Perplexity of targets given their sources; tokens and bytes are the targets'.

    Attributes:
        source_unknown: how many tokens of the sources the model does not know.
    """

    source_unknown: int


def perplexity(
    loaded: LoadedModel,
    text: Iterable[str] | TokenFile | Pairs,
    *,
    file: str | None = None,
    scoring: Scoring | None = None,
    part: str | None = None,
) -> Perplexity:
    """Score a text as in training, or with other scoring options.

    Args:
        loaded: the model.
        text: in pieces cut anywhere, or as a token file; pairs for a model that reads them.
        file: what to call the text in the record.
        scoring: how.
        part: which part of `file` the text is, for the protocol; None for the whole.

    Raises:
        SeqgenError: the text holds no token.
        UsageError: the stride does not suit the model's window; or the model reads pairs and the
            text is none, or the other way round.
    """
    scoring = for_model(loaded, scoring)
    if not isinstance(text, Pairs):
        loaded.conditioning.require_nothing("the perplexity of a text")
    totals, facts, unknown = totals_of(loaded, text, scoring)
    if totals.tokens == 0:
        name = input_title(file) if file else "the text"
        raise SeqgenError(f"{name} is empty: there is nothing to score")
    of_examples = isinstance(text, TokenFile) and text.is_examples
    about = {
        "file": file,
        "model": loaded.stored.name,
        "protocol": protocol(loaded, scoring, of_examples, part),
        "signature": scoring_signature("perplexity", loaded, scoring, facts.sha256),
    }
    if loaded.conditioning.is_source:
        return PairPerplexity(**about, **figures(totals), source_unknown=unknown)
    return Perplexity(**about, **figures(totals))


def figures(totals: ScoreTotals) -> dict[str, Any]:
    """Compute the keys of a `Perplexity` record that follow from totals."""
    names = (name for name in Perplexity.__dataclass_fields__ if hasattr(totals, name))
    return {name: getattr(totals, name) for name in names}


def totals_of(
    loaded: LoadedModel, text: Iterable[str] | TokenFile | Pairs, scoring: Scoring
) -> tuple[ScoreTotals, Survey, int]:
    """Compute the score totals of a text: every token once, each document from its start.

    Also return what the text is, and how many tokens of its sources the model does not know.

    Args:
        loaded: the model.
        text: as of `perplexity`.
        scoring: how, for this model.

    Raises:
        SeqgenError: the model gives what is no probability.
    """
    if isinstance(text, Pairs):
        totals, facts, unknown = _score_pairs(loaded, text, scoring)
    else:
        score = _score_token_file if isinstance(text, TokenFile) else _score_chunks
        (totals, facts), unknown = score(loaded, text, scoring), 0
    require_numbers(np.array([totals.nll_nats]))
    return totals, facts, unknown


def score_held_out(loaded: LoadedModel) -> ScoreTotals:
    """Compute the score totals of the held-out part that a model's figures are about."""
    return totals_of(loaded, open_held_out(loaded), for_model(loaded))[0]


def open_held_out(loaded: LoadedModel, whole: bool = False) -> Iterable[str] | TokenFile | Pairs:
    """Open a model's held-out part: pairs, a text in pieces, or a token file.

    Args:
        loaded: the model.
        whole: all of it; only what the model's figures are about otherwise.

    Raises:
        SeqgenError: it holds out nothing.
    """
    if loaded.conditioning.in_pairs:
        return held_out_pairs(loaded)
    path = loaded.stored.validation_text
    if path is None:
        raise SeqgenError(f"{loaded.stored.name} has no held-out text; give a text file")
    begin = 0 if whole else loaded.stored.scored_from
    if not is_token_file(path):
        return Text((path,)).chunks(begin)
    file = open_token_file(path)
    return ["".join(file.text())[begin:]] if begin and file.tells_text else file


def held_out_pairs(loaded: LoadedModel) -> Pairs:
    """Read the held-out pairs of a model.

    Raises:
        SeqgenError: it holds out none.
    """
    files = loaded.stored.validation_pairs
    if files is None:
        raise SeqgenError(f"{loaded.stored.name} has no held-out pairs; give a FILE")
    source, target = files
    return open_pairs((source,), (target,))


def last_held_out(characters: int) -> str:
    """Name the part of a held-out text that is scored: its last characters."""
    return f"the last {plural(characters, 'held-out character')}"


def _score_pairs(
    loaded: LoadedModel, pairs: Pairs, scoring: Scoring
) -> tuple[ScoreTotals, Survey, int]:
    """Compute the totals of targets given their sources, and their number of unknowns."""
    loaded.conditioning.check(pairs.source_features)
    sources = pairs.encoded_sources(loaded.source_tokenizer, None)
    by_line = replace(scoring, documents="line")
    totals, facts = _score_chunks(loaded, pairs.targets(), by_line, sources)
    return totals, replace(facts, sha256=pairs.survey().sha256), sources.oov


def _score_chunks(
    loaded: LoadedModel, chunks: Iterable[str], scoring: Scoring, sources: Sources | None = None
) -> tuple[ScoreTotals, Survey]:
    surveyor, words, unknowns = Surveyor(), WordMeter(), Unknowns(loaded.tokenizer)
    documents = scoring.documents
    corpus = loaded.encode(words.watch(surveyor.watch(chunks)), documents, unknowns)
    facts = surveyor.facts
    ends = facts.lines if documents == "line" else words.newlines
    totals = replace(
        _score(loaded, replace(corpus, sources=sources), facts, scoring, words.newlines),
        words=words.words + ends * (not scoring.no_end),
        oov_bytes=unknowns.bytes,
    )
    return totals, facts


def _score_token_file(
    loaded: LoadedModel, file: TokenFile, scoring: Scoring
) -> tuple[ScoreTotals, Survey]:
    """Compute the totals of a token file; see `check_token_file`."""
    require(not scoring.no_end, f"--no-end is for text, and {file.path} has tokens")
    adapts = "a model that changes while it is scored follows one continuous text"
    follows = scoring.adaptation is None or not file.is_examples
    require(follows, f"{adapts}, and {file.path} has examples")
    check_token_file(loaded, file, scoring.documents)
    corpus = file.corpus
    if not file.is_examples:
        corpus = replace(corpus, start=loaded.framing_of(scoring.documents).start)
    totals = _score(loaded, corpus, file.facts, scoring)
    if not file.tells_text:
        # What an unknown was is not in the file, nor therefore how many words there were.
        return replace(totals, oov_bytes=math.nan if totals.oov else 0), file.facts
    words = WordMeter()
    for _ in words.watch(file.text()):
        pass
    return replace(totals, words=words.words + words.newlines), file.facts


def check_token_file(loaded: LoadedModel, file: TokenFile, documents: Documents) -> None:
    """Refuse a token file that was tokenized differently from the model's text.

    Raises:
        SeqgenError: its tokenizer is not the model's, or it was written the other way.
    """
    check_tokenizer(file, loaded.tokenizer, f"the model {loaded.stored.name}")
    if file.is_examples:
        return
    if file.documents != documents:
        raise SeqgenError(
            f"{file.path} was written with --documents {file.documents}, and is to be scored with "
            f"--documents {documents}: write it again, or give --documents {file.documents}"
        )
    if Framing.of(file.tokenizer, documents).end != loaded.framing_of(documents).end:
        raise SeqgenError(
            f"{file.path} ends its lines with EOS, which {loaded.stored.name}, a model of a "
            "stream, has not learned: give the text itself"
        )


def _score(
    loaded: LoadedModel, corpus: Corpus, facts: Survey, scoring: Scoring, newlines: int = 0
) -> ScoreTotals:
    scored = score_as(scoring, loaded, corpus)
    if scoring.no_end:
        scored = (piece.take(piece.tokens != corpus.end) for piece in scored)
    left_out = newlines if scoring.no_end else 0
    sizes = {"characters": facts.characters - left_out, "bytes": facts.bytes - left_out}
    return replace(add_up(scored, loaded.tokenizer), **sizes)


def score_as(scoring: Scoring, loaded: LoadedModel, corpus: Corpus) -> Iterator[Scored]:
    """Score a corpus with scoring options; see `score_corpus`."""
    if (adaptation := scoring.adaptation) is not None:
        return adaptation.score(loaded, corpus, scoring.want)
    return score_corpus(
        loaded.model,
        corpus,
        scoring.batch_size,
        scoring.stride,
        scoring.want,
        loaded.data.direction,
    )


def protocol(
    loaded: LoadedModel, scoring: Scoring, of_examples: bool = False, part: str | None = None
) -> str:
    """Describe the scoring options in one string.

    Args:
        loaded: the model.
        scoring: how, for this model.
        of_examples: the text is examples, of which only marked tokens count.
        part: which part of a held-out text is scored; None for the whole.
    """
    end = "newline" if loaded.framing.stop is None else "EOS"
    end += " not scored" if scoring.no_end else " scored"
    line = scoring.documents == "line"
    newline = loaded.framing_of("stream").start == loaded.tokenizer.newline_id
    start = "a newline" if newline else "BOS"
    way = f"each line alone, {end}" if line else f"one stream after {start}"
    if loaded.conditioning.each is not None:
        way = f"each {loaded.conditioning.each}, {end}"
    if of_examples:
        way = f"each example alone, {loaded.data.loss_on or 'answers'} scored"
    parts = [
        f"{way}, from right to left" if loaded.backward else way,
        f"{loaded.tokenizer.kind} tokens",
        *dict.fromkeys(said for part in loaded.model.parts for said in part.protocol),
        "unknowns scored as <unk>",
    ]
    if loaded.model.window is not None:
        parts.append("window {}, stride {}".format(*_window(loaded, scoring)))
    if loaded.precision not in ("float32", "float64"):
        parts.append(f"products in {loaded.precision}")
    if (cache := loaded.cache) is not None:
        parts.append(
            f"cache of {cache.size:,} positions, strength {cache.strength:g}, flatness "
            f"{cache.flatness:g}"
        )
    if (adaptation := scoring.adaptation) is not None:
        parts.append(adaptation.describe(loaded))
    return "; ".join([*parts, *filter(None, [part])])


def scoring_signature(
    number: str, loaded: LoadedModel, scoring: Scoring, data: str, **choices: Any
) -> str:
    """Make the reproducibility signature of a score.

    Args:
        number: what was measured.
        loaded: the model.
        scoring: how, for this model.
        data: the SHA-256 of the text.
        choices: what else was chosen, by its name in the signature.
    """
    windowed = loaded.model.window is not None
    if (cache := loaded.cache) is not None:
        choices = {"cache": f"{cache.size}/{cache.strength:g}/{cache.flatness:g}", **choices}
    if (adaptation := scoring.adaptation) is not None:
        choices = {**adaptation.signature(loaded), **choices}
    if scoring.no_end:
        choices = {"ends": "unscored", **choices}
    return figure_signature(
        number,
        model=shorten_hash(loaded.stored.digest),
        data=shorten_hash(data),
        documents=loaded.conditioning.signature or scoring.documents,
        tokens=loaded.tokenizer.kind,
        unknowns=f"scored+{OOV_BITS}bits/byte",
        window="{}/{}".format(*_window(loaded, scoring)) if windowed else "none",
        precision=loaded.precision,
        **choices,
    )


def _window(loaded: LoadedModel, scoring: Scoring) -> tuple[int, int]:
    window = loaded.model.window
    if (adaptation := scoring.adaptation) is not None:
        return window, adaptation.segment(loaded)
    return window, max(1, window // 2) if scoring.stride is None else scoring.stride
