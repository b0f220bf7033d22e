"""ONNX graphs: ONNX Runtime's logits are ours, and a folder has all that decoding needs."""

import json
import re

import numpy as np
import pytest
import torch
from architectures import RECURRENT
from helpers_cli import known_architectures, records, refusal
from hf_models import GERMAN, TEXT
from places import ROOT

from seqgen.cli import run
from seqgen.generation.prompts import read_prompt
from seqgen.store.loading import load
from seqgen.text.tokenizers import load_tokenizer

pytest.importorskip("onnxscript", reason="onnxscript is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

SMALL = ("hidden_size=16", "num_layers=2", "steps=2", "batch_size=2")
# Models, and the settings that change what a graph has to say.
CASES = {
    "rnn": ("rnn",),
    "lstm": ("lstm", "residual=true", "zoneout=0.1"),
    "gru": ("gru",),
    **{cell: (cell,) for cell in known_architectures(["minlstm"])},
    "rope": ("transformer", "num_heads=4", "num_kv_heads=2"),
    "sliding": ("transformer", "num_heads=2", "sliding_window=6"),
    "gemma": (
        "transformer",
        "num_heads=2",
        "num_kv_heads=1",
        "norm_position=both",
        "activation=geglu",
        "scale_embedding=true",
        "sliding_window=6",
        "full_every=2",
        "sliding_rope_theta=100",
        "attention_softcap=5",
        "logit_softcap=3",
    ),
    "olmo2": ("transformer", "num_heads=2", "norm_position=output", "qk_norm_whole=true"),
    "smollm3": ("transformer", "num_heads=2", "nope_every=2"),
    "llama3": ("transformer", "num_heads=2", "rope_scaling=llama3", "rope_factor=8"),
    "gpt2": ("transformer", "num_heads=2", "positions=learned", "norm=layernorm", "bias=true"),
    "pairs": ("seq2seq-transformer", "num_heads=2", "encoder_layers=1"),
    "form of 2017": (
        "seq2seq-transformer",
        "num_heads=2",
        "positions=sinusoidal",
        "norm=layernorm",
        "norm_position=post",
        "embedding_norm=true",
        "output_bias=true",
        "tie_weights=true",
    ),
}
# Every other cell as it is by default, in long tests.
CELLS = [cell for cell in (*RECURRENT, *known_architectures(["hawk"])) if cell not in CASES]
CASES |= {cell: (cell,) for cell in CELLS}


def trained(tmp_path, architecture, *settings, tokenizer="char", name="own"):
    """Train a model for two steps."""
    data, flags = tmp_path / "t.txt", {}
    data.write_text(TEXT)
    if architecture.startswith("seq2seq"):
        lines = zip(TEXT.split("\n"), GERMAN.split("\n") * 2, strict=False)
        data.write_text("".join(f"{a}\t{b}\n" for a, b in lines) * 2)
    else:
        flags["--seq-len"] = 64
    words = [word for pair in (*SMALL, *settings) for word in ("--set", pair)]
    flags |= {"--tokenizer": tokenizer, "--model": architecture, "--name": name}
    more = [str(word) for flag in flags.items() for word in flag]
    assert run(["train", str(data), *more, *words, "--quiet"]) == 0


def exported(tmp_path, architecture, *settings, tokenizer="char", name="own"):
    """Train a model for two steps, export it; return the model and the folder."""
    trained(tmp_path, architecture, *settings, tokenizer=tokenizer, name=name)
    out = tmp_path / "own-onnx"
    assert run(["export", name, "--format", "onnx", "--out", str(out), "--quiet"]) == 0
    return load(name, "cpu"), out


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def stepped(out, about, tokens, pieces, fixed):
    """Return the logits of `step.onnx` over tokens (B, T) in pieces of some lengths."""
    step, logits, at = session(out / "step.onnx"), [], 0
    state = {
        name: np.zeros([len(tokens), *shape[1:]], np.float32)
        for name, shape in about["state"].items()
    }
    for length in pieces:
        read = {"tokens": tokens[:, at : at + length], **fixed, **state}
        given, *after = step.run(None, read)
        state, at = dict(zip(state, after, strict=True)), at + length
        logits.append(given)
    return np.concatenate(logits, 1)


# Tracing these takes half a minute, or the next are very many.
TRACED_LONG = {"pairs", "form of 2017", "rope", *CELLS}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.long if case in TRACED_LONG else pytest.mark.slow)
        for case in CASES
    ],
)
def test_logits_are_ours(case, tmp_path):
    loaded, out = exported(tmp_path, *CASES[case])
    loaded.model.requires_grad_(False)
    about = json.loads((out / "onnx.json").read_text())
    draw, model = np.random.default_rng(1), loaded.model
    tokens = draw.integers(model.vocab_size, size=(3, 11))
    sources, fixed = {}, {}
    if loaded.conditioning.is_source:
        lengths = np.array([7, 2, 9])
        values = draw.integers(model.vocab_size, size=(3, 9))
        sources = {"source": values, "source_lengths": lengths}
        memory = session(out / "encoder.onnx")
        names = [output.name for output in memory.get_outputs()]
        fixed = dict(zip(names, memory.run(None, sources), strict=True))
        fixed["source_lengths"] = lengths
        state = model.encode(torch.from_numpy(values), lengths.tolist())
        wanted = model(torch.from_numpy(tokens), state)[0].numpy()
    else:
        wanted = model(torch.from_numpy(tokens))[0].numpy()
    (whole,) = session(out / "whole.onnx").run(None, {**sources, "tokens": tokens})
    assert whole.shape == wanted.shape and np.abs(whole - wanted).max() < 1e-4
    for pieces in [[1] * 11] if model.carries_state else ([1] * 11, [6, 4, 1]):
        assert np.abs(stepped(out, about, tokens, pieces, fixed) - wanted).max() < 1e-4
    assert np.abs(wanted).max() > 0.01
    prompt = read_prompt(loaded, 0, TEXT[:20])
    assert about["start"] == list(prompt.tokens[:1])
    for folder, own in (("tokenizer", loaded.tokenizer), ("source_tokenizer", None)):
        if own is not None:
            assert load_tokenizer(out / folder).fingerprint == own.fingerprint
        else:
            assert not (out / folder).exists()
    assert (out / "tokenizer.json").is_file()
    described = {i.name: i.shape for i in session(out / "whole.onnx").get_inputs()}
    assert described["tokens"] == ["batch", "length"]


