"""Texts that copy nothing: against a search by brute force, for every kind of token."""

from __future__ import annotations

import random

import numpy as np
import pytest
from helpers_cli import has_plugin, records, refusal

import seqgen
from seqgen.cli import run
from seqgen.generation.processors import IMPOSSIBLE, History
from seqgen.plugins.novelty.max_copy import MaxCopy
from seqgen.plugins.novelty.suffix_index import EMPTY, SuffixIndex, order_of

pytest.importorskip("pydivsufsort")


def copies(text: str, known: str, n: int) -> bool:
    return any(text[i : i + n] in known for i in range(len(text) - n + 1))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_exactly_the_tokens_that_complete_a_copy_are_removed(n, tmp_path):
    draw = random.Random(n)
    known = "".join(draw.choices("abcé", k=60))
    raw = known.encode()
    (tmp_path / "text").write_bytes(raw + EMPTY)
    order_of(raw).tofile(tmp_path / "order")
    index = SuffixIndex.open(tmp_path / "text", tmp_path / "order")
    pieces = {"".join(draw.choices("abcéd", k=draw.randrange(1, 7))) for _ in range(60)}
    texts = [None, *sorted(pieces)]
    table = [text and text.encode() for text in texts]
    limit = MaxCopy(index, n, table, table, (), 0)
    log_probs = np.full((1, len(texts)), -np.log(len(texts)))
    for _ in range(60):
        ids = draw.choices(range(1, len(texts)), k=draw.randrange(6))
        prompt = draw.choices(range(1, len(texts)), k=draw.randrange(3))
        (kept,) = limit([History([*prompt, *ids], len(prompt))], log_probs)
        before = "".join(texts[i] for i in ids)
        end = before[max(0, len(before) - n + 1) :]
        # What has been copied before is not looked at again.
        allowed = {i for i, text in enumerate(texts) if text and not copies(end + text, known, n)}
        assert set(np.flatnonzero(kept > IMPOSSIBLE).tolist()) == {0, *allowed}
        assert np.exp(kept).sum() == pytest.approx(1)


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    words = ["the", "cat", "sät", "on", "a", "mat😀", "and", "dog"]
    lines = (" ".join(draw.choices(words, k=draw.randrange(2, 9))) for _ in range(300))
    (tmp_path / "text.txt").write_text("".join(line + ".\n" for line in lines))
    return tmp_path / "text.txt"


@pytest.mark.fast_for("char", "bpe")
@pytest.mark.parametrize("kind", ["char", "byte", "word", "whitespace", "bpe", "unigram"])
def test_what_models_that_know_their_text_by_heart_write(kind, text, capsys):
    size = ["--vocab-size", "300"] if kind in ("bpe", "unigram") else []
    how = ["--model", "ngram", "--order", "5", "--tokenizer", kind, "--val", "none", "-q"]
    assert run(["train", str(text), "--name", "m", *how, *size]) == 0
    known, n = text.read_text(), 12
    write = ("--num-samples", 40, "--max-tokens", 60, "--seed", 1, "--top-k", 20)
    free = records(capsys, "sample", "-m", "m", *write)
    assert sum(copies(one["text"], known, n) for one in free) > 20
    for prompt in ([], ["the cat"]):
        held = records(capsys, "sample", *prompt, "-m", "m", *write, "--max-copy", n)
        assert not [one["text"] for one in held if copies(one["text"], known, n)]
        assert {one["finish_reason"] for one in held} <= {"length", "dead-end"}
    found = records(capsys, "beam-search", "-m", "m", "--max-copy", n, "--max-tokens", 20)
    assert found and not copies(found[0]["text"], known, n)


def test_a_text_that_cannot_go_on_is_a_dead_end(text, capsys):
    text.write_text("abcdefg\n" * 20)
    how = ["--model", "ngram", "--order", "3", "--smoothing", "maximum-likelihood", "-q"]
    assert run(["train", str(text), "--name", "m", "--val", "none", *how]) == 0
    for command in ("sample", "beam-search"):
        (one,) = records(capsys, command, "a", "-m", "m", "--max-copy", "4")
        assert (one["text"], one["tokens"], one["finish_reason"]) == ("bcd", 3, "dead-end")
    (one,) = seqgen.load("m").sample("a", max_copy=4, seed=1)
    assert one.text == "bcd"
    capsys.readouterr()
    if has_plugin("explain"):
        explained = ("sample", "a", "-m", "m", "--max-copy", "4", "--explain", "--seed", "1")
        removed = records(capsys, *explained)[-1]["removed"][-1]
        assert (removed["filter"], removed["tokens"]) == ("max-copy", ["e"])


def test_what_is_refused(text, capsys):
    how = ["--model", "ngram", "--direction", "backward", "-q"]
    assert run(["train", str(text), "--name", "m", *how]) == 0
    assert "left to right" in refusal(capsys, "sample", "-m", "m", "--max-copy", "9")
    assert "--max-copy" in refusal(capsys, "sample", "-m", "m", "--max-copy", "0")
    assert run(["train", str(text), "--name", "n", "--model", "ngram", "-q"]) == 0
    text.unlink()
    assert "is gone" in refusal(capsys, "sample", "-m", "n", "--max-copy", "9", "--seed", "1")
