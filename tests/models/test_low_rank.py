"""Low-rank adapters (`--set lora=R`): what they compute, what is trained, stored and exported."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import NEURAL, ONE_OF_EACH, ids, over
from helpers_cli import needs
from safetensors.torch import load_file, save_file

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.base import load_weights, weights_of
from seqgen.models.low_rank import adapter_tensors, add_adapters, merge_adapters
from seqgen.models.network import hidden_matrices
from seqgen.settings.training import TrainingConfig
from seqgen.store.loading import load
from seqgen.training.resume import resume
from seqgen.training.session import RunOptions
from seqgen.training.train import train

SETTINGS = {"seed": 3, "precision": "float32", "batch_size": 3, "val": "none"}
SHAPE = {"hidden_size": 16, "num_layers": 2, "seq_len": 6}
TEXT = "so it goes on and on, and it ends so.\n" * 20


def filled(model):
    """Give every B numbers, so that the adapters do something; float64."""
    with torch.no_grad():
        for name, tensor in adapter_tensors(model).items():
            if ".lora_b." in name:
                tensor.normal_(std=0.5)


@pytest.mark.fast_for(*ONE_OF_EACH, rest="slow")
@over(NEURAL)
def test_adapters_begin_with_the_base_and_merge_into_it(case):
    """The weights are the base's at first, to the last bit; merged, they give the same logits.

    Logits at first are not, for products round by where in memory a matrix lies.
    """
    model, tokens = case.loud(), ids(2, min(5, case.config().to_dict().get("window", 5)))
    base = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    count = model.parameter_count()
    if not list(hidden_matrices(model)):
        with pytest.raises(ValueError, match="there are no matrices between embedding and head"):
            add_adapters(model, rank=2, alpha=3.0)
        assert all(p.requires_grad for p in model.parameters())
        return
    with torch.no_grad():
        before = model(tokens)[0]
        add_adapters(model, rank=2, alpha=3.0)
        torch.testing.assert_close(model(tokens)[0], before, rtol=1e-12, atol=1e-12)
        for name in {name.split(".lora_")[0] for name in adapter_tensors(model)}:
            assert torch.equal(operator.attrgetter(name)(model), base[name])
        filled(model)
        after = model(tokens)[0]
        assert not torch.allclose(after, before)
        plain = case.loud()
        load_weights(plain, merge_adapters(base, weights_of(model), alpha=3.0, rank=2))
        torch.testing.assert_close(plain(tokens)[0], after, rtol=1e-9, atol=1e-9)
    assert model.parameter_count() == plain.parameter_count() == count
    trained = [p for p in model.parameters() if p.requires_grad]
    assert {id(p) for p in trained} == {id(t) for t in adapter_tensors(model).values()}


def test_update_and_gradients_are_those_of_the_paper():
    """y = W x + (alpha / r) B A x for each stacked map, with gradients written out by hand."""
    torch.manual_seed(0)

    class Network(torch.nn.Module):
        head = None

        def __init__(self):
            super().__init__()
            self.map = torch.nn.Linear(5, 7, bias=False, dtype=torch.float64)
            self.map.maps = {"weight": (4, 3)}

        def forward(self, x):
            return self.map(x)

    network = Network()
    weight = network.map.weight.detach().numpy().copy()
    add_adapters(network, rank=2, alpha=6.0)
    filled(network)
    parts = {n.split("lora_")[1]: t for n, t in adapter_tensors(network).items()}
    a, b = ([parts[f"{x}.{i}"].detach().numpy() for i in range(2)] for x in "ab")
    assert [x.shape for x in (*a, *b)] == [(2, 5), (2, 5), (4, 2), (3, 2)]
    x, target = np.random.default_rng(1).normal(size=(2, 11, 7))
    x = x[:, :5]
    y = network(torch.tensor(x))
    pairs = list(zip(a, b, strict=True))
    by_hand = x @ weight.T + 3 * np.hstack([x @ low.T @ high.T for low, high in pairs])
    np.testing.assert_allclose(y.detach().numpy(), by_hand, rtol=1e-12)
    F.mse_loss(y, torch.tensor(target), reduction="sum").backward()
    d_y = 2 * (by_hand - target)
    for i, rows in enumerate((slice(0, 4), slice(4, 7))):
        d_b = 3 * d_y[:, rows].T @ (x @ a[i].T)
        d_a = 3 * (d_y[:, rows] @ b[i]).T @ x
        np.testing.assert_allclose(parts[f"b.{i}"].grad.numpy(), d_b, rtol=1e-10)
        np.testing.assert_allclose(parts[f"a.{i}"].grad.numpy(), d_a, rtol=1e-10)
    assert network.map.parametrizations.weight.original.grad is None


def test_adapters_that_do_not_fit_are_refused():
    weights = {"w": torch.zeros(4, 5)}
    a, b = torch.zeros(2, 5), torch.zeros(4, 2)
    right = merge_adapters(weights, {"w.lora_a.0": a, "w.lora_b.0": b}, 1.0, 2)
    assert torch.equal(right["w"], weights["w"])
    for wrong in (
        {"w.lora_a.0": a},
        {"w.lora_a.0": a, "w.lora_b.0": b[:3]},
        {"w.lora_a.0": a[:, :4], "w.lora_b.0": b},
        {"w.lora_a.0": a[:1], "w.lora_b.0": b},
        {"v.lora_a.0": a, "v.lora_b.0": b},
        {"w": b},
        {"w.lora_a.x": a, "w.lora_b.0": b},
    ):
        with pytest.raises(ValueError, match="adapter"):
            merge_adapters(weights, wrong, 1.0, 2)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def base(text):
    settings = {**SETTINGS, **SHAPE, "num_heads": 2, "steps": 3}
    train([text], architecture="transformer", name="base", settings=settings)
    return store.find("base")


def adapters(text, name="tuned", stop_after=None, **settings):
    settings = {**SETTINGS, "init_from": "base", "lora": 2, "steps": 4, **settings}
    return train([text], name=name, settings=settings, stop_after=stop_after)


def everything(name):
    folder = store.find(name).path
    return load_file(folder / store.WEIGHTS), load_file(folder / "checkpoints" / "last.safetensors")


def test_only_adapters_are_trained_and_stored(base, text):
    before = (base.path / store.WEIGHTS).read_bytes()
    adapters(text)
    tensors, checkpoint = everything("tuned")
    # q, k, v, out, two of the gated inner layer and its output: seven maps a block.
    assert len(tensors) == 2 * 7 * 2
    assert all(".lora_a." in name or ".lora_b." in name for name in tensors)
    assert sum(t.numel() for t in tensors.values()) < load("base").model.parameter_count() / 2
    of_optimizer = sum(t.numel() for n, t in checkpoint.items() if n.startswith("optimizer."))
    trained = sum(t.numel() for t in tensors.values())
    assert trained * 2 <= of_optimizer <= trained * 2 + len(tensors)  # AdamW: two, and a step
    assert (base.path / store.WEIGHTS).read_bytes() == before
    stored = store.find("tuned")
    assert stored.config["adapter"]["base"] == {"name": "base", "digest": base.digest}
    assert stored.config["training"]["lora_alpha"] == 2.0
    plain = load("base").model.state_dict()
    tuned = load("tuned").model.state_dict()
    changed = {name for name in plain if not torch.equal(plain[name], tuned[name])}
    assert changed == {name.split(".lora_")[0] for name in tensors}


def test_a_first_step_without_rate_leaves_the_base(base, text):
    adapters(text, lr=1e-30, steps=1)
    tokens = torch.arange(5)[None]
    with torch.no_grad():
        logits = [load(name).model(tokens)[0] for name in ("base", "tuned")]
    assert torch.equal(*logits)


@pytest.mark.fast_for("more0")
@pytest.mark.parametrize("more", [{}, {"ema": 0.5, "optimizer": "muon", "dropout": 0.2}])
def test_resuming_adapters_is_bit_for_bit(more, base, text):
    adapters(text, name="at-once", **more)
    adapters(text, name="in-two", stop_after=2, **more)
    resume("in-two")
    for one, other in zip(everything("at-once"), everything("in-two"), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert store.find("in-two").config == store.find("at-once").config


def test_the_base_may_be_renamed_but_not_lost_or_changed(base, text, capsys):
    adapters(text)
    store.rename(base, "other")
    assert load("tuned").model
    renamed = store.find("other")
    aside = renamed.path.rename(renamed.path.parent.parent / "aside")
    with pytest.raises(SeqgenError, match="tuned holds low-rank adapters, and their base base is"):
        load("tuned")
    assert run(["perplexity", "-m", "tuned"]) == 1
    assert "restore it, or train the adapters again" in capsys.readouterr().err
    changed = aside.rename(renamed.path.with_name("base"))
    weights = load_file(changed / store.WEIGHTS)
    weights["head.weight"][0, 0] += 1
    save_file(weights, changed / store.WEIGHTS)
    with pytest.raises(SeqgenError, match="their base base has changed since"):
        load("tuned")


def test_a_base_may_be_removed_with_what_needs_it(base, text, capsys):
    adapters(text)
    assert run(["models", "remove", "base", "tuned", "--yes"]) == 0
    assert "cannot be used" not in capsys.readouterr().err  # nothing that needs it is left


def test_a_base_that_is_removed_is_told_to_be_needed(base, text, capsys):
    adapters(text)
    assert run(["models", "remove", "base", "--yes"]) == 0
    assert "this breaks what is made of it: tuned" in capsys.readouterr().err


def test_adapters_on_adapters(base, text):
    adapters(text)
    settings = {**SETTINGS, "init_from": "tuned", "lora": 1, "steps": 1, "lr": 1e-30}
    train([text], name="again", settings=settings)
    one, other = (load(name).model.state_dict() for name in ("tuned", "again"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_export_merges(base, text, tmp_path, capsys):
    exchange = pytest.importorskip("seqgen.plugins.exchange.exchange")
    adapters(text)
    out = str(tmp_path / "hf")
    assert run(["export", "tuned", "--format", "hf", "--out", out]) == 1
    assert "tuned holds adapters of base: add --merge" in capsys.readouterr().err
    assert run(["export", "base", "--format", "hf", "--out", out, "--merge"]) == 2
    assert run(["export", "tuned", "--format", "hf", "--out", out, "--merge", "-q"]) == 0
    pytest.importorskip("tokenizers")
    exchange.import_model(out, name="back")
    tokens = torch.arange(5)[None]
    with torch.no_grad():
        logits = [load(name).model(tokens)[0] for name in ("tuned", "back")]
    torch.testing.assert_close(*logits, rtol=0, atol=0)


def test_adapters_in_a_mixture(base, text, capsys):
    adapters(text)
    assert run(["mix", "base", "tuned", "--name", "both", "--weights", "0.5,0.5", "-q"]) == 0
    assert load("both").model.vocab_size == load("base").model.vocab_size
    command = ["mix", "base", "tuned", "--name", "copied", "--weights", "0.5,0.5", "--copy", "-q"]
    assert run(command) == 1
    assert "tuned holds low-rank adapters, and a copy of it would" in capsys.readouterr().err


def test_wrong_usage(base, text):
    with pytest.raises(UsageError, match="lora trains adapters of a trained model"):
        train([text], settings={"lora": 2, "steps": 1})
    with pytest.raises(UsageError, match="--shard does not go with lora: leave out one of them"):
        options = RunOptions.of("cpu", print, shard=True)
        options.check_divisible(TrainingConfig(init_from="base", lora=8))
    with pytest.raises(UsageError, match="lora_alpha needs lora"):
        train([text], settings={"lora_alpha": 2, "steps": 1})
    with pytest.raises(UsageError, match="adapters need their base, base: choose another --name"):
        train(
            [text],
            name="base",
            overwrite=True,
            settings={**SETTINGS, "init_from": "base", "lora": 2, "steps": 1},
        )
    assert [model.name for model in store.list_models()] == ["base"]


@needs("labels")
def test_a_classifier_trains_no_adapters(base, tmp_path):
    pairs = tmp_path / "labels.tsv"
    pairs.write_text("so it goes\tyes\nit ends\tno\n" * 9)
    with pytest.raises(UsageError, match="lora has no meaning: transformer-classifier learns"):
        train([pairs], task="classify", settings={"init_from": "base", "lora": 2, "steps": 1})
    assert [model.name for model in store.list_models()] == ["base"]


def test_a_damaged_table_is_one_line(base, text):
    from seqgen.files import json_bytes

    adapters(text)
    stored = store.find("tuned")
    config = stored.config
    table = config["adapter"]
    for broken in ({}, {**table, "base": {}}, {**table, "rank": "2"}, 3):
        (stored.path / store.CONFIG).write_bytes(json_bytes({**config, "adapter": broken}))
        with pytest.raises(SeqgenError, match="is damaged"):
            load("tuned")
