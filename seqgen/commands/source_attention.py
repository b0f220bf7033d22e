"""What a model reads of a source: attention, alignment, and how much of the source is covered.

All of it comes from one forced pass over a text that is finished, never from a step of decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from seqgen.commands.loaded import LoadedModel
from seqgen.configs import require
from seqgen.configs.decoding import Heads
from seqgen.data.sources import Vectors, handles_of
from seqgen.models.engines.ops import ops_of
from seqgen.models.reader import without_gradients
from seqgen.tokenizers import Tokenizer

# What a place is covered at least, so that the logarithm of its coverage is finite.
LEAST_COVERAGE = float(np.finfo(np.float32).tiny)


def check_heads(heads: Heads, loaded: LoadedModel) -> None:
    """Refuse a model that has no attention over its source, or not this layer or head.

    Raises:
        UsageError: says what is missing.
    """
    end = loaded.framing.end
    nothing: tuple[int, ...] | Vectors = (end,)
    if loaded.given.features is not None:
        nothing = Vectors(np.zeros((1, loaded.given.features), np.float32))
    (weights,) = Attention(loaded, nothing)([[end]])
    shape, name = weights.shape, loaded.stored.name
    for flag, given, there in (("layer", heads.layer, shape[0]), ("head", heads.head, shape[1])):
        fits = given is None or 0 <= given < there
        require(fits, f"--{flag} is from 0 to {there - 1} for {name}, not {given}")


class Attention:
    """How texts read one source, which is encoded once.

    Args:
        loaded: the model.
        source: the ids of L tokens, the end included; or L vectors.
    """

    @without_gradients
    def __init__(self, loaded: LoadedModel, source: Sequence[int] | Vectors) -> None:
        self.model, self.start = loaded.model, loaded.framing.start
        sources, _ = handles_of([source if isinstance(source, Vectors) else tuple(source)])
        self.memory = self.model.remember(sources.rows([0]))

    @without_gradients
    def __call__(self, targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Return how much each token of some targets reads of each place of the source.

        Args:
            targets: ids of whole texts, without the start symbol.

        Returns:
            For each target (layers, heads, T, L) float32: what the model reads to predict each of
            its T tokens. Every row of L sums to one.

        Raises:
            UsageError: the model has no attention.
        """
        longest = max(1, *map(len, targets))
        # What stands past a row's end is read by nothing before it, and is cut off.
        read = np.full((len(targets), longest), self.start, np.int64)
        for row, target in zip(read, targets, strict=True):
            row[1 : len(target)] = target[:-1]
        memory = self.memory.select([0] * len(targets))
        weights = self.model.attend(self.model.ids(read), memory)  # (B, layers, heads, T, L)
        weights = ops_of(weights).array(weights).astype(np.float32)
        return [one[:, :, : len(target)] for one, target in zip(weights, targets, strict=True)]


def coverage_penalty(weights: np.ndarray, beta: float) -> float:
    """Return beta sum_i log(min(sum_j p_ij, 1)), at most 0 (Wu et al. 2016, equation 14).

    Args:
        weights: (T, L), p_ij with target token j in row j and source token i in column i. The
            source's end is no token of it and is left out.
        beta: at least 0.
    """
    covered = weights.sum(0, dtype=np.float64).clip(LEAST_COVERAGE, 1.0)  # (L,)
    return beta * float(np.log(covered).sum())


def align(weights: np.ndarray) -> list[tuple[int, int]]:
    """Return for each target token the source token that it reads most, as (source, target).

    Args:
        weights: (T, L), without the ends of source and target.
    """
    if weights.shape[1] == 0:
        return []
    return [(place, token) for token, place in enumerate(weights.argmax(1).tolist())]


def by_words(
    weights: np.ndarray, target_words: Sequence[int | None], source_words: Sequence[int | None]
) -> np.ndarray:
    """Add up attention between words, (target words, source words).

    Args:
        weights: (T, L), without the ends of source and target.
        target_words: for each target token the number of its word; None for white space.
        source_words: the same of the source's tokens.
    """
    sides = target_words, source_words
    summed = np.zeros([1 + max((w for w in side if w is not None), default=-1) for side in sides])
    rows, columns = ([n for n, word in enumerate(side) if word is not None] for side in sides)
    for row in rows:
        for column in columns:
            summed[target_words[row], source_words[column]] += weights[row, column]
    return summed


def pharaoh(alignment: Sequence[tuple[int, int]]) -> str:
    """Return an alignment as `i-j` pairs, source before target, both counted from 0."""
    return " ".join(f"{place}-{token}" for place, token in alignment)


def pieces_of(tokenizer: Tokenizer, text: str) -> list[bytes]:
    """Return the UTF-8 bytes that each token of a text stands for, those of unknowns as well."""
    raw, ends = text.encode(), tokenizer.byte_ends(text).tolist()
    return [raw[begin:end] for begin, end in pairwise([0, *ends])]


def word_numbers(pieces: Sequence[bytes]) -> list[int | None]:
    """Return for each piece of a text the number of the word that it is in, or begins first.

    Words are what white space separates; None for pieces that are white space, or nothing.
    """
    of_bytes: list[int | None] = []
    word, inside = -1, False
    for character in b"".join(pieces).decode():
        begins = not character.isspace() and not inside
        inside = not character.isspace()
        word += begins
        of_bytes += [word if inside else None] * len(character.encode())
    ends = np.cumsum([0, *map(len, pieces)]).tolist()
    spans = (of_bytes[begin:end] for begin, end in pairwise(ends))
    return [next((word for word in span if word is not None), None) for span in spans]


def whole_words(pieces: Sequence[bytes], words: Sequence[bytes]) -> list[str]:
    """Return for each piece of a text the words that it is a part of, or that are parts of it.

    Args:
        pieces: the UTF-8 bytes of the text's pieces.
        words: those of the words that the same text is cut into.

    Returns:
        A text for each piece, without white space around it; empty for white space, or nothing.
    """
    raw = b"".join(pieces)
    ends, borders = (np.cumsum([0, *map(len, of)]).tolist() for of in (pieces, words))
    found = []
    for piece, number, (begin, end) in zip(
        pieces, word_numbers(pieces), pairwise(ends), strict=True
    ):
        begin += len(piece) - len(piece.lstrip())
        spans = [(a, b) for a, b in pairwise(borders) if a < end and b > begin]
        first, last = min([begin, *(a for a, _ in spans)]), max([end, *(b for _, b in spans)])
        found.append("" if number is None else raw[first:last].decode(errors="ignore").strip())
    return found
