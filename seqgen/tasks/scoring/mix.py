"""Finding the weights of a mixture on held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from seqgen.configs import Direction, Documents
from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.pairs import Pairs, encode_pairs
from seqgen.data.tokenfile import TokenFile
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import LanguageModel
from seqgen.models.mixture import Mixture, fit_weights
from seqgen.scoring import score_corpus
from seqgen.store import StoredMixture
from seqgen.tasks.loaded import LoadedModel
from seqgen.tasks.scoring.perplexity import check_token_file

# So that what is printed and what was measured are the same weights.
DIGITS = 4


@dataclass(frozen=True)
class Fitted:
    """The keys of `seqgen perplexity --fit --json`, in order.

    Attributes:
        model: the mixture with the weights found, as `-m` takes it.
        weights: in the order of the components.
        tokens: how many were scored.
        perplexity: of the text under the mixture.
        components: the perplexity of the text under each component.
        rounds: of EM.
    """

    model: str
    weights: list[float]
    tokens: int
    perplexity: float
    components: list[float]
    rounds: int


def fit(
    loaded: LoadedModel,
    text: Iterable[str] | TokenFile | Pairs,
    *,
    documents: Documents | None = None,
    batch_size: int = 32,
) -> tuple[LoadedModel, Fitted]:
    """Return a mixture with the weights under which a text is most probable, and what they give.

    Args:
        loaded: a mixture.
        text: what no component was trained on, in pieces cut anywhere or as a token file;
            pairs for a mixture of models that read them.
        documents: as `perplexity`'s.
        batch_size: as `perplexity`'s.

    Raises:
        UsageError: the model is no mixture.
        SeqgenError: the text is empty, impossible under every component, or in other tokens.
    """
    if not isinstance(loaded.stored, StoredMixture) or not isinstance(loaded.model, Mixture):
        raise UsageError("--fit finds the weights of a mixture: give -m A+B")
    corpus = _corpus(loaded, text, documents or loaded.data.documents)
    how = batch_size, loaded.data.direction
    columns = [token_log_probs(part, corpus, *how) for part in loaded.model.components]
    log_probs = torch.from_numpy(np.stack(columns, axis=1))  # (N, K)
    if not (log_probs > -torch.inf).any():
        raise SeqgenError("there is no token to fit weights on")
    weights, history = fit_weights(log_probs)
    weights = [round(weight, DIGITS) for weight in weights]
    weights[int(np.argmax(weights))] += 1 - sum(weights)
    stored = replace(loaded.stored, weights=tuple(weights))
    mixed = replace(loaded, stored=stored, model=Mixture(loaded.model.components, weights).eval())
    shares = torch.tensor(weights, dtype=torch.float64).log()
    return mixed, Fitted(
        model=stored.name,
        weights=[round(weight, DIGITS) for weight in weights],
        tokens=int(log_probs.shape[0]),
        perplexity=_perplexity((log_probs + shares).logsumexp(1).numpy()),
        components=[_perplexity(column) for column in columns],
        rounds=len(history) - 1,
    )


def _corpus(
    loaded: LoadedModel, text: Iterable[str] | TokenFile | Pairs, documents: Documents
) -> Corpus:
    """Return what every component scores."""
    if isinstance(text, Pairs):
        return encode_pairs(text, loaded.tokenizers)
    if isinstance(text, TokenFile):
        check_token_file(loaded, text, documents)
        return text.corpus
    framing = loaded.framing_of(documents)
    return encode_corpus(text, loaded.tokenizer, documents, framing=framing)


def token_log_probs(
    model: LanguageModel, corpus: Corpus, batch_size: int = 32, direction: Direction = "forward"
) -> np.ndarray:
    """Return the log-probability of every token of a corpus, in its order, (N,) float64."""
    how = {"want": "log_probs", "direction": direction}
    pieces = list(score_corpus(model, corpus, batch_size, **how))
    documents = np.concatenate([piece.documents for piece in pieces] or [np.zeros(0)])
    log_probs = np.concatenate([piece.log_probs for piece in pieces] or [np.zeros(0)])
    return log_probs[np.argsort(documents, kind="stable")]


def _perplexity(log_probs: np.ndarray) -> float:
    nats = -float(log_probs.mean())
    return math.exp(nats) if nats < 700 else math.inf
