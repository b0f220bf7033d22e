"""Texts with a label, and sentences with a tag for each word: reading, writing and encoding them.

A file of texts has a line for each: text, tab, label. A file of tagged sentences is in columns, as
those of CoNLL's shared tasks: a line for each word, the word first and its tag last, and an empty
line after each sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.data.classes import Classes
from seqgen.data.corpus import Corpus
from seqgen.data.sources import TokenSources
from seqgen.data.text import lines
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer

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


def read_texts(chunks: Iterable[str], name: str, labelled: bool = True) -> Iterator[Example]:
    """Yield the texts of a file, each as soon as it is read.

    Args:
        chunks: the file in pieces cut anywhere.
        name: what an error calls it.
        labelled: the last tab of each line separates the text from its label; otherwise each line
            is a text.

    Raises:
        SeqgenError: a line has no tab, no text, or no label; names the line.
    """
    for number, line in enumerate(lines(chunks), start=1):
        text, label = line.removesuffix("\n").removesuffix("\r"), None
        where = f"{name}, line {number}"
        if labelled:
            text, tab, label = text.rpartition("\t")
            if not tab:
                raise SeqgenError(f"{where} has no tab; each line is text<TAB>label")
            if not label.strip():
                raise SeqgenError(f"{where} has no label after its tab")
            label = label.strip()
        if not text.strip():
            raise SeqgenError(f"{where} is an empty text, which no label can be told of")
        yield Example((text,), () if label is None else (label,), number)


def read_tagged(chunks: Iterable[str], name: str, labelled: bool = True) -> Iterator[Example]:
    """Yield the sentences of a file in columns, each as soon as the empty line after it is read.

    Args:
        chunks: the file in pieces cut anywhere.
        name: what an error calls it.
        labelled: the last column is the tag; otherwise the first alone is read.

    Raises:
        SeqgenError: a line has another number of columns than the first, or only one where a tag
            is needed; names the line.
    """
    words: list[str] = []
    tags: list[str] = []
    width = first = 0
    for number, line in enumerate(lines(chunks), start=1):
        stripped = line.strip()
        if not stripped:
            if words:
                yield Example(tuple(words), tuple(tags), first)
            words, tags = [], []
            continue
        columns = _columns(stripped)
        width = width or len(columns)
        where = f"{name}, line {number}"
        if labelled and len(columns) < 2:
            raise SeqgenError(f"{where} has one column; each line is word<TAB>tag")
        if len(columns) != width:
            raise SeqgenError(f"{where} has {len(columns)} columns, and the first has {width}")
        first = first if words else number
        words.append(columns[0])
        if labelled:
            tags.append(columns[-1])
    if words:
        yield Example(tuple(words), tuple(tags), first)


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
    """How the examples of a task stand in a file.

    Attributes:
        read: yields those of a text, see `read_texts`.
        write: returns the lines of an example with its labels.
    """

    read: Callable[..., Iterator[Example]]
    write: Callable[[Example, Sequence[str]], str]


FORMATS: Mapping[str, Format] = {
    "classify": Format(read_texts, written_text),
    "tag": Format(read_tagged, written_sentence),
}


@dataclass(frozen=True)
class ExampleEncoder:
    """Makes ids of examples.

    A sentence is its words with a space between any two, and is read from a start symbol on. A
    word's tag stands at its last token.

    Attributes:
        task: "classify" or "tag".
        tokenizer: of the texts.
        classes: the labels.
        start: the id that every text starts after.
    """

    task: str
    tokenizer: Tokenizer
    classes: Classes
    start: int

    def ids(self, example: Example) -> list[int]:
        """Return what a model reads of an example, the start symbol first."""
        return [self.start, *self.tokenizer.encode(example.text).tolist()]

    def places(self, example: Example) -> np.ndarray:
        """Return where the labels of an example are told, among its logits, (W,) int64.

        Raises:
            SeqgenError: the tokenizer does not keep two words apart.
        """
        if self.task == "classify":
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
        """Return what a model reads of examples."""
        sources = TokenSources.of([self.ids(example) for example in examples])
        return TokenSources(sources.values, sources.ends, self._unknown(sources.values))

    def _unknown(self, values: np.ndarray) -> int:
        return int(np.count_nonzero(values == self.tokenizer.unk_id))

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
            row = np.full(length if self.task == "tag" else 1, none)
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
