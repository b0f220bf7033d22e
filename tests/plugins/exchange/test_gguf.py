"""GGUF files: written by the gguf package and read here, written here and read by it."""

import json
import re
import struct
from dataclasses import replace
from functools import partial

import llama_cpp
import numpy as np
import pytest
import sentencepiece
import torch
from helpers_cli import needs, records, refusal
from hf_models import PROMPTS, TEXT, checkpoint, metaspace, sentencepiece_model
from nasty import ODD, nasty_texts

from seqgen.cli import run
from seqgen.engines.tensor_ops import TensorOps
from seqgen.errors import SeqgenError
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.positions import rotations
from seqgen.plugins.exchange import gguf_models
from seqgen.plugins.exchange.exchange import import_model
from seqgen.plugins.exchange.gguf import GGUFFile, write
from seqgen.plugins.exchange.hf_own import scores_of
from seqgen.plugins.exchange.imported_tokenizers import (
    HuggingFaceTokenizer,
    WholeSentencepieceTokenizer,
)
from seqgen.store.formats import ModelToExport
from seqgen.store.loading import load
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import KINDS

gguf = pytest.importorskip("gguf", reason="gguf is not installed")

Kind = gguf.GGMLQuantizationType


def own_model(tmp_path, *settings, name="own", tokenizer="byte", flags=()):
    """Train a tiny transformer for one step."""
    (tmp_path / "t.txt").write_text(TEXT)
    sizes = ("hidden_size=32", "num_layers=2", "num_heads=4", "steps=1", "batch_size=1")
    flags = [*flags, *(word for pair in (*sizes, *settings) for word in ("--set", pair))]
    command = ["train", str(tmp_path / "t.txt"), "--model", "transformer", "--name", name]
    assert run([*command, "--tokenizer", tokenizer, "--seq-len", "32", *flags, "--quiet"]) == 0
    return load(name, "cpu")


YARN = ("rope_scaling=yarn", "rope_factor=4", "rope_high_factor=32", "rope_original_window=16")
YARN += ("rope_gain=1.1386294361",)
LLAMA_3 = ("rope_scaling=llama3", "rope_factor=8", "rope_theta=1e9", "head_size=16")
SHAPES = {
    "qwen3": ("rope_scaling=linear", "rope_factor=2", "head_size=16"),
    "qwen2": ("qk_norm=false", "qkv_bias=true", *YARN),
    "llama": ("qk_norm=false", "num_kv_heads=2", *LLAMA_3, "rope_original_window=4096"),
    "gpt2": (
        "positions=learned",
        "norm=layernorm",
        "activation=gelu",
        "qk_norm=false",
        "bias=true",
    ),
}


@pytest.mark.fast_for("qwen3", "llama", rest="slow")
@pytest.mark.parametrize("family", SHAPES)
def test_our_files_are_read_by_gguf_and_by_us(family, tmp_path):
    own = own_model(tmp_path, *SHAPES[family])
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    theirs = gguf.GGUFReader(path)
    assert theirs.fields["general.architecture"].contents() == family
    assert theirs.fields[f"{family}.block_count"].contents() == 2
    named = {tensor.name: tensor for tensor in theirs.tensors}
    known = own.model.embedding.weight.detach().numpy()
    assert np.array_equal(named["token_embd.weight"].data, known)
    assert all(tensor.tensor_type == Kind.F32 for tensor in theirs.tensors)
    wanted = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], 2)
    block = {"gpt2": "transformer.h.1.mlp.c_proj"}.get(family, "model.layers.1.mlp.down_proj")
    assert wanted.get_name(block) + ".weight" in named
    again = load(import_model(path, name="again").name, "cpu")
    assert again.framing == own.framing.__class__(own.framing.start, None, None)
    ids = torch.arange(32)[None] * 7
    with torch.no_grad():
        assert torch.equal(again.model(ids)[0], own.model(ids)[0])
    text = TEXT + "".join(ODD)  # the names of special tokens among them
    assert again.tokenizer.encode(text).tolist() == own.tokenizer.encode(text).tolist()


@pytest.mark.fast_for("gpt2-*", "qwen3-rope*", rest="slow")
@pytest.mark.parametrize(
    ("shape", "setting", "always"),
    [
        ("qwen2", "rope_high_factor=8.0", "with 32.0"),
        ("qwen2", "rope_low_factor=2.0", "with 1.0"),
        ("gpt2", "activation=relu", "with gelu"),
        ("qwen3", "rope_scaling=llama3", "without rope_scaling"),
        ("llama", "sliding_window=8", "without sliding_window"),
        ("qwen3", "sliding_window=8", "without sliding_window"),
    ],
)
def test_what_llama_cpp_always_computes_in_its_way_is_refused(
    shape, setting, always, tmp_path, capsys
):
    own_model(tmp_path, *SHAPES[shape], setting)
    line = refusal(capsys, "export", "own", "--format", "gguf", "--out", tmp_path / "m.gguf")
    assert f"own has {setting}, and llama.cpp always computes such a model {always}" in line
    assert run(["export", "own", "--format", "hf", "--out", str(tmp_path / "hf"), "--quiet"]) == 0


