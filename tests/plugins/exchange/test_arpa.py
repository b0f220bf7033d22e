"""ARPA files: written and read back, made by hand, from other tools, and broken."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers_cli import needs
from places import ROOT

from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.plugins.exchange import arpa
from seqgen.plugins.exchange.exchange import export_model, import_model
from seqgen.scoring.mixture_fitting import token_log_probs
from seqgen.store.loading import load
from seqgen.text.corpus import encode_corpus
from seqgen.training.train import train

LN10 = math.log(10)
TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 3
OTHER = "a cat on a mat\nthe zebra sat\n\nthe dog and the dog\n"
# As SRILM writes: tabs, a backoff only where there is one, no <unk>, other words in front.
BY_HAND = """some words that are no part of it

\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-99\t<s>\t-0.2
-0.9\t</s>
-0.5\ta\t-0.3
-0.6\tb\t-0.4
-0.7\tc

\\2-grams:
-0.1\t<s> a\t-0.05
-0.2\ta b
-0.25\tb a\t-0.15
-0.3\tb </s>

\\3-grams:
-0.01\t<s> a b
-0.02\ta b </s>

\\end\\
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))


def counted(tmp_path, name, **settings):
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {"val": "none", "order": 4, **settings}
    train([tmp_path / "text.txt"], architecture="ngram", name=name, settings=settings)
    return load(name)


def scores(loaded, text=OTHER):
    corpus = encode_corpus([text], loaded.tokenizer, loaded.data.documents)
    return token_log_probs(loaded.model, corpus)


def imported(tmp_path, content, name="hand", **more):
    path = tmp_path / f"{name}.arpa"
    path.write_text(content)
    import_model(path, name=name, overwrite=True, **more)
    return load(name)


def log10_of(loaded, *words):
    """Return log10 p(last word | the others), the text beginning with the first of them."""
    names = {"<s>": loaded.tokenizer.bos_id, "</s>": loaded.tokenizer.eos_id}
    ids = [names.get(w, int(loaded.tokenizer.encode(w)[0]) if w not in names else 0) for w in words]
    state = loaded.model.start(1)
    scored, _ = loaded.model.score(torch.tensor([ids[:-1]]), torch.tensor([ids[1:]]), state)
    return scored.log_probs[0, -1].item() / LN10


