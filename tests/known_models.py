"""Loaded models for tests of decoding: a table of known chances, and tiny real ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seqgen import registry
from seqgen.hashing import uniforms
from seqgen.models.base import LanguageModel
from seqgen.models.state import State
from seqgen.settings import DataConfig, ModelConfig
from seqgen.store import StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.text.tokenizers import KINDS

ALPHABET = KINDS["char"]("abc \n")


@dataclass
class Seen(State):
    """Everything a row has read, so that the fake can check that nobody mixes rows up."""

    tokens: Tensor  # (B, T)
    lengths: Tensor  # (B,)

    @classmethod
    def cat(cls, states):
        width = max(s.tokens.shape[1] for s in states)
        padded = [torch.nn.functional.pad(s.tokens, (0, width - s.tokens.shape[1])) for s in states]
        return cls(torch.cat(padded), torch.cat([s.lengths for s in states]))


class Table(LanguageModel):
    """A known chance of each token after the last two: a trigram table from the hash."""

    def __init__(self, vocab_size):
        super().__init__()
        self.config = ModelConfig(vocab_size=vocab_size)
        self.calls = []

    def chances(self, before, last):
        draws = uniforms(17, before, last, np.arange(self.vocab_size))
        return np.where(draws < 0.3, 0.0, draws**2)

    def start(self, batch, stride=None):
        return Seen(torch.zeros(batch, 0, dtype=torch.int64), torch.zeros(batch, dtype=torch.int64))

    def forward(self, tokens, state=None, last=None):
        assert len(state.tokens) == len(tokens)
        self.calls.append(tokens.shape)
        rows, logits = [], []
        for past, length, new in zip(state.tokens, state.lengths, tokens, strict=True):
            row = [*past[:length].tolist(), *new.tolist()]
            at = range(len(row) - len(new) + 1, len(row) + 1)
            pairs = [(([0, 0, *row])[i : i + 2]) for i in at]
            with np.errstate(divide="ignore"):
                logits.append(np.log([self.chances(*p) for p in pairs]))
            rows.append(torch.tensor(row))
        lengths = torch.tensor([len(r) for r in rows])
        state = Seen(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths)
        logits = torch.from_numpy(np.stack(logits))
        return logits if last is None else logits[:, -last:], state


def loaded_as(model, tokenizer, documents="stream"):
    data = DataConfig(documents=documents, tokenizer=tokenizer.kind)
    return LoadedModel(StoredModel(Path("m")), model.eval(), tokenizer, data)


def fake(tokenizer=ALPHABET, documents="stream"):
    return loaded_as(Table(tokenizer.vocab_size), tokenizer, documents)


SMALL = {
    "transformer": {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "window": 6},
    "lstm": {"hidden_size": 8, "num_layers": 2},
    "gru": {"hidden_size": 8, "num_layers": 1},
    "rnn": {"hidden_size": 8, "num_layers": 2},
}


def real(name, tokenizer=ALPHABET, documents="stream"):
    kind = registry.architecture(name)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = kind.load_config()(vocab_size=tokenizer.vocab_size, **SMALL[name])
        model = kind.load_model()(config).double()
        for parameter in model.parameters():  # far from uniform, so that mistakes show
            torch.nn.init.normal_(parameter, std=0.7)
    return loaded_as(model, tokenizer, documents)
