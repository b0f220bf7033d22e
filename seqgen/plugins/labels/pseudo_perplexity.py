"""Masked models: loading, validation loss, and the pseudo-perplexity of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen import store
from seqgen.engines.ops import ops_of, without_gradients
from seqgen.errors import SeqgenError
from seqgen.files import input_title
from seqgen.metrics.bootstrap import figure_signature, shorten_hash
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.plugins.labels.masking import MaskDraws, MaskedRows, choose, each_hidden, framed, masked
from seqgen.plugins.labels.models.transformer_arrays import MaskedModel
from seqgen.scoring.loop import Scored, add_up
from seqgen.settings import Documents
from seqgen.store import StoredMixture
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import Work, load_any, require_language_model, require_served
from seqgen.text.batches import IGNORED, split_spans
from seqgen.text.corpus import Corpus
from seqgen.text.reading import Surveyor, lines
from seqgen.wording import ShortRepr, column

if TYPE_CHECKING:
    from seqgen.engines.precision import Precision

# Of the tokens of a held-out text, which are hidden, whatever share training hides: so that losses
# can be compared. The draws are always the same.
HELD_OUT_SHARE, HELD_OUT_DRAWS = 0.15, 0
# Tokens that are read in one call, over all rows.
AT_ONCE = 1 << 13


def texts_of(corpus: Corpus, window: int) -> Iterator[tuple[int, np.ndarray]]:
    """Cut documents into texts that fit the window; yield document number and tokens (T,).

    Documents are cut into consecutive texts of at most `window` tokens. Ends of lines are left out:
    in their place is [SEP].
    """
    begin, end = split_spans(corpus.starts, corpus.ends, window)
    documents = np.searchsorted(corpus.ends, begin, side="right")
    for number, first, last in zip(documents.tolist(), begin.tolist(), end.tolist(), strict=True):
        tokens = corpus.tokens[first:last].astype(np.int64)
        if corpus.end is not None and tokens.size and tokens[-1] == corpus.end:
            tokens = tokens[:-1]
        if tokens.size:
            yield number, tokens


@without_gradients
def masked_loss(model: MaskedModel, corpus: Corpus, most: int | None = None) -> float:
    """Measure the loss at hidden tokens of a text, in nats per hidden token.

    15 % of the tokens of each row are hidden, always the same ones for a text and a window.

    Args:
        model: in evaluation mode.
        corpus: the text.
        most: look only at so many tokens from its beginning, at least one row.
    """
    texts = _beginning((tokens for _, tokens in texts_of(corpus, model.window)), most)
    count = max(1, AT_ONCE // (model.window + 2))
    nats, hidden, first = 0.0, 0, 0
    while rows := list(islice(texts, count)):
        row_nats, row_hidden = _loss_of(model, rows, first)
        nats, hidden, first = nats + row_nats, hidden + row_hidden, first + len(rows)
    return nats / hidden if hidden else 0.0


def _beginning(texts: Iterable[np.ndarray], most: int | None) -> Iterator[np.ndarray]:
    """Yield texts until they have at least `most` tokens; all texts if `most` is None."""
    seen = 0
    for tokens in texts:
        if most is not None and seen >= most:
            return
        yield tokens
        seen += tokens.size


def _loss_of(model: MaskedModel, rows: list[np.ndarray], first: int) -> tuple[float, int]:
    """Compute the summed loss of hidden tokens in a batch of rows, and their number."""
    lengths = np.array([row.size for row in rows])
    text = np.zeros((len(rows), int(lengths.max())), np.int64)
    for row, tokens in zip(text, rows, strict=True):
        row[: tokens.size] = tokens
    symbols = model.config.symbols
    whole = framed(text, lengths, symbols)
    places = choose(whole, HELD_OUT_SHARE, MaskDraws(HELD_OUT_DRAWS, 0, first))
    log_probs, _ = _predicted(model, masked(whole, places, symbols))
    return -float(log_probs.sum()), log_probs.size


def pseudo_scores(model: MaskedModel, corpus: Corpus) -> Iterator[Scored]:
    """Score every token given all others in its row: its pseudo-log-likelihood.

    log P(x_t | x_1 ... x_{t-1}, x_{t+1} ... x_T) for each t, one [MASK] at a time (Salazar et al.
    2020, "Masked language model scoring", section 2). Their sum is no log-probability of the text.

    Args:
        model: in evaluation mode.
        corpus: documents; one that is longer than the window is cut, see `texts_of`.

    Yields:
        The documents in order, a text at a time. Ends of lines are not scored.
    """
    for number, tokens in texts_of(corpus, model.window):
        log_probs, hits = pseudo_log_probs(model, tokens)
        yield Scored(np.full(tokens.size, number), tokens, log_probs, hits)


@without_gradients
def pseudo_log_probs(model: MaskedModel, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute log P (T,) of each token given all others, and whether it was the most probable.

    Args:
        model: in evaluation mode.
        tokens: (T,) int64, at most as many as the window has.
    """
    rows = each_hidden(tokens.tolist(), model.config.symbols)
    count = max(1, AT_ONCE // rows.values.shape[1])
    pieces = []
    for at in range(0, len(rows.values), count):
        cut = slice(at, at + count)
        parts = rows.values[cut], rows.lengths[cut], rows.places[cut], rows.targets[cut]
        pieces.append(_predicted(model, MaskedRows(*parts)))
    log_probs, hits = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return log_probs, hits


def _predicted(model: MaskedModel, rows: MaskedRows) -> tuple[np.ndarray, np.ndarray]:
    """Compute the targets' log-probabilities (N,) in float64, and whether each is the argmax."""
    logits, _ = model(model.ids(rows.values), rows.lengths, model.ids(rows.places))
    there = rows.targets != IGNORED
    logits, targets = logits[there], rows.targets[there]  # (N, V), (N,)
    ops = ops_of(logits)
    log_probs = ops.array(ops.log_softmax(logits)).astype(np.float64)
    return log_probs[np.arange(len(targets)), targets], log_probs.argmax(-1) == targets


def load_masked(
    name: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    work: Work | None = None,
) -> LoadedModel:
    """Load a masked model.

    Args:
        name: a name, a path, or None for the latest model.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32.
        work: see `load`; each token that is scored has its row read for it.

    Raises:
        UsageError: it is another kind of model.
        SeqgenError: there is no such model, or it is damaged.
    """
    otherwise = "is not a masked model: give one of seqgen train TEXT --model bert"
    stored = store.find_all(name)
    if isinstance(stored, StoredMixture):
        require_language_model(stored)
    require_served("fill", stored, otherwise)
    if work is not None:
        work = replace(work, read=work.read * stored.config["model"].get("window", 1))
    return load_any(stored, device, precision, work)


@dataclass(frozen=True, repr=False)
class PseudoPerplexity(ShortRepr):
    """Record of `seqgen perplexity --json` for a masked model.

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

    file: str | None = column("file")
    model: str = column("model")
    tokens: int = column("tokens", "count")
    characters: int
    bytes: int
    pseudo_nll_nats: float
    pseudo_nats_per_token: float | None = column("pseudo-nats/token", "figure")
    pseudo_perplexity: float | None = column("pseudo-perplexity", "figure")
    accuracy: float | None = column("accuracy", "percentage")
    oov: int = column("oov", "count")
    protocol: str
    signature: str


@dataclass(frozen=True, repr=False)
class PseudoLine(PseudoPerplexity):
    """Record of one line from `seqgen perplexity --json` for a masked model.

    Attributes:
        line: its number, from 0.
        text: it, without its newline.
    """

    line: int
    text: str

    @property
    def pseudo_log_likelihood(self) -> float:
        """Sum over the line's tokens of log P(token | all others), in nats."""
        return 0.0 - self.pseudo_nll_nats  # and not -0.0 of an empty line


def pseudo_perplexity(
    loaded: LoadedModel, chunks: Iterable[str], *, file: str | None, documents: Documents | None
) -> PseudoPerplexity:
    """Compute the pseudo-perplexity of a text: exp(-mean log P(x_t | all other tokens)).

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
        name = input_title(file) if file else "the text"
        raise SeqgenError(f"{name} is empty: there is nothing to score")
    facts = surveyor.facts
    sizes = {"characters": facts.characters, "bytes": facts.bytes}
    return PseudoPerplexity(**_keys(loaded, file, totals, documents, facts.sha256), **sizes)


def pseudo_lines(
    loaded: LoadedModel, chunks: Iterable[str], *, file: str | None
) -> Iterator[PseudoLine]:
    """Score each line separately, yielding as lines are read; empty lines have no tokens."""
    for number, line in enumerate(lines(chunks)):
        surveyor, text = Surveyor(), line.removesuffix("\n")
        totals = _score(loaded, surveyor.watch([line]), "line")
        keys = _keys(loaded, file, totals, "line", surveyor.facts.sha256)
        sizes = {"characters": len(line), "bytes": len(line.encode())}
        yield PseudoLine(**keys, **sizes, line=number, text=text)


def _score(loaded: LoadedModel, chunks: Iterable[str], documents: Documents) -> ScoreTotals:
    corpus = loaded.encode(chunks, documents)
    if corpus.tokens.size == 0:
        return ScoreTotals()
    return add_up(pseudo_scores(loaded.model, corpus), loaded.tokenizer)


def _keys(
    loaded: LoadedModel, file: str | None, totals: ScoreTotals, documents: Documents, sha256: str
) -> dict[str, Any]:
    """Build the fields of a record except the sizes of its text."""
    window = loaded.model.window
    way = "each line alone" if documents == "line" else f"one stream in rows of {window} tokens"
    made = figure_signature(
        "pseudo-perplexity",
        model=shorten_hash(loaded.stored.digest),
        data=shorten_hash(sha256),
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
