"""Hugging Face models: what we read and write gives what transformers gives."""

import json
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import torch
from helpers_cli import records, refusal
from hf_models import (
    PROMPTS,
    QWEN,
    TEXT,
    byte_level,
    checkpoint,
    metaspace,
    sentencepiece_model,
)

from seqgen import store
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.generation.prompts import read_prompt
from seqgen.plugins.exchange import exchange, formats
from seqgen.plugins.exchange.exchange import import_model
from seqgen.plugins.exchange.imported_tokenizers import HuggingFaceTokenizer, blocks
from seqgen.store.loading import load
from seqgen.store.ownership import foreign_paths, mark
from seqgen.training.train import train

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

KINDS = ["gpt2", "llama", "linear", "mistral", "qwen2", "qwen3"]
KINDS += ["sliding", "qwen2-sliding", "yarn"]
TOKENS = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return what makes a checkpoint of a kind, once."""
    made = {}

    def find(kind):
        if kind not in made:
            made[kind] = checkpoint(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return find


def theirs_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def assert_same_logits(theirs, ours, tokens=100):
    """Compare over a whole text, and over a cache filled in pieces and by single tokens."""
    torch.manual_seed(1)
    ids = torch.randint(0, ours.vocab_size, (2, tokens))
    with torch.no_grad():
        wanted = theirs(ids).logits
        assert (ours(ids)[0] - wanted).abs().max() < 1e-4
        state, pieces = ours.start(2), []
        for piece in ids[:, :90].split(40, 1):
            logits, state = ours(piece, state)
            pieces.append(logits)
        assert (torch.cat(pieces, 1) - wanted[:, :90]).abs().max() < 1e-4
    for place in range(90, tokens):
        logits, state = ours.step(ids[:, place].tolist(), state)
        assert np.abs(logits - wanted[:, place].numpy()).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_imported_does_what_transformers_does(kind, folders, capsys):
    folder = folders(kind)
    assert run(["import", str(folder), "--name", kind, "--quiet"]) == 0
    theirs, tokenizer = theirs_of(folder)
    loaded = load(kind, "cpu")
    assert_same_logits(theirs, loaded.model)
    for prompt in PROMPTS:
        assert list(read_prompt(loaded, 0, prompt).tokens) == tokenizer(prompt).input_ids
    assert read_prompt(loaded, 0, "").tokens == (theirs.config.bos_token_id,)
    greedy = {"do_sample": False, "max_new_tokens": TOKENS}
    beams = {**greedy, "num_beams": 5, "early_stopping": "never", "length_penalty": 1.0}
    for prompt in PROMPTS:
        asked = tokenizer(prompt, return_tensors="pt")
        common = ("-m", kind, "--max-tokens", TOKENS, "--no-heal")
        for options, command in (
            (greedy, ("sample", prompt, "--greedy")),
            (beams, ("beam-search", prompt, "--beams", 5, "--length-norm", "avg")),
        ):
            found = theirs.generate(**asked, **options, pad_token_id=0)[0]
            (record,) = records(capsys, *command, *common)
            whole = tokenizer.decode(found, skip_special_tokens=True)
            start = tokenizer.decode(asked.input_ids[0], skip_special_tokens=True)
            assert whole == start + record["text"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_perplexity_is_that_of_a_loop_in_transformers(kind, folders, capsys, tmp_path):
    folder = folders(kind)
    import_model(folder, name=kind)
    theirs, tokenizer = theirs_of(folder)
    text = TEXT[:150]
    (tmp_path / "t.txt").write_text(text)
    (record,) = records(capsys, "perplexity", tmp_path / "t.txt", "-m", kind)
    start = theirs.config.bos_token_id
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert len(ids) < 128
    with torch.no_grad():
        log_probs = theirs(torch.tensor([[start, *ids]])).logits[0].log_softmax(-1)
    nats = -sum(log_probs[at, token].item() for at, token in enumerate(ids))
    assert record["tokens"] == len(ids)
    assert record["protocol"].startswith("one stream after BOS; huggingface tokens")
    assert record["nll_nats"] == pytest.approx(nats, rel=1e-5)
    bits = nats / np.log(2) / len(text.encode())
    assert record["bits_per_byte"] == pytest.approx(bits, rel=1e-5)
    by_token = records(capsys, "perplexity", tmp_path / "t.txt", "-m", kind, "--per-token")
    assert [x["logprob"] for x in by_token] == pytest.approx(
        [log_probs[at, token].item() for at, token in enumerate(ids)], abs=1e-4
    )
    lines = records(capsys, "perplexity", tmp_path / "t.txt", "-m", kind, "--per-line")
    assert [x["text"] + "\n" for x in lines[:-1]] == text.splitlines(keepends=True)[:-1]
    stop = theirs.config.eos_token_id
    ids = tokenizer(lines[0]["text"], add_special_tokens=False).input_ids
    with torch.no_grad():
        log_probs = theirs(torch.tensor([[start, *ids]])).logits[0].log_softmax(-1)
    nats = -sum(log_probs[at, token].item() for at, token in enumerate([*ids, stop]))
    assert lines[0]["nll_nats"] == pytest.approx(nats, rel=1e-5)


@pytest.mark.fast_for("gpt2", "llama", "qwen3", "sliding", "yarn")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_exported_and_imported_again_has_equal_logits(kind, folders, tmp_path):
    import_model(folders(kind), name="first")
    out = tmp_path / "out"
    assert run(["export", "first", "--format", "hf", "--out", str(out), "--quiet"]) == 0
    first, (theirs, tokenizer) = load("first", "cpu"), theirs_of(out)
    _, original = theirs_of(folders(kind))
    assert_same_logits(theirs, first.model)
    for prompt in PROMPTS:
        assert tokenizer(prompt).input_ids == original(prompt).input_ids
    again = load(import_model(out, name="second").name, "cpu")
    ids = torch.arange(100)[None] % first.model.vocab_size
    with torch.no_grad():
        assert torch.equal(again.model(ids)[0], first.model(ids)[0])
    assert again.framing == first.framing


CHAT = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"


@pytest.mark.parametrize("in_a_file", [False, True])
def test_what_only_transformers_uses_comes_back(in_a_file, folders, tmp_path):
    folder = shutil.copytree(folders("gpt2"), tmp_path / "m")
    change(folder / "tokenizer_config.json", model_max_length=77)
    if in_a_file:
        (folder / "chat_template.jinja").write_text(CHAT)
    else:
        change(folder / "tokenizer_config.json", chat_template=CHAT)
    import_model(folder, name="first")
    assert run(["export", "first", "--format", "gguf", "--out", f"{tmp_path}/g", "--quiet"]) == 0
    import_model(tmp_path / "g", name="second")
    said = [{"role": "user", "content": "the cat"}]
    for name, longest in (("first", 77), ("second", int(1e30))):
        out = tmp_path / f"{name}-out"
        assert run(["export", name, "--format", "hf", "--out", str(out), "--quiet"]) == 0
        theirs = transformers.AutoTokenizer.from_pretrained(out)
        assert theirs.apply_chat_template(said, tokenize=False) == "<user> the cat\n"
        assert theirs.model_max_length == longest


OWN = {
    "qwen3": (),
    "llama": ("qk_norm=false", "bias=true", "num_kv_heads=2"),
    "qkv": ("qk_norm=false", "qkv_bias=true"),
    "gpt2": (
        "positions=learned",
        "norm=layernorm",
        "activation=gelu",
        "qk_norm=false",
        "bias=true",
    ),
}


@pytest.mark.fast_for("qwen3-char", "qwen3-unigram", "llama-byte", "gpt2-char", "qwen3-bpe")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "tokenizer"),
    [
        *((family, tokenizer) for family in OWN for tokenizer in ("char", "byte")),
        ("qkv", "word"),
        ("qwen3", "bpe"),
        ("qwen3", "unigram"),
    ],
)
def test_a_model_trained_here_goes_to_transformers(family, tokenizer, tmp_path, capsys):
    (tmp_path / "t.txt").write_text(TEXT * 4)
    sizes = ("hidden_size=32", "num_layers=2", "num_heads=4", "steps=3")
    flags = [word for pair in (*sizes, *OWN[family]) for word in ("--set", pair)]
    flags += ["--vocab-size", "320"] if tokenizer in ("bpe", "unigram") else []
    command = ["train", str(tmp_path / "t.txt"), "--model", "transformer", "--name", "own"]
    assert run([*command, "--tokenizer", tokenizer, "--seq-len", "128", *flags, "--quiet"]) == 0
    out = tmp_path / "out"
    assert run(["export", "own", "--format", "hf", "--out", str(out), "--quiet"]) == 0
    # In transformers, models of type qwen2 have Qwen's tokenizer whatever the folder says.
    model_type = {"qkv": "llama"}.get(family, family)
    assert json.loads((out / "config.json").read_text())["model_type"] == model_type
    theirs, library = theirs_of(out)
    own = load("own", "cpu")
    assert_same_logits(theirs, own.model)
    for prompt in (TEXT[:37], "the cat\n\nand"):
        assert library(prompt).input_ids == list(read_prompt(own, 0, prompt).tokens)
        asked = library(prompt, return_tensors="pt")
        found = theirs.generate(**asked, do_sample=False, max_new_tokens=TOKENS, pad_token_id=0)
        written = ("sample", prompt, "-m", "own", "--greedy", "--max-tokens", TOKENS)
        (record,) = records(capsys, *written)
        ids = found[0][asked.input_ids.shape[1] :].tolist()
        assert own.tokenizer.decode(ids) == record["text"]
        if "\ufffd" not in record["text"]:  # they show bytes that are no character in other ways
            assert library.decode(ids) == record["text"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_each_of_several_end_tokens_ends_a_text(kind, folders, tmp_path, capsys):
    import_model(folders(kind), name="first")
    theirs, tokenizer = theirs_of(folders(kind))
    asked = tokenizer(PROMPTS[0], return_tensors="pt")
    long = {"do_sample": False, "max_new_tokens": TOKENS, "pad_token_id": 0}
    length = asked.input_ids.shape[1]
    free = theirs.generate(**asked, **long, eos_token_id=None)[0, length:].tolist()
    ends = [theirs.config.eos_token_id, free[4], free[9]]
    folder = tmp_path / "several"
    shutil.copytree(folders(kind), folder)
    change(folder / "generation_config.json", eos_token_id=ends)
    assert run(["import", str(folder), "--name", "several", "--quiet"]) == 0
    loaded = load("several", "cpu")
    assert set(loaded.framing.stops) == set(ends) and loaded.framing.stop == ends[0]
    beams = {**long, "num_beams": 5, "early_stopping": "never", "length_penalty": 1.0}
    common = ("-m", "several", "--max-tokens", TOKENS)
    for options, command in (
        (long, ("sample", PROMPTS[0], "--greedy")),
        (beams, ("beam-search", PROMPTS[0], "--beams", 5, "--length-norm", "avg")),
    ):
        found = theirs.generate(**asked, **options, eos_token_id=ends)[0, length:].tolist()
        (record,) = records(capsys, *command, *common)
        written = [i for i in found if i not in (0, *ends)]
        assert record["text"] == tokenizer.decode(written, skip_special_tokens=True)
        assert record["tokens"] == len(written) + (record["finish_reason"] == "eos")
        if command[0] == "sample":
            assert record["finish_reason"] == "eos" and record["tokens"] <= 5
    flags = ("--greedy", "--min-tokens", 8)
    (record,) = records(capsys, "sample", PROMPTS[0], *flags, *common)
    assert record["tokens"] >= 8
    out = tmp_path / "out"
    assert run(["export", "several", "--format", "hf", "--out", str(out), "--quiet"]) == 0
    again, _ = theirs_of(out)
    assert again.generation_config.eos_token_id == list(loaded.framing.stops)
    assert load(import_model(out, name="again").name, "cpu").framing == loaded.framing


@pytest.mark.slow
def test_a_sharded_checkpoint_in_bf16_is_one_model(tmp_path, folders):
    whole = import_model(folders("gpt2"), name="whole")
    folder = checkpoint("gpt2", tmp_path / "shards", max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert import_model(folder, name="shards").digest == whole.digest
    half = transformers.AutoModelForCausalLM.from_pretrained(folders("llama")).bfloat16()
    half.save_pretrained(tmp_path / "half")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "half" / name).write_bytes((folders("llama") / name).read_bytes())
    import_model(tmp_path / "half", name="half")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "half", dtype="float32")
    assert_same_logits(theirs.eval(), load("half", "cpu").model)


@pytest.mark.slow
def test_other_commands_take_it(folders, capsys, tmp_path):
    import_model(folders("gpt2"), name="g")
    import_model(folders("llama"), name="l")
    (tmp_path / "t.txt").write_text(TEXT)
    rows = records(capsys, "compare", "g", "l", "--data", tmp_path / "t.txt")
    assert len(rows) >= 2
    assert run(["train", "--resume", "g", "--steps", "2"]) == 2
    assert "train DATA --init-from g" in capsys.readouterr().err
    flags = ("--steps", "2", "--batch-size", "2", "--seq-len", "16", "--quiet")
    command = ["train", str(tmp_path / "t.txt"), "--init-from", "g", "--name", "tuned", *flags]
    assert run(command) == 0
    tuned, origin = load("tuned", "cpu"), load("g", "cpu")
    assert tuned.framing == origin.framing
    (pieces,) = records(capsys, "tokenize", "-m", "tuned", tmp_path / "t.txt")[:1]
    assert "".join(pieces["pieces"]) == TEXT.split("\n")[0] + "\n"
    assert run(["sample", "the", "-m", "g:0.5+tuned:0.5", "--max-tokens", "5", "--quiet"]) == 0
    assert run(["beam-search", "the cat", "-m", "g", "--max-tokens", "4", "--explain"]) == 0


@pytest.mark.slow
def test_an_imported_model_is_trained_on_windows_as_long_as_its_own(folders, tmp_path, monkeypatch):
    import_model(folders("llama"), name="l")
    (tmp_path / "t.txt").write_text(TEXT * 40)
    events = []

    def window(**settings):
        events.clear()
        train([tmp_path / "t.txt"], init_from="l", batch_size=2, report=events.append, **settings)
        return store.find("latest").config["training"]["seq_len"]

    assert window(steps=1) == 128
    assert any("windows of 128 tokens, all that it can read" in str(e) for e in events)
    assert window(steps=1, seq_len=20) == 20
    with pytest.raises(UsageError, match="at most the window of l, 128"):
        window(steps=1, seq_len=129)
    with monkeypatch.context() as patch:
        patch.setattr("seqgen.training.choosing.memory", lambda: 1_300_000)
        assert window(steps=1) == 64
    assert any("more may not fit in memory" in str(e) for e in events)
    monkeypatch.setattr("seqgen.training.choosing.SpeedTrial.speed", 100.0)
    assert window(minutes=0.02) == 64  # 120 tokens in the time
    assert any("the budget is too short for more" in str(e) for e in events)


# ---- tokenizers ----


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_texts_come_back_whatever_the_pieces(make):
    library = make()
    tokenizer = HuggingFaceTokenizer(library.to_str().encode())
    for text in (*PROMPTS, TEXT, "\U0001f642 a\n\n\nb", ""):
        ids = tokenizer.encode(text)
        assert ids.tolist() == library.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids.tolist()) == library.decode(ids.tolist()) == text
        decoder = tokenizer.decoder()
        assert "".join(map(decoder.push, ids.tolist())) + decoder.flush() == text
        ends = tokenizer.byte_ends(text)
        assert ends.size == ids.size and (np.diff(ends) >= 0).all()
        assert ends.size == 0 or ends[-1] == len(text.encode())
        for cut in range(0, len(ids), 3):
            after = tokenizer.decoder(ids[:cut].tolist())
            whole = tokenizer.decode(ids[:cut].tolist())
            rest = "".join(map(after.push, ids[cut:].tolist())) + after.flush()
            assert "\ufffd" in whole or whole + rest == text


@pytest.mark.parametrize("pattern", [None, QWEN])
def test_a_long_text_is_cut_where_no_token_crosses(pattern):
    library = byte_level(pattern=pattern)
    tokenizer = HuggingFaceTokenizer(library.to_str().encode())
    words = [
        "a",
        "the",
        "dog's",
        "12",
        "\u00e9",
        "x!",
        "log\n\n",
        "  b",
        "\t",
        "e\u0301 a",
        "'s",
        "\n",
    ]
    draw = np.random.default_rng(2)
    for _ in range(30):
        text = " ".join(words[i] for i in draw.integers(len(words), size=60))
        cut = [text[at : at + 7] for at in range(0, len(text), 7)]
        pieces = list(blocks(cut, 10))
        assert "".join(pieces) == text and len(pieces) > 2
        ids = [token for piece in pieces for token in tokenizer.encode(piece).tolist()]
        assert ids == library.encode(text, add_special_tokens=False).ids
    known = tokenizer.blocks(iter(["a b " * (1 << 19), "c"]))
    assert len(list(known)) > 1
    other = HuggingFaceTokenizer(metaspace().to_str().encode())
    assert len(list(other.blocks(iter(["a b " * (1 << 19), "c"])))) == 1


def test_a_tokenizer_is_stored_as_it_is(tmp_path):
    from seqgen.text.tokenizers import load_tokenizer, tokenizer_from_facts

    tokenizer = HuggingFaceTokenizer(byte_level().to_str().encode(), vocab_size=320)
    tokenizer.save(tmp_path)
    for again in (
        load_tokenizer(tmp_path),
        tokenizer_from_facts({"kind": tokenizer.kind, **tokenizer.facts()}),
    ):
        assert again.fingerprint == tokenizer.fingerprint
        assert again.vocab_size == 320
        assert again.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    assert not tokenizer.line_safe and tokenizer.lossless and tokenizer.complete
    raw = tokenizer.text_bytes(tokenizer.encode(TEXT))
    assert raw.decode() == TEXT
    assert len(tokenizer.token_bytes) == 320
    alone = [tokenizer.decode([i]) for i in range(320)]
    whole = [text.encode() for text in alone if "\ufffd" not in text]
    assert whole == [
        raw for raw, text in zip(tokenizer.token_bytes, alone, strict=True) if "\ufffd" not in text
    ]
    assert {bytes([byte]) for byte in range(256)} <= {*tokenizer.token_bytes}


def test_a_new_model_takes_a_tokenizer_json(folder, tmp_path, capsys):
    (tmp_path / "t.txt").write_text(TEXT)
    command = ["train", str(tmp_path / "t.txt"), "--model", "ngram", "--name", "n", "--quiet"]
    assert run([*command, "--tokenizer", str(folder / "tokenizer.json")]) == 0
    loaded = load("n", "cpu")
    assert loaded.framing.start == 0 and loaded.tokenizer.kind == "huggingface"
    (record,) = records(capsys, "perplexity", tmp_path / "t.txt", "-m", "n")
    assert record["tokens"] == loaded.tokenizer.encode(TEXT).size
    assert record["characters"] == len(TEXT)
    (record,) = records(capsys, "sample", "the", "-m", "n", "--max-tokens", "9", "--seed", "1")
    assert record["tokens"] == 9


def test_a_sentencepiece_model_is_given_whole_texts(folder, capsys):
    made = sentencepiece_model(TEXT.split("\n"), 290)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(made)
    change(folder / "config.json", eos_token_id=2)
    assert run(["import", str(folder), "--quiet"]) == 0
    loaded = load("m", "cpu")
    library = sentencepiece.SentencePieceProcessor(model_proto=made)
    for prompt in PROMPTS:
        ids = library.encode(prompt)
        assert read_prompt(loaded, 0, prompt).tokens == (1, *ids)
        assert loaded.tokenizer.decode(ids) == library.decode(ids) == prompt
        ends = loaded.tokenizer.byte_ends(prompt).tolist()
        assert len(ends) == len(ids) and ends == sorted(ends) and ends[-1] == len(prompt.encode())
        decoder = loaded.tokenizer.decoder([1])
        assert "".join(map(decoder.push, ids)) + decoder.flush() == prompt
    assert (loaded.framing.start, loaded.framing.stop) == (1, 2)
    line = refusal(capsys, "export", "m", "--format", "hf", "--out", folder.parent / "out")
    assert "kind sentencepiece" in line


def test_without_the_library_a_line_says_what_to_install(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "pip install tokenizers" in refusal(capsys, "import", folder)


def test_the_command_line_loads_no_tokenizers():
    program = "import sys; from seqgen.cli import make_app; make_app()\n"
    program += "import seqgen.plugins.exchange, seqgen.text.tokenizers\n"
    program += "print({'torch', 'tokenizers', 'transformers', 'safetensors'} & sys.modules.keys())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "set()\n", found.stderr


# ---- bad folders, without transformers ----


@pytest.fixture
def folder(tmp_path):
    """Return a folder of a GPT-2 of one layer, written by hand."""
    from safetensors.numpy import save_file

    path = tmp_path / "m"
    path.mkdir()
    library = byte_level()
    (path / "tokenizer.json").write_text(library.to_str())
    (path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    size = library.get_vocab_size()
    table = {"model_type": "gpt2", "vocab_size": size, "n_positions": 8, "n_embd": 4}
    table |= {"n_layer": 1, "n_head": 2, "eos_token_id": 0}
    (path / "config.json").write_text(json.dumps(table))
    shapes = {"wte.weight": (size, 4), "wpe.weight": (8, 4), "h.0.attn.c_attn.weight": (4, 12)}
    shapes |= {"h.0.attn.c_attn.bias": (12,), "h.0.attn.c_proj.weight": (4, 4)}
    shapes |= {"h.0.attn.c_proj.bias": (4,), "h.0.mlp.c_fc.weight": (4, 16)}
    shapes |= {"h.0.mlp.c_fc.bias": (16,), "h.0.mlp.c_proj.weight": (16, 4)}
    shapes |= {"h.0.mlp.c_proj.bias": (4,)}
    shapes |= {
        f"{n}.{k}": (4,) for n in ("h.0.ln_1", "h.0.ln_2", "ln_f") for k in ("weight", "bias")
    }
    draw = np.random.default_rng(0)
    tensors = {name: draw.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors")
    return path


def change(path, **fields):
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, **fields}))


@pytest.mark.parametrize("file", ["huggingface.json", "sentencepiece.model"])
def test_what_is_imported_is_known_to_be_ours(file, folder, capsys, home):
    """It is replaced and removed, and a killed import blocks no name."""
    if file == "sentencepiece.model":
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.model").write_bytes(sentencepiece_model(TEXT.split("\n"), 290))
        change(folder / "config.json", eos_token_id=2)
    assert run(["import", str(folder), "--name", "m"]) == 0
    place = home / "models" / "m"
    assert (place / "tokenizer" / file).exists() and foreign_paths(place) == []
    killed = place.with_name(".m.0123abcd.new")
    shutil.copytree(place, killed)
    mark(killed, killed.name)
    assert run(["import", str(folder), "--name", "m", "--overwrite"]) == 0
    assert run(["models", "remove", "m", "--yes"]) == 0
    assert list((home / "models").iterdir()) == []


def test_a_folder_by_hand_is_imported(folder, capsys):
    assert run(["import", str(folder), "--quiet"]) == 0
    (record,) = records(capsys, "sample", "the", "-m", "m", "--max-tokens", "3", "--greedy")
    assert record["tokens"] <= 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"model_type": ["gpt2"]}, "model_type"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"activation_function": "mish"}, "activation_function is 'mish'"),
        ({"n_embd": 6}, "wte.weight is of shape"),
        ({"n_embd": -1}, "n_embd is -1"),
        ({"n_layer": 10**9}, "num_layers must be"),
        ({"n_head": 3}, "num_heads must divide"),
        ({"n_positions": 10**12}, "window must be"),
        ({"vocab_size": 20}, "wte.weight is of shape"),
        ({"eos_token_id": 10**6}, "eos_token_id"),
        ({"n_layer": 2}, "no tensor transformer.h.1"),
    ],
)
def test_what_is_not_understood_is_named(folder, capsys, fields, said):
    change(folder / "config.json", **fields)
    assert said in refusal(capsys, "import", folder, "--name", "x")


def test_a_window_that_slides_over_learned_positions_stays_here(tmp_path, capsys):
    """transformers' GPT-2 attends to everything."""
    (tmp_path / "t.txt").write_text(TEXT)
    shape = ("positions=learned", "norm=layernorm", "activation=gelu", "qk_norm=false", "bias=true")
    sizes = ("hidden_size=8", "num_layers=1", "num_heads=2", "steps=1", "sliding_window=8")
    flags = [word for setting in (*shape, *sizes) for word in ("--set", setting)]
    command = [
        "train",
        str(tmp_path / "t.txt"),
        "--model",
        "transformer",
        "--name",
        "own",
        "--quiet",
    ]
    assert run([*command, "--tokenizer", "char", "--seq-len", "32", *flags]) == 0
    line = refusal(capsys, "export", "own", "--format", "hf", "--out", tmp_path / "hf")
    assert "has positions=learned with sliding_window, which no format of Hugging Face" in line


