"""Attention to the source: options checked for a model, alignment, copying of unknown words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.ops import ops_of, without_gradients
from seqgen.generation.prompts import (
    AttentionRecord,
    Prompt,
    SourceFields,
    read_prompt,
)
from seqgen.settings import require
from seqgen.settings.generation import ChosenHeads, LookOptions, SourceOptions
from seqgen.text.sources import Vectors, deduplicate_sources
from seqgen.text.tokenizers import Decoder, Tokenizer

if TYPE_CHECKING:
    from seqgen.generation.continuation import Continuation
    from seqgen.store.loaded import LoadedModel


def check_sources(options: LookOptions, loaded: LoadedModel, attention: bool = False) -> None:
    """Raise an error if a model does not support the requested source options.

    Args:
        options: what is asked of its sources.
        loaded: the model.
        attention: something else needs its attention.

    Raises:
        UsageError: it is a model of text; it has no attention, or not that layer or head.
    """
    for flag in options.given:
        loaded.conditioning.require_sources(flag)
    words = [flag for flag in ("--align-words", "--copy-unknown") if flag in options.given]
    has_words = loaded.source_tokenizer is not None or not words
    name = loaded.stored.name
    require(has_words, f"{words and words[0]} is for sources of words; {name} reads vectors")
    if attention or options.needs_attention:
        check_heads(options.heads, loaded)
    else:
        chosen = options.heads != ChosenHeads()
        require(not chosen, "--layer and --head are for --attention: add that, or --align")


class CopyingDecoder(Decoder):
    """Decoder that replaces each unknown token by a source word.

    Args:
        inner: decodes all tokens.
        tokenizer: whose ids they are.
        words: one for each unknown token, in order.
    """

    def __init__(self, inner: Decoder, tokenizer: Tokenizer, words: Sequence[str]) -> None:
        self.inner, self.tokenizer, self.words = inner, tokenizer, iter(words)
        self.stand_in = tokenizer.decode([tokenizer.unk_id])
        self.text = ""

    def push(self, token: int) -> str:
        piece = self.inner.push(token)
        if token == self.tokenizer.unk_id:
            before, _, after = piece.partition(self.stand_in)
            word = self.tokenizer.copied(next(self.words), self.text + before)
            piece = before + word + after
        self.text += piece
        return piece

    def flush(self) -> str:
        return self.inner.flush()


def written_pieces(
    decoder: Decoder, ids: Sequence[int], ends: Collection[int], text: str
) -> list[bytes]:
    """Split a text into the UTF-8 bytes that each token adds; empty after the text's end.

    The tokens of one character have a byte each, but for the last one, which has the rest.

    Args:
        decoder: of the tokens.
        ids: the tokens, with the end and a stop string's, if there are any.
        ends: the ids that end a text.
        text: what is shown of them.
    """
    pieces, waiting, room = [], 0, len(text.encode())
    for token in ids:
        piece = b"" if token in ends else decoder.push(token).encode()
        piece = piece[:room]
        room -= len(piece)
        if not piece:
            waiting += 1
            pieces.append(piece)
            continue
        for place in range(len(pieces) - waiting, len(pieces)):
            if len(piece) > 1:
                pieces[place], piece = piece[:1], piece[1:]
        pieces.append(piece)
        waiting = 0
    return pieces


@dataclass(frozen=True)
class SourceReader:
    """Computes attention and alignment of finished texts by one more pass over text and source.

    Args:
        loaded: the model.
        options: what is asked.
    """

    loaded: LoadedModel
    options: LookOptions

    def finish(
        self,
        prompt: Prompt,
        written: Sequence[Sequence[int]],
        begin: Callable[[Decoder], Continuation],
    ) -> Iterator[tuple[str, SourceFields]]:
        """Yield each text generated from a source, with the record fields about the source.

        Args:
            prompt: the source.
            written: the ids of the texts, as they were drawn.
            begin: opens a text over a decoder.
        """
        read: list[np.ndarray | None] = [None] * len(written)
        if self.options.needs_attention:
            read = AttentionToSource(self.loaded, prompt.source_tokens)(written)
        tokenizer = self.loaded.tokenizer
        for ids, weights in zip(written, read, strict=True):
            decoders = [tokenizer.decoder(prompt.tokens) for _ in range(2)]
            if isinstance(self.options, SourceOptions) and self.options.copy_unknown:
                words = list(self.words_for_unknown(prompt.source, ids, weights))
                decoders = [CopyingDecoder(inner, tokenizer, words) for inner in decoders]
            text = begin(decoders[0])
            for token in ids:
                if not text.finish_reason:  # words that were copied may end the text before
                    text.push(token)
            record = None
            if weights is not None:
                pieces = written_pieces(decoders[1], ids, self.loaded.framing.stops, text.text)
                record = self.look(prompt, ids, weights, pieces)
            yield text.text, replace(prompt.of_source, look=record)

    def look(
        self, prompt: Prompt, ids: Sequence[int], weights: np.ndarray, pieces: Sequence[bytes]
    ) -> AttentionRecord:
        """Build the attention record of a text from its attention weights.

        Args:
            prompt: the source.
            ids: T tokens of the text.
            weights: (layers, heads, T, L).
            pieces: what each token adds to the text, in UTF-8.
        """
        options = self.options
        alignment = None
        if options.align or options.align_words:
            count = sum(token not in self.loaded.framing.stops for token in ids)
            mean = options.heads.mean(weights)[:count, prompt.content]
            if options.align_words:
                of_source = word_numbers(pieces_of(self.loaded.source_tokenizer, prompt.source))
                mean = by_words(mean, word_numbers(pieces[:count]), of_source)
            alignment = pharaoh(align(mean))
        return AttentionRecord(
            attention=weights if options.attention else None,
            target_pieces=self.loaded.tokenizer.pieces(ids),
            source_pieces=self.source_pieces(prompt),
            alignment=alignment,
        )

    def source_pieces(self, prompt: Prompt) -> list[str]:
        """Label a source's positions: by its tokens, or by number for vectors."""
        if isinstance(prompt.source_tokens, Vectors):
            return [str(place) for place in range(prompt.places)]
        return self.loaded.source_tokenizer.pieces(prompt.source_tokens)

    def look_at(self, pair: tuple[str | Vectors, str], ids: Sequence[int]) -> AttentionRecord:
        """Build the attention record of a given target.

        Args:
            pair: a source, and the target.
            ids: the target's tokens, with its end.
        """
        source, target = pair
        prompt = read_prompt(self.loaded, 0, source)
        (weights,) = AttentionToSource(self.loaded, prompt.source_tokens)([ids])
        return self.look(prompt, ids, weights, pieces_of(self.loaded.tokenizer, target))

    def words_for_unknown(
        self, source: str, ids: Sequence[int], weights: np.ndarray
    ) -> Iterator[str]:
        """Yield the most attended source word for each `<unk>` of a text.

        The word is all that the target's tokenizer would take as one token, so that a source of
        characters or subwords is not copied in parts. White space and the source's end are not
        copied; a source that is empty gives nothing.
        """
        own, other = self.loaded.source_tokenizer, self.loaded.tokenizer
        words = whole_words(pieces_of(own, source), pieces_of(other, source))
        places = [place for place, word in enumerate(words) if word]
        mean = self.options.heads.mean(weights)[:, int(own.source_bos_id is not None) :]
        for row, token in zip(mean, ids, strict=True):
            if token == other.unk_id:
                yield words[max(places, key=row.__getitem__)] if places else ""