@pytest.mark.parametrize(
    "settings", [("sliding_window=32",), ("sliding_window=8", "full_layers=2")]
)
def test_a_sliding_window_that_never_slides_leaves(settings, tmp_path):
    own = own_model(tmp_path, *settings)
    path = tmp_path / "m.gguf"
    assert own.model.config.window == 32
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    again = load(import_model(path, name="again").name, "cpu")
    ids = torch.arange(32)[None] * 7
    with torch.no_grad():
        assert torch.equal(again.model(ids)[0], own.model(ids)[0])


def test_a_name_with_a_newline_is_shown_in_one_line(tmp_path, capsys):
    own_model(tmp_path)
    path = tmp_path / "a\nb.gguf"
    capsys.readouterr()
    assert run(["export", "own", "--format", "gguf", "--out", str(path)]) == 0
    assert capsys.readouterr().err == f"own: written to {tmp_path}/a\\nb.gguf\n"
    assert run(["import", str(path), "--name", "again"]) == 0
    assert capsys.readouterr().err == f"again: imported from {tmp_path}/a\\nb.gguf\n"


def test_yarn_is_read_as_llama_cpp_computes_it(tmp_path):
    own = own_model(tmp_path, *SHAPES["qwen2"])
    exported = ModelToExport(own.model, own.tokenizer, "stream", own.framing, "own")
    path, betas = tmp_path / "m.gguf", {"fast": 8.0, "slow": 0.01}
    betas = {f"qwen2.rope.scaling.yarn_beta_{which}": value for which, value in betas.items()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gguf_models.gguf, "write", lambda facts, *rest: write(facts | betas, *rest))
        path.write_bytes(b"".join(gguf_models.write_model(exported)))
    again = load(import_model(path, name="again").name, "cpu")
    assert torch.equal(again.model.waves, own.model.waves)


def facts_of_family(family):
    """Return the names of all facts about a family that the gguf package knows."""
    groups = [gguf.Keys.LLM, gguf.Keys.Attention, gguf.Keys.Rope]
    texts = [text for group in groups for text in vars(group).values() if isinstance(text, str)]
    return [text.replace("{arch}", family) for text in texts if text.startswith("{arch}.")]


def written_with(own, path, family, facts):
    """Write a model as a GGUF file with other facts about its family."""
    facts = {f"{family}.{fact}": value for fact, value in facts.items()}
    exported = ModelToExport(own.model, own.tokenizer, "stream", own.framing, "own")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gguf_models.gguf, "write", lambda had, *rest: write(had | facts, *rest))
        path.write_bytes(b"".join(gguf_models.write_model(exported)))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_facts_that_nobody_knows_are_refused(family, tmp_path):
    own = own_model(tmp_path, *(SHAPES["gpt2"] if family == "gpt2" else ("qk_norm=false",)))
    harmless, path = {f"{family}.{fact}" for fact in gguf_models.HARMLESS}, tmp_path / "m.gguf"
    followed = {f"{family}.{fact}" for fact in gguf_models.FIELDS[family]}
    followed.add(f"{family}.rope.scaling.attn_factor")  # by yarn
    written_with(own, path, family, {})
    names, whole = facts_of_family(family), GGUFFile(path)
    assert len(names) > 60
    for name in [*names, f"{family}.rope.scale_linear"]:
        whole.facts[name], had = 5, whole.facts.get(name)
        if name in harmless - followed:
            gguf_models.config_of(whole, family)
        elif name not in followed and (family == "gpt2" or "scale_linear" not in name):
            said = re.escape(f"{name} is 5, which seqgen does not understand")
            with pytest.raises(SeqgenError, match=said):
                gguf_models.config_of(whole, family)
        whole.facts[name] = had


