"""Unlikelihood training: the real text, with a penalty on repeated tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from seqgen.text.batches import IGNORED
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress

# 1 - p is kept above this, so that its logarithm stays finite.
LEAST = 1e-5


class Unlikelihood(Regime):
    """Token-level unlikelihood training (Welleck et al. 2020, equations 4 and 5).

    -log p(x_t) - alpha sum_{c in C_t} log(1 - p(c)),  C_t = {x_1 ... x_{t-1}} without x_t

    where the context is what the row reads in this window.
    """

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        reading = self.read(rows)
        log_probs = reading.logits.log_softmax(-1)
        minimised, nats = self.reader.costs(reading, rows.targets, log_probs)
        penalty = unlikelihood(log_probs, rows.tokens, rows.targets)
        self.note("unlikelihood", penalty.detach(), int(rows.scored.sum()))
        return Loss(minimised + self.config.unlikelihood_weight * penalty, nats, reading.state)


def unlikelihood(log_probs: Tensor, tokens: Tensor, targets: Tensor) -> Tensor:
    """Compute the unlikelihood loss -sum_t sum_{c in C_t} log(1 - p_t(c)).

    Args:
        log_probs: (B, T, V), of the token after each.
        tokens: (B, T), what was read; those up to t are the candidates of t, each counted once.
        targets: (B, T), which are no candidates; IGNORED where nothing is scored.
    """
    batch, length = tokens.shape
    earlier = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()  # j <= t
    equal = tokens.unsqueeze(2) == tokens.unsqueeze(1)  # (B, T, T)
    first = ~(equal & earlier.tril(-1)).any(2)  # (B, T): the token occurs here for the first time
    candidates = tokens.unsqueeze(1).expand(batch, length, length)  # (B, t, j)
    penalised = earlier & first.unsqueeze(1) & (candidates != targets.unsqueeze(2))
    penalised &= (targets != IGNORED).unsqueeze(2)
    of_candidates = log_probs.gather(2, candidates)  # (B, t, j)
    # A probability of one would have no finite gradient: it is left out before the logarithm.
    not_p = (-torch.expm1(of_candidates)).clamp_min(LEAST)
    return -(not_p.log() * penalised).sum()
