"""Regularisers of recurrent models: their equations, their expectations, and when they are off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from architectures import PAIRS, RECURRENT, Case, ids
from helpers_cli import known_architectures, needs
from training_runs import corpus_of, run_loop

from seqgen import registry
from seqgen.engines.dropout import Dropout, WordDropout, keep_mask
from seqgen.errors import UsageError
from seqgen.models.recurrent.cell import BatchNorm, Cell, Noise
from seqgen.models.seq2seq.layers import ragged_sequence
from seqgen.training.reading import ActivationPenalties

B, T, E, H = 2, 5, 3, 4
EXACT = {"rtol": 0, "atol": 1e-11}
LSTM = Case("lstm", "plain", {})
# Everything that is off in evaluation, as a cell with all of it has it.
DROPS = {
    "variational": True,
    "dropout": 0.3,
    "input_dropout": 0.2,
    "output_dropout": 0.4,
    "word_dropout": 0.2,
    "state_dropout": 0.3,
    "update_dropout": 0.2,
    "weight_drop": 0.4,
}


def layer_of(name, **more):
    """Return a layer of an architecture with random parameters, its input and the parts before."""
    torch.manual_seed(4)
    layer = Cell(E, Case(name, "", {}).config(hidden_size=H, **more)).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.6)
    before = tuple(torch.randn_like(part) for part in layer.start(B))
    return layer, torch.randn(B, T, E, dtype=torch.float64), before


def mask_like(shape, seed):
    """Return a mask of a hand's making: zeros and twos."""
    return torch.from_numpy(2.0 * np.random.default_rng(seed).integers(0, 2, shape))


def sigma(x):
    return 1 / (1 + np.exp(-x))


# ---- equations, on masks made by hand ----


def lstm_by_hand(p, x, state, masks):
    h, c = state
    total = p["weight_ih"] @ x + (p["weight_hh"] * masks["weight"]) @ (h * masks["past"])
    i, f, g, o = np.split(total + p["bias"], 4)
    new_c = sigma(f) * c + sigma(i) * (np.tanh(g) * masks["update"])
    new_h = sigma(o) * np.tanh(new_c)
    return masks["h"] * h + (1 - masks["h"]) * new_h, masks["c"] * c + (1 - masks["c"]) * new_c


def gru_by_hand(p, x, state, masks):
    (h,) = state
    u_r, u_z, u_n = np.split(p["weight_hh"] * masks["weight"], 3)
    w_r, w_z, w_n = np.split(p["weight_ih"] @ x + p["bias"], 3)
    read = h * masks["past"]
    r, z = sigma(w_r + u_r @ read), sigma(w_z + u_z @ read)
    new = np.tanh(w_n + r * (u_n @ read + p["bias_hn"])) * masks["update"]
    return (masks["h"] * h + (1 - masks["h"]) * ((1 - z) * new + z * h),)


@pytest.mark.parametrize(("name", "by_hand"), [("lstm", lstm_by_hand), ("gru", gru_by_hand)])
def test_the_equations_with_masks(name, by_hand, monkeypatch):
    """Dropped weights, a mask on what they read, one on the update, and zoned-out units."""
    zones = {"zoneout": 0.5, "zoneout_memory": 0.5} if name == "lstm" else {"zoneout": 0.5}
    layer, x, before = layer_of(name, **zones)
    p = {key: tensor.detach().numpy() for key, tensor in layer.named_parameters()}
    weight, bias = layer.maps_of_past()["hh"]
    w_mask, past, update = mask_like(weight.shape, 1), mask_like((B, H), 2), mask_like((B, H), 3)
    zoned = mask_like((T, len(before), B, H), 5) / 2  # h first, then c
    drawn = iter(1 - zoned.flatten(0, 1))
    monkeypatch.setattr("seqgen.models.recurrent.cell.keep_mask", lambda *_: next(drawn))
    noise = Noise({"hh": (weight * w_mask, bias)}, {"hh": past}, shared=update)
    y, after = layer.train().loop(x, before, noise)
    for row in range(B):
        state = tuple(part[row].numpy() for part in before)
        for t in range(T):
            masks = {"weight": w_mask.numpy(), "past": past[row].numpy()}
            masks["update"] = update[row].numpy()
            masks |= dict(zip("hc", zoned[t, :, row].numpy(), strict=False))
            state = by_hand(p, x[row, t].numpy(), state, masks)
            np.testing.assert_allclose(y[row, t].detach(), state[0], **EXACT)
        for got, wanted in zip(after, state, strict=True):
            np.testing.assert_allclose(got[row].detach(), wanted, **EXACT)


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_kernels_take_dropped_weights(name, monkeypatch):
    """One mask for the whole call: the kernel is the loop, and dropped weights get no gradient."""
    layer, x, before = layer_of(name, weight_drop=0.5)
    noise = layer.train().noise(B)
    weight, _ = noise.maps["hh"]
    zeros = weight == 0
    assert 0 < zeros.sum() < zeros.numel()
    torch.testing.assert_close(weight[~zeros], 2 * layer.weight_hh[~zeros])
    fast, _ = layer.equation.fast_sequence(layer, x, before, noise) or layer.loop(x, before, noise)
    wanted, _ = layer.loop(x, before, noise)
    torch.testing.assert_close(fast, wanted, **EXACT)
    (gradient,) = torch.autograd.grad(fast.square().sum(), [layer.weight_hh])
    assert not gradient[zeros].any() and gradient[~zeros].all()
    if name != "rnn":
        monkeypatch.setattr(layer, "loop", None)
    layer.sequence(x, before)


