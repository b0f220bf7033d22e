"""BERT on the command line: training, resuming, filling blanks, pseudo-perplexity, refusals."""

from __future__ import annotations

import collections
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from helpers_cli import needs, records, refusal, require_command
from places import CORPORA

from seqgen import store
from seqgen.cli import run
from seqgen.plugins.labels.fill import filled, line_breaks
from seqgen.plugins.labels.pseudo_perplexity import load_masked
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.word import WordTokenizer

SMALL = ("--layers", 1, "--hidden-size", 8, "--heads", 2, "--seq-len", 16, "--batch-size", 4)
SEEDED = ("--model", "bert", *SMALL, "--seed", 3, "--quiet", "--precision", "float32")
WORDS = ("--tokenizer", "word")
TEXT = "".join(f"the {('cat', 'dog', 'cow')[i % 3]} sat on mat {i % 5}.\n" for i in range(80))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def model(text, capsys):
    """A model that has hardly learned anything."""
    records(capsys, "train", text, *SEEDED, *WORDS, "--steps", 2, "--name", "m")
    return "m"


def train(capsys, *arguments):
    (record,) = records(capsys, "train", *arguments)
    return record


def weights(name):
    return (store.find(name).path / store.WEIGHTS).read_bytes()


def test_it_trains_and_says_what_it_is_for(text, capsys):
    given = (*SEEDED[:-3], *WORDS, "--steps", 40, "--name", "m")
    assert run(["train", str(text), *map(str, given)]) == 0
    said = capsys.readouterr().err
    assert 'try: seqgen fill "a [MASK] text" -m m' in said and "bits/char" not in said
    (shown,) = records(capsys, "models", "show", "m")
    assert shown["architecture"] == "bert"
    record = store.find("m").record["result"]
    assert record["val_bits_per_char"] is record["val_bits_per_byte"] is record["sample"] is None
    assert record["protocol"] == "15% of the tokens hidden; no perplexity"
    logged = [json.loads(x) for x in (store.find("m").path / store.METRICS).open()]
    losses = [record["val_loss"] for record in logged if "val_loss" in record]
    assert record["val_loss"] == pytest.approx(min(losses)) and losses[-1] < losses[0]


@pytest.mark.fast_for("settings0", rest="slow")
@pytest.mark.parametrize(
    "settings",
    [
        ("--documents", "line", "--set", "mask=0.4"),
        ("--set", "next_sentence=true", "--set", "accumulate=2"),
    ],
)
def test_stopping_and_resuming_changes_nothing(text, settings, capsys):
    given = (text, *SEEDED, *WORDS, "--dropout", 0.3, *settings, "--steps", 8)
    whole = train(capsys, *given, "--name", "whole")
    train(capsys, *given, "--stop-after", 3, "--name", "part")
    resumed = train(capsys, "--resume", "part", "--quiet")
    assert resumed["val_loss"] == whole["val_loss"] and resumed["steps"] == 8
    assert weights("whole") == weights("part")


