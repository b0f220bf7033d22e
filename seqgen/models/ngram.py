"""N-gram models: a sorted table of n-grams for each order, with probabilities and backoffs.

However they were smoothed, all are asked in the same way (Katz 1987, in the form of an ARPA
file): for the longest n-gram (context, word) that is stored, its probability; for each longer
context that is stored, its backoff weight on top.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqgen.configs import ModelConfig, require, setting
from seqgen.models.base import LOGITS_AT_ONCE, LanguageModel
from seqgen.models.state import State
from seqgen.registry import SHARED_DOCS

Smoothing = Literal[
    "maximum-likelihood", "add-delta", "stupid-backoff", "kneser-ney", "modified-kneser-ney"
]
# The word in place of those before the start of a text.
NOTHING = -1
# The highest order: V^N is still a number that can be written down.
MOST = 255
# With no more tokens than this a row (V) of probabilities is made as quickly as it is looked up.
QUICK_VOCABULARY = 1024


@dataclass(frozen=True, kw_only=True)
class NGramConfig(ModelConfig):
    """An n-gram model and how it is smoothed."""

    order: int = setting(SHARED_DOCS["order"], 5)
    smoothing: Smoothing | None = setting(SHARED_DOCS["smoothing"], "modified-kneser-ney")
    delta: float = setting("With smoothing=add-delta: number added to every count.", 0.1)
    backoff: float = setting(
        "With smoothing=stupid-backoff: factor of each step back (0.4 in Brants et al. 2007).", 0.4
    )
    prune: str = setting(
        "Drop n-grams that occur at most this often: numbers with commas for orders 1"
        " (always 0), 2, 3 and so on; the last one repeats.",
        "0",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.order <= MOST, f"order is from 1 to {MOST}, not {self.order}")
        require(self.delta > 0, f"delta is more than 0, not {self.delta}")
        require(0 < self.backoff <= 1, f"backoff is more than 0 and at most 1, not {self.backoff}")
        parts = self.prune.split(",")
        require(
            all(part.strip().isdigit() for part in parts),
            f"prune is whole numbers with commas, such as 0,0,1, not {self.prune!r}",
        )
        limits = list(map(int, parts))
        require(limits[0] == 0, "prune begins with 0: every word keeps its unigram")
        require(limits == sorted(limits), "prune never falls from one order to the next")

    @property
    def thresholds(self) -> tuple[int, ...]:
        """For each order 1 to N, the count up to which an n-gram is dropped."""
        limits = [int(part) for part in self.prune.split(",")]
        return tuple((limits + limits[-1:] * self.order)[: self.order])


@dataclass(frozen=True)
class Level:
    """The n-grams of one order n.

    Attributes:
        keys: (M,) int64, ascending: (id of the first n - 1 words) V + (the last word). An n-gram's
            id is its place here; that of a single word is the word's own.
        log_probs: (M,) the last word's log-probability after the others, in nats.
        backoffs: (M,) the log of what its continuations' lower-order probabilities are scaled
            by, where it is the context; 0 where it has no continuation.
    """

    keys: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray


@dataclass
class NGramState(State):
    """The last N - 1 words of each row, (B, N - 1); `NOTHING` before the start of the text."""

    words: Tensor


class NGram(LanguageModel):
    """The registry's `ngram`.

    Until it is filled with what was counted, every token is equally probable.
    """

    counted = True
    rows_at_least = 1024
    config: NGramConfig

    def __init__(self, config: NGramConfig) -> None:
        super().__init__()
        self.config, self.order = config, config.order
        size = config.vocab_size
        uniform = Level(np.arange(size), np.full(size, -np.log(size)), np.zeros(size))
        empty = Level(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        self.fill([uniform] + [empty] * (self.order - 1))

    def fill(self, levels: Sequence[Level]) -> None:
        """Take the n-grams of every order, 1 to N; those of order 1 are all V words."""
        self._forget()
        dtype, device = torch.float32, None
        if "log_probs_1" in self._buffers:
            dtype, device = self._log_probs(1).dtype, self.device
        for n, level in enumerate(levels, start=1):
            tables = {f"log_probs_{n}": torch.from_numpy(level.log_probs).to(dtype)}
            if n > 1:
                tables[f"keys_{n}"] = torch.from_numpy(level.keys)
            if n < self.order:
                tables[f"backoffs_{n}"] = torch.from_numpy(level.backoffs).to(dtype)
            for name, table in tables.items():
                self.register_buffer(name, table.to(device))

    def _forget(self) -> None:
        self._rows: OrderedDict[int, Tensor] = OrderedDict()
        self._best: dict[int, tuple[Tensor, Tensor]] = {}

    def _apply(self, *args: Any, **kwargs: Any) -> NGram:
        self._forget()  # what was worked out on another device, or in another type
        super()._apply(*args, **kwargs)
        for name, table in self._buffers.items():
            if table.is_floating_point() and table.itemsize < 4:
                self._buffers[name] = table.float()  # log-probabilities are never in less
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take tables of any size as they are, memory-mapped where they are."""
        self._forget()
        given = {n.removeprefix(prefix): t for n, t in state_dict.items() if n.startswith(prefix)}
        unexpected_keys += [prefix + name for name in given if name not in self._buffers]
        missing_keys += [prefix + name for name in self._buffers if name not in given]
        for name, tensor in given.items():
            if name in self._buffers:
                self._buffers[name] = tensor.to(self._buffers[name])
        for n in range(1, self.order + 1):
            size = self.vocab_size if n == 1 else self._keys(n).numel()
            tables = [self._log_probs(n)] + ([self._backoffs(n)] if n < self.order else [])
            if any(table.shape != (size,) for table in tables):
                error_msgs.append(f"the {n}-grams' tables are not of one size")

    def _keys(self, n: int) -> Tensor:
        return self._buffers[f"keys_{n}"]

    def _log_probs(self, n: int) -> Tensor:
        return self._buffers[f"log_probs_{n}"]

    def _backoffs(self, n: int) -> Tensor:
        return self._buffers[f"backoffs_{n}"]

    @property
    def levels(self) -> list[Level]:
        """The n-grams of every order, 1 to N."""
        found = []
        for n in range(1, self.order + 1):
            log_probs = self._log_probs(n).double().cpu().numpy()
            keys = np.arange(self.vocab_size) if n == 1 else self._keys(n).cpu().numpy()
            last = n == self.order
            backoffs = np.zeros(keys.size) if last else self._backoffs(n).double().cpu().numpy()
            found.append(Level(keys, log_probs, backoffs))
        return found

    def parameter_count(self) -> int:
        """Return the number of stored probabilities and backoffs."""
        return sum(t.numel() for t in self.buffers() if t.is_floating_point())

    def start(self, batch: int, stride: int | None = None) -> NGramState:
        return NGramState(
            torch.full((batch, self.order - 1), NOTHING, dtype=torch.int64, device=self.device)
        )

    def forward(
        self, tokens: Tensor, state: NGramState | None = None, last: int | None = None
    ) -> tuple[Tensor, NGramState | None]:
        words, after = self._read(tokens, state)
        kept = tokens.shape[1] if last is None else min(last, tokens.shape[1])
        contexts = self._contexts(words, kept)
        rows = self._distributions([ids.flatten() for ids in contexts], tokens.shape[0] * kept)
        return rows.view(tokens.shape[0], kept, -1), None if state is None else after

    def _read(self, tokens: Tensor, state: NGramState | None) -> tuple[Tensor, NGramState]:
        """Return the words (B, N - 1 + T) up to each token, and the state after the last."""
        state = state or self.start(tokens.shape[0])
        words = torch.cat([state.words, tokens], 1)
        return words, NGramState(words[:, words.shape[1] - self.order + 1 :])

    def nodes(self, words: Tensor, order: int) -> list[Tensor]:
        """Find all n-grams of a text.

        Args:
            words: (B, L); `NOTHING` before the start of a text.
            order: the longest n-grams to look for.

        Returns:
            For n = 1 to `order`, the id of the n-gram that ends at each word, (B, L); `NOTHING`
            where it is not stored.
        """
        found = [words][:order]
        for n in range(2, order + 1):
            before = torch.nn.functional.pad(found[-1][:, :-1], (1, 0), value=NOTHING)
            found.append(self._find(n, before, words))
        return found

    def _find(self, n: int, contexts: Tensor, words: Tensor) -> Tensor:
        """Return the ids of the n-grams (context, word), given the contexts' ids."""
        keys = self._keys(n)
        found = torch.full_like(words, NOTHING)
        stored = contexts >= 0
        if keys.numel():
            # Most contexts of the higher orders are not there: no search for these.
            wanted = contexts[stored] * self.vocab_size + words[stored]
            at = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
            found[stored] = torch.where(keys[at] == wanted, at, NOTHING)
        return found

    def _back_off(self, lower: Tensor, weights: Tensor) -> Tensor:
        """Return the log-probabilities of words unseen after a context that is stored.

        Args:
            lower: their log-probabilities after the context without its first word.
            weights: the context's backoff, of a shape that broadcasts.
        """
        if self.config.smoothing != "add-delta":
            return lower + weights
        # Every unseen word has the same share, whatever it has after a shorter context.
        return torch.where((weights < 0) & (lower > -torch.inf), weights, lower)

    def score(
        self, tokens: Tensor, targets: Tensor, state: NGramState
    ) -> tuple[Tensor, NGramState]:
        contexts, ids, after = self._places(tokens, targets, state)
        return self._look_up(contexts, ids, targets), after

    def _places(
        self, tokens: Tensor, targets: Tensor, state: NGramState
    ) -> tuple[list[Tensor], list[Tensor], NGramState]:
        """Return, for n = 2 to N, the ids (B, T) of contexts and of n-grams with the targets."""
        words, after = self._read(tokens, state)
        length = tokens.shape[1]
        if torch.equal(tokens[:, 1:], targets[:, :-1]):
            # A text: an n-gram that ends at a target is the next target's context.
            nodes = self.nodes(torch.cat([words, targets[:, -1:]], 1), self.order)
            contexts = [ids[:, -length - 1 : -1] for ids in nodes[:-1]]
            return contexts, [ids[:, -length:] for ids in nodes[1:]], after
        contexts = self._contexts(words, length)
        return contexts, [self._find(n, c, targets) for n, c in enumerate(contexts, 2)], after

    def _contexts(self, words: Tensor, kept: int) -> list[Tensor]:
        """Return the ids (B, T) of the last 1 to N - 1 words at each of the last T places."""
        words = words[:, words.shape[1] - kept - max(0, self.order - 2) :]
        return [ids[:, -kept:] for ids in self.nodes(words, self.order - 1)]

    def _look_up(self, contexts: list[Tensor], ids: list[Tensor], targets: Tensor) -> Tensor:
        log_probs = self._log_probs(1)[targets]  # (B, T)
        for n, (context, found) in enumerate(zip(contexts, ids, strict=True), start=2):
            lower = self._back_off(log_probs, self._weights(n - 1, context))
            log_probs = _chosen(self._log_probs(n), found, lower)
        return log_probs

    def _weights(self, n: int, contexts: Tensor) -> Tensor:
        """Return the backoffs of contexts of n words; 0 for those that are not stored."""
        return _chosen(self._backoffs(n), contexts, torch.zeros((), device=contexts.device))

    @property
    def quick_ranks(self) -> bool:
        return self.vocab_size <= QUICK_VOCABULARY

    def hits(
        self, tokens: Tensor, targets: Tensor, state: NGramState
    ) -> tuple[Tensor, Tensor, NGramState]:
        contexts, ids, after = self._places(tokens, targets, state)
        best = self._best_words([c.flatten() for c in contexts], targets.numel())
        return self._look_up(contexts, ids, targets), best.view_as(targets) == targets, after

    def _best_words(self, contexts: list[Tensor], count: int) -> Tensor:
        """Return the most probable word after each of some contexts, without their rows.

        A context's best word is its best stored continuation, or the best word after the shorter
        context. Only where that one is itself a continuation, and lost by being one, might a
        third be better: there the row is made.
        """
        log_probs = self._log_probs(1)
        best = torch.full((count,), int(_first_best(log_probs)), device=self.device)
        value = log_probs[best]
        unsure = torch.zeros(count, dtype=torch.bool, device=self.device)
        for n, context in enumerate(contexts, start=2):
            words, values = self._best_continuations(n)
            if values.numel() == 0:
                break  # no context is so long: every text counted was shorter
            stored = context >= 0
            at = torch.where(stored, context, 0)
            word, mine = words[at], torch.where(stored, values[at], -torch.inf)
            lower = self._back_off(value, self._weights(n - 1, context))
            near = torch.nonzero(stored & (mine <= lower) & (mine > -torch.inf)).squeeze(1)
            unsure[near] |= self._find(n, context[near], best[near]) >= 0
            better = (mine > lower) | ((mine == lower) & stored & (word < best))
            unsure &= ~(mine > lower)
            best = torch.where(better, word, best)
            value = torch.where(better, mine, lower)
        doubtful = torch.nonzero(unsure).squeeze(1)
        if doubtful.numel() == 0:
            return best
        for some in doubtful.split(max(1, LOGITS_AT_ONCE // self.vocab_size)):
            rows = self._distributions([ids[some] for ids in contexts], some.numel())
            best[some] = _first_best(rows)
        return best

    def _best_continuations(self, n: int) -> tuple[Tensor, Tensor]:
        """Return each context's most probable stored continuation: word and log-probability."""
        if n not in self._best:
            keys, log_probs = self._keys(n), self._log_probs(n)
            contexts, words = keys // self.vocab_size, keys % self.vocab_size
            count = self._log_probs(n - 1).numel()
            values = log_probs.new_full((count,), -torch.inf)
            values.scatter_reduce_(0, contexts, log_probs, "amax")
            words = torch.where(log_probs == values[contexts], words, self.vocab_size)
            firsts = words.new_full((count,), self.vocab_size)
            self._best[n] = firsts.scatter_reduce_(0, contexts, words, "amin"), values
        return self._best[n]

    def _distributions(self, contexts: list[Tensor], count: int) -> Tensor:
        """Return the log-probabilities (M, V) after each of M = `count` contexts.

        Args:
            contexts: for n = 1 to N - 1, the ids (M,) of their last n words.
            count: M.
        """
        # Contexts that share their longest stored part share their distribution.
        longest = torch.zeros(count, dtype=torch.int64, device=self.device)
        for n, ids in enumerate(contexts, start=1):
            longest = torch.where(ids >= 0, ids * self.order + n, longest)
        distinct, which = torch.unique(longest, return_inverse=True)  # (U,), (M,)
        names = distinct.tolist()
        # Taken once: another thread may drop what is kept.
        kept = {name: row for name in names if (row := self._rows.get(name)) is not None}
        new = [i for i, name in enumerate(names) if name not in kept]
        made: dict[int, Tensor] = {}
        if new:
            first = torch.empty(len(names), dtype=torch.int64, device=self.device)
            first[which] = torch.arange(count, device=self.device)
            rows = self._make_rows([ids[first[new]] for ids in contexts], len(new))
            if len(new) == len(names):
                self._keep(dict(zip(names, rows, strict=True)))
                return rows[which]
            made = dict(zip([names[i] for i in new], rows, strict=True))
        rows = torch.stack([made[n] if n in made else kept[n] for n in names])
        self._keep(made)
        return rows[which]

    def _keep(self, rows: dict[int, Tensor]) -> None:
        """Keep distributions for the next calls, the latest made, as many as logits at once."""
        room = LOGITS_AT_ONCE // self.vocab_size
        if len(rows) <= room // 2:
            # Copies, so that a row kept does not keep all that were made with it.
            self._rows.update((name, row.clone()) for name, row in rows.items())
        while len(self._rows) > room:
            self._rows.popitem(last=False)

    def _make_rows(self, contexts: list[Tensor], count: int) -> Tensor:
        rows = self._log_probs(1).repeat(count, 1)  # (M, V)
        for n, ids in enumerate(contexts, start=2):
            rows = self._back_off(rows, self._weights(n - 1, ids)[:, None])
            row = torch.nonzero(ids >= 0).squeeze(1)
            keys, size = self._keys(n), self.vocab_size
            begin = torch.searchsorted(keys, ids[row] * size)
            counts = torch.searchsorted(keys, (ids[row] + 1) * size) - begin
            total = int(counts.sum())
            skipped = counts.cumsum(0) - counts
            at = torch.arange(total, device=self.device)
            at += torch.repeat_interleave(begin - skipped, counts)
            which = torch.repeat_interleave(row, counts)
            rows[which, keys[at] % size] = self._log_probs(n)[at]
        return rows


def _chosen(table: Tensor, ids: Tensor, otherwise: Tensor) -> Tensor:
    """Return the table's values at `ids`, and `otherwise` where an id is `NOTHING`."""
    if table.numel() == 0:
        return otherwise.expand(ids.shape)
    return torch.where(ids >= 0, table[ids.clamp(min=0)], otherwise)


def _first_best(log_probs: Tensor) -> Tensor:
    """Return the argmax of the last dimension; of equals the first."""
    best = log_probs.max(-1, keepdim=True).values
    ids = torch.arange(log_probs.shape[-1], device=log_probs.device)
    return torch.where(log_probs == best, ids, log_probs.shape[-1]).min(-1).values
