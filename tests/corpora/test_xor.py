"""Elman's temporal XOR (1990): the stream, and the recipe of docs/architectures.md#presets."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from places import CORPORA

from seqgen.cli import run
from seqgen.metrics.perplexity import LN2
from seqgen.scoring.loop import score_corpus
from seqgen.store.loading import load
from seqgen.text.corpus import encode_corpus


@pytest.fixture(scope="module")
def xor():
    spec = importlib.util.spec_from_file_location("xor", CORPORA / "xor.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stream_is_what_the_script_writes(xor):
    bits = np.array([int(bit) for bit in (CORPORA / "xor.txt").read_text()])
    assert list(bits) == list(xor.stream(30_000, 1990))
    first, second, third = bits.reshape(-1, 3).T
    assert (third == first ^ second).all()
    # Pairs are as likely as each other: within four standard deviations.
    pairs = np.bincount(2 * first + second, minlength=4)
    assert abs(pairs - 2500).max() < 4 * np.sqrt(10_000 * 0.25 * 0.75)


def test_shares_right_by_hand(xor):
    assert xor.shares_right([0.9, 1.1, 0.2, 1.0, 0.5, 0.3]) == [0.5, 0.5, 1.0]


@pytest.mark.slow
def test_the_recipe_predicts_the_third_bits(xor, tmp_path):
    """The network of 1990 had 85 %."""
    recipe = "--model rnn --layers 1 --hidden-size 20 --dropout 0 --seq-len 15 --batch-size 20"
    flags = [*recipe.split(), "--steps", "600", "--seed", "1", "--name", "xor", "--quiet"]
    assert run(["train", str(CORPORA / "xor.txt"), *flags]) == 0
    loaded = load("xor")
    unseen = "".join(map(str, xor.stream(3000, 7)))
    corpus = encode_corpus([unseen], loaded.tokenizer, "stream", framing=loaded.framing)
    log_probs = np.concatenate([s.log_probs for s in score_corpus(loaded.model, corpus, 1)])
    first, second, third = xor.shares_right(-log_probs / LN2)
    assert third >= 0.99
    assert first < 0.6 and second < 0.6  # what is drawn by chance stays chance