@pytest.mark.parametrize("kinds", [[[], []], [{}, "full_attention"], ["full_attention"], "x", 3])
def test_layer_types_that_are_none(kinds, tmp_path, capsys):
    folder = checkpoint("qwen2-sliding", tmp_path / "m")
    change(folder / "config.json", layer_types=kinds)
    assert "layer_types is " in refusal(capsys, "import", folder, "--name", "x")


TEMPLATE = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
UNNAMED = [{"SpecialToken": {"id": "none", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("post_processor", {**TEMPLATE, "single": []}, "the text 'a' has no tokens"),
        ("post_processor", {**TEMPLATE, "single": UNNAMED}, "has no id of 'none'"),
        ("model", {"end_of_word_suffix": "x"}, "the text 'a' has no tokens"),
    ],
)
def test_a_tokenizer_that_leaves_texts_out(key, value, said, tmp_path, capsys):
    folder = checkpoint("qwen2-sliding", tmp_path / "m")
    path = folder / "tokenizer.json"
    table = json.loads(path.read_text())
    table[key] = {**(table[key] or {}), **value}
    path.write_text(json.dumps(table))
    assert said in refusal(capsys, "import", folder, "--name", "x")


def test_pickles_are_never_loaded(folder, capsys):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    line = refusal(capsys, "import", folder)
    assert "never loads" in line and "save_pretrained" in line
    line = refusal(capsys, "import", folder / "pytorch_model.bin")
    assert "never loads" in line and "save_pretrained" in line


def test_one_file_of_a_folder_is_not_a_model(folder, capsys):
    assert "give the folder" in refusal(capsys, "import", folder / "model.safetensors")


def test_ids_far_beyond_the_vocabulary_are_refused(folder, capsys, tmp_path):
    table = json.loads((folder / "tokenizer.json").read_text())
    table["model"]["vocab"]["x" * 9] = 3_000_000_000
    (folder / "tokenizer.json").write_text(json.dumps(table))
    (tmp_path / "t.txt").write_text(TEXT)
    command = ("train", tmp_path / "t.txt", "--model", "ngram", "--tokenizer", folder)
    assert "ids" in refusal(capsys, *command)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a\\b.safetensors", 3, None])
def test_the_index_names_files_beside_it(folder, capsys, name):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte.weight": name}}))
    assert "no file beside it" in refusal(capsys, "import", folder)


def test_tables_that_are_none(folder, capsys):
    original = (folder / "config.json").read_bytes()
    for content in (b"[" * 100_000, b"{", b"[]", b"\xff", b'{"model_type": null}'):
        (folder / "config.json").write_bytes(content)
        assert "config.json" in refusal(capsys, "import", folder)
    (folder / "config.json").write_bytes(original)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        kept = (folder / name).read_bytes()
        for content in (b"[" * 100_000, b"{", b"[]"):
            (folder / name).write_bytes(content)
            assert name in refusal(capsys, "import", folder)
        (folder / name).write_bytes(kept)


def test_files_of_tensors_that_lie(folder, capsys):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])

    def with_header(table):
        raw = json.dumps(table).encode()
        return len(raw).to_bytes(8, "little") + raw + whole[8 + size :]

    first = next(name for name in header if name != "__metadata__")
    places = header[first]["data_offsets"]
    lies = [
        whole[:5],
        whole[: len(whole) // 2],
        (1 << 62).to_bytes(8, "little") + whole[8:],
        with_header({**header, first: {**header[first], "data_offsets": [places[0], 1 << 50]}}),
        with_header({**header, first: {**header[first], "shape": [1 << 40, 1 << 40]}}),
        with_header({**header, first: {**header[first], "dtype": "I64"}}),
        (8 + 100_000).to_bytes(8, "little") + b'{"a":' * 20_000 + b" " * 8,
    ]
    for content in lies:
        path.write_bytes(content)
        assert "model.safetensors" in refusal(capsys, "import", folder)
    path.write_bytes(whole)
    assert run(["import", str(folder), "--quiet"]) == 0


def test_export_says_what_a_format_cannot_hold(tmp_path, capsys):
    (tmp_path / "t.txt").write_text(TEXT)
    text, out = str(tmp_path / "t.txt"), tmp_path / "out"
    assert run(["train", text, "--model", "ngram", "--name", "n", "--quiet"]) == 0
    line = refusal(capsys, "export", "n", "--format", "hf", "--out", out)
    assert "n is an n-gram model: use --format arpa" in line
    flags = ["--set", "steps=1", "--set", "hidden_size=8", "--set", "num_heads=2", "--quiet"]
    form = ["--set", "positions=sinusoidal", "--seq-len", "16"]
    assert run(["train", text, "--model", "transformer", "--name", "s", *flags, *form]) == 0
    line = refusal(capsys, "export", "s", "--format", "hf", "--out", out)
    assert "positions=sinusoidal" in line
    assert "--format must be one of arpa, gguf, hf, onnx" in refusal(
        capsys, "export", "s", "--format", "tf"
    )
    assert "--out FOLDER" in refusal(capsys, "export", "s", "--format", "hf")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    line = refusal(capsys, "export", "s", "--format", "hf", "--out", tmp_path / "other")
    assert "other files (mine.txt)" in line


EARLIER = {
    "hf": ["target_vocab.json", "source.spm", "generation_config.json"],
    "onnx": ["encoder.onnx", "source_tokenizer/tokenizer.json"],
}


def in_folder(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("file_format", EARLIER)
def test_an_export_replaces_an_earlier_one_whole(file_format, tmp_path, monkeypatch):
    """What a reader would take from the earlier model goes; a folder of other files stays."""
    written = {"config.json": b"1", "tokenizer/a.json": b"2"}
    monkeypatch.setattr(formats, "folder_exporter", lambda _: lambda _: iter(written.items()))
    monkeypatch.setattr(exchange, "_to_export", lambda *_: None)
    out = tmp_path / "out"
    for name in EARLIER[file_format]:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("earlier")
    exchange.export_model(None, file_format, out)
    assert in_folder(out) == set(written)
    other = tmp_path / "other"
    shutil.copytree(out, other)
    for name in (*EARLIER[file_format], "mine.txt"):
        (other / name).parent.mkdir(exist_ok=True)
        (other / name).write_text("mine")
    exchange.export_model(None, file_format, other)
    assert in_folder(other) == {*written, *EARLIER[file_format], "mine.txt"}
    assert (other / "mine.txt").read_text() == "mine"
    assert (other / "config.json").read_bytes() == b"1"


def test_an_earlier_export_is_deleted_without_following_links(tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    (out / "tokenizer").mkdir(parents=True)
    outside.mkdir()
    for path in (out / "step.onnx", out / "tokenizer/tokenizer.json", outside / "tokenizer.json"):
        path.write_bytes(b"x")
    (out / "source_tokenizer").symlink_to(outside)
    exchange._clear(out, formats.exported_formats()["onnx"].files, keep=())
    assert list(out.iterdir()) == [] and (outside / "tokenizer.json").exists()


# ---- 200 mutations ----


def mutated(content, draw):
    """Return a file changed somewhere: bytes, a cut, a number, a piece twice."""
    kind = draw.integers(5)
    at = int(draw.integers(max(1, len(content))))
    if kind == 0:
        return content[:at]
    if kind == 1:
        raw = bytearray(content)
        for place in draw.integers(len(raw), size=draw.integers(1, 9)):
            raw[place] = draw.integers(256)
        return bytes(raw)
    if kind == 2:
        return content[:at] + content[at // 2 : at] + content[at:]
    numbers = list(re.finditer(rb"-?\d+", content[:4000]))
    if not numbers:
        return content + b"\0"
    found = numbers[draw.integers(len(numbers))]
    news = [b"-1", b"0", b"1", b"1e400", b"99999999999999999999", b"1099511627776", b"null", b"{}"]
    new = news[draw.integers(len(news))] if kind == 3 else b"[" * 5000
    return content[: found.start()] + new + content[found.end() :]


@pytest.mark.slow
def test_mutations_are_refused_in_a_line_or_read(folder, capsys, home):
    index = {"weight_map": {}}
    names = [path.name for path in sorted(folder.iterdir())]
    header = (folder / "model.safetensors").read_bytes()
    table = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])
    index["weight_map"] = dict.fromkeys(table.keys() - {"__metadata__"}, "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    names.append("model.safetensors.index.json")
    whole = {name: (folder / name).read_bytes() for name in names}
    draw, refused = np.random.default_rng(30), 0
    for _ in range(200):
        name = names[draw.integers(len(names))]
        (folder / name).write_bytes(mutated(whole[name], draw))
        capsys.readouterr()
        code = run(["import", str(folder), "--name", "x", "--overwrite", "--quiet"])
        said = capsys.readouterr()
        assert code in (0, 1, 2) and said.out == ""
        assert "internal error" not in said.err and "panicked" not in said.err
        assert said.err.count("\n") == (code != 0)
        refused += code != 0
        (folder / name).write_bytes(whole[name])
    assert 100 < refused < 200
    assert {path.name for path in folder.iterdir()} == set(names)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # kB
