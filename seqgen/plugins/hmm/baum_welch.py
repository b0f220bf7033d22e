"""Estimate hidden Markov models by EM: the Baum-Welch algorithm (Rabiner 1989)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from seqgen.plugins.hmm.model import HMM
from seqgen.plugins.hmm.settings import HMMConfig
from seqgen.text.batches import split_spans
from seqgen.text.corpus import Corpus

# Tokens of a piece: each is a sequence of its own, so that pieces can be read side by side.
PIECE = 256
# Elements (tokens x states) that are worked on at once: 32 MB an array in float64.
ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Tables:
    """Probabilities in float64: initial (K,), transition (K, K), emission (K, V)."""

    initial: Tensor
    transition: Tensor
    emission: Tensor


@dataclass
class ExpectedCounts:
    """Expected counts under some tables, summed over sequences; float64.

    Attributes:
        initial: (K,) how many sequences begin in each state.
        transition: (K, K) how often each state follows each.
        emission: (V, K) how often each state emits each token.
        log_likelihood: of the sequences, in nats.
    """

    initial: Tensor
    transition: Tensor
    emission: Tensor
    log_likelihood: float = 0.0

    @classmethod
    def none(cls, tables: Tables) -> ExpectedCounts:
        """Make counts that are all zero, shaped like `tables`."""
        of = (tables.initial, tables.transition, tables.emission.T)
        return cls(*(torch.zeros_like(table) for table in of))


@dataclass(frozen=True)
class EMIteration:
    """Progress of EM after one iteration.

    Attributes:
        number: from 1 on.
        seconds: since the start of the first.
        nats_per_token: the text's, under the probabilities before this iteration.
    """

    number: int
    seconds: float
    nats_per_token: float


def fit(
    model: HMM,
    corpus: Corpus,
    impossible: Sequence[int],
    seed: int,
    enough: Callable[[EMIteration], str | None],
) -> tuple[EMIteration, str]:
    """Estimate a hidden Markov model by EM from a random start, and store the tables in the model.

    Args:
        model: its configuration says how many states, what is added to counts, when to stop.
        corpus: the training part.
        impossible: ids that cannot occur in a text, such as padding and the start symbol.
        seed: of the random start.
        enough: takes each iteration; returns a reason to stop after it, or None.

    Returns:
        The last iteration, and why it was the last: "converged", or what `enough` gave.
    """
    began = time.perf_counter()
    config = model.config
    possible = torch.ones(config.vocab_size, dtype=torch.float64)
    possible[list(impossible)] = 0
    device = model.device if model.device.type == "cuda" else torch.device("cpu")
    possible = possible.to(device)
    tables = random_tables(config, corpus, possible, seed)
    before, stopped = np.inf, "converged"
    for number in count(1):
        expected = expected_counts(tables, corpus)
        nats = -expected.log_likelihood / corpus.tokens.size
        tables = maximise_likelihood(expected, tables, config.delta * possible)
        last = EMIteration(number, time.perf_counter() - began, nats)
        if reason := enough(last):
            stopped = reason
            break
        # Without a tolerance, rounding that makes the text look less probable is no reason to stop.
        if config.tolerance and before - nats < config.tolerance:
            break
        before = nats
    model.fill(tables.initial, tables.transition, tables.emission)
    return last, stopped


def random_tables(config: HMMConfig, corpus: Corpus, possible: Tensor, seed: int) -> Tables:
    """Draw initial tables for EM: uniformly random distributions times token frequencies.

    Equal states would stay equal, and nearly equal ones take many iterations to part.
    """
    generator = torch.Generator().manual_seed(seed)
    k, v = config.num_states, config.vocab_size

    def noise(*shape: int) -> Tensor:
        # Exponential draws, divided by their sum, are uniform over all distributions.
        draws = 1 - torch.rand(*shape, generator=generator, dtype=torch.float64)
        return -draws.log().to(possible.device)

    counts = torch.from_numpy(np.bincount(corpus.tokens, minlength=v)).to(possible) + possible
    initial, transition = noise(k), noise(k, k)
    emission = (0.1 + noise(k, v)) * counts * possible
    return Tables(
        *(table / table.sum(-1, keepdim=True) for table in (initial, transition, emission))
    )


def expected_counts(tables: Tables, corpus: Corpus) -> ExpectedCounts:
    """Compute the expected counts of a corpus: the E step, in batches of bounded memory."""
    total = ExpectedCounts.none(tables)
    for tokens, inside in batches(corpus, ELEMENTS // tables.initial.numel()):
        add_counts(total, tables, tokens, inside)
    return total


def batches(corpus: Corpus, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut the documents into pieces and yield batches of them, the shortest first.

    Args:
        corpus: the text.
        most: tokens of a batch, padding included; at least one piece is in it.

    Yields:
        Tokens (T, R) and which of them there are, (T, R) of bool: all but what follows a row's end.
    """
    begins, ends = split_spans(corpus.starts, corpus.ends, PIECE)
    order = np.argsort(ends - begins, kind="stable")
    while order.size:
        # Rows that are as long as the last of them: a shorter one is never left out for that.
        sizes = (ends - begins)[order[:most]]
        rows = max(1, int(np.count_nonzero(sizes * np.arange(1, sizes.size + 1) <= most)))
        taken, order = order[:rows], order[rows:]
        at = begins[taken] + np.arange(sizes[rows - 1])[:, None]  # (T, R)
        inside = at < ends[taken]
        tokens = np.where(inside, corpus.tokens[np.where(inside, at, 0)], 0).astype(np.int64)
        yield torch.from_numpy(tokens), torch.from_numpy(inside)