@pytest.mark.parametrize("name", known_architectures(["mingru", "minlstm"]))
def test_a_scan_drops_updates_as_the_loop_does(name):
    layer, x, before = layer_of(name, update_dropout=0.5, variational=True)
    noise = layer.train().noise(B)
    fast, wanted = layer.sequence(x, before, noise)[0], layer.loop(x, before, noise)[0]
    torch.testing.assert_close(fast, wanted, **EXACT)
    assert not torch.allclose(wanted, layer.eval().loop(x, before)[0])


@pytest.mark.parametrize("normed", ["output", "input"])
@pytest.mark.parametrize("name", RECURRENT)
def test_every_cell_takes_what_suits_it(name, normed):
    """Or refuses it in a line; and in evaluation steps over arrays are the training call."""
    cell = registry.architecture(name).load_config().equation
    suits = {
        "update_dropout": cell.has_update,
        "state_dropout": cell.reads_past,
        "weight_drop": cell.reads_past,
        "zoneout": "h" not in cell.passing,
        "zoneout_memory": len(cell.parts) > 1,
    }
    norms = {"batch_norm": True, "batch_norm_at": normed}
    if normed == "input" and cell.reads_itself:
        with pytest.raises(UsageError, match="reads only products of its input"):
            Case(name, "", norms).build()
        norms = {}
    case = Case(name, "", norms | {"hidden_size": 4})
    for setting, takes in suits.items():
        if not takes:
            with pytest.raises(UsageError, match=f"^{setting} needs a cell"):
                case.build(**{setting: 0.2})
    model = case.build(**{setting: 0.3 for setting, takes in suits.items() if takes}).train()
    tokens = ids(2, 4)
    model(tokens)[0].logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    with torch.no_grad():
        wanted, state = model(tokens)[0], model.start(2)
        for t in range(4):
            logits, state = model.step(tokens[:, t].tolist(), state)
            np.testing.assert_allclose(logits, wanted[:, t], **EXACT)


# ---- masks ----


def test_a_mask_that_time_shares():
    torch.manual_seed(0)
    x = torch.randn(40, 6, 50, dtype=torch.float64)
    y = Dropout(0.3, "time")(x)
    scale = y / x
    assert torch.equal(scale == 0, (scale == 0)[:, :1].expand_as(scale))
    assert (scale[0, 0] != scale[1, 0]).any()
    assert scale.mean().item() == pytest.approx(1, abs=4 * (0.3 / 0.7 / 2000) ** 0.5)
    assert Dropout(0.3, "time").eval()(x) is x


def test_whole_words_are_dropped():
    torch.manual_seed(0)
    tokens = torch.arange(500).repeat(2, 2)  # each four times
    x = torch.ones(2, 1000, 3, dtype=torch.float64)
    y = WordDropout(0.2, 500)(x, tokens)
    by_word = torch.stack([*y[:, :500], *y[:, 500:]])  # (4, 500, 3)
    assert torch.equal(by_word, by_word[:1, :, :1].expand_as(by_word))
    assert y.mean().item() == pytest.approx(1, abs=4 * (0.2 / 0.8 / 500) ** 0.5)
    assert WordDropout(0.2, 500).eval()(x, tokens) is x


def test_zoneout_in_evaluation_is_its_expectation():
    layer, _, before = layer_of("lstm", zoneout=0.1, zoneout_memory=0.4)
    before, new = (tuple(p.repeat(2000, 1) for p in some) for some in (before, before[::-1]))
    h, c = layer.eval().after(before, new)
    torch.testing.assert_close(h, 0.1 * before[0] + 0.9 * new[0], **EXACT)
    torch.testing.assert_close(c, 0.4 * before[1] + 0.6 * new[1], **EXACT)
    torch.manual_seed(1)
    for part, mean in zip(layer.train().after(before, new), (h, c), strict=True):
        assert (part.mean(0) - mean.mean(0)).abs().max() < 0.1


