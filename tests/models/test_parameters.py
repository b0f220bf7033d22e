"""What holds for every model with parameters: gradients, counts, learning, saving."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from architectures import NEURAL, ONE_OF_EACH, ids, over, representatives
from safetensors.torch import load_file

from seqgen.errors import SeqgenError
from seqgen.models.base import load_weights, weights_of
from seqgen.models.network import hidden_matrices
from seqgen.store import StoredModel
from seqgen.text.tokenizers.char import CharTokenizer

# Characters have a padding row and a table of how tokens are spelled: see test_spelled.py.
UNSPELLED = [case for case in NEURAL if case.config().to_dict().get("input") != "char-cnn"]


@pytest.mark.fast_for(*ONE_OF_EACH, rest="slow")
@over(representatives(UNSPELLED))
def test_gradients_of_every_parameter(case):
    fields = case.config().to_dict()
    small = {"vocab_size": 3, "hidden_size": 4 if "window" in fields else 3, "ffn_size": 3}
    # Two recurrent layers, for what is handed on; blocks are all alike.
    if "num_layers" in fields:
        small["num_layers"] = min(1 if "window" in fields else 2, fields["num_layers"])
    if not fields["hidden_size"]:
        del small["hidden_size"]
    model = case.loud(**{k: v for k, v in small.items() if k in fields})
    names = [name for name, _ in model.named_parameters()]
    length = min(3, model.window or 3)
    pieces = [ids(2, length, seed=s, vocab=3) for s in range(1 + model.carries_state)]
    targets = ids(2, length, seed=3, vocab=3)

    def loss(*values):
        tensors, state, total = dict(zip(names, values, strict=True)), None, 0.0
        for piece in pieces:  # the second goes on from the first where a state is carried
            logits, state = torch.func.functional_call(model, tensors, (piece, state))
            total = total + F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return total

    values = tuple(p.detach().clone().requires_grad_() for p in model.parameters())
    torch.manual_seed(1)  # the fast mode compares the Jacobian along random directions
    assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-6, rtol=1e-4, fast_mode=True)
    # And none is idle; where attention has but one key, queries and keys are.
    if length > 1:
        assert all(g.abs().max() > 0 for g in torch.autograd.grad(loss(*values), values))


def recurrent_count(c, gates, extra=0):
    H, V = c.hidden_size, c.vocab_size
    E = V if c.input == "onehot" else c.embedding_size or H
    embedding = 0 if c.input == "onehot" else V * E
    sizes = [H] * (c.num_layers - 1) + [c.last_size or H]
    layers = 0
    for k, size in enumerate(sizes):
        below = [E, *sizes[:k]]
        read = sum(below) if c.dense else below[-1]
        layers += gates * (size * read + size * size + size) + extra
    return embedding + layers + (0 if c.tie_weights else V * sizes[-1]) + V


def lstm_count(c):
    if c.projection is None:
        # A pointer's query is a matrix with biases, its sentinel a vector.
        pointer = (c.hidden_size + 2) * c.hidden_size if c.pointer else 0
        return recurrent_count(c, 4) + pointer
    # With peepholes and layer normalisation too.
    H, P, V, E = c.hidden_size, c.projection, c.vocab_size, c.embedding_size or c.hidden_size
    vectors = 3 * H + 4 * H + 2 * (4 * H) + 2 * H  # peepholes, biases, gains, those of the memory
    layers = [4 * H * (read + P) + P * H + vectors for read in (E, *[P] * (c.num_layers - 1))]
    return V * E + sum(layers) + V * P + V


def transformer_count(c):
    H, V, W, L = c.hidden_size, c.vocab_size, c.window, c.num_layers
    gated = c.activation in ("swiglu", "geglu")
    inner = 8 * -(-H // 3) if gated else 4 * H
    inputs = 2 * inner if gated else inner
    D = c.head_size or H // c.num_heads
    Q, K = c.num_heads * D, (c.num_kv_heads or c.num_heads) * D
    matrices = (Q + 2 * K) * H + H * Q + inputs * H + inner * H
    biases = (H + inputs + H) * c.bias + (Q + 2 * K) * (c.bias or c.qkv_bias)
    norm = 2 * H if c.norm == "layernorm" and c.bias else H
    heads = (Q + K if c.qk_norm_whole else 2 * D) * c.qk_norm
    block = matrices + biases + (4 if c.norm_position == "both" else 2) * norm + heads
    P = c.position_size or 0  # of position vectors that stand beside the embeddings
    outside = V * (H - P) + V * H * (not c.tie_weights) + W * (P or H) * (c.positions == "learned")
    norms = norm * ((c.norm_position != "post") + c.embedding_norm)
    return outside + L * block + norms + c.dense * sum(i + 1 for i in range(1, L + 1))


def window_count(c):
    seen = c.context_size * c.embedding_size
    hidden = c.hidden_size * (seen + 1)
    features = c.hidden_size + (seen if c.direct else 0)
    # One more embedding than tokens: what stands before the start of a text.
    return (c.vocab_size + 1) * c.embedding_size + hidden + c.vocab_size * (features + 1)


# Counted by hand. A new architecture may do without: its own test is of its equation.
COUNTS = {
    "rnn": lambda c: recurrent_count(c, 1),
    "gru": lambda c: recurrent_count(c, 3, c.hidden_size if c.reset == "after" else 0),
    "lstm": lstm_count,
    "transformer": transformer_count,
    "window": window_count,
}


@over([case for case in UNSPELLED if case.architecture in COUNTS])
def test_parameters_count_as_the_equations_say(case):
    model = case.build()
    assert model.parameter_count() == COUNTS[case.architecture](model.config)


@over([case for case in NEURAL if not case.config().to_dict().get("pointer")])
def test_logits_are_the_head_of_the_features(case):
    model, tokens = case.loud(), ids(2, min(5, case.config().to_dict().get("window", 5)))
    features, _ = model.hidden(tokens, None)
    torch.testing.assert_close(model(tokens)[0], model.head(features), rtol=0, atol=0)
    assert features.shape == (*tokens.shape, model.head.in_features)


@over(NEURAL)
def test_hidden_matrices_are_all_between_embedding_and_head(case):
    model = case.build()
    outside = {id(model.head.weight)}
    outside |= {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    wanted = [p for p in model.parameters() if p.ndim == 2 and id(p) not in outside]
    found = list(hidden_matrices(model))
    assert [id(p) for p, _ in found] == [id(p) for p in wanted]
    assert all(len(p) == sum(rows) for p, rows in found)


# After the start symbol 6; what follows 0 is known only from what stands before it.
TEXT = [0, 1, 2, 0, 3, 0, 4, 0, 1, 2, 0, 5]


@pytest.mark.fast_for(
    "window-*",
    "rnn-tanh",
    "rnn-tied",
    "lstm-plain",
    "gru-after",
    "mingru-default",
    "hawk-default",
    "transformer-2017",
    rest="slow",
)
@over(NEURAL)
def test_a_short_string_is_learned_by_heart(case):
    window = {"window": 16} if "window" in case.config().to_dict() else {}
    model = case.build(torch.float32, hidden_size=32, **window).train()
    tokens, targets = torch.tensor([[6, *TEXT[:-1]]]), torch.tensor([TEXT])
    rule = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        loss = F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten())
        rule.zero_grad()
        loss.backward()
        rule.step()
        if loss < 0.05:
            break
    assert loss < 0.1
    model.eval()
    with torch.no_grad():
        token, state, written = torch.tensor([[6]]), model.start(1), []
        for _ in TEXT:
            logits, state = model(token, state)
            token = logits.argmax(-1)
            written.append(token.item())
    assert written == TEXT


@pytest.mark.fast_for(*ONE_OF_EACH, rest="slow")
@over(UNSPELLED)
def test_a_stored_model_is_the_same_model(case, tmp_path):
    model, stored = case.loud(torch.float32), StoredModel(tmp_path)
    stored.write_config(case.architecture, model=model.config.to_dict(), data={})
    stored.write_weights(model)
    CharTokenizer("abc").save(tmp_path / "tokenizer")
    loaded, tokenizer = stored.load()
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert not loaded.training
    assert tokenizer.alphabet == ["\n", "a", "b", "c"]
    tokens = ids(2, min(5, model.window or 5))
    torch.testing.assert_close(loaded(tokens)[0], model(tokens)[0], rtol=0, atol=0)
    # Shared weights are written once, and are shared again.
    held = sum(tensor.numel() for tensor in load_file(tmp_path / "model.safetensors").values())
    assert held == model.parameter_count() == loaded.parameter_count()
    if getattr(model.config, "tie_weights", False):
        assert loaded.head.weight is loaded.embedding.weight


@pytest.mark.fast_for(*ONE_OF_EACH, rest="slow")
@over(representatives(NEURAL))
def test_weights_that_do_not_fit_are_refused(case, tmp_path):
    model = case.build()
    tensors = weights_of(model)
    name = next(iter(tensors))
    for wrong in (
        {k: v for k, v in tensors.items() if k != name},
        {**tensors, "more": torch.zeros(1)},
        {**tensors, name: torch.zeros(1, 1, dtype=tensors[name].dtype)},
    ):
        with pytest.raises(RuntimeError):
            load_weights(case.build(), wrong)
    stored = StoredModel(tmp_path)
    stored.write_config(case.architecture, model=case.config(hidden_size=16).to_dict(), data={})
    stored.write_weights(model)
    with pytest.raises(SeqgenError, match=r"model\.safetensors is missing or damaged"):
        stored.load()


@pytest.mark.fast_for(*ONE_OF_EACH, rest="slow")
@over(representatives(NEURAL))
def test_dropout_acts_in_training_alone(case):
    model, tokens = case.loud(dropout=0.5), ids(2, min(5, case.config().to_dict().get("window", 5)))
    torch.testing.assert_close(model(tokens)[0], case.loud()(tokens)[0], rtol=0, atol=0)
    model.train()
    torch.manual_seed(3)
    first = model(tokens)[0]
    torch.manual_seed(3)
    torch.testing.assert_close(model(tokens)[0], first, rtol=0, atol=0)
    assert (model(tokens)[0] != first).any()
