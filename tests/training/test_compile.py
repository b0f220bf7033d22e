"""Compiled training steps: the same gradients, the same runs, and only where they pay."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from seqgen.cli import run
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.presets import SHARED
from seqgen.training import choosing
from seqgen.training.events import Notice
from seqgen.training.resume import resume
from seqgen.training.train import train

TINY = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "seq_len": 6, "batch_size": 3, "seed": 5}
needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler"
)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("so it goes on and on and ends\n" * 40)
    return path


def settled(text: Path, **settings) -> tuple[dict, list[str]]:
    """Train for a moment; return the resolved training settings and what was said."""
    notices = []
    result = train(
        [text],
        architecture="transformer",
        name="x",
        settings={**TINY, **settings},
        stop_after=1,
        overwrite=True,
        report=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    return json.loads((Path(result.path) / "config.json").read_text())["training"], notices


@needs_compiler
@pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="default form", marks=pytest.mark.slow),
        pytest.param(SHARED["gpt2"], id="GPT-2's form", marks=pytest.mark.long),
    ],
)
def test_gradients_are_those_of_the_equations(form):
    torch.manual_seed(0)
    shape = {"vocab_size": 11, "window": 6, "hidden_size": 8, "num_layers": 1, "num_heads": 2}
    model = Transformer(TransformerConfig(**shape, **{"dropout": 0.0, **form})).double()
    tokens, targets = torch.randint(11, (2, 3, 6))

    def gradients() -> list[torch.Tensor]:
        loss = F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten())
        return list(torch.autograd.grad(loss, list(model.parameters())))

    wanted = gradients()
    model.compile_training()
    torch.testing.assert_close(gradients(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.long
@needs_compiler
def test_a_compiled_run_goes_on_bit_for_bit(text):
    settings = {**TINY, "compile": True, "steps": 6, "dropout": 0.2, "precision": "float32"}
    said = []
    run_of = partial(train, [text], architecture="transformer", report=said.append)
    whole = run_of(name="whole", settings=settings)
    run_of(name="cut", settings=settings, stop_after=2)
    after = resume("cut", report=said.append)
    notices = {event.text for event in said if isinstance(event, Notice)}
    assert notices == {"compiling, which takes up to a minute"}  # and not that it failed
    one, other = (load_file(Path(r.path) / "model.safetensors") for r in (whole, after))
    assert all(torch.equal(one[name], other[name]) for name in one)
    plain = run_of(name="plain", settings={**settings, "compile": False})
    assert whole.val_loss == pytest.approx(plain.val_loss, rel=1e-4)


@pytest.mark.fast_for("found0-*", "found2-*", rest="slow")
@pytest.mark.parametrize(
    ("found", "compiled", "said"),
    [
        ((1.2, None), True, "steps are compiled: 1.20 times as fast"),
        ((0.9, None), False, "steps are not compiled: 0.90 times as fast"),
        ((0.0, "no compiler"), False, "steps are not compiled: no compiler"),
    ],
)
def test_long_runs_are_compiled_where_it_pays(text, monkeypatch, found, compiled, said):
    monkeypatch.setattr(choosing, "compiled_speedup", lambda *_: found)
    monkeypatch.setattr(Transformer, "compile_training", lambda model: None)
    training, notices = settled(text, minutes=30, dropout=0.0)
    assert training["compile"] is compiled
    assert said in notices


@pytest.mark.parametrize("settings", [{"minutes": 29.9}, {"steps": 1}])
def test_short_runs_are_not_measured(text, settings):
    training, notices = settled(text, dropout=0.0, **settings)
    assert training["compile"] is False
    assert not any("compiled" in notice for notice in notices)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"documents": "line"}, {"unfreeze": 0.5}])
def test_what_would_need_code_again_and_again_is_not_compiled(text, monkeypatch, settings):
    monkeypatch.setattr(choosing, "compiled_speedup", lambda *_: (9.0, None))
    training, _ = settled(text, minutes=30, dropout=0.0, **settings)
    assert training["compile"] is False


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("no working compiler\nhere is its output"),
            "RuntimeError: no working compiler",
        ),
        (AssertionError(), "AssertionError: "),
    ],
)
def test_without_a_compiler_training_goes_on(text, monkeypatch, error, said):
    def broken(function):
        def call(*_):
            raise error

        return call

    monkeypatch.setattr(torch, "compile", broken)
    training, notices = settled(text, steps=1, compile=True)
    assert f"steps are not compiled: {said}" in notices
    assert training["compile"] is True  # as was asked for; another machine may have one


@pytest.mark.long
@needs_compiler
def test_a_copy_of_a_compiled_model_is_not_compiled_for_the_first():
    """What is compiled holds functions of one model: a copy's gradients are the copy's own."""
    shape = {"vocab_size": 11, "window": 6, "hidden_size": 8, "num_layers": 1, "num_heads": 2}
    model = Transformer(TransformerConfig(**shape))
    model.compile_training()
    tokens = torch.randint(11, (1, 6))
    model(tokens)[0].sum().backward()
    assert torch._dynamo.utils.counters["stats"]["calls_captured"] > 0  # it was compiled indeed
    model.zero_grad()
    other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    other(tokens)[0].sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(p.grad is not None for p in other.parameters())


def test_what_has_nothing_to_compile_says_so(text, capsys):
    assert run(["train", str(text), "--model", "lstm", "--set", "compile=true"]) == 2
    assert "compile=true is for the transformer" in capsys.readouterr().err
