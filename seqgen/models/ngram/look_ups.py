"""Scores of given words under an n-gram model, without computing full distributions."""

from __future__ import annotations

import numpy as np

from seqgen.models.arrays import ArrayModel
from seqgen.models.inference import LOGITS_AT_ONCE
from seqgen.models.scores import FromLogits, Predictions, ScoreDetail, Scores


class NGramLookUps(Predictions):
    """Predictions of an n-gram model, computed by table look-ups.

    Args:
        model: an `NGramArrays`.
        tokens: (B, T).
        contexts: for n = 1 to N - 1, the ids (B, T) of the last n words.
    """

    def __init__(self, model: ArrayModel, tokens: np.ndarray, contexts: list[np.ndarray]) -> None:
        self.model, self.tokens, self.contexts = model, tokens, contexts

    def log_probs(self, targets: np.ndarray) -> np.ndarray:
        model = self.model
        if model.native is not None:
            return model.native.score(self.contexts, targets)
        # In a text, an n-gram that ends at a target is the next target's context.
        is_text = np.array_equal(self.tokens[:, 1:], targets[:, :-1])
        log_probs = model.log_probs[1][targets]  # (B, T)
        for n, context in enumerate(self.contexts, start=2):
            if is_text and n < model.order:
                last = model.find(n, context[:, -1:], targets[:, -1:])
                ids = np.concatenate([self.contexts[n - 1][:, 1:], last], 1)
            else:
                ids = model.find(n, context, targets)
            lower = model.back_off(log_probs, model.backoffs_of(n - 1, context))
            log_probs = look_up(model.log_probs[n], ids, lower)
        return log_probs

    def rows(self, places: np.ndarray) -> np.ndarray:
        contexts = [ids.ravel()[places] for ids in self.contexts]
        return self.model.distributions(contexts, places.size)

    def ranks(self, targets: np.ndarray) -> np.ndarray:
        return self.score(targets, "ranks").ranks

    def score(self, targets: np.ndarray, want: ScoreDetail) -> Scores:
        if want != "ranks":
            return super().score(targets, want)
        # Ranks need whole rows, so score with those: they are normalised, unlike rounded tables.
        flat, at_once = targets.ravel(), max(1, LOGITS_AT_ONCE // self.model.vocab_size)
        scores = [
            FromLogits(self.rows(some)[None]).score(flat[some][None], want)
            for some in _in_turn(np.arange(flat.size), at_once)
        ]
        return Scores.cat(scores).map(lambda x: x.reshape(targets.shape))

    def best(self) -> np.ndarray:
        """Find the most probable word after each context without computing its full row.

        A context's best word is its best stored continuation, or the best word after the shorter
        context. Only if the latter is itself a stored continuation, with a lower probability as
        one, might a third word be better: then the whole row is computed.
        """
        native, shape = self.model.native, self.tokens.shape
        sure = self._nearly_best() if native is None else native.best(self.contexts, shape)
        best, unsure = sure
        doubtful = np.flatnonzero(unsure)
        for some in _in_turn(doubtful, max(1, LOGITS_AT_ONCE // self.model.vocab_size)):
            best.ravel()[some] = self.rows(some).argmax(-1)
        return best

    def _nearly_best(self) -> tuple[np.ndarray, np.ndarray]:
        """Find the best words from stored continuations, and mark those that are uncertain."""
        model, shape = self.model, self.tokens.shape
        log_probs = model.log_probs[1]
        best = np.full(shape, log_probs.argmax())
        value, unsure = log_probs[best], np.zeros(shape, bool)
        for n, context in enumerate(self.contexts, start=2):
            words, values = model.best_continuations(n)
            if values.size == 0:
                break  # no context is so long: every text counted was shorter
            stored = context >= 0
            at = np.where(stored, context, 0)
            word, mine = words[at], np.where(stored, values[at], -np.inf)
            lower = model.back_off(value, model.backoffs_of(n - 1, context))
            near = stored & (mine <= lower) & (mine > -np.inf)
            unsure[near] |= model.find(n, context[near], best[near]) >= 0
            better = (mine > lower) | ((mine == lower) & stored & (word < best))
            unsure &= ~(mine > lower)
            best = np.where(better, word, best)
            value = np.where(better, mine, lower)
        return best, unsure


def look_up(table: np.ndarray, ids: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Look up table values at `ids`, with `otherwise` for ids that are `NOTHING`."""
    if not table.size:
        return np.broadcast_to(otherwise, ids.shape).copy()
    return np.where(ids >= 0, table[np.maximum(ids, 0)], otherwise)


def best_continuations(
    keys: np.ndarray, log_probs: np.ndarray, count: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find each context's most probable stored next word and its log-probability.

    Of equals it is the smallest word; a context without any has -inf.

    Args:
        keys: of n-grams of one order; see `Level`.
        log_probs: theirs.
        count: how many contexts there are.
        size: V.
    """
    contexts, words = np.divmod(keys, size)
    values, firsts = np.full(count, -np.inf, log_probs.dtype), np.full(count, size)
    if keys.size:
        begins = np.flatnonzero(np.concatenate([[True], contexts[1:] != contexts[:-1]]))
        there = contexts[begins]
        values[there] = np.maximum.reduceat(log_probs, begins)
        words[log_probs != values[contexts]] = size
        firsts[there] = np.minimum.reduceat(words, begins)
    return firsts, values


def _in_turn(places: np.ndarray, at_once: int) -> list[np.ndarray]:
    return [places[at : at + at_once] for at in range(0, places.size, at_once)]
