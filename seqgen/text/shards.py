"""Sharded token files: a large text in several files, read block by block."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqgen.errors import reporting_os_errors
from seqgen.files import delete_own
from seqgen.hashing import hash64, uniforms
from seqgen.settings.setting import require
from seqgen.text.batches import (
    SHIFT,
    SHUFFLE,
    Batch,
    Batches,
    DerivedBatches,
    read_windows,
    training_batches,
)
from seqgen.text.corpus import ConcatenatedArray, Corpus
from seqgen.text.reading import Survey
from seqgen.text.token_writing import WrittenTokens, write_token_file
from seqgen.text.tokenfile import MAGIC, SUFFIX, TokenFile, check_tokenizer, open_token_file

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.settings.training import Windows
    from seqgen.text.tokenizers import Tokenizer

# A block is so many tokens long, or less where an epoch would have fewer groups of blocks.
BLOCK, LEAST_GROUPS = 1 << 16, 4
# A shard of average length has so many blocks at least; one without room for a block is not read.
LEAST_OF_SHARD = 4
# Batches that are read ahead.
AHEAD = 4


# What the files of a folder of shards are called.
SHARDS = f"shard-*{SUFFIX}"


def shard_path(folder: Path, number: int) -> Path:
    """Name the file of shard `number` in a folder."""
    return folder / f"shard-{number:05}{SUFFIX}"


def write_shards(
    folder: Path,
    chunks: Iterable[str],
    size: int,
    count: int,
    tokenizer: Tokenizer,
    documents: Documents,
    progress: Callable[[int], None] = lambda done: None,
    workers: int | None = None,
) -> list[WrittenTokens]:
    """Encode a text to several token files of about equal length, in bounded memory.

    The text is cut after newlines. A file of an earlier run with a higher number is deleted.

    Args:
        folder: made if it is not there.
        chunks: the text in pieces cut anywhere.
        size: its characters.
        count: how many files; there are fewer if the text has fewer lines.
        tokenizer: its ids.
        documents: "stream" or "line".
        progress: takes the bytes of text done so far.
        workers: the most processes; see `encode_blocks`.

    Raises:
        SeqgenError: a file cannot be written, or the text not be read.
    """
    with reporting_os_errors(f"{folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
    shards_written: list[WrittenTokens] = []
    done = 0
    for part in _parts(chunks, size, count):

        def told(within: int, before: int = done) -> None:
            progress(before + within)

        path = shard_path(folder, len(shards_written))
        shards_written.append(write_token_file(path, part, tokenizer, documents, told, workers))
        done += shards_written[-1].facts.bytes
    kept = {shard_path(folder, number) for number in range(len(shards_written))}
    for path in set(folder.glob(SHARDS)) - kept:
        delete_own(path, folder, lambda file: file.read(len(MAGIC)) == MAGIC)
    return shards_written


def _parts(chunks: Iterable[str], size: int, count: int) -> Iterator[Iterator[str]]:
    """Yield parts of about `size / count` characters, each cut after a newline.

    A part is to be read before the next is asked for.
    """
    coming = filter(None, chunks)
    left: list[str] = []  # what was read and is of the next part
    taken = 0

    def part(goal: float) -> Iterator[str]:
        nonlocal taken
        while (chunk := left.pop() if left else next(coming, None)) is not None:
            cut = chunk.find("\n", max(0, goal - taken - 1)) + 1
            if cut and taken + cut >= goal:
                taken += cut
                if cut < len(chunk):
                    left.append(chunk[cut:])
                yield chunk[:cut]
                return
            taken += len(chunk)
            yield chunk

    for number in range(1, count + 1):
        begun = part(-(-size * number // count))
        first = next(begun, None)
        if first is None:
            return
        yield chain((first,), begun)


def open_token_files(paths: Sequence[str | Path]) -> TokenFile:
    """Open and check token files; several are concatenated in this order.

    Raises:
        SeqgenError: one is damaged, or has another tokenizer than the first.
        UsageError: some are of lines, and some of streams.
    """
    files = [open_token_file(path) for path in paths]
    first = files[0]
    if len(files) == 1:
        return first
    for file in files[1:]:
        check_tokenizer(file, first.tokenizer, str(first.path))
        same = file.documents == first.documents
        require(same, f"{file.path} holds {file.documents}s, {first.path} {first.documents}s")
    offsets = np.cumsum([0, *(file.corpus.tokens.size for file in files)])
    if first.documents == "stream":
        ends = offsets[-1:][: offsets[-1]]
    else:
        each = zip(files, offsets, strict=False)
        ends = np.concatenate([file.corpus.ends + offset for file, offset in each])
    corpus = replace(
        first.corpus,
        tokens=ConcatenatedArray([file.corpus.tokens for file in files]),
        ends=ends,
        oov=sum(file.corpus.oov for file in files),
    )
    by_document = ("characters", "bytes")
    sections = {name: np.concatenate([f.sections[name] for f in files]) for name in by_document}
    facts = combine_facts([file.facts for file in files])
    about = {"corpus": corpus, "facts": facts, "sections": sections, "parts": tuple(files)}
    return replace(first, path=first.path.parent, **about)


def combine_facts(facts: Sequence[Survey]) -> Survey:
    """Combine the survey facts of concatenated texts; the digest hashes their digests."""
    sums = (sum(getattr(f, name) for f in facts) for name in ("characters", "bytes", "lines"))
    return Survey(*sums, hashlib.sha256("".join(f.sha256 for f in facts).encode()).hexdigest())


class BlockBatches(Batches):
    """Batches of sharded streams, by blocks in an order shuffled anew every epoch.

    Each of the B rows reads a block of consecutive windows; then all rows begin other blocks. In
    every epoch the blocks of a shard begin at another offset. What is left of a shard before its
    first block and after its last, less than a block, is not read in that epoch.

    Args:
        corpus: the training part.
        batch_size: rows B.
        seq_len: the window T.
        seed: draws the order.
        carry: the model's state is carried from one window of a block to the next; otherwise each
            row goes through its block from another window on.
    """

    def __init__(
        self, corpus: Corpus, batch_size: int, seq_len: int, seed: int, carry: bool
    ) -> None:
        tokens = corpus.tokens
        self._stops = tokens.ends  # (P,) of each part
        self._sizes = np.diff(self._stops, prepend=0)
        seq_len = int(min(seq_len, self._sizes.max()))
        windows = tokens.size // (seq_len * batch_size * LEAST_GROUPS)
        # Shards are about equally long, but for one that was cut for validation.
        most = min(BLOCK, int(self._sizes.mean()) // LEAST_OF_SHARD) // seq_len
        self._windows = max(1, min(windows, most))  # of a block
        super().__init__(corpus, batch_size, seq_len, seed)
        self._length, self._carry = self._windows * seq_len, carry
        self._counts = self._sizes // self._length  # blocks of each part
        self._order = lru_cache(maxsize=2)(self._make_order)

    @property
    def steps_per_epoch(self) -> int:
        blocks = int(self._counts.sum())
        return -(-blocks // self.batch_size) * self._windows

    def batch(self, step: int) -> Batch:
        epoch, index = divmod(step, self.steps_per_epoch)
        group, window = divmod(index, self._windows)
        begins = self._order(epoch)
        rows = np.arange(self.batch_size)
        # The last group is filled up from the beginning of the order.
        begin = begins[(group * self.batch_size + rows) % begins.size]
        turn = np.zeros_like(rows)
        if not self._carry:
            drawn = uniforms(SHIFT, self.seed, epoch, group, rows)
            turn = (drawn * self._windows).astype(np.int64)
        begin = begin + (window + turn) % self._windows * self.seq_len
        fresh = window == 0 or not self._carry
        return read_windows(self.corpus, begin, self.seq_len, fresh)

    def _make_order(self, epoch: int) -> np.ndarray:
        """Shuffle the blocks of an epoch: the beginning of each, in reading order."""
        parts = np.arange(self._counts.size)
        free = self._sizes - self._counts * self._length + 1
        offsets = (uniforms(SHIFT, self.seed, epoch, parts) * free).astype(np.int64)
        firsts = self._stops - self._sizes + offsets
        begins = np.concatenate(
            [
                first + np.arange(count) * self._length
                for first, count in zip(firsts, self._counts, strict=True)
            ]
        )
        return begins[np.argsort(hash64(SHUFFLE, self.seed, epoch, begins), kind="stable")]


class PrefetchedBatches(DerivedBatches):
    """Batches read ahead by a thread, so that training does not wait for the disk.

    They are the same: a batch is a function of its number. One that was not foreseen is read when
    it is asked for.

    Args:
        batches: what is read ahead, in that thread alone.
    """

    def __init__(self, batches: Batches) -> None:
        super().__init__(batches)
        self._steps = batches.steps_per_epoch  # asked in this thread, and not again
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._coming: dict[int, Future[Batch]] = {}

    @property
    def steps_per_epoch(self) -> int:
        return self._steps

    def batch(self, step: int) -> Batch:
        coming = range(step, step + AHEAD + 1)
        for number in [number for number in self._coming if number not in coming]:
            self._coming.pop(number).cancel()
        for number in coming:
            if number not in self._coming:
                self._coming[number] = self._pool.submit(self._batches.batch, number)
        return self._coming[step].result()


def build_batches(
    corpus: Corpus,
    documents: Documents,
    carry: bool,
    batch_size: int,
    seq_len: int,
    seed: int,
    windows: Windows = "random",
) -> Batches:
    """Build the training batches of a corpus, prefetched if sharded; see `training_batches`.

    Those of shards are read ahead, and a stream in shards is read block by block.
    """
    sharded, shape = isinstance(corpus.tokens, ConcatenatedArray), (batch_size, seq_len, seed)
    if sharded and documents == "stream" and windows == "random":
        batches: Batches = BlockBatches(corpus, *shape, carry)
    else:
        batches = training_batches(corpus, documents, carry, *shape, windows=windows)
    return PrefetchedBatches(batches) if sharded else batches
