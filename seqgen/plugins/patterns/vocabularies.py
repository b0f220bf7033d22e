"""The tries of a tokenizer's tokens, which are kept in the cache where they take long to build."""

from __future__ import annotations

import functools
import io
import zipfile
from typing import Any

import numpy as np

from seqgen import store
from seqgen.errors import SeqgenError
from seqgen.generation.token_bytes import bytes_within_and_first
from seqgen.plugins.patterns.automaton import Vocabulary
from seqgen.plugins.patterns.time_limit import outside_time_limit
from seqgen.text.tokenizers import Tokenizer

Vocabularies = tuple[Vocabulary, Vocabulary | None]
# From so many tokens on, building the tries takes longer than reading them.
LARGE = 5000
# Of the form of kept tries. A change of what tokens stand for needs another one.
VERSION = 1
ARRAYS = ("parents", "last_bytes", "begins", "node_of")
ENDING = "trie.npz"


@functools.lru_cache(maxsize=4)
def vocabularies(tokenizer: Tokenizer, excluded: frozenset[int], backward: bool) -> Vocabularies:
    """Return the tries of token bytes: within a line, and at its start if these differ.

    Those of large vocabularies are kept in the cache of this machine. A server's limit on the time
    of a request does not count them.

    Args:
        tokenizer: of the model.
        excluded: the tokens that are never part of a text.
        backward: texts are written from right to left.
    """
    with outside_time_limit():
        if tokenizer.vocab_size < LARGE:
            return _built(tokenizer, excluded, backward)
        return _kept(tokenizer, excluded, backward)


def _built(tokenizer: Tokenizer, excluded: frozenset[int], backward: bool) -> Vocabularies:
    within, first = bytes_within_and_first(tokenizer, excluded, backward)
    every = range(tokenizer.vocab_size)
    differs = within != first
    if differs:  # a line that begins within a text would need a third table
        within.pop(tokenizer.newline_id, None)
        first.pop(tokenizer.newline_id, None)
    of_all = Vocabulary.of([within.get(i) for i in every], backward)
    return of_all, Vocabulary.of([first.get(i) for i in every], backward) if differs else None


def _kept(tokenizer: Tokenizer, excluded: frozenset[int], backward: bool) -> Vocabularies:
    """Read the tries from the cache; build and keep them if they are missing."""
    built: list[Vocabularies] = []

    def content() -> dict[str, list[bytes]]:
        built.append(_built(tokenizer, excluded, backward))
        return {ENDING: [_written(built[0])]}

    about: dict[str, Any] = {"trie": VERSION, "tokenizer": tokenizer.fingerprint}
    about |= {"excluded": sorted(excluded), "backward": backward}
    try:
        (path,) = store.kept_index_files(about, content, ENDING)
        found = built[0] if built else _read(path.read_bytes(), tokenizer.vocab_size, backward)
    except (SeqgenError, OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        found = None  # the cache cannot be written, or the file is damaged
    return found or (built[0] if built else _built(tokenizer, excluded, backward))


def _written(tries: Vocabularies) -> bytes:
    """Write tries as an `.npz` file; the arrays of the second one begin with "first_"."""
    prefixes = zip(("", "first_"), tries, strict=True)
    named = ((prefix, trie) for prefix, trie in prefixes if trie is not None)
    arrays = {f"{prefix}{x}": getattr(trie, x) for prefix, trie in named for x in ARRAYS}
    np.savez(file := io.BytesIO(), **arrays)
    return file.getvalue()


def _read(content: bytes, vocab_size: int, backward: bool) -> Vocabularies:
    """Read tries; the inverse of `_written`.

    Raises:
        ValueError, KeyError, EOFError, zipfile.BadZipFile: they are damaged.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        prefixes = ["", *(["first_"] if "first_parents" in file else [])]
        tries = [Vocabulary(*(file[f"{p}{x}"] for x in ARRAYS), backward) for p in prefixes]
    for trie in tries:
        right = trie.node_of.shape == (vocab_size,) and trie.node_of.max() < trie.size
        right &= trie.begins[-1] == trie.size == len(trie.last_bytes)
        if not right:
            raise ValueError("the arrays of a trie do not fit together")
    return tries[0], tries[1] if len(tries) > 1 else None
