"""Files of word vectors in the text formats of word2vec and of GloVe (without a header line).

A line of numbers says how many words there are and how wide their vectors (word2vec only); then a
line for each word has the word and its numbers, apart by spaces.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.settings import DataConfig, require
from seqgen.store.formats import ImportedModel
from seqgen.text import packing
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.base import SPECIALS
from seqgen.text.tokenizers.word import WhitespaceTokenizer

# What word2vec calls the end of a line.
LINE_END = "</s>"


def write(words: Sequence[str], vectors: np.ndarray, head: bool) -> Iterator[bytes]:
    """Yield the lines of a file of word vectors, with digits enough for exact float32 values.

    Words with ASCII white space in them, which the format cannot hold, are left out.

    Args:
        words: N of them.
        vectors: (N, D) float32.
        head: begin with the numbers of words and of dimensions, as word2vec does.
    """
    whole = [place for place, word in enumerate(words) if is_field(word)]
    if head:
        yield f"{len(whole)} {vectors.shape[1]}\n".encode()
    for place in whole:
        yield f"{words[place]} {numbers(vectors[place])}\n".encode()


def numbers(vector: Iterable[float]) -> str:
    """Format a vector as numbers separated by spaces."""
    return " ".join(f"{x:.9g}" for x in vector)


def npy(vectors: np.ndarray) -> bytes:
    """Encode an array as the bytes of an `.npy` file."""
    file = io.BytesIO()
    np.save(file, vectors)
    return file.getvalue()


def read(lines: Iterable[bytes], path: str) -> tuple[list[str], np.ndarray]:
    """Parse words and their vectors (N, D) float32.

    Args:
        lines: of the file.
        path: what messages call it.

    Raises:
        SeqgenError: a line has another form, a word occurs twice, or lines are missing.
    """
    words: dict[str, None] = {}
    rows: list[np.ndarray] = []
    head: tuple[int, int] | None = None
    for number, raw in enumerate(lines, start=1):
        fields = raw.split()
        if number == 1 and is_head(raw):
            head = int(fields[0]), int(fields[1])
            continue
        if not fields:
            continue
        word, row = _row(fields, head[1] if head else len(rows[0]) if rows else None, path, number)
        if word in words:
            raise SeqgenError(f"{path}, line {number}: the word {word!r} occurs twice")
        words[word] = None
        rows.append(row)
    if head is not None and len(rows) != head[0]:
        raise SeqgenError(f"{path} has {len(rows):,} words, but its first line says {head[0]:,}")
    if not rows:
        raise SeqgenError(f"{path} has no vectors")
    return list(words), np.stack(rows)


def is_head(line: bytes) -> bool:
    """Check whether a line is word2vec's header: two integers."""
    fields = line.split()
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def begins(line: bytes) -> bool:
    """Check whether a first line may start a file of vectors: a header or a word's vector."""
    return is_head(line) or is_row(line)


def is_vectors(path: Path) -> bool:
    """Check whether a file, possibly compressed, starts like a file of vectors."""
    with packing.open_packed(path) as lines:
        first = next(iter(lines), b"")[: 1 << 20]
    return first.startswith(b"\x93NUMPY") or begins(first)


def is_row(line: bytes) -> bool:
    """Check whether a line consists of a word and its vector."""
    fields = line.split()
    try:
        return len(fields) > 2 and bool(np.isfinite(np.array(fields[1:], dtype=float)).all())
    except ValueError:
        return False


def _row(
    fields: Sequence[bytes], width: int | None, path: str, number: int
) -> tuple[str, np.ndarray]:
    """Parse a line into a word and its vector."""
    where = f"{path}, line {number}"
    size = len(fields) - 1 if width is None else width
    if len(fields) != 1 + size or size < 1:
        raise SeqgenError(f"{where}: a word and {size:,} numbers are expected")
    try:
        word, row = fields[0].decode(), np.array(fields[1:], dtype=np.float32)
    except ValueError:  # a number, or UTF-8
        raise SeqgenError(f"{where} is not a word in UTF-8 with its numbers") from None
    if not np.isfinite(row).all():
        raise SeqgenError(f"{where} has a number that is not finite")
    return word, row


# A file of a vocabulary of our own has tokens that are no words for others.
SPELLED = {LINE_END: "\n"}


def read_model(
    lines: Iterable[bytes], path: Path, like: tuple[Tokenizer, DataConfig] | None
) -> ImportedModel:
    """Import vectors in word2vec's or GloVe's text format; see `store.formats.LineImporter`.

    The vectors are those of words at the centre; those of the context are zeros. A word's `</s>`
    is the end of a line. What has no vector, such as `<unk>`, has zeros.
    """
    import torch

    from seqgen.plugins.vectors.models.settings import Word2VecConfig
    from seqgen.plugins.vectors.models.word2vec import Word2Vec

    require(like is None, "--like is for n-gram models: vectors come with their own words")
    words, vectors = read(lines, str(path))
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
    return ImportedModel("word2vec", model, tokenizer, data, framing, {})


def is_field(text: str) -> bool:
    """Check whether a text contains no ASCII white space and so is one field of a line.

    Programs that read vectors of words split at these characters alone, as word2vec does.
    """
    return text.encode().split() == [text.encode()]
