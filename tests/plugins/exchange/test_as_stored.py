"""Imported weights stay in the types of their file, and give the logits of their numbers."""

import json

import numpy as np
import pytest
import torch
from helpers_cli import records, refusal
from hf_models import checkpoint
from safetensors import safe_open
from safetensors.torch import load_file

import seqgen
from seqgen import store
from seqgen.cli import run
from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.fast_layers import FastLinear
from seqgen.files import tensor_header
from seqgen.models.base import weights_of
from seqgen.models.low_rank import AdaptedLinear, convert_stored
from seqgen.plugins.exchange.gguf import NAMES, GGUFFile, write
from seqgen.scoring.perplexity import score_held_out
from seqgen.store.loading import Work, load
from seqgen.training import session
from seqgen.training.fine_tune import InitialModel
from seqgen.training.resume import resume
from seqgen.training.train import train

gguf = pytest.importorskip("gguf", reason="gguf is not installed")

Kind = gguf.GGMLQuantizationType
NUMBER_OF = {name: number for number, name in NAMES.items()}
IDS = np.arange(40).reshape(2, 20) * 5 % 256
# What quantizes nothing in Python: blocks of any bits, with scales that give numbers below 0.1.
SCALES_OF = {"Q2_K": (80, 82), "Q3_K": (108,)}


