"""From texts with labels, or tagged sentences, to tokens: read, split, and both sides encoded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.commands.training.prepare import Prepared, VocabSizes, given_tokenizer
from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.data.batches import Batches, PairBatches
from seqgen.data.classes import Classes
from seqgen.data.corpus import Framing
from seqgen.data.examples import Example, ExampleEncoder, Format
from seqgen.data.overlap import Overlap, not_held_out
from seqgen.data.pairs import fitting
from seqgen.data.source_unknowns import UnknownsInSources
from seqgen.data.split import held_out_fraction, held_out_lines, path_of
from seqgen.data.text import Survey, Text, survey, text_files
from seqgen.data.tokenfile import is_token_file
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer, tokenizer_kind
from seqgen.training.events import Notice, Report
from seqgen.wording import listed, plural

if TYPE_CHECKING:
    from seqgen.store import StoredModel

# Texts that are shorter than this on average are strings such as names, and are spelled out.
WORDS_FROM = 30


@dataclass(frozen=True)
class PreparedExamples(Prepared):
    """Examples ready to be trained on; `train` and `val` have labels as their tokens.

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
        """The labels."""
        return self.encoder.classes

    @property
    def vocab_sizes(self) -> VocabSizes:
        return VocabSizes(self.tokenizer.vocab_size, classes=len(self.classes))

    @property
    def read_tokens(self) -> int:
        return int(self.train.sources.lengths.sum())

    def suited_rows(self, training: TrainingConfig) -> int:
        return training.batch_size

    @property
    def about(self) -> dict[str, Any]:
        more = {"classes": len(self.classes), "dropped": self.dropped}
        oov = self.train.sources.oov, self.val.sources.oov if self.val else None
        return {**super().about, "train_oov": oov[0], "val_oov": oov[1], **more}

    def keep_validation(self, stored: StoredModel) -> None:
        if self.val is not None:
            write = self.encoder.format.write
            stored.write_validation(write(example, example.labels) for example in self.held_out)

    def batches(self, training: TrainingConfig, data: DataConfig, carries_state: bool) -> Batches:
        rows = None if training.batch_tokens else training.batch_size
        batches = PairBatches(self.train, rows, training.seed, training.batch_tokens)
        if self.tokenizer.complete or not data.source_unknowns:
            return batches
        return UnknownsInSources(batches, data.source_unknowns, self.tokenizer.unk_id, start=True)

    def overlap(self, data: DataConfig) -> Overlap | None:
        return self.overlap_with(self)

    def overlap_with(self, other: Prepared) -> Overlap | None:
        if not self.held_out or type(other) is not type(self):
            return None
        sides = ((e.content for e in part) for part in (other.training, self.held_out))
        return Overlap.of(*sides, "examples")


def prepare_examples(
    data: Sequence[str | Path],
    form: Format,
    config: DataConfig,
    given: Collection[str],
    known: Classes | None,
    report: Report,
) -> tuple[PreparedExamples, DataConfig]:
    """Read, split and encode what a new classifier or tagger learns from.

    Args:
        data: files, folders or patterns.
        form: how examples stand in them.
        config: how to read them.
        given: the names of the settings that stay as they are; a tokenizer that suits texts is
            chosen where none is among them.
        known: the labels of the model that is fine-tuned, which are kept if these have no others.
        report: takes notices.

    Returns:
        The examples, and the configuration with what was chosen.

    Raises:
        UsageError: a setting makes no sense here.
        SeqgenError: they cannot be read, a line is no example, or they leave nothing to train on
            or to validate with.
    """
    paths = text_files(data)
    for path in paths:
        require(not is_token_file(path), f"{path} is a token file; labels are read as text")
    text = Text(paths, config.newlines)
    examples = _read(text, form)
    chosen = {}
    if not form.by_word and "tokenizer" not in given:
        mean = sum(len(example.text) for example in examples) / len(examples)
        chosen["tokenizer"] = "word" if mean >= WORDS_FROM else "char"
        report(Notice(text=f"{listed(chosen)}: texts have {mean:.0f} characters on average"))
    config = replace(config, **chosen)
    train, val = split_examples(examples, form, config)
    tokenizer = given_tokenizer(config) or _trained(config, examples, train)
    classes = Classes.of(label for example in examples for label in example.labels)
    if known is not None and set(classes.names) <= set(known.names):
        classes = known
    start = Framing.of(tokenizer, config.documents).start
    prepared = _encoded(text, train, val, ExampleEncoder(form, tokenizer, classes, start), config)
    if prepared.dropped:
        left_out = f"{plural(prepared.dropped, 'example')} of {len(examples):,} left out"
        longest = f"longer than {config.max_source_len} tokens (--max-source-len)"
        report(Notice(text=f"{left_out}: {longest}"))
    return prepared, config


