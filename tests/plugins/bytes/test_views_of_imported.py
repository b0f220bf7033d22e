"""Views of models whose tokenizers come from elsewhere, in the forms that are common there."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from examples import examples
from helpers_cli import has_plugin
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_model import PrefixModel

from seqgen.plugins.bytes.covers import Segmentation
from seqgen.plugins.bytes.view import keeps_texts, seen_by_bytes
from seqgen.text.framing import Framing
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.skipif(not has_plugin("exchange"), reason="needs the plugin exchange")
TEXT = ["the cat's sat on the mat, 12 times.\n\nIt'll be\tthe king 345!\n  so, he said"] * 20
# What every byte-level pattern splits in its own way, depending on what follows.
PIECES = ["the", " cat", "'s", "'ll", "12", " ", "  ", "\n", "\t", "\u00a0", "\u2028", "\u0085"]
PIECES += ["\u3000", "\u00e9", "e\u0301", "\u4e2d", "\U0001f600", "!", ", ", "A", "ing", "\u2581"]


@functools.cache
def tokenizer_of(form):
    """Train a tokenizer of a form: byte-level as GPT-2's, or with byte fallback as Gemma's."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    from seqgen.plugins.exchange.imported_tokenizers import PATTERNS, HuggingFaceTokenizer

    if form in ("gemma", "llama-2"):
        library = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        spaces = normalizers.Replace(" ", "\u2581")
        steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        if form == "llama-2":
            spaces = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces])
            steps.append(decoders.Strip(" ", 1, 0))
        library.normalizer, library.decoder = spaces, decoders.Sequence(steps)
        special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False)
    else:
        level = pre_tokenizers.ByteLevel
        library = Tokenizer(models.BPE())
        library.pre_tokenizer = level(add_prefix_space=form == "prefix-space")
        if form in PATTERNS:
            split = pre_tokenizers.Split(Regex(PATTERNS[form]), "isolated")
            plain = level(add_prefix_space=False, use_regex=False)
            library.pre_tokenizer = pre_tokenizers.Sequence([split, plain])
        library.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=330,
            initial_alphabet=level.alphabet(),
            special_tokens=["<|endoftext|>"],
            show_progress=False,
        )
    library.train_from_iterator(TEXT, trainer)
    content = json.loads(library.to_str())
    names = "<unk>", "<s>", "</s>", "<|endoftext|>"  # and not those of bytes
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] in names]
    return HuggingFaceTokenizer(json.dumps(content).encode())


KEEPING = ("gpt-2", "llama-bpe", "tekken", "gemma")


@pytest.mark.parametrize("form", [*KEEPING, "prefix-space", "llama-2"])
def test_tokenizers_that_put_a_space_before_a_text_have_no_view(form):
    assert keeps_texts(tokenizer_of(form)) == (form in KEEPING)


@pytest.mark.parametrize("form", KEEPING)
@settings(deadline=None, max_examples=examples(60), derandomize=True)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40))
def test_the_tokenizers_own_split_is_known_as_its_own(form, pieces):
    tokenizer = tokenizer_of(form)
    text = "".join(pieces)
    if form == "gemma":
        text = text.replace("\u2581", "")  # it comes back as a space
    segmentation = Segmentation(tokenizer, False)
    ids = tokenizer.encode_as_text(text).tolist()
    assert b"".join(segmentation.texts[token] for token in ids) == text.encode()
    for place, token in enumerate(ids):
        path = segmentation.path_of(ids[:place])
        assert segmentation.is_own(path, token, segmentation.texts[token])


@pytest.mark.parametrize("form", KEEPING)
def test_bytes_are_at_least_as_probable_as_the_tokens_of_the_text(form):
    """White space beyond ASCII and characters that are tokens of single bytes included."""
    tokenizer = tokenizer_of(form)
    model = PrefixModel(tokenizer.vocab_size, 3)
    start = 1 if form == "gemma" else 0
    framing = Framing(start, None, start, ())
    for text in ("the cat \u00a0: \u4e2d\U0001f600", "x\u2028 y\u0085\u0085 z\n\n\u2003 \u2003a"):
        state, token, nats = model.start(1), start, 0.0
        for following in tokenizer.encode_as_text(text).tolist():
            log_probs, state = model.step([token], state)
            nats, token = nats - log_probs[0, following], following
        view = seen_by_bytes(model, Segmentation(tokenizer, False), framing, 64, 0.0)
        state, of_bytes = view.start(1), 0.0
        byte = ByteTokenizer.bos_id
        for following in text.encode():
            log_probs, state = view.step([byte], state)
            byte = OFFSET + following
            of_bytes -= log_probs[0, byte]
        assert np.isfinite(of_bytes) and of_bytes <= nats + 1e-6
