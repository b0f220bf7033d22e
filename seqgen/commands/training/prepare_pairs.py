"""From files of pairs to tokens: read, split with both sides together, both sides encoded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.commands.training.batch_rows import rows_of_pairs
from seqgen.commands.training.cached_pairs import encode_once
from seqgen.commands.training.choosing_tokenizer import choose_tokenizer
from seqgen.commands.training.prepare import (
    Prepared,
    VocabSizes,
    given_tokenizer,
    require_sampling,
)
from seqgen.commands.training.prepare_large import is_large
from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.data.batches import Batches, SampledBatches, training_batches
from seqgen.data.corpus import Corpus
from seqgen.data.encoding import Sampling
from seqgen.data.overlap import Overlap, overlap_of_pairs, pairs_not_held_out
from seqgen.data.pairs import Pairs, Tokenizers, drop_long, encode_pairs, fitting
from seqgen.data.source_unknowns import UnknownsInSources
from seqgen.data.sources import Vectors, VectorSources, require_equal_widths
from seqgen.data.split import held_out_fraction, held_out_lines, path_of
from seqgen.data.text import Survey, Text, survey, text_files
from seqgen.data.tokenfile import is_token_file
from seqgen.data.vector_files import is_vector_file
from seqgen.data.vector_pairs import VectorPairs, open_pairs
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer, tokenizer_kind
from seqgen.training.events import Notice, Report
from seqgen.wording import listed, plural

if TYPE_CHECKING:
    from seqgen.store import StoredModel


@dataclass(frozen=True)
class PairFiles:
    """Where pairs are: in files with tabs, or in files of sources and files of targets.

    Attributes:
        sources: files with tabs; or of the sources, where there are `targets`: texts, or one file
            of vectors.
        targets: files of the targets, or none.
    """

    sources: tuple[Path, ...]
    targets: tuple[Path, ...] = ()

    @classmethod
    def of(cls, sources: Sequence[str | Path], targets: Sequence[str | Path] = ()) -> PairFiles:
        """Return the files that names, folders and patterns mean.

        Raises:
            UsageError: one of them is a token file, or vectors come without targets.
            SeqgenError: one is not there.
        """
        files = cls(text_files(sources), text_files(targets))
        for path in files.paths:
            require(not is_token_file(path), f"{path} is a token file; pairs are read as text")
        return files

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file, those of the sources first."""
        return (*self.sources, *self.targets)

    def pairs(self, config: DataConfig) -> Pairs:
        """Return the pairs in them."""
        return open_pairs(self.sources, self.targets, config.newlines)

    @property
    def hold_vectors(self) -> bool:
        """Whether the sources are vectors."""
        return any(map(is_vector_file, self.sources))


