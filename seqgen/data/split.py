"""The training part and the held-out part of a text, as two texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqgen.configs import DataConfig, Documents
from seqgen.data.text import Survey, Text, lines, text_files
from seqgen.errors import SeqgenError, UsageError
from seqgen.hashing import uniforms
from seqgen.tokenizers import Tokenizer
from seqgen.tokenizers.base import line_blocks

Chunks = Callable[[], Iterator[str]]


@dataclass(frozen=True)
class Split:
    """Two ways to read: each call of `train` or `val` reads its part from the start."""

    train: Chunks
    val: Chunks | None


def split_text(
    text: Text, facts: Survey, config: DataConfig, tokenizer: Tokenizer | type[Tokenizer]
) -> Split:
    """Divide a text as `config.val` says.

    A stream is cut at the first token boundary at or after character floor((1 - share) n); of
    documents, a random share of the lines, at least one, is held out by `config.split_seed`
    alone.

    Args:
        text: the whole text.
        facts: the survey of it.
        config: `val` is a share, a file, or "none".
        tokenizer: one, or its kind: token boundaries need no vocabulary.

    Raises:
        UsageError: `val` is a share that is not between 0 and 1.
        SeqgenError: `val` is a file that does not exist.
    """
    if config.val == "none":
        return Split(text.chunks, None)
    fraction = held_out_fraction(config.val)
    if fraction is None:
        held_out = Text(text_files([config.val]), text.newlines)
        return Split(text.chunks, held_out.chunks)
    if config.documents == "stream":
        cut = stream_cut(text, int((1 - fraction) * facts.characters + 1e-9), tokenizer)
        return Split(lambda: text.chunks(0, cut), lambda: text.chunks(cut))
    held = held_out_lines(facts.lines, fraction, config.split_seed)

    def part(held_out: bool) -> Iterator[str]:
        return (
            line
            for line, out in zip(lines(text.chunks(), text.name), held, strict=True)
            if out == held_out
        )

    return Split(lambda: part(False), lambda: part(True))


def held_out_fraction(val: str) -> float | None:
    """Return `val` as a share of the text, or None if it names a file.

    Raises:
        UsageError: a number that is not between 0 and 1.
    """
    try:
        fraction = float(val)
    except ValueError:
        return None
    if not 0 < fraction < 1:
        raise UsageError(f"--val {val} is not a share between 0 and 1, a file, or none")
    return fraction


def stream_cut(text: Text, at: int, tokenizer: Tokenizer | type[Tokenizer]) -> int:
    """Return the first token boundary at or after character `at`, found within its line."""
    start = 0
    for block in line_blocks(text.chunks(), tokenizer.boundary):
        if start + len(block) > at:
            begin = block.rfind("\n", 0, at - start) + 1
            end = block.find("\n", at - start) + 1 or len(block)
            return start + begin + tokenizer.boundary(block[begin:end], at - start - begin)
        start += len(block)
    return start


def held_out_lines(count: int, fraction: float, seed: int) -> np.ndarray:
    """Return which of `count` lines are held out, (count,) of bool: at least one of them."""
    draws = uniforms(seed, np.arange(count))
    held = np.zeros(count, dtype=bool)
    held[np.argsort(draws, kind="stable")[: max(1, round(fraction * count))]] = True
    return held


def check_parts(train_tokens: int, val_tokens: int | None, documents: Documents) -> None:
    """Refuse a split that leaves nothing to learn from, or nothing to measure on.

    Raises:
        SeqgenError: a part has no token.
    """
    unit = "one document a line" if documents == "line" else "a stream"
    if train_tokens == 0:
        raise SeqgenError(f"nothing is left to train on (the text is read as {unit}); give more")
    if val_tokens == 0:
        raise SeqgenError("the validation part is empty; give more text, or --val none")


def path_of(val: str) -> Path | None:
    """Return the file that `--val` names, if it names one."""
    return None if val == "none" or held_out_fraction(val) is not None else Path(val)
