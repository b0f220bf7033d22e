"""Suggestions for a wrong name: the one that was meant, or none."""

from __future__ import annotations

import pytest
from helpers_cli import has_plugin

from seqgen.cli import all_commands
from seqgen.errors import closest, did_you_mean
from seqgen.registry import ARCHITECTURES
from seqgen.settings.training import TrainingConfig
from seqgen.text.tokenizers import KINDS

KNOWN = {
    "command": tuple(all_commands()),
    "architecture": tuple(ARCHITECTURES),
    "tokenizer": tuple(KINDS),
    "optimizer": ("adagrad", "adam", "adamw", "muon", "rmsprop", "sgd"),
    "setting": tuple(TrainingConfig.fields()),
    "subcommand": ("list", "show", "rename", "remove", "path", "cache"),
}
# What somebody typed, and what they meant: "" if it is none of the names.
TYPED = {
    "command": "trian train, smaple sample, sampel sample, Train train, TRAIN train, modles models,"
    "model models, bemsearch beam-search, beam_search beam-search, beam beam-search,"
    "perplxity perplexity, tokenise tokenize, tokenizer tokenize, perp perplexity, exprot export,"
    "finetune, fine, resume, gpt2, ls, list, rm, run, pull, download, generate, quantize, vi",
    "architecture": "LSTM lstm, Lstm lstm, GRU gru, lsmt lstm, lstn lstm, rrn rnn, n-gram ngram,"
    "tranformer transformer, transfomer transformer, Transformer transformer, gpt2, mistral, cat,"
    "opt, t5, phi",
    "tokenizer": "BPE bpe, bpee bpe, Word word, wrod word, chars char, unigrm unigram, tiktoken,"
    "sentencepiece, gpt2",
    "optimizer": "AdamW adamw, ADAM adam, adamv adam, Muon muon, SGD sgd, rms-prop rmsprop, lion,"
    "adafactor, lamb",
    "setting": "Seq-Len seq_len, batchsize batch_size, weight-decay weight_decay,"
    "num_epochs epochs, max_steps steps, colour, foo",
    "subcommand": "lst list, sohw show, remvoe remove, resume, restore, rm, delete",
}


@pytest.mark.parametrize(
    ("kind", "typed"), [(kind, one.strip()) for kind in TYPED for one in TYPED[kind].split(",")]
)
def test_a_suggestion_is_what_was_meant_or_none(kind, typed):
    word, _, meant = typed.partition(" ")
    if meant == "export" and not has_plugin("exchange"):
        pytest.skip("without the plugin exchange")
    assert closest(word, KNOWN[kind]) == (meant or None)


def test_suggestions_are_by_other_words_too():
    assert did_you_mean("Avarage", ["ema"], {"average": "ema"}) == "; did you mean 'ema'?"
    assert did_you_mean("average", ["lr"], {"average": "ema"}) == ""


def test_edits_are_counted_as_by_hand():
    """One swap, one insertion, one deletion, one change in nine characters; three are too many."""
    for near in ("perplexiyt", "perplexxity", "perplexit", "perplexitz", "prplexitz"):
        assert closest(near, ["perplexity"]) == "perplexity", near
    assert closest("prplaxitz", ["perplexity"]) is None