def quantize(x, kind, quantize=gguf.quants.quantize):
    name = NAMES[int(kind)]
    if name not in SCALES_OF:
        return quantize(x, kind)
    width = gguf.GGML_QUANT_SIZES[Kind[name]][1]
    draw = np.random.default_rng(x.size)
    raw = draw.integers(256, size=(len(x), x.shape[1] // 256, width)).astype(np.uint8)
    for at in SCALES_OF[name]:
        raw[..., at : at + 2] = np.float16([3e-4]).view(np.uint8)
    return raw.reshape(len(x), -1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A tiny transformer as a GGUF file in float32; see `files_of` for other types."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "t.txt").write_text("the cat sat on the mat and the dog ran\n" * 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        sizes = ("hidden_size=256", "ffn_size=256", "num_layers=2", "num_heads=4")
        sizes = [*sizes, "num_kv_heads=2", "qk_norm=false", "steps=1", "batch_size=1", "seq_len=32"]
        flags = [word for pair in sizes for word in ("--set", pair)]
        command = ["train", str(folder / "t.txt"), "--model", "transformer", "--name", "own"]
        assert run([*command, "--tokenizer", "byte", *flags, "--quiet"]) == 0
        out = ["--format", "gguf", "--out", str(folder / "plain.gguf"), "--quiet"]
        assert run(["export", "own", *out]) == 0
    return GGUFFile(folder / "plain.gguf")


def rewrite(plain, kind_of, path, monkeypatch):
    """Write the model in other types, and its numbers in float32 beside it as `f32.gguf`.

    Args:
        plain: the model.
        kind_of: takes the name of a matrix to its type.
        path: of the file.
    """
    monkeypatch.setattr(gguf.quants, "quantize", quantize)
    tensors = {name: plain.read(name) for name in plain.tensors}
    kinds = {n: NUMBER_OF[kind_of(n) if x.ndim == 2 else "F32"] for n, x in tensors.items()}
    path.write_bytes(b"".join(write(plain.facts, tensors, kinds)))
    theirs = {x.name: x for x in gguf.GGUFReader(path).tensors}
    for name, tensor in theirs.items():
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        tensors[name] = numbers.reshape(tensors[name].shape).astype("f4")
    of_floats = write(plain.facts, tensors, dict.fromkeys(tensors, 0))
    path.with_name("f32.gguf").write_bytes(b"".join(of_floats))


def logits_of(name):
    """Return the logits of a stored model over arrays, as those of a prompt and step by step."""
    model = load(name, work=Work()).model
    whole, _ = model(IDS)
    state, steps = model.start(len(IDS)), []
    for tokens in IDS.T:
        logits, state = model.step(tokens.tolist(), state)
        steps.append(logits)
    assert np.abs(whole - np.stack(steps, 1)).max() < 1e-4
    return whole


def mixed(name):
    """Choose types as llama.cpp's Q4_K_M does: more bits where errors matter most."""
    more = "attn_v" in name or "ffn_down" in name
    return "Q8_0" if name == "token_embd.weight" else "Q6_K" if more else "Q4_K"


KINDS = [
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
]


@pytest.mark.fast_for("F16", "Q8_0", "Q4_K", "mixed", rest="slow")
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
def test_logits_are_those_of_the_dequantized_numbers(kind, plain, tmp_path, monkeypatch, capsys):
    kind_of = mixed if kind == "mixed" else lambda name: kind
    rewrite(plain, kind_of, tmp_path / "m.gguf", monkeypatch)
    for name in ("m", "f32"):
        assert run(["import", str(tmp_path / f"{name}.gguf"), "--name", name, "--quiet"]) == 0
    ours, floats = logits_of("m"), logits_of("f32")
    assert floats.std() > 0.1
    assert np.abs(ours - floats).max() < 1e-4
    by_torch = load("m", "cpu").model
    with torch.no_grad():
        assert np.abs(by_torch(torch.from_numpy(IDS))[0].numpy() - floats).max() < 1e-4
    weights, size = (store.find(name) for name in ("m", "f32"))
    if kind in ("Q4_0", "Q4_K"):
        assert weights.size < 0.25 * size.size
    assert store.find("f32").reduced_types == []
    (record,) = records(capsys, "models", "show", "m")
    assert record["weights"] == (["Q4_K", "Q6_K", "Q8_0"] if kind == "mixed" else [kind])
    assert run(["models", "show", "m"]) == 0
    assert f"weights     {record['weights'][0]}" in capsys.readouterr().out
    # From Python nothing is converted, either.
    reduced, whole = seqgen.load("m").loaded.model, seqgen.load("f32").loaded.model
    np.testing.assert_array_equal(reduced(IDS)[0], ours)
    assert isinstance(whole, torch.nn.Module)


def test_a_matrix_of_one_file_type_is_stored_byte_for_byte(plain, tmp_path, monkeypatch):
    rewrite(plain, lambda name: "Q4_1", tmp_path / "m.gguf", monkeypatch)
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    file, path = GGUFFile(tmp_path / "m.gguf"), store.find("m").path / "model.safetensors"
    begin, header = tensor_header(path)
    about = header["blocks.1.feed_forward.output.weight"]
    assert about["dtype"] == "U8" and about["rows"] == "Q4_1 256"
    first, last = (begin + place for place in about["data_offsets"])
    raw = file.rows("blk.1.ffn_down.weight").raw
    assert path.read_bytes()[first:last] == raw.tobytes()
    with safe_open(path, "np") as opened:  # the library itself reads the file
        assert opened.get_tensor("blocks.1.feed_forward.output.weight").nbytes == raw.nbytes


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_folders_in_16_bits_stay_so(kind, dtype, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    folder = checkpoint(kind, tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    theirs.save_pretrained(folder)
    assert run(["import", str(folder), "--name", "m", "--quiet"]) == 0
    assert store.find("m").reduced_types == ["BF16" if dtype == "bfloat16" else "F16"]
    ids = IDS % load("m", work=Work()).model.vocab_size
    ours, _ = load("m", work=Work()).model(ids)
    with torch.no_grad():
        expected = theirs.float()(torch.from_numpy(ids)).logits.numpy()
    assert np.abs(ours - expected).max() < 1e-4


@pytest.mark.slow
def test_pytorch_says_what_float32_takes(plain, tmp_path, monkeypatch, cli):
    rewrite(plain, lambda name: "Q8_0", tmp_path / "m.gguf", monkeypatch)
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    line = "m: PyTorch converts the Q8_0 weights to float32, which takes "
    megabytes = f"{4 * store.find('m').record['parameters'] / 1e6:,.0f} MB of memory\n"
    sampled = "sample", "the", "-m", "m", "--max-tokens", "3", "--greedy"
    code, out, err = cli(*sampled)
    assert (code, err) == (0, "")
    code, by_torch, err = cli(*sampled, "--precision", "float32")
    assert (code, by_torch, err) == (0, out, line + megabytes)
    assert cli(*sampled, "--precision", "float32", "--quiet") == (0, out, "")
    (tmp_path / "t.txt").write_text("the cat sat on the mat\n" * 30)
    few = "--steps", "1", "--batch-size", "1", "--seq-len", "16"
    for more in ((), ("--set", "lora=2", "--set", "lora_base=float32")):
        code, _, err = cli(
            "train", tmp_path / "t.txt", "--init-from", "m", *few, *more, "--name", "x"
        )
        assert code == 0 and line + megabytes in err
        assert cli("models", "remove", "x", "--yes")[0] == 0
    code, _, err = cli("export", "m", "--format", "gguf", "--out", tmp_path / "again.gguf")
    assert code == 0 and line + megabytes in err
    again = GGUFFile(tmp_path / "again.gguf")
    name = "blk.0.attn_q.weight"
    assert np.array_equal(again.read(name), GGUFFile(tmp_path / "f32.gguf").read(name))


def test_all_commands_that_read_text_take_them(plain, tmp_path, monkeypatch, capsys):
    rewrite(plain, mixed, tmp_path / "m.gguf", monkeypatch)
    (tmp_path / "t.txt").write_text("the cat sat on the mat\n" * 3)
    figures = {}
    for name in ("m", "f32"):
        assert run(["import", str(tmp_path / f"{name}.gguf"), "--name", name, "--quiet"]) == 0
        (record,) = records(capsys, "perplexity", "-m", name, tmp_path / "t.txt")
        (beam, *_) = records(capsys, "beam-search", "the", "-m", name, "--max-tokens", "4")
        figures[name] = record["bits_per_byte"], beam["text"]
    assert figures["m"][0] == pytest.approx(figures["f32"][0], abs=1e-5)
    assert figures["m"][1] == figures["f32"][1]


FEW = {"steps": 4, "batch_size": 2, "seq_len": 16, "seed": 3, "precision": "float32", "lora": 2}


@pytest.mark.fast_for("mixed", rest="slow")
@pytest.mark.parametrize("kind", ["mixed", "Q4_0", "BF16", "F16"])
def test_adapters_are_trained_on_the_matrices_of_the_file(kind, plain, tmp_path, monkeypatch):
    kind_of = mixed if kind == "mixed" else lambda name: kind
    rewrite(plain, kind_of, tmp_path / "m.gguf", monkeypatch)
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    (tmp_path / "t.txt").write_text("the cat sat on the mat\n" * 60)
    kept, trainer = [], session.Session._trainer

    def begun(self, *about):
        layers = [x for x in self.loaded.model.modules() if isinstance(x, AdaptedLinear)]
        kept.append([layer.stored for layer in layers])
        return trainer(self, *about)

    monkeypatch.setattr(session.Session, "_trainer", begun)
    texts, settings = [tmp_path / "t.txt"], {**FEW, "init_from": "m"}
    ours = train(texts, name="kept", settings=settings)
    floats = train(texts, name="floats", settings={**settings, "lora_base": "float32"})
    train(texts, name="half", settings=settings, stop_after=2)
    resume("half")
    (first, none, *others), of_16_bits = kept, kind in ("BF16", "F16")
    for stored in (first, *others):
        assert len(stored) == 8
        assert all(isinstance(x, torch.Tensor if of_16_bits else BlockMatrix) for x in stored)
    assert none == [None] * 8
    weights = [load_file(store.find(x).path / store.WEIGHTS) for x in ("kept", "floats", "half")]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[2][name])
        assert torch.equal(tensor, weights[1][name])
    assert ours.val_loss == floats.val_loss
    # What is stored beside the base gives that loss, and so do both together.
    assert score_held_out(load("kept", "cpu")).nats_per_token == pytest.approx(ours.val_loss, 1e-5)


@pytest.mark.fast_for("mixed", rest="slow")
@pytest.mark.parametrize("kind", ["mixed", "BF16", "F16"])
def test_a_base_is_converted_to_bf16_from_the_types_of_its_file(kind, plain, tmp_path, monkeypatch):
    rewrite(
        plain, mixed if kind == "mixed" else lambda name: kind, tmp_path / "m.gguf", monkeypatch
    )
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    (tmp_path / "t.txt").write_text("the cat sat on the mat\n" * 60)
    loaded, frozen = [], []
    load_origin, trainer = InitialModel.load, session.Session._trainer

    def begun(self, *about):
        layers = [x for x in self.loaded.model.modules() if isinstance(x, AdaptedLinear)]
        assert all(layer.stored is None for layer in layers)
        frozen.append({layer.parametrizations.weight.original.dtype for layer in layers})
        return trainer(self, *about)

    def origin(*about):
        found = load_origin(*about)
        layers = [x for x in found.model.modules() if isinstance(x, FastLinear)]
        loaded.append(sum(layer.stored is not None for layer in layers))
        return found

    monkeypatch.setattr(session.Session, "_trainer", begun)
    monkeypatch.setattr(InitialModel, "load", origin)
    texts, settings = [tmp_path / "t.txt"], {**FEW, "init_from": "m", "lora_base": "bf16"}
    train(texts, name="ours", settings=settings)
    train(texts, name="half", settings=settings, stop_after=2)
    resume("half")
    monkeypatch.setattr("seqgen.training.plan.keeps_types", lambda settings: False)
    train(texts, name="by_float32", settings=settings)
    assert loaded == [8, 8, 0] and frozen == [{torch.bfloat16}] * 4
    weights = [
        load_file(store.find(x).path / store.WEIGHTS) for x in ("ours", "half", "by_float32")
    ]
    for name, tensor in weights[0].items():
        assert all(torch.equal(tensor, other[name]) for other in weights[1:])


def test_other_matrices_of_a_base_become_floats(plain, tmp_path, monkeypatch):
    rewrite(plain, lambda name: "Q4_0", tmp_path / "m.gguf", monkeypatch)
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    kept, _ = store.find("m").load(keeps_types=True)
    plain_model, _ = store.find("m").load()
    whole = weights_of(plain_model)
    for name, tensor in weights_of(kept).items():
        inside = name.startswith("blocks.") and tensor.ndim == 2
        assert tensor.isnan().all() if inside else torch.equal(tensor, whole[name])
        assert tensor.shape == whole[name].shape
        assert not inside or tensor.untyped_storage().nbytes() == 4
    convert_stored(kept)
    assert all(torch.equal(x, whole[name]) for name, x in weights_of(kept).items())


def test_damaged_rows_are_refused_in_a_line(plain, tmp_path, monkeypatch, capsys):
    rewrite(plain, lambda name: "Q4_0", tmp_path / "m.gguf", monkeypatch)
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    path = store.find("m").path / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    for old, new in (("Q4_0 256", "Q4_9 256"), ("Q4_0 256", "Q4_0 255"), ("Q4_0 256", "Q8_0 256")):
        header = whole[8 : 8 + size].replace(old.encode(), new.encode(), 1)
        path.write_bytes(whole[:8] + header + whole[8 + size :])
        for more in ((), ("--precision", "float32")):
            line = refusal(capsys, "sample", "the", "-m", "m", "--max-tokens", "2", *more)
            assert "model.safetensors is missing or damaged" in line
    header = json.loads(whole[8 : 8 + size])
    assert isinstance(header["__metadata__"], dict)


def test_a_mixture_and_adapters_on_such_a_model(plain, tmp_path, monkeypatch, cli):
    rewrite(plain, lambda name: "Q4_K", tmp_path / "m.gguf", monkeypatch)
    for name in ("m", "f32"):
        assert run(["import", str(tmp_path / f"{name}.gguf"), "--name", name, "--quiet"]) == 0
    sampled = "--max-tokens", "5", "--greedy"
    code, mixed_text, err = cli("sample", "the", "-m", "m:0.5+f32:0.5", *sampled)
    assert (code, err) == (0, "")
    assert mixed_text == cli("sample", "the", "-m", "f32", *sampled)[1]


def test_numpy_takes_a_matrix_of_blocks_for_an_array():
    matrix = BlockMatrix.read(np.zeros(34 * 4, np.uint8), "Q8_0 2")
    assert np.allclose(matrix, np.zeros((2, 64))) and (matrix[:] is matrix)
