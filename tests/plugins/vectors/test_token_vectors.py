"""Vectors of tokens in their context, of any layer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from helpers_cli import needs, records, refusal

from seqgen.cli import run
from seqgen.plugins.vectors.words import load_vectors
from seqgen.store.loading import load

LINES = ["the cat", "a cat", ""]
TEXT = "the cat sat on a mat\na cat\n" * 20
SMALL = ("--steps", 3, "--layers", 2, "--hidden-size", 8, "--seed", 1, "--val", "none", "-q")


@pytest.fixture(scope="module", params=["lstm", "transformer"])
def model(request, tmp_path_factory):
    """Return the folder of a small model, and a file of lines."""
    folder = tmp_path_factory.mktemp("vectors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        text, lines = folder / "text.txt", folder / "lines.txt"
        text.write_text(TEXT)
        lines.write_text("".join(f"{line}\n" for line in LINES))
        heads = ("--heads", 2) if request.param == "transformer" else ()
        how = ["--model", request.param, "--tokenizer", "word", *SMALL, *heads]
        assert run(["train", str(text), "--name", "m", *map(str, how)]) == 0
        stored = folder / "home" / "models" / "m"
    return stored, lines


def vectors(capsys, model, *more):
    return records(capsys, "vectors", "-m", model[0], "--file", model[1], *more)


def test_a_token_has_the_vector_that_pooling_takes(model, capsys):
    tokens = vectors(capsys, model, "--pool", "none")
    assert [list(r) for r in tokens] == [["index", "position", "token", "vector", "model"]] * 4
    assert [(r["index"], r["position"]) for r in tokens] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [r["token"].strip() for r in tokens] == ["the", "cat", "a", "cat"]
    cat, other = (np.array(tokens[i]["vector"]) for i in (1, 3))
    assert np.abs(cat - other).max() > 1e-4  # its context differs
    means, lasts = (vectors(capsys, model, "--pool", how) for how in ("mean", "last"))
    for line in (0, 1):
        own = np.array([r["vector"] for r in tokens if r["index"] == line])
        np.testing.assert_allclose(own.mean(0), means[line]["vector"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(own[-1], lasts[line]["vector"])
    assert len(means) == len(LINES)


def test_features_of_a_layer(model, capsys):
    """The last is what the head reads; the first is what its own module returns."""
    last, default = (vectors(capsys, model, "--pool", "none", *w) for w in (("--layer", 1), ()))
    for one, other in zip(last, default, strict=True):
        np.testing.assert_allclose(one["vector"], other["vector"], rtol=1e-5, atol=1e-6)
    loaded = load(model[0])
    tokens = torch.tensor([loaded.framing.opened(loaded.ids(LINES[0]))])
    with torch.no_grad():
        if hasattr(loaded.model, "blocks"):
            seen = []
            loaded.model.blocks[0].register_forward_hook(lambda *call: seen.append(call[2]))
            loaded.model.hidden(tokens, None)
            first = seen[0][0]
        else:
            first = by_torch(loaded.model.layers[0], loaded.model.embedding(tokens))[0]
    found = [r["vector"] for r in vectors(capsys, model, "--pool", "none", "--layer", 0)[:2]]
    np.testing.assert_allclose(first[-2:].numpy(), found, rtol=1e-5, atol=1e-6)


def by_torch(layer, x):
    """Return what `nn.LSTM` makes of x (B, T, E) with the weights of a layer."""
    size = layer.weight_hh.shape[1]
    lstm = torch.nn.LSTM(x.shape[2], size, batch_first=True)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(layer.weight_ih)
        lstm.weight_hh_l0.copy_(layer.weight_hh)
        lstm.bias_ih_l0.copy_(layer.bias)
        lstm.bias_hh_l0.zero_()
    return lstm(x)[0]


def test_a_token_stands_before_its_numbers(model, capsys):
    assert run(["vectors", "-m", str(model[0]), "--file", str(model[1]), "--pool", "none"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [token.strip() for token, _ in lines] == ["the", "cat", "a", "cat"]
    assert {len(numbers.split()) for _, numbers in lines} == {8}


def test_what_has_no_meaning_is_refused(model, capsys):
    given = ("vectors", "-m", model[0], "--file", model[1])
    assert "--layer counts from 0, and m has 2 layers" in refusal(capsys, *given, "--layer", 2)
    assert "--pool must be one of mean, last, none" in refusal(capsys, *given, "--pool", "max")
    assert "--layer belongs to --file" in refusal(capsys, *given[:3], "--layer", 0)
    empty = model[1].with_name("empty.txt")
    empty.touch()
    assert run(["vectors", "-m", str(model[0]), "--file", str(empty)]) == 0
    assert "is empty: there is no text" in capsys.readouterr().err
    long = model[1].with_name("long.txt")
    long.write_text("cat " * 4000)
    arguments = [*map(str, (*given[:4], long)), "--layer", "0", "--json"]
    if run(arguments) == 0:  # an LSTM has no window
        assert len(json.loads(capsys.readouterr().out)["vector"]) == 8
    else:
        assert "line 1 has 4,001 tokens, and m reads at most" in capsys.readouterr().err


@needs("labels")
@pytest.mark.parametrize(("kind", "layers"), [("bert", 2), ("elmo", 3)])
def test_layers_of_networks_that_write_nothing(kind, layers, tmp_path, capsys):
    text, lines = tmp_path / "text.txt", tmp_path / "lines.txt"
    text.write_text(TEXT)
    lines.write_text("a cat\n")
    heads = ("--heads", 2) if kind == "bert" else ()
    how = ["--model", kind, "--tokenizer", "whitespace", "--documents", "line", *SMALL, *heads]
    assert run(["train", str(text), "--name", kind, *map(str, how)]) == 0
    given = ("vectors", "-m", kind, "--file", lines)
    found = [
        np.array([r["vector"] for r in records(capsys, *given, "--pool", "none", "--layer", n)])
        for n in range(layers)
    ]
    assert len({layer.tobytes() for layer in found}) == layers
    default = [r["vector"] for r in records(capsys, *given, "--pool", "none")]
    np.testing.assert_allclose(found[-1], default)
    (mean,) = records(capsys, *given)
    np.testing.assert_allclose(found[-1].mean(0), mean["vector"], rtol=1e-5, atol=1e-6)
    assert f"{kind} has {layers} layers" in refusal(capsys, *given, "--layer", layers)
    assert "only --pool mean or none" in refusal(capsys, *given, "--pool", "last")
    if kind == "elmo":  # layer 0 is the token's own vector, twice
        loaded = load_vectors(kind)
        own = loaded.model.embedding(torch.tensor(loaded.ids("a cat"))).detach().numpy()
        np.testing.assert_allclose(found[0], np.hstack([own, own]), rtol=1e-5, atol=1e-6)
