"""N-grams counted by sorted runs in temporary files: the model is that made in memory."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise

import numpy as np
import pytest
from examples import examples
from helpers_cli import known_smoothings
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen.cli import run
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.text.corpus import ConcatenatedArray, Corpus, GrowingArray
from seqgen.training import counting, sorted_runs
from seqgen.training.counting import fit, unseen_fractions
from seqgen.training.sorted_runs import FramedText, MemoryBudget

PAD, BOS, EOS = range(3)
V = 8
quick = settings(deadline=None, max_examples=examples(10), derandomize=True)
documents = st.lists(st.lists(st.integers(3, V - 1), max_size=9), min_size=1, max_size=20)
SMOOTHINGS = known_smoothings()


def corpus_of(lines):
    tokens = np.array([w for line in lines for w in (*line, EOS)], np.uint8)
    return Corpus(tokens, np.cumsum([len(line) + 1 for line in lines]), BOS)


def tables(corpus, budget, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBudget, "of", lambda *_: budget)
        patch.setattr(GrowingArray, "PIECE", 5)
        model = NGram(NGramConfig(vocab_size=V, **settings))
        found = fit(model, corpus, [PAD, BOS])
    content = {name: table.numpy().tobytes() for name, table in model.state_dict().items()}
    return content, (found.ngrams, found.discounts, found.fallbacks), model


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@quick
@given(
    lines=documents,
    order=st.integers(1, 5),
    places=st.integers(V + 1, 30),
    prune=st.sampled_from(("0", "0,0,1", "0,1")),
    entropy=st.sampled_from((0, 1e-3, 0.1)),
)
def test_runs_give_the_same_tables_to_the_bit(smoothing, lines, order, places, prune, entropy):
    if smoothing in ("maximum-likelihood", "add-delta"):
        entropy = 0
    options = {"smoothing": smoothing, "order": order, "prune": prune, "prune_entropy": entropy}
    whole, facts, _ = tables(corpus_of(lines), sorted_runs.NO_LIMIT, **options)
    parts, same_facts, model = tables(corpus_of(lines), MemoryBudget(places, 0), **options)
    assert parts == whole and same_facts == facts
    assert model.columns.keys() <= parts.keys()


@quick
@given(lines=documents, places=st.integers(1, 30), cuts=st.lists(st.integers(0, 200)))
def test_a_text_in_pieces_is_the_text(lines, places, cuts):
    corpus = corpus_of(lines)
    want = [(w, at) for line in lines for at, w in enumerate((BOS, *line, EOS))]
    bounds = [0, *sorted(c % (corpus.tokens.size + 1) for c in cuts), corpus.tokens.size]
    parts = [corpus.tokens[a:b] for a, b in pairwise(bounds)]
    for tokens in (corpus.tokens, ConcatenatedArray(parts)):
        text = FramedText(Corpus(tokens, corpus.ends, BOS), MemoryBudget(places, 0))
        for _ in range(2):  # it is read once for each order
            pieces = [(w.tolist(), at.tolist()) for w, at in text]
            assert [pair for piece in pieces for pair in zip(*piece, strict=True)] == want


@quick
@given(
    values=st.lists(st.integers(-9, 9), min_size=1, max_size=60),
    spill=st.sampled_from((0, 100, 1e9)),
    data=st.data(),
)
def test_columns_read_what_was_added(values, spill, data):
    column = GrowingArray(np.int64, spill)
    column.PIECE = 7
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30))
    for begin in range(0, len(values), 4):
        column.add(np.array(values[begin : begin + 4]))
        assert column[:].tolist() == values[: begin + 4]  # reading between writes
    assert column.on_disk == (spill < 8 * len(values))
    assert column[3:9].tolist() == values[3:9] and np.asarray(column).tolist() == values
    assert np.concatenate([*column.pieces()]).tolist() == values
    assert column.take(np.array(places, int)).tolist() == [values[at] for at in places]


def test_held_out_ngrams_are_looked_up_across_pieces(monkeypatch):
    lines = np.random.default_rng(0).integers(3, V, (40, 6)).tolist()
    known, other = corpus_of(lines[:20]), corpus_of(lines[20:])
    *_, model = tables(known, sorted_runs.NO_LIMIT, order=4)
    whole = unseen_fractions(model, other, known)
    monkeypatch.setattr(counting, "AT_ONCE", 5)
    assert unseen_fractions(model, other, known) == whole
    assert 0 < whole[2] < 1


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    path = tmp_path / "text.txt"
    rows = np.random.default_rng(1).integers(0, 300, (3000, 12))
    path.write_text("".join(" ".join(f"w{w}" for w in row) + "\n" for row in rows))
    return path


def count_words(text, name, *more, model=("ngram", "--order", "3")):
    words = ["--tokenizer", "word", "--name", name, "--json"]
    return run(["train", str(text), "--model", *model, *words, *more])


def test_train_writes_the_same_weights_with_little_memory(text, tmp_path, capfd, monkeypatch):
    assert count_words(text, "whole") == 0
    monkeypatch.setattr(sorted_runs, "LEAST_PLACES", 1000)
    monkeypatch.setattr(MemoryBudget, "of", lambda *_: MemoryBudget(2000, 0))
    assert count_words(text, "parts", "--memory", "1.5GB") == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert records[0]["val_loss"] == records[1]["val_loss"]
    weights = [tmp_path / "home/models" / n / "model.safetensors" for n in ("whole", "parts")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (("--memory", "20M"), 2, "--memory 20M is too little: this text needs"),
        (("--memory", "x"), 2, "--memory must be a size such as 500M or 4G"),
    ],
)
def test_too_little_memory_is_one_line(text, capfd, more, code, told):
    assert count_words(text, "it", *more) == code
    error = capfd.readouterr().err
    assert told in error and len(error.splitlines()) == 1


def test_a_network_alone_counts_nothing(text, capfd):
    assert count_words(text, "it", "--memory", "1G", model=["lstm"]) == 2
    assert "--memory is for counting n-grams" in capfd.readouterr().err


def test_a_full_disk_is_one_line(text, capfd, monkeypatch):
    class Full:
        def seek(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(MemoryBudget, "of", lambda *_: MemoryBudget(2000, 0))
    monkeypatch.setattr("seqgen.text.corpus.tempfile.TemporaryFile", Full)
    assert count_words(text, "it", "--memory", "1G") == 1
    where = f"the temporary files in {tempfile.gettempdir()} cannot be written"
    assert f"{where}: No space left on device" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="files are removed at once on POSIX alone")
def test_ctrl_c_leaves_no_files(text, tmp_path):
    there = tmp_path / "tmp"
    there.mkdir()
    code = (
        "import os, signal, sys\n"
        "from seqgen.training import sorted_runs\n"
        "from seqgen.cli import run\n"
        "sorted_runs.MemoryBudget.of = lambda *_: sorted_runs.MemoryBudget(2000, 0)\n"
        "merged = sorted_runs._merge_runs\n"
        "def stopped(*args):\n"
        "    merged(*args); os.kill(os.getpid(), signal.SIGINT)\n"
        "sorted_runs._merge_runs = stopped\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    flags = ["train", str(text), "--model", "ngram", "--memory", "1G", "--name", "it"]
    done = subprocess.run(
        [sys.executable, "-c", code, *flags],
        env={**os.environ, "TMPDIR": str(there)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert not list(there.iterdir())
