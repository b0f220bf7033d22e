"""Prepared data: tokenized training and held-out parts, and facts about them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqgen import store
from seqgen.errors import SeqgenError
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.settings import DataConfig
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batches, OverlappingWindows, SampledBatches
from seqgen.text.corpus import Corpus, encode_corpus, unknown_bytes
from seqgen.text.direction import TwoWayBatches, orient_corpus
from seqgen.text.encoding import Sampling
from seqgen.text.labels import Classes
from seqgen.text.overlap import LEAST, Overlap, overlap_of_lines
from seqgen.text.reading import Survey, Text, survey
from seqgen.text.shards import build_batches
from seqgen.text.sources import Vectors
from seqgen.text.split import Split, held_out_path
from seqgen.text.token_writing import write_corpus
from seqgen.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from seqgen.models.base import TorchModel
    from seqgen.store import StoredModel


# Tokens of a step on pairs, on the longer side of each: docs/evidence/experiments.md.
PAIR_TOKENS = 2000
# An epoch has at least this many steps, unless that takes fewer rows than the recipe's.
LEAST_EPOCH = 16


def rows_of_pairs(corpus: Corpus, least: int) -> int:
    """Compute how many pairs make a batch of `PAIR_TOKENS` on the longer side; at least `least`."""
    lengths = np.diff(corpus.ends, prepend=0)
    longer = np.maximum(lengths, corpus.sources.lengths).mean()
    return _limited(round(PAIR_TOKENS / longer), corpus, least)


def _limited(rows: int, corpus: Corpus, least: int) -> int:
    return max(least, min(rows, corpus.ends.size // LEAST_EPOCH))


@dataclass(frozen=True)
class VocabSizes:
    """Vocabulary sizes of targets and of sources; None for sources that share the targets' tokens.

    `source_features` is the width of sources that are vectors; `classes` is the number of labels
    that are predicted.
    """

    target: int = 1
    source: int | None = None
    source_features: int | None = None
    classes: int = 1

    @classmethod
    def of(cls, target: Tokenizer, source: Tokenizer | None) -> VocabSizes:
        """Take the vocabulary sizes of tokenizers; `source` is None for a text."""
        source_size = None if source is None or source is target else source.vocab_size
        return cls(target.vocab_size, source_size)


@dataclass(frozen=True)
class Prepared:
    """A tokenized text, ready for training.

    Attributes:
        text: where it comes from.
        facts: its characters, bytes, lines and hash.
        split: the text of its two parts; None where it came as a token file.
        tokenizer: made from it, or given.
        train: the training part's ids.
        val: the held-out part's ids, or None.
        val_facts: the held-out part's characters and bytes.
        config: how the text was read.
        in_windows: whether rows are windows of the text; else they are whole documents, cut only
            where they are longer than `seq_len`.
    """

    in_windows: ClassVar[bool] = True

    text: Text
    facts: Survey
    split: Split | None
    tokenizer: Tokenizer
    train: Corpus
    val: Corpus | None
    val_facts: Survey
    config: DataConfig

    @cached_property
    def val_totals(self) -> ScoreTotals:
        """Count tokens, characters, bytes and unknown bytes of the held-out part, with loss 0."""
        if self.val is None:
            return ScoreTotals()
        return ScoreTotals(
            tokens=self.val.scored,
            characters=self.val_facts.characters,
            bytes=self.val_facts.bytes,
            oov=self.val.oov,
            oov_bytes=self._val_oov_bytes(),
        )

    def _val_oov_bytes(self) -> float:
        """Count the unknown bytes of the held-out part; nan if only its tokens are known."""
        if not self.val.oov:
            return 0
        text = self.val_text()
        documents = "stream" if self.val.end is None else "line"
        return math.nan if text is None else unknown_bytes(text, self.tokenizer, documents)

    def val_text(self) -> Iterator[str] | None:
        """Held-out text, or held-out targets of pairs; None if the data was a token file."""
        return self.split.val() if self.split and self.split.val else None

    @property
    def knows_val_text(self) -> bool:
        """Whether there is a held-out text, or one that can be restored from its tokens."""
        if self.val is None or self.split is not None:
            return self.val is not None
        return self.tokenizer.lossless and self.val.oov == 0

    @property
    def classes(self) -> Classes | None:
        """Labels to predict; None for other tasks."""
        return None

    def default_batch_size(self, training: TrainingConfig) -> int:
        """Choose the default number of rows of a batch."""
        if self.train.ends.size == 1:
            return training.batch_size
        # As many documents as have the tokens of a batch of windows.
        mean = min(training.seq_len, self.train.tokens.size / self.train.ends.size)
        rows = round(training.batch_size * training.seq_len / mean)
        return _limited(rows, self.train, training.batch_size)

    @property
    def longest_row(self) -> int:
        """Number of tokens of the longest document."""
        return int((self.train.ends - self.train.first_targets).max())

    def left_out_notice(self, training: TrainingConfig, carries_state: bool) -> str | None:
        """Say what rows of `seq_len` tokens leave out of documents; None if nothing."""
        return None

    @property
    def read_tokens(self) -> int:
        """Number of tokens that a model reads in one pass over the training part."""
        return int(self.train.tokens.size)

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the sources; None for a text."""
        return None

    @property
    def vocab_sizes(self) -> VocabSizes:
        """Vocabulary sizes of both sides."""
        return VocabSizes.of(self.tokenizer, self.source_tokenizer)

    @property
    def spelled(self) -> bool:
        """Whether each token is a character or a byte."""
        return self.tokenizer.kind in ("char", "byte")

    def spellings(self) -> Iterator[str]:
        """Yield the readable form of each token, ordered by id."""
        yield from self.tokenizer.pieces(range(self.tokenizer.vocab_size))

    def show(self, model: TorchModel) -> None:
        """Let a model look at the training data before training starts."""
        model.survey(self.train.tokens, self.tokenizer.special_ids, self.train.ends)

    @property
    def sample_prompt(self) -> str | Vectors:
        """Prompt or source of the samples shown during training."""
        return ""

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the data for the model's `training.json`."""
        return {
            "files": [str(path.resolve()) for path in self.text.paths],
            **asdict(self.facts),
            "train_oov": self.train.oov,
            "val_oov": self.val.oov if self.val else None,
        }

    def keep_validation(self, stored: StoredModel) -> None:
        """Write the held-out text or token file into a model's folder."""
        if self.split is not None and self.split.val is not None:
            stored.write_held_out(store.VALIDATION, self.split.val())
        elif self.val is not None:
            path = stored.place_of(store.VALIDATION_TOKENS)
            write_corpus(path, self.val, self.val_facts, self.tokenizer)

    def overlap(self) -> Overlap | None:
        """Compute the fraction of the held-out part that also occurs in the training part.

        None where that says nothing. Of a stream's end some lines may well have occurred before:
        it is compared by its longer lines, and a hundredth of them says nothing.
        """
        by_lines = self.config.documents == "line"
        if self.split is None or by_lines or held_out_path(self.config.val) is not None:
            return self.overlap_with(self)
        if self.split.val is None:
            return None
        overlap = overlap_of_lines(self.split.train, self.split.val, LEAST)
        return overlap if overlap.shared > 0.01 * overlap.items else None

    def overlap_with(self, other: Prepared) -> Overlap | None:
        """Compute the fraction of the held-out part that occurs in other training data.

        None where nothing is held out, or the two cannot be compared.
        """
        if self.split is None or self.split.val is None or other.split is None:
            return None
        return overlap_of_lines(other.split.train, self.split.val)

    def batches_for(
        self, model: TorchModel | type[TorchModel], training: TrainingConfig
    ) -> Batches:
        """Make the training batches for a model or model class."""
        batches = self.batches(training, model.carries_state)
        if not model.both_ways:
            return batches
        turned = replace(self, config=replace(self.config, direction="backward"))
        return TwoWayBatches(batches, turned.batches(training, model.carries_state))

    def batches(self, training: TrainingConfig, carries_state: bool) -> Batches:
        """Make the training batches, for a model that may carry its state across windows."""
        carries, share = carries_state and not training.reset_state, self.config.subword_sampling

        def cut_anew(epoch: int) -> Batches:
            segmented = self.segmented(Sampling(share, training.seed, epoch))
            return self.batches_of(segmented, training, carries)

        if share is not None:
            batches = SampledBatches(cut_anew)
        else:
            batches = self.batches_of(self.train, training, carries)
        return batches if training.k2 is None else OverlappingWindows(batches, training.k2)

    def batches_of(self, corpus: Corpus, training: TrainingConfig, carries: bool) -> Batches:
        """Make batches of the training part that is tokenized as `corpus`."""
        shape = (training.batch_size, training.seq_len, training.seed)
        read, documents = self.as_read(corpus), self.config.documents
        return build_batches(read, documents, carries, *shape, windows=training.windows)

    def segmented(self, sampling: Sampling) -> Corpus:
        """Tokenize the training part again with subword sampling."""
        return encode_corpus(self.split.train(), self.tokenizer, self.config.documents, sampling)

    def as_read(self, corpus: Corpus) -> Corpus:
        """Put a tokenized part in the model's direction: reversed for right-to-left models."""
        return orient_corpus(corpus, self.config.direction)


def survey_text(text: Text) -> Survey:
    """Count the characters and bytes of a text, and compute its SHA-256.

    Raises:
        SeqgenError: it cannot be read, is no UTF-8, or is empty.
    """
    facts = survey(text.chunks())
    if facts.characters == 0:
        raise SeqgenError(f"{text.name} contains no text")
    return facts
