"""Tokenize and detokenize text line by line, and train tokenizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqgen import store
from seqgen.errors import SeqgenError, UsageError, reporting_os_errors
from seqgen.limits import whole_lines
from seqgen.settings import DataConfig, Documents
from seqgen.store.loading import parts_of
from seqgen.text.encoding import lines_of_tokens
from seqgen.text.labels import Labels
from seqgen.text.tokenizers import KINDS, Tokenizer, load_tokenizer, tokenizer_kind
from seqgen.training.datasets.dataset import open_tokenizer
from seqgen.wording import ShortRepr


@dataclass(frozen=True, repr=False)
class TokenizedLine(ShortRepr):
    """The keys of `seqgen tokenize --json`, in order."""

    index: int
    text: str
    ids: list[int]
    pieces: list[str]


@dataclass(frozen=True, repr=False)
class TokenizedPair(TokenizedLine):
    """A tokenized pair, for JSON; `text`, `ids` and `pieces` are the target's."""

    source: str
    source_ids: list[int]
    source_pieces: list[str]


def find_tokenizer(model: str | None, path: str | None) -> Tokenizer:
    """Open the tokenizer of a model, or the one at a path.

    Args:
        model: a model's name or path, a mixture, or None for the latest.
        path: a folder, a `.model` or a token file; or a kind that needs no text to learn from.

    Raises:
        SeqgenError: there is none.
    """
    if path is None:
        stored = store.find_all(model)
        parts = parts_of(stored)
        each = {load_tokenizer(part.path / "tokenizer").fingerprint for part in parts}
        if len(each) > 1 or any(part.view for part in (stored, *parts)):
            return KINDS["byte"].train(())  # as models with different tokenizers are mixed
        return load_tokenizer(stored.path / "tokenizer")
    if path == "byte":
        return KINDS[path].train(())
    if not Path(path).exists():
        if path in KINDS:
            raise UsageError(
                f"{path} has to learn a vocabulary from text first: use --train {path} --out FOLDER"
            )
        raise SeqgenError(f"there is no tokenizer {path}")
    return open_tokenizer(Path(path))


def find_source_tokenizer(model: str | None) -> Path | None:
    """Find the source tokenizer of a translation model; None for labels or a shared one.

    See `find_tokenizer` for what `model` is, and for its errors.
    """
    folder = store.find_all(model).path / store.SOURCE_TOKENIZER
    return folder if folder.is_dir() and not (folder / store.LABELS).exists() else None


def pair_tokenizer(model: str | None) -> Tokenizer | None:
    """Open the source tokenizer of a translation model; None for a text model.

    See `find_tokenizer` for what `model` is, and for its errors.
    """
    first = parts_of(store.find_all(model))[0]
    return first.load_source_tokenizer(load_tokenizer(first.path / "tokenizer"))


def newline_policy(model: str | None) -> str:
    """Look up how a model's text treats newlines; for `model` see `find_tokenizer`."""
    return parts_of(store.find_all(model))[0].config["data"].get("newlines", "keep")


def train_to_folder(
    kind: str, chunks: Iterable[str], vocab_size: int | None, min_count: int, out: Path
) -> Tokenizer:
    """Train a tokenizer on a text and write it to a folder.

    Raises:
        UsageError: there is no such kind, or the vocabulary is too small or too large.
        SeqgenError: the folder cannot be written.
    """
    DataConfig(tokenizer=kind, vocab_size=vocab_size, min_count=min_count)  # for its bounds
    tokenizer = tokenizer_kind(kind).train(chunks, vocab_size, min_count)
    with reporting_os_errors(f"{out} cannot be written"):
        tokenizer.save(out)
    return tokenizer


