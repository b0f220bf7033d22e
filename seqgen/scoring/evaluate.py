"""`seqgen eval`: all measurements of a model on its held-out part or a given text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.passages import ContinuationProtocol, continue_passages, find_passages
from seqgen.metrics.bleu import corpus_score
from seqgen.metrics.diversity import diversity
from seqgen.scoring.perplexity import (
    for_model,
    last_held_out,
    open_held_out,
    perplexity,
    scoring_signature,
)
from seqgen.scoring.translations import Translating, translate, translation_record
from seqgen.settings.scoring import BleuOptions, FileMeasure, Scoring, TextMeasure
from seqgen.text.pairs import Pairs
from seqgen.text.tokenfile import TokenFile
from seqgen.wording import ShortRepr

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.store.loaded import LoadedModel

BOOTSTRAP = 1000
# A part of a stream begins after a line if one ends within this share of it or so many characters.
NEAR, NEAR_CHARACTERS = 0.125, 1000


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Options of `seqgen eval`: which measurements to take of a model.

    Attributes:
        perplexity: score the text.
        bleu: continue passages of the text, and compare with how they really go on; or translate
            the sources of pairs, and compare with their targets.
        diversity: how varied these continuations or translations are, and the real ones.
        scoring: how text is scored.
        protocol: how passages are continued.
        translating: how sources are translated, and their translations scored.
        added: further measures of these continuations, asked for or not.
        of_files: measures of files of their own, each with what it has read; None if not asked for.
        lenient: leave out what cannot be had, as long as something can.
    """

    perplexity: bool = True
    bleu: bool = True
    diversity: bool = True
    scoring: Scoring = field(default_factory=Scoring)
    protocol: ContinuationProtocol = field(default_factory=ContinuationProtocol)
    translating: Translating = field(default_factory=Translating)
    added: Sequence[TextMeasure] = ()
    of_files: Sequence[tuple[FileMeasure, Any]] = ()
    lenient: bool = False

    @property
    def needs_text(self) -> bool:
        """Whether a text is needed."""
        return self.perplexity or self.writes

    @property
    def writes(self) -> bool:
        """Whether the model must generate text."""
        return self.bleu or self.diversity or any(one.is_asked for one in self.added)


@dataclass(frozen=True, repr=False)
class Evaluation(ShortRepr):
    """Result of `seqgen eval`: the keys of its JSON, in order; None if not measured.

    Attributes:
        model: its name.
        architecture: None for a mixture.
        parameters: how many numbers it has.
        file: the text.
        perplexity: the keys of `seqgen perplexity`.
        bleu: see `continuation_bleu`; of pairs, where BLEU is one of the metrics, the same keys.
        diversity: of what the model wrote, of the real texts (`text`), and a signature.
        added: further measures: of what the model wrote and of the real texts, the figures; of
            files of their own, the records.
        missing: what could not be had of all that applies, and why.
    """

    model: str
    architecture: str | None
    parameters: int
    file: str | None
    perplexity: dict[str, Any] | None
    bleu: dict[str, Any] | None
    diversity: dict[str, Any] | None
    added: dict[str, dict[str, Any] | list[dict[str, Any]] | None]
    missing: dict[str, str]

    def record(self) -> dict[str, Any]:
        """Make the JSON record, with the plugins' measurements included."""
        record: dict[str, Any] = {}
        for key, value in asdict(self).items():
            record |= value if key == "added" else {key: value}
        return record


@dataclass(frozen=True, repr=False)
class PairEvaluation(Evaluation):
    """Result of `seqgen eval` for a translation model.

    Attributes:
        translations: see `translation_record`; and a signature.
    """

    translations: dict[str, Any] | None


