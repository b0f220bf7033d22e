"""Encoder-decoders of Hugging Face: what we read and write gives what transformers gives."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers_cli import records, refusal
from hf_models import GERMAN, SOURCES, TEXT, marian_tokenizer, pair_checkpoint

from seqgen.cli import run
from seqgen.generation.prompts import read_prompt
from seqgen.plugins.exchange.exchange import import_model
from seqgen.store.loading import load
from seqgen.store.ownership import foreign_paths
from seqgen.text.tokenizers import load_tokenizer, tokenizer_from_facts

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

KINDS = ["marian", "marian-separate", "bart", "bart-forced", "pegasus", "mbart"]
TOKENS = 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return what makes a checkpoint of a kind, once."""
    made = {}

    def find(kind):
        if kind not in made:
            made[kind] = pair_checkpoint(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return find


def theirs_of(folder):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).float().eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def assert_same_logits(theirs, tokenizer, loaded, tokens=40):
    """Compare sources of different lengths side by side: a whole text, and its last tokens."""
    torch.manual_seed(1)
    model, framing = loaded.model, loaded.framing
    first = [] if model.config.decoder_start is None else [model.config.decoder_start]
    ids = torch.randint(0, model.vocab_size, (len(SOURCES), tokens))
    ids[:, 0] = framing.start
    read = torch.cat([torch.tensor([first] * len(ids), dtype=torch.int64), ids], 1)
    asked = tokenizer(list(SOURCES), return_tensors="pt", padding=True)
    wanted = theirs(**asked, decoder_input_ids=read).logits[:, len(first) :]
    sources = loaded.conditioning.encode(SOURCES)
    memory = model.remember(sources.rows(range(len(SOURCES))))
    assert (model(ids, memory)[0] - wanted).abs().max() < 1e-4
    logits, state = model(ids[:, :30], model.start(memory))
    assert (logits - wanted[:, :30]).abs().max() < 1e-4
    for place in range(30, tokens):
        logits, state = model.step(ids[:, place].tolist(), state)
        assert np.abs(logits - wanted[:, place].numpy()).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_imported_does_what_transformers_does(kind, folders, capsys):
    folder = folders(kind)
    assert run(["import", str(folder), "--name", kind, "--quiet"]) == 0
    theirs, tokenizer = theirs_of(folder)
    loaded = load(kind, "cpu")
    assert_same_logits(theirs, tokenizer, loaded)
    for source in (*SOURCES, ">>fr<< the cat", "a </s> b", "x\u2581y  z "):
        prompt = read_prompt(loaded, 0, source)
        assert list(prompt.source_tokens) == tokenizer(source).input_ids
        assert prompt.source_tokens[prompt.content] == tuple(
            loaded.source_tokenizer.encode(source).tolist()
        )
    # Without repeats, which are most of what a random model writes.
    greedy = {"do_sample": False, "max_new_tokens": TOKENS, "no_repeat_ngram_size": 2}
    beams = {**greedy, "num_beams": 5, "early_stopping": "never", "length_penalty": 1.0}
    start = {}
    if kind == "bart-forced":
        # transformers counts the forced token as one of the text; here it is part of the start.
        start = {"decoder_input_ids": torch.tensor([[2, 0]]), "forced_bos_token_id": None}
    found = 0
    for source in SOURCES:
        asked = tokenizer(source, return_tensors="pt")
        common = ("-m", kind, "--max-tokens", TOKENS, "--no-repeat-ngram", 2)
        for options, command in (
            (greedy, ("sample", source, "--greedy")),
            (beams, ("beam-search", source, "--beams", 5, "--length-norm", "avg")),
        ):
            ids = theirs.generate(**asked, **options, **start)[0]
            (record,) = records(capsys, *command, *common)
            text = tokenizer.decode(ids, skip_special_tokens=True)
            assert record["text"].strip() == text.strip()
            prefix = 2 if kind == "bart-forced" else 1
            assert record["tokens"] == len(ids) - prefix
            found += len(set(ids.tolist())) > 6
        if kind == "bart-forced":
            ids = theirs.generate(**asked, **greedy, forced_bos_token_id=0)[0, :-1]
            again = theirs.generate(**asked, **greedy, **start)[0]
            assert again.tolist()[: len(ids)] == ids.tolist()
    assert found > len(SOURCES)


