"""Train/validation split of a text or a token file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqgen.errors import SeqgenError, UsageError
from seqgen.hashing import uniforms
from seqgen.text.corpus import Corpus, gather_corpus, slice_items
from seqgen.text.framing import Framing
from seqgen.text.reading import Survey, Text, lines
from seqgen.text.sources import take_spans
from seqgen.text.tokenfile import MARK, TokenFile
from seqgen.text.tokenizers.base import line_blocks
from seqgen.text.training_files import training_files

if TYPE_CHECKING:
    from seqgen.settings import DataConfig, Documents
    from seqgen.text.tokenizers import Tokenizer

Chunks = Callable[[], Iterator[str]]
# Held-out lines that are kept in memory to be put in order.
LINES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Split:
    """The two parts of a text: each call of `train` or `val` reads its part from the start."""

    train: Chunks
    val: Chunks | None


def split_text(
    text: Text, facts: Survey, config: DataConfig, tokenizer: Tokenizer | type[Tokenizer]
) -> Split:
    """Split a text into training and validation part as `config.val` says.

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
        return Split(text.chunks, replace(text, paths=held_out_files(config)).chunks)
    if config.documents == "stream":
        cut = stream_cut(text, int((1 - fraction) * facts.characters + 1e-9), tokenizer)
        return Split(lambda: text.chunks(0, cut), lambda: text.chunks(cut))
    drawn = draw_held_out(facts.lines, fraction, config.split_seed)

    def chosen(mask: np.ndarray) -> Iterator[str]:
        """Read some lines, in the order of the text."""
        read = zip(lines(text.chunks(), text.name), mask, strict=True)
        return (line for line, wanted in read if wanted)

    def held_out() -> Iterator[str]:
        """Read the held-out lines as drawn, in one pass over the text for so many of them."""
        for at in range(0, drawn.size, LINES_AT_ONCE):
            some = drawn[at : at + LINES_AT_ONCE]
            found = list(chosen(_mask(some, facts.lines)))
            yield from (found[place] for place in np.searchsorted(np.sort(some), some))

    return Split(lambda: chosen(~_mask(drawn, facts.lines)), held_out)


def held_out_files(config: DataConfig) -> tuple[Path, ...]:
    """List the files that `val` names, if any; see `training_files`."""
    return training_files([config.val], config.as_text)