# Facts about the scaling of positions, and what llama.cpp takes them for: a factor or a refusal.
SCALINGS = [
    ({"rope.scaling.factor": 4.0}, 4.0),
    ({"rope.scale_linear": 4.0}, 4.0),
    ({"rope.scale_linear": 4.0, "rope.scaling.factor": 2.0}, 2.0),
    ({"rope.scale_linear": 4.0, "rope.scaling.factor": 0.0}, None),
    ({"rope.scale_linear": 4.0, "rope.scaling.type": "none"}, None),
    ({"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}, None),
    ({"rope.scaling.type": "linear"}, None),
    ({"rope.scaling.attn_factor": 1.0}, None),
    ({"attention.causal": True}, None),
    ({"logit_scale": 0.0}, None),
    ({"attention.causal": False}, "attention.causal is False"),
    ({"rope.scaling.attn_factor": 1.5}, "rope.scaling.attn_factor is 1.5"),
    ({"rope.scaling.attn_factor": 1.5, "rope.scaling.type": "linear"}, "attn_factor is 1.5"),
    ({"rope.scaling.attn_factor": 1.5, "rope.scaling.type": "none"}, "attn_factor is 1.5"),
    ({"rope.scaling.type": "longrope"}, "rope.scaling.type is 'longrope'"),
    ({"attention.sliding_window": 4}, "attention.sliding_window is 4"),
]
YARNS = [
    {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
    {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 1.5},
]


def test_scaling_is_read_as_llama_cpp_reads_it(tmp_path):
    own, path = own_model(tmp_path, "qk_norm=false"), tmp_path / "m.gguf"
    for facts, expected in SCALINGS:
        written_with(own, path, "llama", facts)
        if isinstance(expected, str):
            with pytest.raises(SeqgenError, match=f"{expected}, which seqgen does not understand"):
                gguf_models.read_model(path, None)
            continue
        config = gguf_models.read_model(path, None).model.config
        assert config.rope_scaling == (expected and "linear"), facts
        assert config.rope_factor == (expected or 1.0), facts
    own = own_model(tmp_path, "qk_norm=false", *LLAMA_3, name="scaled")
    written_with(own, path, "llama", {"rope.scaling.factor": 4.0})
    with pytest.raises(SeqgenError, match=r"both rope_freqs.weight and linear scaling"):
        gguf_models.read_model(path, None)


@pytest.mark.long
def test_llama_cpp_computes_the_same_with_every_fact_that_is_read(tmp_path, ask_llama_cpp):
    own = own_model(tmp_path, "qk_norm=false", "steps=100", tokenizer="char")
    ids, path = [own.framing.start, *own.tokenizer.encode(TEXT[:30]).tolist()], tmp_path / "m.gguf"
    read = [facts for facts, expected in SCALINGS if not isinstance(expected, str)] + YARNS
    values = {"tensor_data_layout": "x", "rope.scaling.finetuned": True}
    values |= {"vocab_size": 5, "pooling_type": 2}
    read += [{fact: values.get(fact, 5.0)} for fact in gguf_models.HARMLESS]
    for facts in read:
        written_with(own, path, "llama", facts)
        model = load(import_model(path, name="m", overwrite=True), "cpu").model
        with torch.no_grad():
            ours = model(torch.tensor([ids]))[0][0, -1].log_softmax(-1)
        (theirs,) = ask_llama_cpp(path, [["next", TEXT[:30], 5]])
        for token, log_prob in theirs:
            assert ours[token].item() == pytest.approx(log_prob, abs=2e-5), facts


BLOCKS = (Kind.Q8_0, Kind.Q5_1, Kind.Q5_0, Kind.Q4_1, Kind.Q4_0)


@pytest.mark.fast_for("1", "3", rest="slow")
@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, *BLOCKS])
def test_numbers_are_written_as_the_package_reads_them(kind, tmp_path, capsys):
    own = own_model(tmp_path, "ffn_size=48", "qk_norm=false")
    path, kind_name = tmp_path / "m.gguf", kind.name.lower()
    command = ("export", "own", "--format", "gguf", "--type", kind_name, "--out", str(path))
    assert run([*command, "--quiet"]) == 0
    theirs = gguf.GGUFReader(path)
    again = load(import_model(path, name="again").name, "cpu")
    assert (
        theirs.fields["general.file_type"].contents() == gguf.LlamaFileType[f"MOSTLY_{kind.name}"]
    )
    named = {tensor.name: tensor for tensor in theirs.tensors}
    known = own.model.embedding.weight.detach().numpy()
    embedding = named["token_embd.weight"]
    expected = gguf.quants.dequantize(gguf.quants.quantize(known, kind), kind)
    assert embedding.tensor_type == kind
    assert ("general.quantization_version" in theirs.fields) == (kind in BLOCKS)
    assert np.array_equal(again.model.embedding.weight.detach().numpy(), expected)
    assert np.array_equal(gguf.quants.dequantize(embedding.data, kind), expected)
    assert named["output_norm.weight"].tensor_type == Kind.F32
    # Rows of 48 numbers are no whole blocks of 32.
    rest = Kind.F16 if kind in BLOCKS else kind
    assert named["blk.0.ffn_down.weight"].tensor_type == rest
    assert "--type f16 is for" in refusal(
        capsys, "export", "own", "--format", "hf", "--type", "f16", "--out", tmp_path / "hf"
    )


def test_numbers_too_large_for_a_type_are_refused():
    tensors = {"x": np.full((2, 32), 7e4, "f4")}
    for kind in (Kind.F16, Kind.Q4_1, Kind.Q5_1):
        with pytest.raises(SeqgenError, match=f"x has numbers too large for {kind.name}"):
            list(write({}, tensors, {"x": kind}))
    for kind, most in ((Kind.Q8_0, 127), (Kind.Q5_0, 16), (Kind.Q4_0, 8)):
        assert b"".join(write({}, tensors, {"x": kind}))
        with pytest.raises(SeqgenError, match=f"x has numbers too large for {kind.name}"):
            list(write({}, {"x": tensors["x"] * most}, {"x": kind}))


def test_byte_pairs_leave_as_a_vocabulary_that_merges_by_score(tmp_path):
    tokenizer = KINDS["bpe"].train([f"{TEXT}\nthe <unk> of <unk>s\n" * 3], 400)
    framing = Framing(tokenizer.newline_id, None, None)
    facts = gguf_models.facts_of(tokenizer, framing, "m")
    path = tmp_path / "v.gguf"
    path.write_bytes(b"".join(write(facts, {}, {})))
    again, framed = gguf_models.read_vocabulary(GGUFFile(path), tokenizer.vocab_size)
    assert framed == framing
    for text in nasty_texts(TEXT, 200):
        # llama.cpp has one character for a space and U+2581, and no escape.
        text = text.replace("\u2581", "").replace("\x10", "")
        ids = tokenizer.encode(text).tolist()
        assert again.encode(text).tolist() == ids
        assert again.decode(ids) == text


def test_characters_leave_as_pieces_of_one_letter(tmp_path):
    tokenizer = KINDS["char"].train([f"{TEXT}\u3000\n"])
    framing = Framing(tokenizer.newline_id, None, None)
    path = tmp_path / "v.gguf"
    path.write_bytes(b"".join(write(gguf_models.facts_of(tokenizer, framing, "m"), {}, {})))
    again, framed = gguf_models.read_vocabulary(GGUFFile(path), tokenizer.vocab_size)
    assert framed == framing
    texts = [text for text in nasty_texts(TEXT, 300) if set(text) <= {*tokenizer.alphabet}]
    assert len(texts) > 50
    for text in texts:
        ids = tokenizer.encode(text).tolist()
        assert again.encode(text).tolist() == ids
        assert again.decode(ids) == text
    assert again.encode("a\u2192t").tolist() == tokenizer.encode("a\u2192t").tolist()
    space = KINDS["char"].train(["a\u2581b"])
    with pytest.raises(SeqgenError, match=r"it knows U\+2581"):
        gguf_models.facts_of(space, framing, "m")


def metaspaced(scheme):
    """Return Llama 2's form of a tokenizer: spaces marked by rules, or by a step that does it."""
    table = json.loads(metaspace().to_str())
    if scheme == "none":
        del table["normalizer"]["normalizers"][0]
    elif scheme != "prepended":
        step = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme}
        table |= {"normalizer": None, "pre_tokenizer": {**step, "split": False}}
    return HuggingFaceTokenizer(json.dumps(table).encode())