def _joined(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


@dataclass(frozen=True)
class PairParts:
    """The training part and the held-out part of some pairs, with nothing that is too long.

    Attributes:
        train: the pairs to learn from.
        val: those that are held out, or None.
    """

    train: Pairs
    val: Pairs | None


@dataclass(frozen=True)
class PreparedPairs(Prepared):
    """Pairs ready to be trained on; `tokenizer` is that of the targets.

    Attributes:
        parts: the pairs of both parts.
        tokenizers: of both sides.
        files: where they come from.
        dropped: how many were too long.
    """

    parts: PairParts
    tokenizers: Tokenizers
    files: PairFiles
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


def prepare_pairs(
    files: PairFiles, config: DataConfig, given: Collection[str], report: Report
) -> tuple[PreparedPairs, DataConfig]:
    """Read, split and encode what a new translator learns from.

    Args:
        files: the pairs.
        config: how to read them.
        given: the names of the settings that stay as they are; a tokenizer that suits the pairs
            is chosen where none is among them.
        report: takes notices.

    Returns:
        The pairs, and the configuration with what was chosen.

    Raises:
        UsageError: a setting makes no sense for pairs.
        SeqgenError: they cannot be read, or leave nothing to train on or to validate with.
    """
    pairs = files.pairs(config)
    facts = _survey(files, pairs)
    chosen = choose_tokenizer(config, given, facts)
    config = replace(config, **chosen)
    parts = split_pairs(pairs, facts.lines, config)
    tokenizers = make_tokenizers(pairs, parts.train, config)
    for tokenizer in (tokenizers.target, tokenizers.source or tokenizers.target):
        require_sampling(config, type(tokenizer))
    prepared = encode_pair_parts(files, facts, parts, tokenizers, config, report)
    if chosen:
        mean = round(facts.characters / facts.lines)
        report(Notice(text=f"{listed(chosen)}: pairs have {mean:,} characters on average"))
    if prepared.dropped:
        report(_left_out(prepared.dropped, facts.lines, config))
    return prepared, config


def _left_out(dropped: int, count: int, config: DataConfig) -> Notice:
    longest = f"{config.max_source_len} and {config.max_target_len} tokens"
    pairs = f"{plural(dropped, 'pair')} of {count:,} left out"
    limits = "--max-source-len and --max-target-len"
    return Notice(text=f"{pairs}: a side is longer than {longest} ({limits})")


def reload_pairs(
    files: PairFiles,
    config: DataConfig,
    tokenizers: Tokenizers,
    held_out: tuple[Path, Path] | None,
    is_changed: Callable[[Survey], bool],
) -> PreparedPairs:
    """Read a stored translator's pairs again.

    Args:
        files: its pairs.
        config: how they were read.
        tokenizers: the model's.
        held_out: the sources and the targets that were held out then, and still are although the
            pairs have changed.
        is_changed: whether the pairs have changed; may raise.

    Raises:
        SeqgenError: they cannot be read.
    """
    pairs = files.pairs(config)
    facts = _survey(files, pairs)
    changed = is_changed(facts)
    if path_of(config.val) is not None:  # kept with the model; the files themselves may be gone
        config = replace(config, val="none", val_target=None)
    parts = split_pairs(pairs, facts.lines, config)
    if held_out is not None:
        parts = parts_as_stored(pairs, parts, held_out, changed)
    return encode_pair_parts(files, facts, parts, tokenizers, config)


def parts_as_stored(
    pairs: Pairs, parts: PairParts, held_out: tuple[Path, Path], changed: bool
) -> PairParts:
    """Return both parts of a stored model's pairs: those held out are those that it keeps.

    Args:
        pairs: all of them.
        parts: as they are divided now.
        held_out: where the model keeps the pairs that are held out.
        changed: the pairs are not those that the model was trained on.
    """
    val = stored_pairs(held_out)
    apart = changed and parts.val is not None
    return PairParts(pairs_not_held_out(pairs, val) if apart else parts.train, val)


def stored_pairs(held_out: tuple[Path, Path]) -> Pairs:
    """Return the pairs that a model's folder keeps: the sources' file and the targets'."""
    return PairFiles(held_out[:1], held_out[1:]).pairs(DataConfig())


def _survey(files: PairFiles, pairs: Pairs) -> Survey:
    """Survey the pairs in some files.

    Raises:
        SeqgenError: there are none.
    """
    facts = pairs.survey()
    if facts.lines == 0:
        raise SeqgenError(
            f"{_joined(files.paths)} holds no pairs; write a source, a tab and its target on each "
            "line, or give lines of both with --source and --target"
        )
    return facts


def split_pairs(pairs: Pairs, count: int, config: DataConfig) -> PairParts:
    """Hold out a random share of the pairs, at least one; or those of `config.val`.

    Raises:
        UsageError: `config.val` is no share, and `val_target` has no meaning with it.
    """
    fraction = None if config.val == "none" else held_out_fraction(config.val)
    if config.val == "none" or fraction is not None:
        require(config.val_target is None, "val_target needs val: the file of its sources")
    if config.val == "none":
        return PairParts(pairs, None)
    if fraction is None:
        targets = () if config.val_target is None else (config.val_target,)
        return PairParts(pairs, PairFiles.of((config.val,), targets).pairs(config))
    held = held_out_lines(count, fraction, config.split_seed)
    return PairParts(pairs.some(~held), pairs.some(held))


def make_tokenizers(pairs: Pairs, train: Pairs, config: DataConfig) -> Tokenizers:
    """Open or train the tokenizers of both sides: one of both, or one of each.

    Raises:
        UsageError: the sources are vectors, and are to have a tokenizer.
    """
    target = given_tokenizer(config)
    if isinstance(pairs, VectorPairs):
        none = config.source_tokenizer is None
        require(none, "source_tokenizer has no meaning: vectors have no tokens")
        return Tokenizers(target or _trained(config, _side(pairs, train, config).targets), None)
    if config.source_tokenizer is None:
        kind = tokenizer_kind(config.tokenizer) if target is None else type(target)
        read = pairs if kind.learns_from_whole_text else train
        both = target or _trained(config, lambda: itertools.chain(read.sources(), read.targets()))
        return Tokenizers(both, both)
    source_config = replace(config, tokenizer=config.source_tokenizer)
    source = given_tokenizer(source_config, of_sources=True)
    return Tokenizers(
        target or _trained(config, _side(pairs, train, config).targets),
        source or _trained(source_config, _side(pairs, train, source_config).sources),
    )


def _side(pairs: Pairs, train: Pairs, config: DataConfig) -> Pairs:
    """Return the pairs that a tokenizer learns from: as its kind has it, all or the training's."""
    return pairs if tokenizer_kind(config.tokenizer).learns_from_whole_text else train


def _trained(config: DataConfig, lines: Callable[[], Iterator[str]]) -> Tokenizer:
    kind = tokenizer_kind(config.tokenizer)
    return kind.train(lines(), config.vocab_size, config.min_count)


def encode_pair_parts(
    files: PairFiles,
    facts: Survey,
    parts: PairParts,
    tokenizers: Tokenizers,
    config: DataConfig,
    report: Report = lambda event: None,
) -> PreparedPairs:
    """Encode both parts, without the pairs that are too long; large ones once, into the cache.

    Raises:
        SeqgenError: a part has no pair, or the parts do not go together.
    """
    if parts.val is not None:
        features = parts.train.source_features, parts.val.source_features
        require_equal_widths("the model", *features)
    encode = encode_pairs
    if is_large(files.paths) and tokenizers.source is not None:
        encode = partial(encode_once, report=report)
    train_pairs, train, dropped = _fitting(parts.train, tokenizers, config, encode)
    if not train.ends.size:
        raise SeqgenError(_nothing_left("train on", dropped, config))
    val_pairs, val = None, None
    if parts.val is not None:
        val_pairs, val, more = _fitting(parts.val, tokenizers, config, encode)
        dropped += more
        if not val.ends.size:
            raise SeqgenError(f"{_nothing_left('validate with', more, config)}, or --val none")
    return PreparedPairs(
        text=Text(files.paths, config.newlines),
        facts=facts,
        split=None,
        tokenizer=tokenizers.target,
        train=train,
        val=val,
        val_facts=survey(val_pairs.targets()) if val_pairs else Survey(),
        parts=PairParts(train_pairs, val_pairs),
        tokenizers=tokenizers,
        files=files,
        dropped=dropped,
    )


def _nothing_left(purpose: str, dropped: int, config: DataConfig) -> str:
    limits = {"source": config.max_source_len, "target": config.max_target_len}
    given = {side: most for side, most in limits.items() if most is not None}
    if dropped:
        sides = " or ".join(f"its {side} has more than {most:,}" for side, most in given.items())
        raised = " or ".join(f"--max-{side}-len" for side in given)
        return f"every pair to {purpose} is too long: {sides} (tokens, or vectors); raise {raised}"
    return f"there is no pair to {purpose}; give more"


def _fitting(
    pairs: Pairs, tokenizers: Tokenizers, config: DataConfig, encode: Callable[..., Corpus]
) -> tuple[Pairs, Corpus, int]:
    """Return the pairs that are short enough, as text and encoded, and how many others were."""
    corpus = encode(pairs, tokenizers)
    kept = fitting(corpus, config.max_source_len, config.max_target_len)
    if kept.all():
        return pairs, corpus, 0
    short = pairs.some(kept)
    return short, encode(short, tokenizers), int(np.count_nonzero(~kept))
