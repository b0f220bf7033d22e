"""Text datasets: in memory, as token files in the cache if large, or given as token files."""

from __future__ import annotations

import dataclasses
import filecmp
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seqgen import hooks, store
from seqgen.errors import SeqgenError, UsageError, reporting_os_errors
from seqgen.files import make_listed_folder, replacing, write_json
from seqgen.settings import DataConfig, Documents, require
from seqgen.store import StoredModel
from seqgen.text.corpus import Corpus, encode_corpus
from seqgen.text.overlap import lines_not_held_out, stream_not_held_out
from seqgen.text.pairs import Tokenizers
from seqgen.text.reading import (
    Survey,
    Text,
    document_ending,
    document_reader,
    survey,
    text_files,
)
from seqgen.text.shards import open_token_files
from seqgen.text.split import (
    Chunks,
    Split,
    held_out_files,
    held_out_fraction,
    held_out_path,
    require_nonempty_parts,
    split_text,
    split_tokens,
)
from seqgen.text.token_writing import write_token_file
from seqgen.text.tokenfile import TokenFile, check_tokenizer, is_token_file, open_token_file
from seqgen.text.tokenizers import Tokenizer, tokenizer_kind
from seqgen.training.datasets.dataset import (
    DataFiles,
    DataParts,
    Dataset,
    given_tokenizer,
    require_sampling,
    train_tokenizer,
)
from seqgen.training.datasets.prepared import Prepared, survey_text
from seqgen.training.events import EncodingProgress, Notice, Report

# Files of so many bytes are encoded once, into the cache, and mapped from there.
LARGE = 64 << 20
CACHE_FORMAT = 2  # 2: held-out lines are in random order


def is_large(paths: Sequence[Path]) -> bool:
    """Check whether files are so large that they are tokenized into the cache."""
    return sum(path.stat().st_size for path in paths) >= LARGE


@dataclass(frozen=True)
class CachedText:
    """A large text tokenized into the cache: two token files, the held-out text and its facts.

    A file counts as unchanged if its path, size and modification time are the same.
    """

    text: Text
    config: DataConfig

    @cached_property
    def _name(self) -> str:
        """Common prefix of its file names."""
        files = [*self.text.paths, *_held_out_files(self.config)]
        tokenizer = Path(self.config.tokenizer)
        files += [tokenizer] if tokenizer.is_file() else sorted(tokenizer.glob("**/tokenizer*"))
        stamps = [(str(path.resolve()), path.stat()) for path in files]
        key = [
            CACHE_FORMAT,
            {k: v for k, v in self.config.to_dict().items() if k != "as_text"},
            *filter(None, [self.text.ending]),
            *(["as text"] if self.config.as_text and any(map(document_reader, files)) else []),
            [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stamps],
        ]
        return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]

    def place(self, ending: str) -> Path:
        """Return the path of one of its files: `.tok`, `.val.tok`, `.val.txt`, `.json` (facts)."""
        return store.tokens_folder() / (self._name + ending)

    def write(self, facts: Survey, split: Split, tokenizer: Tokenizer, report: Report) -> Prepared:
        """Tokenize both parts into token files, and open them.

        Raises:
            SeqgenError: a part has no token, or the cache cannot be written.
        """
        val_text, documents = self.place(".val.txt"), self.config.documents
        report(Notice(text=f"encoding {facts.bytes >> 20:,} MB of text into the cache, once"))
        with reporting_os_errors(f"{val_text} cannot be written"):
            make_listed_folder(val_text.parent)
            if split.val:
                with replacing(val_text) as file:
                    for chunk in split.val():
                        file.write(chunk.encode())

        def progress(before: int) -> Callable[[int], None]:
            return lambda done: report(
                EncodingProgress(fraction=min(1.0, (before + done) / facts.bytes))
            )

        parts = [(".tok", split.train, 0)]
        if split.val:
            parts.append((".val.tok", split.val, facts.bytes - val_text.stat().st_size))
        for ending, part, done in parts:
            place = self.place(ending)
            write_token_file(place, part(), tokenizer, documents, progress(max(0, done)))
        write_json(self.place(".json"), dataclasses.asdict(facts))
        return self.open()

    def open(self) -> Prepared | None:
        """Open the cached data; None if it is missing, incomplete or damaged."""
        config = self.config
        try:
            facts = Survey(**json.loads(self.place(".json").read_text(encoding="utf-8")))
            train = open_token_file(self.place(".tok"))
            val = open_token_file(self.place(".val.tok")) if config.val != "none" else None
        except (OSError, ValueError, TypeError, SeqgenError):
            return None

        def train_text() -> Iterator[str]:
            return split_text(self.text, facts, config, train.tokenizer).train()

        split = Split(train_text, Text((self.place(".val.txt"),)).chunks if val else None)
        val, val_facts = (val.corpus, val.facts) if val else (None, Survey())
        require_nonempty_parts(
            train.corpus.tokens.size, val.tokens.size if val else None, config.documents
        )
        encoded = train.tokenizer, train.corpus, val, val_facts
        return Prepared(self.text, facts, split, *encoded, config)