def whole_sentencepiece():
    return WholeSentencepieceTokenizer(sentencepiece_model(TEXT.split("\n") * 8, 330))


MERGING = {scheme: partial(metaspaced, scheme) for scheme in ("prepended", "never", "none")}
MERGING |= {"sentencepiece": whole_sentencepiece}
NAMED = ("<unk>", "<s>", "</s>")


def texts_without_names(count):
    """Return odd texts in which nothing is read as a special token."""
    texts = nasty_texts(TEXT, count)
    return [text for text in texts if text and not any(name in text for name in NAMED)]


@pytest.mark.parametrize("form", MERGING)
def test_merges_of_characters_leave_as_scores(form, tmp_path):
    tokenizer = MERGING[form]()
    framing, path = Framing(1, None, 2), tmp_path / "v.gguf"
    path.write_bytes(b"".join(write(gguf_models.facts_of(tokenizer, framing, "m"), {}, {})))
    again, framed = gguf_models.read_vocabulary(GGUFFile(path), tokenizer.vocab_size)
    assert framed == framing and again.normaliser.dummy_prefix == (
        form in ("prepended", "sentencepiece")
    )
    for text in texts_without_names(300):
        assert again.encode(text).tolist() == tokenizer.encode(text).tolist(), text


# It puts a space before a text, but not before one that begins with a space, as llama.cpp does.
FIRST = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
FIRST = {"normalizer": None, "pre_tokenizer": FIRST}


