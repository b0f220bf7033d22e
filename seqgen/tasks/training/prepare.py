"""From files to tokens: read and split a text, train its tokenizer, and encode both parts."""

from __future__ import annotations

import dataclasses
import filecmp
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import store
from seqgen.configs import DataConfig, TrainingConfig, require
from seqgen.data.batches import Batches, Overlapping, SampledBatches, training_batches
from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.encoding import Sampling
from seqgen.data.split import Split, check_parts, held_out_share, path_of, split_text
from seqgen.data.text import Survey, Text, survey, text_files
from seqgen.data.token_split import split_tokens
from seqgen.data.token_writing import write_corpus, write_token_file
from seqgen.data.tokenfile import (
    TokenFile,
    check_tokenizer,
    is_token_file,
    open_token_file,
    read_tokenizer,
)
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import replacing, write_json
from seqgen.tokenizers import KINDS, Tokenizer, load_tokenizer, tokenizer_kind
from seqgen.tokenizers.sentencepiece import load_model_file
from seqgen.training.events import Encoding, Notice, Report

if TYPE_CHECKING:
    from seqgen.store import StoredModel

# Files of so many bytes are encoded once, into the cache, and mapped from there.
LARGE = 64 << 20
CACHE_FORMAT = 1


@dataclass(frozen=True)
class VocabSizes:
    """How many tokens the targets have, and the sources; None where they share their tokens."""

    target: int = 1
    source: int | None = None

    @classmethod
    def of(cls, target: Tokenizer, source: Tokenizer | None) -> VocabSizes:
        """Return those of tokenizers; `source` is None for a text."""
        own = None if source is None or source is target else source.vocab_size
        return cls(target.vocab_size, own)


@dataclass(frozen=True)
class Prepared:
    """A text ready to be trained on.

    Attributes:
        text: where it comes from.
        facts: its characters, bytes, lines and hash.
        split: the text of its two parts; None where it came as a token file.
        tokenizer: made from it, or given.
        train: the training part's ids.
        val: the held-out part's ids, or None.
        val_facts: the held-out part's characters and bytes.
    """

    text: Text
    facts: Survey
    split: Split | None
    tokenizer: Tokenizer
    train: Corpus
    val: Corpus | None
    val_facts: Survey

    @property
    def val_tokens_per_char(self) -> float:
        """Tokens per character of the held-out part; 1 if nothing is held out."""
        return self.val.tokens.size / self.val_facts.characters if self.val else 1.0

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        """What makes ids of the sources; None for a text, which has none."""
        return None

    @property
    def vocab_sizes(self) -> VocabSizes:
        """How many tokens there are on each side."""
        return VocabSizes.of(self.tokenizer, self.source_tokenizer)

    @property
    def sample_prompt(self) -> str:
        """What the model goes on from, or writes from, to show how far it is."""
        return ""

    @property
    def about(self) -> dict[str, Any]:
        """What a model's record tells of its data."""
        return {
            "files": [str(path.resolve()) for path in self.text.paths],
            **dataclasses.asdict(self.facts),
            "train_oov": self.train.oov,
            "val_oov": self.val.oov if self.val else None,
        }

    def keep_validation(self, stored: StoredModel) -> None:
        """Write the held-out part into a model's folder: its text, or its tokens."""
        if self.split is not None and self.split.val is not None:
            stored.write_validation(self.split.val())
        elif self.val is not None:
            path = stored.path / store.VALIDATION_TOKENS
            path.parent.mkdir(exist_ok=True)
            write_corpus(path, self.val, self.val_facts, self.tokenizer)

    def batches(self, training: TrainingConfig, data: DataConfig, carries_state: bool) -> Batches:
        """Return the batches of the training part, for a model that may carry its state."""
        carries = carries_state and not training.reset_state

        def batches_of(corpus: Corpus) -> Batches:
            shape = (training.batch_size, training.seq_len)
            return training_batches(corpus, data.documents, carries, *shape, training.seed)

        def cut_anew(epoch: int) -> Batches:
            sampling = Sampling(data.subword_sampling, training.seed, epoch)
            text = self.split.train()
            return batches_of(encode_corpus(text, self.tokenizer, data.documents, sampling))

        sampled = data.subword_sampling is not None
        batches = SampledBatches(cut_anew) if sampled else batches_of(self.train)
        return batches if training.k2 is None else Overlapping(batches, training.k2)


def survey_text(text: Text) -> Survey:
    """Survey a text.

    Raises:
        SeqgenError: it cannot be read, is no UTF-8, or is empty.
    """
    facts = survey(text.chunks())
    if facts.characters == 0:
        raise SeqgenError(f"{', '.join(map(str, text.paths))} holds no text")
    return facts


