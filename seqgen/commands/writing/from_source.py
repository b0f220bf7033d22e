"""What is asked of a model that writes from sources, and what is reported about its texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqgen import registry, store
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.source_attention import (
    Attention,
    align,
    by_words,
    check_heads,
    pharaoh,
    pieces_of,
    whole_words,
    word_numbers,
)
from seqgen.commands.writing.prompts import Prompt, read_prompt
from seqgen.commands.writing.records import Look, OfSource
from seqgen.configs import Options, require
from seqgen.configs.decoding import Heads, LookOptions, SourceOptions
from seqgen.data.sources import Vectors
from seqgen.decoding.continuation import Continuation
from seqgen.tokenizers import Decoder, Tokenizer


def check_stored(options: Options, model: str | Path | None) -> None:
    """Refuse a stored model of text before it is loaded; see `check_sources`.

    Args:
        options: what is asked of a model that writes from sources.
        model: its name or path, a mixture, or None for the latest.

    Raises:
        UsageError: it is one, and something is asked of its sources.
    """
    if not options.given:
        return
    stored = store.find_all(model)
    first = getattr(stored, "parts", (stored,))[0]
    row = registry.known_architecture(first.config["architecture"])
    labels = " with labels" if first.config["data"].get("labels") else ""
    require(
        row is None or row.task.takes_targets or row.task.model_is is not None,
        f"{options.given[0]} is for models that write from sources; {stored.name} is a model of "
        f"text{labels}",
    )


def check_sources(options: LookOptions, loaded: LoadedModel, attention: bool = False) -> None:
    """Refuse a model that cannot do what is asked.

    Args:
        options: what is asked of its sources.
        loaded: the model.
        attention: something else needs its attention.

    Raises:
        UsageError: it is a model of text; it has no attention, or not that layer or head.
    """
    for flag in options.given:
        loaded.given.require_sources(flag)
    words = [flag for flag in ("--align-words", "--copy-unknown") if flag in options.given]
    has_words = loaded.source_tokenizer is not None or not words
    name = loaded.stored.name
    require(has_words, f"{words and words[0]} is for sources of words; {name} reads vectors")
    if attention or options.looks:
        check_heads(options.heads, loaded)
    else:
        chosen = options.heads != Heads()
        require(not chosen, "--layer and --head are for --attention: add that, or --align")


def never_written(options: SourceOptions, loaded: LoadedModel) -> tuple[int, ...]:
    """Return the ids that are never written."""
    allowed = (loaded.tokenizer.unk_id,) if options.copy_unknown else ()
    return tuple(token for token in loaded.never if token not in allowed)


class CopyingDecoder(Decoder):
    """Writes a word in the place of each unknown token.

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
    """Return the UTF-8 bytes that each token adds to a text; none past the text's end.

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
    """Reads finished texts once more, with their source: one pass for all texts of a source.

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
    ) -> Iterator[tuple[str, OfSource]]:
        """Yield every text that was written from one source, and what its record has besides.

        Args:
            prompt: the source.
            written: the ids of the texts, as they were drawn.
            begin: opens a text over a decoder.
        """
        read: list[np.ndarray | None] = [None] * len(written)
        if self.options.looks:
            read = Attention(self.loaded, prompt.source_tokens)(written)
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
            look = None
            if weights is not None:
                pieces = written_pieces(decoders[1], ids, self.loaded.framing.stops, text.text)
                look = self.look(prompt, ids, weights, pieces)
            yield text.text, replace(prompt.of_source, look=look)

    def look(
        self, prompt: Prompt, ids: Sequence[int], weights: np.ndarray, pieces: Sequence[bytes]
    ) -> Look:
        """Return what is asked for of a text's attention.

        Args:
            prompt: the source.
            ids: T tokens of the text.
            weights: (layers, heads, T, L).
            pieces: what each token adds to the text, in UTF-8.
        """
        options = self.options
        alignment = None
        if options.align or options.align_words:
            written = sum(token not in self.loaded.framing.stops for token in ids)
            mean = options.heads.mean(weights)[:written, prompt.content]
            if options.align_words:
                of_source = word_numbers(pieces_of(self.loaded.source_tokenizer, prompt.source))
                mean = by_words(mean, word_numbers(pieces[:written]), of_source)
            alignment = pharaoh(align(mean))
        return Look(
            attention=weights if options.attention else None,
            target_pieces=self.loaded.tokenizer.pieces(ids),
            source_pieces=self.source_pieces(prompt),
            alignment=alignment,
        )

    def source_pieces(self, prompt: Prompt) -> list[str]:
        """Return what a source's places are called: its tokens, or the numbers of its vectors."""
        if isinstance(prompt.source_tokens, Vectors):
            return [str(place) for place in range(prompt.places)]
        return self.loaded.source_tokenizer.pieces(prompt.source_tokens)

    def look_at(self, pair: tuple[str | Vectors, str], ids: Sequence[int]) -> Look:
        """Return what is asked for of the attention of a target that was given.

        Args:
            pair: a source, and the target.
            ids: the target's tokens, with its end.
        """
        source, target = pair
        prompt = read_prompt(self.loaded, 0, source)
        (weights,) = Attention(self.loaded, prompt.source_tokens)([ids])
        return self.look(prompt, ids, weights, pieces_of(self.loaded.tokenizer, target))

    def words_for_unknown(
        self, source: str, ids: Sequence[int], weights: np.ndarray
    ) -> Iterator[str]:
        """Yield for each `<unk>` of a text the source word that it reads most.

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
