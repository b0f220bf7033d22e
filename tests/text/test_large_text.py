"""Text as tokens on disk: trained on, scored, kept in a cache, gone on with."""

import gzip
import itertools
import json
import math
import random
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqgen import registry, store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.scoring.perplexity import perplexity
from seqgen.settings import DataConfig
from seqgen.store.loading import load
from seqgen.text import encoding
from seqgen.text.batches import SampledBatches, training_batches
from seqgen.text.corpus import GrowingArray, encode_corpus
from seqgen.text.encoding import Sampling
from seqgen.text.reading import Text, survey
from seqgen.text.token_writing import write_token_file
from seqgen.text.tokenfile import open_token_file
from seqgen.text.tokenizers import KINDS
from seqgen.training.datasets import text as preparing
from seqgen.training.datasets.dataset import DataFiles
from seqgen.training.datasets.text import TextDataset
from seqgen.training.events import EncodingProgress, Notice
from seqgen.training.resume import resume
from seqgen.training.train import train

TINY = {
    "hidden_size": 8,
    "num_layers": 1,
    "seq_len": 8,
    "batch_size": 4,
    "seed": 5,
    "precision": "float32",
    "steps": 6,
}
WORDS = ("so", "it", "goes", "on", "and", "ends", "naïve", "日本")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("large") / "text.txt"
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(0, 9))) for _ in range(300))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def prepare_data(paths, config):
    dataset = TextDataset.open(DataFiles.of(paths), config)
    return dataset.prepare((), lambda event: None)


def tokens_of(text, kind="char", documents="stream", size=None):
    path = text.parent / f"{kind}-{documents}-{size}.tok"
    tokenizer = KINDS[kind].train(Text((text,)).chunks(), size)
    write_token_file(path, Text((text,)).chunks(), tokenizer, documents)
    return path


def figures(result):
    """Not the training loss: which steps its mean is over depends on the clock."""
    return [result.steps, result.val_loss, result.val_bits_per_char, result.val_bits_per_byte]


def weights(name):
    return (store.find(name).path / store.WEIGHTS).read_bytes()


@pytest.mark.fast_for("rnn-line")
@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("architecture", ["rnn", "transformer"])
def test_a_token_file_trains_as_its_text_does(text, architecture, documents):
    """Characters are learnt from all of the text, so both ways have the same vocabulary."""
    given = {**TINY, "documents": documents}
    heads = {"num_heads": 2} if architecture == "transformer" else {}
    plain = train([text], architecture=architecture, name="plain", settings={**given, **heads})
    file = tokens_of(text, documents=documents)
    tokens = train([file], architecture=architecture, name="tokens", settings={**TINY, **heads})
    assert figures(tokens) == pytest.approx(figures(plain), rel=1e-12)
    assert weights("plain") == weights("tokens")
    stored = store.find("tokens")
    assert stored.config["data"]["documents"] == documents
    again = perplexity(load("tokens"), open_token_file(stored.validation_text))
    assert again.bits_per_byte == pytest.approx(plain.val_bits_per_byte, rel=1e-12)


@pytest.mark.fast_for("word", rest="slow")
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_token_file_is_scored_as_its_text_is(text, kind):
    size = 330 if kind == "bpe" else 9
    file = tokens_of(text, kind, size=size)
    train([file], architecture="rnn", name="m", settings={**TINY, "val": "none"})
    loaded = load("m")
    by_file = perplexity(loaded, open_token_file(file), file="x")
    by_text = perplexity(loaded, Text((text,)).chunks(), file="x")
    if by_text.oov:  # what was not known is not in the file
        lost = dict.fromkeys(("nats_per_word", "bits_per_word", "perplexity_per_word"))
        bits = ("bits_per_char", "bits_per_byte", "total_bits_per_byte", "oov_bits_per_byte")
        assert math.isnan(by_file.oov_bytes)
        assert {getattr(by_file, name) for name in bits} == {None}
        lost |= {"words": 0, "oov_bytes": 0, **dict.fromkeys(bits)}
        by_file, by_text = replace(by_file, **lost), replace(by_text, **lost)
    assert by_file == by_text
    assert (by_file.oov > 0) == (kind == "word")


