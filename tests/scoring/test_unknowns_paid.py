"""Bits per character and byte pay 8 bits for each byte of an unknown, in every command alike."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from architectures import CASES
from helpers_cli import needs, records
from places import STORED

from seqgen import store
from seqgen.cli import run
from seqgen.cli.shell.progress import Figures
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.scoring.compare import compare
from seqgen.scoring.perplexity import perplexity
from seqgen.scoring.surprisal import score_lines
from seqgen.settings import DataConfig
from seqgen.settings.scoring import Scoring
from seqgen.settings.training import TrainingConfig
from seqgen.store.loaded import LoadedModel
from seqgen.text.corpus import unknown_bytes
from seqgen.text.tokenizers import tokenizer_kind
from seqgen.text.tokenizers.word import WordTokenizer
from seqgen.training import with_ngram
from seqgen.training.events import Started, Validated

OLD = STORED / "models" / "gru-before-word"
# What version 0.1.0 did not know of its held-out text, a word each: 32 bytes of 120 characters.
OLD_UNKNOWNS = "and seat sand eat state sat".replace(" ", ""), " stand", " sea"
WORDS = "the cat sat on the mat\n"
TRAINING = WORDS * 40
# Unknown, each with the space before it: `naïve` with 7 bytes, `été` with 6 and `<unk>` with 6.
HELD_OUT = "the cat sat on naïve été\n" + WORDS + "the <unk> sat\n"


class Folder(store.StoredModel):
    """A model that is on no disk."""

    digest = "0" * 64
    config = {"architecture": "lstm"}  # noqa: RUF012
    record = {}  # noqa: RUF012
    size = 1


@pytest.fixture
def even():
    """A model that gives each of its 8 tokens the probability 1/8."""
    tokenizer = WordTokenizer(["\n", "a", " a", " b"])
    assert tokenizer.vocab_size == 8
    model = next(case for case in CASES if case.architecture == "lstm").build(vocab_size=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return LoadedModel(Folder(Path("m")), model, tokenizer, DataConfig(tokenizer="word"))


def test_a_case_by_hand(even):
    """Six tokens of 3 bits, and unknown: ` dog`, 4 bytes, and ` né`, 4 bytes too."""
    text = "a dog\na né\n"
    found = perplexity(even, [text])
    assert (found.tokens, found.oov, found.oov_bytes) == (6, 2, 8)
    assert (found.characters, found.bytes) == (11, 12)
    assert found.perplexity == pytest.approx(8)
    assert found.nats_per_token == pytest.approx(math.log(8))
    assert found.bits_per_token == pytest.approx(3)
    assert found.bits_per_char == pytest.approx((18 + 64) / 11)
    assert found.bits_per_byte == found.total_bits_per_byte == pytest.approx((18 + 64) / 12)
    assert found.oov_bits_per_byte == pytest.approx(64 / 12)
    (compared,) = compare([even], text)
    for key in ("bits_per_char", "bits_per_byte", "oov_bits_per_byte", "total_bits_per_byte"):
        assert getattr(compared, key) == pytest.approx(getattr(found, key))
    first, second = score_lines(even, [text], Scoring())
    assert first.totals.bits_per_char == pytest.approx((9 + 32) / 6)
    assert second.totals.bits_per_char == pytest.approx((9 + 32) / 5)


# White space by Unicode's property White_Space, with the separators that Python counts too.
WHITE_SPACE = [
    *(chr(code) for code in (*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680)),
    *(chr(code) for code in (*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)),
]


@pytest.mark.parametrize(
    "kind",
    [
        "whitespace",
        *(pytest.param(kind, marks=needs("labels")) for kind in ("uncased", "wordpiece")),
    ],
)
@pytest.mark.parametrize("space", sorted(set(WHITE_SPACE) - {"\n"}), ids=ascii)
def test_white_space_between_tokens_is_part_of_no_unknown(kind, space):
    if kind == "wordpiece":
        pytest.importorskip("tokenizers")
        if space in "\x1c\x1d\x1e\x1f":
            return  # Rust, which splits here, counts Unicode's property alone
    tokenizer = tokenizer_kind(kind)(["a"])
    text = f"a{space}né{3 * space}a{space}\n{space}x{space}y\n"
    assert unknown_bytes([text], tokenizer, "stream") == len("né".encode()) + 2
    assert unknown_bytes([text], tokenizer, "line") == len("né".encode()) + 2


def test_lines_add_up_to_the_text(even):
    text = "a dog\na né\n\n日本 a\nb"
    lines = list(score_lines(even, [text], Scoring()))
    whole = perplexity(even, [text], scoring=Scoring(documents="line"))
    # 12 tokens; ` dog`, ` né` and, at the start of their lines, `日本` and `b`.
    assert (whole.tokens, whole.oov_bytes) == (12, 4 + 4 + 6 + 1)
    total = sum(line.totals.bits for line in lines)
    assert total == pytest.approx(12 * 3 + 15 * 8)
    assert whole.bits_per_byte * whole.bytes == pytest.approx(total)


SMALL = ("--layers", 1, "--hidden-size", 8, "--steps", 2, "--seed", 1)
KINDS = {
    "words": (("--model", "ngram", "--order", 2, "--tokenizer", "word"), 19),
    "lines": (("--tokenizer", "word", "--documents", "line", *SMALL), 19),
    # Here spaces are part of no token, and the text `<unk>` is all that its token says.
    "whitespace": (("--tokenizer", "whitespace", *SMALL), 11),
    "labels": (("--labels", "--tokenizer", "word", *SMALL), 19),
    "pairs": (("--model", "seq2seq", "--tokenizer", "word", *SMALL), 19),
    "mixture": (("--with-ngram", 2, "--tokenizer", "word", *SMALL), 6),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_pays_for_the_same_bytes(kind, tmp_path, home, capsys, monkeypatch):
    monkeypatch.setattr(with_ngram, "WORTH_KEEPING", -math.inf)  # keep the n-gram part
    flags, unknown = KINDS[kind]
    for name, text in (("train", TRAINING), ("held-out", HELD_OUT)):
        if kind in ("labels", "pairs"):
            text = "".join(f"the\t{line}\n" for line in text.splitlines())
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = tmp_path / "train", "--val", tmp_path / "held-out"
    (trained,) = records(capsys, "train", *files, "--name", "m", "--quiet", *flags)
    # Of a network with an n-gram model, what its weights were not fitted on.
    text, name = HELD_OUT[store.find("m").scored_from :], "m"
    assert text == ("the <unk> sat\n" if kind == "mixture" else HELD_OUT)
    (scored,) = records(capsys, "perplexity", "-m", name)
    assert scored["oov_bytes"] == unknown
    size = len(text.encode())
    bits = scored["nll_nats"] / math.log(2) + 8 * unknown
    known = {
        "bits_per_char": bits / len(text),
        "bits_per_byte": bits / size,
        "total_bits_per_byte": bits / size,
        "oov_bits_per_byte": 8 * unknown / size,
    }
    assert {key: scored[key] for key in known} == pytest.approx(known)
    assert scored["perplexity"] == pytest.approx(math.exp(scored["nll_nats"] / scored["tokens"]))
    (compared,) = records(capsys, "compare", name)
    assert {key: compared[key] for key in known} == pytest.approx(known)
    (evaluated,) = records(capsys, "eval", "-m", name, "--perplexity")
    assert {key: evaluated["perplexity"][key] for key in known} == pytest.approx(known)
    of = {one["name"]: one for one in records(capsys, "models")}
    assert of[name]["val_bits_per_char"] == pytest.approx(known["bits_per_char"])
    assert of[name]["val_oov_bits_per_byte"] == pytest.approx(known["oov_bits_per_byte"])
    for key in ("bits_per_char", "bits_per_byte", "oov_bits_per_byte"):
        assert trained[f"val_{key}"] == pytest.approx(known[key])
    lines = records(capsys, "perplexity", "-m", name, "--per-line")
    assert sum(one["oov_bytes"] for one in lines) == unknown
    for one in lines:
        bits = one["nll_nats"] / math.log(2) + 8 * one["oov_bytes"]
        assert one["bits_per_char"] == pytest.approx(bits / one["characters"])


def test_lines_and_tables_print_what_the_records_have(tmp_path, home, capsys):
    (tmp_path / "train").write_text(TRAINING)
    (tmp_path / "held-out").write_text(HELD_OUT, encoding="utf-8")
    files = [str(tmp_path / "train"), "--val", str(tmp_path / "held-out")]
    assert run(["train", *files, "--model", "ngram", "--tokenizer", "word", "--name", "m"]) == 0
    result = store.find("m").record["result"]
    share = 100 * result["val_oov_bits_per_byte"] / result["val_bits_per_byte"]
    summary = f"{result['val_bits_per_char']:.4f} bits/char ({share:.0f}% of it for unknown tokens)"
    assert summary in capsys.readouterr().err
    assert run(["perplexity", "-m", "m", "--quiet"]) == 0
    heads, row = (re.split("  +", line) for line in capsys.readouterr().out.splitlines())
    shown = dict(zip(heads, row, strict=True))
    assert shown["bits/char"] == f"{result['val_bits_per_char']:.4f}"
    assert shown["unknowns"] == f"{result['val_oov_bits_per_byte']:.4f}"
    assert run(["perplexity", "-m", "m", "--per-line", "--quiet"]) == 0
    printed = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    lines = records(capsys, "perplexity", "-m", "m", "--per-line")
    assert printed == [f"{one['bits_per_char']:.4f}" for one in lines]
    # What knows all tokens has no such column.
    (tmp_path / "known").write_text(WORDS)
    assert run(["perplexity", str(tmp_path / "known"), "-m", "m", "--quiet"]) == 0
    assert "unknowns" not in capsys.readouterr().out


def test_validations_during_training_pay_too():
    """A loss of 2 ln 2 is 2 bits for each of 10 tokens; 3 unknown bytes are 24 more."""
    totals = ScoreTotals(tokens=10, characters=20, bytes=25, oov=1, oov_bytes=3)
    about = {"name": "m", "architecture": "lstm", "parameters": 1, "vocab_size": 9}
    about |= {"train_tokens": 9, "val_tokens": 10, "device": "cpu"}
    figures = Figures()
    figures.started = Started(training=TrainingConfig(), val_totals=totals, **about)
    said = figures.validation(Validated(step=1, seconds=1.0, val_loss=2 * math.log(2), best=True))
    assert said.endswith("2.200 bits/char")  # (20 + 24) / 20


def test_a_token_file_with_unknowns_has_lost_their_bytes(tmp_path, home, capsys):
    words, train, val = (str(tmp_path / name) for name in ("words", "train", "held-out"))
    Path(train).write_text(TRAINING)
    Path(val).write_text(HELD_OUT, encoding="utf-8")
    assert run(["tokenize", train, "--train", "word", "--vocab-size", "99", "--out", words]) == 0
    for file in (train, val):
        assert run(["tokenize", file, "--tokenizer", words, "--out", f"{file}.tok"]) == 0
    files = f"{train}.tok", "--val", f"{val}.tok"
    (found,) = records(capsys, "train", *files, *SMALL, "--name", "m", "--quiet")
    assert found["val_loss"] > 0
    keys = ("val_bits_per_char", "val_bits_per_byte", "val_oov_bits_per_byte")
    assert [found[key] for key in keys] == [None] * 3
    (scored,) = records(capsys, "perplexity", "-m", "m")
    assert (scored["bits_per_char"], scored["bits_per_byte"]) == (None, None)
    assert scored["perplexity"] == pytest.approx(math.exp(found["val_loss"]))


# ---- models of versions that left unknowns out ----


@pytest.fixture
def old(home):
    """A model of words that version 0.1.0 stored; its record has 1.2710 bits/char."""
    return store.StoredModel(Path(shutil.copytree(OLD, home / "models" / "old")))


def test_what_an_old_model_stored_is_computed_again(old, capsys):
    stored = old.record["result"]["val_bits_per_char"]
    assert stored == pytest.approx(1.27104, abs=1e-5)
    unknown = sum(len(word) for word in OLD_UNKNOWNS)
    (listed,) = records(capsys, "models")
    assert listed["val_bits_per_char"] == pytest.approx(stored + 8 * unknown / 120)
    assert listed["val_oov_bits_per_byte"] == pytest.approx(8 * unknown / 120)
    (scored,) = records(capsys, "perplexity", "-m", "old")
    assert scored["bits_per_char"] == pytest.approx(listed["val_bits_per_char"], rel=1e-5)
    (shown,) = records(capsys, "models", "show", "old")
    assert shown["training"]["result"]["val_bits_per_char"] == listed["val_bits_per_char"]
    assert run(["models", "show", "old"]) == 0
    assert f"{listed['val_bits_per_char']:.4f} bits/char, " in capsys.readouterr().out


def test_what_cannot_be_computed_again_is_marked(old, capsys):
    shutil.rmtree(old.path / "validation")
    (listed,) = records(capsys, "models")
    assert listed["val_bits_per_char"] == old.record["result"]["val_bits_per_char"]
    assert listed["val_oov_bits_per_byte"] is None
    assert run(["models"]) == 0
    said = capsys.readouterr()
    assert "> 1.271" in said.out and "> leaves unknown tokens out" in said.err
    assert run(["models", "show", "old"]) == 0
    assert "over 1.2710 bits/char (unknown tokens left out)" in capsys.readouterr().out


def test_an_old_model_without_unknowns_stays_as_it_is(old):
    record = old.record
    record["data"]["val_oov"] = 0
    (old.path / store.RECORD).write_text(json.dumps(record))
    shutil.rmtree(old.path / "validation")
    stored = record["result"]["val_bits_per_char"]
    found = store.result_of(old)
    assert (found["val_bits_per_char"], found["val_oov_bits_per_byte"]) == (stored, 0)


@pytest.mark.parametrize("kind", ["lines", "pairs", "mixture"])
def test_every_kind_of_old_model_is_computed_again(kind, tmp_path, home, capsys):
    """Take from a new record what an old one lacks: the same figures must come back."""
    flags, unknown = KINDS["lines" if kind == "mixture" else kind]
    for name, text in (("train", TRAINING), ("held-out", HELD_OUT)):
        if kind == "pairs":
            text = "".join(f"the\t{line}\n" for line in text.splitlines())
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = tmp_path / "train", "--val", tmp_path / "held-out"
    records(capsys, "train", *files, "--name", "m", "--quiet", *flags)
    if kind == "mixture":
        other = ("--tokenizer", "word", "--documents", "line", "--model", "ngram", "--order", 2)
        records(capsys, "train", *files, "--name", "n", "--quiet", *other)
        records(capsys, "mix", "m", "n", "--name", "both", "--weights", "0.5,0.5")
    stored = store.find("both" if kind == "mixture" else "m")
    record, size = stored.record, len(HELD_OUT.encode())
    new = dict(record["result"])
    assert new["val_oov_bits_per_byte"] == pytest.approx(8 * unknown / size)
    record["result"]["val_bits_per_char"] -= 8 * unknown / len(HELD_OUT)
    record["result"]["val_bits_per_byte"] -= 8 * unknown / size
    del record["result"]["val_oov_bits_per_byte"]
    (stored.path / store.RECORD).write_text(json.dumps(record))
    keys = ("val_bits_per_char", "val_bits_per_byte", "val_oov_bits_per_byte")
    found = store.result_of(stored)
    assert [found[key] for key in keys] == pytest.approx([new[key] for key in keys])
