"""Texts with a label, and sentences with a tag for each word: reading, writing and encoding them.

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
        """The words with a space between any two."""
        return " ".join(self.words)

    @property
    def content(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What distinguishes it from other examples: its words and its labels."""
        return self.words, self.labels


class ExampleReader(ABC):
    """Makes examples of the lines of a file, each as soon as its last line is there.

    Args:
        name: what an error calls the file.
        labelled: the examples have labels.
    """

    def __init__(self, name: str, labelled: bool = True) -> None:
        self.name, self.labelled = name, labelled
        self.number = 0

    def batches(self, chunks: Iterable[str]) -> Iterator[list[Example]]:
        """Yield the examples of a text that comes in pieces: those that came together.

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
        """The place of the last line, for errors."""
        return f"{self.name}, line {self.number}"

    @abstractmethod
    def take(self, line: str) -> Example | None:
        """Read a line; return the example that ends with it, if one does."""

    def end(self) -> Example | None:
        """Return the example that the end of the file ends, if there is one."""
        return None


class TextReader(ExampleReader):
    """Texts, a line each; if they are labelled, the last tab separates a text from its label."""

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
    """Sentences in columns: the first is the word, and the last its tag if they are labelled."""

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
    """Return the columns of a line: between tabs if it has any, else between spaces."""
    return [c.strip() for c in line.split("\t")] if "\t" in line else COLUMNS.split(line)


def written_text(example: Example, labels: Sequence[str]) -> str:
    """Return a text as a line of a file of texts."""
    return f"{example.text}\t{labels[0]}\n"


def written_sentence(example: Example, labels: Sequence[str]) -> str:
    """Return a sentence as the lines of a file in columns."""
    pairs = zip(example.words, labels, strict=True)
    return "".join(f"{word}\t{label}\n" for word, label in pairs) + "\n"


@dataclass(frozen=True)
class Format:
    """How examples stand in a file.

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
        """Return the format of tagged sentences, or that of texts with a label."""
        return SENTENCES if by_word else TEXTS

    def read(self, chunks: Iterable[str], name: str) -> list[Example]:
        """Return the labelled examples of a text.

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
    """Makes ids of examples.

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
        """Encode an example's text, the start symbol first."""
        return [self.start, *self.tokenizer.encode(example.text).tolist()]

    def places(self, example: Example) -> np.ndarray:
        """Return where the labels of an example are predicted, among its logits, (W,) int64.

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
        """Encode the texts of examples as sources."""
        sources = TokenSources.of([self.ids(example) for example in examples])
        unknown = np.count_nonzero(sources.values == self.tokenizer.unk_id)
        return TokenSources(sources.values, sources.ends, int(unknown))

    def corpus(self, examples: Sequence[Example], name: str) -> Corpus:
        """Return examples to train on: labels as targets, texts as sources.

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
        return Corpus(tokens, ends, 0, sources.oov, sources, unscored=(none, none))

    def numbers(self, example: Example, name: str) -> list[int]:
        """Return the numbers of an example's labels.

        Raises:
            SeqgenError: one is not known; names its line.
        """
        return [
            self.classes.number(label, f"{name}, line {example.line + i}")
            for i, label in enumerate(example.labels)
        ]
