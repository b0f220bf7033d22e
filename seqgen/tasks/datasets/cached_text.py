"""Large texts: encoded once into token files in the cache, and mapped from there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqgen import store
from seqgen.configs import DataConfig
from seqgen.data.split import Split, check_parts, path_of, split_text
from seqgen.data.text import Survey, Text, text_files
from seqgen.data.token_writing import write_token_file
from seqgen.data.tokenfile import open_token_file
from seqgen.errors import SeqgenError
from seqgen.files import replacing, write_json
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.tokenizers import Tokenizer
from seqgen.training.events import Encoding, Notice, Report

# Files of so many bytes are encoded once, into the cache, and mapped from there.
LARGE = 64 << 20
CACHE_FORMAT = 1


def is_large(paths: Sequence[Path]) -> bool:
    """Return whether files together are so large that they are encoded into the cache."""
    return sum(path.stat().st_size for path in paths) >= LARGE


@dataclass(frozen=True)
class Cached:
    """Where the cache keeps a large text: its two parts as token files, and the held-out text."""

    train: Path
    val: Path
    val_text: Path
    about: Path

    @classmethod
    def of(cls, text: Text, config: DataConfig) -> Cached:
        """Return where a text that is read in this way is cached.

        A file counts as unchanged if its path, size and modification time are the same.
        """
        files = [*text.paths, *_held_out_files(config)]
        tokenizer = Path(config.tokenizer)
        files += [tokenizer] if tokenizer.is_file() else sorted(tokenizer.glob("**/tokenizer*"))
        stamps = [(str(path.resolve()), path.stat()) for path in files]
        key = [
            CACHE_FORMAT,
            config.to_dict(),
            [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stamps],
        ]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        endings = (".tok", ".val.tok", ".val.txt", ".json")
        return cls(*(store.tokens_folder() / (name + ending) for ending in endings))


def _held_out_files(config: DataConfig) -> Sequence[Path]:
    """Return the files that `--val` names, by a file, a folder or a pattern; none that are gone."""
    if path_of(config.val) is None:
        return ()
    try:
        return text_files([config.val])
    except SeqgenError:
        return ()


def encode_into_cache(
    text: Text,
    facts: Survey,
    split: Split,
    tokenizer: Tokenizer,
    config: DataConfig,
    report: Report,
) -> Prepared:
    """Encode both parts of a text into token files in the cache, and return what is there.

    Raises:
        SeqgenError: a part has no token, or the cache cannot be written.
    """
    place = Cached.of(text, config)
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
        return lambda done: report(Encoding(fraction=min(1.0, (before + done) / facts.bytes)))

    write_token_file(place.train, split.train(), tokenizer, config.documents, progress(0))
    if split.val:
        done = facts.bytes - place.val_text.stat().st_size
        write_token_file(
            place.val, split.val(), tokenizer, config.documents, progress(max(0, done))
        )
    write_json(place.about, dataclasses.asdict(facts))
    return from_cache(place, text, config)


def from_cache(place: Cached, text: Text, config: DataConfig) -> Prepared | None:
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
