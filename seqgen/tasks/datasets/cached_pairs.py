"""Large files of pairs: both sides are encoded once, into token files in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from seqgen import store
from seqgen.data.corpus import Corpus
from seqgen.data.pairs import Pairs, Tokenizers
from seqgen.data.sources import TokenSources
from seqgen.data.token_writing import write_token_file
from seqgen.data.tokenfile import TokenFile, open_token_file
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer
from seqgen.training.events import Notice, Report

CACHE_FORMAT = 1


@dataclass(frozen=True)
class CachedSides:
    """Where the cache keeps pairs: a token file of the sources and one of the targets.

    The name follows from what the pairs and the tokenizers are, so that a file that has moved, or
    another split that leaves the same pairs, is found again.
    """

    source: Path
    target: Path

    @classmethod
    def of(cls, pairs: Pairs, tokenizers: Tokenizers) -> CachedSides:
        """Return where these pairs, encoded by these tokenizers, are cached."""
        both = tokenizers.source.fingerprint, tokenizers.target.fingerprint
        key = json.dumps([CACHE_FORMAT, pairs.survey().sha256, *both])
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        return cls(*(store.tokens_folder() / f"{name}.{side}.tok" for side in ("source", "target")))

    def open(self) -> tuple[TokenFile, TokenFile] | None:
        """Return both token files; None if one is missing, incomplete or damaged."""
        try:
            return open_token_file(self.source), open_token_file(self.target)
        except (OSError, SeqgenError):
            return None


def encode_once(pairs: Pairs, tokenizers: Tokenizers, report: Report) -> Corpus:
    """Do what `encode_pairs` does, through token files in the cache, which are written once.

    Raises:
        SeqgenError: as reading the pairs does; or the cache cannot be written.
    """
    place = CachedSides.of(pairs, tokenizers)
    files = place.open()
    if files is None:
        report(Notice(text="encoding the pairs into the cache, once"))
        _write(place.source, pairs.sources(), tokenizers.source)
        _write(place.target, pairs.targets(), tokenizers.target)
        files = place.open()
    source, target = (file.corpus for file in files)
    return replace(target, sources=TokenSources(source.tokens, source.ends, source.oov))


def _write(path: Path, lines: Iterator[str], tokenizer: Tokenizer) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SeqgenError(f"{path} cannot be written: {error.strerror}") from None
    write_token_file(path, lines, tokenizer, "line")
