"""Storage of lines in a Hopfield network, in one pass and without gradients."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from seqgen.errors import SeqgenError
from seqgen.plugins.hopfield.arrays import CAPACITY, RULES
from seqgen.plugins.hopfield.model import Hopfield
from seqgen.settings.training import TrainingConfig
from seqgen.store.loaded import LoadedModel
from seqgen.text.corpus import Corpus
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.estimators import EstimationResult, Estimator, impossible_ids
from seqgen.training.events import Notice, Report
from seqgen.wording import plural


def store_lines(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> EstimationResult:
    """Store the lines of the training part in the network; see `Estimator.run`."""
    began = time.perf_counter()
    framing, units = loaded.framing, loaded.model.config.units
    never = impossible_ids(prepared.tokenizer, framing)
    stored = store_patterns(loaded.model, prepared.train, never, framing.end, training.seed)
    load = f"{plural(stored, 'pattern')} in {plural(units, 'unit')}, {stored / units:.3f} per unit"
    full = stored > CAPACITY * units
    more = f"; above {CAPACITY:g}, few are restored: raise bits" if full else ""
    report(Notice(text=load + more))
    return EstimationResult(
        seconds=time.perf_counter() - began,
        tokens=int(prepared.train.tokens.size),
        seed=training.seed,
        facts=lambda: {"patterns": stored},
    )


STORING = Estimator(
    store_lines, "associative memories", ("stored", "in one pass"), frozenset({"seed"})
)


def store_patterns(
    model: Hopfield, corpus: Corpus, impossible: Sequence[int], end: int, seed: int
) -> int:
    """Store every distinct line in the network; return their number.

    What follows a line's end is random: if it were the same for all lines, short ones would run
    into one another.

    Args:
        model: its configuration says how lines become patterns.
        corpus: the lines, each with its end.
        impossible: ids that no line has, such as padding.
        end: the id that ends each line.
        seed: what the tokens' codes are drawn from, and what follows the ends.

    Raises:
        SeqgenError: a line is too long.
    """
    config = model.config
    lines = padded(corpus, config.length, end)
    random = np.random.default_rng(seed)
    signs = np.array([-1, 1], dtype=np.int8)
    codes = random.choice(signs, (config.length, config.vocab_size, config.bits))
    codes[:, list(impossible)] = 0
    patterns = codes[np.arange(config.length), lines]  # (P, L, bits)
    ended = np.cumsum(lines == end, axis=1) > 1
    patterns[ended] = random.choice(signs, (np.count_nonzero(ended), config.bits))
    patterns = patterns.reshape(len(lines), -1)  # (P, n)
    model.codes.copy_(torch.from_numpy(codes))
    model.weights.copy_(torch.from_numpy(RULES[config.rule](patterns)))
    return len(patterns)


def padded(corpus: Corpus, length: int, end: int) -> np.ndarray:
    """Return the distinct lines of a corpus, padded with `end` to (P, length) int64.

    Raises:
        SeqgenError: a line is longer.
    """
    sizes = np.diff(corpus.ends, prepend=0) - 1  # without the end
    if sizes.max() > length:
        number = int(np.argmax(sizes > length))
        raise SeqgenError(
            f"line {number + 1} has {sizes[number]:,} tokens, more than length {length:,}; "
            f"shorten it, or give --set length={sizes.max()}"
        )
    at = corpus.starts[:, None] + np.arange(length)
    inside = np.arange(length) < sizes[:, None]
    lines = np.where(inside, corpus.tokens[np.where(inside, at, 0)], end).astype(np.int64)
    return np.unique(lines, axis=0)