# What a place is covered at least, so that the logarithm of its coverage is finite.
LEAST_COVERAGE = float(np.finfo(np.float32).tiny)


def check_heads(heads: ChosenHeads, loaded: LoadedModel) -> None:
    """Raise an error if a model lacks attention to its source, or this layer or head.

    Raises:
        UsageError: says what is missing.
    """
    end = loaded.framing.end
    nothing: tuple[int, ...] | Vectors = (end,)
    if loaded.conditioning.features is not None:
        nothing = Vectors(np.zeros((1, loaded.conditioning.features), np.float32))
    (weights,) = AttentionToSource(loaded, nothing)([[end]])
    shape, name = weights.shape, loaded.stored.name
    for flag, given, there in (("layer", heads.layer, shape[0]), ("head", heads.head, shape[1])):
        fits = given is None or 0 <= given < there
        require(fits, f"--{flag} is from 0 to {there - 1} for {name}, not {given}")


class AttentionToSource:
    """Attention weights of texts over one source, which is encoded once.

    Args:
        loaded: the model.
        source: the ids of L tokens, the end included; or L vectors.
    """

    @without_gradients
    def __init__(self, loaded: LoadedModel, source: Sequence[int] | Vectors) -> None:
        self.model, self.start = loaded.model, loaded.framing.start
        sources, _ = deduplicate_sources([source if isinstance(source, Vectors) else tuple(source)])
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
    """Compute beta sum_i log(min(sum_j p_ij, 1)), at most 0 (Wu et al. 2016, equation 14).

    Args:
        weights: (T, L), p_ij with target token j in row j and source token i in column i. The
            source's end is no token of it and is left out.
        beta: at least 0.
    """
    covered = weights.sum(0, dtype=np.float64).clip(LEAST_COVERAGE, 1.0)  # (L,)
    return beta * float(np.log(covered).sum())


def align(weights: np.ndarray) -> list[tuple[int, int]]:
    """Align each target token with its most attended source token, as (source, target) pairs.

    Args:
        weights: (T, L), without the ends of source and target.
    """
    if weights.shape[1] == 0:
        return []
    return [(place, token) for token, place in enumerate(weights.argmax(1).tolist())]


def by_words(
    weights: np.ndarray, target_words: Sequence[int | None], source_words: Sequence[int | None]
) -> np.ndarray:
    """Sum attention over the tokens of words, giving (target words, source words).

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
    """Format an alignment as `i-j` pairs, source before target, both counted from 0."""
    return " ".join(f"{place}-{token}" for place, token in alignment)


def pieces_of(tokenizer: Tokenizer, text: str) -> list[bytes]:
    """Tokenize a text into pieces of UTF-8 bytes that keep the text of unknown tokens."""
    raw, ends = text.encode(), tokenizer.byte_ends(text).tolist()
    return [raw[begin:end] for begin, end in pairwise([0, *ends])]


def word_numbers(pieces: Sequence[bytes]) -> list[int | None]:
    """Number the words of a text; give each piece the number of its (first) word.

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
    """Find the words that each piece of a text overlaps.

    Args:
        pieces: the UTF-8 bytes of the text's pieces.
        words: those of the words that the same text is cut into.

    Returns:
        A text for each piece, without white space around it; empty for white space, or nothing.
    """
    raw = b"".join(pieces)
    ends, borders = (np.cumsum([0, *map(len, of)]).tolist() for of in (pieces, words))
    overlapped = []
    for piece, number, (begin, end) in zip(
        pieces, word_numbers(pieces), pairwise(ends), strict=True
    ):
        begin += len(piece) - len(piece.lstrip())
        spans = [(a, b) for a, b in pairwise(borders) if a < end and b > begin]
        first, last = min([begin, *(a for a, _ in spans)]), max([end, *(b for _, b in spans)])
        overlapped.append("" if number is None else raw[first:last].decode(errors="ignore").strip())
    return overlapped
