"""Labelled texts: lines of label, tab and text are read, split and tokenized."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.settings import require
from seqgen.text.corpus import Corpus
from seqgen.text.encoding import Sampling
from seqgen.text.labels import Labels, with_labels_read
from seqgen.text.pairs import LabelledLines, Tokenizers, encode_pairs
from seqgen.text.reading import Survey, survey
from seqgen.text.vector_files import is_vector_file
from seqgen.training.datasets.dataset import (
    DataParts,
    given_tokenizer,
    require_sampling,
    train_tokenizer,
)
from seqgen.training.datasets.pairs import PairDataset, PreparedPairs
from seqgen.training.datasets.prepared import Prepared, VocabSizes
from seqgen.training.events import Report


@dataclass(frozen=True)
class PreparedLabels(PreparedPairs):
    """Tokenized texts with labels; the labels take the place of sources."""

    @property
    def labels(self) -> Labels:
        """All labels."""
        return self.tokenizers.source

    @property
    def vocab_sizes(self) -> VocabSizes:
        return VocabSizes(self.tokenizer.vocab_size + len(self.labels))

    def spellings(self) -> Iterator[str]:
        yield from super().spellings()
        yield from self.labels.names

    @property
    def sample_prompt(self) -> str:
        return ""

    @property
    def about(self) -> dict[str, Any]:
        return {**super().about, "labels": len(self.labels)}

    # As for texts, which may be cut into windows; pairs never are.
    default_batch_size = Prepared.default_batch_size
    batches, batches_of = Prepared.batches, Prepared.batches_of

    def segmented(self, sampling: Sampling) -> Corpus:
        return encode_pairs(self.parts.train, self.tokenizers, sampling)

    def as_read(self, corpus: Corpus) -> Corpus:
        return with_labels_read(super().as_read(corpus), self.labels)


@dataclass
class LabelledDataset(PairDataset):
    """Dataset of lines `label<TAB>text`."""

    noun, item = "labels", "line"
    kind = PreparedLabels

    @cached_property
    def pairs(self) -> LabelledLines:
        # A label that is not known is an error, line by line.
        labels = None if self.known is None else self.known.source
        return LabelledLines(self.text, self.text.name, labels)

    def check(self) -> None:
        super().check()
        vectors = any(map(is_vector_file, self.files.sources))
        require(not vectors, "--labels takes files of lines, not of vectors")

    def survey(self) -> Survey:
        facts = self.pairs.survey()
        if facts.lines == 0:
            raise SeqgenError(f"{self.text.name} contains no text")
        # The hash is that of whole lines.
        return replace(survey(self.pairs.targets()), sha256=facts.sha256)

    def settings_from_data(
        self, facts: Survey, given: Collection[str]
    ) -> tuple[dict[str, Any], str]:
        return {}, ""

    def learn_tokens(self, parts: DataParts) -> Tokenizers:
        texts = self.pairs.targets, parts.train.targets
        tokenizer = given_tokenizer(self.config) or train_tokenizer(self.config, *texts)
        require_sampling(self.config, type(tokenizer))
        if self.known is not None:
            return Tokenizers(tokenizer, self.known.source)
        return Tokenizers(tokenizer, Labels.of((field for field, _ in self.pairs), tokenizer))

    @property
    def limits(self) -> tuple[int | None, int | None]:
        return None, None

    def encode(
        self, facts: Survey, parts: DataParts, tokens: Tokenizers, report: Report
    ) -> PreparedPairs:
        if isinstance(parts.val, LabelledLines):  # a file of its own
            parts = replace(parts, val=replace(parts.val, labels=tokens.source))
        return super().encode(facts, parts, tokens, report)
