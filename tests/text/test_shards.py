"""A text in several token files: joined, read block by block, trained on and gone on with."""

import itertools
import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers_cli import records, refusal
from safetensors.numpy import load_file

from seqgen import store
from seqgen.cli import run
from seqgen.text.batches import Batches, DocumentBatches
from seqgen.text.corpus import ConcatenatedArray, Corpus, encode_corpus, slice_items
from seqgen.text.shards import (
    AHEAD,
    BlockBatches,
    PrefetchedBatches,
    build_batches,
    open_token_files,
    write_shards,
)
from seqgen.text.split import split_tokens
from seqgen.text.token_writing import write_token_file
from seqgen.text.tokenfile import open_token_file
from seqgen.text.tokenizers import tokenizer_kind

TEXT = "".join(f"{n * n} is the square of {n}, éöü\n" for n in range(300))
BYTES = tokenizer_kind("byte").train([], None, 1)


def corpus_of(sizes, start=99_999):
    """A stream whose every token is its own place, in parts of these sizes."""
    edges = np.cumsum([0, *sizes])
    parts = [np.arange(a, b, dtype=np.uint32) for a, b in itertools.pairwise(edges)]
    return Corpus(ConcatenatedArray(parts), np.array([edges[-1]]), start)


def shards_in(folder, count=3, documents="stream", text=TEXT):
    write_shards(folder, [text[:1000], text[1000:]], len(text), count, BYTES, documents)
    return sorted(folder.glob("*.tok"))


# Arrays joined


def test_joined_arrays_are_read_as_one():
    random = np.random.default_rng(1)
    parts = [random.integers(0, 99, size).astype(np.uint8) for size in (5, 0, 1, 17, 8)]
    joined, whole = ConcatenatedArray(parts), np.concatenate(parts)
    assert (joined.size, joined.dtype, len(joined), joined.shape) == (31, np.uint8, 31, (31,))
    np.testing.assert_array_equal(np.asarray(joined), whole)
    for shape in ((4,), (3, 5), (0,)):
        at = random.integers(-31, 31, shape)
        np.testing.assert_array_equal(joined[at], whole[at])
    for begin in range(-32, 33, 3):
        for end in (*range(-32, 33, 3), None):
            np.testing.assert_array_equal(joined[begin:end], whole[begin:end])
    np.testing.assert_array_equal(joined[::-1], whole[::-1])
    np.testing.assert_array_equal(joined[whole > 50], whole[whole > 50])
    assert joined[7] == whole[7]
    with pytest.raises(IndexError):
        joined[np.array([31])]


def test_a_span_of_joined_arrays_copies_nothing():
    parts = [np.arange(10), np.arange(10, 20), np.arange(20, 30)]
    middle = slice_items(ConcatenatedArray(parts), 5, 22)
    np.testing.assert_array_equal(np.asarray(middle), np.arange(5, 22))
    assert isinstance(middle, ConcatenatedArray)
    for piece, part in zip(middle.parts, parts, strict=True):
        assert np.shares_memory(piece, part)


# Files written and opened


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_shards_hold_the_text_and_are_about_equally_long(tmp_path, documents):
    paths = shards_in(tmp_path, 4, documents)
    assert [path.name for path in paths] == [f"shard-0000{n}.tok" for n in range(4)]
    files = [open_token_file(path) for path in paths]
    assert "".join("".join(file.text()) for file in files) == TEXT
    sizes = [file.facts.characters for file in files]
    assert max(sizes) - min(sizes) < 60  # two lines
    joined = open_token_files(paths)
    whole = encode_corpus([TEXT], BYTES, documents)
    np.testing.assert_array_equal(np.asarray(joined.corpus.tokens), whole.tokens)
    np.testing.assert_array_equal(joined.corpus.ends, whole.ends)
    facts = joined.facts
    assert (facts.characters, facts.bytes) == (len(TEXT), len(TEXT.encode()))


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_cuts_do_not_depend_on_how_the_text_comes(tmp_path, chunk):
    chunks = [TEXT[at : at + chunk] for at in range(0, 2000, chunk)]
    text = "".join(chunks)
    write_shards(tmp_path / "a", chunks, len(text), 5, BYTES, "stream")
    write_shards(tmp_path / "b", [text], len(text), 5, BYTES, "stream")
    for path in sorted((tmp_path / "b").iterdir()):
        assert (tmp_path / "a" / path.name).read_bytes() == path.read_bytes()


def test_there_are_no_more_shards_than_lines(tmp_path):
    assert len(shards_in(tmp_path, 9, text="one\ntwo\n")) == 2
    assert len(shards_in(tmp_path, 1)) == 1  # and those of before are gone


