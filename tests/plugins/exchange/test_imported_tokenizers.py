"""`seqgen tokenize` with tokenizers of imported models: tokens may cross the ends of lines."""

import re
from functools import partial

import hf_models
import pytest
import sentencepiece
from helpers_io import cut, places, quick, texts
from hf_models import QWEN, byte_level, metaspace, sentencepiece_model
from hypothesis import given
from hypothesis import strategies as st

from seqgen.plugins.exchange.imported_tokenizers import (
    HuggingFaceTokenizer,
    WholeSentencepieceTokenizer,
)
from seqgen.text.corpus import encode_corpus
from seqgen.text.framing import Framing
from seqgen.training.datasets.tokenizing import tokenize


def from_elsewhere(kind):
    """Return a tokenizer, and what encodes a whole text with the library that it comes from."""
    if kind == "sentencepiece":
        content = sentencepiece_model([line for line in hf_models.TEXT.split("\n") if line], 300)
        own = sentencepiece.SentencePieceProcessor(model_proto=content)
        return WholeSentencepieceTokenizer(content), own.encode
    makers = {"metaspace": metaspace, "gpt2": byte_level, "qwen": partial(byte_level, pattern=QWEN)}
    library = makers[kind]()
    made = HuggingFaceTokenizer(library.to_str().encode())
    return made, lambda text: library.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module", params=["metaspace", "gpt2", "qwen", "sentencepiece"])
def elsewhere(request):
    return from_elsewhere(request.param)


WORDS = [*hf_models.TEXT.split(" "), "\n", "\n\n"]


@quick
@given(texts=texts | st.lists(st.sampled_from(WORDS)), at=places)
def test_a_text_has_the_ids_that_a_model_reads(elsewhere, texts, at):
    tokenizer, encode = elsewhere
    text = "".join(texts)
    lines = [line for lines in tokenize(cut(text, at), tokenizer) for line in lines]
    assert [i for line in lines for i in line.ids] == encode(text)
    assert [line.text for line in lines] == [x for x in re.split(r"(?<=\n)", text) if x]
    assert [line.index for line in lines] == list(range(len(lines)))


def test_the_ids_are_those_of_training_and_scoring(elsewhere, tmp_path, cli):
    tokenizer, _ = elsewhere
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "text").write_text(hf_models.TEXT)
    _, out, _ = cli("tokenize", tmp_path / "text", "--tokenizer", tmp_path / "tokenizer")
    written = out.split("\n")
    framing = Framing(start=0, end=None, stop=None)  # these name no token that begins texts
    corpus = encode_corpus([hf_models.TEXT], tokenizer, "stream", framing=framing)
    assert " ".join(written).split() == list(map(str, corpus.tokens.tolist()))
    assert len(written) == hf_models.TEXT.count("\n") + 1


def test_a_target_is_read_without_its_newline(elsewhere):
    tokenizer, encode = elsewhere
    ((pair,),) = tokenize(["the cat\tthe dog\n"], tokenizer, "stream", tokenizer)
    assert (pair.source_ids, pair.ids) == (encode("the cat"), encode("the dog"))
