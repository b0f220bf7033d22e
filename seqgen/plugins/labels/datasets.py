"""Data sets of labelled texts and tagged sentences: reading, splitting and encoding."""

from __future__ import annotations

import itertools
from abc import ABC
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.plugins.labels.examples import SENTENCES, TEXTS, Example, ExampleEncoder, Format
from seqgen.settings.training import TrainingConfig
from seqgen.store import TOKENIZER, VALIDATION, StoredModel
from seqgen.text.batches import Batches, PairBatches, with_unknowns
from seqgen.text.corpus import Framing
from seqgen.text.labels import Classes
from seqgen.text.overlap import Overlap, mask_not_held_out
from seqgen.text.pairs import Tokenizers, mask_fitting_pairs
from seqgen.text.reading import SENTENCE_END, Survey, Text, survey
from seqgen.text.split import held_out_files, held_out_fraction, held_out_lines, held_out_path
from seqgen.text.tokenizers import Tokenizer
from seqgen.training.datasets.dataset import DataParts, Dataset, given_tokenizer, train_tokenizer
from seqgen.training.datasets.prepared import Prepared, VocabSizes
from seqgen.training.events import Notice, Report
from seqgen.wording import plural

# Texts that are shorter than this on average are strings such as names, and are spelled out.
WORDS_FROM = 30
# More labels than this and than half the texts are probably texts, before their labels.
FEW_LABELS = 50


@dataclass(frozen=True)
class PreparedExamples(Prepared):
    """Encoded examples for training; the tokens of `train` and `val` are label numbers.

    Attributes:
        encoder: what made ids of them.
        training: the examples of the training part.
        held_out: those of the held-out part.
        dropped: how many were too long.
    """

    encoder: ExampleEncoder
    training: tuple[Example, ...]
    held_out: tuple[Example, ...]
    dropped: int

    @property
    def classes(self) -> Classes:
        """The labels that occur in the data."""
        return self.encoder.classes

    @property
    def vocab_sizes(self) -> VocabSizes:
        return VocabSizes(self.tokenizer.vocab_size, classes=len(self.classes))

    @property
    def read_tokens(self) -> int:
        return int(self.train.sources.lengths.sum())

    def default_batch_size(self, training: TrainingConfig) -> int:
        return training.batch_size

    @property
    def about(self) -> dict[str, Any]:
        return {
            **super().about,
            "train_oov": self.train.sources.oov,
            "val_oov": self.val.sources.oov if self.val else None,
            "classes": len(self.classes),
            "dropped": self.dropped,
        }

    def keep_validation(self, stored: StoredModel) -> None:
        if self.val is not None:
            write = self.encoder.format.write
            lines = (write(example, example.labels) for example in self.held_out)
            stored.write_held_out(VALIDATION, lines)

    def batches(self, training: TrainingConfig, carries_state: bool) -> Batches:
        rows = None if training.batch_tokens else training.batch_size
        batches = PairBatches(self.train, rows, training.seed, training.batch_tokens)
        return with_unknowns(batches, self.tokenizer, self.config.source_unknowns, start=True)

    def overlap_with(self, other: Prepared) -> Overlap | None:
        if not self.held_out or type(other) is not type(self):
            return None
        sides = ((e.content for e in part) for part in (other.training, self.held_out))
        return Overlap.of(*sides, "examples")


@dataclass(frozen=True)
class LabelTokens(Tokenizers):
    """The tokenizer of the texts, and the set of labels.

    Attributes:
        classes: the labels.
        start: the id that every text starts after.
    """

    classes: Classes
    start: int


