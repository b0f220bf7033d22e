"""Prompts and sources as ids, in batches; record fields of texts that have a source."""

from __future__ import annotations

import codecs
import dataclasses
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.settings import shorten, why_not_utf8
from seqgen.text.sources import Vectors, features_of
from seqgen.wording import ShortRepr

if TYPE_CHECKING:
    from seqgen.generation.processors import PromptOverlap
    from seqgen.models.state import Opens
    from seqgen.store.loaded import LoadedModel


@dataclass(frozen=True)
class Prompt:
    """Prompt or source with its number, and its ids including start tokens.

    What a model that writes from sources is prompted with is a source: `text` is then empty, and
    `tokens` is the start symbol alone.

    Attributes:
        index: its number.
        text: what the text continues.
        tokens: its ids.
        source: what the text is written from; None for a model of text.
        source_tokens: its ids, with EOS at the end; or its vectors.
        source_unknown: how many of them are `<unk>`.
        source_begin: how many of them stand before the source's content.
        overlap: what the first token of the text has in common with the prompt; None for nothing.
        cut: the bytes after `text` of a character that lacks its last ones.
    """

    index: int
    text: str
    tokens: tuple[int, ...]
    source: str | Vectors | None = None
    source_tokens: tuple[int, ...] | Vectors = ()
    source_unknown: int = 0
    source_begin: int = 0
    overlap: PromptOverlap | None = None
    cut: bytes = b""

    @property
    def of_source(self) -> SourceFields | None:
        """Record fields about the source; None for a text model."""
        if self.source is None:
            return None
        return SourceFields(source=str(self.source), source_unknown=self.source_unknown)

    @property
    def places(self) -> int:
        """Number of tokens or vectors in the source, without begin and end tokens."""
        if isinstance(self.source_tokens, Vectors):
            return len(self.source_tokens.values)
        return len(self.source_tokens) - self.source_begin - 1

    @property
    def content(self) -> slice:
        """Slice of the source's positions without begin and end tokens."""
        return slice(self.source_begin, self.source_begin + self.places)


@dataclass(frozen=True)
class Lines:
    """Prompts that are lines of one text, such as standard input; errors name the line."""

    source: str
    lines: Iterable[str]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)


def batches(
    loaded: LoadedModel, prompts: Iterable[str | bytes | Vectors], size: int
) -> Iterator[list[Prompt]]:
    """Yield batches of up to `size` prompts, of those available without waiting.

    Bytes are UTF-8; only they may end inside a character.

    Raises:
        SeqgenError: a prompt is no text, or has something the model does not know; says what
            and where, after the prompts before it have been yielded.
    """
    index = 0
    for texts in available_batches(prompts, size):
        batch: list[Prompt] = []
        for text in texts:
            text, cut = whole_characters(text) if isinstance(text, bytes) else (text, b"")
            if isinstance(text, str):
                text = loaded.with_newlines(text, isinstance(prompts, Lines))
            problem = _problem(loaded, text, index, prompts)
            if problem is None:
                prompt = read_prompt(loaded, index, text)
                problem = _too_long(loaded, prompt, prompts)
            if problem is not None:
                if batch:
                    yield batch
                raise problem
            batch.append(dataclasses.replace(prompt, cut=cut))
            index += 1
        yield batch