def reload_examples(
    paths: tuple[Path, ...],
    config: DataConfig,
    encoder: ExampleEncoder,
    held_out: Path | None,
    is_changed: Callable[[Survey], bool],
) -> PreparedExamples:
    """Read a stored model's examples again.

    Args:
        paths: their files.
        config: how they were read.
        encoder: the model's.
        held_out: the part that was held out then, and still is although the files have changed.
        is_changed: whether they have changed; may raise.
    """
    if path_of(config.val) is not None:  # kept with the model; the file itself may be gone
        config = replace(config, val="none")
    text = Text(paths, config.newlines)
    changed = is_changed(survey(text.chunks()))
    examples = _read(text, encoder.format)
    train, val = split_examples(examples, encoder.format, config)
    if held_out is not None:
        known = _read(Text((held_out,)), encoder.format)
        if changed and val:
            keep = not_held_out((e.content for e in examples), (e.content for e in known))
            train = list(itertools.compress(examples, keep))
        val = known
    return _encoded(text, train, val, encoder, config)


def _read(text: Text, form: Format) -> list[Example]:
    """Return the examples of a text; see `Format.read`."""
    return form.read(text.chunks(), text.name)


def split_examples(
    examples: list[Example], form: Format, config: DataConfig
) -> tuple[list[Example], list[Example]]:
    """Return the training part and the held-out part, which is empty with `config.val` none.

    Raises:
        SeqgenError: one of them has no example.
    """
    if config.val == "none":
        return examples, []
    share = held_out_fraction(config.val)
    if share is None:
        return examples, _read(Text(text_files([config.val]), config.newlines), form)
    held = held_out_lines(len(examples), share, config.split_seed)
    parts = tuple(
        [example for example, out in zip(examples, held, strict=True) if out == held_out]
        for held_out in (False, True)
    )
    if not parts[0]:
        raise SeqgenError("no example is left to train on; give more")
    return parts


def _trained(config: DataConfig, examples: list[Example], train: list[Example]) -> Tokenizer:
    kind = tokenizer_kind(config.tokenizer)
    read = examples if kind.learns_from_whole_text else train
    texts = (f"{example.text}\n" for example in read)
    return kind.train(texts, config.vocab_size, config.min_count)


def _encoded(
    text: Text,
    train: list[Example],
    val: list[Example],
    encoder: ExampleEncoder,
    config: DataConfig,
) -> PreparedExamples:
    """Encode both parts, without the examples that are too long.

    Raises:
        SeqgenError: a part has no example; or a label of the held-out part is not known.
    """
    name = text.name
    held_out_name = config.val if path_of(config.val) is not None else name
    parts = []
    for part, file in ((train, name), (val, held_out_name)):
        corpus = encoder.corpus(part, file)
        kept = np.flatnonzero(fitting(corpus, config.max_source_len, None))
        if part and not kept.size:
            raise SeqgenError(
                f"every text is longer than {config.max_source_len:,} tokens; raise "
                "--max-source-len"
            )
        corpus = corpus if kept.size == len(part) else corpus.take(kept)
        parts.append((corpus, tuple(part[i] for i in kept)))
    (train_corpus, trained_on), (val_corpus, held_out) = parts
    write = encoder.format.write
    return PreparedExamples(
        text=text,
        facts=survey(text.chunks()),
        split=None,
        tokenizer=encoder.tokenizer,
        train=train_corpus,
        val=val_corpus if val else None,
        val_facts=survey(write(e, e.labels) for e in held_out) if val else Survey(),
        encoder=encoder,
        training=tuple(trained_on),
        held_out=held_out,
        dropped=len(train) + len(val) - len(trained_on) - len(held_out),
    )
