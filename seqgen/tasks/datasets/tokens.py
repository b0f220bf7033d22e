"""Tokenizers for new models: those that are named by a path, and those that a text trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from seqgen import store
from seqgen.configs import DataConfig, require
from seqgen.data.tokenfile import is_token_file, read_tokenizer
from seqgen.formats import hf_tokenizer
from seqgen.tokenizers import KINDS, Tokenizer, load_tokenizer, tokenizer_kind
from seqgen.tokenizers.sentencepiece import load_model_file


def require_sampling(config: DataConfig, kind: type[Tokenizer]) -> None:
    """Refuse sampled segmentations for a kind that has only one.

    Raises:
        UsageError: says which kinds have several.
    """
    several = kind.encode_sampled is not Tokenizer.encode_sampled
    require(
        config.subword_sampling is None or several,
        f"subword_sampling is for bpe and unigram, not for {kind.kind}",
    )


def given_tokenizer(config: DataConfig, of_sources: bool = False) -> Tokenizer | None:
    """Return the tokenizer that a configuration names by path, or None if it names a kind.

    Args:
        config: whose `tokenizer` is a kind or a path.
        of_sources: of a model of pairs, take the tokenizer of its sources.

    Raises:
        UsageError: it is neither, or a vocabulary size is asked of a finished tokenizer.
        SeqgenError: it cannot be read.
    """
    if config.tokenizer in KINDS:
        return None
    if not Path(config.tokenizer).exists():
        tokenizer_kind(config.tokenizer)
    tokenizer = open_tokenizer(Path(config.tokenizer), of_sources)
    resized = config.vocab_size is not None or config.min_count > 1
    require(not resized, f"the tokenizer {config.tokenizer} already has its vocabulary")
    return tokenizer


def open_tokenizer(path: Path, of_sources: bool = False) -> Tokenizer:
    """Return the tokenizer of a folder (its own, or a model's), a `.model` or a token file.

    A `tokenizer.json` of Hugging Face, or a folder with one, is another.

    Args:
        path: the file or folder.
        of_sources: of a model whose sources have a tokenizer of their own, that one.

    Raises:
        SeqgenError: there is none.
    """
    folder = path.parent if path.name == "tokenizer.json" else path
    if hf_tokenizer.is_folder(folder):
        return hf_tokenizer.read(folder)[0]
    if path.is_dir():
        own = path / store.SOURCE_TOKENIZER
        if of_sources and own.is_dir() and not (own / store.LABELS).exists():
            return load_tokenizer(own)
        inside = path / store.TOKENIZER
        return load_tokenizer(inside if inside.is_dir() else path)
    return read_tokenizer(path) if is_token_file(path) else load_model_file(path)


def train_tokenizer(
    config: DataConfig, all_of_it: Callable[[], Iterable[str]], train: Callable[[], Iterable[str]]
) -> Tokenizer:
    """Train a tokenizer on texts or on their training part, depending on its kind.

    Args:
        config: names the kind, and how many tokens there are to be.
        all_of_it: reads the texts from the start.
        train: reads the training part.
    """
    kind = tokenizer_kind(config.tokenizer)
    texts = all_of_it() if kind.learns_from_whole_text else train()
    return kind.train(texts, config.vocab_size, config.min_count)