def test_merges_that_no_scores_give_are_refused():
    """Of a, b and c, bc is made first, and abc only of ab: by scores it would be made of bc."""
    with pytest.raises(ValueError, match="its piece 'abc' would be merged from other parts"):
        scores_of(["a", "b", "c", "ab", "bc", "abc"], [("b", "c"), ("a", "b"), ("ab", "c")])
    assert scores_of(["a", "b", "ab"], [("a", "b")])["ab"] == 0
    for change, said in (
        ({"pre_tokenizer": {"type": "Whitespace"}}, "it changes or splits texts before it merges"),
        (FIRST, "it changes or splits texts before it merges"),
        ({"normalizer": {"type": "NFKC"}}, "it changes or splits texts before it merges"),
        (
            {"added_tokens": [{"id": 5, "content": "x", "special": False}]},
            "'x' is cut out of texts",
        ),
    ):
        table = {**json.loads(metaspace().to_str()), **change}
        table["added_tokens"] = [{**PLAIN_TOKEN, **token} for token in table["added_tokens"]]
        tokenizer = HuggingFaceTokenizer(json.dumps(table).encode())
        with pytest.raises(SeqgenError, match=said):
            gguf_models.facts_of(tokenizer, Framing(1, None, 2), "m")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("unigram", "it has no bytes there for what no piece spells"),
        pytest.param(
            "wordpiece",
            "its WordPiece drops all white space, and here a newline is a token",
            marks=needs("labels"),
        ),
        ("word", "it cannot split texts into whole words"),
        pytest.param("uncased", "it cannot split texts into whole words", marks=needs("labels")),
    ],
)
def test_vocabularies_that_llama_cpp_reads_otherwise_are_refused(kind, reason):
    tokenizer = KINDS[kind].train([f"{TEXT}\n"], 320)
    with pytest.raises(SeqgenError) as caught:
        gguf_models.facts_of(tokenizer, Framing(tokenizer.newline_id, None, None), "m")
    said = f"m has a {kind} tokenizer that llama.cpp reads otherwise: {reason}"
    assert str(caught.value) == said


PLAIN_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.fixture
def ask_llama_cpp():
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    return llama_cpp.ask_llama_cpp


def test_what_llama_cpp_does_not_answer_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="0 of 1 answered"):  # also where it is not installed
        llama_cpp.ask_llama_cpp(tmp_path / "none.gguf", [["tokenize", "a"]])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_llama_cpp_reads_and_writes_the_same(kind, tmp_path, capsys, ask_llama_cpp):
    size = ("--vocab-size", "400") if kind == "bpe" else ()
    own = own_model(tmp_path, "steps=60", tokenizer=kind, flags=size)
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    unlike = "\u2581\x10" if kind == "bpe" else "".join({*"".join(ODD)} - {*own.tokenizer.alphabet})
    texts = [text for text in nasty_texts(TEXT, 10_000) if not {*text} & {*unlike}]
    questions = [*(["tokenize", text] for text in texts), *(["greedy", p, 8] for p in PROMPTS)]
    answers = ask_llama_cpp(path, questions)
    assert len(texts) > 3000
    assert answers[: len(texts)] == [own.tokenizer.encode(text).tolist() for text in texts]
    for prompt, theirs in zip(PROMPTS, answers[len(texts) :], strict=True):
        flags = ("-m", "own", "--greedy", "--max-tokens", "8")
        assert records(capsys, "sample", prompt, *flags)[0]["text"] == theirs


@pytest.mark.long
@pytest.mark.parametrize("form", MERGING)
def test_llama_cpp_merges_imported_characters_alike(form, tmp_path, ask_llama_cpp):
    pytest.importorskip("transformers")
    tokenizer, folder = MERGING[form](), checkpoint("mistral", tmp_path / "hf")
    model = load(import_model(folder, name="m").name, "cpu").model
    config = replace(model.config, vocab_size=tokenizer.vocab_size, sliding_window=None)
    exported = ModelToExport(Transformer(config), tokenizer, "line", Framing(1, None, 2), "m")
    path = tmp_path / "m.gguf"
    path.write_bytes(b"".join(gguf_models.write_model(exported)))
    texts = texts_without_names(10_000)
    answers = ask_llama_cpp(path, [["tokenize", text] for text in texts])
    assert answers == [tokenizer.encode(text).tolist() for text in texts]


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_llama_cpp_turns_positions_alike(family, tmp_path, ask_llama_cpp):
    original = {"llama": "rope_original_window=16"}.get(family, "rope_low_factor=1")
    shape = (*SHAPES[family], original, "rope_theta=1e4", "steps=100")
    own = own_model(tmp_path, *shape, tokenizer="char")
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    (theirs,) = ask_llama_cpp(path, [["next", TEXT[:30], 5]])
    ids = [own.framing.start, *own.tokenizer.encode(TEXT[:30]).tolist()]
    with torch.no_grad():
        ours = own.model(torch.tensor([ids]))[0][0, -1].log_softmax(-1)
        own.model.waves = rotations(TensorOps, 32, own.model.config.head_width, 1e4)
        plain = own.model(torch.tensor([ids]))[0][0, -1].log_softmax(-1)
    for token, log_prob in theirs:
        assert ours[token].item() == pytest.approx(log_prob, abs=2e-5)
    assert (ours - plain).abs().max() > 0.01