def add_counts(total: ExpectedCounts, tables: Tables, tokens: Tensor, inside: Tensor) -> None:
    """Add the expected counts of a batch of sequences to `total`, by the scaled forward-backward.

    alpha_t is divided by its sum c_t and beta_t by c_{t+1}, so that neither underflows, and
    log p = sum_t log c_t (Rabiner 1989, section V.A).

    Args:
        total: is added to.
        tables: pi, a and b.
        tokens: (T, R).
        inside: (T, R), which of the tokens belong to the sequences.
    """
    tokens, inside = tokens.to(tables.initial.device), inside.to(tables.initial.device)
    b = tables.emission.T[tokens]  # (T, R, K)
    b[~inside] = 1  # what follows a row's end is certain, whatever it is
    alpha, c = _forward(tables, b)
    beta = torch.ones_like(b[0])  # (R, K)
    gamma, after = torch.empty_like(b), b  # `after` takes the place of b, row by row
    for t in range(len(b) - 1, -1, -1):
        torch.mul(alpha[t], beta, out=gamma[t])
        torch.mul(b[t], beta, out=after[t]).div_(c[t])
        beta = after[t] @ tables.transition.T
    outside = ~inside[..., None]
    gamma.masked_fill_(outside, 0)
    after.masked_fill_(outside, 0)
    total.log_likelihood += float(c[..., 0][inside].log().sum())
    total.initial += gamma[0].sum(0)
    pairs = alpha[:-1].flatten(0, 1).T @ after[1:].flatten(0, 1)  # (K, K)
    total.transition += pairs * tables.transition
    total.emission.index_add_(0, tokens.flatten(), gamma.flatten(0, 1))


def _forward(tables: Tables, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the scaled forward variables alpha (T, R, K) and their scales c (T, R, 1)."""
    alpha, c = torch.empty_like(b), b.new_empty(*b.shape[:2], 1)
    before = tables.initial.expand_as(b[0])
    for t in range(len(b)):
        torch.mul(before, b[t], out=alpha[t])
        torch.sum(alpha[t], -1, keepdim=True, out=c[t])
        # A sum that underflowed is of a token that is next to impossible; nothing is divided by 0.
        c[t].clamp_(min=torch.finfo(b.dtype).tiny)
        alpha[t] /= c[t]
        before = alpha[t] @ tables.transition
    return alpha, c


def maximise_likelihood(expected: ExpectedCounts, before: Tables, added: Tensor) -> Tables:
    """Compute the most probable tables for expected counts: the M step.

    Args:
        expected: the counts.
        before: the tables under which they are expected; what has no count stays as it was.
        added: (V,) added to the expected count of each token in every state: the posterior
            maximum under a Dirichlet prior.
    """
    return Tables(
        _normalise(expected.initial, before.initial),
        _normalise(expected.transition, before.transition),
        _normalise(expected.emission.T + added, before.emission),
    )


def _normalise(counts: Tensor, otherwise: Tensor) -> Tensor:
    """Divide counts by their sum over the last axis; use `otherwise` where that is zero."""
    total = counts.sum(-1, keepdim=True)
    return torch.where(
        total > 0, counts / total.clamp(min=torch.finfo(counts.dtype).tiny), otherwise
    )