@pytest.mark.fast_for("marian", "bart", "mbart")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_is_that_of_a_loop_in_transformers(kind, folders, capsys, tmp_path):
    import_model(folders(kind), name=kind)
    theirs, tokenizer = theirs_of(folders(kind))
    targets = [line.lstrip() for line in GERMAN.split("\n")[:2]]
    pairs = list(zip(SOURCES[:2], targets, strict=True))
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    (record,) = records(capsys, "perplexity", tmp_path / "p.tsv", "-m", kind)
    nats = count = 0
    for source, target in pairs:
        labels = tokenizer(text_target=target).input_ids
        start = [theirs.config.decoder_start_token_id]
        if not kind.startswith("marian"):
            labels = labels[1:]  # without <s>, which is no part of the text
            start += [0] if kind == "bart-forced" else []
        read = torch.tensor([[*start, *labels[:-1]]])
        with torch.no_grad():
            logits = theirs(**tokenizer(source, return_tensors="pt"), decoder_input_ids=read).logits
        log_probs = logits[0, len(start) - 1 :].log_softmax(-1)
        nats -= sum(log_probs[at, token].item() for at, token in enumerate(labels))
        count += len(labels)
    assert record["tokens"] == count
    assert record["nll_nats"] == pytest.approx(nats, rel=1e-5)


@pytest.mark.fast_for("marian-separate", "pegasus", "mbart")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_exported_and_imported_again_has_equal_logits(kind, folders, tmp_path):
    import_model(folders(kind), name="first")
    out = tmp_path / "out"
    assert run(["export", "first", "--format", "hf", "--out", str(out), "--quiet"]) == 0
    first, (theirs, tokenizer) = load("first", "cpu"), theirs_of(out)
    _, original = theirs_of(folders(kind))
    assert type(theirs).__name__ == type(theirs_of(folders(kind))[0]).__name__
    assert_same_logits(theirs, tokenizer, first)
    for source in SOURCES:
        assert tokenizer(source).input_ids == original(source).input_ids
    again = load(import_model(out, name="second").name, "cpu")
    assert again.framing == first.framing
    ids = torch.arange(3, 33)[None]
    with torch.no_grad():
        logits = [
            one.model(ids, one.model.remember(one.conditioning.encode(SOURCES[:1]).rows([0])))[0]
            for one in (first, again)
        ]
    assert torch.equal(*logits)


FORM = "positions=sinusoidal norm=layernorm norm_position=post activation=relu qk_norm=false"
FORM += " bias=true scale_embedding=true hidden_size=32 num_layers=2 encoder_layers=1 num_heads=4"
OF_2017 = FORM.split()
OWN = {
    "joint": ("--tokenizer", "char"),
    "subwords": ("--tokenizer", "bpe", "--vocab-size", "320"),
    "two": ("--tokenizer", "bpe", "--vocab-size", "320", "--source-tokenizer", "unigram"),
    "bart": ("--tokenizer", "byte"),
    "pegasus": ("--tokenizer", "unigram", "--vocab-size", "320"),
    "mbart": ("--tokenizer", "char"),
}