def prepare_data(
    data: Sequence[str | Path], config: DataConfig, flags: Collection[str], report: Report
) -> tuple[Prepared, DataConfig]:
    """Read, split and encode what a new model learns from.

    Args:
        data: text files, folders or patterns; or one token file.
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
        require(len(paths) == 1, "give one token file alone, not among other files")
        return prepare_tokens(open_token_file(paths[0]), config, flags)
    text = Text(paths, config.newlines)
    held_out = path_of(config.val)
    as_text = held_out is None or not is_token_file(held_out)
    require(as_text, f"--val {config.val} is a token file, and the data is text")
    tokenizer = given_tokenizer(config)
    if tokenizer is None:
        require_sampling(config, tokenizer_kind(config.tokenizer))
    else:
        require_sampling(config, type(tokenizer))
    if sum(path.stat().st_size for path in paths) >= LARGE:
        return prepare_large(text, config, tokenizer, report), config
    return prepare(text, config, tokenizer), config


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


def given_tokenizer(config: DataConfig) -> Tokenizer | None:
    """Return the tokenizer that a configuration names by path, or None if it names a kind.

    Raises:
        UsageError: it is neither, or a vocabulary size is asked of a finished tokenizer.
        SeqgenError: it cannot be read.
    """
    if config.tokenizer in KINDS:
        return None
    if not Path(config.tokenizer).exists():
        tokenizer_kind(config.tokenizer)
    tokenizer = open_tokenizer(Path(config.tokenizer))
    resized = config.vocab_size is not None or config.min_count > 1
    require(not resized, f"the tokenizer {config.tokenizer} already has its vocabulary")
    return tokenizer


def open_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a folder (its own, or a model's), a `.model` or a token file.

    Raises:
        SeqgenError: there is none.
    """
    if path.is_dir():
        inside = path / "tokenizer"
        return load_tokenizer(inside if inside.is_dir() else path)
    return read_tokenizer(path) if is_token_file(path) else load_model_file(path)


def prepare(text: Text, config: DataConfig, tokenizer: Tokenizer | None = None) -> Prepared:
    """Read, split and encode a text; train its tokenizer unless one is given.

    Raises:
        SeqgenError: it is empty, is no UTF-8, or leaves nothing to train on or to validate with.
    """
    facts = survey_text(text)
    # The split asks only for token boundaries, and those need no vocabulary.
    split = split_text(text, facts, config, tokenizer or tokenizer_kind(config.tokenizer))
    return encode_parts(
        text, facts, split, tokenizer or train_tokenizer(text, split, config), config
    )


def train_tokenizer(text: Text, split: Split, config: DataConfig) -> Tokenizer:
    """Train a tokenizer on a text or on its training part, depending on its kind."""
    kind = tokenizer_kind(config.tokenizer)
    source = text.chunks() if kind.learns_from_whole_text else split.train()
    return kind.train(source, config.vocab_size, config.min_count)


def encode_parts(
    text: Text, facts: Survey, split: Split, tokenizer: Tokenizer, config: DataConfig
) -> Prepared:
    """Encode both parts of a text.

    Raises:
        SeqgenError: a part has no token.
    """
    train = encode_corpus(split.train(), tokenizer, config.documents)
    val = encode_corpus(split.val(), tokenizer, config.documents) if split.val else None
    check_parts(train.tokens.size, val.tokens.size if val else None, config.documents)
    val_facts = survey(split.val()) if split.val else Survey()
    return Prepared(text, facts, split, tokenizer, train, val, val_facts)


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
    share = None if config.val == "none" else held_out_share(config.val)
    split, train, val, val_facts = None, file.corpus, None, Survey()
    if share is not None:
        train, val, val_facts = split_tokens(file, share, config.split_seed)
    elif config.val != "none":
        split, val, val_facts = _held_out_file(config, file)
    check_parts(train.tokens.size, val.tokens.size if val else None, config.documents)
    text = Text((file.path,), config.newlines)
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
    return Split(lambda: iter(()), text.chunks), val, survey(text.chunks())