def whole_characters(raw: bytes) -> tuple[str, bytes]:
    """Split UTF-8 into its whole characters and the bytes of one that is cut at the end.

    Bytes that are no UTF-8 become lone surrogates.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return decoder.decode(raw), decoder.getstate()[0]


def read_prompt(loaded: LoadedModel, index: int, text: str | Vectors) -> Prompt:
    """Encode a prompt, or a source, as ids or vectors."""
    start = loaded.framing.start
    tokenizer = loaded.source_tokenizer if loaded.conditioning.is_source else None
    if isinstance(text, Vectors):
        return Prompt(index, "", (start,), text, text)
    if tokenizer is None:
        return Prompt(index, text, loaded.framing.opened(loaded.ids(text)))
    ids = tuple(tokenizer.encode(text).tolist())
    unknown = ids.count(tokenizer.unk_id)
    begin = int(tokenizer.source_bos_id is not None)
    return Prompt(index, "", (start,), text, tokenizer.as_source(ids), unknown, begin)


def unknown_in_source(loaded: LoadedModel, source: str | Vectors) -> int:
    """Count the unknown tokens of a source; 0 for a text model."""
    return read_prompt(loaded, 0, source).source_unknown


def open_sources(loaded: LoadedModel, batch: Sequence[Prompt]) -> tuple[Opens | None, list[int]]:
    """Encode the sources of a batch; return a function that opens states, and each prompt's handle.

    None for a model of text, whose handles mean nothing; with labels, all texts have the same.

    Raises:
        UsageError: the model writes texts given labels, and none are chosen.
        SeqgenError: a prompt ends inside a character, and nothing has found tokens for that.
    """
    if (cut := next((prompt for prompt in batch if prompt.cut), None)) is not None:
        raise SeqgenError(f"prompt {cut.index} is not UTF-8 text: it ends inside a character")
    return loaded.conditioning.opens(loaded.model, [prompt.source_tokens for prompt in batch])


def _too_long(
    loaded: LoadedModel, prompt: Prompt, prompts: Iterable[str | Vectors]
) -> SeqgenError | None:
    """Describe the error of a source longer than the model's positions."""
    most = loaded.model.source_window
    if most is None:
        return None
    vectors = isinstance(prompt.source_tokens, Vectors)  # which have no end
    most -= 0 if vectors else 1 + prompt.source_begin
    if prompt.places <= most:
        return None
    what = f"prompt {prompt.index}"
    if isinstance(prompts, Lines):
        what = f"{prompts.source}: line {prompt.index + 1}"
    return SeqgenError(
        f"{what} has {prompt.places:,} {'vectors' if vectors else 'tokens'}, and "
        f"{loaded.stored.name} reads sources of at most {most:,}; give a shorter one"
    )


def _problem(
    loaded: LoadedModel, text: str | Vectors, index: int, prompts: Iterable[str | Vectors]
) -> SeqgenError | None:
    try:
        loaded.conditioning.check(features_of(text))
    except SeqgenError as error:
        return error
    if isinstance(text, Vectors):
        return None
    why = why_not_utf8(text)
    if why is not None:
        return SeqgenError(f"prompt {index} {why}")
    if loaded.conditioning.is_source:
        if "\n" in text:
            return SeqgenError(f"prompt {index} has several lines; a source is one line")
        return None  # what is unknown in a source is read as <unk>
    unknown = first_unknown(loaded, text)
    if unknown is None:
        return None
    piece, line, column = unknown
    if isinstance(prompts, Lines):
        what, where = prompts.source, f"line {index + 1}, column {column}"
    else:
        what, where = f"prompt {shorten(text)!r}", f"line {line}, column {column}"
    advice = "leave it out, or train a model with --tokenizer byte"
    return SeqgenError(f"{what}: the model does not know {piece!r} ({where}); {advice}")


def first_unknown(loaded: LoadedModel, text: str) -> tuple[str, int, int] | None:
    """Find the first unknown token of a text, with its line and column."""
    unknown = loaded.tokenizer.first_unknown(text)
    if unknown is None:
        return None
    at, piece = unknown
    return piece, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


@dataclass(frozen=True)
class _End:
    """Sentinel at the end of the queue, with the exception that ended the reading, if any."""

    error: BaseException | None = None