@needs("more_cells")
def test_masks_drawn_are_one_a_layer_and_row():
    layer, _, _ = layer_of("mut3", state_dropout=0.5, update_dropout=0.5, variational=True)
    noise = layer.train().noise(50)
    assert {*noise.past} == {"update", "reset", "candidate"}
    assert len({mask.data_ptr() for mask in noise.past.values()}) == 1
    assert noise.shared.shape == noise.past["reset"].shape == (50, H)
    assert noise.shared.unique().tolist() == [0.0, 2.0]
    some = noise.rows(7)
    assert torch.equal(some.shared, noise.shared[:7])
    assert torch.equal(some.past["reset"], noise.past["reset"][:7])
    assert layer.eval().noise(50).weights_alone


# ---- when nothing happens ----


def test_rates_of_zero_draw_nothing_and_keep_the_kernel(monkeypatch):
    model = LSTM.build().train()
    for layer in model.layers:
        monkeypatch.setattr(layer, "loop", None)
    before = torch.get_rng_state()
    model(ids(2, 5))[0].sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_evaluation_is_that_of_the_model_without_them(name, monkeypatch):
    case = Case(name, "", {})
    plain, dropping = case.build(), case.build(**DROPS, activation_penalty=2.0)
    before = torch.get_rng_state()
    with torch.no_grad(), monkeypatch.context() as kernels:
        for layer in dropping.layers:
            kernels.setattr(layer, "loop", None)
        assert torch.equal(plain(ids(2, 5))[0], dropping(ids(2, 5))[0])
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(plain(ids(2, 5))[0], dropping.train()(ids(2, 5))[0])


# ---- batch normalisation ----


def test_batch_norm_is_over_rows_and_time():
    torch.manual_seed(0)
    x, norm = torch.randn(3, 4, 5, dtype=torch.float64), BatchNorm(5).double()
    with torch.no_grad():
        norm.weight.normal_(), norm.bias.normal_()
    mean, variance = x.mean((0, 1)), x.var((0, 1), unbiased=False)
    wanted = norm.weight * (x - mean) / (variance + 1e-5).sqrt() + norm.bias
    torch.testing.assert_close(norm(x), wanted, **EXACT)
    running = 0.9 + 0.1 * x.var((0, 1))
    torch.testing.assert_close(norm.running_mean, 0.1 * mean, **EXACT)
    torch.testing.assert_close(norm.running_var, running, **EXACT)
    later = norm.weight * (x - 0.1 * mean) / (running + 1e-5).sqrt() + norm.bias
    torch.testing.assert_close(norm.eval()(x), later, **EXACT)
    torch.testing.assert_close(norm.train()(x[:1, :1]), later[:1, :1], **EXACT)


def test_batch_norm_of_the_input_is_the_papers_equation():
    """h_t = tanh(W_h h_t-1 + BN(W_x x_t)), over rows and time (Laurent et al. 2016)."""
    settings = {"num_layers": 1, "batch_norm": True, "batch_norm_at": "input", "dropout": 0.0}
    model = Case("rnn", "", settings).loud().train()
    (cell,), tokens = model.layers, ids(3, 4)
    with torch.no_grad():
        products = model.embedding(tokens) @ cell.weight_ih.T
        mean, variance = products.mean((0, 1)), products.var((0, 1), unbiased=False)

        def outputs(mean, variance):
            gain, h, every = cell.input_norm.weight, torch.zeros(3, len(mean)).double(), []
            for product in products.unbind(1):
                normed = gain * (product - mean) / (variance + 1e-5).sqrt() + cell.bias
                h = torch.tanh(h @ cell.weight_hh.T + normed)
                every.append(h)
            return torch.stack(every, 1)

        trained = outputs(mean, variance)
        torch.testing.assert_close(model(tokens)[0], model.head(trained), **EXACT)
        running = 0.1 * mean, 0.9 + 0.1 * products.var((0, 1))
        evaluated = model.head(outputs(*running))
        torch.testing.assert_close(model.eval()(tokens)[0], evaluated, **EXACT)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_a_normalised_input_stays_in_bf16(name):
    settings = {"batch_norm": True, "batch_norm_at": "input"}
    model = Case(name, "", settings).build(torch.float32).train()
    with torch.autocast("cpu", torch.bfloat16):
        assert model.layers[0].read_input(torch.randn(3, 2, 8)).dtype == torch.bfloat16


@pytest.mark.parametrize("more", [{}, {"batch_norm_at": "input"}, {"dense": True}])
def test_steps_see_new_running_statistics(more):
    model = Case("gru", "", {"batch_norm": True, **more}).build()
    first, _ = model.step([1], model.start(1))
    norm = next(part for part in model.modules() if isinstance(part, BatchNorm))
    norm.running_mean += 1
    second, _ = model.step([1], model.start(1))
    assert not np.array_equal(first, second)
    with torch.no_grad():
        np.testing.assert_allclose(second, model(torch.tensor([[1]]))[0][:, 0], **EXACT)


