"""Probabilities of bytes against sums over all sequences of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_model import PrefixModel
from small_vocabulary import SmallBPE

from seqgen.plugins.bytes.covers import Segmentation
from seqgen.plugins.bytes.view import seen_by_bytes
from seqgen.text.framing import Framing
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

START, END = ByteTokenizer.newline_id, ByteTokenizer.eos_id
FRAMING = Framing(1, 2, 2, (0, 1, 3))
quick = settings(deadline=None, max_examples=30, derandomize=True)
letters = st.sampled_from("abc")
texts = st.text(letters, max_size=8)
seeds = st.integers(0, 1 << 20)


@st.composite
def vocabularies(draw, most=36):
    """Draw 3 to `most` + 3 pieces, each merged of two before it."""
    pieces, merges = ["a", "b", "c"], []
    for _ in range(draw(st.integers(0, most))):
        pair = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        if len("".join(pair)) < 6 and "".join(pair) not in pieces:
            merges.append(pair)
            pieces.append("".join(pair))
    return SmallBPE(merges, draw(st.lists(st.sampled_from(pieces), max_size=2)))


def by_bytes(model, tokenizer, every, most=1 << 30, least=0.0, framing=FRAMING):
    return seen_by_bytes(model, Segmentation(tokenizer, every), framing, most, least)


def distributions(model, raw):
    """Return the probabilities (T + 1, 260) before each byte and after the last."""
    state, rows = model.start(1), []
    for token in (START, *(OFFSET + byte for byte in raw)):
        log_probs, state = model.step([token], state)
        rows.append(np.exp(log_probs[0]))
    return np.array(rows)


class BruteForce:
    """Sums over token sequences, each written out by recursion.

    A sequence covers some bytes if its text begins with them and its last token is needed for that.
    With `allowed`, it must allow all neighbours among the tokens that end before the last byte does,
    or, with the tokens that end with `settled`, before those do.
    """

    def __init__(self, model, tokenizer, allowed=lambda before, token: True):
        self.model, self.allowed = model, allowed
        self.tokens = range(4, tokenizer.vocab_size)
        self.texts = tokenizer.texts

    def total(self, text, settled=None, ended=False):
        settled = len(text) if settled is None else settled
        return self._sum((FRAMING.start,), text, 0, settled, ended)

    def _sum(self, tokens, rest, at, settled, ended):
        chances = self.model.chances(list(tokens))
        if not rest:
            return chances[2] if ended else 1.0
        total = 0.0
        for token in self.tokens:
            text = self.texts[token]
            end = at + len(text)
            if not (text.startswith(rest) or rest.startswith(text)):
                continue
            if end <= settled and not self.allowed(tokens[-1], token):
                continue
            if len(text) >= len(rest):
                if not ended or text == rest:
                    after = (*tokens, token)
                    total += chances[token] * (self.model.chances(list(after))[2] if ended else 1)
            else:
                after = self._sum((*tokens, token), rest[len(text) :], end, settled, ended)
                total += chances[token] * after
        return total


@given(tokenizer=vocabularies(), text=texts, seed=seeds)
@quick
def test_every_cover_counts(tokenizer, text, seed):
    model = PrefixModel(tokenizer.vocab_size, seed)
    brute = BruteForce(model, tokenizer)
    found = distributions(by_bytes(model, tokenizer, True), text.encode())
    assert found.sum(-1) == pytest.approx(1, abs=1e-9)
    for at, probs in enumerate(found):
        before = brute.total(text[:at])
        for letter in "abc":
            wanted = brute.total(text[:at] + letter) / before
            assert probs[OFFSET + ord(letter)] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        wanted = brute.total(text[:at], ended=True) / before
        assert probs[END] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        assert probs[OFFSET + ord("d")] == 0


@given(tokenizer=vocabularies(12), text=texts, seed=seeds)
@quick
def test_canonical_covers(tokenizer, text, seed):
    def allowed(before, token):
        pair = [token] if before == FRAMING.start else [before, token]
        return tokenizer.encode(tokenizer.decode(pair)).tolist() == pair

    model = PrefixModel(tokenizer.vocab_size, seed)
    brute = BruteForce(model, tokenizer, allowed)
    found = distributions(by_bytes(model, tokenizer, False), text.encode())
    assert found.sum(-1) == pytest.approx(1, abs=1e-9)
    for at, probs in enumerate(found):
        # Tokens that end with the next byte are not compared with the ones before them yet.
        sums = [brute.total(text[:at] + letter, settled=at) for letter in "abc"]
        other = probs[END] + probs[ByteTokenizer.unk_id]
        wanted = (1 - other) * np.array(sums) / sum(sums)
        assert probs[[OFFSET + ord(letter) for letter in "abc"]] == pytest.approx(wanted, rel=1e-9)