def evaluate(
    loaded: LoadedModel,
    text: str | TokenFile | Pairs | None,
    file: str | None,
    to_measure: Measurements,
) -> Evaluation:
    """Measure a model on a text, or on its held-out part.

    Args:
        loaded: the model.
        text: what to score and to continue, or the pairs to score and to translate; its held-out
            part if None and one is needed.
        file: what to call the text.
        to_measure: the figures to find.

    Raises:
        UsageError: a model of text is given pairs, or a model of pairs a text.
        SeqgenError: there is no text, or none that can be continued; or of all that applies
            (`to_measure.lenient`) nothing can be had.
    """
    given = text is not None
    text, file = _read(loaded, text, file, to_measure)
    score, figures_of_texts, missing = None, {}, {}

    def attempt(what: str, measure: Callable[[], Any]) -> Any | None:
        """Take a measure; note why and return None if it fails and may be left out."""
        try:
            return measure()
        except SeqgenError as error:
            if not to_measure.lenient or isinstance(error, UsageError):
                raise
            missing[what] = str(error)

    if to_measure.perplexity:
        scored = [text] if isinstance(text, str) else text
        about = {"file": file, "scoring": to_measure.scoring}
        if not given and isinstance(text, str) and loaded.stored.scored_from:
            about["part"] = last_held_out(len(text))
        score = attempt("perplexity", lambda: asdict(perplexity(loaded, scored, **about)))
    if to_measure.writes:
        what, write = "continuations", _continue
        if loaded.conditioning.is_source:
            what, write = "translations", _translate
        figures_of_texts = attempt(what, lambda: write(loaded, text, to_measure)) or {}
    if to_measure.lenient and score is None and not figures_of_texts:
        raise SeqgenError(next(iter(missing.values())))
    added = {
        one.key: one.measure(loaded, content, to_measure.scoring) if one.is_asked else None
        for one, content in to_measure.of_files
    }
    evaluation = Evaluation(
        model=loaded.stored.name,
        architecture=loaded.architecture,
        parameters=loaded.model.parameter_count(),
        file=file,
        perplexity=score,
        bleu=figures_of_texts.get("bleu"),
        diversity=figures_of_texts.get("diversity"),
        added=added | {one.key: figures_of_texts.get(one.key) for one in to_measure.added},
        missing=missing,
    )
    if not loaded.conditioning.is_source:
        return evaluation
    return PairEvaluation(**vars(evaluation), translations=figures_of_texts.get("translations"))


def _read(
    loaded: LoadedModel,
    text: str | TokenFile | Pairs | None,
    file: str | None,
    to_measure: Measurements,
) -> tuple[str | TokenFile | Pairs | None, str | None]:
    """Choose the text or pairs to measure on, and their name; see `evaluate`."""
    for flag in (flag for one, _ in to_measure.of_files for flag in one.given):
        loaded.conditioning.require_nothing(flag)
    if text is None and to_measure.needs_text:
        return held_out(loaded), "validation"
    if isinstance(text, Pairs) != loaded.conditioning.in_pairs and text is not None:
        reads = "pairs" if loaded.conditioning.in_pairs else "text"
        raise UsageError(f"{loaded.stored.name} is measured on {reads}: give that")
    return loaded.with_newlines(text) if isinstance(text, str) else text, file


def _continue(
    loaded: LoadedModel, text: str | TokenFile, to_measure: Measurements
) -> dict[str, Any]:
    """Compute `bleu` and `diversity` of a model's continuations, as requested."""
    if isinstance(text, TokenFile):
        raise _lost(text)
    if loaded.labels is not None:
        raise SeqgenError(f"{loaded.stored.name} writes from labels: nothing is continued")
    if loaded.backward:
        raise SeqgenError(f"{loaded.stored.name} writes from right to left: nothing is continued")
    scoring = for_model(loaded, to_measure.scoring)
    passages = find_passages(text, scoring.documents, to_measure.protocol)
    continuations = continue_passages(loaded, passages, to_measure.protocol)
    real = [one.rest for one in passages]
    figures: dict[str, Any] = {}
    if to_measure.bleu:
        figures["bleu"] = continuation_bleu(real, continuations)
    if to_measure.diversity:
        figures["diversity"] = _diversity(real, continuations)
    for measure in to_measure.added:
        if measure.is_asked:
            figures[measure.key] = measure.measure(loaded, real, continuations)
    digest = hashlib.sha256(text.encode()).hexdigest()
    protocol = to_measure.protocol
    signature = scoring_signature(
        "continuations", loaded, scoring, digest, protocol=protocol, seed=protocol.seed
    )
    return {name: {**figure, "signature": signature} for name, figure in figures.items()}


