"""Sizes, tables and numbers of strangers: refused in one line, before any memory is taken."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import struct
import zlib
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from helpers_cli import needs
from places import STORED

import seqgen
from seqgen import registry
from seqgen.cli import run
from seqgen.engines.memory_limit import SizeLimit, SizeLimitExceeded, build_for_training
from seqgen.errors import SeqgenError, first_line

MODELS = STORED / "models"


@pytest.fixture
def changed(tmp_path):
    """Return what copies a stored model, without its hashes, with another table."""

    def change(name: str, part: str, table: object) -> Path:
        path = Path(shutil.copytree(MODELS / name, tmp_path / "changed"))
        (path / "manifest.json").unlink()
        config = json.loads((path / "config.json").read_text())
        if isinstance(table, dict) and isinstance(config[part], dict):
            table = {**config[part], **table}
        config[part] = table
        (path / "config.json").write_text(json.dumps(config))
        return path

    return change


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("lstm-char", {"num_layers": 10**9}, "num_layers must be from 1 to 1,000"),
        ("lstm-char", {"num_layers": 100}, "tensors do not fit: .* more"),
        ("lstm-char", {"num_layers": 2}, "is missing or damaged: tensors do not fit"),
        ("lstm-char", {"vocab_size": 10**9}, "larger model"),
        ("lstm-char", {"hidden_size": 1 << 20}, "larger model"),
        (
            "lstm-char",
            {"hidden_size": 1e308},
            "hidden_size must be from 1 to",
        ),
        ("lstm-char", {"hidden_size": 9}, "size mismatch"),
        ("lstm-char", {"forget_bias": 1e308}, "forget_bias must be"),
        ("gru-char", {"hidden_size": 10**30}, "hidden_size must be"),
        ("ngram-char", {"vocab_size": 10**9}, "larger model"),
        ("ngram-char", {"order": 10**9}, "order must be"),
        pytest.param(
            "window-char", {"context_size": 1 << 20}, "larger model", marks=needs("window")
        ),
        ("transformer-char", {"window": 10**9}, "window must be"),
        ("transformer-gpt2", {"window": 1 << 18}, "larger model|size mismatch"),
        ("transformer-char", {"ffn_size": 1 << 22}, "larger model"),
        ("transformer-char", {"strange": 1}, "no setting 'strange'"),
    ],
)
def test_sizes_of_a_stranger_are_compared_with_the_weights(name, sizes, said, changed):
    path = changed(name, "model", sizes)
    with pytest.raises(SeqgenError, match=said) as caught:
        seqgen.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["training", "data"])
@pytest.mark.parametrize(
    "table", [None, [], "x", 3, {"strange": 1}, {"seq_len": "many", "val": []}, {"seed": 1e30}]
)
def test_tables_that_are_none(part, table, changed, capsys):
    path = changed("lstm-char", part, table)
    going_on = ["train", "--resume", str(path), "--data", str(STORED / "tiny.txt"), "--quiet"]
    assert run([*going_on, "--stop-after", "6"]) == 1
    said = capsys.readouterr().err
    assert "config.json" in said and "damaged" in said and said.count("\n") == 1
    if part == "data":
        with pytest.raises(SeqgenError, match="damaged"):
            seqgen.load(path)


def test_a_table_that_is_none_stops_showing_too(changed, capsys):
    path = changed("lstm-char", "training", "x")
    for command in (["models", "show", str(path)], ["sample", "-m", str(path)]):
        assert run(command) == 1
        assert "it has no table 'training'" in capsys.readouterr().err


def test_a_checkpoint_of_another_update_rule_is_refused(changed, capsys):
    path = changed("lstm-char", "training", {"optimizer": "adamw"})
    assert run(["train", "--resume", str(path), "--data", str(STORED / "tiny.txt")]) == 1
    said = capsys.readouterr().err
    assert "does not fit its model" in said and said.count("\n") == 1


def test_json_that_is_nested_too_deeply(changed, capsys):
    path = changed("lstm-char", "training", {})
    for part in ("config.json", "manifest.json", "tokenizer/tokenizer.json"):
        kept = (path / part).read_bytes() if (path / part).exists() else b""
        (path / part).write_text("[" * 100_000)
        assert run(["sample", "-m", str(path), "--max-tokens", "1"]) == 1
        said = capsys.readouterr().err
        assert "damaged" in said and "nested too deeply" in said and said.count("\n") == 1
        (path / part).write_bytes(kept)
        if not kept:
            (path / part).unlink()


@pytest.mark.parametrize(
    "flags",
    [
        ["--train", "bpe", "--vocab-size", "3000000000"],
        ["--train", "word", "--vocab-size", "9" * 400],
        ["--train", "char", "--min-count", "9" * 30],
    ],
)
def test_vocabularies_that_are_learned_have_limits(flags, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["tokenize", str(STORED / "tiny.txt"), *flags, "--out", str(out)]) == 2
    assert re.search("at most|from [0-9]+ to", capsys.readouterr().err) and not out.exists()


def test_a_home_whose_name_is_no_text(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SEQGEN_HOME", os.fsdecode(bytes(tmp_path) + b"/d\xff"))
    assert run(["train", str(STORED / "tiny.txt"), "--model", "ngram"]) == 1
    assert capsys.readouterr().err.startswith("seqgen: SEQGEN_HOME is not UTF-8; set it to")


def test_a_stored_run_without_a_budget_says_so(changed, capsys):
    path = changed("lstm-char", "training", {"steps": None})
    going_on = ["train", "--resume", str(path), "--data", str(STORED / "tiny.txt"), "--quiet"]
    assert run([*going_on, "--stop-after", "6"]) == 2
    assert "give --steps, --epochs or --minutes" in capsys.readouterr().err


def test_a_size_limit_counts_before_anything_is_made():
    with SizeLimit(100):
        torch.nn.Linear(9, 9)  # 90 numbers
        with pytest.raises(SizeLimitExceeded):
            torch.empty(1 << 50)
    with SizeLimit(1 << 20), pytest.raises(SizeLimitExceeded):
        torch.nn.Embedding(1 << 30, 1 << 20)
    torch.empty(101)


def test_a_model_larger_than_the_machine_is_refused(monkeypatch):
    monkeypatch.setattr("seqgen.engines.memory_limit.memory", lambda: 1 << 20)
    kind = registry.architecture("lstm")
    config, model_class = kind.load_config(), kind.load_model()
    assert build_for_training(model_class, config(vocab_size=9, hidden_size=16, num_layers=1))
    with pytest.raises(SeqgenError, match="out of memory: the model has more parameters"):
        build_for_training(model_class, config(vocab_size=9, hidden_size=256))


@pytest.mark.parametrize(
    "command",
    [
        ["sample", "--num-samples", "9" * 400],
        ["sample", "--best-of", "9" * 400],
        ["sample", "--seed", "9" * 30],
        ["sample", "--max-tokens", "9" * 30],
        ["sample", "--batch-size", "9" * 30],
        ["beam-search", "--beams", "9" * 400],
        ["beam-search", "--nbest", "9" * 400, "--exhaustive"],
        ["beam-search", "--diversity", "1e300"],
        ["train", "x.txt", "--set", "hidden_size=1e30"],
        ["train", "x.txt", "--vocab-size", "9" * 30],
        ["train", "x.txt", "--seed", "9" * 30],
        ["train", "x.txt", "--set", "lr=1e308"],
        ["train", "x.txt", "--model", "ngram", "--set", "prune=0,²"],
    ],
)
def test_options_have_upper_limits(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("some text\n" * 20)
    model = ["-m", str(MODELS / "lstm-char")] if command[0] != "train" else []
    assert run([*command, *model]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 300


@pytest.mark.parametrize("settings", [{"num_samples": 10**8}, {"num_samples": 9, "best_of": 3}])
def test_samples_are_a_stream(settings):
    """A hundred million begin at once, and are the same as a few."""
    model = seqgen.load(MODELS / "lstm-char")
    found = list(itertools.islice(model.sample(seed=1, max_tokens=5, **settings), 5))
    few = list(model.sample(seed=1, max_tokens=5, **{**settings, "num_samples": 5}))
    # Of other batches, so that figures differ in their last places.
    assert [(s.sample, s.text) for s in found] == [(s.sample, s.text) for s in few]


def test_a_hundred_million_samples_begin_on_the_command_line(monkeypatch, capsys):
    class EnoughError(Exception):
        pass

    lines = []

    def put(record):
        lines.append(record)
        if len(lines) == 3:
            raise EnoughError

    monkeypatch.setattr("seqgen.cli.shell.writing.put_record", put)
    monkeypatch.setenv("SEQGEN_TRACEBACK", "1")
    with pytest.raises(EnoughError):
        many = ["--num-samples", "100000000", "--max-tokens", "3", "--json"]
        run(["sample", "-m", str(MODELS / "lstm-char"), *many, "ten"])
    assert [record["sample"] for record in lines] == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("[enforce fail] not enough memory: x\nframe #0: c10::f"), "out of memory"),
        (RuntimeError("Storage size calculation overflowed with sizes=[1]"), "out of memory"),
        (MemoryError(), "out of memory"),
        (RuntimeError("expected a matrix\nframe #0: c10::f (0x1)"), "internal error"),
        (KeyError("x"), "internal error"),
    ],
)
def test_what_nothing_foresaw_is_one_line(error, said, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("seqgen.store.loading.load", fail)
    monkeypatch.setenv("SEQGEN_TRACEBACK", "0")
    assert run(["sample", "-m", "x"]) == 1
    shown = capsys.readouterr().err
    assert said in shown and "frame #" not in shown and shown.count("\n") == 1
    monkeypatch.setenv("SEQGEN_TRACEBACK", "1")
    with pytest.raises(type(error)):
        run(["sample", "-m", "x"])


def test_messages_are_one_line_whatever_a_name_is(capsys):
    assert run(["perplexity", "a\nb", "-m", str(MODELS / "lstm-char")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["sample", "-m", "x" * 10_000]) in (1, 2)
    assert len(capsys.readouterr().err) < 1200


def test_the_first_line_of_an_error_is_what_it_says():
    assert first_line(RuntimeError("Error(s) in loading:\n\tsize mismatch\n")) == "size mismatch"
    assert first_line(RuntimeError("bad\nframe #0")) == "bad"
    assert first_line(KeyError()) == "KeyError"


HEAD = struct.Struct("<16sQQ32s")


def token_file(path: Path, change) -> Path:
    """Write the stored token file with another table or other tokens, and sums that are right."""
    content = bytearray((STORED / "tiny.tok").read_bytes())
    magic, offset, length, _ = HEAD.unpack(content[: HEAD.size])
    table = json.loads(content[offset : offset + length])
    table = change(table, content) or table
    if change is token_past_the_vocabulary:
        place = table["sections"]["tokens"]
        place["crc32"] = zlib.crc32(content[HEAD.size : HEAD.size + place["count"]])
    raw = json.dumps(table).encode()
    head = HEAD.pack(magic, offset, len(raw), sha256(raw).digest())
    path.write_bytes(head + content[HEAD.size : offset] + raw)
    return path


def token_past_the_vocabulary(table, content):
    content[HEAD.size + 5] = 200


def setter(*at, value):
    def change(table, content):
        holder = table
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (token_past_the_vocabulary, "a token 200, and the vocabulary has"),
        (lambda table, content: [1], "its table is none"),
        (setter("sections", value=None), "damaged"),
        (setter("tokenizer", value=None), "damaged"),
        (setter("text", value=None), "not a table with a sha256"),
        (setter("text", "characters", value="many"), "characters is not a whole number"),
        (setter("text", "bytes", value=-1), "bytes is not a whole number"),
        (setter("oov", value=10**9), "oov is not a whole number"),
        (setter("documents", value="pages"), "documents are 'pages'"),
        (setter("documents", value="line"), "the documents' ends"),
        (setter("sections", "tokens", "count", value=0.5), "count is not a whole number"),
        (setter("sections", "tokens", "offset", value=-4), "offset is not a whole number"),
        (setter("sections", "tokens", value=2**63), "count is not a whole number"),
        (setter("sections", "tokens", "dtype", value="<f8"), "of type"),
    ],
)
def test_token_files_are_checked_for_what_they_hold(change, said, tmp_path, capsys):
    path = token_file(tmp_path / "x.tok", change)
    assert run(["train", str(path), "--model", "ngram"]) == 1
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1
    assert run(["perplexity", str(path), "-m", str(MODELS / "lstm-char")]) == 1
    assert said in capsys.readouterr().err


def test_an_untouched_token_file_is_taken(tmp_path, capsys):
    path = token_file(tmp_path / "x.tok", lambda table, content: None)
    assert run(["perplexity", str(path), "-m", str(MODELS / "lstm-char"), "--json"]) == 0
    assert '"tokens"' in capsys.readouterr().out


@pytest.mark.parametrize("number", ["-1e308", "1e308", "-1e400", "nan"])
def test_an_arpa_file_with_a_number_of_no_probability(number, tmp_path, capsys):
    path = tmp_path / "x.arpa"
    path.write_text(f"\\data\\\nngram 1=1\n\n\\1-grams:\n{number} a\n\n\\end\\\n")
    code = run(["import", str(path)])
    said = capsys.readouterr().err
    # Python reads -1e400 as the logarithm of 0.
    assert code == (0 if number == "-1e400" else 1), said
    assert said.count("\n") == 1 and "Warning" not in said


def test_an_arpa_file_that_promises_more_than_a_disk_holds(tmp_path, capsys):
    path = tmp_path / "x.arpa"
    path.write_text(f"\\data\\\nngram 1={'9' * 400}\n\n\\1-grams:\n-1 a\n\n\\end\\\n")
    assert run(["import", str(path)]) == 1
    assert "ngram 1=COUNT was expected" in capsys.readouterr().err
