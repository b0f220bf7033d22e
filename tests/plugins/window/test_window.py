"""The fixed-window network: its equation, its state, and the neural bigram."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.plugins.window.model import Window, WindowConfig
from seqgen.settings import UsageError
from seqgen.store import StoredModel
from seqgen.text.corpus import Corpus
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.training.counting import fit

V = 7
CASES = {
    "plain": {},
    "direct": {"direct": True},
    "linear": {"direct": True, "hidden_size": 0},
    "bigram": {"direct": True, "hidden_size": 0, "context_size": 1},
    "one": {"context_size": 1},
}
over = pytest.mark.parametrize("case", CASES)


def ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def build(case, dtype=torch.float64):
    torch.manual_seed(1)
    tiny = {"vocab_size": V, "context_size": 3, "embedding_size": 4, "hidden_size": 5}
    model = Window(WindowConfig(**{**tiny, **CASES[case]})).to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    return model


@over
@torch.no_grad()
def test_the_equation_by_hand(case):
    model, tokens = build(case), ids(2, 6)
    logits, state = model(tokens)
    n = model.config.context_size
    assert torch.equal(state.tokens, tokens[:, 7 - n :])
    for row in range(2):
        for t in range(6):
            seen = [V] * n + tokens[row, : t + 1].tolist()  # V stands before the text
            x = torch.cat([model.embedding.weight[w] for w in seen[-n:]])
            parts = []
            if model.layer is not None:
                parts.append(torch.tanh(model.layer.weight @ x + model.layer.bias))
            if model.config.direct:
                parts.append(x)
            wanted = model.head.weight @ torch.cat(parts) + model.head.bias
            torch.testing.assert_close(logits[row, t], wanted, rtol=0, atol=1e-12)
    features, _ = model.hidden(tokens, None)
    torch.testing.assert_close(model.head(features), logits)


@over
@torch.no_grad()
def test_states_are_split_selected_joined_and_copied(case):
    model, tokens = build(case), ids(2, 9)
    whole, _ = model(tokens)
    state, seen = model.start(2), []
    for piece in tokens.split([1, 1, 3, 4], 1):
        logits, state = model(piece, state)
        seen.append(logits)
    torch.testing.assert_close(torch.cat(seen, 1), whole, rtol=0, atol=1e-12)
    kept = state.copy()
    other = model(ids(1, 1, seed=3), model.start(1))[1]
    joined = type(state).cat([state.select([1]), other])
    more = ids(2, 3, seed=4)
    logits, _ = model(more, joined)
    for row, past in enumerate([tokens[1], ids(1, 1, seed=3)[0]]):
        alone, _ = model(torch.cat([past, more[row]])[None])
        torch.testing.assert_close(logits[row], alone[0, -3:], rtol=0, atol=1e-12)
    again, _ = model(more, kept)
    torch.testing.assert_close(again[0], model(torch.cat([tokens[0], more[0]])[None])[0][0, -3:])


@over
def test_gradients(case):
    model, tokens = build(case), ids(2, 5)
    names = [name for name, _ in model.named_parameters()]

    def loss(*values):
        tensors = dict(zip(names, values, strict=True))
        logits, _ = torch.func.functional_call(model, tensors, (tokens,))
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    values = tuple(p.detach().clone().requires_grad_() for p in model.parameters())
    assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-6, rtol=1e-4)
    assert all(g.abs().max() > 0 for g in torch.autograd.grad(loss(*values), values))


@over
def test_the_parameters_are_counted_and_stored(case, tmp_path):
    model = build(case, torch.float32)
    c = model.config
    n, e, h = c.context_size, c.embedding_size, c.hidden_size
    features = h + n * e * c.direct
    hidden = h * (n * e + 1) if h else 0
    assert model.parameter_count() == (V + 1) * e + hidden + V * (features + 1)
    stored = StoredModel(tmp_path)
    stored.write_config("window", model=c.to_dict(), data={})
    stored.write_weights(model)
    CharTokenizer("ab").save(tmp_path / "tokenizer")
    loaded, _ = stored.load()
    assert torch.equal(loaded(ids(2, 5))[0], model(ids(2, 5))[0])


def learn(model, tokens, targets, rate, steps):
    rule = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        loss = F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten())
        rule.zero_grad()
        loss.backward()
        rule.step()
    return loss.item()


def test_a_short_text_is_learned_by_heart():
    torch.manual_seed(2)
    config = WindowConfig(vocab_size=V, context_size=3, embedding_size=8, hidden_size=32)
    text = [0, 1, 2, 0, 3, 0, 4, 0, 1, 5, 0, 5]  # what follows 0 is known from before it
    model, tokens = Window(config), torch.tensor([[6, *text[:-1]]])
    assert learn(model, tokens, torch.tensor([text]), 0.02, 200) < 0.05


def test_the_neural_bigram_converges_to_the_counted_bigram():
    generator = np.random.default_rng(0)
    chances = generator.dirichlet([0.4] * V, size=V)
    text = [0]
    for _ in range(600):
        text.append(int(generator.choice(V, p=chances[text[-1]])))
    counted = NGram(NGramConfig(vocab_size=V, order=2, smoothing="maximum-likelihood")).double()
    corpus = Corpus(np.array(text[1:], dtype=np.uint8), np.array([600]), start=0)
    fit(counted, corpus, [])
    tokens, targets = torch.tensor([text[:-1]]), torch.tensor([text[1:]])
    best = -counted.score(tokens, targets, counted.start(1))[0].log_probs.mean().item()
    torch.manual_seed(1)
    bigram = {"context_size": 1, "hidden_size": 0, "direct": True, "embedding_size": V}
    loss = learn(Window(WindowConfig(vocab_size=V, **bigram)), tokens, targets, 0.1, 400)
    assert best - 1e-4 <= loss <= best + 2e-3  # no bigram model is better on this text
    narrow = Window(WindowConfig(vocab_size=V, **{**bigram, "embedding_size": 1}))
    assert learn(narrow, tokens, targets, 0.1, 400) > best + 0.02  # of rank 1 it cannot


def test_wrong_settings_are_told():
    for wrong, said in (
        ({"hidden_size": 0}, "direct"),
        ({"context_size": 0}, "context_size"),
        ({"dropout": 1.0}, "dropout"),
    ):
        with pytest.raises(UsageError, match=said):
            WindowConfig(vocab_size=3, **wrong)