def _translate(loaded: LoadedModel, pairs: Pairs, to_measure: Measurements) -> dict[str, Any]:
    """Compute `bleu`, `diversity` and all translation scores of a model's translations."""
    scoring = for_model(loaded, to_measure.scoring)
    translating = to_measure.translating.with_length_limit(loaded, pairs)
    translations = translate(loaded, pairs, translating.search)
    figures: dict[str, Any] = {}
    if to_measure.bleu:
        record = figures["translations"] = translation_record(translations, translating)
        bleu = next((metric for metric in record["metrics"] if metric["metric"] == "BLEU"), None)
        if bleu is not None:
            figures["bleu"] = _as_of_text(bleu, record["pairs"])
    if to_measure.diversity:
        figures["diversity"] = _diversity(translations.targets, translations.texts)
    digest = pairs.survey().sha256
    signature = scoring_signature("translations", loaded, scoring, digest, search=translating)
    return {name: {**figure, "signature": signature} for name, figure in figures.items()}


def _as_of_text(bleu: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Rename the BLEU record of translations to the keys used for continuations."""
    return {
        "score": bleu["score"],
        "mean": bleu.get("confidence_mean"),
        "interval": bleu.get("confidence_interval"),
        "text_score": None,
        "passages": pairs,
        "bleu_signature": bleu["signature"],
    }


def held_out(loaded: LoadedModel, whole: bool = False) -> str | TokenFile | Pairs:
    """Read a model's held-out part: pairs, a text, or a token file; see `open_held_out`.

    Raises:
        SeqgenError: it holds out nothing.
    """
    part = open_held_out(loaded, whole)
    if isinstance(part, TokenFile):
        return "".join(part.text()) if part.tells_text else part
    return part if isinstance(part, Pairs) else "".join(part)


def held_out_text(loaded: LoadedModel, whole: bool = False) -> str:
    """Read a model's held-out text; see `open_held_out`.

    Raises:
        SeqgenError: it has none, or only tokens from which the text cannot be restored.
    """
    text = held_out(loaded, whole)
    if isinstance(text, TokenFile):
        raise _lost(text, f"{loaded.stored.name} holds out")
    return text


def begin_of_part(text: str, share: float, documents: Documents) -> int:
    """Return where the last `share` of a text begins: after a line, of a stream if one is near."""
    size = int(share * len(text))
    place = len(text) - size
    if place <= 0:
        return 0
    begin = text.find("\n", place - 1, len(text) - 1) + 1 or text.rfind("\n", 0, place) + 1
    far = documents == "stream" and abs(begin - place) > max(NEAR * size, NEAR_CHARACTERS)
    return place if far or not begin else begin


def _lost(file: TokenFile, what: str | None = None) -> SeqgenError:
    lost = "examples" if file.is_examples else "tokens whose text is lost (unknowns or white space)"
    return SeqgenError(f"{what or f'{file.path} has'} {lost}; give a FILE of text")


def continuation_bleu(real: Sequence[str], written: Sequence[str]) -> dict[str, Any]:
    """Compute the BLEU of generated continuations against the real ones.

    Returns:
        `score`; the 95 % interval's `mean` and half-width, `interval`; `text_score`, what the
        text itself gets where the next passage's real continuation stands for each one's own
        (None for one passage); the number of `passages`; and sacreBLEU's `bleu_signature`.
    """
    # Lines of a word or two have no 4-grams; longer texts score the same either way.
    options = BleuOptions(effective_order=True)
    real, written = (list(map(_collapse_spaces, texts)) for texts in (real, written))
    score = corpus_score(written, [real], options, bootstrap=BOOTSTRAP)
    other = corpus_score(real[1:] + real[:1], [real], options).score if len(real) > 1 else None
    return {
        "score": score.score,
        "mean": score.mean,
        "interval": score.interval,
        "text_score": other,
        "passages": len(real),
        "bleu_signature": score.signature,
    }


def _diversity(real: Sequence[str], written: Sequence[str]) -> dict[str, Any]:
    return {"model": asdict(diversity(written)), "text": asdict(diversity(real))}


def _collapse_spaces(text: str) -> str:
    """Collapse white space, line breaks included, to single spaces, for BLEU."""
    return " ".join(text.split())
