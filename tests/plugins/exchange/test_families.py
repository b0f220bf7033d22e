"""Families of transformers: logits, texts and exports of tiny random ones, by transformers."""

import json

import llama_cpp
import numpy as np
import pytest
import torch
from helpers_cli import records, refusal
from hf_models import QWEN, TEXT, byte_level, saved

from seqgen.cli import run
from seqgen.plugins.exchange.exchange import import_model
from seqgen.store.loading import load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
SHAPE |= {"num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
LLAMA_3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5e5}
SOFTCAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
# By name: the class of the configuration, what it has, and the settings of seqgen that follow.
FAMILIES = {
    "llama3.2": ("Llama", {"rope_parameters": LLAMA_3, "head_dim": 12}, {"tie_weights": True}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 5}, {"nope_every": 4}),
    "smollm3-rope": ("SmolLM3", {"no_rope_layers": [1] * 3}, {"nope_every": None}),
    "phi3": ("Phi3", {"tie_word_embeddings": False}, {"sliding_window": None}),
    "phi3-sliding": ("Phi3", {"sliding_window": 7}, {"sliding_window": 7, "full_every": None}),
    "olmo2": ("Olmo2", {"tie_word_embeddings": False}, {"norm_position": "output"}),
    "mistral": ("Mistral", {"sliding_window": 7, "head_dim": 12}, {"sliding_window": 7}),
    "gemma2": (
        "Gemma2",
        {"num_hidden_layers": 4, "sliding_window": 7, "query_pre_attn_scalar": 20, **SOFTCAPS},
        {"full_every": 2, "attention_softcap": 3.0, "logit_softcap": 2.0},
    ),
    "gemma3": (
        "Gemma3Text",
        {"num_hidden_layers": 7, "sliding_window": 7, "query_pre_attn_scalar": 20},
        {"full_every": 6, "sliding_rope_theta": 10000.0, "rope_theta": 1e6},
    ),
    "gemma3-longer": (
        "Gemma3Text",
        {
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        {"full_every": 2, "rope_scaling": "linear", "sliding_rope_theta": 100.0},
    ),
}
NAMES = {"llama3.2": "llama", "phi3": "llama", "phi3-sliding": "mistral", "smollm3-rope": "llama"}
NAMES |= {"gemma3": "gemma3_text", "gemma3-longer": "gemma3_text"}


def checkpoint(kind, folder, **more):
    """Write a tiny random model of a family, and return it."""
    name, own, _ = FAMILIES[kind]
    library = byte_level(special=("<|endoftext|>", "<|im_end|>"), pattern=QWEN)
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    fields = {**SHAPE, "num_hidden_layers": 3, **ids, **own, **more}
    if name.startswith("Gemma"):
        fields = {"head_dim": 12, **fields}
    config = getattr(transformers, f"{name}Config")(**fields)
    config.vocab_size = library.get_vocab_size()
    config._attn_implementation = "eager"  # the only one that has Gemma 2's soft caps
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    saved(folder, model, library, "<|endoftext|>", "<|im_end|>")
    return model


def theirs(folder_or_model, ids):
    model = folder_or_model
    if not isinstance(model, torch.nn.Module):
        about = {"attn_implementation": "eager", "dtype": torch.float32}
        model = transformers.AutoModelForCausalLM.from_pretrained(model, **about)
    with torch.no_grad():
        return model(torch.tensor(ids)).logits


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))


IDS = np.random.default_rng(3).integers(2, 290, (2, 40))


