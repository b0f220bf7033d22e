"""Minimal pairs: preferences, groups, ties, and files of another form."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from architectures import CASES
from known_models import loaded_as

from seqgen.errors import SeqgenError
from seqgen.plugins.minimal_pairs.scoring import Pair, read_pairs, score_pairs
from seqgen.scoring.surprisal import score_lines
from seqgen.settings.scoring import Scoring
from seqgen.store import StoredModel
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.word import WhitespaceTokenizer

LETTERS = CharTokenizer("\nab")


class Unstored(StoredModel):
    """A model that is on no disk."""

    digest = "0" * 64


def of_lines(model, tokenizer=LETTERS):
    return replace(loaded_as(model, tokenizer, "line"), stored=Unstored(Path("m")))


def case_of(architecture, variant=None):
    return next(
        case
        for case in CASES
        if case.architecture == architecture and variant in (None, case.variant)
    )


def nats(loaded, text):
    """Return the log-probability of a line, from one call of the model."""
    framing = loaded.framing_of("line")
    targets = [*loaded.tokenizer.encode(text).tolist(), framing.end]
    logits, _ = loaded.model(torch.tensor([[framing.start, *targets[:-1]]]))
    return logits[0].log_softmax(-1)[range(len(targets)), targets].sum().item()


def test_a_unigram_model_ties_on_word_order():
    tokenizer = WhitespaceTokenizer(["the", "cat", "sat", "on", "mat"])
    model = case_of("ngram", "add-delta").build(vocab_size=tokenizer.vocab_size, order=1)
    pairs = [Pair("the cat sat on the mat", "the mat cat on sat the")] * 3
    (found,) = score_pairs(of_lines(model, tokenizer), pairs, "f", Scoring())
    assert (found.ties, found.preferred, found.share) == (3, 0, 0.5)


def test_two_impossible_texts_are_a_tie():
    model, text = case_of("ngram", "maximum-likelihood").build(), "abba" * 9
    loaded = of_lines(model)
    assert all(line.totals.bits == math.inf for line in score_lines(loaded, [text], Scoring()))
    (found,) = score_pairs(loaded, [Pair(text, text + "a")], "f", Scoring())
    assert (found.ties, found.share) == (1, 0.5)


def test_pairs_are_scored_whole_and_by_group():
    loaded = of_lines(case_of("lstm").loud())
    pairs = [Pair("ab", "ba", "x"), Pair("a", "b", "y"), Pair("b", "a", "y"), Pair("a", "a", "x")]
    better = nats(loaded, "ab") > nats(loaded, "ba")
    x, y, every = score_pairs(loaded, pairs, "f", Scoring())
    assert (x.group, x.pairs, x.ties, x.preferred) == ("x", 2, 1, better)
    assert (y.group, y.pairs, y.ties, y.preferred, y.share) == ("y", 2, 0, 1, 0.5)
    assert (every.group, every.pairs, every.ties) == (None, 4, 1)
    assert every.low < every.share < every.high


def test_pairs_of_another_form_are_refused():
    assert read_pairs(["a\tb\nc\td\te\n"], "f") == [Pair("a", "b"), Pair("c", "d", "e")]
    with pytest.raises(SeqgenError, match=r"f, line 2: .* not 1 columns"):
        read_pairs(["a\tb\nc\n"], "f")
    with pytest.raises(SeqgenError, match="contains no pair"):
        read_pairs([], "f")


def test_crlf_does_not_count_against_the_worse_text():
    assert read_pairs(["a\tb\r\nc\td\te\r\n"], "f") == [Pair("a", "b"), Pair("c", "d", "e")]