@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("fraction", [0.1, 0.4])
def test_shards_are_split_as_one_file_is(tmp_path, documents, fraction):
    one = tmp_path / "one.tok"
    write_token_file(one, [TEXT], BYTES, documents)
    joined = open_token_files(shards_in(tmp_path / "many", 4, documents))
    expected = split_tokens(open_token_file(one), fraction, 7)
    found = split_tokens(joined, fraction, 7)
    for mine, other in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_array_equal(np.asarray(mine.tokens), other.tokens)
        np.testing.assert_array_equal(mine.ends, other.ends)
    assert (found[2].characters, found[2].bytes) == (expected[2].characters, expected[2].bytes)


# Batches


def test_an_epoch_reads_every_block_once_and_goes_on_within_it():
    corpus = corpus_of((640, 512, 704))
    batches = BlockBatches(corpus, 4, 8, seed=3, carry=True)
    length = batches._windows * 8
    seen, before = [], None
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        assert batch.targets.shape == (4, 8)
        np.testing.assert_array_equal(np.diff(batch.targets, axis=1), 1)
        # What is read is the token before, but at the start of the text.
        read = np.where(batch.targets == 0, 99_999, batch.targets - 1)
        np.testing.assert_array_equal(batch.tokens, read)
        if not batch.fresh:
            np.testing.assert_array_equal(batch.targets[:, 0], before + 1)
        before = batch.targets[:, -1]
        seen.append(batch.targets)
    counts = np.bincount(np.concatenate(seen).ravel(), minlength=1856)
    blocks = sum(size // length for size in (640, 512, 704))
    filled_up = -blocks % 4
    assert (counts > 0).sum() == blocks * length
    assert counts.sum() == (blocks + filled_up) * length
    # No block reaches from one shard into the next.
    for edge in (640, 1152):
        inside = [t for t in seen if ((t[:, 0] < edge) & (t[:, -1] >= edge)).any()]
        assert not inside


def test_a_batch_is_a_function_of_seed_and_step():
    corpus = corpus_of((300, 300, 200))
    for carry in (True, False):
        one, other = (BlockBatches(corpus, 2, 8, seed=5, carry=carry) for _ in range(2))
        steps = list(range(3 * one.steps_per_epoch))
        forward = [one.batch(step).targets for step in steps]
        for step in reversed(steps):
            np.testing.assert_array_equal(other.batch(step).targets, forward[step])
        epoch = one.steps_per_epoch
        assert not np.array_equal(forward[0], forward[epoch])
        seeded = BlockBatches(corpus, 2, 8, seed=6, carry=carry)
        assert any(not np.array_equal(seeded.batch(s).targets, forward[s]) for s in steps[:4])


def test_without_a_carried_state_rows_are_at_different_windows():
    batches = BlockBatches(corpus_of((4000, 4000)), 8, 8, seed=1, carry=False)
    assert batches._windows > 4
    length = batches._windows * 8
    places = batches.batch(0).targets[:, 0] % length
    assert all(batches.batch(step).fresh for step in range(batches.steps_per_epoch))
    assert len(set(places.tolist())) > 1


class Counted(Batches):
    """Batches that note in which thread they were read."""

    def __init__(self):
        super().__init__(corpus_of((100,)), 1, 4, 0)
        self.read, self.threads = [], set()
        self._inner = BlockBatches(self.corpus, 1, 4, 0, carry=True)

    @property
    def steps_per_epoch(self):
        return 1 << 30

    def batch(self, step):
        self.read.append(step)
        self.threads.add(threading.current_thread().name)
        if step == 13:
            raise OSError("the disk is gone")
        return self._inner.batch(step)


def test_batches_are_read_ahead_in_order_and_are_the_same():
    counted, inner = Counted(), Counted()
    ahead = PrefetchedBatches(counted)
    ahead.batch(0)
    given_up = time.monotonic() + 30
    while len(counted.read) <= AHEAD and time.monotonic() < given_up:
        time.sleep(0.001)
    assert counted.read == list(range(AHEAD + 1))  # though only one was asked for
    for step in (0, 1, 2, 7, 3):
        expected = inner.batch(step)
        np.testing.assert_array_equal(ahead.batch(step).targets, expected.targets)
    assert all(name.startswith("prefetch") for name in counted.threads)
    with pytest.raises(OSError, match="the disk is gone"):
        ahead.batch(13)


def test_what_is_not_in_shards_is_read_as_before(tmp_path):
    whole = corpus_of((900,))
    plain = replace(whole, tokens=np.asarray(whole.tokens))
    assert not isinstance(build_batches(plain, "stream", True, 2, 8, 1), PrefetchedBatches)
    lines = open_token_files(shards_in(tmp_path, 3, "line")).corpus
    ahead = build_batches(lines, "line", False, 8, 16, 1)
    inner = DocumentBatches(
        replace(lines, tokens=np.asarray(lines.tokens)), 8, 16, seed=1, carry=False
    )
    for step in (0, 5, ahead.steps_per_epoch):
        np.testing.assert_array_equal(ahead.batch(step).tokens, inner.batch(step).tokens)


# The commands


@pytest.fixture
def shards(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    folder = tmp_path / "shards"
    command = ("tokenize", text, "--tokenizer", "byte", "--out", folder, "--shards", "3")
    assert run([*map(str, command), "--quiet"]) == 0
    return folder


SMALL = ("--layers", "1", "--hidden-size", "4", "--seq-len", "8", "--batch-size", "4", "--quiet")


@pytest.mark.parametrize("model", ["lstm", pytest.param("transformer", marks=pytest.mark.slow)])
def test_a_run_on_shards_that_is_resumed_is_the_same(capsys, shards, model):
    heads = ("--heads", "1") if model == "transformer" else ()
    asked = ("train", shards, "--model", model, *heads, *SMALL, "--seed", "1", "--steps", "12")
    (whole,) = records(capsys, *asked, "--name", "whole")
    records(capsys, *asked, "--name", "parts", "--stop-after", "5")
    (parts,) = records(capsys, "train", "--resume", "parts", "--quiet")
    same = ("steps", "tokens", "val_loss", "sample")
    assert {key: parts[key] for key in same} == {key: whole[key] for key in same}
    first, second = (store.find(name).path / store.WEIGHTS for name in ("whole", "parts"))
    assert first.read_bytes() == second.read_bytes()
    assert len(store.find("whole").record["data"]["files"]) == 3


@pytest.mark.slow
def test_two_processes_read_shards_as_one_does_and_find_their_place(capsys, shards):
    """Under torchrun, with gloo: stopped within an epoch, and resumed."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
    asked = ["train", str(shards), "--model", "lstm", *SMALL, "--seed", "1", "--steps", "12"]
    records(capsys, *asked, "--name", "one")
    for command in (
        [*asked, "--name", "two", "--stop-after", "5"],
        ["train", "--resume", "two", "--quiet"],
    ):
        subprocess.run([*launcher, "seqgen", *command], check=True, capture_output=True)
    one, two = (load_file(store.find(name).path / store.WEIGHTS) for name in ("one", "two"))
    for name, tensor in one.items():
        np.testing.assert_allclose(two[name], tensor, rtol=0, atol=1e-5)


def test_the_held_out_part_is_scored_as_that_of_one_file(capsys, shards, tmp_path):
    one = tmp_path / "one.tok"
    text = str(tmp_path / "text.txt")
    assert run(["tokenize", text, "--tokenizer", "byte", "--out", str(one), "--quiet"]) == 0
    asked = (*SMALL, "--steps", "1", "--lr", "1e-9", "--seed", "1")
    (many,) = records(capsys, "train", shards, *asked)
    (single,) = records(capsys, "train", one, *asked)
    # Both models are what the seed draws, and hold out the same tokens.
    assert many["val_loss"] == pytest.approx(single["val_loss"], rel=1e-6)


def test_a_record_a_file(capsys, shards, tmp_path):
    text = tmp_path / "text.txt"
    command = ("tokenize", text, "--tokenizer", "byte", "--out", tmp_path / "more")
    found = records(capsys, *command, "--shards", "2", "--quiet")
    assert [Path(record["path"]).name for record in found] == ["shard-00000.tok", "shard-00001.tok"]
    assert sum(record["bytes"] for record in found) == len(TEXT.encode())
    assert json.dumps(found)


def test_bad_inputs_are_one_line(capsys, shards, tmp_path):
    text = tmp_path / "text.txt"
    to = ("tokenize", text, "--tokenizer", "byte")
    assert "--shards goes with --out" in refusal(capsys, *to, "--shards", "2")
    assert "add --overwrite" in refusal(capsys, *to, "--shards", "2", "--out", shards)
    assert "is not a folder" in refusal(capsys, *to, "--shards", "2", "--out", text)
    (shards / "notes.txt").write_text("mine")
    assert "other files (notes.txt)" in refusal(capsys, *to, "--shards", "2", "--out", shards)
    assert "give token files alone" in refusal(capsys, "train", shards, *SMALL)
    (shards / "notes.txt").unlink()
    assert run([*map(str, to), "--shards", "2", "--out", str(shards), "--overwrite", "-q"]) == 0
    assert len(list(shards.iterdir())) == 2
    write_token_file(shards / "shard-00009.tok", [TEXT], BYTES, "line")
    assert "holds lines" in refusal(capsys, "train", shards, *SMALL)
    other = tokenizer_kind("char").train([TEXT], None, 1)
    write_token_file(shards / "shard-00009.tok", [TEXT], other, "stream")
    assert "has another tokenizer" in refusal(capsys, "train", shards, *SMALL)
