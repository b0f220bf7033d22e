"""Fit the weights and gates of mixtures on held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError
from seqgen.metrics.perplexity import perplexity_of
from seqgen.models.inference import InferenceModel
from seqgen.models.mixture.equations import Mixed
from seqgen.models.mixture.fitting import OrderMatcher, fit_by_order, fit_weights, mix_log_probs
from seqgen.models.mixture.gate import find_order_guide
from seqgen.models.mixture.gate_fitting import DistributionSampler, GateData, fit_gate
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.scoring.loop import in_order, score_corpus
from seqgen.scoring.perplexity import check_token_file, for_model
from seqgen.settings.scoring import Scoring
from seqgen.store import StoredMixture
from seqgen.store.loading import joined, mixture_of
from seqgen.text.pairs import Pairs, encode_pairs
from seqgen.text.tokenfile import TokenFile

if TYPE_CHECKING:
    from seqgen.settings import Direction
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.corpus import Corpus

# Digits of the weights, so that what is printed and what was measured are the same.
DIGITS = 4
# Decimals that are kept of the greatest weight, which is what the others leave of 1.
EXACT = 12
NO_TOKEN = "there is no token to fit weights on"

# A model -> what `score` gives for each token of a text: (N,), or (N, 1 + F) with `flatnesses`.
Columns = Callable[[InferenceModel], np.ndarray]
# What the weights of a mixture depend on.
By = Literal["order", "context"]


def rounded(weights: Sequence[float], tokens: int) -> list[float]:
    """Round weights to four decimals that sum to 1; small ones keep four significant digits.

    No weight that the text needs becomes 0. EM gives a part the mean of its shares of the tokens.
    Where only K parts give a token any probability, their shares of it sum to 1, so that one of
    them has a weight of 1 / (K * tokens) or more. Half of that allows for rounding. Leaving out
    parts that have less costs less than the logarithm of 2, over all tokens.

    Args:
        weights: fitted by EM.
        tokens: how many they were fitted to.
    """
    least = 0.5 / (len(weights) * tokens)
    kept = [
        round(weight, DIGITS) or (float(f"{weight:.{DIGITS}g}") if weight >= least else 0.0)
        for weight in weights
    ]
    greatest = kept.index(max(kept))
    kept[greatest] = round(1 - (sum(kept) - kept[greatest]), EXACT)
    return kept


@dataclass(frozen=True)
class FittedWeights:
    """Fitted mixture weights: the keys of `seqgen perplexity --fit --json`, in order.

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
    loaded: LoadedModel, text: Iterable[str] | TokenFile | Pairs, scoring: Scoring | None = None
) -> tuple[LoadedModel, FittedWeights]:
    """Fit a mixture's weights to a text; return the model and its scores.

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
    _, columns = _columns(loaded, text, scoring)
    parts = loaded.model.parts
    if loaded.cache is not None:
        fit_cache = hooks.load_method("cache", "fitted-cache", "--cache")
        mixed, fitted = fit_cache(loaded, columns)
        log_probs, weights, nats = fitted.model_log_probs, fitted.weights, fitted.nats
        rounds, cache = fitted.rounds, asdict(fitted.cache)
    else:
        log_probs, cache = np.stack([columns(part) for part in parts], 1), None  # (N, K)
        weights, rounds, nats = _fit_parts(log_probs)
        mixed = with_weights(loaded, weights)
    return mixed, FittedWeights(
        model=mixed.stored.name,
        weights=weights,
        tokens=int(log_probs.shape[0]),
        perplexity=perplexity_of(nats),
        components=[perplexity_of(-float(column.mean())) for column in log_probs.T],
        rounds=rounds,
        cache=cache,
    )


def fit_mixture(
    loaded: LoadedModel,
    text: Iterable[str] | TokenFile | Pairs,
    scoring: Scoring,
    *,
    by: By | None,
    half: bool,
) -> tuple[LoadedModel, float | None]:
    """Fit a mixture's weights on all or half of a text; with half, return the loss on the rest.

    Args:
        loaded: a mixture.
        text: as of `fit`.
        scoring: as of `fit`.
        by: "order": of models of text, also fit weights for each order that the n-gram part
            matches of a context; "context": also fit a gate, which is then used instead.
        half: fit on the first half of the tokens; on all of them otherwise.

    Returns:
        The mixture, and the nats per token of the second half; None without `half`.

    Raises:
        UsageError: as of `fit`; or see `require_fit_by`.
        SeqgenError: as of `fit`.
    """
    parts = loaded.model.parts
    guide = require_fit_by(by, loaded)
    corpus, columns = _columns(loaded, text, scoring)
    read = distributions(parts, columns, corpus.tokens) if by == "context" else None
    log_probs = read.log_probs if read else np.stack(list(map(columns, parts)), 1)  # (N, K)
    fitted = log_probs.shape[0] // 2 if half else log_probs.shape[0]
    stored = loaded.stored.with_weights(_fit_parts(log_probs[:fitted])[0])
    weights = np.array(stored.weights)
    if guide is not None:
        matched = columns(OrderMatcher(parts[guide])).astype(np.int64)
        table = (log_probs[:fitted], matched[:fitted], parts[guide].orders, stored.weights)
        rows = tuple(tuple(rounded(row, fitted)) for row in fit_by_order(*table))
        stored = replace(stored, by_order=rows)
        weights = np.array(rows)[matched]
    if read is not None:
        stored = replace(stored, gate=read.gate(np.searchsorted(read.places, fitted)))
    mixed = replace(loaded, stored=stored, model=mixture_of(parts, stored))
    if not half:
        return mixed, None
    scored = columns(mixed.model) if read else mix_log_probs(log_probs, weights)
    return mixed, -float(scored[fitted:].mean())


def require_fit_by(by: By | None, loaded: LoadedModel) -> int | None:
    """Find the n-gram model for weights per n-gram order; refuse where there is none.

    Raises:
        UsageError: there is none, or the parts write from sources; or for a gate, the vocabulary
            is too large.
    """
    if by is None:
        return None
    if by == "context":
        size = loaded.model.vocab_size
        if size > MOST_TOKENS:
            raise UsageError(
                f"--by context reads whole distributions, of at most {MOST_TOKENS:,} tokens, not "
                f"{size:,}: leave it out, or give --by order"
            )
        return None
    loaded.conditioning.require_nothing("--by order")
    guide, _ = find_order_guide(loaded.model.parts)
    if guide is None:
        names = ", ".join(part.name for part in loaded.stored.parts)
        raise UsageError(f"--by order needs an n-gram model among the parts, not {names}")
    return guide


def _fit_parts(log_probs: np.ndarray) -> tuple[list[float], int, float]:
    """Fit weights of models (N, K) by EM; return iterations and nats per token too.

    Raises:
        SeqgenError: there is no token, or all are impossible under every part.
    """
    if not log_probs.size:
        raise SeqgenError(NO_TOKEN)
    if not (log_probs > -np.inf).any():
        raise SeqgenError("every token is impossible under every part: no weights fit this text")
    weights, history = fit_weights(log_probs)
    weights = rounded(weights, log_probs.shape[0])
    nats = -float(mix_log_probs(log_probs, np.array(weights)).mean())
    return weights, len(history) - 1, nats


def with_weights(loaded: LoadedModel, weights: Sequence[float]) -> LoadedModel:
    """Replace a mixture's weights and drop its caches; other models stay as they are."""
    if not isinstance(loaded.stored, StoredMixture):
        return loaded
    stored = loaded.stored.with_weights(weights)
    return replace(loaded, stored=stored, model=mixture_of(loaded.model.parts, stored))