@pytest.mark.fast_for("joint", "two", "bart", "mbart")
@pytest.mark.slow
@pytest.mark.parametrize("kind", OWN)
def test_a_model_trained_here_goes_to_transformers(kind, tmp_path, capsys):
    lines = zip(TEXT.split("\n"), GERMAN.split("\n") * 2, strict=False)
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines) * 4)
    settings = [*OF_2017, "steps=3"]
    if kind in ("pegasus", "mbart"):
        settings += ["norm_position=pre"]
    if kind in ("bart", "mbart"):
        settings += ["positions=learned", "embedding_norm=true", "output_bias=true"]
    flags = [word for pair in settings for word in ("--set", pair)]
    longest = ("--max-source-len", "99", "--max-target-len", "99")
    command = ["train", str(tmp_path / "p.tsv"), "--model", "seq2seq-transformer", *OWN[kind]]
    seed = ("--seed", "1")  # with others, bytes may be written that are not text
    assert run([*command, *longest, *seed, "--name", "own", *flags, "--quiet"]) == 0
    out = tmp_path / "out"
    assert run(["export", "own", "--format", "hf", "--out", str(out), "--quiet"]) == 0
    family = kind if kind in ("bart", "pegasus", "mbart") else "marian"
    assert json.loads((out / "config.json").read_text())["model_type"] == family
    theirs, tokenizer = theirs_of(out)
    own = load("own", "cpu")
    for source in SOURCES[:2]:
        ids = list(read_prompt(own, 0, source).source_tokens)
        assert tokenizer(source).input_ids == ids
        asked = tokenizer(source, return_tensors="pt")
        found = theirs.generate(**asked, do_sample=False, max_new_tokens=TOKENS)[0]
        (record,) = records(
            capsys, "sample", source, "-m", "own", "--greedy", "--max-tokens", TOKENS
        )
        around = {own.tokenizer.pad_id, own.framing.start, own.framing.stop}
        assert (
            own.tokenizer.decode([i for i in found.tolist() if i not in around]) == record["text"]
        )
        if "\ufffd" not in record["text"]:  # they show bytes that are no character in other ways
            text = tokenizer.decode(found, skip_special_tokens=True)
            assert record["text"].strip() == text.strip()
    again = load(import_model(out, name="again").name, "cpu")
    with torch.no_grad():
        logits = [
            one.model(torch.arange(9)[None], one.model.encode(torch.tensor([ids]), [len(ids)]))[0]
            for one in (own, again)
        ]
    assert torch.equal(*logits)


@pytest.mark.slow
def test_other_commands_take_it(folders, capsys, tmp_path):
    import_model(folders("bart-forced"), name="b")
    import_model(folders("marian"), name="m")
    lines = zip(TEXT.split("\n"), GERMAN.split("\n") * 2, strict=False)
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    for name in ("b", "m"):
        flags = ("--steps", "2", "--batch-size", "2", "--name", f"{name}2", "--quiet")
        assert run(["train", str(tmp_path / "p.tsv"), "--init-from", name, *flags]) == 0
        tuned, origin = load(f"{name}2", "cpu"), load(name, "cpu")
        assert tuned.framing == origin.framing
        fields = ("decoder_start", "source_vocab_size", "share_embeddings", "embedding_norm")
        for field in fields:
            assert getattr(tuned.model.config, field) == getattr(origin.model.config, field)
        assert tuned.source_tokenizer.fingerprint == origin.source_tokenizer.fingerprint
        assert foreign_paths(tuned.stored.path) == foreign_paths(origin.stored.path) == []
        (record,) = records(
            capsys, "sample", "the cat", "-m", f"{name}2", "--align", "--max-tokens", 5, "--greedy"
        )
        places = [int(pair.split("-")[0]) for pair in record["alignment"].split()]
        content = origin.source_tokenizer.encode("the cat").size
        assert places and max(places) < content


# ---- tokenizers ----


def test_a_marian_tokenizer_is_stored_as_it_is(tmp_path):
    from seqgen.plugins.exchange.hf_pairs import _marian

    theirs = marian_tokenizer(tmp_path, separate=False)
    size = len(theirs.encoder)
    for side, text in zip(_marian(tmp_path, size, size), (TEXT, GERMAN), strict=True):
        line = text.split("\n")[0]
        side.save(tmp_path / "stored")
        assert side.vocab_size == size and not side.complete
        for again in (
            load_tokenizer(tmp_path / "stored"),
            tokenizer_from_facts({"kind": side.kind, **side.facts()}),
        ):
            assert again.fingerprint == side.fingerprint
            ids = again.encode(line).tolist()
            known = theirs(line).input_ids if text is TEXT else theirs(text_target=line).input_ids
            assert again.as_source(ids) == tuple(known)
            ends = again.byte_ends(line)
            assert ends.size == len(ids) and ends[-1] == len(line.encode())
            decoder = again.decoder()
            written = "".join(map(decoder.push, ids)) + decoder.flush()
            assert written == again.decode(ids)
            if again.unk_id not in ids:
                assert written == theirs.decode(ids)


# ---- bad folders ----


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    """Return a folder of a tiny BART."""
    return pair_checkpoint("bart", tmp_path_factory.mktemp("bart"))


@pytest.fixture
def copied(bart, tmp_path):
    return shutil.copytree(bart, tmp_path / "m")


