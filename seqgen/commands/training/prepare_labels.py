"""From lines of labels and texts to tokens: read, split, and both encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqgen.commands.training.prepare import (
    Prepared,
    VocabSizes,
    given_tokenizer,
    require_sampling,
)
from seqgen.commands.training.prepare_pairs import (
    PairFiles,
    PairParts,
    PreparedPairs,
    parts_as_stored,
)
from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.data.batches import Batches
from seqgen.data.corpus import Corpus
from seqgen.data.encoding import Sampling
from seqgen.data.labelled import LabelledLines
from seqgen.data.labels import Labels, with_labels_read
from seqgen.data.pairs import Tokenizers, encode_pairs
from seqgen.data.split import held_out_fraction, held_out_lines
from seqgen.data.text import Survey, Text, survey, text_files
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer, tokenizer_kind


@dataclass(frozen=True)
class PreparedLabels(PreparedPairs):
    """Texts with labels, ready to be trained on; the labels are the sources of the texts."""

    @property
    def labels(self) -> Labels:
        """All labels that there are."""
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

    def suited_rows(self, training: TrainingConfig) -> int:
        return Prepared.suited_rows(self, training)

    @property
    def about(self) -> dict[str, Any]:
        return {**super().about, "labels": len(self.labels)}

    def batches(self, training: TrainingConfig, data: DataConfig, carries_state: bool) -> Batches:
        # As for texts, which may be cut into windows; pairs never are.
        return Prepared.batches(self, training, data, carries_state)

    def segmented(self, data: DataConfig, sampling: Sampling) -> Corpus:
        return encode_pairs(self.parts.train, self.tokenizers, sampling)

    def as_read(self, corpus: Corpus, data: DataConfig) -> Corpus:
        return with_labels_read(super().as_read(corpus, data), self.labels)


def prepare_labels(
    data: Sequence[str | Path], config: DataConfig, known: Labels | None
) -> PreparedLabels:
    """Read, split and encode what a new model of labelled texts learns from.

    Args:
        data: files, folders or patterns.
        config: how to read them.
        known: the labels of the model that is fine-tuned; None for a new model.

    Raises:
        UsageError: a setting makes no sense here.
        SeqgenError: they cannot be read, a line has no label or one that is not known, or they
            leave nothing to train on or to validate with.
    """
    files = PairFiles.of(data)
    require(not files.hold_vectors, "--labels takes files of lines, not of vectors")
    pairs = LabelledLines(Text(files.sources, config.newlines), _named(files.sources), known)
    facts = _survey(pairs)
    tokenizer = given_tokenizer(config)
    kind = tokenizer_kind(config.tokenizer) if tokenizer is None else type(tokenizer)
    require_sampling(config, kind)
    parts = _split(pairs, facts.lines, config)
    if tokenizer is None:
        read = pairs if kind.learns_from_whole_text else parts.train
        tokenizer = kind.train(read.targets(), config.vocab_size, config.min_count)
    labels = known or Labels.of((field for field, _ in pairs), tokenizer)
    if held_out_file(config) is not None:
        parts = replace(parts, val=replace(parts.val, labels=labels))
    return _encoded(files, facts, parts, Tokenizers(tokenizer, labels), config)


def reload_labels(
    paths: tuple[Path, ...],
    config: DataConfig,
    tokenizers: tuple[Tokenizer, Labels],
    held_out: tuple[Path, Path] | None,
    is_changed: Callable[[Survey], bool],
) -> PreparedLabels:
    """Read a stored model's labelled texts again; see `prepare_pairs.reload_pairs`."""
    pairs = LabelledLines(Text(paths, config.newlines), _named(paths), tokenizers[1])
    facts = _survey(pairs)
    changed = is_changed(facts)
    if held_out_file(config) is not None:  # kept with the model; the file itself may be gone
        config = replace(config, val="none")
    parts = _split(pairs, facts.lines, config)
    if held_out is not None:
        parts = parts_as_stored(pairs, parts, held_out, changed)
    return _encoded(PairFiles(paths), facts, parts, Tokenizers(*tokenizers), config)


def held_out_file(config: DataConfig) -> str | None:
    """Return the file that `--val` names, if it names one."""
    return None if config.val == "none" or held_out_fraction(config.val) is not None else config.val


def _split(pairs: LabelledLines, count: int, config: DataConfig) -> PairParts:
    """Hold out a random share of the lines, at least one; or those of `config.val`."""
    file = held_out_file(config)
    if file is not None:
        text = Text(text_files([file]), config.newlines)
        return PairParts(pairs, replace(pairs, text=text, name=file))
    if config.val == "none":
        return PairParts(pairs, None)
    held = held_out_lines(count, held_out_fraction(config.val), config.split_seed)
    return PairParts(pairs.some(~held), pairs.some(held))


def _encoded(
    files: PairFiles, facts: Survey, parts: PairParts, tokenizers: Tokenizers, config: DataConfig
) -> PreparedLabels:
    """Encode both parts.

    Raises:
        SeqgenError: a part has no line.
    """
    train = encode_pairs(parts.train, tokenizers)
    val = encode_pairs(parts.val, tokenizers) if parts.val else None
    if not train.ends.size:
        raise SeqgenError("there is no line to train on; give more")
    if val is not None and not val.ends.size:
        raise SeqgenError("there is no line to validate with; give more, or --val none")
    return PreparedLabels(
        text=Text(files.sources, config.newlines),
        facts=facts,
        split=None,
        tokenizer=tokenizers.target,
        train=train,
        val=val,
        val_facts=survey(parts.val.targets()) if parts.val else Survey(),
        parts=parts,
        tokenizers=tokenizers,
        files=files,
        dropped=0,
    )


def _survey(pairs: LabelledLines) -> Survey:
    """Survey the texts; the hash is that of whole lines.

    Raises:
        SeqgenError: there is none; or a line has no label.
    """
    facts = pairs.survey()
    if facts.lines == 0:
        raise SeqgenError(f"{pairs.name} holds no text")
    return replace(survey(pairs.targets()), sha256=facts.sha256)


def _named(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))