def reload_data(
    paths: tuple[Path, ...], config: DataConfig, tokenizer: Tokenizer, held_out: Path | None
) -> Prepared:
    """Read a stored model's data again.

    Args:
        paths: its text, or its token file.
        config: how it was read.
        tokenizer: the model's.
        held_out: the part held out in training, which is used even if the text has changed.

    Raises:
        SeqgenError: it cannot be read, or is a token file of another tokenizer.
    """
    original = config
    if path_of(config.val) is not None:
        config = replace(config, val="none")  # kept with the model; the file itself may be gone
    if is_token_file(paths[0]):
        file = open_token_file(paths[0])
        check_tokenizer(file, tokenizer, "the model")
        prepared, _ = prepare_tokens(file, config)
        return prepared if held_out is None else _with_held_out(prepared, held_out, config)
    text = Text(paths, config.newlines)
    place = _Cached.of(text, original)
    cached = _from_cache(place, text, original)
    if cached is not None and cached.tokenizer.fingerprint == tokenizer.fingerprint:
        same = held_out is None or filecmp.cmp(held_out, place.val_text, shallow=False)
        return cached if same else _with_held_out(cached, held_out, config)
    facts = survey_text(text)
    split = split_text(text, facts, config, tokenizer)
    if held_out is not None:
        split = replace(split, val=Text((held_out,)).chunks)
    return encode_parts(text, facts, split, tokenizer, config)


def _with_held_out(prepared: Prepared, path: Path, config: DataConfig) -> Prepared:
    """Replace the held-out part by the one in the model's folder."""
    if is_token_file(path):
        file = open_token_file(path)
        return replace(prepared, val=file.corpus, val_facts=file.facts)
    val = encode_corpus(Text((path,)).chunks(), prepared.tokenizer, config.documents)
    return replace(prepared, val=val, val_facts=survey(Text((path,)).chunks()))


@dataclass(frozen=True)
class _Cached:
    """Where the cache keeps a large text: its two parts as token files, and the held-out text."""

    train: Path
    val: Path
    val_text: Path
    about: Path

    @classmethod
    def of(cls, text: Text, config: DataConfig) -> _Cached:
        """Return where a text that is read in this way is cached.

        A file counts as unchanged if its path, size and modification time are the same.
        """
        files = [*text.paths]
        for name in (config.val, config.tokenizer):
            path = Path(name)
            files += [path] if path.is_file() else sorted(path.glob("**/tokenizer*"))
        stamps = [(str(path.resolve()), path.stat()) for path in files]
        key = [
            CACHE_FORMAT,
            config.to_dict(),
            [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stamps],
        ]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        endings = (".tok", ".val.tok", ".val.txt", ".json")
        return cls(*(store.tokens_folder() / (name + ending) for ending in endings))


def prepare_large(
    text: Text, config: DataConfig, tokenizer: Tokenizer | None, report: Report
) -> Prepared:
    """Do what `prepare` does, through token files in the cache, which are written once.

    Raises:
        SeqgenError: as `prepare`; or the cache cannot be written.
    """
    place = _Cached.of(text, config)
    known = _from_cache(place, text, config)
    if known is not None:
        report(Notice(text=f"the text is in the cache as tokens ({place.train})"))
        return known
    facts = survey_text(text)
    split = split_text(text, facts, config, tokenizer or tokenizer_kind(config.tokenizer))
    tokenizer = tokenizer or train_tokenizer(text, split, config)
    report(Notice(text=f"encoding {facts.bytes >> 20:,} MB of text into the cache, once"))
    try:
        place.train.parent.mkdir(parents=True, exist_ok=True)
        if split.val:
            with replacing(place.val_text) as file:
                for chunk in split.val():
                    file.write(chunk.encode())
    except OSError as error:
        raise SeqgenError(f"{place.val_text} cannot be written: {error.strerror}") from None

    def progress(before: int) -> Callable[[int], None]:
        return lambda done: report(Encoding(share=min(1.0, (before + done) / facts.bytes)))

    write_token_file(place.train, split.train(), tokenizer, config.documents, progress(0))
    if split.val:
        done = facts.bytes - place.val_text.stat().st_size
        write_token_file(
            place.val, split.val(), tokenizer, config.documents, progress(max(0, done))
        )
    write_json(place.about, dataclasses.asdict(facts))
    return _from_cache(place, text, config)


def _from_cache(place: _Cached, text: Text, config: DataConfig) -> Prepared | None:
    """Return the cached data; None if it is missing, incomplete or damaged."""
    try:
        facts = Survey(**json.loads(place.about.read_text(encoding="utf-8")))
        train = open_token_file(place.train)
        val = open_token_file(place.val) if config.val != "none" else None
    except (OSError, ValueError, TypeError, SeqgenError):
        return None

    def train_text() -> Iterator[str]:
        return split_text(text, facts, config, train.tokenizer).train()

    split = Split(train_text, Text((place.val_text,)).chunks if val else None)
    check_parts(train.corpus.tokens.size, val.corpus.tokens.size if val else None, config.documents)
    parts = (train.corpus, val.corpus, val.facts) if val else (train.corpus, None, Survey())
    return Prepared(text, facts, split, train.tokenizer, *parts)