def _columns(
    loaded: LoadedModel, text: Iterable[str] | TokenFile | Pairs, scoring: Scoring | None
) -> tuple[Corpus, Columns]:
    """Tokenize a text once; return it with a function that scores it by one model.

    Raises:
        UsageError: see `perplexity.for_model`.
        SeqgenError: there is no token.
    """
    scoring = for_model(loaded, scoring)
    if isinstance(text, Pairs):
        corpus = encode_pairs(text, loaded.tokenizers)
    elif isinstance(text, TokenFile):
        check_token_file(loaded, text, scoring.documents)
        corpus = text.corpus
    else:
        corpus = loaded.encode(text, scoring.documents)
    if not corpus.tokens.size:
        raise SeqgenError(NO_TOKEN)

    def columns(part: InferenceModel) -> np.ndarray:
        direction = loaded.data.direction
        return token_log_probs(part, corpus, scoring.batch_size, direction, scoring.stride)

    return corpus, columns


def token_log_probs(
    model: InferenceModel,
    corpus: Corpus,
    batch_size: int = 32,
    direction: Direction = "forward",
    stride: int | None = None,
) -> np.ndarray:
    """Compute the log-probability of every corpus token in order, (N,) float64."""
    pieces = score_corpus(model, corpus, batch_size, stride, "log_probs", direction)
    return in_order(pieces).log_probs


