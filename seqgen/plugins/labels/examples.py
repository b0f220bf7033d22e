"""Labelled texts and tagged sentences: reading, writing and encoding them.

A file of texts has a line for each: text, tab, label. A file of tagged sentences is in columns, as
those of CoNLL's shared tasks: a line for each word, the word first and its tag last, and an empty
line after each sentence.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.limits import whole_lines
from seqgen.text.corpus import Corpus
from seqgen.text.labels import Classes
from seqgen.text.sources import TokenSources
from seqgen.text.tokenizers import Tokenizer
from seqgen.wording import plural

COLUMNS = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class Example:
    """A text and its label, or the words of a sentence and their tags.

    Attributes:
        words: of a sentence; a text as a whole is one.
        labels: one for each word; none where they are not known.
        line: the number of its first line, from 1.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        """The words joined by spaces."""
        return " ".join(self.words)

    @property
    def content(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words and the labels, by which examples are compared."""
        return self.words, self.labels


class ExampleReader(ABC):
    """Streaming parser that yields each example once its last line has been read.

    Args:
        name: what an error calls the file.
        labelled: the examples have labels.
    """

    def __init__(self, name: str, labelled: bool = True) -> None:
        self.name, self.labelled = name, labelled
        self.number = 0

    def batches(self, chunks: Iterable[str]) -> Iterator[list[Example]]:
        """Parse a text that arrives in chunks; yield the examples completed by each chunk.

        Raises:
            SeqgenError: a line is none of an example; names it. Those before it come first.
        """
        for block in whole_lines(chunks, self.name):
            yield from self._batch(block.removesuffix("\n").split("\n"))
        if last := self.end():
            yield [last]

    def _batch(self, block: Sequence[str]) -> Iterator[list[Example]]:
        examples: list[Example] = []
        try:
            for line in block:
                self.number += 1
                examples += filter(None, [self.take(line.removesuffix("\r"))])
        except SeqgenError:
            yield examples
            raise
        yield examples

    @property
    def where(self) -> str:
        """File name and number of the current line, for error messages."""
        return f"{self.name}, line {self.number}"

    @abstractmethod
    def take(self, line: str) -> Example | None:
        """Parse a line; return the example that it completes, if any."""

    def end(self) -> Example | None:
        """Return the example that the end of the file completes, if any."""
        return None


class TextReader(ExampleReader):
    """Parser of texts, one per line; in labelled files the label follows the last tab."""

    def take(self, line: str) -> Example:
        text, label = line, ""
        if self.labelled:
            text, tab, label = line.rpartition("\t")
            if not tab:
                raise SeqgenError(f"{self.where} has no tab; each line is text<TAB>label")
            if not label.strip():
                raise SeqgenError(f"{self.where} has no label after its tab")
        if not text.strip():
            raise SeqgenError(f"{self.where} is an empty text, from which nothing can be predicted")
        return Example((text,), (label.strip(),) if self.labelled else (), self.number)


class SentenceReader(ExampleReader):
    """Parser of sentences in columns: the word first and, if labelled, the tag last."""

    def __init__(self, name: str, labelled: bool = True) -> None:
        super().__init__(name, labelled)
        self._width = 0
        self._rows: list[list[str]] = []

    def take(self, line: str) -> Example | None:
        if not line.strip():
            return self._finished(self.number - len(self._rows))
        columns = _columns(line.strip())
        self._width = self._width or len(columns)
        if self.labelled and len(columns) < 2:
            raise SeqgenError(f"{self.where} has one column; each line is word<TAB>tag")
        if len(columns) != self._width:
            raise SeqgenError(
                f"{self.where} has {plural(len(columns), 'column')}, and the first has "
                f"{self._width}"
            )
        self._rows.append(columns)
        return None

    def end(self) -> Example | None:
        return self._finished(self.number - len(self._rows) + 1)

    def _finished(self, first: int) -> Example | None:
        rows, self._rows = self._rows, []
        if not rows:
            return None
        tags = tuple(row[-1] for row in rows) if self.labelled else ()
        return Example(tuple(row[0] for row in rows), tags, first)


def _columns(line: str) -> list[str]:
    """Split a line into columns at tabs if it has any, else at spaces."""
    return [c.strip() for c in line.split("\t")] if "\t" in line else COLUMNS.split(line)


def written_text(example: Example, labels: Sequence[str]) -> str:
    """Format a text and its label as a line of a file."""
    return f"{example.text}\t{labels[0]}\n"


def written_sentence(example: Example, labels: Sequence[str]) -> str:
    """Format a sentence as one line per word with its tag, and an empty line."""
    pairs = zip(example.words, labels, strict=True)
    return "".join(f"{word}\t{label}\n" for word, label in pairs) + "\n"


@dataclass(frozen=True)
class Format:
    """File format of labelled texts or of tagged sentences: its parser and writer.

    Attributes:
        reader: makes examples of its lines.
        write: returns the lines of an example with its labels.
        by_word: whether each word has a label; else the whole text has one.
    """

    reader: type[ExampleReader]
    write: Callable[[Example, Sequence[str]], str]
    by_word: bool

    @classmethod
    def of(cls, by_word: bool) -> Format:
        """Choose the file format: tagged sentences if `by_word`, else labelled texts."""
        return SENTENCES if by_word else TEXTS

    def read(self, chunks: Iterable[str], name: str) -> list[Example]:
        """Parse the labelled examples of a file.

        Args:
            chunks: it in pieces cut anywhere.
            name: what an error calls it.

        Raises:
            SeqgenError: a line is none of an example; or there is none.
        """
        batches = self.reader(name).batches(chunks)
        examples = [example for batch in batches for example in batch]
        if not examples:
            raise SeqgenError(f"{name} contains no examples")
        return examples


TEXTS = Format(TextReader, written_text, by_word=False)
SENTENCES = Format(SentenceReader, written_sentence, by_word=True)


@dataclass(frozen=True)
class ExampleEncoder:
    """Encodes the texts of examples as token ids and their labels as numbers.

    A sentence is its words with a space between any two, and is read from a start symbol on. A
    word's tag stands at its last token.

    Attributes:
        format: how they stand in files.
        tokenizer: of the texts.
        classes: the labels.
        start: the id that every text starts after.
    """

    format: Format
    tokenizer: Tokenizer
    classes: Classes
    start: int

    def ids(self, example: Example) -> list[int]:
        """Encode an example's text, with the start symbol first."""
        return [self.start, *self.tokenizer.encode(example.text).tolist()]

    def places(self, example: Example) -> np.ndarray:
        """Find the logit positions (W,) that predict an example's labels: each word's last token.

        Raises:
            SeqgenError: the tokenizer does not keep two words apart.
        """
        if not self.format.by_word:
            return np.zeros(1, dtype=np.int64)
        sizes = np.array([len(word.encode()) for word in example.words])
        ends = np.cumsum(sizes + 1) - 1  # in bytes, a space between any two words
        places = 1 + np.searchsorted(self.tokenizer.byte_ends(example.text), ends)
        if (np.diff(places) == 0).any():
            raise SeqgenError(
                f"the tokenizer {self.tokenizer.kind} makes one token of two words, so that each "
                "cannot have its tag; train with --tokenizer whitespace or char"
            )
        return places

    def sources(self, examples: Sequence[Example]) -> TokenSources:
        """Encode the texts of examples as source sequences."""
        sources = TokenSources.of([self.ids(example) for example in examples])
        unknown = np.count_nonzero(sources.values == self.tokenizer.unk_id)
        return TokenSources(sources.values, sources.ends, int(unknown))

    def corpus(self, examples: Sequence[Example], name: str) -> Corpus:
        """Encode labelled examples for training: labels as targets, texts as sources.

        Targets that no loss counts, of tokens that end no word, have the number after the last
        label's.

        Args:
            examples: with labels.
            name: of their file, for errors.

        Raises:
            SeqgenError: a label is not known.
        """
        none, targets = len(self.classes), []
        sources = self.sources(examples)
        for example, length in zip(examples, sources.lengths.tolist(), strict=True):
            row = np.full(length if self.format.by_word else 1, none)
            row[self.places(example)] = self.numbers(example, name)
            targets.append(row)
        ends = np.cumsum([row.size for row in targets], dtype=np.int64)
        tokens = np.concatenate([np.zeros(0, np.int64), *targets]).astype(np.uint32)
        return Corpus(tokens, ends, 0, sources.oov, sources, counted=tokens < none)

    def numbers(self, example: Example, name: str) -> list[int]:
        """Return the class numbers of an example's labels.

        Raises:
            SeqgenError: one is not known; names its line.
        """
        return [
            self.classes.number(label, f"{name}, line {example.line + i}")
            for i, label in enumerate(example.labels)
        ]