def tokenize(
    chunks: Iterable[str],
    tokenizer: Tokenizer,
    documents: Documents = "stream",
    source_tokenizer: Tokenizer | None = None,
) -> Iterator[list[TokenizedLine]]:
    """Tokenize a text line by line, each line as soon as it arrives.

    Args:
        chunks: the text in pieces cut anywhere.
        tokenizer: its ids.
        documents: "stream" keeps each line's newline; "line" is BOS line EOS.
        source_tokenizer: the ids of what stands before the first tab of a line, where lines are
            pairs; with "line" it ends with EOS, as a model reads it.

    Yields:
        The lines that came together, in order.

    Raises:
        SeqgenError: a line without a tab is to be a pair; the lines before it have been yielded.
    """
    if documents == "stream" and source_tokenizer is None and not tokenizer.line_safe:
        yield from _tokenize_whole(chunks, tokenizer)
        return
    index = 0
    for block in whole_lines(chunks):
        lines = []
        for text in _split_lines(block):
            source, tab, target = text.partition("\t")
            if source_tokenizer is not None:
                if not tab:
                    yield lines
                    raise SeqgenError(
                        f"line {index + 1} has no tab, and this model reads pairs: give "
                        "source<TAB>target, or one side with --tokenizer (a model's folder "
                        "tokenizer or source_tokenizer)"
                    )
                text = target
            # Where a newline is no token of its own, a model of pairs reads none.
            if documents == "line" or not tokenizer.line_safe:
                text = text.removesuffix("\n")
            ids = tokenizer.encode(text).tolist()
            if documents == "line":
                ends = [tokenizer.bos_id], ids, [tokenizer.eos_id]
                ids = [token for part in ends for token in part if token is not None]
            line = TokenizedLine(index, text, ids, tokenizer.pieces(ids))
            if source_tokenizer is not None:
                ids = source_tokenizer.encode(source).tolist()
                if documents == "line" and source_tokenizer.eos_id is not None:  # labels have none
                    ids.append(source_tokenizer.eos_id)
                line = TokenizedPair(
                    **vars(line),
                    source=source,
                    source_ids=ids,
                    source_pieces=source_tokenizer.pieces(ids),
                )
            lines.append(line)
            index += 1
        yield lines


def _tokenize_whole(chunks: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[TokenizedLine]]:
    """Tokenize a text whose tokens may span line ends.

    A token is given with the line that it begins in.
    """
    index, text, ids = 0, "", np.zeros(0, tokenizer.dtype)
    for block in tokenizer.blocks(chunks):
        read = tokenizer.encode(block)
        texts = _split_lines(block) or [""]
        ends = np.searchsorted(lines_of_tokens(tokenizer, block, read), range(1, len(texts)))
        lines = []
        for more, piece in zip(texts, np.split(read, ends), strict=True):
            text, ids = text + more, np.concatenate([ids, piece])
            if more.endswith("\n"):
                lines.append(
                    TokenizedLine(index, text, ids.tolist(), tokenizer.pieces(ids.tolist()))
                )
                index, text, ids = index + 1, "", ids[:0]
        yield lines
    if text:
        yield [TokenizedLine(index, text, ids.tolist(), tokenizer.pieces(ids.tolist()))]


def refuse_tabs(chunks: Iterable[str], what: str, of_sources: Tokenizer | Labels) -> Iterator[str]:
    """Yield a text unchanged; refuse a tab, which marks pairs or labelled lines.

    Args:
        chunks: the text in pieces cut anywhere.
        what: takes none, such as a flag.
        of_sources: the tokenizer of the model's sources, or its labels.

    Raises:
        SeqgenError: a line has a tab; names it.
    """
    number = 1
    for chunk in chunks:
        at = chunk.find("\t")
        if at >= 0:
            line = number + chunk.count("\n", 0, at)
            if isinstance(of_sources, Labels):
                raise SeqgenError(
                    f"line {line} has a tab, and labels before it for this model: {what} takes "
                    "texts without their labels (cut -f 2)"
                )
            raise SeqgenError(
                f"line {line} has a tab, and is a pair for this model: {what} takes one side at "
                "a time (cut -f 2; cut -f 1 for the sources)"
            )
        number += chunk.count("\n")
        yield chunk


def _split_lines(block: str) -> list[str]:
    """Split a block after every newline, and nowhere else."""
    *whole, rest = block.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def detokenize(
    rows: Iterable[Sequence[int]], tokenizer: Tokenizer, documents: Documents = "stream"
) -> Iterator[TokenizedLine]:
    """Decode rows of ids; the decoded rows in order form the whole text.

    Args:
        rows: lists of ids.
        tokenizer: what made them.
        documents: "line" puts a newline after each row.

    Raises:
        SeqgenError: there is no such id; says in which row.
    """
    decoder, last = tokenizer.decoder(), None
    for index, row in enumerate(rows):
        ids = list(row)
        wrong = next((i for i in ids if not 0 <= i < tokenizer.vocab_size), None)
        if wrong is not None:
            raise SeqgenError(
                f"line {index + 1}: there is no token {wrong}; the vocabulary has "
                f"{tokenizer.vocab_size}"
            )
        if documents == "line":
            decoder = tokenizer.decoder()
        text = "".join(map(decoder.push, ids))
        if documents == "line":
            text += decoder.flush() + "\n"
        last = TokenizedLine(index, text, ids, tokenizer.pieces(ids))
        yield last
    if last is not None and documents == "stream" and (rest := decoder.flush()):
        yield TokenizedLine(last.index + 1, rest, [], [])
