"""From files to tokens, for a new run or one that goes on: a text, a large one, a token file."""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from seqgen.commands.training.prepare import (
    Prepared,
    encode_parts,
    given_tokenizer,
    prepare,
    require_sampling,
    survey_text,
)
from seqgen.commands.training.prepare_large import Cached, from_cache, is_large, prepare_large
from seqgen.configs import DataConfig, require
from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.overlap import lines_not_held_out, stream_not_held_out
from seqgen.data.shards import open_token_files
from seqgen.data.split import Chunks, Split, check_parts, held_out_fraction, path_of, split_text
from seqgen.data.text import Survey, Text, survey, text_files
from seqgen.data.token_split import split_tokens
from seqgen.data.tokenfile import TokenFile, check_tokenizer, is_token_file, open_token_file
from seqgen.errors import SeqgenError, UsageError
from seqgen.tokenizers import Tokenizer, tokenizer_kind
from seqgen.training.events import Report

# What a token file has: tokens to train on, and no text.
NO_TEXT = Split(lambda: iter(()), None)


def prepare_data(
    data: Sequence[str | Path], config: DataConfig, flags: Collection[str], report: Report
) -> tuple[Prepared, DataConfig]:
    """Read, split and encode what a new model learns from.

    Args:
        data: text files, folders or patterns; or token files, which are joined.
        config: how to read it.
        flags: the names of the settings that the user gave; a token file may contradict them.
        report: takes notices, and how far a large text is.

    Returns:
        The data, and the configuration with the settings that a token file determines.

    Raises:
        UsageError: a setting that is determined by the token file or by a given tokenizer.
        SeqgenError: it cannot be read, or leaves nothing to train on or to validate with.
    """
    paths = text_files(data)
    if any(map(is_token_file, paths)):
        together = all(map(is_token_file, paths))
        require(together, "give token files alone, not among other files")
        return prepare_tokens(open_token_files(paths), config, flags)
    text = Text(paths, config.newlines)
    held_out = path_of(config.val)
    as_text = held_out is None or not is_token_file(held_out)
    require(as_text, f"--val {config.val} is a token file, and the data is text")
    tokenizer = given_tokenizer(config)
    if tokenizer is None:
        require_sampling(config, tokenizer_kind(config.tokenizer))
    else:
        require_sampling(config, type(tokenizer))
    if is_large(paths):
        return prepare_large(text, config, tokenizer, report), config
    return prepare(text, config, tokenizer), config


def prepare_tokens(
    file: TokenFile, config: DataConfig, flags: Collection[str] = ()
) -> tuple[Prepared, DataConfig]:
    """Split a token file; see `prepare_data`."""
    settled = {"tokenizer", "vocab_size", "min_count", "newlines", "subword_sampling"} & set(flags)
    for name in sorted(settled):
        raise UsageError(f"--{name.replace('_', '-')} is fixed by the token file {file.path}")
    if "documents" in flags and config.documents != file.documents:
        raise UsageError(f"{file.path} was written with --documents {file.documents}")
    config = replace(
        config,
        tokenizer=file.tokenizer.kind,
        vocab_size=None,
        min_count=1,
        subword_sampling=None,
        documents=file.documents,
    )
    fraction = None if config.val == "none" else held_out_fraction(config.val)
    split, train, val, val_facts = None, file.corpus, None, Survey()
    if fraction is not None:
        train, val, val_facts = split_tokens(file, fraction, config.split_seed)
    elif config.val != "none":
        split, val, val_facts = _held_out_file(config, file)
    check_parts(train.tokens.size, val.tokens.size if val else None, config.documents)
    text = Text(file.paths, config.newlines)
    return Prepared(text, file.facts, split, file.tokenizer, train, val, val_facts), config


def _held_out_file(config: DataConfig, file: TokenFile) -> tuple[Split | None, Corpus, Survey]:
    """Read `--val FILE` beside a token file: text, or a token file too."""
    if is_token_file(config.val):
        other = open_token_file(config.val)
        check_tokenizer(other, file.tokenizer, str(file.path))
        require(
            other.documents == file.documents,
            f"{other.path} was written with --documents {other.documents}, "
            f"{file.path} with {file.documents}",
        )
        return None, other.corpus, other.facts
    text = Text(text_files([config.val]), config.newlines)
    val = encode_corpus(text.chunks(), file.tokenizer, file.documents)
    return replace(NO_TEXT, val=text.chunks), val, survey(text.chunks())


def reload_data(
    paths: tuple[Path, ...],
    config: DataConfig,
    tokenizer: Tokenizer,
    held_out: Path | None,
    is_changed: Callable[[Survey], bool],
) -> Prepared:
    """Read a stored model's data again.

    Args:
        paths: its text, or its token file.
        config: how it was read.
        tokenizer: the model's.
        held_out: the part held out in training, which still is if the text has changed.
        is_changed: whether the text has changed; may raise.

    Raises:
        SeqgenError: it cannot be read, is a token file of another tokenizer, or has changed so
            that nothing tells what of it is held out.
    """
    original = config
    if path_of(config.val) is not None:
        config = replace(config, val="none")  # kept with the model; the file itself may be gone
    if is_token_file(paths[0]):
        file = open_token_files(paths)
        check_tokenizer(file, tokenizer, "the model")
        if is_changed(file.facts) and held_out is not None and config.val != "none":
            raise SeqgenError(
                f"{file.path} has changed, and nothing tells which of its tokens were held out: "
                "train on it with --init-from"
            )
        prepared, _ = prepare_tokens(file, config)
        return prepared if held_out is None else _with_held_out(prepared, held_out, config)
    text = Text(paths, config.newlines)
    place = Cached.of(text, original)
    cached = from_cache(place, text, original)
    facts = cached.facts if cached is not None else survey_text(text)
    changed = is_changed(facts)
    known = cached is not None and cached.tokenizer.fingerprint == tokenizer.fingerprint
    if known and not changed:
        unchanged = held_out is None or filecmp.cmp(held_out, place.val_text, shallow=False)
        return cached if unchanged else _with_held_out(cached, held_out, config)
    split = split_text(text, facts, config, tokenizer)
    if held_out is not None:
        val = Text((held_out,)).chunks
        apart = changed and split.val is not None
        train = _not_held_out(text, val, config) if apart else split.train
        split = Split(train, val)
    return encode_parts(text, facts, split, tokenizer, config)


def _not_held_out(text: Text, held_out: Chunks, config: DataConfig) -> Chunks:
    """Return how to read a changed text without what a model holds out.

    Raises:
        SeqgenError: some of it is held out, and nothing tells what.
    """
    if config.documents == "line":
        return lines_not_held_out(text, held_out)
    train = stream_not_held_out(text, held_out)
    if train is None:
        raise SeqgenError(
            f"{', '.join(map(str, text.paths))} has only some lines of the part that is held out, "
            "which cannot be told from the others: restore that part, or use --init-from"
        )
    return train


def _with_held_out(prepared: Prepared, path: Path, config: DataConfig) -> Prepared:
    """Replace the held-out part by the one in the model's folder."""
    if is_token_file(path):
        file = open_token_file(path)
        return replace(prepared, val=file.corpus, val_facts=file.facts)
    text = Text((path,))
    val = encode_corpus(text.chunks(), prepared.tokenizer, config.documents)
    split = replace(prepared.split or NO_TEXT, val=text.chunks)
    return replace(prepared, split=split, val=val, val_facts=survey(text.chunks()))
