"""`seqgen diagnose` against unrolled networks, automatic differentiation and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import RECURRENT, VOCAB, Case
from helpers_cli import known_architectures, needs, records, refusal

from seqgen.cli import run
from seqgen.plugins.inspect.attention_figures import attention_figures
from seqgen.plugins.inspect.diagnose.distance import gradients_by_distance, windows
from seqgen.plugins.inspect.diagnose.layers import (
    Update,
    loss_unscaled,
    named_layers,
    norm_of,
    spectral_radius,
    units_of,
)
from seqgen.plugins.inspect.watched import StepRecorder, watch_layers
from seqgen.settings.training import TrainingConfig
from seqgen.text.corpus import Corpus
from seqgen.training.optimizers import clip_gradients

TEXT = "the cat sat on the mat and the dog sat on the log\n" * 30


def text_of(rows=3, length=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(VOCAB, (rows, length + 1), generator=generator)
    return drawn[:, :-1], drawn[:, -1]


def rnn(activation="tanh", **more):
    return Case("rnn", activation, {"activation": activation, "num_layers": 1, **more}).loud()


def unrolled(model, row, target, slope):
    """Return d loss / d h_t and the terms of d loss / d W_h for one row, by hand in NumPy.

    Args:
        model: a plain recurrent network of one layer.
        row: T ids.
        target: the id after them.
        slope: (phi, phi' from phi's value).
    """
    phi, of_value = slope
    cell = model.layers[0]
    numbers = {n: p.detach().numpy() for n, p in model.named_parameters()}
    w_h, w_x, b = (numbers[f"layers.0.{n}"] for n in ("weight_hh", "weight_ih", "bias"))
    states = [np.zeros(cell.hidden_size)]
    for token in row.tolist():
        states.append(phi(w_x @ numbers["embedding.weight"][token] + w_h @ states[-1] + b))
    logits = numbers["head.weight"] @ states[-1] + numbers["head.bias"]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    p[target] -= 1
    gradient, gradients, terms = numbers["head.weight"].T @ p, [], []
    for after, before in zip(states[:0:-1], states[-2::-1], strict=True):
        gradients.append(gradient)
        of_argument = gradient * of_value(after)
        terms.append(np.outer(of_argument, before))
        gradient = w_h.T @ of_argument
    return gradients, terms, states


SLOPES = {
    "tanh": (np.tanh, lambda h: 1 - h**2),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), lambda h: h * (1 - h)),
    "relu": (lambda a: np.maximum(a, 0), lambda h: (h > 0).astype(float)),
}


@pytest.mark.parametrize("activation", SLOPES)
def test_gradients_by_distance_and_their_bound_are_those_of_numpy(activation):
    model, (tokens, targets) = rnn(activation), text_of()
    found = gradients_by_distance(model, tokens, targets)
    by_row = [
        unrolled(model, row, int(t), SLOPES[activation])
        for row, t in zip(tokens, targets, strict=True)
    ]
    norm = np.linalg.norm(model.layers[0].weight_hh.detach().numpy(), 2)
    for distance, record in enumerate(found):
        gradients = [np.linalg.norm(rows[0][distance]) for rows in by_row]
        terms = sum(rows[1][distance] for rows in by_row) / len(by_row)
        bounds = [
            np.linalg.norm(rows[0][0])
            * norm**distance
            * math.prod(
                SLOPES[activation][1](h).max() for h in rows[2][len(found) - distance + 1 :]
            )
            for rows in by_row
        ]
        assert record.distance == distance
        assert record.grad_norm == pytest.approx(np.mean(gradients), rel=1e-12)
        assert record.weight_grad_norm == pytest.approx(np.linalg.norm(terms), rel=1e-12)
        assert record.bound == pytest.approx(np.mean(bounds), rel=1e-12)
        assert record.grad_norm <= record.bound * (1 + 1e-12)


@pytest.mark.parametrize("activation", SLOPES)
def test_the_terms_by_step_are_the_gradient_of_the_recurrent_matrix(activation):
    model, (tokens, targets) = rnn(activation), text_of()
    weight = model.layers[0].weight_hh
    logits, _ = model(tokens, None, last=1)
    (whole,) = torch.autograd.grad(F.cross_entropy(logits[:, -1], targets), [weight])
    by_row = [
        unrolled(model, row, int(t), SLOPES[activation])
        for row, t in zip(tokens, targets, strict=True)
    ]
    summed = sum(term for _, terms, _ in by_row for term in terms) / len(by_row)
    np.testing.assert_allclose(whole.numpy(), summed, rtol=1e-9, atol=1e-15)


def by_brute_force(model, tokens, targets, layer):
    """Return the mean norm at each distance: one step at a time, each state a leaf of its own.

    The loss is a function of the state after step j and of the text after it; its gradient is
    that of the state with which the rest of the text is read.
    """
    norms = []
    length = tokens.shape[1]
    for j in range(length):
        with torch.no_grad():
            _, state = model.hidden(tokens[:, : j + 1], None)
        parts = [[part.clone() for part in each] for each in state.layers]
        leaves = [part.requires_grad_() for part in parts[layer]]
        state.layers = tuple(map(tuple, parts))
        if j == length - 1:
            features = leaves[0]  # what the head reads is the last layer's output
        else:
            features = model.hidden(tokens[:, j + 1 :], state)[0][:, -1]
        loss = F.cross_entropy(model.head(features), targets, reduction="sum")
        grads = [g for g in torch.autograd.grad(loss, leaves, allow_unused=True) if g is not None]
        norms.append(float(torch.cat(grads, 1).norm(dim=1).mean()))
    return norms[::-1]


@pytest.mark.parametrize("architecture", RECURRENT)
def test_every_cell_agrees_with_states_that_are_leaves(architecture):
    """In a network of one layer a state acts through the steps after it alone."""
    model = Case(architecture, "plain", {"num_layers": 1}).loud()
    tokens, targets = text_of(2, 4)
    found = gradients_by_distance(model, tokens, targets)
    expected = by_brute_force(model, tokens, targets, 0)
    assert [d.grad_norm for d in found] == pytest.approx(expected, rel=1e-9)
    assert (found[0].bound is None) == (architecture != "rnn")
    assert (found[0].weight_grad_norm is None) == (not model.layers[0].equation.reads_past)


@pytest.mark.parametrize("architecture", RECURRENT)
def test_a_watched_layer_computes_what_it_does_unwatched(architecture):
    model, (tokens, _) = Case(architecture, "two", {}).loud(), text_of()
    plain, _ = model(tokens, None)
    with watch_layers({layer: StepRecorder() for layer in model.layers}):
        watched, _ = model(tokens, None)
    torch.testing.assert_close(watched, plain, rtol=1e-9, atol=1e-12)
    assert all(layer.watch is None for layer in model.layers)


def test_a_lower_layer_has_no_bound_and_reaches_up_through_the_others():
    model, (tokens, targets) = rnn(num_layers=2), text_of()
    lower, upper = (gradients_by_distance(model, tokens, targets, layer) for layer in (0, 1))
    assert lower[0].bound is None
    assert all(record.bound is not None for record in upper)
    assert upper == gradients_by_distance(model, tokens, targets)


@pytest.mark.parametrize("architecture", known_architectures(["transformer", "window"]))
def test_gradients_of_vectors_are_those_of_leaves(architecture):
    model, (tokens, targets) = Case(architecture, "default", {}).loud(), text_of(2, 5)
    found = gradients_by_distance(model, tokens, targets)
    offset = 0 if architecture == "transformer" else model.config.context_size - 1
    vectors = model.embedding.weight.detach()
    # One at a time, a vector of its own for a place of a row.
    expected = np.zeros(5)
    for row in range(2):
        for place in range(5):
            leaf = vectors[tokens[row, place]].clone().requires_grad_()

            def put(module, args, y, leaf=leaf, place=place):
                return torch.cat(
                    [y[:, : offset + place], leaf[None, None], y[:, offset + place + 1 :]], 1
                )

            hook = model.embedding.register_forward_hook(put)
            logits, _ = model(tokens[[row]], None, last=1)
            hook.remove()
            loss = F.cross_entropy(logits[:, -1], targets[[row]])
            expected[place] += float(torch.autograd.grad(loss, leaf)[0].norm()) / 2
    assert [d.grad_norm for d in found] == pytest.approx(expected[::-1], rel=1e-9)


def test_attention_entropy_by_hand():
    model, (tokens, _) = Case("transformer", "default", {}).loud(), text_of(2, 5)
    seen = {}
    model.features_by(tokens, lambda layer, q, k, v: seen.setdefault(layer, (q, k)) and v)
    figures = attention_figures(model, tokens)
    assert [(h.layer, h.head) for h in figures] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    q, k = (x.detach().numpy()[:, 1] for x in seen[0])  # what reaches layer 0 is the same
    for after, scale in (("", q.shape[-1] ** -0.5), ("_unscaled", 1.0)):
        entropies, traces = [], []
        for row in range(2):
            for place in range(5):
                scores = np.exp(scale * (k[row, : place + 1] @ q[row, place]))
                p = scores / scores.sum()
                entropies.append(-(p * np.log(p)).sum())
                traces.append(np.trace(np.diag(p) - np.outer(p, p)))  # of dp / ds
        assert getattr(figures[1], f"entropy{after}") == pytest.approx(np.mean(entropies), rel=1e-9)
        found = getattr(figures[1], f"softmax_gradient{after}")
        assert found == pytest.approx(np.mean(traces), rel=1e-9)
    assert figures[0].entropy_uniform == pytest.approx(math.log(math.factorial(5)) / 5)


def test_a_head_that_sees_few_positions_can_spread_over_these_alone():
    """Each place of a sliding window of 2 sees itself and one before: 0, then log 2."""
    model = Case("transformer", "near", {"sliding_window": 2}).loud()
    for head in attention_figures(model, text_of(2, 5)[0]):
        assert head.entropy_uniform == pytest.approx(4 / 5 * math.log(2))
        assert head.entropy < head.entropy_uniform


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_what_is_measured_without_the_scale_is_a_model_with_larger_queries(kv_heads):
    """softmax(Q K^T) is softmax((sqrt(D) Q) K^T / sqrt(D))."""
    model = Case("transformer", "plain", {"qk_norm": False, "num_kv_heads": kv_heads}).build()
    tokens, targets = text_of(2, 5)[0], text_of(2, 5, seed=1)[0]
    found = loss_unscaled(model, tokens, targets)
    with torch.no_grad():
        for block in model.blocks:
            query = block.attention.query_key_value
            query.weight[:8] *= model.config.head_width**0.5
            if query.bias is not None:
                query.bias[:8] *= model.config.head_width**0.5
        logits, _ = model(tokens, None)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert found == pytest.approx(float(expected), rel=1e-9)


def test_a_model_without_the_scale_has_the_entropy_and_loss_of_plain_dot_products():
    model = Case("transformer", "plain", {"scale_attention": False}).loud()
    tokens, targets = text_of(2, 5)[0], text_of(2, 5, seed=1)[0]
    for head in attention_figures(model, tokens):
        assert head.entropy == pytest.approx(head.entropy_unscaled, rel=1e-9)
    logits, _ = model(tokens, None)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert loss_unscaled(model, tokens, targets) == pytest.approx(expected.item(), rel=1e-9)


def test_units_by_hand():
    """Weights that make two of eight ReLUs dead, and a gate that is shut."""
    relu = rnn("relu")
    with torch.no_grad():
        relu.layers[0].weight_hh.zero_()
        relu.layers[0].bias[:2] = -1e6
        relu.layers[0].bias[2:] = 1e6
    tokens, _ = text_of()
    assert units_of(relu, tokens)[0]["dead"] == pytest.approx(0.25)
    assert units_of(relu, tokens)[0]["saturated"] is None
    tanh = rnn("tanh")
    values = tanh.hidden(tokens, None)[0].detach().numpy()
    figures = units_of(tanh, tokens)[0]
    assert figures["saturated"] == pytest.approx((np.abs(values) > 0.8).mean())
    assert figures["activation_mean"] == pytest.approx(values.mean())
    assert figures["activation_std"] == pytest.approx(values.std())
    gates = Case("lstm", "plain", {"num_layers": 1}).build()
    with torch.no_grad():
        for parameter in gates.layers[0].parameters():
            parameter.zero_()
        gates.layers[0].bias[:8] = 100.0  # one of three gates is open, the others are at a half
    assert units_of(gates, tokens)[0]["saturated"] == pytest.approx(1 / 3)


def test_spectral_radius_is_that_of_numpy():
    cell = Case("gru", "plain", {"num_layers": 1}).loud().layers[0]
    blocks = np.split(cell.weight_hh.detach().numpy(), 3)
    expected = max(np.abs(np.linalg.eigvals(block)).max() for block in blocks)
    assert spectral_radius(cell) == pytest.approx(expected)


@needs("more_cells")
def test_a_cell_without_recurrent_matrices_has_no_spectral_radius():
    assert spectral_radius(Case("mingru", "plain", {}).build().layers[0]) is None


class OnMPS:
    """A tensor of a device without float64."""

    device = torch.device("mps")
    ndim = 1

    def __init__(self, tensor):
        self.tensor = tensor

    def detach(self):
        return self

    def to(self, device):
        return self.tensor if device == torch.device("cpu") else self


def test_figures_are_summed_in_float64_on_any_device():
    """There is no `double` on MPS; the sum of so many squares has no place in float32."""
    tensor = torch.full((3, 1000), 1.0001)
    expected = math.sqrt(3000) * float(np.float32(1.0001))
    assert norm_of([tensor]) == pytest.approx(expected, rel=1e-12)
    assert norm_of([OnMPS(tensor), tensor[:1]]) == pytest.approx(expected * 2 / 3**0.5, rel=1e-12)


@pytest.mark.parametrize("shape", [(), (7,), (0, 5), (40, 3), (4, 50, 2), (2, 300)])
def test_norms_of_matrices_are_summed_in_pieces(shape, monkeypatch):
    monkeypatch.setattr("seqgen.plugins.inspect.diagnose.layers.PIECE", 100)
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.vector_norm(tensor.double()).item()
    assert norm_of([tensor]) == pytest.approx(expected, rel=1e-12)


def test_figures_of_an_update_by_hand():
    model = rnn("tanh")
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    update = Update(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5
    names = [name for name, _ in named_layers(model)]
    assert names == ["embedding", "layers.0", "head"]
    for figures, (_, parameters) in zip(update.figures({}), named_layers(model), strict=True):
        elements = sum(p.numel() for p in parameters)
        matrices = [p for p in parameters if p.ndim == 2]
        was = math.sqrt(
            sum(
                float(old.square().sum())
                for n, old in before.items()
                if dict(model.named_parameters())[n] in set(matrices)
            )
        )
        assert figures.grad_norm == pytest.approx(2 * math.sqrt(elements))
        moved = 0.5 * math.sqrt(sum(p.numel() for p in matrices))
        assert figures.update_ratio == pytest.approx(moved / was)


def test_every_parameter_is_in_one_named_layer():
    for case in (Case("transformer", "default", {}), Case("lstm", "tied", {"tie_weights": True})):
        model = case.build()
        found = [p for _, parameters in named_layers(model) for p in parameters]
        assert len(found) == len(set(found)) == len(list(model.parameters()))


def test_windows_lie_within_documents():
    corpus = Corpus(np.arange(20, dtype=np.uint8), np.array([3, 13, 20]), start=99)
    tokens, targets = windows(corpus, 5, 64)
    assert tokens.tolist() == [[99, 3, 4, 5, 6], [7, 8, 9, 10, 11], [99, 13, 14, 15, 16]]
    assert targets.tolist() == [[3, 4, 5, 6, 7], [8, 9, 10, 11, 12], [13, 14, 15, 16, 17]]


@pytest.mark.parametrize("scope", ["all", "each"])
def test_clipping_as_a_whole_and_by_matrix(scope):
    """Norms 3 and 4 are 5 together; clipped to 2."""
    first, second = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    first.grad, second.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    config = TrainingConfig(steps=1, clip_norm=2.0, clip_norm_scope=scope)
    assert float(clip_gradients([first, second], config)) == pytest.approx(5.0)
    expected = (3 * 2 / 5, 4 * 2 / 5) if scope == "all" else (2.0, 2.0)
    assert (float(first.grad[0]), float(second.grad[1])) == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "cat.txt"
    path.write_text(TEXT)
    return path


def trained(text, *more):
    arguments = ["train", text, "--steps", 2, "--hidden-size", 8, "--layers", 1, "-q", *more]
    assert run([*map(str, arguments)]) == 0


def test_the_command_writes_its_records(text, capsys):
    trained(text, "--model", "rnn", "--name", "r", "--seq-len", 8, "--batch-size", 4)
    found = records(capsys, "diagnose", text, "-m", "r", "--distance", 12)
    assert [list(r)[:3] for r in found[:13]] == [["distance", "grad_norm", "bound"]] * 13
    assert [r["distance"] for r in found[:13]] == list(range(13))
    layers = found[13:-1]
    first_keys = ["layer", "weight_norm", "grad_norm", "update_ratio", "saturated", "dead"]
    assert [list(r)[:6] for r in layers] == [first_keys] * 3
    assert [r["layer"] for r in layers] == ["embedding", "layers.0", "head"]
    assert found[-1]["model"] == "r" and found[-1]["tokens"] == 13
    capsys.readouterr()
    assert run(["diagnose", str(text), "-m", "r", "--distance", "12"]) == 0
    shown = capsys.readouterr().out
    assert "gradient norm" in shown and "spectral radius" in shown and "log10" in shown


def test_a_transformer_has_heads_and_a_window(text, tmp_path, capsys):
    trained(text, "--model", "transformer", "--name", "t", "--heads", 2, "--seq-len", 16)
    *_, first, second, about = records(capsys, "diagnose", text, "-m", "t")
    assert [first["head"], second["head"]] == [0, 1] and "entropy_unscaled" in first
    assert about["tokens"] == 16 and about["loss_unscaled"] > 0
    assert "--distance is at most 15" in refusal(
        capsys, "diagnose", text, "-m", "t", "--distance", 16
    )
    assert "--layer is from 0 to 0" in refusal(capsys, "diagnose", text, "-m", "t", "--layer", 1)
    assert run(["diagnose", str(text), "-m", "t"]) == 0
    assert "without 1/sqrt(D)" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert run(["diagnose", str(text), "-m", "t", "-q", "--plot", str(tmp_path / "a.svg")]) == 0
    assert "distance in tokens" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_a_model_that_reads_backward_is_diagnosed_so(documents, tmp_path, text, capsys):
    """One window holds the whole text: its loss is what perplexity finds."""
    trained(text, "--name", "b", "--direction", "backward", "--documents", documents, "--lr", 0.1)
    line = tmp_path / "line.txt"
    line.write_text("the dog sat on\n")
    (scored,) = records(capsys, "perplexity", line, "-m", "b")
    about = records(capsys, "diagnose", line, "-m", "b")[-1]
    assert about["tokens"] == scored["tokens"] == 15 and about["windows"] == 1
    assert about["loss"] == pytest.approx(scored["nll_nats"] / 15, rel=1e-5)


def test_what_cannot_be_diagnosed_is_refused_in_a_line(text, tmp_path, capsys):
    assert run(["train", str(text), "--model", "ngram", "--name", "n", "-q"]) == 0
    assert "trained by gradients" in refusal(capsys, "diagnose", text, "-m", "n")
    trained(text, "--model", "gru", "--name", "g", "--seq-len", 8)
    short = tmp_path / "short.txt"
    short.write_text("cat")
    assert "too short" in refusal(capsys, "diagnose", short, "-m", "g", "--distance", 3)
    assert len(records(capsys, "diagnose", short, "-m", "g")) == 3 + 3 + 1
    assert ".svg or .png" in refusal(capsys, "diagnose", text, "-m", "g", "--plot", "a.gif")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "too short" in refusal(capsys, "diagnose", empty, "-m", "g")


@pytest.mark.parametrize("settings", [{"pointer": 3}, {"zoneout": 0.4}])
def test_there_is_no_bound_where_more_than_a_product_of_slopes_acts(settings):
    """A pointer reads earlier outputs, too, and zoneout hands on part of the state as it is."""
    model, (tokens, targets) = rnn("tanh", **settings), text_of()
    assert {each.bound for each in gradients_by_distance(model, tokens, targets)} == {None}


@needs("more_cells")
def test_gradients_at_a_block_of_hawk_are_those_of_its_output():
    """Layer 0 puts out a tuple, of which its state is no part of what the next layer reads."""
    model, (tokens, targets) = Case("hawk", "default", {}).loud(), text_of()
    found = gradients_by_distance(model, tokens, targets, layer=0)
    states = model.start(len(tokens))
    with torch.no_grad():
        x, _, _ = model.blocks[0](model.embedding(tokens), states.read[0], states.h[0])
    x.requires_grad_()
    y, _, _ = model.blocks[1](x, states.read[1], states.h[1])
    logits = model.head(model.final_norm(y))[:, -1]
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, targets, reduction="sum"), x)
    wanted = gradient.norm(dim=-1).mean(0).flip(0)
    assert [each.grad_norm for each in found] == pytest.approx(wanted.tolist(), rel=1e-9)