@pytest.mark.parametrize(
    "smoothing",
    [
        "modified-kneser-ney",
        "maximum-likelihood",
        *(
            pytest.param(name, marks=needs("smoothings"))
            for name in ("stupid-backoff", "witten-bell", "katz")
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_written_and_read_back_it_is_the_same(tmp_path, smoothing, packed):
    lines = {"tokenizer": "whitespace", "documents": "line", "smoothing": smoothing}
    loaded = counted(tmp_path, "one", **lines)
    out = tmp_path / ("one.arpa.gz" if packed else "one.arpa")
    export_model(loaded, "arpa", out)
    assert (out.read_bytes()[:2] == b"\x1f\x8b") == packed
    import_model(out, name="two")
    again = load("two")
    assert again.data.documents == "line"
    wanted = scores(loaded)
    np.testing.assert_allclose(scores(again), wanted, rtol=0, atol=1e-6)
    # Byte for byte from there on.
    export_model(again, "arpa", tmp_path / "three.arpa")
    text = gzip.decompress(out.read_bytes()) if packed else out.read_bytes()
    assert (tmp_path / "three.arpa").read_bytes() == text


@pytest.mark.parametrize("tokenizer", ["char", "byte", "word", "whitespace"])
@pytest.mark.parametrize("documents", ["stream", "line"])
def test_every_tokenizer_is_written_and_read_like_itself(tmp_path, tokenizer, documents):
    loaded = counted(tmp_path, "one", tokenizer=tokenizer, documents=documents)
    export_model(loaded, "arpa", tmp_path / "one.arpa")
    import_model(tmp_path / "one.arpa", name="two", like="one")
    text = "a cat on a mat\nthe dog sat\n"
    np.testing.assert_allclose(scores(load("two"), text), scores(loaded, text), rtol=0, atol=1e-6)
    assert load("two").data.documents == documents
    if tokenizer == "whitespace":  # then it needs no model to be like
        import_model(tmp_path / "one.arpa", name="three")
        assert load("three").data.documents == documents
        np.testing.assert_allclose(
            scores(load("three"), text), scores(loaded, text), rtol=0, atol=1e-6
        )


def test_what_is_written_is_what_kenlm_reads(tmp_path):
    loaded = counted(tmp_path, "one", tokenizer="whitespace", documents="line", order=2)
    export_model(loaded, "arpa", tmp_path / "one.arpa")
    lines = (tmp_path / "one.arpa").read_text().split("\n")
    assert lines[0] == "\\data\\" and lines[-2:] == ["\\end\\", ""]
    types = len(set(TEXT.split()))
    assert lines[1] == f"ngram 1={types + 3}"  # and <unk>, <s>, </s>
    bigrams = {pair for line in TEXT.split("\n")[:-1] for pair in pairs(line)}
    assert lines[2] == f"ngram 2={len(bigrams)}"
    at = lines.index("\\1-grams:")
    singles = [line.split("\t") for line in lines[at + 1 : at + types + 4]]
    assert all(len(fields) == 3 for fields in singles)
    probs = {word: 10 ** float(prob) for prob, word, _ in singles}
    assert probs.pop("<s>") == pytest.approx(1e-99)
    assert sum(probs.values()) == pytest.approx(1, abs=1e-6)
    at = lines.index("\\2-grams:")
    doubles = [line.split("\t") for line in lines[at + 1 : at + 1 + len(bigrams)]]
    assert {tuple(words.split(" ")) for _, words in doubles} == bigrams


def pairs(line):
    words = ["<s>", *line.split(), "</s>"]
    return set(itertools.pairwise(words))


@pytest.mark.parametrize("spaces", [False, True])
@pytest.mark.parametrize("last_backoff", [False, True])
def test_a_file_made_by_hand(tmp_path, spaces, last_backoff):
    content = BY_HAND
    if last_backoff:
        content = content.replace("<s> a b\n", "<s> a b\t-0.7\n")
    if spaces:
        content = content.replace("\t", " ").replace("-0.1 <s> a", "-0.1   <s>  a")
    loaded = imported(tmp_path, content)
    p = lambda *words: pytest.approx(log10_of(loaded, *words), abs=1e-6)  # noqa: E731
    assert p("<s>", "a") == -0.1
    assert p("<s>", "a", "b") == -0.01
    assert p("<s>", "a", "b", "</s>") == -0.02
    assert p("<s>", "b") == -0.2 - 0.6  # the backoff of <s>
    assert p("<s>", "a", "c") == -0.05 - 0.3 - 0.7  # of "<s> a", and of "a"
    assert p("<s>", "a", "b", "a") == -0.25  # "a b" has none
    assert p("<s>", "b", "c") == -0.4 - 0.7  # "<s> b" is not there: no weight
    assert p("<s>", "c", "a") == -0.5
    assert p("<s>", "b", "a", "c") == -0.15 - 0.3 - 0.7
    # KenLM gives an unknown word 10^-100 where a file has no <unk>.
    assert log10_of(loaded, "<s>", "a", "zebra") == pytest.approx(-100.35, abs=1e-4)
    assert log10_of(loaded, "a", "<s>") == -math.inf


def test_a_context_that_is_missing_is_added_and_changes_nothing(tmp_path):
    content = BY_HAND.replace("ngram 3=2", "ngram 3=3").replace(
        "-0.02\ta b", "-0.03\tc a b\n-0.02\ta b"
    )
    loaded = imported(tmp_path, content)
    assert log10_of(loaded, "c", "a", "b") == pytest.approx(-0.03, abs=1e-6)
    assert log10_of(loaded, "c", "a") == pytest.approx(-0.5, abs=1e-6)  # no weight of "c"
    assert log10_of(loaded, "c", "a", "c") == pytest.approx(-0.3 - 0.7, abs=1e-6)
    assert log10_of(loaded, "<s>", "a", "b") == pytest.approx(-0.01, abs=1e-6)


@pytest.mark.parametrize("spelling", ["<unk>", "<UNK>"])
def test_an_unknown_word_is_what_either_spelling_has(spelling, tmp_path):
    content = BY_HAND.replace("ngram 1=5", "ngram 1=6").replace("\tc\n", f"\tc\n-1.5\t{spelling}\n")
    content = content.replace("ngram 2=4", "ngram 2=5").replace(
        "a b\n", f"a b\n-0.4\ta {spelling}\n", 1
    )
    loaded = imported(tmp_path, content)
    assert log10_of(loaded, "b", "zebra") == pytest.approx(-1.5 - 0.4, abs=1e-6)
    assert log10_of(loaded, "a", "zebra") == pytest.approx(-0.4, abs=1e-6)
    agrees_with_kenlm(loaded, tmp_path / "hand.arpa", ["a zebra b", "zebra a"])


def test_a_no_break_space_is_part_of_a_word(tmp_path):
    loaded = imported(tmp_path, BY_HAND.replace("b", "b\xa0\u3000b"))
    assert log10_of(loaded, "<s>", "a", "b\xa0\u3000b") == pytest.approx(-0.01, abs=1e-6)
    lines = ["a b\xa0\u3000b", "b\xa0\u3000b\ta  c", "a\xa0b"]
    export_model(loaded, "arpa", tmp_path / "again.arpa")
    words = arpa.read((tmp_path / "again.arpa").read_bytes().split(b"\n"), "x").words
    assert "b\xa0\u3000b" in words and load("hand").tokenizer.kind == "blank"
    import_model(tmp_path / "again.arpa", name="again")
    np.testing.assert_array_equal(scores(load("again"), lines[0]), scores(loaded, lines[0]))
    agrees_with_kenlm(loaded, tmp_path / "hand.arpa", lines)


def agrees_with_kenlm(loaded, path, lines):
    """Check the log-probability of each line, where KenLM is installed."""
    kenlm = pytest.importorskip("kenlm", reason="kenlm is not installed")
    path.write_text("\\data\\" + path.read_text().partition("\\data\\")[2])
    known = kenlm.Model(str(path))
    for line in lines:
        corpus = encode_corpus([f"{line}\n"], loaded.tokenizer, "line")
        ids = np.array([[corpus.start, *corpus.tokens.tolist()]])
        state = loaded.model.start(1)
        scored, _ = loaded.model.score(torch.tensor(ids[:, :-1]), torch.tensor(ids[:, 1:]), state)
        ours = scored.log_probs.sum().item() / LN10
        assert ours == pytest.approx(known.score(line), abs=1e-4), line


def contexts_of(loaded, content):
    """Return every context that a file stores, as ids: each n-gram of all orders but the last."""
    names = arpa.names_of(loaded.tokenizer, "line")
    lines = content.partition("\\1-grams:")[2].rpartition("\\3-grams:")[0].split("\n")
    return [[names[word] for word in line.split("\t")[1].split()] for line in lines if "\t" in line]


def test_what_does_not_sum_to_1_is_said(tmp_path, capsys):
    path = tmp_path / "hand.arpa"
    path.write_text(BY_HAND)
    assert run(["import", str(path), "--name", "hand"]) == 0
    said = capsys.readouterr().err
    model, found = load("hand").model, load("hand").stored.record["probability_sums"]
    sums = []
    for context in [[], *contexts_of(load("hand"), BY_HAND)]:  # from each word's own probability
        total = 0.0
        for word in range(model.vocab_size):
            ids = torch.tensor([[*context, word]])
            if context:
                scored, _ = model.score(ids[:, :-1], ids[:, 1:], model.start(1))
                total += math.exp(scored.log_probs[0, -1].item())
            else:
                total += math.exp(model.levels[0].log_probs[word])
        sums.append(total)
    assert found["least"] == pytest.approx(min(sums), rel=1e-5)
    assert found["most"] == pytest.approx(max(sums), rel=1e-5)
    off = sum(abs(each - 1) > 0.01 for each in sums)
    assert (found["contexts"], found["off"]) == (len(sums), off) == (10, 10)
    assert "after 10 of 10 contexts its probabilities sum to 0.6743 to 1.697 instead of 1" in said


def test_of_what_sums_to_1_nothing_is_said(tmp_path, capsys):
    loaded = counted(tmp_path, "one", tokenizer="whitespace", documents="line")
    export_model(loaded, "arpa", tmp_path / "one.arpa")
    capsys.readouterr()
    assert run(["import", str(tmp_path / "one.arpa"), "--name", "two"]) == 0
    assert "sum to" not in capsys.readouterr().err
    levels = load("two").model.levels
    for sums in arpa.sums_of(levels, loaded.model.vocab_size):
        np.testing.assert_allclose(sums, 1, atol=1e-6)


BROKEN = {
    "no data": ("\\data\\", "data", 1, "no \\data\\"),
    "no counts": ("ngram 1=5\nngram 2=4\nngram 3=2\n", "", 5, "ngram 1=COUNT"),
    "a bad count": ("ngram 2=4", "ngram 2=four", 5, "ngram N=COUNT"),
    "an order left out": ("ngram 2=4", "ngram 4=4", 5, "ngram 2=COUNT"),
    "too few": ("ngram 2=4", "ngram 2=5", 20, "after 4 2-grams of the 5"),
    "too many": ("ngram 2=4", "ngram 2=3", 19, "\\3-grams: was expected"),
    "no number": ("-0.25\tb a", "minus\tb a", 18, "'minus' is not a number"),
    "not a number": ("-0.25\tb a", "nan\tb a", 18, "'nan' is not a number"),
    "a backoff that is none": ("b a\t-0.15", "b a\tx", 18, "'x' is not a number"),
    "above 0": ("-0.25\tb a", "0.25\tb a", 18, "above 0"),
    "a word too few": ("-0.01\t<s> a b", "-0.01\t<s>", 22, "3 words"),
    "a word unheard of": ("-0.01\t<s> a b", "-0.01\t<s> a d", 22, "'d' is not among"),
    "a word twice": ("-0.7\tc", "-0.7\ta", 13, "twice"),
    "an n-gram twice": ("-0.2\ta b", "-0.2\t<s> a", 17, "twice"),
    "no end": ("\\end\\\n", "", 25, "\\end\\ was expected, not the end of the file"),
    "half a section": (
        "-0.02\ta b </s>\n\n\\end\\\n",
        "",
        23,
        "the file ends after 1 3-grams of the 2",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_file_gets_one_line_with_its_line(tmp_path, broken, capsys):
    old, new, line, reason = BROKEN[broken]
    assert old in BY_HAND
    path = tmp_path / "x.arpa"
    path.write_text(BY_HAND.replace(old, new))
    assert run(["import", str(path), "--name", "x"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"line {line}: " in said
    assert reason in said
    assert not (tmp_path / "home" / "models" / "x").exists()


def test_what_cannot_be_exported_says_why(tmp_path):
    loaded = counted(tmp_path, "one", smoothing="add-delta")
    with pytest.raises(SeqgenError, match="add-delta"):
        export_model(loaded, "arpa", tmp_path / "x.arpa")
    assert not (tmp_path / "x.arpa").exists()
    with pytest.raises(SeqgenError, match="--format is arpa or gguf or hf or onnx"):
        export_model(loaded, "zip", tmp_path / "x")
    settings = {"steps": 1, "hidden_size": 8, "val": "none"}
    train([tmp_path / "text.txt"], architecture="rnn", name="net", settings=settings)
    with pytest.raises(SeqgenError, match="is not an n-gram model"):
        export_model(load("net"), "arpa", tmp_path / "x.arpa")


def test_a_tokenizer_without_the_word_is_told(tmp_path):
    counted(tmp_path, "one", tokenizer="whitespace", documents="line")
    with pytest.raises(SeqgenError, match=r"line 12: the tokenizer has no token 'b'"):
        imported(tmp_path, BY_HAND, like="one")


def test_sections_hold_what_stands_in_the_file():
    read = arpa.read(BY_HAND.encode().split(b"\n"), "x")
    assert read.words == ["<s>", "</s>", "a", "b", "c"]
    assert [len(section.words) for section in read.sections] == [5, 4, 2]
    assert read.sections[1].words.tolist() == [[0, 2], [2, 3], [3, 2], [3, 1]]
    assert read.sections[1].backoffs.tolist() == [-0.05, 0, -0.15, 0]
    assert [section.line for section in read.sections] == [9, 16, 22]


@pytest.mark.slow
def test_a_file_by_standard_input(tmp_path, home):
    counted(tmp_path, "one", tokenizer="whitespace", documents="line")
    path = tmp_path / "a.arpa"
    assert run(["export", "one", "--out", str(path)]) == 0
    command = [sys.executable, "-m", "seqgen", "import", "-", "--name", "two", "--json", "-q"]
    package = str(ROOT)
    with path.open("rb") as file:
        done = subprocess.run(
            command, stdin=file, capture_output=True, env={**os.environ, "PYTHONPATH": package}
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == "two"


def test_the_commands(tmp_path, capfd):
    counted(tmp_path, "one", tokenizer="whitespace", documents="line")
    assert run(["export", "one", "--format", "arpa"]) == 0
    content = capfd.readouterr().out
    assert content.startswith("\\data\\\nngram 1=")
    (tmp_path / "a.arpa").write_text(content)
    assert run(["import", str(tmp_path / "a.arpa"), "--name", "two", "--json", "-q"]) == 0
    assert '"architecture": "ngram"' in capfd.readouterr().out
    assert run(["models", "show", "two", "--all"]) == 0
    assert "2-grams" in capfd.readouterr().out
    assert run(["sample", "the cat", "-m", "two", "--seed", "1", "-q"]) == 0
    assert run(["import", str(tmp_path / "a.arpa"), "--name", "two"]) == 2
    assert run(["import", str(tmp_path / "none.arpa")]) == 1
    assert run(["train", "--resume", "one"]) == 2
    assert "counted" in capfd.readouterr().err
