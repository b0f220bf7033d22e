"""Finding the weights of a mixture, and how strong a cache should be, on held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.loading import mixture_of, with_cache
from seqgen.commands.scoring.fit_cache import Columns, fit_cache, rounded
from seqgen.commands.scoring.perplexity import check_token_file, for_model
from seqgen.configs import Direction, Documents
from seqgen.configs.scoring import Scoring
from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.pairs import Pairs, encode_pairs
from seqgen.data.tokenfile import TokenFile
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import LanguageModel
from seqgen.models.memory.continuous_cache import parts_of
from seqgen.models.mixture.by_order import MatchedOrders, fit_by_order, guide_of
from seqgen.models.mixture.model import Mixture, fit_weights
from seqgen.scoring import score_corpus
from seqgen.store import StoredMixture


@dataclass(frozen=True)
class FittedWeights:
    """The keys of `seqgen perplexity --fit --json`, in order.

    Attributes:
        model: the mixture with the weights found, as `-m` takes it.
        weights: in the order of the components; of a model alone 1.
        tokens: how many were scored.
        perplexity: of the text under the whole.
        components: the perplexity of the text under each component, without its cache.
        rounds: of EM.
        cache: `size`, `strength` and `flatness` of the cache; None without one.
    """

    model: str
    weights: list[float]
    tokens: int
    perplexity: float
    components: list[float]
    rounds: int
    cache: dict[str, float] | None


def fit(
    loaded: LoadedModel,
    text: Iterable[str] | TokenFile | Pairs,
    scoring: Scoring | None = None,
) -> tuple[LoadedModel, FittedWeights]:
    """Return a model with the weights under which a text is most probable, and what they give.

    Args:
        loaded: a mixture, or a model with a cache, or both.
        text: what no component was trained on, in pieces cut anywhere or as a token file;
            pairs for a mixture of models that read them.
        scoring: how, as `perplexity`'s.

    Raises:
        UsageError: the model is no mixture and has no cache; or see `perplexity.for_model`.
        SeqgenError: the text is empty, impossible under every component, or in other tokens.
    """
    if not isinstance(loaded.stored, StoredMixture) and loaded.cache is None:
        raise UsageError(
            "--fit finds the weights of a mixture and the strength of a cache: give -m A+B, or "
            "--cache N"
        )
    columns = _columns(loaded, text, scoring)
    parts = parts_of(loaded.model)
    if loaded.cache is not None:
        fitted_cache = fit_cache(parts, loaded.cache.size, columns)
        log_probs, weights = fitted_cache.model_log_probs, fitted_cache.weights
        mixed = with_cache(with_weights(loaded, weights), fitted_cache.cache)
        nats, cache = fitted_cache.nats, asdict(fitted_cache.cache)
        rounds = fitted_cache.rounds
    else:
        log_probs, cache = torch.stack([columns(part) for part in parts], 1), None  # (N, K)
        weights, rounds, nats = _fit_parts(log_probs)
        mixed = with_weights(loaded, weights)
    return mixed, FittedWeights(
        model=mixed.stored.name,
        weights=weights,
        tokens=int(log_probs.shape[0]),
        perplexity=_perplexity(nats),
        components=[_perplexity(-column.mean().item()) for column in log_probs.unbind(1)],
        rounds=rounds,
        cache=cache,
    )


def fit_mixture(
    loaded: LoadedModel,
    text: Iterable[str] | TokenFile | Pairs,
    scoring: Scoring | None = None,
    *,
    by_order: bool = False,
    half: bool = False,
) -> tuple[LoadedModel, float | None]:
    """Return a mixture with fitted weights, and its loss on what they were not fitted to.

    Args:
        loaded: a mixture.
        text: as of `fit`.
        scoring: as of `fit`.
        by_order: of models of text, also fit weights for each order that the n-gram part matches
            of a context.
        half: fit on the first half of the tokens; on all of them otherwise.

    Returns:
        The mixture, and the nats per token of the second half; None without `half`.

    Raises:
        UsageError: as of `fit`; or with `by_order`, no part is an n-gram model.
        SeqgenError: as of `fit`.
    """
    parts = parts_of(loaded.model)
    guide = require_guide(loaded) if by_order else None
    columns = _columns(loaded, text, scoring)
    log_probs = torch.stack(list(map(columns, parts)), 1)  # (N, K)
    fitted = log_probs.shape[0] // 2 if half else log_probs.shape[0]
    stored = loaded.stored.with_weights(_fit_parts(log_probs[:fitted])[0])
    weights = torch.tensor([stored.weights], dtype=torch.float64)
    if guide is not None:
        matched = columns(MatchedOrders(parts[guide])).long()
        table = (log_probs[:fitted], matched[:fitted], parts[guide].orders, stored.weights)
        rows = tuple(tuple(rounded(row, fitted)) for row in fit_by_order(*table))
        stored = replace(stored, by_order=rows)
        weights = torch.tensor(rows, dtype=torch.float64)[matched]
    mixed = replace(loaded, stored=stored, model=mixture_of(parts, stored).eval())
    rest = (log_probs + weights.log()).logsumexp(1)[fitted:]
    return mixed, -rest.mean().item() if half else None


def require_guide(loaded: LoadedModel) -> int:
    """Return the number of the n-gram model among the parts of a mixture of models of text.

    Raises:
        UsageError: there is none, or the parts write from sources.
    """
    loaded.given.require_nothing("--by order")
    try:
        return guide_of(parts_of(loaded.model))
    except ValueError:
        names = ", ".join(part.name for part in loaded.stored.parts)
        raise UsageError(f"--by order needs an n-gram model among the parts, not {names}") from None


def _fit_parts(log_probs: Tensor) -> tuple[list[float], int, float]:
    """Return the best weights of parts (N, K), the rounds of EM, and the nats per token.

    Raises:
        SeqgenError: the text is impossible under every part.
    """
    if not (log_probs > -torch.inf).any():
        raise SeqgenError("there is no token to fit weights on")
    weights, history = fit_weights(log_probs)
    weights = rounded(weights, log_probs.shape[0])
    log_weights = torch.tensor(weights, dtype=torch.float64).log()
    return weights, len(history) - 1, -(log_probs + log_weights).logsumexp(1).mean().item()


def with_weights(loaded: LoadedModel, weights: Sequence[float]) -> LoadedModel:
    """Return a mixture with other weights, and without caches; or a model as it is."""
    if not isinstance(loaded.stored, StoredMixture):
        return loaded
    stored = loaded.stored.with_weights(weights)
    return replace(loaded, stored=stored, model=Mixture(parts_of(loaded.model), weights).eval())


def _columns(
    loaded: LoadedModel, text: Iterable[str] | TokenFile | Pairs, scoring: Scoring | None
) -> Columns:
    """Encode a text once; return what scores it under a part of a model.

    Raises:
        UsageError: see `perplexity.for_model`.
        SeqgenError: there is no token.
    """
    scoring = for_model(loaded, scoring)
    corpus = _corpus(loaded, text, scoring.documents)
    if not corpus.tokens.size:
        raise SeqgenError("there is no token to fit weights on")
    how = scoring.batch_size, loaded.data.direction, scoring.stride
    return lambda part: torch.from_numpy(token_log_probs(part, corpus, *how))


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
    model: LanguageModel,
    corpus: Corpus,
    batch_size: int = 32,
    direction: Direction = "forward",
    stride: int | None = None,
) -> np.ndarray:
    """Return the log-probability of every token of a corpus, in its order, (N,) float64."""
    pieces = list(score_corpus(model, corpus, batch_size, stride, "log_probs", direction))
    documents = np.concatenate([piece.documents for piece in pieces] or [np.zeros(0)])
    log_probs = np.concatenate([piece.log_probs for piece in pieces] or [np.zeros(0)])
    return log_probs[np.argsort(documents, kind="stable")]


def _perplexity(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
