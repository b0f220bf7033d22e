"""Matrices in fewer bits (`--precision bf16|int8|int4`): products, models, commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from architectures import PAIR_VARIANTS, RECURRENT, Case
from helpers_cli import needs

from seqgen import store
from seqgen.cli import run
from seqgen.engines.arrays import attend, attend_each
from seqgen.engines.fast_layers import FastLinear
from seqgen.engines.precision import in_precision
from seqgen.engines.quantized import OF_HEAD, QUANTIZED, Bf16Map, Int4Map, Int8Map
from seqgen.errors import UsageError
from seqgen.models.array_steps import ArraySteps
from seqgen.store.loading import load
from seqgen.training.train import train


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_int8_products_are_those_of_whole_numbers():
    """In Python's integers: scales are the largest magnitude of a row of W, of 32 columns of x."""
    weight, bias, x = numbers(5, 76), numbers(5, seed=1), numbers(3, 76, seed=2)
    x[1], x[2, 40] = 0, 1000
    y = Int8Map(torch.from_numpy(weight), torch.from_numpy(bias))(x)
    for i in range(3):
        for o in range(5):
            of_w, wanted = np.abs(weight[o]).max() / np.float32(127), float(bias[o])
            for block in (slice(32), slice(32, 64), slice(64, 76)):
                of_x = np.abs(x[i, block]).max() / np.float32(127)
                whole = sum(
                    int(np.rint(a / of_w)) * (int(np.rint(b / of_x)) if of_x else 0)
                    for a, b in zip(weight[o, block], x[i, block], strict=True)
                )
                wanted += whole * float(of_w) * float(of_x)
            assert y[i, o] == pytest.approx(wanted, rel=1e-5)
    assert (y[1] == bias).all()


def test_int8_products_over_a_single_column():
    y = Int8Map(torch.tensor([[1.0], [-2.0]]), None)(np.array([[3.0], [100.0]], np.float32))
    np.testing.assert_allclose(y, [[3, -6], [100, -200]], rtol=1e-6)


def test_int4_products_of_numbers_that_4_bits_hold():
    """Whole numbers times a power of two for each block are kept as they are."""
    draw = np.random.default_rng(0)
    weight, x = draw.integers(-8, 8, (5, 80)), draw.integers(-127, 128, (3, 80))
    weight[:, ::16], x[:, ::16] = -8, 127
    powers = np.exp2(np.repeat([[3, -9, 1], [-2, 8, 0]], 32, 1))[:, :80]
    weight, x, bias = weight * powers[0], x * powers[1], numbers(5)
    mapped = Int4Map(torch.from_numpy(weight).float(), torch.from_numpy(bias))
    exact = x @ weight.T + bias
    near = 1e-6 * abs(exact).max()
    np.testing.assert_allclose(mapped(x.astype(np.float32)), exact, rtol=1e-6, atol=near)


def test_int4_rounds_better_than_to_the_largest_number():
    """Blocks of 32 become 16 levels; that of the largest magnitude need not be kept as it is."""
    weight = numbers(40, 70)
    weight[3, 32:64] = 0
    kept = Int4Map(torch.from_numpy(weight), None)(np.eye(70, dtype=np.float32)).T
    better = 0
    for begin in (0, 32, 64):
        block = weight[:, begin : begin + 32]
        extreme = np.take_along_axis(block, abs(block).argmax(1)[:, None], 1)
        scale = torch.from_numpy(extreme / -8).bfloat16().float().numpy()
        plain = np.clip(np.rint(block / (scale + 1e-30)), -8, 7) * scale
        errors = [np.square(x - block).sum(1) for x in (kept[:, begin : begin + 32], plain)]
        assert (errors[0] <= errors[1] * (1 + 1e-4)).all()
        better += (errors[0] < errors[1] * 0.9).sum()
        assert all(len(np.unique(row.round(6))) <= 16 for row in kept[:, begin : begin + 32])
    assert better > 40