# A gate reads every part's whole distribution, which n-gram models otherwise need not write out.
MOST_TOKENS = 1024
# So many numbers are kept of distributions, 64 MB; of longer texts, those before every n-th token.
MOST_KEPT = 1 << 24


@dataclass(frozen=True)
class Distributions:
    """Next-token log-probabilities of K models on one text.

    Attributes:
        log_probs: (N, K), of each token under each part, in nats.
        matched: (N,) of int64, the order matched before each token; 0 without an n-gram model.
        places: (M,), ascending: the tokens before which distributions were kept.
        contexts: M of them.
    """

    log_probs: np.ndarray
    matched: np.ndarray
    places: np.ndarray
    contexts: GateData

    def gate(self, count: int) -> tuple[tuple[float, ...], ...]:
        """Fit a gate on the first `count` contexts."""
        return tuple(map(tuple, fit_gate(self.contexts.take(slice(count)))))

    def loss(self, gate: Sequence[Sequence[float]], where: slice) -> float:
        """Compute the nats per token of some contexts under a gate."""
        contexts = self.contexts.take(where)
        return contexts.nats(np.array(gate)) / len(contexts)


def distributions(
    parts: Sequence[InferenceModel],
    columns: Callable[[InferenceModel], np.ndarray],
    tokens: np.ndarray,
) -> Distributions:
    """Compute the predictions of all models on a text.

    Args:
        parts: in evaluation mode, of one engine.
        columns: scores the text; see `token_log_probs`.
        tokens: (N,), the text's.
    """
    mixture = joined(parts, MixtureWeights([1.0] * len(parts)))
    size = tokens.size * len(parts) * mixture.vocab_size
    read = DistributionSampler(mixture, every=-(-size // MOST_KEPT))
    columns_read = columns(read)  # (N, K + 2)
    matched, numbers = columns_read[:, -2:].T.astype(np.int64)
    places = np.flatnonzero(numbers >= 0)
    whole = np.concatenate(read.kept)[numbers[places]]
    _, orders = find_order_guide(parts)
    contexts = GateData(whole, tokens[places].astype(np.int64), matched[places], orders)
    return Distributions(columns_read[:, :-2], matched, places, contexts)


# Weights by order are many, so they are tried only if a quarter of the text has so many tokens.
LEAST_QUARTER = 500
# A gate takes longer per token than weights: it is used if it gains so many nats per token. Fitted
# on fewer tokens than these, it was worse than weights on other text.
WORTH_A_GATE, LEAST_GATED = 0.001, 5000


@dataclass(frozen=True)
class FittedByHalves:
    """Weights fitted on a text, in the form that was best between its halves.

    Attributes:
        weights: of the parts.
        by_order: their weights for each order matched; empty where these are no better.
        gate: of all parts, those of mixtures among them included; empty where it is no better.
        loss: what the form, fitted on the first half, has on the second, in nats per token.
    """

    weights: tuple[float, ...]
    by_order: tuple[tuple[float, ...], ...]
    loss: float
    gate: tuple[tuple[float, ...], ...] = ()


def fit_by_halves(
    parts: Sequence[InferenceModel], corpus: Corpus, direction: Direction = "forward"
) -> FittedByHalves:
    """Fit weights of models by `fit_columns`, or a gate if it scores better.

    A gate is taken if, fitted on the first quarter, it is better than weights on the second by
    `WORTH_A_GATE`, and, fitted on the first half, also better on the other.

    Args:
        parts: in evaluation mode. If the last is an n-gram model, weights by order are tried.
        corpus: held-out text, of two tokens or more.
        direction: in which all read.
    """

    def column(model: InferenceModel) -> np.ndarray:
        return token_log_probs(model, corpus, direction=direction)

    guide, size = parts[-1], corpus.tokens.size
    if parts[0].vocab_size > MOST_TOKENS or size < LEAST_GATED:
        log_probs = np.stack(list(map(column, parts)), 1)
        if guide.orders is None:
            return fit_columns(log_probs)
        matched = column(OrderMatcher(guide)).astype(np.int64)
        return fit_columns(log_probs, matched, guide.orders)
    each = [one for part in parts for one in part.parts]
    read = distributions(each, column, corpus.tokens)
    log_probs, known = [], iter(read.log_probs.T)
    for part in parts:
        own = np.stack([next(known) for _ in part.parts], 1)
        # A mixture's own gate cannot be stored among weights: its weights count.
        plain = mix_log_probs(own, part.weights.ravel()) if isinstance(part, Mixed) else own[:, 0]
        log_probs.append(plain)
    log_probs = np.stack(log_probs, 1)
    matched = None if guide.orders is None else read.matched
    fitted = fit_columns(log_probs, matched, read.contexts.orders)
    # Both are fitted on the same quarter and tried on the same tokens of the next.
    tried = read.places[read.places < size // 2]
    some = None if matched is None else matched[tried]
    by_weights = fit_columns(log_probs[tried], some, read.contexts.orders).loss
    quarter = tried.size // 2
    by_gate = read.loss(read.gate(quarter), slice(quarter, tried.size))
    if by_weights - by_gate < WORTH_A_GATE:
        return fitted
    gated = joined(each, MixtureWeights([1.0] * len(each), gate=read.gate(tried.size)))
    loss = -float(column(gated)[size // 2 :].mean())
    if loss >= fitted.loss:  # the text changes, and weights bear that better
        return fitted
    return replace(fitted, by_order=(), gate=read.gate(read.places.size), loss=loss)


def fit_columns(
    log_probs: np.ndarray, matched: np.ndarray | None = None, orders: int = 0
) -> FittedByHalves:
    """Fit weights on a text; score its second half with weights of the first.

    Weights by order are taken if, fitted on the first quarter, they are better on the second.

    Args:
        log_probs: (N, K), of each token under each part, in nats.
        matched: (N,) of int64, the order that an n-gram model matches before each token, if it is
            among the parts.
        orders: how many there are.
    """
    size = log_probs.shape[0]
    half, quarter = size // 2, size // 4

    def table_of(end: int, by_order: bool) -> tuple[list[float], list[list[float]]]:
        weights, _ = fit_weights(log_probs[:end])
        if not by_order:
            return weights, []
        return weights, fit_by_order(log_probs[:end], matched[:end], orders, weights)

    def mixed(weights: list[float], table: list[list[float]]) -> np.ndarray:
        return mix_log_probs(log_probs, np.array(table)[matched] if table else np.array(weights))

    by_order = False
    if matched is not None and quarter >= LEAST_QUARTER:
        plain, tabled = (mixed(*table_of(quarter, each))[quarter:half] for each in (False, True))
        by_order = bool(tabled.mean() > plain.mean())
    loss = -float(mixed(*table_of(half, by_order))[half:].mean())
    weights, table = table_of(size, by_order)
    return FittedByHalves(
        weights=tuple(rounded(weights, size)),
        by_order=tuple(tuple(rounded(row, size)) for row in table),
        loss=loss,
    )
