"""`python -m tests.benchmarks.distil`: what a student learns, and how a mixture is scored."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import training_batches

from . import distil

PLAIN = {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0, "precision": "float32", "warmup": 0.0}
FASTER = {**PLAIN, "optimizer": "adam", "lr": 0.02}


@pytest.fixture
def corpora():
    return distil.corpora("so it goes on and on and ends\n" * 40)


def model_of(symbols, seed):
    torch.manual_seed(seed)
    return RecurrentLM(LSTMConfig(vocab_size=symbols, hidden_size=8, num_layers=1, dropout=0.0))


def test_parts_and_symbols_by_hand():
    train, held_out, symbols = distil.corpora("abcabcabca")
    assert (train.tokens.tolist(), held_out.tokens.tolist()) == ([1, 2, 3] * 3, [1])
    assert symbols == 4


def test_a_student_that_is_its_teacher_learns_nothing_and_another_comes_nearer(corpora):
    train, _, symbols = corpora
    batches = training_batches(train, "stream", True, 4, 8, 1)
    teacher = model_of(symbols, 1)
    teacher.eval()
    student = copy.deepcopy(teacher)
    distil.distil(student, [teacher], batches, TrainingConfig(**PLAIN, steps=3))
    for own, wanted in zip(student.parameters(), teacher.parameters(), strict=True):
        torch.testing.assert_close(own, wanted, rtol=0, atol=1e-6)
    other = model_of(symbols, 2)
    tokens = torch.from_numpy(batches.batch(0).tokens).long()

    def distance():
        with torch.no_grad():
            wanted = teacher(tokens)[0].softmax(-1)
            own = other(tokens)[0].log_softmax(-1)
        return (wanted * (wanted.log() - own)).sum().item()

    before = distance()
    distil.distil(other, [teacher], batches, TrainingConfig(**FASTER, steps=60))
    assert distance() < 0.5 * before


def test_a_mixture_is_the_mean_of_probabilities(corpora):
    _, held_out, symbols = corpora
    models = [model_of(symbols, seed) for seed in (1, 2)]
    alone = distil.loss_of(models[0], held_out)
    distil.loss_of(models[1], held_out)
    assert distil.loss_of_mixture(models[:1] * 2, held_out) == pytest.approx(alone)
    tokens = torch.from_numpy(held_out.tokens.astype(np.int64))
    read = torch.cat([torch.tensor([0]), tokens[:-1]])[None]
    with torch.no_grad():
        mean = sum(model(read)[0].softmax(-1) for model in models)[0] / 2
    wanted = -mean[torch.arange(len(tokens)), tokens].log().mean().item()
    assert distil.loss_of_mixture(models, held_out) == pytest.approx(wanted, rel=1e-5)