def held_out_fraction(val: str) -> float | None:
    """Parse `val` as a share of the text; None if it names a file.

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
    """Find the first token boundary at or after character `at`, within its line."""
    start = 0
    for block in line_blocks(text.chunks(), tokenizer.boundary):
        if start + len(block) > at:
            begin = block.rfind("\n", 0, at - start) + 1
            end = block.find("\n", at - start) + 1 or len(block)
            return start + begin + tokenizer.boundary(block[begin:end], at - start - begin)
        start += len(block)
    return start


def held_out_lines(count: int, fraction: float, seed: int) -> np.ndarray:
    """Draw the held-out lines, at least one, as a mask (count,) of bool."""
    return _mask(draw_held_out(count, fraction, seed), count)


def _mask(numbers: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(count, dtype=bool)
    mask[numbers] = True
    return mask


def draw_held_out(count: int, fraction: float, seed: int) -> np.ndarray:
    """Draw the numbers (M,) of the held-out lines, at least one, in random order.

    So each part of the held-out text is like the whole, even of a sorted file. The last line of
    all, which may lack its newline, stays the last.
    """
    drawn = np.argsort(uniforms(seed, np.arange(count)), kind="stable")
    drawn = drawn[: max(1, round(fraction * count))]
    return drawn[np.argsort(drawn == count - 1, kind="stable")]


def require_nonempty_parts(train_tokens: int, val_tokens: int | None, documents: Documents) -> None:
    """Refuse a split with an empty training or validation part.

    Raises:
        SeqgenError: a part has no token.
    """
    unit = "one document a line" if documents == "line" else "a stream"
    if train_tokens == 0:
        raise SeqgenError(f"nothing is left to train on (the text is read as {unit}); give more")
    if val_tokens == 0:
        raise SeqgenError("the validation part is empty; give more text, or --val none")


def held_out_path(val: str) -> Path | None:
    """Return the file that `--val` names, or None."""
    return None if val == "none" or held_out_fraction(val) is not None else Path(val)


TokenParts = tuple[Corpus, Corpus, Survey]
PIECE = 1 << 22
# Held-out documents that are taken from a token file at once.
TAKEN = 1 << 12
# How far before a mark to look for the beginning of its line, in tokens.
LOOK_BACK = 1 << 20


def split_tokens(file: TokenFile, fraction: float, seed: int) -> TokenParts:
    """Split a token file as `split_text` would split its text.

    Args:
        file: the whole text.
        fraction: of the text that is held out, 0 to 1.
        seed: draws the held-out lines; a stream's end is held out.

    Returns:
        The training part, the held-out part, and the held-out part's characters and bytes.

    Raises:
        SeqgenError: the position in the text of a token of a short stream cannot be found.
    """
    if file.documents == "line":
        return _split_lines(file, fraction, seed)
    cut, characters, size = token_cut(file, int((1 - fraction) * file.facts.characters + 1e-9))
    facts = Survey(file.facts.characters - characters, file.facts.bytes - size, 0, "")
    return _part(file, 0, cut), _part(file, cut, file.corpus.tokens.size), facts


def _part(file: TokenFile, begin: int, end: int) -> Corpus:
    tokens = slice_items(file.corpus.tokens, begin, end)
    unknown = file.tokenizer.unk_id
    oov = sum(
        int(np.count_nonzero(tokens[at : at + PIECE] == unknown)) if file.corpus.oov else 0
        for at in range(0, tokens.size, PIECE)
    )
    ends = np.array([tokens.size][: tokens.size], dtype=np.int64)
    return replace(file.corpus, tokens=tokens, ends=ends, oov=oov)


def token_cut(file: TokenFile, at: int) -> tuple[int, int, int]:
    """Find the first token boundary at or after character `at`; return it with the text before.

    If the ids do not determine the text (unknowns, or a tokenizer that loses text), it is the next
    of the file's marks.

    Returns:
        The numbers of tokens, characters and bytes before it.
    """
    if file.parts:
        return _cut_in_parts(file, at)
    marks = file.marks
    block = int(np.searchsorted(marks[:, 0], at))  # marks before it are before the place
    exact = _within_block(file, block, at)
    if exact is not None:
        return exact
    if block < len(marks):
        return (block + 1) * MARK, int(marks[block, 0]), int(marks[block, 1])
    raise SeqgenError(
        f"{file.path} has unknowns, or a tokenizer that loses text, and is too short to be "
        "divided by its characters; give --val FILE, or the text itself"
    )


def _cut_in_parts(file: TokenFile, at: int) -> tuple[int, int, int]:
    """Find the cut of concatenated token files, in the file that contains the position."""
    tokens = characters = size = 0
    for part in file.parts:
        if at - characters <= part.facts.characters:
            cut = token_cut(part, at - characters)
            return tokens + cut[0], characters + cut[1], size + cut[2]
        tokens += part.corpus.tokens.size
        characters += part.facts.characters
        size += part.facts.bytes
    return tokens, characters, size


def _within_block(file: TokenFile, block: int, at: int) -> tuple[int, int, int] | None:
    """Find the cut in the block after mark `block` by re-encoding the text around it."""
    tokens, tokenizer = file.corpus.tokens, file.tokenizer
    first = block * MARK
    back = max(0, first - LOOK_BACK)
    newlines = np.flatnonzero(tokens[back:first] == tokenizer.newline_id)
    begin = back + int(newlines[-1]) + 1 if newlines.size else back
    ahead = tokens[first + MARK : first + MARK + LOOK_BACK]
    newlines = np.flatnonzero(ahead == tokenizer.newline_id)
    end = first + MARK + int(newlines[0]) + 1 if newlines.size else first + MARK + ahead.size
    ids = tokens[begin:end]
    if not tokenizer.lossless or (ids == tokenizer.unk_id).any():
        return None
    text = tokenizer.text_bytes(ids).decode("utf-8", "replace")
    if not np.array_equal(tokenizer.encode(text), ids):
        return None
    raw = np.frombuffer(text.encode(), dtype=np.uint8)
    ends = np.concatenate([[0], tokenizer.byte_ends(text)])  # before each token, and after all
    heads = np.concatenate([[True], (raw & 0xC0) != 0x80, [True]])[1:]
    characters = np.concatenate([[0], np.cumsum(heads[:-1])])[ends]
    known = file.marks[block - 1] if block else np.zeros(2, dtype=np.int64)
    characters = characters - characters[first - begin] + known[0]
    sizes = ends - ends[first - begin] + known[1]
    # A token without bytes of its own is the first part of an escape.
    whole = heads[ends] & (np.diff(ends, append=raw.size + 1) > 0)
    candidates = np.flatnonzero((characters >= at) & whole)
    if candidates.size == 0:
        return None
    place = int(candidates[0])
    return begin + place, int(characters[place]), int(sizes[place])


def _split_lines(file: TokenFile, fraction: float, seed: int) -> TokenParts:
    corpus, framing = file.corpus, Framing.of(file.tokenizer, "line")
    drawn = draw_held_out(corpus.ends.size, fraction, seed)
    held = _mask(drawn, corpus.ends.size)
    some = (drawn[at : at + TAKEN] for at in range(0, drawn.size, TAKEN))
    held_out = (take_spans(corpus.tokens, corpus.starts, corpus.ends, one)[0] for one in some)
    train, val = (
        gather_corpus(pieces, framing, file.tokenizer)
        for pieces in (_chosen(corpus, ~held), held_out)
    )
    characters, sizes = file.sections["characters"], file.sections["bytes"]
    facts = Survey(
        int(characters.sum(where=held, dtype=np.int64)),
        int(sizes.sum(where=held, dtype=np.int64)),
        int(held.sum()),
        "",
    )
    return train, val, facts


def _chosen(corpus: Corpus, chosen: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the tokens of the chosen documents, a group of documents at a time."""
    at = 0
    while at < corpus.ends.size:
        begin = int(corpus.ends[at - 1]) if at else 0
        after = max(at + 1, int(np.searchsorted(corpus.ends, begin + PIECE)))
        ends = corpus.ends[at:after]
        lengths = np.diff(ends, prepend=begin)
        yield corpus.tokens[begin : int(ends[-1])][np.repeat(chosen[at:after], lengths)]
        at = after