@pytest.mark.slow
def test_the_example_of_the_docs_writes_what_sample_does(tmp_path, capsys, monkeypatch):
    """The code under "ONNX graphs" is run as it stands, for a recurrent model and a transformer."""
    docs = (ROOT / "docs" / "export.md").read_text()
    (code,) = re.findall(r"```python\n(.*?onnxruntime.*?)```", docs, re.DOTALL)
    code = code.replace("play-onnx", "own-onnx")
    for name, case in (("a", ("lstm",)), ("b", ("transformer", "num_heads=2"))):
        (tmp_path / name).mkdir()
        _, out = exported(tmp_path / name, *case, "num_layers=1", name=name)
        monkeypatch.chdir(out.parent)
        capsys.readouterr()
        exec(code, {})
        written = capsys.readouterr().out
        flags = ("--greedy", "--max-tokens", 40)
        (record,) = records(capsys, "sample", "the cat", "-m", name, *flags)
        assert written == record["text"] + "\n"


def test_what_a_graph_cannot_hold_is_a_line(tmp_path, capsys):
    (tmp_path / "t.txt").write_text(TEXT)
    command = ["train", str(tmp_path / "t.txt"), "--quiet"]
    assert run([*command, "--model", "ngram", "--name", "counts"]) == 0
    sizes = [word for pair in (*SMALL, "pointer=4") for word in ("--set", pair)]
    assert run([*command, "--model", "lstm", *sizes, "--name", "points"]) == 0
    for name, said in (
        ("counts", "counts is an n-gram model: use --format arpa"),
        ("points", "a pointer"),
    ):
        out = tmp_path / "out"
        line = refusal(capsys, "export", name, "--format", "onnx", "--out", out)
        assert said in line and not out.exists()
    line = refusal(capsys, "export", "counts+points", "--format", "onnx", "--out", tmp_path / "o")
    assert "mixture" in line
    assert "give --out FOLDER" in refusal(capsys, "export", "points", "--format", "onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "tokenizer", "written"),
    [
        ("transformer", "char", "config.json"),
        (
            "transformer",
            "whitespace",
            "onnx.json",
        ),  # no tokenizer.json holds these tokens as they are
        ("gru", "char", "onnx.json"),
        ("ngram", None, "\\data\\"),
    ],
)
def test_without_a_format_a_model_leaves_in_one_that_holds_it(
    architecture, tokenizer, written, tmp_path, capsys
):
    if architecture == "ngram":
        (tmp_path / "t.txt").write_text(TEXT)
        assert run(["train", str(tmp_path / "t.txt"), "--model", "ngram", "--name", "own"]) == 0
        capsys.readouterr()
    else:
        trained(tmp_path, architecture, "num_layers=1", tokenizer=tokenizer)
    out = tmp_path / "out"
    assert run(["export", "own", "--out", str(out), "--quiet"]) == 0
    if architecture == "ngram":
        assert written in out.read_text()
        assert run(["export", "own"]) == 0 and written in capsys.readouterr().out
    else:
        assert (out / written).exists()
        assert "give --out FOLDER" in refusal(capsys, "export", "own")


def test_without_the_packages_a_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    import sys

    (tmp_path / "t.txt").write_text(TEXT)
    sizes = [word for pair in SMALL for word in ("--set", pair)]
    command = ["train", str(tmp_path / "t.txt"), "--model", "rnn", *sizes, "--name", "own"]
    assert run([*command, "--quiet"]) == 0
    monkeypatch.setitem(sys.modules, "onnx", None)
    line = refusal(capsys, "export", "own", "--format", "onnx", "--out", tmp_path / "out")
    assert line.endswith("needs the package onnx: pip install onnx")
