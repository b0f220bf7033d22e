"""N-gram models: a sorted table of n-grams for each order, with probabilities and backoffs.

However they were smoothed, all are asked in the same way (Katz 1987, in the form of an ARPA
file): for the longest n-gram (context, word) that is stored, its probability; for each longer
context that is stored, its backoff weight on top.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqgen.configs import ModelConfig, Span, ranges, require, setting, short
from seqgen.models.counted import CountedModel
from seqgen.models.ngram.look_ups import LookUps, chosen_from
from seqgen.models.ngram.state import NGramState, SteppedState
from seqgen.models.ngram.steps import Context, NGramSteps
from seqgen.models.reader import LOGITS_AT_ONCE
from seqgen.registry import SHARED_DOCS

Smoothing = Literal[
    "maximum-likelihood", "add-delta", "stupid-backoff", "kneser-ney", "modified-kneser-ney"
]
# The word in place of those before the start of a text.
NOTHING = -1
# The highest order: V^N is still a number that can be written down.
MOST = 255
# Of a count below which n-grams are dropped.
MOST_DIGITS = 15
# With no more tokens than this a row (V) of probabilities is made as quickly as it is looked up.
QUICK_VOCABULARY = 1024


@dataclass(frozen=True, kw_only=True)
class NGramConfig(ModelConfig):
    """An n-gram model and how it is smoothed."""

    order: int = setting(SHARED_DOCS["order"], 5, low=1, high=MOST, search=Span(2, 9))
    smoothing: Smoothing | None = setting(SHARED_DOCS["smoothing"], "modified-kneser-ney")
    delta: float = setting(
        "With smoothing=add-delta: number added to every count.", 0.1, above=0, high=1e9
    )
    backoff: float = setting(
        "With smoothing=stupid-backoff: factor for each order backed off (Brants et al. 2007).",
        0.4,
        ranges.POSITIVE_SHARES,
    )
    discount: float | None = setting(
        "With smoothing=kneser-ney: number subtracted from every count of an n-gram seen, for every"
        " order, such as 0.75; by default each order's is estimated from counts of counts.",
        None,
        ranges.POSITIVE_SHARES,
    )
    interpolate_unigrams: bool = setting(
        "With smoothing=kneser-ney and modified-kneser-ney: discount unigrams too and interpolate"
        " them with the uniform distribution. Without it a word's unigram probability is the"
        " number of distinct tokens before it, divided by the number of distinct bigrams; tokens"
        " that never occurred, usually the unknown token among them, have probability 0.",
        True,
    )
    prune: str = setting(
        "Drop n-grams that occur this often or less: comma-separated numbers for orders 1"
        " (always 0), 2, 3 and so on; the last one also holds for higher orders.",
        "0",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.discount is None or self.smoothing == "kneser-ney",
            "discount needs --smoothing kneser-ney",
        )
        require(
            self.interpolate_unigrams or self.smoothing in ("kneser-ney", "modified-kneser-ney"),
            "interpolate_unigrams=false needs --smoothing kneser-ney or modified-kneser-ney",
        )
        parts = [part.strip() for part in self.prune.split(",")]
        require(
            all(part.isdecimal() and len(part) <= MOST_DIGITS for part in parts),
            f"prune is whole numbers with commas, such as 0,0,1, not {short(repr(self.prune))}",
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


class NGram(CountedModel):
    """The registry's `ngram`.

    Until it is filled with what was counted, every token is equally probable.
    """

    rows_at_least = 1024
    config: NGramConfig

    def __init__(self, config: NGramConfig) -> None:
        super().__init__()
        self.config, self.order, self.orders = config, config.order, config.order
        size = config.vocab_size
        # Torch makes the large ones: it is where a `SizeLimit` counts.
        uniform = Level(
            torch.arange(size).numpy(),
            torch.full((size,), -math.log(size), dtype=torch.float64).numpy(),
            torch.zeros(size, dtype=torch.float64).numpy(),
        )
        empty = Level(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        self.fill([uniform] + [empty] * (self.order - 1))

    def fill(self, levels: Sequence[Level]) -> None:
        """Take the n-grams of every order, 1 to N; those of order 1 are all V words."""
        self._forget()
        dtype, device = torch.float32, None
        if "log_probs_1" in self._buffers:
            dtype, device = self.log_probs(1).dtype, self.device
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
        self._steps: NGramSteps | None = None

    def _apply(self, *args: Any, **kwargs: Any) -> NGram:
        self._forget()  # what was worked out on another device, or in another type
        return super()._apply(*args, **kwargs)

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
            size = self.vocab_size if n == 1 else self.keys(n).numel()
            tables = [self.log_probs(n)] + ([self.backoffs(n)] if n < self.order else [])
            if any(table.shape != (size,) for table in tables):
                error_msgs.append(f"the {n}-grams' tables are not of one size")
            contexts = self.log_probs(max(1, n - 1)).numel()
            if n > 1 and not _are_keys(self.keys(n), contexts * self.vocab_size):
                error_msgs.append(f"the {n}-grams are out of order, or continue what is not stored")

    def keys(self, n: int) -> Tensor:
        """Return the keys (M,) of order n, at least 2, ascending; see `Level`."""
        return self._buffers[f"keys_{n}"]

    def log_probs(self, n: int) -> Tensor:
        """Return the log-probability (M,) of every n-gram of order n."""
        return self._buffers[f"log_probs_{n}"]

    def backoffs(self, n: int) -> Tensor:
        """Return the backoffs (M,) of every n-gram of an order below N."""
        return self._buffers[f"backoffs_{n}"]

    @property
    def levels(self) -> list[Level]:
        """The n-grams of every order, 1 to N."""
        levels = []
        for n in range(1, self.order + 1):
            log_probs = self.log_probs(n).cpu().double().numpy()
            keys = np.arange(self.vocab_size) if n == 1 else self.keys(n).cpu().numpy()
            last = n == self.order
            backoffs = np.zeros(keys.size) if last else self.backoffs(n).cpu().double().numpy()
            levels.append(Level(keys, log_probs, backoffs))
        return levels

    def start(self, batch: int, stride: int | None = None) -> NGramState:
        return NGramState(
            torch.full((batch, self.order - 1), NOTHING, dtype=torch.int64, device=self.device)
        )

    def forward(
        self, tokens: Tensor, state: NGramState | None = None, last: int | None = None
    ) -> tuple[Tensor, NGramState | None]:
        words, after = self._read(tokens, state)
        kept = tokens.shape[1] if last is None else min(last, tokens.shape[1])
        contexts = self.contexts(words, kept)
        rows = self.distributions([ids.flatten() for ids in contexts], tokens.shape[0] * kept)
        return rows.view(tokens.shape[0], kept, -1), None if state is None else after

    def _read(self, tokens: Tensor, state: NGramState | None) -> tuple[Tensor, NGramState]:
        """Return the words (B, N - 1 + T) up to each token, and the state after the last."""
        state = state or self.start(tokens.shape[0])
        words = torch.cat([state.words, tokens], 1)
        return words, NGramState(words[:, words.shape[1] - self.order + 1 :])

    def step(self, tokens: Sequence[int], state: NGramState) -> tuple[np.ndarray, NGramState]:
        if self.log_probs(1).device.type != "cpu":
            return super().step(tokens, state)
        steps, contexts = self._contexts_of(state)
        contexts = [steps.read(c, int(t)) for c, t in zip(contexts, tokens, strict=True)]
        rows = [steps.row(context) for context in contexts]
        # The rows are kept by `steps`, so nobody else may write in them.
        logits = rows[0][None].copy() if len(rows) == 1 else np.stack(rows)
        return logits, SteppedState(contexts)

    def _contexts_of(self, state: NGramState) -> tuple[NGramSteps, list[Context]]:
        """Return the tables for steps on the CPU, and the contexts of a state's rows."""
        if self._steps is None:
            orders = range(1, self.order + 1)
            self._steps = NGramSteps(
                [self.log_probs(n) for n in orders],
                [self.keys(n) for n in orders[1:]],
                [self.backoffs(n) for n in orders[:-1]],
                self.config.smoothing == "add-delta",
            )
        if isinstance(state, SteppedState):
            return self._steps, state.contexts
        return self._steps, [self._steps.context(tuple(row)) for row in state.words.tolist()]

    def matched(self, tokens: Tensor, state: NGramState | None) -> Tensor:
        """Return how many words up to each of tokens (B, T) are stored as a context, 0 to N - 1."""
        words, _ = self._read(tokens, state)
        lengths = torch.zeros_like(tokens)
        for n, ids in enumerate(self.contexts(words, tokens.shape[1]), start=1):
            lengths = torch.where(ids >= 0, n, lengths)
        return lengths

    def matched_by(self, state: NGramState) -> list[int]:
        """Return how many of the last words of each row of a state are stored as a context."""
        if isinstance(state, SteppedState):
            return list(map(NGramSteps.matched, state.contexts))
        if self.order == 1:
            return [0] * state.words.shape[0]
        contexts = self.contexts(state.words, 1)
        stored = [torch.where(ids[:, 0] >= 0, n, 0) for n, ids in enumerate(contexts, start=1)]
        return torch.stack(stored).amax(0).tolist()

    def nodes(self, words: Tensor, order: int) -> list[Tensor]:
        """Find all n-grams of a text.

        Args:
            words: (B, L); `NOTHING` before the start of a text.
            order: the longest n-grams to look for.

        Returns:
            For n = 1 to `order`, the id of the n-gram that ends at each word, (B, L); `NOTHING`
            where it is not stored.
        """
        ids_by_order = [words][:order]
        for n in range(2, order + 1):
            before = torch.nn.functional.pad(ids_by_order[-1][:, :-1], (1, 0), value=NOTHING)
            ids_by_order.append(self.find(n, before, words))
        return ids_by_order

    def find(self, n: int, contexts: Tensor, words: Tensor) -> Tensor:
        """Return the ids of the n-grams (context, word), given the contexts' ids."""
        keys = self.keys(n)
        ids = torch.full_like(words, NOTHING)
        stored = contexts >= 0
        if keys.numel():
            # Most contexts of the higher orders are not there: no search for these.
            target_keys = contexts[stored] * self.vocab_size + words[stored]
            at = torch.searchsorted(keys, target_keys).clamp_(max=keys.numel() - 1)
            ids[stored] = torch.where(keys[at] == target_keys, at, NOTHING)
        return ids

    def back_off(self, lower: Tensor, weights: Tensor) -> Tensor:
        """Return the log-probabilities of words unseen after a context that is stored.

        Args:
            lower: their log-probabilities after the context without its first word.
            weights: the context's backoff, of a shape that broadcasts.
        """
        if self.config.smoothing != "add-delta":
            return lower + weights
        # Every unseen word has the same share, whatever it has after a shorter context.
        return torch.where((weights < 0) & (lower > -torch.inf), weights, lower)

    @property
    def quick_ranks(self) -> bool:
        return self.vocab_size <= QUICK_VOCABULARY

    @property
    def most_at_once(self) -> int:
        return LOGITS_AT_ONCE  # numbers for a token, not rows (V)

    def predictions(self, tokens: Tensor, state: NGramState) -> tuple[LookUps, NGramState]:
        words, after = self._read(tokens, state)
        return LookUps(self, words, tokens.shape[1]), after

    def contexts(self, words: Tensor, kept: int) -> list[Tensor]:
        """Return, for n = 1 to N - 1, the ids (B, T) of the last n words at the last T places."""
        words = words[:, words.shape[1] - kept - max(0, self.order - 2) :]
        return [ids[:, -kept:] for ids in self.nodes(words, self.order - 1)]

    def backoffs_of(self, n: int, contexts: Tensor) -> Tensor:
        """Return the backoffs of contexts of n words; 0 for those that are not stored."""
        return chosen_from(self.backoffs(n), contexts, torch.zeros((), device=contexts.device))

    def best_continuations(self, n: int) -> tuple[Tensor, Tensor]:
        """Return each context's most probable stored continuation: word and log-probability."""
        if n not in self._best:
            keys, log_probs = self.keys(n), self.log_probs(n)
            contexts, words = keys // self.vocab_size, keys % self.vocab_size
            count = self.log_probs(n - 1).numel()
            values = log_probs.new_full((count,), -torch.inf)
            values.scatter_reduce_(0, contexts, log_probs, "amax")
            words = torch.where(log_probs == values[contexts], words, self.vocab_size)
            firsts = words.new_full((count,), self.vocab_size)
            self._best[n] = firsts.scatter_reduce_(0, contexts, words, "amin"), values
        return self._best[n]

    def distributions(self, contexts: list[Tensor], count: int) -> Tensor:
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
        new_rows: dict[int, Tensor] = {}
        if new:
            first = torch.empty(len(names), dtype=torch.int64, device=self.device)
            first[which] = torch.arange(count, device=self.device)
            rows = self._make_rows([ids[first[new]] for ids in contexts], len(new))
            if len(new) == len(names):
                self._keep(dict(zip(names, rows, strict=True)))
                return rows[which]
            new_rows = dict(zip([names[i] for i in new], rows, strict=True))
        rows = torch.stack([new_rows[n] if n in new_rows else kept[n] for n in names])
        self._keep(new_rows)
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
        rows = self.log_probs(1).repeat(count, 1)  # (M, V)
        for n, ids in enumerate(contexts, start=2):
            rows = self.back_off(rows, self.backoffs_of(n - 1, ids)[:, None])
            row = torch.nonzero(ids >= 0).squeeze(1)
            keys, size = self.keys(n), self.vocab_size
            begin = torch.searchsorted(keys, ids[row] * size)
            counts = torch.searchsorted(keys, (ids[row] + 1) * size) - begin
            total = int(counts.sum())
            skipped = counts.cumsum(0) - counts
            at = torch.arange(total, device=self.device)
            at += torch.repeat_interleave(begin - skipped, counts)
            which = torch.repeat_interleave(row, counts)
            rows[which, keys[at] % size] = self.log_probs(n)[at]
        return rows


def _are_keys(keys: Tensor, end: int) -> bool:
    """Whether keys (M,) ascend from 0 or more and stay below `end`; see `Level`."""
    if keys.dim() != 1:
        return False
    ascend = bool((keys[1:] > keys[:-1]).all())
    return not keys.numel() or (ascend and int(keys[0]) >= 0 and int(keys[-1]) < end)
