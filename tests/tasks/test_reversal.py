"""Turning strings around: a task of which it is known where attention has to look."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqgen.models.seq2seq.model import EncoderDecoder, Seq2Seq, Seq2SeqConfig, Seq2SeqTransformer
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.text.batches import IGNORED, PairBatches
from seqgen.text.corpus import Corpus
from seqgen.text.sources import TokenSources

EOS, START = 2, 1
SIZE = {"vocab_size": 12, "hidden_size": 32, "dropout": 0.0}


def recurrent() -> Seq2Seq:
    return Seq2Seq(Seq2SeqConfig(**SIZE, attention="additive"))


def transformer() -> Seq2SeqTransformer:
    return Seq2SeqTransformer(Seq2SeqTransformerConfig(**SIZE, num_layers=2, num_heads=2, window=9))


def strings(count: int, seed: int) -> list[list[int]]:
    """Return strings of 4 to 8 letters, out of eight."""
    random = np.random.default_rng(seed)
    return [(4 + random.integers(0, 8, random.integers(4, 9))).tolist() for _ in range(count)]


def reversal(count: int, seed: int) -> Corpus:
    sources = strings(count, seed)
    targets = [[*source[::-1], EOS] for source in sources]
    ends = np.cumsum([len(target) for target in targets])
    both = TokenSources.of([[*source, EOS] for source in sources])
    return Corpus(np.concatenate(targets), ends, START, sources=both)


def trained(make, steps: int, lr: float) -> EncoderDecoder:
    torch.manual_seed(0)
    model = make().train()
    batches = PairBatches(reversal(32 * steps, 0), 32, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    for step in range(steps):
        batch = batches.batch(step)
        logits, _ = model(torch.from_numpy(batch.tokens), model.remember(batch.source))
        targets = torch.from_numpy(batch.targets).flatten()
        loss = F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@pytest.mark.slow
@pytest.mark.fast_for("recurrent*")  # the other takes half a minute
@pytest.mark.parametrize(
    ("make", "steps", "lr"), [(recurrent, 400, 0.01), (transformer, 800, 0.005)]
)
@torch.no_grad()
def test_attention_looks_at_the_mirrored_place(make, steps, lr):
    with torch.enable_grad():
        model = trained(make, steps, lr)
    held_out = PairBatches(reversal(200, 1), 200, seed=0).batch(0)
    memory = model.remember(held_out.source)
    tokens, targets = map(torch.from_numpy, (held_out.tokens, held_out.targets))
    inside = targets != IGNORED
    right = (model(tokens, memory)[0].argmax(-1) == targets) | ~inside
    assert right.all(-1).float().mean() >= 0.95
    places = model.attend(tokens, memory).mean((1, 2)).argmax(-1)  # (B, T), over layers and heads
    letters = inside & (targets != EOS)
    # The last letter of a source stands before its EOS.
    lengths = torch.from_numpy(held_out.source.lengths)[:, None]
    mirrored = lengths - 2 - torch.arange(tokens.shape[1])
    assert (places == mirrored)[letters].float().mean() >= 0.95