LARGE_BLOCKS = {Kind.Q2_K: 84, Kind.Q3_K: 110, Kind.Q4_K: 144, Kind.Q5_K: 176, Kind.Q6_K: 210}


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, *BLOCKS, *LARGE_BLOCKS])
def test_numbers_of_every_type_are_theirs(kind, tmp_path):
    draw = np.random.default_rng(1)
    values = draw.normal(size=(6, 64)).astype("f4")
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    if kind in LARGE_BLOCKS:  # llama.cpp alone writes them: here, any bytes of finite scales
        values = np.zeros((6, 512), "f4")
        raw = draw.integers(0x78, size=(6, 2 * LARGE_BLOCKS[kind])).astype(np.uint8)
    else:
        raw = gguf.quants.quantize(values, kind)
    writer.add_tensor("x", raw, raw_dtype=kind)
    writer.add_string("word", "h\u00e9")
    writer.add_array("list", [3, -1, 4])
    writer.add_array("words", ["a", ""])
    writer.add_float64("f", 0.25)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file):
        step()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "x.gguf")
    assert file.facts["word"] == "h\u00e9" and file.facts["f"] == 0.25
    assert file.facts["list"] == [3, -1, 4] and file.facts["words"] == ["a", ""]
    assert file.tensors["x"].shape == values.shape
    assert np.array_equal(file.read("x"), gguf.quants.dequantize(raw, kind))


def sentencepiece_facts(writer):
    """Add the vocabulary of a sentencepiece model; return it."""
    made = sentencepiece_model(TEXT.split("\n") * 8, 300)
    library = sentencepiece.SentencePieceProcessor(model_proto=made)
    ids = range(library.vocab_size())
    kinds = {2: library.is_unknown, 3: library.is_control, 6: library.is_byte}
    types = [next((kind for kind, holds in kinds.items() if holds(i)), 1) for i in ids]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([library.id_to_piece(i) for i in ids])
    writer.add_token_scores([library.get_score(i) for i in ids])
    writer.add_token_types(types)
    for name, token in (("bos", 1), ("eos", 2), ("unk", 0)):
        getattr(writer, f"add_{name}_token_id")(token)
    return library


