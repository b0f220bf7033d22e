"""Models for tests of searches, such as a table of all prefixes, and the texts they can write."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from seqgen.generation.hypotheses import LengthNorm
from seqgen.models.base import LanguageModel
from seqgen.models.recurrent.cells.gru import GRUConfig
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.state import State
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.settings import ModelConfig
from seqgen.settings.generation import BeamOptions


@dataclass
class Seen(State):
    """Every token read so far, (B, T)."""

    tokens: torch.Tensor


class Table(LanguageModel):
    """Draws its logits from a hash of all it has read: every prefix has its own distribution."""

    def __init__(self, vocab_size, seed=0, logits=None):
        super().__init__()
        self.config = ModelConfig(vocab_size=vocab_size)
        self.seed, self.logits = seed, logits

    def start(self, batch, stride=None):
        return Seen(torch.zeros(batch, 0, dtype=torch.int64))

    def after(self, prefix):
        if self.logits is not None:
            return self.logits(prefix)
        code = hash((self.seed, *prefix)) % 2**32
        return torch.from_numpy(np.random.default_rng(code).normal(0, 2, self.vocab_size))

    def forward(self, tokens, state=None, last=None):
        seen = torch.cat([state.tokens, tokens], 1)
        length, before = tokens.shape[1], state.tokens.shape[1]
        rows = [
            torch.stack([self.after(tuple(row[: before + t + 1])) for t in range(length)])
            for row in seen.tolist()
        ]
        logits = torch.stack(rows)
        return (logits if last is None else logits[:, -last:]), Seen(seen)


def neural(kind):
    """Draw the weights of a small transformer, LSTM or GRU with 7 tokens."""
    torch.manual_seed(3)
    if kind == "transformer":
        config = TransformerConfig(
            vocab_size=7, window=10, hidden_size=16, num_layers=2, num_heads=2
        )
        model = Transformer(config)
    else:
        config = {"lstm": LSTMConfig, "gru": GRUConfig}[kind](vocab_size=7, hidden_size=12)
        model = RecurrentLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model.double().eval()


def search_options(norm=None, **settings):
    """Return the settings of a beam search, with lengths weighed by `norm`."""
    norm = norm or LengthNorm()
    return BeamOptions(length_norm=norm.kind, alpha=norm.alpha, **settings)


def enumerated(model, prompt, eos, norm, max_tokens, allowed=lambda tokens: True):
    """Return every text and its score, from the definition alone; the best first."""
    found = []
    for length in range(1, max_tokens + 1):
        for text in itertools.product(range(model.vocab_size), repeat=length):
            ends = eos is not None and text[-1] == eos
            whole = (ends or length == max_tokens) and (eos is None or eos not in text[:-1])
            if not whole or not all(allowed(text[: n + 1]) for n in range(length)):
                continue
            total = sum(
                model.after((*prompt, *text[:n])).log_softmax(-1)[token].item()
                for n, token in enumerate(text)
            )
            found.append((total / norm(length), text))
    return sorted(found, key=lambda f: (-f[0], f[1]))
