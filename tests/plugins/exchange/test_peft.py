"""Low-rank adapters as folders of peft: what is read and written computes what peft computes."""

import importlib.util
import json
import re
import shutil

import pytest
import torch
from helpers_cli import refusal
from hf_models import SOURCES, checkpoint, pair_checkpoint
from safetensors.torch import load_file, save_file

from seqgen import store
from seqgen.cli import run
from seqgen.plugins.exchange.exchange import import_model
from seqgen.store.loading import load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:.*did not match any targeted module"),
]

PAIRS = ("marian", "bart")
KINDS = ("gpt2", "llama", "qwen3", *PAIRS)
PREFIX = "base_model.model."


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return what makes a checkpoint of a kind, once."""
    made = {}

    def find(kind):
        if kind not in made:
            make = pair_checkpoint if kind in PAIRS else checkpoint
            made[kind] = make(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return find


def with_adapters(folder, tmp_path, table=None, **tensors):
    """Write a folder of adapters by hand: A and B of each module, of rank 2 unless given."""
    out = tmp_path / "adapters"
    out.mkdir(exist_ok=True)
    facts = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "base_model_name_or_path": str(folder)}
    (out / "adapter_config.json").write_text(json.dumps({**facts, **(table or {})}))
    save_file(tensors, out / "adapter_model.safetensors")
    return out


def drawn(module, rows, columns, rank=2, seed=1):
    """Return A and B of a module as a file has them."""
    draw = torch.Generator().manual_seed(seed)
    low, high = ((rank, columns), (rows, rank))
    return {
        f"{PREFIX}{module}.lora_A.weight": torch.randn(low, generator=draw),
        f"{PREFIX}{module}.lora_B.weight": torch.randn(high, generator=draw),
    }


# Of each kind, modules that get adapters, with their outputs, inputs, rank, and scale: 6 / 2 but
# where the table below says otherwise.
MODULES = {
    "gpt2": {
        "transformer.h.0.attn.c_attn": (96, 32, 2, 3.0),
        "transformer.h.1.mlp.c_proj": (32, 128, 4, 5.0),
    },
    "llama": {
        "model.layers.0.self_attn.v_proj": (16, 32, 2, 3.0),
        "model.layers.1.mlp.up_proj": (48, 32, 2, 3.0),
        "model.layers.1.mlp.down_proj": (32, 48, 4, 5.0),
        "lm_head": (320, 32, 2, 3.0),
    },
}
TABLE = {"rank_pattern": {"mlp.c_proj": 4, "down_proj": 4}}
TABLE |= {"alpha_pattern": {"mlp.c_proj": 20, "down_proj": 20}}


@pytest.mark.parametrize("kind", MODULES)
def test_adapters_are_what_is_added_to_the_base(kind, folders, tmp_path):
    """The same model comes of a folder whose weights the sum was written into by hand."""
    folder, tensors = folders(kind), {}
    whole = load_file(folder / "model.safetensors")
    modules = dict(MODULES[kind])
    if kind == "llama":
        rows = len(whole["lm_head.weight"])
        modules["lm_head"] = (rows, *modules["lm_head"][1:])
    for module, (rows, columns, rank, scale) in modules.items():
        pair = drawn(module, rows, columns, rank)
        low, high = pair.values()
        update = scale * high @ low
        whole[f"{module}.weight"] += update.T if kind == "gpt2" else update
        tensors |= pair
    summed = shutil.copytree(folder, tmp_path / "summed")
    save_file(whole, summed / "model.safetensors", {"format": "pt"})
    import_model(folder, name="base")
    import_model(with_adapters(folder, tmp_path, TABLE, **tensors), name="tuned")
    import_model(summed, name="summed")
    ids = torch.arange(60)[None]
    with torch.no_grad():
        base, tuned, wanted = (load(n, "cpu").model(ids)[0] for n in ("base", "tuned", "summed"))
    assert (tuned - wanted).abs().max() < 2e-4 * wanted.abs().max() < (base - wanted).abs().max()
    assert load("tuned", "cpu").framing == load("base", "cpu").framing


def test_a_scale_by_the_root_of_the_rank(folders, tmp_path):
    folder, pair = folders("gpt2"), drawn("transformer.h.0.attn.c_proj", 32, 32, rank=4)
    import_model(folder, name="base")
    import_model(with_adapters(folder, tmp_path, {"r": 4, "lora_alpha": 12}, **pair), name="one")
    rooted = {"r": 4, "lora_alpha": 6, "use_rslora": True}
    import_model(with_adapters(folder, tmp_path, rooted, **pair), name="other")
    one, other = (load(name, "cpu").model.state_dict() for name in ("one", "other"))
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-6, atol=1e-7)


def test_adapters_in_bf16_are_scaled_in_float32(folders, tmp_path):
    folder, pair = folders("gpt2"), drawn("transformer.h.0.attn.c_proj", 32, 32)
    import_model(folder, name="base")
    rounded = {name: tensor.bfloat16() for name, tensor in pair.items()}
    scaled = {"lora_alpha": 6, "alpha_pattern": {"attn.c_proj": 2.2}}
    import_model(with_adapters(folder, tmp_path, scaled, **rounded), name="one")
    wide = {name: tensor.float() for name, tensor in rounded.items()}
    import_model(with_adapters(folder, tmp_path, scaled, **wide), name="other")
    one, other = (store.find(name).own_tensors() for name in ("one", "other"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def run_all(loaded):
    """Return logits of a fixed text, after a source if the model reads one."""
    ids = torch.arange(3, 33)[None] % loaded.model.vocab_size
    memory = []
    if loaded.source_tokenizer is not None:
        memory = [loaded.model.remember(loaded.conditioning.encode(SOURCES[:1]).rows([0]))]
    with torch.no_grad():
        return loaded.model(ids, *memory)[0]


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["all", "some"])
@pytest.mark.parametrize("kind", KINDS)
def test_peft_and_seqgen_agree_both_ways(kind, targets, folders, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    folder, auto = folders(kind), transformers.AutoModelForCausalLM
    auto = transformers.AutoModelForSeq2SeqLM if kind in PAIRS else auto
    chosen = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"], "qwen3": ["k_proj", "down_proj"]}
    chosen = chosen.get(kind, ["v_proj", "fc1"]) if targets == "some" else "all-linear"
    more = {"rank_pattern": {"fc1": 5, "down_proj": 5}, "alpha_pattern": {"fc1": 7, "v_proj": 1}}
    settings = peft.LoraConfig(r=3, lora_alpha=4, target_modules=chosen, **more)
    settings.use_rslora = targets == "some"
    torch.manual_seed(5)
    theirs = peft.get_peft_model(auto.from_pretrained(folder).float(), settings).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    theirs.save_pretrained(tmp_path / "theirs")
    import_model(folder, name="base")
    assert run(["import", str(tmp_path / "theirs"), "--name", "tuned", "--quiet"]) == 0
    tuned = load("tuned", "cpu")
    wanted = logits_of(theirs, tuned, kind)
    assert (wanted - logits_of(auto.from_pretrained(folder), tuned, kind)).abs().max() > 1e-3
    assert (run_all(tuned) - wanted).abs().max() < 2e-5 * wanted.abs().max()

    out = tmp_path / "ours"
    assert run(["export", "tuned", "--format", "peft", "--out", str(out), "--quiet"]) == 0
    again = peft.PeftModel.from_pretrained(auto.from_pretrained(folder).float(), out).eval()
    assert (logits_of(again, tuned, kind) - wanted).abs().max() < 2e-5 * wanted.abs().max()
    assert {n for n, _ in again.named_modules()} == {n for n, _ in theirs.named_modules()}
    import_model(out, name="again")
    assert torch.equal(run_all(load("again", "cpu")), run_all(tuned))


def logits_of(theirs, ours, kind):
    """Return what transformers computes for the text of `run_all`."""
    ids, asked = torch.arange(3, 33)[None] % ours.model.vocab_size, {}
    if kind in PAIRS:
        sources = ours.conditioning.encode(SOURCES[:1]).rows([0])
        asked, ids = {"decoder_input_ids": ids}, torch.as_tensor(sources.values)
    with torch.no_grad():
        return theirs(ids, **asked).logits


@pytest.fixture
def trained(tmp_path, capsys):
    """Train a transformer of a family, and adapters of it, and write both."""

    def train(flags, lora=2):
        text = tmp_path / "t.txt"
        text.write_text("so it goes on and on, and it ends so.\n" * 20)
        shape = ["--hidden-size", "32", "--layers", "2", "--seq-len", "32", "--batch-size", "3"]
        settings = [x for s in flags for x in ("--set", s)]
        base = ["train", str(text), "--model", "transformer", *shape, *settings, "--name", "base"]
        assert run([*base, "--steps", "2", "--val", "none", "-q"]) == 0
        tuned = ["train", str(text), "--init-from", "base", "--set", f"lora={lora}"]
        tuned += ["--set", "lora_alpha=5", "--steps", "9", "--lr", "0.05"]
        assert run([*tuned, "--val", "none", "--name", "tuned", "-q"]) == 0
        for name, file_format in (("base", "hf"), ("tuned", "peft")):
            out = ["--format", file_format, "--out", str(tmp_path / file_format), "-q"]
            assert run(["export", name, *out]) == 0
        capsys.readouterr()

    return train


GPT2 = ["positions=learned", "norm=layernorm", "bias=true", "qk_norm=false", "activation=gelu"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [GPT2, [], ["qk_norm=false", "num_kv_heads=1"]])
def test_adapters_trained_here_leave_and_come_back(settings, trained, tmp_path):
    """GPT-2 has one map for queries, keys and values, where ours has a pair of factors for each."""
    trained(settings)
    table = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert table["base_model_name_or_path"] == "base" and table["lora_alpha"] == 5
    joined = {f"transformer.h.{layer}.attn.c_attn": 6 for layer in range(2)}
    assert table["rank_pattern"] == (joined if settings == GPT2 else {})
    tuned = load("tuned", "cpu")
    import_model(tmp_path / "peft", name="again")
    difference = (run_all(load("again", "cpu")) - run_all(tuned)).abs().max()
    assert difference < 1e-5 < (run_all(load("base", "cpu")) - run_all(tuned)).abs().max()
    if importlib.util.find_spec("peft") is None:
        return
    import peft

    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "peft").eval()
    assert (logits_of(theirs, tuned, "") - run_all(tuned)).abs().max() < 2e-5


PLAIN = "transformer.h.0.attn.c_proj"


@pytest.mark.parametrize(
    ("table", "tensors", "said"),
    [
        ({"use_dora": True}, {}, "use_dora is True, which seqgen does not understand"),
        ({"bias": "all"}, {}, "bias is 'all'"),
        ({"peft_type": "IA3"}, {}, "peft_type is 'IA3'"),
        ({"init_lora_weights": "pissa"}, {}, "init_lora_weights is 'pissa'"),
        ({"modules_to_save": ["lm_head"]}, {}, "modules_to_save is ['lm_head']"),
        ({"alpha_pattern": {".*c_proj": 3}}, {}, "alpha_pattern is {'.*c_proj': 3}"),
        ({"r": 0}, {}, "r is 0"),
        ({"r": 10**400}, {}, "r is 1000000"),
        ({"lora_alpha": 0}, {}, "lora_alpha is 0"),
        ({"lora_alpha": 1e300}, {}, "lora_alpha is 1e+300"),
        ({"what_is_new": 3}, {}, "what_is_new is 3"),
        ({}, drawn("transformer.wte", 32, 301), "does not understand the tensor"),
        ({}, drawn(PLAIN, 32, 31), "of shape [2, 31], and the model's settings say [2, 32]"),
        ({}, {f"{PREFIX}{PLAIN}.lora_A.weight": torch.ones(2, 32)}, "there is no tensor"),
        ({}, {f"{PREFIX}{PLAIN}.lora_A.weight": torch.ones(())}, "does not understand the tensor"),
    ],
)
def test_what_is_not_understood_is_named(table, tensors, said, folders, tmp_path, capsys):
    import_model(folders("gpt2"), name="base")
    out = with_adapters(folders("gpt2"), tmp_path, table, **(tensors or drawn(PLAIN, 32, 32)))
    assert said in refusal(capsys, "import", out, "--name", "x")


def test_where_the_base_is_and_what_else_goes_wrong(folders, tmp_path, capsys):
    folder = folders("gpt2")
    out = with_adapters(folder, tmp_path, **drawn(PLAIN, 32, 32))
    assert "no model is imported from there: name the model with --base" in re.sub(
        r"\s+", " ", refusal(capsys, "import", out)
    )
    import_model(folder, name="one")
    import_model(folder, name="two")
    assert "several models are imported from there" in refusal(capsys, "import", out)
    assert run(["import", str(out), "--base", "two", "--name", "tuned", "-q"]) == 0
    assert load("tuned", "cpu").stored.base.name == "two"
    written = str(tmp_path / "w")
    assert run(["export", "tuned", "--format", "peft", "--out", written, "-q"]) == 0
    assert "one holds a whole model" in refusal(
        capsys, "export", "one", "--format", "peft", "--out", tmp_path / "v"
    )
    assert "--base is for folders of adapters" in refusal(capsys, "import", folder, "--base", "one")
    (out / "adapter_model.safetensors").rename(out / "adapter_model.bin")
    assert "is a pickle, which seqgen never loads" in refusal(
        capsys, "import", out, "--base", "one"
    )
