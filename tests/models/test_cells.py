"""Each architecture against its equations, written down again in NumPy; and how weights begin."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch
from architectures import FORM_OF_2017, GPT2, Case, from_scratch, ids
from torch import nn

from seqgen.engines.tensor_ops import TensorOps
from seqgen.errors import UsageError
from seqgen.models.recurrent.cell import Cell
from seqgen.models.recurrent.cells.gru import GRUConfig
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.cells.rnn import RNNConfig
from seqgen.models.transformer import context
from seqgen.models.transformer.attention import causal_attention
from seqgen.models.transformer.positions import rotate, rotations, sinusoids

E, H, B, T = 3, 4, 2, 6
EXACT = {"rtol": 0, "atol": 1e-12}


def sigma(x):
    return 1 / (1 + np.exp(-x))


def rnn(phi):
    def step(w_ih, w_hh, bias, extra, x, h):
        return (phi(w_ih[0] @ x + w_hh[0] @ h[0] + bias[0]),)

    return step


def gru_before(w, u, b, extra, x, state):
    (h,) = state
    r = sigma(w[0] @ x + u[0] @ h + b[0])
    z = sigma(w[1] @ x + u[1] @ h + b[1])
    n = np.tanh(w[2] @ x + u[2] @ (r * h) + b[2])
    return ((1 - z) * n + z * h,)


def gru_after(w, u, b, extra, x, state):
    (h,) = state
    r = sigma(w[0] @ x + u[0] @ h + b[0])
    z = sigma(w[1] @ x + u[1] @ h + b[1])
    n = np.tanh(w[2] @ x + b[2] + r * (u[2] @ h + extra))
    return ((1 - z) * n + z * h,)


def lstm(w, u, b, extra, x, state):
    h, c = state
    i = sigma(w[0] @ x + u[0] @ h + b[0])
    f = sigma(w[1] @ x + u[1] @ h + b[1])
    g = np.tanh(w[2] @ x + u[2] @ h + b[2])
    o = sigma(w[3] @ x + u[3] @ h + b[3])
    c = f * c + i * g
    return o * np.tanh(c), c


SIZE = {"vocab_size": 5, "hidden_size": H}
CELLS = {
    "rnn-tanh": (RNNConfig(**SIZE), rnn(np.tanh)),
    "rnn-relu": (RNNConfig(**SIZE, activation="relu"), rnn(lambda x: np.maximum(x, 0))),
    "gru-before": (GRUConfig(**SIZE, reset="before"), gru_before),
    "gru-after": (GRUConfig(**SIZE, reset="after"), gru_after),
    "lstm": (LSTMConfig(**SIZE), lstm),
}


@pytest.mark.parametrize("name", CELLS)
@torch.no_grad()
def test_a_cell_is_its_equation(name):
    config, equation = CELLS[name]
    torch.manual_seed(0)
    layer = Cell(E, config).double()
    for parameter in layer.parameters():
        parameter.normal_(0, 0.7)
    x = torch.randn(B, T, E, dtype=torch.float64)
    start = tuple(torch.randn(B, H, dtype=torch.float64) for _ in config.equation.parts)
    by_gate = [
        [part.numpy() for part in tensor.chunk(config.equation.inputs)]
        for tensor in (layer.weight_ih, layer.weight_hh, layer.bias)
    ]
    bias_hn = getattr(layer, "bias_hn", None)
    extra = None if bias_hn is None else bias_hn.numpy()

    outputs, after = layer.sequence(x, start)
    stepped = start
    for t in range(T):
        stepped = layer.step(x[:, t], stepped)
        torch.testing.assert_close(stepped[0], outputs[:, t], **EXACT)
    for row in range(B):
        state = tuple(part[row].numpy() for part in start)
        for t in range(T):
            state = equation(*by_gate, extra, x[row, t].numpy(), state)
            np.testing.assert_allclose(outputs[row, t], state[0], **EXACT)
        for got, also, wanted in zip(after, stepped, state, strict=True):
            np.testing.assert_allclose(got[row], wanted, **EXACT)
            np.testing.assert_allclose(also[row], wanted, **EXACT)


@torch.no_grad()
def test_stacked_layers_by_hand():
    """Two residual layers over an embedding, and the head: the whole model in five lines."""
    model = Case("rnn", "residual", {"residual": True, "num_layers": 3}).loud()
    tokens = ids(1, 5)
    after, logits = [np.zeros(8)] * 3, []
    for token in tokens[0]:
        x = model.embedding.weight[token].numpy()
        for i, layer in enumerate(model.layers):
            w, u, b = (p.numpy() for p in (layer.weight_ih, layer.weight_hh, layer.bias))
            after[i] = np.tanh(w @ x + u @ after[i] + b)
            x = after[i] + x if i > 0 else after[i]
        logits.append(model.head.weight.numpy() @ x + model.head.bias.numpy())
    np.testing.assert_allclose(model(tokens)[0][0], np.stack(logits), **EXACT)


@torch.no_grad()
@pytest.mark.parametrize("more", [{"embedding_size": 5}, {"input": "onehot"}])
def test_dense_layers_read_all_below_them(more):
    """h_l = tanh(W_l [x; h_1; ...; h_l-1] + U_l h_l + b_l), the head over h_3; a step too."""
    model = Case("rnn", "dense", {"dense": True, "num_layers": 3, "last_size": 6, **more}).loud()
    vectors = model.embedding.weight.numpy() if model.embedding else np.eye(7)
    tokens = ids(1, 5)
    after, logits = [np.zeros(8), np.zeros(8), np.zeros(6)], []
    state = model.start(1)
    for token in tokens[0]:
        below = vectors[token]
        for i, layer in enumerate(model.layers):
            w, u, b = (p.numpy() for p in (layer.weight_ih, layer.weight_hh, layer.bias))
            after[i] = np.tanh(w @ below + u @ after[i] + b)
            below = np.concatenate([below, after[i]])
        logits.append(model.head.weight.numpy() @ after[2] + model.head.bias.numpy())
        stepped, state = model.step([int(token)], state)
        np.testing.assert_allclose(stepped[0], logits[-1], **EXACT)
    np.testing.assert_allclose(model(tokens)[0][0], np.stack(logits), **EXACT)


def test_a_new_transformer_with_dense_connections_is_one_without():
    """Each block begins by reading the block below it alone, and learns to read the others."""
    dense = Case("transformer", "dense", {"dense": True, "num_layers": 3}).build()
    plain = Case("transformer", "plain", {"num_layers": 3}).build()
    plain.load_state_dict({k: v for k, v in dense.state_dict().items() if "depth" not in k})
    tokens = ids(2, 7)
    torch.testing.assert_close(dense(tokens)[0], plain(tokens)[0], rtol=0, atol=0)
    dense(tokens)[0].square().sum().backward()
    assert all(weights.grad.abs().min() > 0 for weights in dense.depth)


def test_dense_and_residual_connections_are_one_or_the_other():
    with pytest.raises(UsageError, match="dense=true needs residual=false"):
        Case("lstm", "both", {"dense": True, "residual": True}).config()


def test_one_hot_input_is_a_column_of_the_matrix():
    model = Case("lstm", "onehot", {"input": "onehot", "num_layers": 1}).loud()
    same = Case("lstm", "plain", {"num_layers": 1, "embedding_size": 7}).loud()
    with torch.no_grad():
        same.layers.load_state_dict(model.layers.state_dict())
        same.head.load_state_dict(model.head.state_dict())
        same.embedding.weight.copy_(torch.eye(7))
    torch.testing.assert_close(model(ids(2, 5))[0], same(ids(2, 5))[0], **EXACT)


@pytest.mark.parametrize("name", CELLS)
def test_recurrent_weights_begin_as_the_literature_has_them(name):
    config, _ = CELLS[name]
    torch.manual_seed(0)
    layer = Cell(E, config)
    limit = math.sqrt(6 / (E + H))  # Glorot and Bengio, for each gate
    assert layer.weight_ih.abs().max() <= limit
    assert layer.weight_ih.abs().max() > 0.7 * limit
    for gate in layer.weight_hh.detach().chunk(config.equation.inputs):
        torch.testing.assert_close(gate @ gate.T, torch.eye(H), rtol=0, atol=1e-5)
    if name == "rnn-relu":
        assert torch.equal(layer.weight_hh, torch.eye(H))
    if name == "lstm":
        assert layer.bias.tolist() == [0.0] * H + [1.0] * H + [0.0] * 2 * H
    else:
        assert not layer.bias.any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_recurrent_gain_scales_the_initial_matrix(activation):
    cell = Cell(E, RNNConfig(**SIZE, activation=activation, recurrent_gain=2.5))
    norms = torch.linalg.svdvals(cell.weight_hh.detach())
    torch.testing.assert_close(norms, torch.full((H,), 2.5), rtol=1e-5, atol=0)


def test_the_forget_bias_can_be_set():
    layer = Cell(E, LSTMConfig(**SIZE, forget_bias=2.5))
    assert layer.bias.detach().chunk(4)[1].tolist() == [2.5] * H


def test_sinusoids_are_those_of_section_3_5():
    waves = sinusoids(TensorOps, 20, 6)
    for position in range(20):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert waves[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=2e-6)
            assert waves[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=2e-6)
    assert sinusoids(TensorOps, 4, 5).shape == (4, 5)


def test_rotation_turns_pairs_as_complex_numbers():
    x, theta = torch.randn(2, 3, 7, 6, dtype=torch.float64), 100.0
    turned = rotate(x, rotations(TensorOps, 7, 6, theta).double())
    for t in range(7):
        for i in range(3):
            wanted = cmath.exp(1j * t * theta ** (-2 * i / 6)) * (
                x[..., t, i].numpy() + 1j * x[..., t, i + 3].numpy()
            )
            got = turned[..., t, i].numpy() + 1j * turned[..., t, i + 3].numpy()
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def test_rotated_products_depend_on_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64).unbind(0)
    waves = rotations(TensorOps, 30, 8, 10000.0).double()

    def product(m, n):
        return (rotate(q, waves[[m]]) * rotate(k, waves[[n]])).sum().item()

    for m, n in ((3, 1), (9, 2), (7, 7)):
        assert product(m + 15, n + 15) == pytest.approx(product(m, n), abs=1e-5)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


def test_rows_may_stand_at_different_positions():
    x, waves = torch.randn(2, 3, 4, 6), rotations(TensorOps, 9, 6, 10000.0)
    positions = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]])
    together = rotate(x, waves[positions])
    for row in range(2):
        torch.testing.assert_close(together[[row]], rotate(x[[row]], waves[positions[row]]))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, norm):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + norm.eps)
    return x * norm.weight.numpy() + norm.bias.numpy()


def rms_norm(x, norm):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps) * norm.weight.numpy()


def linear(x, part):
    y = x @ part.weight.numpy().T
    return y if part.bias is None else y + part.bias.numpy()


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x, part, heads, adjust=lambda q: q, phi=lambda x: x, scaled=True):
    """softmax(Q K^T / sqrt(D) + mask) V, head by head; x (T, H).

    Q, K and V are phi(x W); not `scaled`, their dot products are not divided by sqrt(D).
    """
    length, size = x.shape
    q, k, v = np.split(phi(linear(x, part.query_key_value)), 3, axis=-1)
    width, read = size // heads, []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        q1, k1 = adjust(q[:, own], part.query_norm), adjust(k[:, own], part.key_norm)
        scores = q1 @ k1.T / (math.sqrt(width) if scaled else 1)
        scores[np.triu_indices(length, 1)] = -np.inf
        read.append(softmax(scores) @ v[:, own])
    return linear(np.concatenate(read, -1), part.output)


@torch.no_grad()
def test_the_form_of_gpt2_in_numpy():
    model = Case("transformer", "gpt2", GPT2).loud()
    tokens = ids(1, 7)
    at = tokens[0].numpy()
    x = model.embedding.weight.numpy()[at] + model.position_embedding.weight.numpy()[:7]
    for block in model.blocks:
        x = x + attention(
            layer_norm(x, block.attention_norm), block.attention, 2, lambda q, norm: q
        )
        inner = gelu(linear(layer_norm(x, block.feed_forward_norm), block.feed_forward.inner))
        x = x + linear(inner, block.feed_forward.output)
    wanted = layer_norm(x, model.final_norm) @ model.embedding.weight.numpy().T
    np.testing.assert_allclose(model(tokens)[0][0], wanted, **EXACT)


@torch.no_grad()
def test_normalised_queries_and_keys_are_the_papers_with_one_factor():
    """softmax(g q k / (|q| |k|)) V (Henry et al. 2020, section 2), where gains are all alike."""
    settings = {"num_layers": 1, "num_heads": 2, "norm_eps": 1e-15, "positions": "learned"}
    model = Case("transformer", "normalised", settings).loud()
    layer, x = model.blocks[0].attention, torch.randn(1, 7, 8, dtype=torch.float64)
    layer.query_norm.weight.fill_(1.5)
    layer.key_norm.weight.fill_(-0.7)
    g = 1.5 * -0.7 * math.sqrt(8 / 2)

    def cosine(q, norm):
        of_query = g if norm is layer.query_norm else 1
        return of_query * q / np.linalg.norm(q, axis=-1, keepdims=True)

    wanted = attention(x[0].numpy(), layer, 2, cosine, scaled=False)
    found = layer(x, None, lambda _, q, k, v: causal_attention(q, k, v))
    np.testing.assert_allclose(found[0], wanted, **EXACT)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "phi"),
    [
        ("none", lambda x: x),
        ("tanh", np.tanh),
        ("sigmoid", sigma),
        ("relu", lambda x: np.maximum(x, 0)),
    ],
)
@pytest.mark.parametrize("scaled", [True, False])
def test_activated_queries_keys_and_values_and_plain_dot_products(name, phi, scaled):
    """q = sigma(W_q x), and so for k and v; softmax(Q K^T) V without the scale."""
    settings = {**GPT2, "num_layers": 1, "scale_attention": scaled, "qkv_activation": name}
    model = Case("transformer", "activated", settings).loud()
    tokens = ids(1, 7)
    embedding = model.embedding.weight.numpy()
    x = embedding[tokens[0].numpy()] + model.position_embedding.weight.numpy()[:7]
    block = model.blocks[0]
    read = layer_norm(x, block.attention_norm)
    x = x + attention(read, block.attention, 2, lambda q, norm: q, phi, scaled)
    inner = gelu(linear(layer_norm(x, block.feed_forward_norm), block.feed_forward.inner))
    x = x + linear(inner, block.feed_forward.output)
    wanted = layer_norm(x, model.final_norm) @ embedding.T
    np.testing.assert_allclose(model(tokens)[0][0], wanted, **EXACT)
    state = model.start(1)
    for place in range(7):  # the fast step is the plain pass
        logits, state = model.step(tokens[0, place : place + 1].tolist(), state)
        np.testing.assert_allclose(logits[0], wanted[place], **EXACT)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"positions": "sinusoidal"}, math.sqrt(8)),
        ({"positions": "sinusoidal", "scale_embedding": False}, 1),
        ({"positions": "sinusoidal", "position_size": 3}, None),
        ({"positions": "learned"}, None),
        ({"positions": "rope"}, None),
    ],
)
@torch.no_grad()
def test_embeddings_are_scaled_where_sinusoids_are_added(settings, scale):
    """x_p = sqrt(d) e(w_p) + PE_p, d = 8 (Vaswani et al. 2017, sections 3.4 and 3.5)."""
    config = Case("transformer", "", {"hidden_size": 8, **settings}).config()
    assert config.to_dict()["scale_embedding"] == (scale == math.sqrt(8))  # as it is stored
    if scale is None:
        return
    model, tokens = Case("transformer", "", {"hidden_size": 8, **settings}).loud(), ids(1, 5)
    read, _ = model.embedded(tokens, torch.arange(5))
    for p, token in enumerate(tokens[0].tolist()):
        for i in range(8):
            wave = (math.cos if i % 2 else math.sin)(p / 10_000 ** (2 * (i // 2) / 8))
            wanted = scale * model.embedding.weight[token, i].item() + wave
            assert read[0, p, i].item() == pytest.approx(wanted, abs=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_side_by_side_with_embeddings(positions):
    """h_0(t) = [e(w_t); pos(t)], of 5 + 3 numbers."""
    settings = {**GPT2, "tie_weights": False, "positions": positions, "position_size": 3}
    model = Case("transformer", "joined", {**settings, "num_layers": 1}).loud()
    tokens = ids(1, 7)
    at = np.arange(7)
    if positions == "learned":
        places = model.position_embedding.weight.numpy()[:7]
    else:
        slow = at / 10_000 ** (2 / 3)
        places = np.stack([np.sin(at), np.cos(at), np.sin(slow)], 1)
    assert model.embedding.weight.shape == (7, 5)
    x = np.concatenate([model.embedding.weight.numpy()[tokens[0].numpy()], places], 1)
    block = model.blocks[0]
    read = layer_norm(x, block.attention_norm)
    x = x + attention(read, block.attention, 2, lambda q, norm: q)
    inner = gelu(linear(layer_norm(x, block.feed_forward_norm), block.feed_forward.inner))
    x = x + linear(inner, block.feed_forward.output)
    wanted = linear(layer_norm(x, model.final_norm), model.head)
    np.testing.assert_allclose(model(tokens)[0][0], wanted, rtol=0, atol=1e-5)  # float32 waves
    state = model.start(1)
    for place in range(7):
        logits, state = model.step(tokens[0, place : place + 1].tolist(), state)
        np.testing.assert_allclose(logits[0], wanted[place], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "position_size needs positions=learned or positions=sinusoidal"),
        ({"positions": "learned", "hidden_size": 4}, "less than hidden_size, 4"),
        ({"positions": "learned", "tie_weights": True}, "position_size needs tie_weights=false"),
    ],
)
def test_positions_that_cannot_be_concatenated_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        Case("transformer", "joined", {"position_size": 4, **settings}).config()


@torch.no_grad()
@pytest.mark.parametrize("dense", [False, True])
def test_the_default_form_in_numpy(dense):
    """RoPE, RMSNorm, SwiGLU, and queries and keys normalised before they are turned.

    Dense: after block i, y_i = sum_{j <= i} w_ij x_j, x_j being what block j makes of y_{j-1}.
    """
    settings = {"rope_theta": 50.0, "dense": dense, "num_layers": 3}
    model = Case("transformer", "default", settings).loud()
    tokens = ids(1, 7)

    def adjust(q, norm):
        q = rms_norm(q, norm)
        half = q.shape[-1] // 2
        rate = 50.0 ** (-np.arange(half) / half)
        z = (q[:, :half] + 1j * q[:, half:]) * np.exp(1j * np.arange(len(q))[:, None] * rate)
        return np.concatenate([z.real, z.imag], -1)

    x = model.embedding.weight.numpy()[tokens[0].numpy()]
    made = [x]
    for i, block in enumerate(model.blocks):
        x = x + attention(rms_norm(x, block.attention_norm), block.attention, 2, adjust)
        feed = block.feed_forward
        gate, up = np.split(linear(rms_norm(x, block.feed_forward_norm), feed.inner), 2, -1)
        x = x + linear(gate * sigma(gate) * up, feed.output)
        made.append(x)
        if dense:
            x = np.tensordot(model.depth[i].numpy(), made, 1)
    wanted = linear(rms_norm(x, model.final_norm), model.head)
    # The table of waves is made in float32.
    np.testing.assert_allclose(model(tokens)[0][0], wanted, rtol=0, atol=1e-6)


@torch.no_grad()
def test_the_form_of_2017_is_that_of_torch():
    model = Case("transformer", "2017", FORM_OF_2017).loud()
    tokens = ids(2, 7)
    x = math.sqrt(8) * model.embedding(tokens) + sinusoids(TensorOps, 7, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(
            8, 2, 32, 0.0, batch_first=True, norm_first=False, dtype=torch.float64
        ).eval()
        own = {
            "self_attn.in_proj": block.attention.query_key_value,
            "self_attn.out_proj": block.attention.output,
            "linear1": block.feed_forward.inner,
            "linear2": block.feed_forward.output,
            "norm1": block.attention_norm,
            "norm2": block.feed_forward_norm,
        }
        joints = {"self_attn.in_proj": "_"}
        layer.load_state_dict(
            {
                f"{name}{joints.get(name, '.')}{kind}": getattr(part, kind)
                for name, part in own.items()
                for kind in ("weight", "bias")
            }
        )
        x = layer(x, src_mask=mask, is_causal=True)
    torch.testing.assert_close(model(tokens)[0], model.head(x), rtol=0, atol=1e-6)


@pytest.mark.fast_for("1-1", "1-10000", "3-40", "8-10000", rest="slow")
@pytest.mark.parametrize("skimmed", [1, 40, 10_000])
@pytest.mark.parametrize("stride", [1, 3, 8])
@torch.no_grad()
def test_windows_side_by_side_are_windows_one_by_one(skimmed, stride, monkeypatch):
    monkeypatch.setattr(context, "SKIMMED", skimmed)
    model, text = Case("transformer", "default", {}).loud(), ids(2, 61)
    logits, state = model(text[:, :50], model.start(2, stride))
    rest, _ = model(text[:, 50:], state)
    together = torch.cat([logits, rest], 1)
    for row in range(2):
        wanted = from_scratch(model, text[row].tolist(), stride)
        torch.testing.assert_close(together[row], wanted, rtol=0, atol=1e-10)


def test_transformer_weights_begin_as_the_literature_has_them():
    settings = {"hidden_size": 64, "num_layers": 8, "vocab_size": 100}
    model = Case("transformer", "gpt2", GPT2).build(**settings)
    into_stream = 0.02 / math.sqrt(16)
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if name.endswith("bias"):
            assert not values.any()
        elif "norm" in name:
            assert (values == 1).all()
        else:
            wanted = into_stream if name.endswith("output.weight") else 0.02
            spread = 6 / math.sqrt(2 * values.numel())
            assert values.std().item() == pytest.approx(wanted, rel=spread), name
    old = Case("transformer", "2017", FORM_OF_2017).build(**settings)
    for part in old.blocks.modules():
        if isinstance(part, nn.Linear):
            limit = math.sqrt(6 / (part.in_features + part.out_features))
            assert 0.98 * limit < part.weight.abs().max() <= limit * (1 + 1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_heads": 3}, "num_heads must divide hidden_size"),
        ({"hidden_size": 6, "num_heads": 2}, "even head size"),
        ({"dropout": 1.0}, "dropout must be at least 0"),
        ({"num_layers": 0}, "num_layers must be from 1 to 1,000"),
        ({"positions": "absolute"}, "one of rope, learned, sinusoidal"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        Case("transformer", "wrong", settings).config()


def test_tied_weights_need_an_embedding_of_the_right_width():
    for settings in ({"input": "onehot"}, {"embedding_size": 5}):
        with pytest.raises(UsageError, match="tie_weights needs"):
            Case("gru", "wrong", {"tie_weights": True, **settings}).config()


@pytest.mark.parametrize("positions", ["rope", "sinusoidal"])
@pytest.mark.parametrize("cast", ["bfloat16", "half"])
def test_angles_keep_their_digits_when_a_model_is_cast(positions, cast):
    """In bf16 the slow waves of neighbouring positions would be one and the same."""
    case = Case("transformer", "long", {"positions": positions, "window": 301})
    model = case.build(torch.float32)
    before = model.waves.clone()
    getattr(model, cast)()
    assert model.head.weight.dtype == getattr(torch, cast)
    assert model.waves.dtype == torch.float32
    assert torch.equal(model.waves, before)
    with torch.no_grad():
        logits, state = model(ids(1, 301)[:, :300], model.start(1))
        model(ids(1, 1), state)
    assert logits.dtype == torch.float32
    assert model.embedding(ids(1, 1)).dtype == getattr(torch, cast)
    model.float()
    assert torch.equal(model.waves, before)
    model.double()
    assert model.waves.dtype == torch.float64