def converted(folder, path, kind=Kind.F32, family="llama"):
    """Write a checkpoint of transformers as a GGUF file, as llama.cpp's converter does."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    config, writer = model.config, gguf.GGUFWriter(path, family)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(48)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if family == "llama":
        library = sentencepiece_facts(writer)
        size = library.vocab_size()
        with torch.no_grad():
            model.resize_token_embeddings(size)
    else:
        table = json.loads((folder / "tokenizer.json").read_text())
        tokens = sorted(table["model"]["vocab"], key=table["model"]["vocab"].get)
        library = transformers.AutoTokenizer.from_pretrained(folder)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types([3 if i < 2 else 1 for i in range(len(tokens))])
        writer.add_token_merges([" ".join(pair) for pair in table["model"]["merges"]])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_add_bos_token(False)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], 2)
    for name, tensor in model.state_dict().items():
        values, (base, ending) = tensor.numpy(), name.rsplit(".", 1)
        if family == "llama" and base.endswith(("q_proj", "k_proj")):
            heads = 4 if base.endswith("q_proj") else 2
            halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        whole = values.ndim == 1 or values.shape[-1] % 32
        own = Kind.F32 if whole else kind
        raw = gguf.quants.quantize(np.ascontiguousarray(values), own)
        writer.add_tensor(f"{names.get_name(base)}.{ending}", raw, raw_dtype=own)
        if not whole:  # what the rounded file says, back in their model
            read = gguf.quants.dequantize(raw, own)
            if family == "llama" and base.endswith(("q_proj", "k_proj")):
                pairs = read.reshape(heads, -1, 2, *read.shape[1:]).swapaxes(1, 2)
                read = pairs.reshape(read.shape)
            tensor.copy_(torch.from_numpy(read.copy()))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file):
        step()
    writer.write_tensors_to_file()
    writer.close()
    return model, library


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", Kind.F32),
        ("llama", Kind.F16),
        ("llama", Kind.BF16),
        ("llama", Kind.Q8_0),
        ("qwen2", Kind.F32),
    ],
)
def test_files_of_the_gguf_package_are_read(family, kind, tmp_path, capsys):
    pytest.importorskip("transformers")
    folder = checkpoint("mistral" if family == "llama" else "qwen2", tmp_path / "hf")
    with torch.no_grad():
        theirs, library = converted(folder, tmp_path / "m.gguf", kind, family)
    assert run(["import", str(tmp_path / "m.gguf"), "--name", "m", "--quiet"]) == 0
    ours = load("m", "cpu")
    ids = torch.randint(0, ours.model.vocab_size, (2, 100))
    with torch.no_grad():
        assert (ours.model(ids)[0] - theirs(ids).logits).abs().max() < 1e-4
    for prompt in PROMPTS:
        own = ours.tokenizer.encode(prompt).tolist()
        known = library.encode(prompt)
        assert own == known
    assert ours.framing.starts_prompts == (family == "llama")
    (record,) = records(capsys, "sample", "the", "-m", "m", "--max-tokens", "5", "--greedy")
    assert record["tokens"] <= 5
    out = tmp_path / "again.gguf"
    assert run(["export", "m", "--format", "gguf", "--out", str(out), "--quiet"]) == 0
    again = load(import_model(out, name="again").name, "cpu")
    assert again.framing == ours.framing
    with torch.no_grad():
        assert torch.equal(again.model(ids)[0], ours.model(ids)[0])
    assert again.tokenizer.encode(TEXT).tolist() == ours.tokenizer.encode(TEXT).tolist()


def test_files_that_lie_are_refused_in_a_line(tmp_path, capsys):
    own_model(tmp_path, "qk_norm=false", *LLAMA_3)
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    whole = path.read_bytes()
    head = struct.Struct("<4sIQQ")
    _, _, tensors, facts = head.unpack(whole[: head.size])
    rest = whole[head.size :]
    lies = {
        "ends too early": whole[:20],
        "does not fit": whole[: len(whole) // 2],
        "version 9": head.pack(b"GGUF", 9, tensors, facts) + rest,
        "announces": head.pack(b"GGUF", 3, 1 << 60, facts) + rest,
        "more than it has room": head.pack(b"GGUF", 3, tensors, 1 << 62) + rest,
        "general.architecture is": whole.replace(b"llama", b"mamba"),
        "there is no tensor": whole.replace(b"blk.1.ffn_down", b"blk.7.ffn_down"),
        "another scaling": whole.replace(np.float32(8).tobytes() * 2, np.float32(9).tobytes() * 2),
        "list": whole.replace(
            b"tokenizer.ggml.tokens\x09\0\0\0\x08\0\0\0",
            b"tokenizer.ggml.tokens\x09\0\0\0\x08\0\0\0" + struct.pack("<Q", 1 << 40),
        ),
    }
    for said, content in lies.items():
        assert content != whole
        path.write_bytes(content)
        assert said in refusal(capsys, "import", path, "--name", "x")


@pytest.mark.slow
def test_mutations_are_refused_in_a_line_or_read(tmp_path, capsys):
    own_model(tmp_path)
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    whole, draw, refused = path.read_bytes(), np.random.default_rng(7), 0
    for _ in range(200):
        raw = bytearray(whole)
        for place in draw.integers(12000, size=draw.integers(1, 4)):
            raw[place] = draw.integers(256)
        path.write_bytes(bytes(raw[: draw.integers(len(raw))] if draw.random() < 0.1 else raw))
        capsys.readouterr()
        code = run(["import", str(path), "--name", "x", "--overwrite", "--quiet"])
        said = capsys.readouterr()
        assert code in (0, 1, 2) and "internal error" not in said.err
        assert said.err.count("\n") == (code != 0)
        refused += code != 0
    assert refused > 20


@pytest.mark.parametrize("theta", [500, 5000])
def test_waves_that_are_never_stretched_in_full_come_back(theta, tmp_path):
    # 8192 tokens hold 12 waves of the slowest pair, which stay, or 2.2, stretched in part.
    scaling = ("rope_scaling=llama3", "rope_factor=8", f"rope_theta={theta}", "head_size=8")
    own = own_model(tmp_path, "qk_norm=false", *scaling)
    path = tmp_path / "m.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    again = load(import_model(path, name="again").name, "cpu")
    assert torch.equal(again.model.waves, own.model.waves)
    ids = torch.arange(32)[None] * 7
    with torch.no_grad():
        assert torch.equal(again.model(ids)[0], own.model(ids)[0])


# Words whose tokens depend on how the text is split: digits, contractions, capitals, spaces.
SPLIT_TEXT = "In 1984 he'd paid 12345.67 for HTMLParser,  don't\n\n DON'T // a\t b \u0301e x\u00b2"
REGEXES = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "tekken": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
# llama.cpp's names (llama-vocab.cpp), and what each does besides: words that are tokens are not
# merged from bytes, and BOS goes before texts.
PRES = {
    "gpt-2": ("gpt-2", False),
    "smollm": ("smollm", False),
    "starcoder": ("smollm", False),
    "qwen2": ("qwen2", False),
    "deepseek-r1-qwen": ("qwen2", False),
    "llama-bpe": ("llama-bpe", True),
    "llama3": ("llama-bpe", True),
    "smaug-bpe": ("llama-bpe", False),
    "tekken": ("tekken", True),
}


def steps_of(split):
    """Return the steps that the library splits a text with."""
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    if split in REGEXES:
        level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre.Sequence([pre.Split(tokenizers.Regex(REGEXES[split]), "isolated"), level])
    level = pre.ByteLevel(add_prefix_space=False)
    digits = pre.Digits(individual_digits=True)
    return pre.Sequence([digits, level]) if split == "smollm" else level


def library_that_splits(split, whole_words):
    """Return a byte-level tokenizer of the library, and its table.

    Its merges make a token of every piece that any of the ways to split gives.
    """
    tokenizers = pytest.importorskip("tokenizers")
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    pieces = [
        piece
        for known in ("gpt-2", "smollm", *REGEXES)
        for piece, _ in steps_of(known).pre_tokenize_str(SPLIT_TEXT)
    ]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
    )
    library.train_from_iterator([pieces], trainer)
    library.pre_tokenizer = steps_of(split)
    table = json.loads(library.to_str())
    table["model"]["ignore_merges"] = whole_words
    return tokenizers.Tokenizer.from_str(json.dumps(table)), table


def gguf_with(table, tmp_path, **facts):
    """Return a GGUF file with the vocabulary of a `tokenizer.json`."""
    path, vocabulary = tmp_path / "v.gguf", table["model"]["vocab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    writer.add_token_types([3, *[1] * (len(vocabulary) - 1)])
    writer.add_token_merges([" ".join(pair) for pair in table["model"]["merges"]])
    for name, fact in facts.items():
        getattr(writer, f"add_{name}")(fact)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file):
        step()
    writer.close()
    return GGUFFile(path), len(vocabulary)


@pytest.mark.parametrize("pre", PRES)
def test_texts_are_split_as_the_file_says(pre, tmp_path):
    split, begins = PRES[pre]
    library, table = library_that_splits(split, whole_words=begins)
    facts = {"tokenizer_pre": pre, "bos_token_id": 0, "eos_token_id": 0}
    tokenizer, framing = gguf_models.read_vocabulary(*gguf_with(table, tmp_path, **facts))
    assert tokenizer.encode(SPLIT_TEXT).tolist() == library.encode(SPLIT_TEXT).ids
    assert framing.starts_prompts == begins and framing.start == 0
    told = gguf_with(table, tmp_path, **facts, add_bos_token=not begins)
    assert gguf_models.read_vocabulary(*told)[1].starts_prompts != begins
    again = gguf_models.facts_of(tokenizer, framing, "m")["tokenizer.ggml.pre"]
    assert gguf_models.PRES[again] == gguf_models.PRES[pre]


def test_the_ways_to_split_give_different_tokens():
    texts = {
        tuple(library_that_splits(split, False)[0].encode(SPLIT_TEXT).tokens)
        for split in ("gpt-2", "smollm", *REGEXES)
    }
    assert len(texts) == 5


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "does not say how its texts are split"),
        ({"tokenizer_pre": "default"}, "does not say how its texts are split"),
        ({"tokenizer_pre": "deepseek-llm"}, "pre is 'deepseek-llm'; seqgen reads gpt-2"),
        ({"tokenizer_pre": "llama-bpe", "bos_token_id": None}, "there is no tokenizer.ggml.bos"),
    ],
)
def test_what_splits_in_no_known_way_is_refused(facts, said, tmp_path):
    _, table = library_that_splits("gpt-2", False)
    facts = {"bos_token_id": 0, "eos_token_id": 0} | facts
    given = {name: fact for name, fact in facts.items() if fact is not None}
    with pytest.raises(SeqgenError, match=said):
        gguf_models.read_vocabulary(*gguf_with(table, tmp_path, **given))
