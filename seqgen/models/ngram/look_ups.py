"""What an n-gram model says of given words, looked up and not written out."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from seqgen.models.base import LanguageModel
from seqgen.models.reader import LOGITS_AT_ONCE
from seqgen.models.scores import Predictions, Scores, Want, WrittenOut, first_best


class LookUps(Predictions):
    """The predictions of an n-gram model after each of the last T words of a text.

    Args:
        model: an `NGram`.
        words: (B, N - 1 + T), with what came before.
        length: T.
    """

    def __init__(self, model: LanguageModel, words: Tensor, length: int) -> None:
        self.model, self.words, self.length = model, words, length

    @cached_property
    def contexts(self) -> list[Tensor]:
        """For n = 1 to N - 1, the ids (B, T) of the last n words."""
        return self.model.contexts(self.words, self.length)

    def log_probs(self, targets: Tensor) -> Tensor:
        model = self.model
        ids = self._ids(targets)
        log_probs = model.log_probs(1)[targets]  # (B, T)
        for n, (context, ngrams) in enumerate(zip(self.contexts, ids, strict=True), start=2):
            lower = model.back_off(log_probs, model.backoffs_of(n - 1, context))
            log_probs = chosen_from(model.log_probs(n), ngrams, lower)
        return log_probs

    def _ids(self, targets: Tensor) -> list[Tensor]:
        """Return, for n = 2 to N, the ids (B, T) of the n-grams that end with the targets."""
        model, length = self.model, self.length
        known = "contexts" in self.__dict__
        tokens = self.words[:, self.words.shape[1] - length :]
        if not known and torch.equal(tokens[:, 1:], targets[:, :-1]):
            # A text: an n-gram that ends at a target is the next target's context.
            nodes = model.nodes(torch.cat([self.words, targets[:, -1:]], 1), model.order)
            self.contexts = [ids[:, -length - 1 : -1] for ids in nodes[:-1]]
            return [ids[:, -length:] for ids in nodes[1:]]
        return [model.find(n, c, targets) for n, c in enumerate(self.contexts, start=2)]

    def rows(self, places: Tensor) -> Tensor:
        contexts = [ids.flatten()[places] for ids in self.contexts]
        return self.model.distributions(contexts, places.numel())

    def ranks(self, targets: Tensor) -> Tensor:
        return self.score(targets, "ranks").ranks

    def score(self, targets: Tensor, want: Want) -> Scores:
        if want != "ranks":
            return super().score(targets, want)
        # Ranks need whole rows, so score with those: they are normalised, unlike rounded tables.
        flat_targets = targets.flatten()
        places = torch.arange(flat_targets.numel(), device=flat_targets.device)
        at_once = max(1, LOGITS_AT_ONCE // self.model.vocab_size)
        scores = [
            WrittenOut(self.rows(some)[None]).score(flat_targets[some][None], want)
            for some in places.split(at_once)
        ]
        flat = Scores.cat(scores)
        return Scores(*(x.view_as(targets) for x in (flat.log_probs, flat.hits, flat.ranks)))

    def best(self) -> Tensor:
        """Return the most probable word after each context, without writing out its row.

        A context's best word is its best stored continuation, or the best word after the shorter
        context. Only if the latter is itself a stored continuation, with a lower probability as
        one, might a third word be better: then the whole row is computed.
        """
        model, shape = self.model, (self.words.shape[0], self.length)
        log_probs = model.log_probs(1)
        best = torch.full(shape, int(first_best(log_probs)), device=model.device)
        value = log_probs[best]
        unsure = torch.zeros(shape, dtype=torch.bool, device=model.device)
        for n, context in enumerate(self.contexts, start=2):
            words, values = model.best_continuations(n)
            if values.numel() == 0:
                break  # no context is so long: every text counted was shorter
            stored = context >= 0
            at = torch.where(stored, context, 0)
            word, mine = words[at], torch.where(stored, values[at], -torch.inf)
            lower = model.back_off(value, model.backoffs_of(n - 1, context))
            near = stored & (mine <= lower) & (mine > -torch.inf)
            unsure[near] |= model.find(n, context[near], best[near]) >= 0
            better = (mine > lower) | ((mine == lower) & stored & (word < best))
            unsure &= ~(mine > lower)
            best = torch.where(better, word, best)
            value = torch.where(better, mine, lower)
        doubtful = torch.nonzero(unsure.flatten()).squeeze(1)
        if doubtful.numel() == 0:
            return best
        for some in doubtful.split(max(1, LOGITS_AT_ONCE // model.vocab_size)):
            best.view(-1)[some] = first_best(self.rows(some))
        return best


def chosen_from(table: Tensor, ids: Tensor, otherwise: Tensor) -> Tensor:
    """Return the table's values at `ids`, and `otherwise` where an id is `NOTHING`."""
    if table.numel() == 0:
        return otherwise.expand(ids.shape)
    return torch.where(ids >= 0, table[ids.clamp(min=0)], otherwise)