def change(path, **fields):
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, **fields}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"normalize_before": True}, "normalize_before is True"),
        ({"decoder_ffn_dim": 12}, "decoder_ffn_dim is 12"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "num_heads must divide"),
        ({"activation_function": "mish"}, "activation_function is 'mish'"),
        ({"d_model": 16}, "is of shape"),
        ({"encoder_layers": 10**9}, "encoder_layers must be"),
        ({"max_position_embeddings": 65}, "embed_positions.weight is of shape"),
        ({"decoder_start_token_id": 10**6}, "decoder_start_token_id is 1000000"),
        ({"forced_bos_token_id": "x"}, "forced_bos_token_id is 'x'"),
        ({"decoder_layers": 3}, "there is no tensor model.decoder.layers.2"),
        ({"decoder_layers": 1}, "does not understand the tensor 'model.decoder.layers.1"),
        ({"tie_word_embeddings": False}, "no tensor model.decoder.embed_tokens.weight"),
        ({"eos_token_id": 5}, "and seqgen ends every source"),
    ],
)
def test_what_is_not_understood_is_named(copied, capsys, fields, said):
    (copied / "generation_config.json").unlink()
    change(copied / "config.json", **fields)
    assert said in refusal(capsys, "import", copied, "--name", "x")


def test_shapes_that_no_folder_holds_are_refused(copied, capsys, tmp_path):
    (tmp_path / "p.tsv").write_text("a\tb\n" * 40)
    sizes = ("hidden_size=8", "num_layers=1", "num_heads=2", "steps=1")
    flags = [word for pair in sizes for word in ("--set", pair)]
    command = ["train", str(tmp_path / "p.tsv"), "--model", "seq2seq-transformer", *flags]
    assert run([*command, "--name", "own", "--quiet"]) == 0
    line = refusal(capsys, "export", "own", "--format", "hf", "--out", tmp_path / "out")
    assert (
        "own has positions=rope" in line
        and "pegasus-small" in line
        and not (tmp_path / "out").exists()
    )
    line = refusal(capsys, "export", "own", "--format", "gguf", "--out", "x")
    assert "own is not a decoder-only transformer" in line


def test_one_embedding_may_have_any_of_its_names(copied, bart, capsys):
    """Older files have the shared embedding under several names, or under another one alone."""
    from safetensors.torch import load_file, save_file

    new = import_model(bart, name="new")
    tensors = load_file(copied / "model.safetensors")
    shared = tensors.pop("model.shared.weight")
    names = ("lm_head.weight", "model.decoder.embed_tokens.weight")
    for count in (1, 2):
        save_file(
            {**tensors, **{name: shared.clone() for name in names[:count]}},
            copied / "model.safetensors",
        )
        assert import_model(copied, name=f"old{count}").digest == new.digest
    # Without the bias of zeros that some lack, nor the prefix that others leave out.
    del tensors["final_logits_bias"]
    plain = {name.removeprefix("model."): x for name, x in tensors.items()}
    save_file({**plain, "shared.weight": shared}, copied / "model.safetensors")
    assert not load(import_model(copied, name="plain").name, "cpu").model.config.output_bias
    save_file(tensors, copied / "model.safetensors")
    line = refusal(capsys, "import", copied, "--name", "x")
    assert "there is no tensor model.shared.weight" in line


def test_merges_without_a_tokenizer_json(copied, bart, capsys):
    """The files of older folders, vocab.json and merges.txt, give the same ids."""
    table = json.loads((copied / "tokenizer.json").read_text())
    (copied / "vocab.json").write_text(json.dumps(table["model"]["vocab"]))
    merges = ["#version: 0.2", *(" ".join(pair) for pair in table["model"]["merges"])]
    (copied / "merges.txt").write_text("\n".join(merges) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied / name).unlink()
    old = load(import_model(copied, name="old").name, "cpu")
    new = load(import_model(bart, name="new").name, "cpu")
    for source in SOURCES:
        prompts = [read_prompt(one, 0, source) for one in (old, new)]
        assert prompts[0].source_tokens == prompts[1].source_tokens
    assert old.framing == new.framing
    (copied / "vocab.json").write_text("[]")
    assert "vocab.json contains no table" in refusal(capsys, "import", copied, "--name", "x")