def _held_out_files(config: DataConfig) -> Sequence[Path]:
    """List the existing files that `--val` names by file, folder or pattern."""
    if held_out_path(config.val) is None:
        return ()
    try:
        return text_files([config.val], config.as_text)
    except SeqgenError:
        return ()


@dataclass
class TextDataset(Dataset):
    """Dataset of one or several text files, as one stream or line by line."""

    @property
    def record_end(self) -> str:
        return document_ending(self.config.documents)

    @classmethod
    def open(
        cls,
        files: DataFiles,
        config: DataConfig,
        known: Tokenizers | None = None,
        flags: Collection[str] = (),
    ) -> Dataset:
        for kind in hooks.load_all("datasets"):
            if kind.suits(files, config, known):
                return kind(files, config, known, flags)
        require(config.loss_on is None, "loss_on needs a plugin that reads conversations: chat")
        return super().open(files, config, known, flags)

    @classmethod
    def kind_of(cls, files: DataFiles) -> type[Dataset]:
        if any(map(is_token_file, files.paths)):
            together = all(map(is_token_file, files.paths))
            require(together, "give token files alone, not among other files")
            return TokenDataset
        return LargeTextDataset if is_large(files.paths) else cls

    @cached_property
    def own_tokenizer(self) -> Tokenizer | None:
        """The known or given tokenizer; None if one must be trained."""
        return given_tokenizer(self.config) if self.known is None else self.known.target

    def check(self) -> None:
        held_out = held_out_path(self.config.val)
        as_text = held_out is None or not is_token_file(held_out)
        require(as_text, f"--val {self.config.val} is a token file, and the data is text")
        tokenizer = self.own_tokenizer
        kind = tokenizer_kind(self.config.tokenizer) if tokenizer is None else type(tokenizer)
        require_sampling(self.config, kind)

    def survey(self) -> Survey:
        return survey_text(self.text)

    def split(self, facts: Survey) -> Split:
        # The split asks only for token boundaries, and those need no vocabulary.
        tokenizer = self.own_tokenizer or tokenizer_kind(self.config.tokenizer)
        return split_text(self.text, facts, self.config, tokenizer)

    def learn_tokens(self, parts: Split) -> Tokenizers:
        given, chunks = self.own_tokenizer, self.text.chunks
        return Tokenizers(given or train_tokenizer(self.config, chunks, parts.train), None)

    def held_out(self, stored: StoredModel) -> Chunks | None:
        path = stored.validation_text
        return path and Text((path,)).chunks

    def without(self, held_out: Chunks) -> Chunks:
        if self.config.documents == "line":
            return lines_not_held_out(self.text, held_out)
        train = stream_not_held_out(self.text, held_out)
        if train is None:
            raise SeqgenError(
                f"{self.text.name} has only some lines of the part that is held out, which cannot "
                "be told from the others: restore that part, or use --init-from"
            )
        return train

    def encode(self, facts: Survey, parts: Split, tokens: Tokenizers, report: Report) -> Prepared:
        tokenizer, documents = tokens.target, self.config.documents
        train = encode_corpus(parts.train(), tokenizer, documents)
        val = encode_corpus(parts.val(), tokenizer, documents) if parts.val else None
        require_nonempty_parts(train.tokens.size, val.tokens.size if val else None, documents)
        val_facts = survey(parts.val()) if parts.val else Survey()
        return Prepared(self.text, facts, parts, tokenizer, train, val, val_facts, self.config)


@dataclass
class LargeTextDataset(TextDataset):
    """Dataset of a large text: tokenized once into the cache, then memory-mapped."""

    def prepare(self, given: Collection[str], report: Report) -> Prepared:
        self.check()
        cache, tokenizer = CachedText(self.text, self.config), self.own_tokenizer
        known = cache.open()
        if known is None or (tokenizer and tokenizer.fingerprint != known.tokenizer.fingerprint):
            return super().prepare(given, report)
        place = cache.place(".tok")
        report(Notice(text=f"the text is in the cache as tokens ({place})"))
        return known

    def reload(self, stored: StoredModel, is_changed: Callable[[Survey], bool]) -> Prepared:
        recorded, tokens = store.data_of(stored.record)["sha256"], self.known.target.fingerprint
        for text in dict.fromkeys([self.text, replace(self.text, ending="")]):
            cache = CachedText(text, self.config)
            cached = cache.open()
            if cached and (cached.facts.sha256, cached.tokenizer.fingerprint) == (recorded, tokens):
                held_out = stored.validation_text
                kept = cache.place(".val.txt")
                same = held_out is None or filecmp.cmp(held_out, kept, shallow=False)
                return cached if same else _replace_held_out(cached, held_out)
        return TextDataset(self.files, self.config, self.known).reload(stored, is_changed)

    def encode(self, facts: Survey, parts: Split, tokens: Tokenizers, report: Report) -> Prepared:
        return CachedText(self.text, self.config).write(facts, parts, tokens.target, report)


