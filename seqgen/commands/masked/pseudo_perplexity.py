"""The pseudo-perplexity of a text under a masked model, which is not a perplexity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.masked.scores import pseudo_scores
from seqgen.configs import Documents
from seqgen.data.corpus import encode_corpus
from seqgen.data.text import Surveyor, lines
from seqgen.errors import SeqgenError
from seqgen.files import title_of
from seqgen.metrics.bootstrap import short, signature
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.scoring import add_up


@dataclass(frozen=True)
class PseudoPerplexity:
    """The keys of `seqgen perplexity --json` of a masked model, in order.

    None of them is a key of a language model's perplexity but for what they count.

    Attributes:
        file: what was scored.
        model: its name.
        tokens: of the text, ends of lines that are documents left out.
        characters: of the text.
        bytes: of the text.
        pseudo_nll_nats: minus the pseudo-log-likelihood: the sum over tokens of
            -log P(token | all others of its row).
        pseudo_nats_per_token: that for each token.
        pseudo_perplexity: its exponential.
        accuracy: how often the token was the most probable one.
        oov: how many tokens were unknown.
        protocol: how it was measured.
        signature: of the figure.
    """

    file: str | None
    model: str
    tokens: int
    characters: int
    bytes: int
    pseudo_nll_nats: float
    pseudo_nats_per_token: float | None
    pseudo_perplexity: float | None
    accuracy: float | None
    oov: int
    protocol: str
    signature: str


@dataclass(frozen=True)
class PseudoLine(PseudoPerplexity):
    """The same of a line alone.

    Attributes:
        line: its number, from 0.
        text: it, without its newline.
    """

    line: int
    text: str

    @property
    def pseudo_log_likelihood(self) -> float:
        """The sum over its tokens of log P(token | all others), in nats."""
        return 0.0 - self.pseudo_nll_nats  # and not -0.0 of an empty line


def pseudo_perplexity(
    loaded: LoadedModel,
    chunks: Iterable[str],
    *,
    file: str | None = None,
    documents: Documents | None = None,
) -> PseudoPerplexity:
    """Score a text: exp of minus the mean of log P(x_t | all other tokens) (Salazar et al. 2020).

    Args:
        loaded: a masked model.
        chunks: the text in pieces cut anywhere.
        file: what to call it in the record.
        documents: "line" scores each line alone, "stream" rows of as many tokens as the model was
            trained on; as it was trained if None.

    Raises:
        SeqgenError: the text holds no token.
    """
    documents, surveyor = documents or loaded.data.documents, Surveyor()
    totals = _score(loaded, surveyor.watch(chunks), documents)
    if totals.tokens == 0:
        name = title_of(file) if file else "the text"
        raise SeqgenError(f"{name} is empty: there is nothing to score")
    facts = surveyor.facts
    sizes = {"characters": facts.characters, "bytes": facts.bytes}
    return PseudoPerplexity(**_keys(loaded, file, totals, documents, facts.sha256), **sizes)


def pseudo_lines(
    loaded: LoadedModel, chunks: Iterable[str], *, file: str | None = None
) -> Iterator[PseudoLine]:
    """Score each line alone, as soon as it is read; an empty one has no tokens."""
    for number, line in enumerate(lines(chunks)):
        surveyor, text = Surveyor(), line.removesuffix("\n")
        totals = _score(loaded, surveyor.watch([line]), "line")
        keys = _keys(loaded, file, totals, "line", surveyor.facts.sha256)
        sizes = {"characters": len(line), "bytes": len(line.encode())}
        yield PseudoLine(**keys, **sizes, line=number, text=text)


def _score(loaded: LoadedModel, chunks: Iterable[str], documents: Documents) -> ScoreTotals:
    framing = loaded.framing_of(documents)
    corpus = encode_corpus(chunks, loaded.tokenizer, documents, framing=framing)
    if corpus.tokens.size == 0:
        return ScoreTotals()
    return add_up(pseudo_scores(loaded.model, corpus), loaded.tokenizer)


def _keys(
    loaded: LoadedModel, file: str | None, totals: ScoreTotals, documents: Documents, sha256: str
) -> dict[str, Any]:
    """Return what a record has besides the sizes of its text."""
    window = loaded.model.window
    way = "each line alone" if documents == "line" else f"one stream in rows of {window} tokens"
    made = signature(
        "pseudo-perplexity",
        model=short(loaded.stored.digest),
        data=short(sha256),
        documents=documents,
        tokens=loaded.tokenizer.kind,
        unknowns="scored",
        window=window,
        precision=loaded.precision,
    )
    return {
        "file": file,
        "model": loaded.stored.name,
        "tokens": totals.tokens,
        "pseudo_nll_nats": totals.nll_nats,
        "pseudo_nats_per_token": totals.nats_per_token,
        "pseudo_perplexity": totals.perplexity,
        "accuracy": totals.accuracy,
        "oov": totals.oov,
        "protocol": f"each token given all others of its row, {way}; {loaded.tokenizer.kind} "
        "tokens, unknowns scored as <unk>; no perplexity",
        "signature": made,
    }
