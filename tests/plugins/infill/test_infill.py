"""Filling in the middle: what a model reads, against the tokenizers library; what is refused."""

import json

import pytest
from helpers_cli import needs, records, refusal
from hf_models import QWEN, TEXT, byte_level, metaspace, saved

from seqgen.cli import run
from seqgen.generation.prompts import read_prompt
from seqgen.generation.sample import Writer
from seqgen.settings.generation import SampleOptions
from seqgen.store.loading import load

pytestmark = needs("exchange")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

PREFIX, SUFFIX = "the cat\n  sat", " on the mat\n"
NAMES = {
    "qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "starcoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "deepseek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    "codestral": ("[SUFFIX]", "[PREFIX]"),
    "code-llama": ("▁<PRE>", "▁<SUF>", "▁<MID>"),
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def imported(folder, kind="qwen", more=("<|endoftext|>", "<|fim_pad|>")):
    """Import a tiny random model whose tokenizer has some special tokens; return its tokenizer."""
    names = NAMES.get(kind, ())
    if kind == "code-llama":
        library, ends = metaspace(), ("<s>", "</s>")
        library.add_special_tokens([*names, "▁<EOT>"])
    else:
        library, ends = (
            byte_level(special=("<|end|>", *more, *names), pattern=QWEN),
            ("<|end|>",) * 2,
        )
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    sizes |= {"num_hidden_layers": 1, "max_position_embeddings": 256, "num_key_value_heads": 2}
    ids = {
        "bos_token_id": library.token_to_id(ends[0]),
        "eos_token_id": library.token_to_id(ends[1]),
    }
    config = transformers.LlamaConfig(vocab_size=library.get_vocab_size(), **sizes, **ids)
    saved(folder, transformers.LlamaForCausalLM(config), library, *ends)
    assert run(["import", str(folder), "--name", "m", "--quiet"]) == 0
    return library


def read(prompt, suffix):
    """Return what the model reads, and the model with the framing of that."""
    writer = Writer(load("m", "cpu"), SampleOptions.of(suffix=suffix, seed=1))
    return read_prompt(writer.loaded, 0, prompt).tokens, writer.loaded


@pytest.mark.parametrize("kind", ["qwen", "starcoder", "deepseek"])
def test_the_prompt_comes_between_the_tokens(kind, tmp_path):
    library = imported(tmp_path / "hf", kind)
    before, between, after = NAMES[kind]
    for prefix in (PREFIX, "", TEXT[:40]):
        for suffix in (SUFFIX, "x", "\n\n  y"):
            whole = library.encode(f"{before}{prefix}{between}{suffix}{after}")
            assert read(prefix, suffix)[0] == tuple(whole.ids)
    ends = {"<|end|>", "<|endoftext|>", "<|fim_pad|>", *NAMES[kind]}
    _, loaded = read(PREFIX, SUFFIX)
    assert {library.id_to_token(token) for token in loaded.framing.stops} == ends
    assert not {*loaded.framing.stops} & {*loaded.never}


def test_codestral_reads_the_suffix_first(tmp_path):
    library = imported(tmp_path / "hf", "codestral")
    tokens = library.encode(f"[SUFFIX]{SUFFIX}[PREFIX]{PREFIX}").ids
    assert read(PREFIX, SUFFIX)[0] == tuple(tokens)


def test_code_llama_puts_no_space_before_the_suffix(tmp_path):
    library = imported(tmp_path / "hf", "code-llama")
    tokens, loaded = read("the cat", "on the mat")
    before, between, after = map(library.token_to_id, NAMES["code-llama"])
    plain = library.encode("the cat", add_special_tokens=False).ids
    middle = tokens[tokens.index(between) + 1 : -1]
    assert tokens[: len(plain) + 2] == (library.token_to_id("<s>"), before, *plain)
    assert tokens[-1] == after and len(tokens) == len(plain) + len(middle) + 4
    pieces = "".join(map(library.id_to_token, middle))
    assert pieces == "on▁the▁mat"
    assert library.token_to_id("▁<EOT>") in loaded.framing.stops


def test_the_text_ends_where_the_model_ends_it(tmp_path, capsys, monkeypatch):
    library = imported(tmp_path / "hf")
    flags = ("-m", "m", "--max-tokens", "60", "--seed", "1", "--num-samples", "12")
    plain = records(capsys, "sample", PREFIX, *flags)
    found = records(capsys, "sample", PREFIX, "--suffix", SUFFIX, *flags)
    assert [one["text"] for one in found] != [one["text"] for one in plain]
    assert {one["finish_reason"] for one in found} == {"eos", "length"}
    assert all(one["prompt"] == PREFIX for one in found)
    assert not any(name in one["text"] for one in found for name in NAMES["qwen"])
    same = records(capsys, "sample", PREFIX, "--suffix", "", *flags)
    assert [one["text"] for one in same] == [one["text"] for one in plain]
    assert library.get_vocab_size() == load("m", "cpu").tokenizer.vocab_size


def test_models_that_cannot_are_refused_in_one_line(tmp_path, capsys):
    imported(tmp_path / "hf", "none")
    line = refusal(capsys, "sample", "a", "-m", "m", "--suffix", "b")
    assert line == (
        "seqgen: m cannot fill in the middle: its tokenizer has no tokens for that, such as "
        "<|fim_prefix|>, <|fim_suffix|>, <|fim_middle|>"
    )
    (tmp_path / "t.txt").write_text("abc\n" * 50)
    (tmp_path / "p.tsv").write_text("a\tb\n" * 50)
    small = ("--steps", "1", "--hidden-size", "4", "--layers", "1", "--quiet", "--name")
    assert run(["train", "t.txt", "--model", "lstm", *small, "text"]) == 0
    assert "cannot fill" in refusal(capsys, "sample", "a", "-m", "text", "--suffix", "b")
    assert run(["train", "p.tsv", "--model", "seq2seq", *small, "pairs"]) == 0
    line = refusal(capsys, "sample", "a", "-m", "pairs", "--suffix", "b")
    assert "--suffix is for models of text" in line
    line = refusal(capsys, "sample", "a", "-m", "m", "--suffix", "\udcff")
    assert "--suffix" in line


@needs("serve")
def test_serve_fills_in_the_middle(tmp_path, capsys):
    TestClient = pytest.importorskip("starlette.testclient").TestClient
    from seqgen.plugins.serve.app import Server, make_app
    from seqgen.plugins.serve.settings import ServeOptions
    from seqgen.plugins.serve.shelf import Shelf

    imported(tmp_path / "hf")
    client = TestClient(make_app(Server(Shelf(["m"]), ServeOptions())), base_url="http://localhost")
    asked = {"model": "m", "prompt": PREFIX, "suffix": SUFFIX, "seed": 1, "max_tokens": 30}
    answer = client.post("/v1/completions", json=asked).json()
    flags = ("-m", "m", "--max-tokens", "30", "--seed", "1", "--suffix", SUFFIX)
    (alone,) = records(capsys, "sample", PREFIX, *flags)
    assert answer["choices"][0]["text"] == alone["text"]
    tokens, _ = read(PREFIX, SUFFIX)
    assert answer["usage"]["prompt_tokens"] == len(tokens)
    streamed = client.post("/v1/completions", json={**asked, "stream": True}).text
    events = [json.loads(x[6:]) for x in streamed.split("\n\n") if x.startswith("data: {")]
    assert "".join(one["choices"][0]["text"] for one in events) == alone["text"]
    for wrong in ({"echo": True}, {"suffix": 5}):
        refused = client.post("/v1/completions", json={**asked, **wrong})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "suffix"
    messages = {"model": "m", "messages": [{"role": "user", "content": "a"}], "suffix": "b"}
    assert client.post("/v1/chat/completions", json=messages).json()["error"]["param"] == "suffix"
