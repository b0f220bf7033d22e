"""Novelty against a search by brute force; which training texts it is known of."""

from __future__ import annotations

import random
import shutil

import pytest
from helpers_cli import records

from seqgen import store
from seqgen.cli import run
from seqgen.metrics import novelty as module
from seqgen.metrics.novelty import Novelty, novelty


def brute_force(texts: list[str], other: str) -> Novelty:
    words = [text.split() for text in texts]
    known = other.split()
    novel, copied = [], []
    for n in range(1, max(map(len, words)) + 1):
        there = {tuple(known[i : i + n]) for i in range(len(known) - n + 1)}
        grams = [tuple(w[i : i + n]) for w in words for i in range(len(w) - n + 1)]
        novel.append(sum(gram not in there for gram in grams) / len(grams))
        copied += [gram for gram in grams if gram in there][:1]
        if novel[-1] == 1:
            break
    best = max(copied, key=len, default=())
    return Novelty(sum(map(len, words)), novel, " ".join(best), len(best))


@pytest.mark.parametrize("seed", range(20))
def test_as_a_search_by_brute_force(seed, monkeypatch):
    draw = random.Random(seed)
    monkeypatch.setattr(module, "BLOCK", 7)

    def text(words: int) -> str:
        return "".join(draw.choice("abc") + draw.choice([" ", "\n", "  "]) for _ in range(words))

    other = text(60)
    groups = [[text(draw.randrange(1, 9)) for _ in range(3)] for _ in range(2)]
    groups[0].append(" ".join(other.split()[20:35]) + " z")
    ends = sorted(draw.randrange(len(other)) for _ in range(6))
    chunks = [other[a:b] for a, b in zip([0, *ends], [*ends, len(other)], strict=True)]
    for found, texts in zip(novelty(groups, chunks), groups, strict=True):
        expected = brute_force(texts, other)
        assert (found.words, found.copied, found.copied_words) == (
            expected.words,
            expected.copied,
            expected.copied_words,
        )
        assert found.novel == pytest.approx(expected.novel)


def test_by_hand():
    (found,) = novelty([["the cat sat down", "a dog"]], ["the cat sa", "t on the mat"])
    assert found == Novelty(6, [0.5, 0.5, 0.5, 1.0], "the cat sat", 3)
    assert novelty([[""]], ["a b"]) == [Novelty(0, [], "", 0)]
    assert novelty([["a b"]], [""]) == [Novelty(2, [1.0], "", 0)]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A text of which a 5-gram model, `m`, has counted the first nine tenths."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    words = [draw.choice(["cat", "dog", "sat", "mat", "on", "the"]) for _ in range(400)]
    text = tmp_path / "text.txt"
    text.write_text("".join(word + draw.choice("  \n") for word in words))
    assert run(["train", str(text), "--model", "ngram", "--order", "5", "--name", "m", "-q"]) == 0
    return text


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_a_report_compares_with_what_was_trained_on(documents, trained, capsys):
    if documents == "line":
        more = ("--documents", "line", "--overwrite", "-q")
        assert run(["train", str(trained), "--model", "ngram", "--name", "m", *more]) == 0
    (found,) = records(capsys, "report", "-m", "m", "-q")
    write = ("sample", "-m", "m", "--num-samples", 16, "--max-tokens", 200, "--seed", 0)
    written = [record["text"] for record in records(capsys, *write)]
    held_out = store.find("m").validation_text.read_text()
    text = trained.read_text()
    if documents == "stream":
        known = text.removesuffix(held_out)
        assert known != text
    else:
        lines, out = text.splitlines(), held_out.splitlines()
        known = "\n".join(line for line in lines if line not in out or out.remove(line))
    expected = brute_force(written, known)
    samples = found["novelty"]["samples"]
    assert (samples["words"], samples["copied_words"]) == (expected.words, expected.copied_words)
    assert samples["novel"] == pytest.approx(expected.novel)
    assert found["novelty"]["text"]["words"] == min(expected.words, len(held_out.split()))
    page = (trained.parent / "report.html").read_text()
    assert f"<q>{samples['copied']}</q>" in page and f"{samples['novel'][0]:.1%}" in page


def test_why_novelty_is_not_known(trained, capsys):
    def reason() -> str:
        (found,) = records(capsys, "report", "-m", "m", "-q")
        assert found["novelty"] is None
        page = (trained.parent / "report.html").read_text()
        return page.split("<p>Not known: ")[1].split(".</p>")[0]

    shutil.copy(trained, trained.parent / "copy.txt")
    trained.write_text(trained.read_text() + "more")
    assert "text.txt has changed since m read it" in reason()
    trained.unlink()
    assert reason() == "the training text of m is gone"
    assert run(["export", "m", "--format", "arpa", "--out", "m.arpa"]) == 0
    assert run(["import", "m.arpa", "--name", "m", "--overwrite"]) == 0
    capsys.readouterr()
    assert run(["report", "-m", "m", "--file", "copy.txt", "-q"]) == 0
    page = (trained.parent / "report.html").read_text()
    assert "Not known: no training text of m is known." in page
