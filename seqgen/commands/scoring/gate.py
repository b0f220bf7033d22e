"""What the gate of a mixture is fitted on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.commands.loading import joined
from seqgen.models.mixture.gate import orders_of
from seqgen.models.mixture.gate_fitting import Contexts, WholeDistributions, fit_gate
from seqgen.models.reader import Reader

# A gate reads every part's whole distribution, which n-gram models otherwise need not write out.
MOST_TOKENS = 1024
# So many numbers are kept of distributions, 64 MB; of longer texts, those before every n-th token.
MOST_KEPT = 1 << 24


@dataclass(frozen=True)
class Distributions:
    """A text as K parts predict it.

    Attributes:
        log_probs: (N, K), of each token under each part, in nats.
        matched: (N,) of int64, the order matched before each token; 0 without an n-gram model.
        places: (M,), ascending: the tokens before which distributions were kept.
        contexts: M of them.
    """

    log_probs: np.ndarray
    matched: np.ndarray
    places: np.ndarray
    contexts: Contexts

    def gate(self, count: int) -> tuple[tuple[float, ...], ...]:
        """Return a gate that is fitted on the first `count` contexts."""
        return tuple(map(tuple, fit_gate(self.contexts.take(slice(count)))))

    def loss(self, gate: Sequence[Sequence[float]], where: slice) -> float:
        """Return the nats per token of some of the contexts under a gate."""
        contexts = self.contexts.take(where)
        return contexts.nats(np.array(gate)) / len(contexts)


def distributions(
    parts: Sequence[Reader], columns: Callable[[Reader], np.ndarray], tokens: np.ndarray
) -> Distributions:
    """Read a text by all parts.

    Args:
        parts: in evaluation mode, of one engine.
        columns: scores the text; see `token_log_probs`.
        tokens: (N,), the text's.
    """
    mixture = joined(parts, [1.0] * len(parts))
    size = tokens.size * len(parts) * mixture.vocab_size
    read = WholeDistributions(mixture, every=-(-size // MOST_KEPT))
    found = columns(read)  # (N, K + 2)
    matched, numbers = found[:, -2:].T.astype(np.int64)
    places = np.flatnonzero(numbers >= 0)
    whole = np.concatenate(read.kept)[numbers[places]]
    _, orders = orders_of(parts)
    contexts = Contexts(whole, tokens[places].astype(np.int64), matched[places], orders)
    return Distributions(found[:, :-2], matched, places, contexts)
