"""Damaged folders and files of other tools: read, or refused in one line, in little memory."""

import json
import random
import resource
import shutil

import pytest
import torch
from fuzz_cases import flipped, mutated
from hf_models import TEXT, checkpoint, pair_checkpoint
from safetensors.torch import save_file

from seqgen.cli import run
from seqgen.plugins.exchange import gguf
from seqgen.plugins.exchange.exchange import export_model, import_model
from seqgen.store.loading import load

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

MOST_MEMORY = 500_000  # kilobytes more than before


def trained(tokenizer, folder):
    """Train a transformer for a step, and return it."""
    (folder / "t.txt").write_text(TEXT)
    shape = ["--hidden-size", "32", "--layers", "1", "--seq-len", "32", "--steps", "1"]
    size = ["--vocab-size", "320"] if tokenizer in ("bpe", "unigram") else []
    command = ["train", str(folder / "t.txt"), "--model", "transformer", "--name", "own", *shape]
    assert run([*command, "--tokenizer", tokenizer, *size, "--quiet"]) == 0
    return load("own", "cpu")


def pair(kind):
    return lambda folder, aside: pair_checkpoint(kind, folder)


def tokenizer_of(kind):
    return lambda folder, aside: export_model(trained(kind, aside), "hf", folder)


def adapters(folder, aside):
    """Write adapters of a model that is imported."""
    import_model(checkpoint("gpt2", aside / "base"), name="base")
    folder.mkdir()
    table = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "rank_pattern": {}, "bias": "none"}
    table |= {"alpha_pattern": {"c_attn": 3}, "target_modules": ["c_attn"], "use_rslora": False}
    table |= {"base_model_name_or_path": "base", "init_lora_weights": True, "use_dora": False}
    (folder / "adapter_config.json").write_text(json.dumps(table))
    sizes = {"A": (2, 32), "B": (96, 2)}
    names = {x: f"base_model.model.transformer.h.0.attn.c_attn.lora_{x}.weight" for x in sizes}
    tensors = {names[x]: torch.randn(size) for x, size in sizes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")


def quantized(title):
    """Return what writes a GGUF file with numbers of a type."""

    def write(folder, aside, write_whole=gguf.write):
        pytest.importorskip("gguf", reason="gguf is not installed")
        kind = next(kind for kind, (name, *_) in gguf.BLOCKS.items() if name == title)

        def of_type(facts, tensors, kinds):
            fits = {name: len(x.shape) > 1 and x.shape[-1] % 32 == 0 for name, x in tensors.items()}
            return write_whole(facts, tensors, {n: kind if fits[n] else 0 for n in kinds})

        folder.mkdir()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(gguf, "write", of_type)
            export_model(trained("bpe", aside), "gguf", folder / "m.gguf")

    return write


FORMS = {
    "marian": (pair("marian"), 100),
    "bart": (pair("bart"), 100),
    "pegasus": (pair("pegasus"), 40),
    "mbart": (pair("mbart"), 40),
    "peft": (adapters, 80),
    "bpe": (tokenizer_of("bpe"), 30),
    "unigram": (tokenizer_of("unigram"), 30),
    "Q8_0": (quantized("Q8_0"), 40),
    "Q4_0": (quantized("Q4_0"), 40),
}


OFTEN = ("marian", "bart")


def damage(draw, path):
    """Change a file: its table, its length, or bits where its names and sizes are."""
    content = path.read_bytes()
    if path.suffix == ".json" and draw.random() < 0.8:
        path.write_text(json.dumps(mutated(draw, json.loads(content))[0]))
    elif draw.random() < 0.2:
        path.write_bytes(content[: draw.randrange(len(content))])
    else:
        length = min(len(content), 6000)  # the headers, and not only numbers
        path.write_bytes(flipped(draw, content[:length]) + content[length:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=[pytest.mark.long] * (form not in OFTEN)) for form in FORMS],
)
def test_mutations_are_refused_in_a_line_or_read(form, tmp_path, capsys, home):
    make, count = FORMS[form]
    (tmp_path / "aside").mkdir()
    make(tmp_path / "whole", tmp_path / "aside")

    def strange():
        return {path for path in tmp_path.rglob("*") if home not in (path, *path.parents)}

    draw, refused, before = random.Random(7), 0, strange()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        folder = shutil.copytree(tmp_path / "whole", tmp_path / str(number))
        there = sorted(folder.iterdir())
        damage(draw, draw.choice(there))
        source = there[0] if there[0].suffix == ".gguf" else folder
        capsys.readouterr()
        code = run(["import", str(source), "--name", "x", "--overwrite", "--quiet"])
        said = capsys.readouterr()
        assert code in (0, 1, 2) and "internal error" not in said.err, said.err
        assert said.err.count("\n") == (code != 0), said.err
        assert sorted(folder.iterdir()) == there
        shutil.rmtree(folder)
        refused += code != 0
    assert strange() == before
    assert refused > count / 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MOST_MEMORY
