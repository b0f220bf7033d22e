"""What a token costs a hidden Markov model, by its number of states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqgen.plugins.hmm.baum_welch import expected_counts, random_tables
from seqgen.plugins.hmm.model import HMM
from seqgen.plugins.hmm.settings import HMMConfig
from seqgen.text.corpus import Corpus

# As many as the characters of a text; rows that are scored side by side, and tokens of each.
VOCAB, ROWS, LENGTH = 64, 64, 128


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time for a token, at one number of states.

    Attributes:
        states: K.
        scoring: by the forward algorithm, 64 rows side by side, in float32.
        training: in one iteration of EM, in float64.
    """

    states: int
    scoring: float
    training: float


def measure(numbers: Sequence[int], repeats: int) -> Iterator[Cost]:
    """Time random models on random tokens; the least of some runs."""
    tokens = np.random.default_rng(0).integers(0, VOCAB, ROWS * LENGTH)
    corpus = Corpus(tokens.astype(np.uint8), LENGTH * np.arange(1, ROWS + 1), 0)
    rows = torch.from_numpy(tokens).view(ROWS, LENGTH)
    for states in numbers:
        config = HMMConfig(vocab_size=VOCAB, num_states=states)
        possible = torch.ones(VOCAB, dtype=torch.float64)
        tables = random_tables(config, corpus, possible, 0)
        model = HMM(config).eval()
        model.fill(tables.initial, tables.transition, tables.emission)
        with torch.no_grad():
            scoring = _least(lambda: model(rows, model.start(ROWS)), repeats)  # noqa: B023
        training = _least(lambda: expected_counts(tables, corpus), repeats)  # noqa: B023
        yield Cost(states, 1e6 * scoring / tokens.size, 1e6 * training / tokens.size)


def _least(run: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of some runs, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)
