"""The text and the pairs that ask what a model remembers, and what counted models answer."""

import subprocess
import sys
from collections import Counter

import pytest
from places import CORPORA

from seqgen.plugins.minimal_pairs.scoring import read_pairs, score_pairs
from seqgen.settings.scoring import Scoring
from seqgen.store.loading import load
from seqgen.training.train import train

KINDS = ("agreement", "order", "recall")


def pairs_of(kind):
    return read_pairs([(CORPORA / f"{kind}.tsv").read_text()], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_script_gives_the_same_bytes(kind):
    command = [sys.executable, str(CORPORA / "memory.py"), kind]
    made = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    assert made == (CORPORA / f"{kind}.tsv").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_differ_in_one_thing_and_are_new(kind):
    text = set((CORPORA / "memory.txt").read_text().splitlines())
    pairs = pairs_of(kind)
    assert len({pair.better for pair in pairs}) == len(pairs)
    for pair in pairs:
        better, worse = pair.better.split(), pair.worse.split()
        changed = [i for i, (a, b) in enumerate(zip(better, worse, strict=True)) if a != b]
        assert pair.better not in text
        if kind == "order":
            assert len(changed) == 2 and Counter(better) == Counter(worse)
            assert changed[0] > 0 and changed[1] < len(better) - 1
        else:
            assert len(changed) == 1
        if kind == "recall":
            name = better[changed[0]]
            between = changed[0] - better.index(name) - 1
            assert pair.group.split()[1] == str(between) and worse[changed[0]] != name


@pytest.mark.slow
def test_what_counted_models_remember():
    """A unigram model is at chance on word order; a trigram agrees with the nearest noun."""
    shares = {}
    for order in (1, 3):
        given = {"order": order, "tokenizer": "whitespace", "documents": "line"}
        train([CORPORA / "memory.txt"], architecture="ngram", name=f"n{order}", settings=given)
        for kind in ("order", "agreement"):
            for found in score_pairs(load(f"n{order}"), pairs_of(kind), kind, Scoring()):
                shares[order, kind, found.group] = found
    assert shares[1, "order", None].ties == 200 and shares[1, "order", None].share == 0.5
    assert shares[3, "order", None].share > 0.95
    assert shares[3, "agreement", "0 attractors"].low > 0.5
    assert all(shares[3, "agreement", f"{n} attractors"].high < 0.5 for n in (2, 3, 4, 5))
