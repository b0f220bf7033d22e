"""Labels: conditions of generated texts, and classes that a network predicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqgen.errors import SeqgenError, UsageError, did_you_mean, first_line
from seqgen.files import parse_json, require_regular, write_json
from seqgen.text.sources import TokenSources, starts_of
from seqgen.wording import first_names

if TYPE_CHECKING:
    from typing_extensions import Self

    from seqgen.text.corpus import Corpus
    from seqgen.text.tokenizers import Tokenizer

BETWEEN = "|"


@dataclass(frozen=True)
class KnownLabels:
    """A model's set of labels, and the file in its folder that stores them.

    Attributes:
        names: sorted.
    """

    names: tuple[str, ...]
    file: ClassVar[str]
    least: ClassVar[int]  # how many of them there must be

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each label, from 0."""
        return {name: number for number, name in enumerate(self.names)}

    @property
    def listed(self) -> str:
        """The names of the labels, as an error message lists them."""
        return first_names(self.names)

    def facts(self) -> dict[str, Any]:
        """Describe the labels completely as a JSON table, which `load` reads."""
        return {**asdict(self), "names": list(self.names)}

    def save(self, folder: Path) -> None:
        """Write the labels to a model folder, creating it if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / self.file, self.facts())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the labels that `save` wrote.

        Raises:
            SeqgenError: they are missing or damaged.
        """
        path = folder / cls.file
        try:
            facts = parse_json(require_regular(path).read_text(encoding="utf-8"))
            names, *numbers = (facts[field.name] for field in fields(cls))
            whole = len(names) >= cls.least and all(isinstance(name, str) for name in names)
            if not whole or not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError("it contains no labels")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SeqgenError(f"{path} is missing or damaged: {first_line(error)}") from None
        return cls(tuple(names), *numbers)


@dataclass(frozen=True)
class Labels(KnownLabels):
    """Labels that condition a model, used in place of a source tokenizer.

    A text with labels is read as BOS, its labels, and then the text as ever: BOS text EOS. So a
    label is a symbol that stands before the text (Keskar et al. 2019), and any model that reads
    text can be told what to write.

    Attributes:
        names: sorted; label i has the id `first + i`.
        first: the number of the text's own tokens.
        begin: the id that stands before the labels.
    """

    first: int
    begin: int
    file: ClassVar[str] = "labels.json"
    least: ClassVar[int] = 1
    kind: ClassVar[str] = "labels"
    unk_id: ClassVar[int] = -1  # an unknown label is an error, never a token
    eos_id: ClassVar[None] = None
    complete: ClassVar[bool] = True

    @classmethod
    def of(cls, fields: Iterable[str], tokenizer: Tokenizer) -> Labels:
        """Collect all labels that occur in label fields.

        Args:
            fields: what stands before the tab of each line.
            tokenizer: of the texts.
        """
        names = {name for field in fields for name in names_of(field)}
        return cls(tuple(sorted(names)), tokenizer.vocab_size, tokenizer.bos_id)

    def ids(self, field: str) -> list[int]:
        """Encode a field of labels to the ids that precede a text.

        The order of labels has no meaning, nor does one that is named twice.

        Raises:
            UsageError: a label is empty, or unknown; names those there are.
        """
        chosen = set()
        for name in names_of(field):
            if name not in self.numbers:
                hint = did_you_mean(name, self.names)
                raise UsageError(f"unknown label {name!r}{hint} (there are {self.listed})")
            chosen.add(self.numbers[name])
        return [self.begin, *(self.first + number for number in sorted(chosen))]

    def sources(self, fields: Iterable[str]) -> TokenSources:
        """Encode the label fields of texts as sources.

        Raises:
            UsageError: as `ids`.
        """
        known: dict[str, list[int]] = {}
        sequences = []
        for line in fields:
            field = line.removesuffix("\n")
            if field not in known:
                known[field] = self.ids(field)
            sequences.append(known[field])
        return TokenSources.of(sequences)

    def encode(self, field: str) -> np.ndarray:
        """Encode a field to the ids of its labels alone, (N,) int64."""
        return np.array(self.ids(field)[1:], dtype=np.int64)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Name the label of each id."""
        return [self.names[number - self.first] for number in ids]

    @property
    def fingerprint(self) -> str:
        """Hash of the labels."""
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()


def names_of(field: str) -> list[str]:
    """Split a label field at `|` into the names of its labels.

    Raises:
        UsageError: one of them is empty.
    """
    names = [name.strip() for name in field.split(BETWEEN)]
    if not all(names):
        raise UsageError(f"an empty label in {field!r}; labels are written A or A{BETWEEN}B")
    return names


def join_labels(fields: Iterable[str]) -> str:
    """Join label fields to one: each label once, without surrounding spaces.

    Raises:
        UsageError: one of them is empty.
    """
    return BETWEEN.join(dict.fromkeys(name for field in fields for name in names_of(field)))


def with_labels_read(corpus: Corpus, labels: Labels) -> Corpus:
    """Prepend the labels to the documents of a corpus, excluded from the loss.

    A document w1 ... wn EOS with labels a and b becomes a b BOS w1 ... wn EOS, and is read after
    BOS. `Corpus.counted` leaves out what is only read.

    Args:
        corpus: whose sources are of `labels`.
        labels: what the model knows.
    """
    sources = corpus.sources
    # Of BOS a b, the first is what every document starts after; it stands again before the text.
    shape = sources.lengths, corpus.ends - corpus.starts
    ends = np.cumsum(shape[0] + shape[1], dtype=np.int64)
    kind = np.promote_types(corpus.tokens.dtype, np.min_scalar_type(labels.first + len(labels)))
    tokens = np.empty(int(ends[-1]), dtype=kind)
    begin = starts_of(ends)
    rows = sources.rows(np.arange(len(sources)))
    for length in np.unique(shape[0]).tolist():
        of_length = np.flatnonzero(shape[0] == length)
        at = begin[of_length, None] + np.arange(length)
        read = np.roll(rows.values[of_length, :length], -1, axis=1)  # BOS a b -> a b BOS
        tokens[at] = read
    text = np.ones(tokens.size, dtype=bool)
    text[np.repeat(begin, shape[0]) + _within(shape[0])] = False
    tokens[text] = corpus.tokens
    return replace(corpus, tokens=tokens, ends=ends, sources=None, counted=text)


def _within(lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges 0, 1, ..., n - 1 of each length n."""
    return np.arange(lengths.sum()) - np.repeat(starts_of(np.cumsum(lengths)), lengths)


@dataclass(frozen=True)
class Classes(KnownLabels):
    """Classes of a classifier or tagger, in the order of its logits."""

    file: ClassVar[str] = "classes.json"
    least: ClassVar[int] = 2

    @classmethod
    def of(cls, labels: Iterable[str]) -> Classes:
        """Collect the distinct labels.

        Raises:
            SeqgenError: there are fewer than two, which leaves nothing to learn.
        """
        names = tuple(sorted(set(labels)))
        if len(names) < cls.least:
            only = f"the only label is {names[0]!r}" if names else "there is no label"
            raise SeqgenError(f"{only}; there must be two different ones to tell apart")
        return cls(names)

    def number(self, name: str, where: str) -> int:
        """Look up the index of a label.

        Args:
            name: the label.
            where: it stands, for the error.

        Raises:
            SeqgenError: it is not known.
        """
        if name not in self.numbers:
            hint = did_you_mean(name, self.names)
            raise SeqgenError(f"{where}: unknown label {name!r}{hint} (there are {self.listed})")
        return self.numbers[name]
