"""Vectors of words from other tools, as a model of seqgen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from seqgen.configs import DataConfig, require
from seqgen.data.framing import Framing
from seqgen.formats import Imported, word_vectors
from seqgen.models.words.word2vec import Word2Vec, Word2VecConfig
from seqgen.tokenizers import Tokenizer, WhitespaceTokenizer
from seqgen.tokenizers.base import SPECIALS

# A file of a vocabulary of our own has tokens that are no words for others.
SPELLED = {word_vectors.LINE_END: "\n"}


def read_model(
    lines: Iterable[bytes], path: Path, like: tuple[Tokenizer, DataConfig] | None
) -> Imported:
    """Read vectors in word2vec's text format, or in GloVe's; see `formats.Importer`.

    The vectors are those of words at the centre; those of the context are zeros. A word's `</s>`
    is the end of a line. What has no vector, such as `<unk>`, has zeros.
    """
    require(like is None, "--like is for n-gram models: vectors come with their own words")
    words, vectors = word_vectors.read(lines, str(path))
    words = [SPELLED.get(word, word) for word in words]
    tokenizer = WhitespaceTokenizer(word for word in words if word not in SPECIALS)
    shape = {"vocab_size": tokenizer.vocab_size, "embedding_size": vectors.shape[1]}
    model = Word2Vec(Word2VecConfig(**shape))
    table = np.zeros((tokenizer.vocab_size, vectors.shape[1]), np.float32)
    ids = {word: i for i, word in enumerate(tokenizer.vocabulary)}
    table[[ids[word] for word in words]] = vectors
    model.embedding.weight.data = torch.from_numpy(table)
    data = DataConfig(tokenizer=tokenizer.kind, val="none")
    framing = Framing.of(tokenizer, data.documents)
    return Imported("word2vec", model, tokenizer, data, framing, {})