def available_batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of up to `size` items, of those available without waiting for more.

    A sequence is there at once. Anything else is read ahead in a thread, by a bounded amount,
    and no further once the caller has stopped.
    """
    if isinstance(items, Sequence):
        for at in range(0, len(items), size):
            yield list(items[at : at + size])
        return
    waiting: queue.Queue = queue.Queue(maxsize=4 * size)
    closed = threading.Event()
    threading.Thread(target=_read_ahead, args=(items, waiting, closed), daemon=True).start()
    end: _End | None = None
    try:
        while end is None:
            batch = [waiting.get()]
            while len(batch) < size and not waiting.empty():
                batch.append(waiting.get())
            if isinstance(batch[-1], _End):
                end = batch.pop()
            if batch:
                yield batch
    finally:
        # A thread that waits for room in the queue finds some, and then that it is closed.
        closed.set()
        while not waiting.empty():
            waiting.get()
    if end.error is not None:
        raise end.error


def _read_ahead(items: Iterable[str], waiting: queue.Queue, closed: threading.Event) -> None:
    """Put all items and a sentinel into the queue, until `closed` is set."""
    try:
        for item in items:
            waiting.put(item)
            if closed.is_set():
                return
    except BaseException as error:  # raised again where the items are used
        waiting.put(_End(error))
    else:
        waiting.put(_End())


# Attention in records: a millionth is finer than any picture, and rows still sum to one.
DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class AttentionRecord:
    """Attention weights and alignment of a text to its source.

    Attributes:
        attention: (layers, heads, T, L), by all layers and heads; None if it is not asked for.
        target_pieces: the T tokens of the text, its end included, as a person sees them.
        source_pieces: the L tokens of the source, its end included.
        alignment: pairs `i-j` of places, the source's first; None if it is not asked for.
    """

    attention: np.ndarray | None = field(compare=False)  # arrays have no one answer to ==
    target_pieces: list[str]
    source_pieces: list[str]
    alignment: str | None

    def keys(self) -> dict[str, Any]:
        """Return the fields about attention as JSON types."""
        keys: dict[str, Any] = {}
        if self.attention is not None:
            keys["attention"] = self.attention.astype(np.float64).round(DIGITS).tolist()
            keys["target_pieces"] = self.target_pieces
            keys["source_pieces"] = self.source_pieces
        if self.alignment is not None:
            keys["alignment"] = self.alignment
        return keys


@dataclass(frozen=True, kw_only=True)
class SourceFields:
    """Record fields of a text with a source; the field `prompt` is then empty.

    Attributes:
        source: what the text is written from.
        source_unknown: how many of its tokens the model does not know.
        look: what the text read of it; None if nothing is asked for.
    """

    source: str
    source_unknown: int
    look: AttentionRecord | None = None

    def keys(self) -> dict[str, Any]:
        """Return the fields about the source as JSON types."""
        of_source = {"source": self.source, "source_unknown": self.source_unknown}
        return of_source if self.look is None else {**of_source, **self.look.keys()}


@dataclass(frozen=True, repr=False, kw_only=True)
class Written(ShortRepr):
    """Base class of text records, with the fields that not every record has.

    Attributes:
        of_source: the fields about its source.
        label: the class of text that is written.
        missing: what had to occur in the text and does not, where something had to.
        healed: the end of the prompt with which the first token begins.
    """

    of_source: SourceFields | None = None
    label: str | None = None
    missing: list[str] | None = None
    healed: str | None = None

    @property
    def look(self) -> AttentionRecord | None:
        """Attention of the text to its source, or None."""
        return None if self.of_source is None else self.of_source.look

    @property
    def alignment(self) -> str | None:
        """Alignment of the text with its source, or None."""
        return None if self.look is None else self.look.alignment

    def record(self) -> dict[str, Any]:
        """Return the `--json` fields in order: the record's own, then those of the source."""
        keys = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        optional = {field.name: keys.pop(field.name) for field in dataclasses.fields(Written)}
        del optional["of_source"]
        keys |= {name: value for name, value in optional.items() if value is not None}
        return keys if self.of_source is None else {**keys, **self.of_source.keys()}