# ---- penalties ----


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_penalties_are_in_the_gradient_and_not_in_the_loss(documents, monkeypatch):
    alpha, beta = 0.7, 1.3
    penalties = {"activation_penalty": alpha, "temporal_penalty": beta}
    # Only the last layer's output counts, and there are documents of a single token.
    case, corpus = Case("lstm", "", {"num_layers": 1}), corpus_of(1, 4, 2, 5, 3)
    plain, model = case.loud(), case.loud(**penalties)
    # One step of plain SGD from a zero state moves the weights by minus the gradient.
    how = {"steps": 1, "optimizer": "sgd", "lr": 1.0, "weight_decay": 0.0, "clip_norm": 0.0}
    how |= {"documents": documents, "accumulate": 2, "warmup": 0.0, "schedule": "constant"}
    _, (wanted,) = run_loop(monkeypatch, plain, corpus, batch_size=5, **how)
    trainer, (event,) = run_loop(monkeypatch, model, corpus, batch_size=5, **how)
    assert event.train_loss == wanted.train_loss
    reference, batch = case.loud(**penalties), trainer.batches.batch(0)
    h, _ = reference.hidden(torch.from_numpy(batch.tokens), None)
    cost = 0.0
    for row, targets in zip(h, batch.targets, strict=True):
        length = int((targets >= 0).sum())
        for t in range(length):
            cost = cost + alpha * (row[t] ** 2).mean()
            if t:
                cost = cost + beta * ((row[t] - row[t - 1]) ** 2).mean()
    (cost / batch.count).backward()
    for p, q, r in zip(plain.parameters(), model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p - q, r.grad if r.grad is not None else p - p, **EXACT)


def test_the_penalty_on_change_is_of_what_was_not_dropped():
    model = LSTM.build(activation_penalty=1.0, temporal_penalty=0.0, output_dropout=0.5).train()
    slow = LSTM.build(activation_penalty=0.0, temporal_penalty=1.0, output_dropout=0.5).train()
    targets = ids(2, 4)
    for one in (model, slow):
        penalties = ActivationPenalties(one)
        with penalties.watched() as seen:
            features, _ = one.hidden(ids(2, 4), None)
        ((h, dropped),) = seen
        assert torch.equal(dropped, features) and (dropped == 0).any() and not (h == 0).any()
        wanted = dropped.square() if one is model else h.diff(dim=1).square()
        torch.testing.assert_close(penalties.cost(seen, targets), wanted.sum() / h.shape[-1])
    one.hidden(ids(2, 4), None)
    assert len(seen) == 1  # nothing is watched any more


# ---- encoder-decoders ----


def test_a_decoder_that_goes_step_by_step_keeps_its_masks():
    (case,) = [case for case in PAIRS if case.variant == "lstm-all"]
    model = case.build(dropout=0.5, variational=True, state_dropout=0.4, weight_drop=0.3).train()
    memory = model.encode(ids(2, 5), [5, 3])
    features, _ = model.hidden(ids(2, 6), memory)
    gone = features == 0
    assert torch.equal(gone, gone[:, :1].expand_as(gone)) and gone.any() and not gone.all()
    features.sum().backward()
    assert model.decoder.layers[0].weight_hh.grad.any()


def test_sources_of_different_lengths_keep_their_masks():
    layer, x, _ = layer_of("gru", state_dropout=0.5, update_dropout=0.5, variational=True)
    layer.train()
    torch.manual_seed(3)
    ragged, _ = ragged_sequence(layer, x, [T, 2])
    torch.manual_seed(3)
    whole, _ = layer.sequence(x, layer.start(B))
    torch.testing.assert_close(ragged[0], whole[0], **EXACT)
    torch.testing.assert_close(ragged[1, :2], whole[1, :2], **EXACT)
    assert not ragged[1, 2:].any()


# ---- the last layer ----


def test_a_last_layer_of_its_own_width():
    settings = {"last_size": 5, "embedding_size": 5, "tie_weights": True, "num_layers": 3}
    model = Case("lstm", "", settings).build()
    assert [layer.hidden_size for layer in model.layers] == [8, 8, 5]
    assert model.head.weight is model.embedding.weight
    with pytest.raises(UsageError, match="tie_weights needs embedding_size=5"):
        LSTM.config(last_size=5, tie_weights=True)
    with pytest.raises(UsageError, match="residual needs layers of one width"):
        LSTM.config(last_size=5, residual=True)


def test_kept_is_zeros_and_ones():
    assert keep_mask((3, 50), 0.5, torch.ones(1)).unique().tolist() == [0.0, 1.0]
