"""word2vec against transcriptions of its equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqgen.engines.native.library import library
from seqgen.plugins.vectors.models.network import Draws
from seqgen.plugins.vectors.models.settings import Word2VecConfig
from seqgen.plugins.vectors.models.word2vec import Word2Vec

VOCAB, WIDTH = 9, 5


def network(**settings):
    """Return a model with large random vectors, in float64."""
    config = {"vocab_size": VOCAB, "embedding_size": WIDTH, "context_size": 2, "noise_words": 20}
    model = Word2Vec(Word2VecConfig(**{**config, **settings})).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    return model


def some_text(rows=3, length=23, seed=0):
    """Return tokens (B, T), with -1 where a row has ended."""
    tokens = np.random.default_rng(seed).integers(1, VOCAB, (rows, length))
    tokens[1, 17:] = -1
    return torch.from_numpy(tokens)


def test_tables_of_the_counts_are_made_once(monkeypatch):
    """And again after a survey of another text, or a change of type."""
    made, cumsum = [], torch.Tensor.cumsum
    monkeypatch.setattr(
        torch.Tensor, "cumsum", lambda x, *how: made.append(x.shape) or cumsum(x, *how)
    )
    model = network()
    for survey, times in (([1, 2, 2], 1), ([1, 3], 2)):
        model.survey(np.array(survey), [0])
        noise = [model.draw(some_text()).noise for _ in range(5)]
        assert made == [(VOCAB,)] * times
        assert {*torch.cat(noise).flatten().tolist()} == {*survey}
    model.float().draw(some_text())
    assert len(made) == 3


def pairs_of(tokens, draws):
    """Yield row, centre and the words of its context, as the lectures' double sum goes."""
    for row in range(len(tokens)):
        line = [i for i in range(tokens.shape[1]) if draws.kept[row, i]]
        for t, place in enumerate(line):
            m = int(draws.reach[row, place])
            near = [t + j for j in range(-m, m + 1) if j != 0 and 0 <= t + j < len(line)]
            yield row, int(tokens[row, place]), [int(tokens[row, line[n]]) for n in near]


def skip_gram(v, u, tokens, draws, negatives):
    """Return the loss and its gradients, by loops over words and pairs."""
    loss, dv, du = 0.0, np.zeros_like(v), np.zeros_like(u)
    for row, c, context in pairs_of(tokens, draws):
        for o in context:
            if not negatives:
                scores = u @ v[c]
                p = np.exp(scores - scores.max())
                p /= p.sum()
                loss -= np.log(p[o])
                slope = p - np.eye(len(u))[o]
                dv[c] += slope @ u
                du += np.outer(slope, v[c])
                continue
            noise = draws.noise[row].tolist()
            told = [(o, 1.0, 1.0), *((n, 0.0, negatives / len(noise)) for n in noise)]
            for word, truth, weight in told:
                sigma = 1 / (1 + np.exp(-u[word] @ v[c]))
                loss -= weight * np.log(sigma if truth else 1 - sigma)
                dv[c] += weight * (sigma - truth) * u[word]
                du[word] += weight * (sigma - truth) * v[c]
    return loss, dv, du


def cbow(v, u, tokens, draws, negatives):
    loss, dv, du = 0.0, np.zeros_like(v), np.zeros_like(u)
    for row, c, context in pairs_of(tokens, draws):
        if not context:
            continue
        h, dh = v[context].mean(0), np.zeros(v.shape[1])
        if negatives:
            noise = draws.noise[row].tolist()
            for word, truth, weight in [
                (c, 1.0, 1.0),
                *((n, 0.0, negatives / len(noise)) for n in noise),
            ]:
                sigma = 1 / (1 + np.exp(-u[word] @ h))
                loss -= weight * np.log(sigma if truth else 1 - sigma)
                dh += weight * (sigma - truth) * u[word]
                du[word] += weight * (sigma - truth) * h
        else:
            p = np.exp(u @ h)
            p /= p.sum()
            loss -= np.log(p[c])
            slope = p - np.eye(len(u))[c]
            dh, du = slope @ u, du + np.outer(slope, h)
        for word in context:
            dv[word] += dh / len(context)
    return loss, dv, du


def some_draws(tokens, reach):
    """Return words left out, contexts of any size up to a reach, and noise words."""
    torch.manual_seed(5)
    kept = (torch.rand(tokens.shape) < 0.7) & (tokens >= 0)
    kept[2] = False
    kept[2, 4] = True  # one word alone predicts nothing
    noise = torch.randint(0, VOCAB, (3, 3))
    return Draws(kept, torch.randint(1, reach + 1, tokens.shape), noise)


@pytest.mark.parametrize("negatives", [0, 4])
@pytest.mark.parametrize("form", [skip_gram, cbow])
def test_loss_and_gradient_equal_a_transcription(form, negatives):
    """Of the lectures' double sum, with words left out and contexts of any size."""
    name = form.__name__.replace("_", "-")
    model = network(form=name, negatives=negatives, context_size=3)
    tokens = some_text()
    draws = some_draws(tokens, 3)
    if not negatives:
        draws = draws._replace(noise=None)
    found = model.cost(model.windows(tokens, draws))
    found.backward()
    v, u = (p.detach().numpy() for p in (model.embedding.weight, model.context.weight))
    loss, dv, du = form(v, u, tokens, draws, negatives)
    assert found.item() == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(model.embedding.weight.grad.numpy(), dv, atol=1e-12)
    np.testing.assert_allclose(model.context.weight.grad.numpy(), du, atol=1e-12)