@pytest.mark.parametrize("kind", [Int8Map, Int4Map])
def test_whole_numbers_by_numpy_are_those_by_the_library(kind, monkeypatch):
    weight, bias, x = numbers(61, 100), numbers(61, seed=1), numbers(7, 100, seed=2)
    x[1] = 0
    tensors = torch.from_numpy(weight), torch.from_numpy(bias)
    mapped = kind(*tensors)
    monkeypatch.setattr("seqgen.engines.quantized.library", lambda: None)
    np.testing.assert_allclose(kind(*tensors)(x), mapped(x), rtol=0, atol=1e-5)


def test_bf16_products_are_those_of_rounded_numbers():
    weight, x = numbers(7, 33), numbers(4, 33, seed=2)
    rounded = [torch.from_numpy(a).bfloat16().double() for a in (x, weight)]
    exact = (rounded[0] @ rounded[1].T).float().bfloat16().float().numpy()
    np.testing.assert_allclose(Bf16Map(torch.from_numpy(weight), None)(x), exact, rtol=2**-7)


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("shape", [(5, 1), (61, 48), (96, 384), (40, 1536)])
def test_rows_do_not_depend_on_those_beside_them(kind, shape):
    mapped = QUANTIZED[kind](torch.from_numpy(numbers(*shape)), None)
    x = numbers(21, shape[1], seed=1)
    alone = np.concatenate([mapped(row[None]) for row in x])
    for count in (2, 3, 8, 21):
        assert (mapped(x[:count]) == alone[:count]).all()
    over = mapped.over(torch.from_numpy(x).view(3, 7, -1))
    assert over.shape == (3, 7, shape[0]) and (over.flatten(0, 1).numpy() == alone).all()


def test_attention_of_a_row_is_that_of_the_row_alone():
    q, keys, values = (
        numbers(4, 6, 1, 8),
        numbers(4, 2, 19, 8, seed=1),
        numbers(4, 2, 19, 8, seed=2),
    )
    starts = [3, 0, 3, 11]
    there = (np.arange(19) >= np.array(starts)[:, None])[:, None, None]
    read = attend_each(q, keys, values, there)
    np.testing.assert_allclose(read, attend(q, keys, values, there), rtol=1e-5, atol=1e-6)
    for row, start in enumerate(starts):
        one = slice(row, row + 1)
        past = keys[one, :, start:], values[one, :, start:]
        assert (attend_each(q[one], *past, None) == read[one]).all()


MODELS = [Case(name, "default", {}) for name in (*RECURRENT, "transformer")]
MODELS += [Case("gru", "before", {"reset": "before"})]
MODELS += [
    Case("lstm", setting, {setting: value})
    for setting, value in {
        "residual": True,
        "dense": True,
        "batch_norm": True,
        "input": "onehot",
    }.items()
]


def in_steps(model, tokens):
    """Return the logits (B, T, V) after tokens (B, T), read one by one."""
    state, logits = model.start(len(tokens)), []
    for column in tokens.T.tolist():
        after, state = model.step(column, state)
        logits.append(torch.from_numpy(after))
    return torch.stack(logits, 1)