@pytest.mark.fast_for(
    "gemma2", "gemma3", "llama3.2", "mistral", "olmo2", "phi3-sliding", "smollm3-rope", rest="slow"
)
@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_are_those_of_transformers_in_and_out(kind, tmp_path):
    model = checkpoint(kind, tmp_path / "hf")
    wanted = theirs(model, IDS)
    imported = load(import_model(tmp_path / "hf", name="m").name, "cpu")
    own = imported.model
    config = own.config
    assert {name: getattr(config, name) for name in FAMILIES[kind][2]} == FAMILIES[kind][2]
    with torch.no_grad():
        found = own(torch.tensor(IDS))[0]
    assert (found - wanted).abs().max() < 1e-4
    for reader in (own, own.as_arrays()):  # in pieces, with a cache
        state, pieces = reader.start(2), []
        for begin, end in ((0, 1), (1, 9), (9, 10), (10, 40)):
            with torch.no_grad():
                piece, state = reader(reader.ids(IDS[:, begin:end]), state)
            pieces.append(torch.as_tensor(np.asarray(piece)))
        assert (torch.cat(pieces, 1) - wanted).abs().max() < 1e-4
    assert run(["export", "m", "--format", "hf", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    table = json.loads((tmp_path / "out" / "config.json").read_text())
    assert table["model_type"] == NAMES.get(kind, kind)
    assert (theirs(tmp_path / "out", IDS) - wanted).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("phi3", "rope_scaling", {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
        ("phi3", "partial_rotary_factor", 0.75),
        ("smollm3", "no_rope_layers", [0, 1, 0, 0, 1]),
        ("smollm3", "no_rope_layers", "all"),
        ("olmo2", "clip_qkv", 8.0),
        ("gemma2", "layer_types", ["full_attention", *["sliding_attention"] * 3]),
        ("gemma2", "layer_types", ["chunked_attention"] * 4),
        ("gemma2", "hidden_activation", "gelu"),
        ("gemma2", "attn_logit_softcapping", -1.0),
        ("gemma2", "query_pre_attn_scalar", 0),
        ("gemma2", "query_pre_attn_scalar", "many"),
        ("gemma3", "use_bidirectional_attention", True),
        ("gemma3", "rope_parameters", {"full_attention": 5}),
        ("gemma3", "rope_parameters", {"full_attention": {}, "sliding_attention": {"factor": 2}}),
        ("gemma3", "attention_bias", True),
    ],
)
def test_what_seqgen_cannot_compute_is_refused_by_name(kind, field, value, tmp_path, capsys):
    checkpoint(kind, tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    table = json.loads(path.read_text())
    if field == "partial_rotary_factor":
        table["rope_parameters"][field] = value
    elif field == "rope_scaling":
        table |= {"rope_parameters": None, field: value}
    else:
        table[field] = value
    path.write_text(json.dumps(table))
    line = refusal(capsys, "import", tmp_path / "hf", "--name", "m")
    assert "config.json" in line and len(line) < 400


SETTINGS = {
    "norm_position=output qk_norm_whole=true bias=true": "bias=true",
    "norm_position=output": "qk_norm_whole=false",
    "norm_position=both scale_embedding=true sliding_window=8": "activation=swiglu",
    "norm_position=both activation=geglu scale_embedding=true": "no sliding_window",
    "attention_softcap=5": "attention_softcap=5",
    "nope_every=2": "qk_norm=true",
    "sliding_window=8 full_every=2": "full_every=2",
}


@pytest.mark.fast_for("norm_position=output qk*", "nope_every*", rest="slow")
@pytest.mark.parametrize("given", SETTINGS)
def test_a_model_of_no_family_is_not_exported(given, tmp_path, capsys):
    (tmp_path / "t.txt").write_text(TEXT)
    sizes = "hidden_size=16 num_layers=2 num_heads=2 steps=1 batch_size=1"
    flags = [word for pair in (*sizes.split(), *given.split()) for word in ("--set", pair)]
    command = ["train", str(tmp_path / "t.txt"), "--model", "transformer", "--name", "own"]
    assert run([*command, "--tokenizer", "byte", "--seq-len", "16", *flags, "--quiet"]) == 0
    line = refusal(capsys, "export", "own", "--format", "hf", "--out", tmp_path / "hf")
    assert SETTINGS[given] in line
    assert len(records(capsys, "sample", "the", "-m", "own", "--max-tokens", "20")) == 1


# What llama.cpp always computes a family with.
GGUF = {
    "smollm3": ({}, "smollm3"),
    "olmo2": ({}, "olmo2"),
    "phi3": ({}, "llama"),
    "gemma2": ({}, "gemma2"),
    "gemma3": ({"query_pre_attn_scalar": 12}, "gemma3"),
    "llama3.2": ({}, "llama"),
}


@pytest.mark.fast_for("gemma3", "llama3.2", "phi3", "smollm3", rest="slow")
@pytest.mark.parametrize("kind", GGUF)
def test_gguf_files_are_written_and_read(kind, tmp_path):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    model = checkpoint(kind, tmp_path / "hf", **GGUF[kind][0])
    import_model(tmp_path / "hf", name="m")
    path = tmp_path / "m.gguf"
    assert run(["export", "m", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    reader = gguf.GGUFReader(path)
    family = reader.fields["general.architecture"].contents()
    assert family == GGUF[kind][1]
    architecture = gguf.MODEL_ARCH[family.upper()]
    layers = model.config.num_hidden_layers
    known = gguf.get_tensor_name_map(architecture, layers).mapping.values()
    names = {name for _, name in known}
    for tensor in reader.tensors:
        assert tensor.name.removesuffix(".weight") in names, tensor.name
    again = load(import_model(path, name="again").name, "cpu").model
    with torch.no_grad():
        assert (again(torch.tensor(IDS))[0] - theirs(model, IDS)).abs().max() < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in GGUF if kind != "phi3"])
def test_llama_cpp_computes_the_same(kind, tmp_path):
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    pytest.importorskip("gguf", reason="gguf is not installed")
    model = checkpoint(kind, tmp_path / "hf", **GGUF[kind][0])
    import_model(tmp_path / "hf", name="m")
    path = tmp_path / "m.gguf"
    assert run(["export", "m", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    ids = IDS[:1, :28].tolist()
    near = 1e-2 if kind.startswith("gemma") else 1e-3  # its GELU is a table of half precision
    (found,) = llama_cpp.ask_llama_cpp(path, [["next", ids[0], 5]])
    wanted = theirs(model, ids)[0, -1].log_softmax(-1)
    for token, log_prob in found:
        assert wanted[token].item() == pytest.approx(log_prob, abs=near)


def test_phi3_is_read_from_gguf(tmp_path):
    """Its matrices are fused in such files; these are what llama.cpp's own converter writes."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    model = checkpoint("phi3", tmp_path / "hf")
    import_model(tmp_path / "hf", name="m")
    assert run(["export", "m", "--format", "gguf", "--out", str(tmp_path / "a.gguf")]) == 0
    ours, names = gguf.GGUFReader(tmp_path / "a.gguf"), {}
    for tensor in ours.tensors:
        names[tensor.name] = np.array(tensor.data)
    for layer in range(3):
        block = f"blk.{layer}."
        parts = [names.pop(f"{block}attn_{x}.weight") for x in "qkv"]
        parts[:2] = [_as_neox(x, heads) for x, heads in zip(parts[:2], (4, 2), strict=True)]
        names[f"{block}attn_qkv.weight"] = np.concatenate(parts)
        pair = names.pop(f"{block}ffn_gate.weight"), names[f"{block}ffn_up.weight"]
        names[f"{block}ffn_up.weight"] = np.concatenate(pair)
    writer = gguf.GGUFWriter(tmp_path / "b.gguf", "phi3")
    for key, field in ours.fields.items():
        if key.startswith("tokenizer."):
            value = field.contents()
            put = writer.add_array if isinstance(value, list) else writer.add_key_value
            kinds = () if isinstance(value, list) else (field.types[0],)
            put(key, value, *kinds)
    config = model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_rope_scaling_orig_ctx_len(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_sliding_window(0)
    for name, values in names.items():
        writer.add_tensor(name, values)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    again = load(import_model(tmp_path / "b.gguf", name="again").name, "cpu").model
    with torch.no_grad():
        assert (again(torch.tensor(IDS))[0] - theirs(model, IDS)).abs().max() < 1e-4


def _as_neox(x, heads):
    """Undo the order of rotated pairs that files of type llama have."""
    return x.reshape(heads, -1, 2, x.shape[-1]).swapaxes(1, 2).reshape(x.shape)


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("gemma3", {"layer_types": ["sliding_attention"] * 7}, "full_every=None"),
        ("gemma3-longer", {}, "full_every=2"),
        ("smollm3", {"no_rope_layers": [1, 0, 1, 0, 1]}, "nope_every=2"),
        ("mistral", {}, "sliding_window=7"),
    ],
)
def test_what_llama_cpp_computes_otherwise_is_not_written(kind, more, says, tmp_path, capsys):
    checkpoint(kind, tmp_path / "hf", **more)
    import_model(tmp_path / "hf", name="m")
    line = refusal(capsys, "export", "m", "--format", "gguf", "--out", tmp_path / "m.gguf")
    assert says in line and "--format hf" in line
