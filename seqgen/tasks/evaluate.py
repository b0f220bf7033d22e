"""Everything that can be measured of a trained model, on its held-out part or a given text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seqgen.data.text import Text, unix_newlines
from seqgen.data.tokenfile import is_token_file, open_token_file
from seqgen.errors import SeqgenError
from seqgen.metrics.bleu import BleuOptions, corpus_score
from seqgen.metrics.diversity import diversity
from seqgen.tasks.continuations import Passage, Protocol, find_passages, go_on
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.pairs import Pair, score_pairs
from seqgen.tasks.perplexity import Scoring, perplexity, scoring_signature

BOOTSTRAP = 1000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to measure.

    Attributes:
        perplexity: score the text.
        bleu: continue passages of the text, and compare with how they really go on.
        diversity: how varied these continuations are, and the real ones.
        pairs: pairs of texts by the name of their file.
        scoring: how text is scored.
        protocol: how passages are continued.
    """

    perplexity: bool = True
    bleu: bool = True
    diversity: bool = True
    pairs: Mapping[str, Sequence[Pair]] = field(default_factory=dict)
    scoring: Scoring = field(default_factory=Scoring)
    protocol: Protocol = field(default_factory=Protocol)

    @property
    def needs_text(self) -> bool:
        """Whether there must be a text."""
        return self.perplexity or self.bleu or self.diversity


@dataclass(frozen=True)
class Evaluation:
    """The keys of `seqgen eval --json`, in order; what was not measured is None.

    Attributes:
        model: its name.
        architecture: None for a mixture.
        parameters: how many numbers it has.
        file: the text.
        perplexity: the keys of `seqgen perplexity`.
        bleu: see `continuation_bleu`.
        diversity: of the model's continuations, the real ones (`text`), and a signature.
        pairs: the keys of `PairScore`, a record a group.
    """

    model: str
    architecture: str | None
    parameters: int
    file: str | None
    perplexity: dict[str, Any] | None
    bleu: dict[str, Any] | None
    diversity: dict[str, Any] | None
    pairs: list[dict[str, Any]] | None


def evaluate(loaded: LoadedModel, text: str | None, file: str | None, wanted: Wanted) -> Evaluation:
    """Measure what is wanted of a model.

    Args:
        loaded: the model.
        text: what to score and to continue; its held-out part if None and one is needed.
        file: what to call the text.
        wanted: what to measure.

    Raises:
        SeqgenError: there is no text, or none that can be continued.
    """
    if text is None and wanted.needs_text:
        text, file = held_out_text(loaded), "validation"
    elif text is not None and loaded.data.newlines == "lf":
        text = "".join(unix_newlines([text]))
    score = bleu = varied = None
    if wanted.perplexity:
        score = asdict(perplexity(loaded, [text], file=file, scoring=wanted.scoring))
    if wanted.bleu or wanted.diversity:
        scoring = wanted.scoring.check(loaded)
        passages = find_passages(text, scoring.documents, wanted.protocol)
        written = go_on(loaded, passages, wanted.protocol)
        digest = hashlib.sha256(text.encode()).hexdigest()
        how = {"protocol": wanted.protocol, "seed": wanted.protocol.seed}
        signature = scoring_signature("continuations", loaded, scoring, digest, **how)
        if wanted.bleu:
            bleu = continuation_bleu(passages, written) | {"signature": signature}
        if wanted.diversity:
            varied = _diversity(passages, written) | {"signature": signature}
    pairs = [
        asdict(found)
        for name, own in wanted.pairs.items()
        for found in score_pairs(loaded, own, name, wanted.scoring)
    ]
    return Evaluation(
        model=loaded.stored.name,
        architecture=loaded.architecture,
        parameters=loaded.model.parameter_count(),
        file=file,
        perplexity=score,
        bleu=bleu,
        diversity=varied,
        pairs=pairs or None,
    )


def held_out_text(loaded: LoadedModel) -> str:
    """Return a model's held-out text.

    Raises:
        SeqgenError: it has none, or only tokens that do not tell the text.
    """
    path = loaded.stored.validation_text
    if path is None:
        raise SeqgenError(f"{loaded.stored.name} has no held-out text; give a FILE")
    if not is_token_file(path):
        return "".join(Text((path,)).chunks())
    file = open_token_file(path)
    if not file.tells_text:
        raise SeqgenError(
            f"{loaded.stored.name} holds out a token file, whose text is lost; give a FILE"
        )
    return "".join(file.text())


def continuation_bleu(passages: Sequence[Passage], written: Sequence[str]) -> dict[str, Any]:
    """Return the BLEU of continuations against the real ones.

    Returns:
        `score`; the 95 % interval's `mean` and half-width, `interval`; `text_score`, what the
        text itself gets where the next passage's real continuation stands for each one's own
        (None for one passage); the number of `passages`; and sacreBLEU's `bleu_signature`.
    """
    # Lines of a word or two have no 4-grams; longer texts score the same either way.
    options = BleuOptions(effective_order=True)
    real = [_plain(passage.rest) for passage in passages]
    plain = [_plain(text) for text in written]
    found = corpus_score(plain, [real], options, bootstrap=BOOTSTRAP)
    shifted = real[1:] + real[:1]
    other = corpus_score(shifted, [real], options).score if len(real) > 1 else None
    return {
        "score": found.score,
        "mean": found.mean,
        "interval": found.interval,
        "text_score": other,
        "passages": len(passages),
        "bleu_signature": found.signature,
    }


def _diversity(passages: Sequence[Passage], written: Sequence[str]) -> dict[str, Any]:
    real = [passage.rest for passage in passages]
    return {"model": asdict(diversity(written)), "text": asdict(diversity(real))}


def _plain(text: str) -> str:
    """Return a text on one line: BLEU knows words alone."""
    return " ".join(text.split())