def test_validation_of_the_command_line_scores_held_out_tokens(text, capfd):
    file = tokens_of(text)
    result = train([file], architecture="rnn", name="m", settings=TINY)
    capfd.readouterr()
    assert run(["perplexity", "-m", "m", "--precision", "float32", "--json", "--quiet"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["nll_nats"] / record["tokens"] == pytest.approx(result.val_loss, rel=1e-12)
    assert run(["perplexity", str(file), "-m", "m", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["file"] == str(file)


def test_other_tokenizers_are_refused(text, capfd):
    file, other = tokens_of(text), tokens_of(text, "bpe", size=330)
    train([file], architecture="rnn", name="m", settings={**TINY})
    capfd.readouterr()
    assert run(["perplexity", str(other), "-m", "m"]) == 1
    message = capfd.readouterr().err
    assert "has another tokenizer (bpe" in message and message.count("\n") == 1
    with pytest.raises(SeqgenError, match="another tokenizer"):
        resume("m", data=[other], settings={"steps": 9})
    with pytest.raises(SeqgenError, match="another tokenizer"):
        train([file], architecture="rnn", settings={**TINY, "val": str(other)})
    assert run(["perplexity", str(file), "-m", "m", "--documents", "line"]) == 1
    assert "--documents stream" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokenizer", "bpe"),
        ("vocab_size", 100),
        ("min_count", 2),
        ("newlines", "lf"),
        ("subword_sampling", 0.1),
        ("documents", "line"),
    ],
)
def test_what_a_token_file_fixes_cannot_be_set(text, name, value):
    with pytest.raises(UsageError, match=r"fixed by the token file|written with --documents"):
        train([tokens_of(text)], architecture="rnn", settings={**TINY, name: value})


def test_a_token_file_stands_alone(text):
    with pytest.raises(UsageError, match="token files alone"):
        train([tokens_of(text), text], settings=TINY)
    with pytest.raises(UsageError, match="is a token file, and the data is text"):
        train([text], settings={**TINY, "val": str(tokens_of(text))})


def test_a_file_of_held_out_text_beside_tokens(text, tmp_path):
    file = tokens_of(text)
    plain = tmp_path / "val.txt"
    plain.write_text("so it goes on\nand ends\n")
    tokenizer = open_token_file(file).tokenizer
    write_token_file(tmp_path / "val.tok", Text((plain,)).chunks(), tokenizer, "stream")
    results = [
        train([file], architecture="rnn", settings={**TINY, "val": str(tmp_path / name)})
        for name in ("val.txt", "val.tok")
    ]
    assert figures(results[0]) == figures(results[1])
    assert results[0].val_loss is not None


@pytest.mark.fast_for("0.2")
@pytest.mark.parametrize("val", ["0.2", "none", "file"])
def test_a_run_on_tokens_goes_on_bit_for_bit(text, tmp_path, val):
    file = tokens_of(text, "bpe", size=330)
    if val == "file":
        val = str(tmp_path / "val.txt")
        (tmp_path / "val.txt").write_text("so it goes\n")
    given = {"architecture": "rnn", "settings": {**TINY, "val": val}}
    whole = train([file], name="whole", **given)
    train([file], name="parts", stop_after=4, **given)
    (tmp_path / "val.txt").unlink(missing_ok=True)
    parts = resume("parts")
    assert figures(parts) == figures(whole)
    assert weights("whole") == weights("parts")


@pytest.mark.fast_for("bpe-lstm", rest="slow")
@pytest.mark.parametrize("architecture", ["rnn", "gru", "lstm", "transformer"])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_work_for_every_architecture(text, architecture, kind):
    assert architecture in registry.ARCHITECTURES
    heads = {"num_heads": 2} if architecture == "transformer" else {}
    given = {**TINY, **heads, "tokenizer": kind, "vocab_size": 330}
    result = train([text], architecture=architecture, name="m", settings=given)
    again = perplexity(load("m"), Text((store.find("m").validation_text,)).chunks())
    assert again.nll_nats / again.tokens == result.val_loss
    assert again.bits_per_byte == pytest.approx(result.val_bits_per_byte, rel=1e-12)
    assert (store.find("m").path / "tokenizer" / "tokenizer.model").exists()


def test_subwords_are_learnt_from_the_training_part(text, tmp_path):
    changed = tmp_path / "changed.txt"
    content = text.read_text(encoding="utf-8")
    cut = int(0.9 * len(content)) + 40
    rest = ("zyx " * len(content))[: len(content) - cut]
    changed.write_text(content[:cut] + rest, encoding="utf-8")
    models = []
    for path in (text, changed):
        config = DataConfig(tokenizer="bpe", vocab_size=330)
        prepared = prepare_data([path], config)
        models.append(prepared.tokenizer.facts())
        assert prepared.train.tokens.size > 0 and prepared.val.tokens.size > 0
    assert models[0] == models[1]


def test_sampled_segmentations_train_and_go_on_bit_for_bit(text):
    given = {
        **TINY,
        "tokenizer": "unigram",
        "vocab_size": 330,
        "subword_sampling": 0.2,
        "batch_size": 40,
        "seq_len": 64,
        "steps": 8,
    }
    whole = train([text], architecture="rnn", name="whole", settings=given)
    train([text], architecture="rnn", name="parts", settings=given, stop_after=5)
    assert figures(resume("parts")) == figures(whole)
    assert weights("whole") == weights("parts")
    plain = train([text], architecture="rnn", settings={**given, "subword_sampling": None})
    assert plain.val_loss != whole.val_loss
    with pytest.raises(UsageError, match="subword_sampling is for bpe and unigram, not for char"):
        train([text], settings={**TINY, "subword_sampling": 0.1})


@pytest.mark.parametrize(("documents", "carry"), [("stream", True), ("stream", False)])
def test_a_sampled_batch_follows_from_its_number(text, documents, carry):
    tokenizer = KINDS["bpe"].train(Text((text,)).chunks(), 330)

    def make():
        def cut(epoch):
            sampling = Sampling(0.3, 7, epoch)
            corpus = encode_corpus(Text((text,)).chunks(), tokenizer, documents, sampling)
            return training_batches(corpus, documents, carry, 4, 16, 7)

        return SampledBatches(cut)

    forward, steps = make(), 3 * make().steps_per_epoch
    batches = [forward.batch(step) for step in range(steps)]
    other = make()
    for step in random.Random(0).sample(range(steps), 8):
        batch = other.batch(step)
        assert np.array_equal(batch.tokens, batches[step].tokens)
        assert np.array_equal(batch.targets, batches[step].targets)
    per_epoch = forward.steps_per_epoch
    assert [b.fresh for b in batches[:: max(1, per_epoch)]] == [True] * 3
    assert not np.array_equal(batches[0].tokens, batches[per_epoch].tokens)


@pytest.fixture
def all_is_large(monkeypatch):
    monkeypatch.setattr(preparing, "LARGE", 1)
    monkeypatch.setattr(encoding, "BLOCK", 500)


def test_a_large_text_of_an_earlier_version_is_found_in_the_cache(
    tmp_path, all_is_large, monkeypatch
):
    """It joined the files of lines; a run of now, on the same files, has tokens of its own."""
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("\n".join(["one two", "three", "four five"] * 9))
    how = {"architecture": "rnn", "settings": {**TINY, "documents": "line"}}
    with monkeypatch.context() as earlier:
        earlier.setattr(preparing.TextDataset, "record_end", "")
        train(files, name="before", stop_after=3, **how)
    train(files, name="now", stop_after=3, **how)
    assert [store.find(name).record["data"]["lines"] for name in ("before", "now")] == [53, 54]
    monkeypatch.setattr(preparing.TextDataset, "survey", None)  # which would read the text
    assert resume("before").steps == resume("now").steps == 6


@pytest.mark.fast_for("char-line", rest="slow")
@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_a_large_text_trains_from_the_cache_as_a_small_one(
    text, all_is_large, monkeypatch, kind, documents
):
    given = {**TINY, "tokenizer": kind, "documents": documents}
    given |= {"vocab_size": 330} if kind == "bpe" else {}
    events = []
    first = train([text], architecture="rnn", name="a", settings=given, report=events.append)
    assert any(isinstance(e, EncodingProgress) for e in events)
    files = sorted(path.name[32:] for path in store.cached_files())
    assert files == [".json", ".tok", ".val.tok", ".val.txt"]
    stamps = [path.stat().st_mtime_ns for path in store.cached_files()]
    events.clear()
    second = train([text], architecture="rnn", name="b", settings=given, report=events.append)
    assert any(isinstance(e, Notice) and "in the cache as tokens" in e.text for e in events)
    assert stamps == [path.stat().st_mtime_ns for path in store.cached_files()]
    train([text], architecture="rnn", name="c", settings=given, stop_after=3)
    third = resume("c")
    monkeypatch.setattr(preparing, "LARGE", 1 << 30)
    small = train([text], architecture="rnn", name="d", settings=given)
    assert figures(first) == figures(second) == figures(third) == figures(small)
    assert weights("a") == weights("b") == weights("c") == weights("d")


def test_the_cache_is_not_used_for_another_text_or_way(text, all_is_large, tmp_path):
    path = tmp_path / "text.txt"
    shutil.copy(text, path)

    def prepared(**settings):
        return prepare_data([path], DataConfig(**settings))

    before = prepared()
    for way in ({"val": "0.3"}, {"split_seed": 1}, {"tokenizer": "byte"}, {"min_count": 5}):
        prepared(**way)
    assert len(store.cached_files()) == 5 * 4
    path.write_text("another text altogether\n" * 9)
    assert prepared().facts == survey(Text((path,)).chunks()) != before.facts
    assert "".join(prepared().split.train()).startswith("another")


@pytest.mark.fast_for("held", rest="slow")
@pytest.mark.parametrize("named", ["held", "held/*.txt"])
def test_the_cache_notices_a_changed_held_out_folder(
    text, all_is_large, tmp_path, monkeypatch, named
):
    monkeypatch.chdir(tmp_path)
    Path("held").mkdir()
    Path("held/a.txt").write_text("so it goes\n")

    def held_out():
        prepared = prepare_data([text], DataConfig(val=named))
        return "".join(prepared.split.val())

    assert held_out() == held_out() == "so it goes\n"
    Path("held/b.txt").write_text("and ends\n")
    assert held_out() == "so it goes\nand ends\n"
    Path("held/a.txt").write_text("it goes on\n")
    assert held_out() == "it goes on\nand ends\n"


def test_a_damaged_cache_is_made_anew(text, all_is_large):
    def prepared():
        return prepare_data([text], DataConfig())

    before = prepared().train.tokens.tolist()
    for path in store.cached_files():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        if not path.name.endswith(".txt"):
            assert prepared().train.tokens.tolist() == before
            assert path.read_bytes() == content


def test_models_cache_lists_and_clears(text, all_is_large, capfd):
    train([text], architecture="rnn", name="m", settings=TINY)
    kept = store.keep_text(iter([b"from standard input\n"]))
    capfd.readouterr()
    assert run(["models", "cache", "--json"]) == 0
    rows = list(map(json.loads, capfd.readouterr().out.splitlines()))
    measured = len(store.measurements())
    assert [row["kind"] for row in rows] == ["tokens"] * 4 + ["text"] + ["machine"] * measured
    assert measured > 0
    assert all(Path(row["path"]).stat().st_size == row["bytes"] for row in rows)
    assert run(["models", "cache"]) == 0
    assert str(kept) in capfd.readouterr().out
    assert run(["models", "cache", "--clear"]) == 0
    assert f"removed {4 + measured} files" in capfd.readouterr().err
    assert store.cached_files() == [kept] and not store.measurements()
    assert run(["models", "cache", "--clear"]) == 0
    assert figures(resume("m", settings={"steps": 8}))


def test_compressed_text_and_standard_input_train(text, tmp_path, monkeypatch):
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    results = [
        train([path], architecture="rnn", name=name, settings=TINY)
        for name, path in (("plain", text), ("packed", packed))
    ]
    with text.open("rb") as file:
        monkeypatch.setattr(
            sys,
            "stdin",
            type("In", (), {"buffer": file, "closed": False, "fileno": staticmethod(file.fileno)}),
        )
        flags = itertools.chain.from_iterable(
            ("--set", f"{name}={value}") for name, value in TINY.items()
        )
        assert run(["train", "-", "--model", "rnn", "--name", "piped", "--quiet", *flags]) == 0
    piped = store.find("piped").record["result"]
    assert figures(results[0]) == figures(results[1])
    assert piped["val_loss"] == results[0].val_loss


def test_a_tokenizer_that_is_there_already(text, tmp_path, capfd):
    KINDS["bpe"].train(Text((text,)).chunks(), 330).save(tmp_path / "bpe")
    model = tmp_path / "bpe" / "tokenizer.model"
    given = {"architecture": "rnn", "name": None}
    first = train([text], settings={**TINY, "tokenizer": str(tmp_path / "bpe")}, **given)
    second = train([text], settings={**TINY, "tokenizer": str(model)}, **given)
    third = train([text], settings={**TINY, "tokenizer": first.path}, **given)
    assert figures(first) == figures(second) == figures(third)
    shutil.rmtree(tmp_path / "bpe")
    assert perplexity(load(second.name), ["so it goes\n"]).tokens > 0
    capfd.readouterr()
    assert run(["models", "show", second.name, "--all"]) == 0
    shown = capfd.readouterr().out
    assert re.search(r"^tokenizer: lossless +true$", shown, re.M)
    assert re.search(r"^tokenizer: kind +bpe$", shown, re.M)
    assert run(["models", "list", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[0])["tokenizer"] == "bpe"
    with pytest.raises(UsageError, match="already has its vocabulary"):
        train([text], settings={**TINY, "tokenizer": first.path, "vocab_size": 99})
    with pytest.raises(UsageError, match="no tokenizer is called 'bpee'; did you mean 'bpe'"):
        train([text], settings={**TINY, "tokenizer": "bpee"})


def test_scoring_holds_ids_in_a_file_where_there_are_many(text, monkeypatch):
    train([text], architecture="rnn", name="m", settings=TINY)
    loaded = load("m")
    before = perplexity(loaded, Text((text,)).chunks())
    monkeypatch.setattr(GrowingArray, "SPILL", 100)
    monkeypatch.setattr(encoding, "BLOCK", 100)
    assert perplexity(loaded, Text((text,)).chunks()) == before