@pytest.mark.fast_for("*-int8", "*'lstm'*", "*'transformer'*", rest="slow")
@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("case", MODELS, ids=str)
def test_models_in_fewer_bits(case, kind):
    """Near float32; a text at once is a text in steps; rows do not depend on their neighbours."""
    exact = case.build(torch.float32, hidden_size=24)
    model = in_precision(case.build(torch.float32, hidden_size=24), kind)
    assert isinstance(model, ArraySteps) and model.quantized == kind
    tokens = torch.randint(0, 7, (3, 6), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = model(tokens, model.start(3))[0]
        near = {"int4": 0.4}.get(kind, 0.1)
        torch.testing.assert_close(whole, exact(tokens)[0], rtol=0, atol=near)
        assert not torch.equal(whole, exact(tokens)[0])
        alone = [model(row[None], model.start(1))[0] for row in tokens]
        assert torch.equal(torch.cat(alone), whole)
        stepped = in_steps(model, tokens)
    # A recurrent model reads a text as it takes steps. A transformer's attention over many tokens
    # adds up in another order, which may round a number of a vector to the next step of int8.
    near = {"rtol": 0, "atol": 0.05 if case.architecture == "transformer" else 0}
    torch.testing.assert_close(stepped, whole, **near)


@pytest.mark.fast_for("*2017*int8*", "*default*int4-True*", rest="slow")
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("variant", PAIR_VARIANTS["seq2seq-transformer"])
def test_translators_in_fewer_bits(variant, kind, native, monkeypatch):
    """Near float32, and each text's logits are those of the text alone, beside any sources."""
    settings = PAIR_VARIANTS["seq2seq-transformer"][variant]
    case = Case("seq2seq-transformer", variant, settings)
    exact, model = (case.build(torch.float32, hidden_size=24) for _ in range(2))
    if not native:
        for place in ("arrays", "quantized", "native.recording"):
            monkeypatch.setattr(f"seqgen.engines.{place}.library", lambda: None)
    model.quantize(kind)
    sources = [[3, 1, 4], [2, 5, 3, 1, 6, 2, 4], [5]]
    tokens = torch.randint(0, 7, (6, 8), generator=torch.Generator().manual_seed(1))

    def logits(of, numbers):
        read = [sources[number] for number in numbers]
        size = max(map(len, read))
        values = torch.tensor([source + [0] * (size - len(source)) for source in read])
        owners = [owner for owner in range(len(read)) for _ in range(2)]
        with torch.no_grad():
            state = of.start(of.encode(values, [*map(len, read)]).select(owners))
            rows = tokens[[2 * number + beam for number in numbers for beam in range(2)]]
            after = []
            for column in rows.T.tolist():
                step, state = of.step(column, state)
                after.append(torch.from_numpy(step))
        return torch.stack(after, 1)

    together = logits(model, [0, 1, 2])
    near = {"int4": 0.4}.get(kind, 0.1)
    torch.testing.assert_close(together, logits(exact, [0, 1, 2]), rtol=0, atol=near)
    assert not torch.equal(together, logits(exact, [0, 1, 2]))
    for some in ([0], [1], [2], [2, 0]):
        rows = [2 * number + beam for number in some for beam in range(2)]
        assert torch.equal(logits(model, some), together[rows])


@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_pointer_reads_features_in_fewer_bits(kind):
    """Those of a text at once are those of steps; the pointer itself has float32's rounding."""
    case = Case("lstm", "pointer", {"pointer": 3})
    exact, model = (case.build(torch.float32, hidden_size=24) for _ in range(2))
    model.quantize(kind)
    tokens = torch.tensor([[1, 2, 1, 2, 3], [3, 3, 1, 0, 1]])
    with torch.no_grad():
        whole, alone = model(tokens)[0], torch.cat([model(row[None])[0] for row in tokens])
        near = {"int4": 0.4}.get(kind, 0.1)
        torch.testing.assert_close(whole, exact(tokens)[0], rtol=0, atol=near)
    torch.testing.assert_close(whole, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(in_steps(model, tokens), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", QUANTIZED)
def test_weights_in_fewer_bits_replace_those_in_float32(kind, tied):
    """What stays in float32 is what something else reads, and one number a layer."""
    case = Case("transformer", "default", {"tie_weights": tied, "bias": True})
    model = case.build(torch.float32, hidden_size=24)
    count = model.parameter_count()
    exact = model(torch.tensor([[1, 2, 3]]))[0]
    model.quantize(kind)
    with torch.no_grad():
        torch.testing.assert_close(model(torch.tensor([[1, 2, 3]]))[0], exact, rtol=0, atol=0.1)
    assert model.parameter_count() == count
    kept = {
        p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()
    }
    linear = [module for module in model.modules() if isinstance(module, FastLinear)]
    freed = [layer for layer in linear if not (tied and layer is model.head)]
    assert isinstance(model.head.quantized, QUANTIZED[OF_HEAD.get(kind, kind)])
    assert all(layer.weight.isnan().all() for layer in freed)
    of_freed = sum(layer.weight.numel() for layer in freed)
    assert sum(kept.values()) == 4 * (count - of_freed + len(freed))
    assert (model.head.weight is model.embedding.weight) == tied
    with pytest.raises(ValueError, match="already"):
        model.quantize(kind)


@needs("window")
def test_what_has_no_such_form_stays():
    window = in_precision(Case("window", "default", {}).build(torch.float32), "int8")
    assert all(p.dtype == torch.float32 for p in window.parameters())
    assert in_precision(window, "bf16").head.weight.dtype == torch.bfloat16


TEXT = "so it goes on and on, and it ends so.\n" * 30


@pytest.fixture
def models(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    shared = {
        "seed": 3,
        "precision": "float32",
        "val": 0.1,
        "hidden_size": 32,
        "seq_len": 16,
        "steps": 9,
    }
    train([text], architecture="lstm", name="lstm", settings=shared)
    train([text], architecture="transformer", name="tf", settings=shared)
    train([text], architecture="ngram", name="ngram", settings={"order": 3})


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.fast_for("int4", rest="slow")
@pytest.mark.parametrize("kind", [pytest.param("bf16", marks=pytest.mark.slow), "int8", "int4"])
def test_texts_do_not_depend_on_the_batch(kind, models, capsys):
    prompts = ["so", "and it", "", "it goes on and on and on", "on"]
    for model in ("lstm", "tf", "lstm+ngram"):
        written = []
        for size in ("1", "3", "64"):
            how = ["-m", model, "--precision", kind, "--seed", "5", "--batch-size", size, "--json"]
            assert run(["sample", *prompts, "--max-tokens", "24", "-q", *how]) == 0
            written.append(lines(capsys))
        assert written[0] == written[1] == written[2]
        found = []
        for size in ("1", "64"):
            how = ["-m", model, "--precision", kind, "--batch-size", size, "--json", "-q"]
            assert run(["beam-search", *prompts, "--beams", "3", "--max-tokens", "12", *how]) == 0
            found.append(lines(capsys))
        assert found[0] == found[1]


def test_figures_say_in_what_they_were_made(models, capsys):
    assert run(["perplexity", "-m", "tf", "--precision", "int8", "--json", "-q"]) == 0
    record = lines(capsys)[0]
    assert "products in int8" in record["protocol"] and "precision:int8" in record["signature"]
    kinds = "float32,bf16,int8,int4"
    assert run(["compare", "lstm", "tf", "--precisions", kinds, "--json", "-q"]) == 0
    compared = {record["model"]: record for record in lines(capsys)}
    assert list(compared) == [f"{m} in {k}" for m in ("lstm", "tf") for k in kinds.split(",")]
    for model in ("lstm", "tf"):
        exact, *others = (compared[f"{model} in {kind}"] for kind in kinds.split(","))
        for other in others:
            assert 0 < abs(other["bits_per_char"] - exact["bits_per_char"]) < 0.02
    assert compared["tf in int8"]["bits_per_char"] == record["bits_per_char"]
    assert compared["tf in int8"]["precision"] == "int8"


def test_wrong_usage(models, tmp_path, capsys):
    with pytest.raises(UsageError, match="--precision int8 is for transformers and recurrent"):
        load("ngram", precision="int8")
    for kind in ("int8", "int4"):
        assert load("lstm+ngram", precision=kind).precision == kind
    for wrong in (
        ["compare", "tf", "--precisions", "float32,int7"],
        ["compare", "tf", "--precisions", "int8,int8"],
        ["compare", "tf", "--precisions", "int8", "--precision", "bf16"],
        ["perplexity", "-m", "ngram", "--precision", "int4"],
        ["perplexity", "-m", "lstm", "--precision", "int8", "--dynamic", "0.1"],
        ["train", str(tmp_path / "text.txt"), "--precision", "int8"],
    ):
        assert run(wrong) == 2, wrong
    assert len(capsys.readouterr().err.splitlines()) == 6
    assert store.find("tf").loadable


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("rows", [1, 3])
def test_a_matrix_of_one_column_is_reduced_like_any_other(kind, rows):
    weight, x = numbers(6, 1), numbers(rows, 1, seed=1)
    y = QUANTIZED[kind](torch.from_numpy(weight), None)(x)
    np.testing.assert_allclose(y, x @ weight.T, rtol=2**-6)
