"""GloVe against a transcription of its objective, and as a model of the command line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import words as corpus
from helpers_cli import records
from places import CORPORA
from word_classes import right_neighbours

from seqgen.plugins.vectors.models.glove import GloVe
from seqgen.plugins.vectors.models.settings import GloVeConfig
from seqgen.plugins.vectors.words import WordVectors, load_vectors

VOCAB, WIDTH = 8, 5


def network(tokens, ends=None, **settings):
    """Return a model with large random vectors, in float64, that has counted a text."""
    config = {"embedding_size": WIDTH, "context_size": 3, "count_limit": 4.0} | settings
    model = GloVe(GloVeConfig(vocab_size=VOCAB, **config)).double()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    model.survey(tokens, [0], ends)
    return model


def counted(documents, size):
    """Return X_ij by two loops: 1 / d for every place where j stands d words from i."""
    x = np.zeros((VOCAB, VOCAB))
    for document in documents:
        words = [word for word in document if word != 0]
        for t, i in enumerate(words):
            for s, j in enumerate(words):
                if 0 < abs(s - t) <= size:
                    x[i, j] += 1 / abs(s - t)
    return x


def objective(x, w, u, b, c, limit, power):
    """Return J, and its gradients by w, u, b and c, by a loop over pairs."""
    loss, grads = 0.0, [np.zeros_like(part) for part in (w, u, b, c)]
    for i, j in zip(*np.nonzero(x), strict=True):
        weight = min(1.0, (x[i, j] / limit) ** power)
        error = w[i] @ u[j] + b[i] + c[j] - np.log(x[i, j])
        loss += weight * error**2
        for grad, at, slope in zip(grads, (i, j, i, j), (u[j], w[i], 1.0, 1.0), strict=True):
            grad[at] += 2 * weight * error * slope
    return loss, grads


def text(seed=0, length=60):
    """Return random words; 0 is none."""
    return np.random.default_rng(seed).integers(0, VOCAB, length)


@pytest.mark.parametrize("power", [0.75, 1.0])
def test_loss_and_gradient_equal_a_transcription(power):
    """Reading the whole text once gives J, the sum over pairs, and its gradient."""
    tokens, ends = text(), np.array([25, 60])
    model = network(tokens, ends, count_power=power)
    x = counted([tokens[:25], tokens[25:]], 3)
    rows = np.full((2, 35), -1)
    rows[0, :25], rows[1] = tokens[:25], tokens[25:]
    found = model.loss(torch.from_numpy(rows))
    found.backward()
    tables = (model.embedding, model.context, model.bias, model.context_bias)
    w, u, b, c = (table.weight.detach().numpy() for table in tables)
    loss, grads = objective(x, w, u, b[:, 0], c[:, 0], 4.0, power)
    assert found.item() == pytest.approx(loss, rel=1e-6)  # X is in float32
    for table, grad in zip(tables, grads, strict=True):
        own = table.weight.grad.numpy()
        np.testing.assert_allclose(own, grad.reshape(own.shape), rtol=1e-5, atol=1e-6)


def test_counts_are_those_of_two_loops():
    tokens = text(1)
    model = network(tokens)
    found = np.zeros(VOCAB * VOCAB)
    found[model.pairs.numpy()] = model.times.numpy()
    np.testing.assert_allclose(found.reshape(VOCAB, VOCAB), counted([tokens], 3), rtol=1e-6)


def test_pairs_that_were_not_counted_cost_nothing():
    model = network(np.array([1, 2, 0, 3]), np.array([2, 4])).eval()
    assert model.loss(torch.tensor([[1, 3]])).item() == 0
    assert model.loss(torch.tensor([[1, 2]])).item() > 0


def test_a_words_vector_is_the_sum_of_its_two():
    model = network(text())
    torch.testing.assert_close(
        model.token_vectors(), model.embedding.weight.detach() + model.context.weight.detach()
    )


SMALL = ("--model", "glove", "--set", "embedding_size=8", "--seq-len", 16, "--batch-size", 4)


def test_stopping_and_resuming_changes_nothing(tmp_path, capsys):
    """What is counted is counted again."""
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{line}\n" for line in corpus.sentences()[:60]))
    given = (*SMALL, "--seed", 3, "--quiet", "--val", "0.2", "--steps", 8)
    (whole,) = records(capsys, "train", file, *given, "--name", "whole")
    records(capsys, "train", file, *given, "--stop-after", 3, "--name", "part")
    (resumed,) = records(capsys, "train", "--resume", "part", "--quiet")
    assert (resumed["steps"], resumed["val_loss"]) == (8, whole["val_loss"])
    assert whole["val_loss"] > 0
    one, other = (WordVectors.of(load_vectors(name)).vectors for name in ("whole", "part"))
    np.testing.assert_array_equal(one, other)
    (near, *_) = records(capsys, "vectors", "-m", "whole", "--neighbours", "monday")
    assert near["word"] == "monday"


@pytest.mark.long
def test_neighbours_of_known_classes(capsys):
    given = ("--model", "glove", "--steps", 400, "--seed", 1, "--quiet")
    records(capsys, "train", CORPORA / "words.txt", *given, "--name", "w")
    vectors = WordVectors.of(load_vectors("w"))
    assert right_neighbours(vectors) >= 0.95