@pytest.mark.skipif(library() is None, reason="needs the compiled library")
@pytest.mark.parametrize(("width", "reach"), [(WIDTH, 3), (16, 1), (75, 30)])
def test_the_compiled_step_is_the_transcription_too(width, reach, monkeypatch):
    """In the loss that training asks for, whatever its gradient is multiplied by."""
    model = network(negatives=4, context_size=reach, embedding_size=width, noise_words=20).float()
    for parameter in model.parameters():
        parameter.data.mul_(WIDTH / width)
    draws = some_draws(some_text(), reach)
    monkeypatch.setattr(model, "draw", lambda _: draws)
    monkeypatch.setattr(model, "windows", None)  # no other way is taken
    found = model.loss(some_text())
    (2 * found).backward()
    v, u = (p.detach().double().numpy() for p in (model.embedding.weight, model.context.weight))
    loss, dv, du = skip_gram(v, u, some_text(), draws, 4)
    assert found.item() == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(model.embedding.weight.grad.numpy(), 2 * dv, atol=1e-4)
    np.testing.assert_allclose(model.context.weight.grad.numpy(), 2 * du, atol=1e-4)


def test_in_evaluation_the_loss_is_the_lectures_sum():
    """Nothing is left out, every context is whole, and the same is found again."""
    model = network(negatives=0, subsample=1e-9).eval()
    model.survey(np.arange(VOCAB), [0])
    tokens = some_text()
    whole = Draws(tokens > 0, torch.full_like(tokens, 2), None)
    v, u = (p.detach().numpy() for p in (model.embedding.weight, model.context.weight))
    assert model.loss(tokens).item() == pytest.approx(skip_gram(v, u, tokens, whole, 0)[0])
    model = network(negatives=3).eval()
    assert model.loss(tokens).item() == model.loss(tokens).item()
    torch.manual_seed(0)
    model.train()
    assert model.loss(tokens).item() != model.loss(tokens).item()


def test_the_full_softmax_minimises_the_formula():
    """J itself, in training too: nothing is left out and no context drawn unless asked for."""
    model = network(negatives=0, context_size=3).train()
    model.survey(np.repeat(np.arange(VOCAB), 1000), [0])
    tokens = some_text()
    whole = Draws(tokens > 0, torch.full_like(tokens, 3), None)
    v, u = (p.detach().numpy() for p in (model.embedding.weight, model.context.weight))
    assert model.loss(tokens).item() == pytest.approx(skip_gram(v, u, tokens, whole, 0)[0])
    for drawn in ({"dynamic": True}, {"subsample": 1e-3}):
        model = network(negatives=0, context_size=3, **drawn).train()
        model.survey(np.repeat(np.arange(VOCAB), 1000), [0])
        assert model.loss(tokens).item() != pytest.approx(model.eval().loss(tokens).item())


def test_what_is_no_word_is_left_out():
    """The words around an end or an unknown word stand next to each other."""
    model = network(negatives=0).eval()
    model.survey(np.array([3, 4, 5, 6, 1, 2, 7, 8]), [0, 2])
    with_gap, without = torch.tensor([[3, 2, 4, 0, 5]]), torch.tensor([[3, 4, 5]])
    assert model.loss(with_gap).item() == pytest.approx(model.loss(without).item())


def test_frequent_words_are_left_out_by_their_share():
    """Each is kept with probability (sqrt(share / t) + 1) t / share, as in word2vec's own code.

    Equation 5 of Mikolov et al. (2013) leaves out the 1.
    """
    model = network(subsample=0.01)
    counts = np.array([0, 0, 0, 0, 1, 4, 25, 70, 900])
    model.survey(np.repeat(np.arange(VOCAB), counts), [0])
    torch.manual_seed(1)
    tokens = torch.arange(4, VOCAB).repeat(20_000, 1)
    kept = model.draw(tokens).kept.double().mean(0).numpy()
    share = counts[4:] / counts.sum()
    wanted = np.minimum(1, (np.sqrt(share / 0.01) + 1) * 0.01 / share)
    np.testing.assert_allclose(kept, wanted, atol=0.012)


def test_noise_is_drawn_by_counts_to_three_quarters():
    model = network(noise_words=1 << 20)
    counts = np.array([5, 0, 0, 0, 1, 4, 25, 70, 900])
    model.survey(np.repeat(np.arange(VOCAB), counts), [0])
    noise = model.draw(torch.ones(1, 8, dtype=torch.long)).noise
    found = np.bincount(noise[0].numpy(), minlength=VOCAB) / noise.shape[1]
    wanted = np.where(np.arange(VOCAB) > 0, counts, 0) ** 0.75
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.01)


def test_contexts_are_of_every_size():
    """From 1 to m with equal probability, as word2vec's own code draws them."""
    model = network(context_size=4, subsample=0)
    reach = model.draw(torch.ones(100, 400, dtype=torch.long)).reach
    assert reach.unique().tolist() == [1, 2, 3, 4]
    shares = np.bincount(reach.flatten().numpy())[1:] / reach.numel()
    np.testing.assert_allclose(shares, 0.25, atol=0.01)
    whole = network(context_size=4, dynamic=False).draw(torch.ones(2, 5, dtype=torch.long)).reach
    assert (whole == 4).all()