def test_blanks_are_filled_from_both_sides(model, capsys, stdin):
    lines = ["the [MASK] sat on mat 1.", "the [MASK] sat [MASK] mat"]
    found = records(capsys, "fill", *lines, "-m", model, "--top", 4)
    keys = ["index", "text", "tokens", "probabilities", "filled", "unknown", "model"]
    assert [list(record) for record in found] == [keys] * 2
    assert [record["text"] for record in found] == lines
    assert [len(record["tokens"]) for record in found] == [1, 2]
    loaded = load_masked(model)
    symbols, tokenizer = loaded.model.config.symbols, loaded.tokenizer
    the, rest = tokenizer.encode("the").tolist(), tokenizer.encode(" sat on mat 1.").tolist()
    row = torch.tensor([[symbols.cls, *the, symbols.mask, *rest, symbols.sep]])
    with torch.no_grad():
        logits, _ = loaded.model(row, [row.shape[1]], torch.tensor([[2]]))
    words = logits[0, 0].softmax(-1)[: tokenizer.vocab_size]
    words[[*tokenizer.special_ids, tokenizer.newline_id]] = 0
    expected = collections.Counter()  # "the" and " the" are one word
    for token, probability in enumerate(words.tolist()):
        expected[tokenizer.decode([token]).strip(" ")] += probability
    best, probabilities = zip(*expected.most_common(4), strict=True)
    assert found[0]["tokens"][0] == list(best)
    np.testing.assert_allclose(found[0]["probabilities"][0], probabilities, rtol=1e-5)
    space = "" if best[0] == "." else " "
    assert found[0]["filled"] == f"the{space}{best[0]} sat on mat 1."
    stdin("\n".join(lines).encode())
    assert run(["fill", "-m", model]) == 0
    written = capsys.readouterr().out.split("\n")
    assert written == [record["filled"] for record in found] + [""]
    stdin("\r\n".join(lines).encode() + b"\r\n")
    crlf = records(capsys, "fill", "-m", model, "--top", 4)
    assert [{**record, "index": 0} for record in crlf] == [{**r, "index": 0} for r in found]
    assert run(["fill", lines[1], "-m", model, "--top", "3"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [len(row) for row in rows] == [2] * 6
    assert float(rows[0][0]) == pytest.approx(found[1]["probabilities"][0][0], abs=1e-4)


@needs("patterns")
def test_blanks_are_filled_with_what_matches_a_pattern(model, capsys):
    text = "the [MASK] sat on [MASK]"
    (every,) = records(capsys, "fill", text, "-m", model, "--top", 1000)
    for pattern in ("[a-z]{3}", "(?i)M.*|.*t"):
        (found,) = records(capsys, "fill", text, "-m", model, "--top", 5, "--pattern", pattern)
        for blank in (0, 1):
            pairs = zip(every["tokens"][blank], every["probabilities"][blank], strict=True)
            matching = [pair for pair in pairs if re.fullmatch(pattern, pair[0])][:5]
            assert found["tokens"][blank] == [token for token, _ in matching] != []
            np.testing.assert_allclose(found["probabilities"][blank], [p for _, p in matching])
    for pattern, told in (("q+", "no token of the model matches"), ("(a", "missing )")):
        refused = refusal(capsys, "fill", text, "-m", model, "--pattern", pattern)
        assert "--pattern: " in refused and told in refused


def test_a_word_is_listed_once(tmp_path, capsys):
    """Also one that begins lines, which is another token there than within them."""
    path = tmp_path / "starts.txt"
    path.write_text("cat and dog and cat\ndog and cat and dog\n" * 30)
    records(capsys, "train", path, *SEEDED, *WORDS, "--steps", 2, "--name", "s")
    tokenizer = load_masked("s").tokenizer
    spelled = [tokenizer.decode([i]).strip(" ") for i in range(tokenizer.vocab_size)]
    assert spelled.count("cat") == spelled.count("dog") == 2
    (found,) = records(capsys, "fill", "cat and [MASK]", "-m", "s", "--top", 50)
    tokens = found["tokens"][0]
    assert {"cat", "dog", "and"} <= set(tokens) and len(set(tokens)) == len(tokens)
    assert found["filled"] == f"cat and {tokens[0]}"


def test_what_fill_refuses(model, text, capsys, stdin):
    assert refusal(capsys, "fill", "no blank", "-m", model).startswith(
        "seqgen: text 1 has no [MASK]: put one"
    )
    assert "give a text with [MASK] in it" in refusal(capsys, "fill", "-m", model)
    assert "text 1 has 19 tokens, and m reads at most 16" in refusal(
        capsys, "fill", "[MASK]" + " the cat" * 9, "-m", model
    )
    assert run(["fill", "the zork [MASK]", "-m", model]) == 0
    assert "1 token of the text unknown to the model" in capsys.readouterr().err
    stdin(b"a [MASK]\nnone\n")
    assert run(["fill", "-m", model, "--quiet"]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert "standard input, line 2 has no [MASK]" in said.err
    train(capsys, text, "--model", "ngram", "--order", 2, "--name", "n", "--quiet")
    assert "n is not a masked model: give one of seqgen train TEXT --model bert" in refusal(
        capsys, "fill", "a [MASK]", "-m", "n"
    )


def test_spaces_are_part_of_what_is_told(tmp_path, text, capsys):
    """A word has the space before it, a character has none."""
    train(capsys, text, *SEEDED, "--tokenizer", "char", "--steps", 1, "--name", "c")
    (found,) = records(capsys, "fill", "the c[MASK]t", "-m", "c")
    assert found["filled"] == f"the c{found['tokens'][0][0]}t"
    train(capsys, text, *SEEDED, "--tokenizer", "wordpiece", "--steps", 1, "--name", "p")
    (found,) = records(capsys, "fill", "the [MASK] sat", "-m", "p", "--top", 50)
    tokens = found["tokens"][0]
    first = tokens[0]
    joined = f"the{first[2:]}" if first.startswith("##") else f"the {first}"
    assert found["filled"] == f"{joined} sat"
    assert not {"<pad>", "<bos>", "<eos>", "<unk>"} & set(tokens)


def test_what_is_filled_in_is_joined_as_words_are():
    """A word keeps the space before its blank if it has none, and has none at the beginning."""
    word = WordTokenizer.train(["so the cat.\ncat the so\n"])
    ids = {piece: word.vocabulary.index(piece) for piece in ("cat", " cat", ".", " the")}

    def told(text, *pieces):
        return filled(word, text, [ids[piece] for piece in pieces])

    assert told("the [MASK] is", "cat") == told("the [MASK] is", " cat") == "the cat is"
    assert told("[MASK] is", " the") == "the is" and told("[MASK] is", "cat") == "cat is"
    assert told("the cat [MASK]", ".") == "the cat."
    assert told("[MASK] [MASK][MASK]", " the", "cat", ".") == "the cat."
    assert told("a\t[MASK]", " cat") == "a\tcat"
    characters = CharTokenizer.train(["a b\r\n"])
    space = characters.encode(" ").tolist()
    assert filled(characters, "[MASK]b [MASK]", space * 2) == " b  "
    assert set(line_breaks(characters)) == set(characters.encode("\r\n").tolist())
    assert line_breaks(word) == [word.newline_id]


def test_pseudo_perplexity_has_its_own_keys(model, text, capsys, stdin):
    (found,) = records(capsys, "perplexity", text, "-m", model)
    language_model = {"nll_nats", "perplexity", "bits_per_char", "bits_per_byte", "bits_per_token"}
    assert not language_model & found.keys()
    per_token = found["pseudo_nll_nats"] / found["tokens"]
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(per_token))
    assert found["characters"] == len(TEXT) and found["signature"].startswith("pseudo-perplexity|")
    assert run(["perplexity", str(text), "-m", model]) == 0
    shown = capsys.readouterr()
    assert "pseudo-perplexity" in shown.out and " perplexity" not in shown.out
    assert "no perplexity" in shown.err
    (held_out,) = records(capsys, "perplexity", "-m", model)
    assert held_out["file"] == "validation" and held_out["tokens"] < found["tokens"]
    stdin(TEXT.encode())
    lines = records(capsys, "perplexity", "-m", model, "--per-line", "--quiet")
    assert [line["line"] for line in lines] == list(range(80))
    (whole,) = records(capsys, "perplexity", text, "-m", model, "--documents", "line")
    total = sum(line["pseudo_nll_nats"] for line in lines)
    assert whole["pseudo_nll_nats"] == pytest.approx(total, rel=1e-6)
    assert whole["tokens"] == sum(line["tokens"] for line in lines)


def test_it_stands_beside_no_perplexity(model, text, capsys):
    train(capsys, text, "--model", "ngram", "--order", 2, "--name", "n", "--quiet")
    line = refusal(capsys, "perplexity", text, "-m", model, "-m", "n")
    assert "m and n are models of different kinds; measure each by itself" in line
    assert "--stride has no meaning for masked models" in refusal(
        capsys, "perplexity", text, "-m", model, "--stride", 3
    )
    empty = text.with_name("empty.txt")
    empty.write_text("")
    for more in ((), ("--per-line",)):
        assert "empty" in refusal(capsys, "perplexity", empty, "-m", model, *more, "--quiet")


@pytest.mark.parametrize(
    "command",
    [
        ("sample",),
        ("beam-search", "a"),
        ("eval", "FILE"),
        ("compare", "m", "m"),
        ("export", "m"),
        ("diagnose", "FILE"),
        ("inspect", "FILE"),
        ("perplexity", "FILE", "-m", "m+copy"),
    ],
)
def test_commands_that_need_a_language_model_refuse_it(model, text, command, capsys):
    require_command(command[0])
    arguments = [text if word == "FILE" else word for word in command]
    given = () if {"m", "m+copy"} & set(command) else ("-m", model)
    shutil.copytree(store.find(model).path, store.find(model).path.with_name("copy"))
    assert "m is a masked model, no language model: use seqgen fill" in refusal(
        capsys, *arguments, *given
    )


def test_bad_settings(text, capsys):
    given = ("train", text, *SEEDED, *WORDS, "--steps", 1)
    assert "mask must be" in refusal(capsys, *given, "--set", "mask=0")
    assert "leave out --documents line" in refusal(
        capsys, *given, "--set", "next_sentence=true", "--documents", "line"
    )
    assert "--regime scheduled is for language models; bert is none" in refusal(
        capsys, *given, "--regime", "scheduled"
    )
    assert "direction=backward has no meaning" in refusal(capsys, *given, "--direction", "backward")


@needs("vectors")
def test_vectors_of_words_and_of_texts(model, tmp_path, capsys, stdin):
    (first, *_) = records(capsys, "vectors", "-m", model, "--neighbours", "cat")
    assert first["word"] == "cat"
    stdin(b"the cat\n\n")
    found = records(capsys, "vectors", "-m", model, "--file", "-")
    loaded = load_masked(model)
    cls, sep, _ = loaded.model.config.symbols
    ids = loaded.tokenizer.encode("the cat").tolist()
    for record, row, places in zip(
        found, ([cls, *ids, sep], [cls, sep]), (slice(1, -1), slice(0, 1)), strict=True
    ):
        with torch.no_grad():
            features = loaded.model.features(torch.tensor([row]), [len(row)])[0, places]
        np.testing.assert_allclose(record["vector"], features.mean(0), rtol=1e-5, atol=1e-6)
    long = tmp_path / "long.txt"
    long.write_text("the cat " * 9)
    given = ("vectors", "-m", model, "--file", long)
    assert "only --pool mean" in refusal(capsys, *given, "--pool", "last")
    assert "and m reads at most 16" in refusal(capsys, *given)


def test_fine_tuning_into_a_classifier(text, tmp_path, capsys):
    train(capsys, text, *SEEDED, *WORDS, "--steps", 3, "--name", "m")
    labelled = tmp_path / "labelled.tsv"
    labelled.write_text("".join(f"{line}\t{line[4:7]}\n" for line in TEXT.splitlines()))
    given = ("--task", "classify", "--steps", 60, "--lr", 0.02, "--quiet", "--name", "c")
    record = train(capsys, labelled, "--init-from", "m", "--seed", 3, *given)
    assert record["architecture"] == "bert-classifier" and record["val_accuracy"] == 1
    assert record["parameters"] < store.find("m").record["parameters"]  # no softmax over words
    more = train(
        capsys, text, "--init-from", "m", "--steps", 1, "--set", "mask=0.5", "--name", "n", "-q"
    )
    assert more["architecture"] == "bert" and load_masked("n").model.config.mask == 0.5
    assert "--hidden-size is fixed by --init-from" in refusal(
        capsys, "train", text, "--init-from", "m", "--hidden-size", 16, "--steps", 1
    )


@pytest.mark.long
def test_blanks_of_a_known_corpus(capsys):
    """Capitals and countries of the made corpus are told by what stands on both sides."""
    given = ("--model", "bert", *WORDS, "--layers", 2, "--hidden-size", 64, "--heads", 2)
    given += ("--seq-len", 32, "--steps", 800, "--seed", 1, "--quiet")
    record = train(capsys, CORPORA / "words.txt", *given, "--name", "m")
    assert record["val_loss"] < 1.2 < math.log(200)
