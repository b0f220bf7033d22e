"""The pointer of a pointer sentinel mixture model (Merity et al. 2017)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqgen.models.memory.recent import Recent, recall, with_weights


class Pointer(nn.Module):
    """Shares probability between the vocabulary and the words of the last L positions.

    q_t = tanh(W h_t + b)
    a = softmax(q_t . h_{t-L+1}, ..., q_t . h_t, q_t . s)
    p(w) = g p_vocab(w) + sum over positions i with x_i = w of a_i,  where g is the last of a

    with s the sentinel and x_i the word read at position i: section 2 of Merity, Xiong, Bradbury
    and Socher (2017), "Pointer sentinel mixture models". Their second loss on the pointer alone
    is left out.

    Args:
        size: the width of h.
        reach: L.
    """

    def __init__(self, size: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.query = nn.Linear(size, size)
        self.sentinel = nn.Parameter(torch.empty(size))
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        nn.init.normal_(self.sentinel, std=1 / math.sqrt(size))

    def forward(self, logits: Tensor, features: Tensor, recent: Recent) -> Tensor:
        """Return the log-probabilities (B, Q, V) after the last Q positions.

        Args:
            logits: (B, Q, V), the vocabulary's.
            features: (B, T, H) of these positions, and maybe of others before them.
            recent: the past and these positions.
        """
        with torch.autocast(logits.device.type, enabled=False):
            features = features[:, -logits.shape[1] :].to(self.sentinel.dtype)
            queries = self.query(features).tanh()  # (B, Q, H)
            recalled = recall(queries, recent.features, recent.tokens, self.reach)
            sentinel = (queries @ self.sentinel).unsqueeze(-1).to(recalled.scores.dtype)
            log_weights = torch.cat([recalled.scores, sentinel], -1).log_softmax(
                -1
            )  # (B, Q, W + 1)
            log_probs = logits.log_softmax(-1) + log_weights[..., -1:]
            return with_weights(log_probs, log_weights[..., :-1].exp(), recalled.words)