@dataclass
class ExampleDataset(Dataset, ABC):
    """Base class of data sets of labelled examples."""

    noun = "labels"
    format: ClassVar[Format]
    encoder: ClassVar[type[ExampleEncoder]] = ExampleEncoder

    @classmethod
    def tokens_of(cls, stored: StoredModel, target: Tokenizer) -> LabelTokens:
        classes = Classes.load(stored.path / TOKENIZER)
        return LabelTokens(target, None, classes, stored.framing(target).start)

    @cached_property
    def examples(self) -> list[Example]:
        """All examples of the data set."""
        return self._read(self.text)

    def _read(self, text: Text) -> list[Example]:
        return self.format.read(text.chunks(), text.name)

    def survey(self) -> Survey:
        return survey(self.text.chunks())

    def split(self, facts: Survey) -> DataParts:
        examples, val = self.examples, self.config.val
        if val == "none":
            return DataParts(examples, None)
        share = held_out_fraction(val)
        if share is None:
            return DataParts(
                examples, self._read(replace(self.text, paths=held_out_files(self.config)))
            )
        held = held_out_lines(len(examples), share, self.config.split_seed)
        train, held_out = (
            [example for example, out in zip(examples, held, strict=True) if out == which]
            for which in (False, True)
        )
        if not train:
            raise SeqgenError("no example is left to train on; give more")
        return DataParts(train, held_out)

    def learn_tokens(self, parts: DataParts) -> LabelTokens:
        tokenizer = given_tokenizer(self.config) or train_tokenizer(
            self.config, lambda: _lines(self.examples), lambda: _lines(parts.train)
        )
        classes = Classes.of(label for example in self.examples for label in example.labels)
        if isinstance(self.known, LabelTokens):
            known = self.known.classes
            classes = known if set(classes.names) <= set(known.names) else classes
        start = Framing.of_new_model(tokenizer, self.config.documents).start
        return LabelTokens(tokenizer, None, classes, start)

    def held_out(self, stored: StoredModel) -> list[Example] | None:
        path = stored.validation_text
        return path and self._read(Text((path,)))

    def without(self, held_out: list[Example]) -> list[Example]:
        contents = ((e.content for e in part) for part in (self.examples, held_out))
        return list(itertools.compress(self.examples, mask_not_held_out(*contents)))

    def encode(
        self, facts: Survey, parts: DataParts, tokens: LabelTokens, report: Report
    ) -> PreparedExamples:
        config = self.config
        encoder = self.encoder(self.format, tokens.target, tokens.classes, tokens.start)
        held_out_name = config.val if held_out_path(config.val) is not None else self.text.name
        kept_parts = []
        for part, file in ((parts.train, self.text.name), (parts.val or [], held_out_name)):
            corpus = encoder.corpus(part, file)
            kept = np.flatnonzero(mask_fitting_pairs(corpus, config.max_source_len, None))
            if part and not kept.size:
                raise SeqgenError(
                    f"every text is longer than {config.max_source_len:,} tokens; raise "
                    "--max-source-len"
                )
            corpus = corpus if kept.size == len(part) else corpus.take(kept)
            kept_parts.append((corpus, tuple(part[i] for i in kept)))
        (train, trained_on), (val, held_out) = kept_parts
        dropped = len(parts.train) + len(parts.val or []) - len(trained_on) - len(held_out)
        if dropped:
            left_out = f"{plural(dropped, 'example')} of {len(self.examples):,} left out"
            longest = f"longer than {config.max_source_len} tokens (--max-source-len)"
            report(Notice(text=f"{left_out}: {longest}"))
        write = self.format.write
        return PreparedExamples(
            text=self.text,
            facts=facts,
            split=None,
            tokenizer=tokens.target,
            train=train,
            val=val if parts.val else None,
            val_facts=survey(write(e, e.labels) for e in held_out) if parts.val else Survey(),
            config=config,
            encoder=encoder,
            training=trained_on,
            held_out=held_out,
            dropped=dropped,
        )


class LabelledTextDataset(ExampleDataset):
    """Data set of texts with one label each."""

    format = TEXTS

    def settings_from_data(
        self, facts: Survey, given: Collection[str]
    ) -> tuple[dict[str, Any], str]:
        if "tokenizer" in given:
            return {}, ""
        mean = sum(len(example.text) for example in self.examples) / len(self.examples)
        why = f"texts have {mean:.0f} characters on average"
        return {"tokenizer": "uncased" if mean >= WORDS_FROM else "char"}, why

    def encode(
        self, facts: Survey, parts: DataParts, tokens: LabelTokens, report: Report
    ) -> PreparedExamples:
        labels, texts = len(tokens.classes), len(self.examples)
        if labels > max(FEW_LABELS, texts // 2):
            order = "a line is a text, a tab and then the text's label"
            report(Notice(text=f"{labels:,} different labels of {texts:,} texts: {order}"))
        return super().encode(facts, parts, tokens, report)


class TaggedSentenceDataset(ExampleDataset):
    """Data set of sentences with a tag for each word."""

    format = SENTENCES
    record_end = SENTENCE_END


def _lines(examples: list[Example]) -> Iterator[str]:
    return (f"{example.text}\n" for example in examples)