@dataclass
class TokenDataset(Dataset):
    """Dataset of token files, which are joined; they record how their text was read."""

    @cached_property
    def file(self) -> TokenFile:
        """All token files joined into one."""
        return open_token_files(self.files.paths)

    def check(self) -> None:
        settled = {"tokenizer", "vocab_size", "min_count", "newlines", "subword_sampling"}
        for name in sorted(settled & set(self.flags)):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is fixed by the token file {self.file.path}")
        known = f"{self.file.path} has held-out examples; train on their own files"
        require(not self.file.is_examples, known)
        documents = self.file.documents
        if "documents" in self.flags and self.config.documents != documents:
            raise UsageError(f"{self.file.path} was written with --documents {documents}")

    def survey(self) -> Survey:
        return self.file.facts

    def settings_from_data(
        self, facts: Survey, given: Collection[str]
    ) -> tuple[dict[str, Any], str]:
        settled = {"tokenizer": self.file.tokenizer.kind, "documents": self.file.documents}
        return {**settled, "vocab_size": None, "min_count": 1, "subword_sampling": None}, ""

    def split(self, facts: Survey) -> DataParts:
        fraction = None if self.config.val == "none" else held_out_fraction(self.config.val)
        if fraction is not None:
            train, *val = split_tokens(self.file, fraction, self.config.split_seed)
            return DataParts(train, (None, *val))
        if self.config.val == "none":
            return DataParts(self.file.corpus, None)
        return DataParts(self.file.corpus, self._held_out_file())

    def _held_out_file(self) -> HeldOut:
        """Open `--val FILE` for token-file training: a text, or a token file too."""
        file, val = self.file, self.config.val
        if is_token_file(val):
            other = open_token_file(val)
            check_tokenizer(other, file.tokenizer, str(file.path))
            require(
                other.documents == file.documents,
                f"{other.path} was written with --documents {other.documents}, "
                f"{file.path} with {file.documents}",
            )
            return None, other.corpus, other.facts
        files = held_out_files(self.config)
        config, ending = self.config, document_ending(file.documents)
        text = Text(files, config.newlines, ending, config.as_text)
        return _encode_held_out(text, file.tokenizer, file.documents)

    def learn_tokens(self, parts: DataParts) -> Tokenizers:
        return Tokenizers(self.file.tokenizer, None)

    def reload(self, stored: StoredModel, is_changed: Callable[[Survey], bool]) -> Prepared:
        check_tokenizer(self.file, self.known.target, "the model")
        return super().reload(stored, is_changed)

    def held_out(self, stored: StoredModel) -> HeldOut | None:
        path = stored.validation_text
        return path and _load_held_out(path, self.file.tokenizer, self.config.documents)

    def without(self, held_out: HeldOut) -> Corpus:
        raise SeqgenError(
            f"{self.file.path} has changed, and nothing tells which of its tokens were held out: "
            "train on it with --init-from"
        )

    def encode(
        self, facts: Survey, parts: DataParts, tokens: Tokenizers, report: Report
    ) -> Prepared:
        split, val, val_facts = parts.val or (None, None, Survey())
        sizes = parts.train.tokens.size, val.tokens.size if val else None
        require_nonempty_parts(*sizes, self.config.documents)
        text = self.text, facts, split, tokens.target
        return Prepared(*text, parts.train, val, val_facts, self.config)


# How a held-out part beside tokens is read as text, if it came as such; its ids, and its facts.
HeldOut = tuple[Split | None, Corpus, Survey]


def _replace_held_out(prepared: Prepared, path: Path) -> Prepared:
    """Replace the held-out part by the one in a model's folder."""
    split, val, facts = _load_held_out(path, prepared.tokenizer, prepared.config.documents)
    split = split and replace(prepared.split, val=split.val)
    return replace(prepared, split=split or prepared.split, val=val, val_facts=facts)


def _load_held_out(path: Path, tokenizer: Tokenizer, documents: Documents) -> HeldOut:
    """Load the held-out part from a model's folder: a text or a token file."""
    if is_token_file(path):
        file = open_token_file(path)
        return None, file.corpus, file.facts
    return _encode_held_out(Text((path,)), tokenizer, documents)


def _encode_held_out(text: Text, tokenizer: Tokenizer, documents: Documents) -> HeldOut:
    """Tokenize a held-out text when the training part came as a token file."""
    corpus = encode_corpus(text.chunks(), tokenizer, documents)
    return Split(lambda: iter(()), text.chunks), corpus, survey(text.chunks())
