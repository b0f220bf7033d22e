"""From files of pairs to tokens: read, split with both sides together, both sides encoded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.data.batches import Batches, SampledBatches, UnknownsInSources, training_batches
from seqgen.data.corpus import Corpus
from seqgen.data.encoding import Sampling
from seqgen.data.overlap import Overlap, overlap_of_pairs, pairs_not_held_out
from seqgen.data.pairs import (
    Pairs,
    Tokenizers,
    VectorPairs,
    drop_long,
    encode_pairs,
    fitting,
    open_pairs,
)
from seqgen.data.sources import Vectors, VectorSources, require_equal_widths
from seqgen.data.split import held_out_fraction, held_out_lines
from seqgen.data.text import Survey, survey
from seqgen.errors import SeqgenError
from seqgen.tasks.datasets.batch_rows import rows_of_pairs
from seqgen.tasks.datasets.cached_pairs import encode_once
from seqgen.tasks.datasets.cached_text import is_large
from seqgen.tasks.datasets.choosing_tokenizer import choose_tokenizer, word_use
from seqgen.tasks.datasets.dataset import DataFiles, Dataset, Parts
from seqgen.tasks.datasets.prepared import Prepared, VocabSizes
from seqgen.tasks.datasets.tokens import given_tokenizer, require_sampling, train_tokenizer
from seqgen.tokenizers import Tokenizer
from seqgen.training.events import Notice, Report
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.store import StoredModel


@dataclass(frozen=True)
class PreparedPairs(Prepared):
    """Pairs ready to be trained on; `tokenizer` is that of the targets.

    Attributes:
        parts: the pairs of both parts.
        tokenizers: of both sides.
        files: where they come from.
        dropped: how many were too long.
    """

    parts: Parts
    tokenizers: Tokenizers
    files: DataFiles
    dropped: int

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        return self.tokenizers.source

    @property
    def vocab_sizes(self) -> VocabSizes:
        return replace(super().vocab_sizes, source_features=self.parts.train.source_features)

    @cached_property
    def sample_prompt(self) -> str | Vectors:
        return next(iter(self.parts.val or self.parts.train))[0]

    def suited_rows(self, training: TrainingConfig) -> int:
        return rows_of_pairs(self.train, training.batch_size)

    @property
    def about(self) -> dict[str, Any]:
        return {
            **super().about,
            "target_files": len(self.files.targets),
            "train_source_unknown": self.train.sources.oov,
            "val_source_unknown": self.val.sources.oov if self.val else None,
            "dropped": self.dropped,
        }

    def val_text(self) -> Iterator[str] | None:
        return self.parts.val and self.parts.val.targets()

    def keep_validation(self, stored: StoredModel) -> None:
        if self.parts.val is None:
            return
        sources, targets = self.val.sources, self.parts.val.targets()
        if isinstance(sources, VectorSources):
            stored.write_validation_vectors(sources, targets)
        else:
            stored.write_validation_pairs(self.parts.val.sources(), targets)

    def batches(self, training: TrainingConfig, data: DataConfig, carries_state: bool) -> Batches:
        def batches_of(corpus: Corpus) -> Batches:
            shape = (training.batch_size, training.seq_len, training.seed, training.batch_tokens)
            return training_batches(corpus, data.documents, False, *shape)

        def cut_anew(epoch: int) -> Batches:
            sampling = Sampling(data.subword_sampling, training.seed, epoch)
            corpus = encode_pairs(self.parts.train, self.tokenizers, sampling)
            return batches_of(drop_long(corpus, data.max_source_len, data.max_target_len).corpus)

        sampled = data.subword_sampling is not None
        batches = SampledBatches(cut_anew) if sampled else batches_of(self.train)
        source = self.tokenizers.source
        if source is None or source.complete or not data.source_unknowns:
            return batches
        return UnknownsInSources(batches, data.source_unknowns, source.unk_id)

    def overlap(self, data: DataConfig) -> Overlap | None:
        return self.overlap_with(self)

    def overlap_with(self, other: Prepared) -> Overlap | None:
        if self.parts.val is None or type(other) is not type(self):
            return None
        return overlap_of_pairs(other.parts.train, self.parts.val)


@dataclass
class PairDataset(Dataset):
    """Pairs of a source and a target: in files with tabs, or each side in files of its own."""

    noun, item = "pairs", "pair"
    kind: ClassVar[type[PreparedPairs]] = PreparedPairs

    @cached_property
    def pairs(self) -> Pairs:
        """All of them."""
        return pairs_in(self.files, self.config)

    def survey(self) -> Survey:
        facts = self.pairs.survey()
        if facts.lines == 0:
            raise SeqgenError(
                f"{self.text.name} holds no pairs; write a source, a tab and its target on each "
                "line, or give lines of both with --source and --target"
            )
        return facts

    def suits(self, facts: Survey, given: Collection[str]) -> tuple[dict[str, Any], str]:
        words = partial(word_use, self.pairs, facts.lines)
        return choose_tokenizer(self.config, given, facts.characters, words)

    def split(self, facts: Survey) -> Parts:
        val = self.config.val
        fraction = None if val == "none" else held_out_fraction(val)
        if val == "none" or fraction is not None:
            none = self.config.val_target is None
            require(none, "val_target needs val: the file of its sources")
        if val == "none":
            return Parts(self.pairs, None)
        if fraction is None:
            return Parts(self.pairs, self.held_out_file())
        held = held_out_lines(facts.lines, fraction, self.config.split_seed)
        return Parts(self.pairs.some(~held), self.pairs.some(held))

    def held_out_file(self) -> Pairs:
        """Return the pairs of `--val FILE`, or of `--val-source` and `--val-target`."""
        target = self.config.val_target
        files = DataFiles.of([self.config.val], [] if target is None else [target])
        held_out = type(self).open(files, self.config)
        held_out.check()
        return held_out.pairs

    def learn_tokens(self, parts: Parts) -> Tokenizers:
        tokens = self._tokens(parts)
        for tokenizer in (tokens.target, tokens.source or tokens.target):
            require_sampling(self.config, type(tokenizer))
        return tokens

    def _tokens(self, parts: Parts) -> Tokenizers:
        """Open or train the tokenizers of both sides: one of both, or one of each.

        Raises:
            UsageError: the sources are vectors, and are to have a tokenizer.
        """
        config, pairs, train = self.config, self.pairs, parts.train
        target = given_tokenizer(config)
        if isinstance(pairs, VectorPairs):
            none = config.source_tokenizer is None
            require(none, "source_tokenizer has no meaning: vectors have no tokens")
            return Tokenizers(target or train_tokenizer(config, pairs.targets, train.targets), None)
        if config.source_tokenizer is None:
            both = target or train_tokenizer(config, lambda: _both(pairs), lambda: _both(train))
            return Tokenizers(both, both)
        source_config = replace(config, tokenizer=config.source_tokenizer)
        source = given_tokenizer(source_config, of_sources=True)
        return Tokenizers(
            target or train_tokenizer(config, pairs.targets, train.targets),
            source or train_tokenizer(source_config, pairs.sources, train.sources),
        )

    def held_out(self, stored: StoredModel) -> Pairs | None:
        paths = stored.validation_pairs
        return paths and stored_pairs(paths)

    def without(self, held_out: Pairs) -> Pairs:
        return pairs_not_held_out(self.pairs, held_out)

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """How many tokens a source may have, and a target; None for any number."""
        return self.config.max_source_len, self.config.max_target_len

    def encode(
        self, facts: Survey, parts: Parts, tokens: Tokenizers, report: Report
    ) -> PreparedPairs:
        val_pairs, val, more = None, None, 0
        encode = partial(encode_pairs, tokenizers=tokens)
        if is_large(self.files.paths) and isinstance(tokens.source, Tokenizer):
            encode = partial(encode_once, tokenizers=tokens, report=report)
        if parts.val is not None:
            features = parts.train.source_features, parts.val.source_features
            require_equal_widths("the model", *features)
        train_pairs, train, dropped = self._fitting(parts.train, encode, "train on")
        if parts.val is not None:
            val_pairs, val, more = self._fitting(parts.val, encode, "validate with")
        if dropped + more:
            longest = "{} and {} tokens".format(*self.limits)
            left_out = f"{plural(dropped + more, 'pair')} of {facts.lines:,} left out"
            flags = "--max-source-len and --max-target-len"
            report(Notice(text=f"{left_out}: a side is longer than {longest} ({flags})"))
        return self.kind(
            text=self.text,
            facts=facts,
            split=None,
            tokenizer=tokens.target,
            train=train,
            val=val,
            val_facts=survey(val_pairs.targets()) if val_pairs else Survey(),
            parts=Parts(train_pairs, val_pairs),
            tokenizers=tokens,
            files=self.files,
            dropped=dropped + more,
        )

    def _fitting(
        self, pairs: Pairs, encode: Callable[[Pairs], Corpus], purpose: str
    ) -> tuple[Pairs, Corpus, int]:
        """Return the pairs that are short enough, as text and encoded, and how many others were.

        Raises:
            SeqgenError: there are none to serve their purpose.
        """
        corpus = encode(pairs)
        kept = fitting(corpus, *self.limits)
        if not kept.any():
            way_out = "" if purpose == "train on" else ", or --val none"
            raise SeqgenError(f"{self._nothing_left(purpose, bool(kept.size))}{way_out}")
        if kept.all():
            return pairs, corpus, 0
        short = pairs.some(kept)
        return short, encode(short), int(np.count_nonzero(~kept))

    def _nothing_left(self, purpose: str, too_long: bool) -> str:
        if not too_long:
            return f"there is no {self.item} to {purpose}; give more"
        given = [pair for pair in zip(("source", "target"), self.limits, strict=True) if pair[1]]
        sides = " or ".join(f"its {side} has more than {most:,}" for side, most in given)
        raised = " or ".join(f"--max-{side}-len" for side, _ in given)
        return f"every pair to {purpose} is too long: {sides} (tokens, or vectors); raise {raised}"


def pairs_in(files: DataFiles, config: DataConfig) -> Pairs:
    """Return the pairs in files with tabs, or in files of each side."""
    return open_pairs(files.sources, files.targets, config.newlines)


def stored_pairs(held_out: tuple[Path, Path]) -> Pairs:
    """Return the pairs that a model's folder keeps: the sources' file and the targets'."""
    return pairs_in(DataFiles(held_out[:1], held_out[1:]), DataConfig())


def _both(pairs: Pairs) -> Iterator[str]:
    return itertools.chain(pairs.sources(), pairs.targets())
