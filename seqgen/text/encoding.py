"""Parallel encoding of text, block by block and in order."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.hashing import hash64
from seqgen.text.reading import joined_blocks, lines

if TYPE_CHECKING:
    from seqgen.text.tokenizers import Tokenizer

BLOCK = 1 << 20
# This many blocks are encoded before worker processes are started: most texts are short.
ALONE = 4
SUBWORDS = 4  # the first word of the hash that seeds sampled segmentations


@dataclass(frozen=True)
class Sampling:
    """Subword sampling: each block's seed is a hash of (seed, epoch, block number)."""

    alpha: float
    seed: int
    epoch: int

    def draw(self, block: int) -> tuple[float, int]:
        """Return alpha and the 31-bit seed for a block."""
        return self.alpha, int(hash64(SUBWORDS, self.seed, self.epoch, block) >> np.uint64(33))


def encode_blocks(
    chunks: Iterable[str],
    tokenizer: Tokenizer,
    sampling: Sampling | None = None,
    cores: int | None = None,
) -> Iterator[tuple[bytes, np.ndarray]]:
    """Encode a text block by block on all cores; yield blocks with their ids, in order.

    Memory is bounded by a few blocks, unless the text has no place where it can be cut.

    Args:
        chunks: the text.
        tokenizer: its ids.
        sampling: draw the segmentation.
        cores: the most processes; as many as this process may use if None.

    Yields:
        Blocks in order: the text as UTF-8, which ends a line or at a token boundary, and its ids.

    Raises:
        SeqgenError: a worker process died.
    """
    cores = available_cores() if cores is None else cores
    if tokenizer.quick:
        cores = 1
    blocks = (block.encode() for block in joined_blocks(tokenizer.blocks(chunks), BLOCK))
    chances = (sampling.draw(n) if sampling else None for n in range(1 << 62))
    work = zip(blocks, chances, strict=False)
    for number, (raw, chance) in enumerate(work):
        yield raw, encode_block(tokenizer, raw, chance)
        if number + 1 == ALONE and cores > 1:
            yield from _in_parallel(work, tokenizer, cores)


def encode_lines(
    chunks: Iterable[str], tokenizer: Tokenizer, end: int
) -> Iterator[tuple[bytes, np.ndarray]]:
    """Encode each line on its own, for tokenizers that may merge a newline with other text.

    Yields:
        Each line as UTF-8, and its ids, with `end` in the place of its newline.
    """
    last = np.array([end], dtype=tokenizer.dtype)
    for line in lines(chunks):
        ids = tokenizer.encode(line.removesuffix("\n"))
        yield line.encode(), np.concatenate([ids, last])


def lines_of_tokens(tokenizer: Tokenizer, text: str, ids: np.ndarray) -> np.ndarray:
    """Compute the line number in which each token of a text begins, (N,) int64.

    Args:
        tokenizer: what made the ids.
        text: all that they were made of.
        ids: (N,).
    """
    if tokenizer.line_safe:
        ends = ids == tokenizer.newline_id
        return np.cumsum(ends) - ends
    begins = np.concatenate([[0], tokenizer.byte_ends(text)[:-1]])[: ids.size]
    newlines = np.flatnonzero(np.frombuffer(text.encode(), dtype=np.uint8) == ord("\n"))
    return np.searchsorted(newlines, begins)


def encode_block(tokenizer: Tokenizer, raw: bytes, chance: tuple[float, int] | None) -> np.ndarray:
    """Encode a block of UTF-8; `chance` is the result of `Sampling.draw`, or None."""
    if chance is None:
        return tokenizer.encode_utf8(raw)
    return tokenizer.encode_sampled(raw.decode(), *chance)


def available_cores() -> int:
    """Count the cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read the next length-prefixed frame; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    content = stream.read(size)
    return content if len(content) == size else None


def write_frame(stream: IO[bytes], content: bytes | memoryview) -> None:
    """Write a length-prefixed frame and flush it."""
    stream.write(len(content).to_bytes(8, "little"))
    stream.write(content)
    stream.flush()


class Worker:
    """Worker process that encodes text without loading torch."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        import seqgen

        package = str(Path(seqgen.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seqgen.text.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        )
        self._dtype = tokenizer.dtype
        facts = {"kind": tokenizer.kind, **tokenizer.facts()}
        with contextlib.suppress(BrokenPipeError):  # the first missing answer reports it
            write_frame(self._process.stdin, json.dumps(facts).encode())

    def encode(self, raw: bytes, chance: Any) -> np.ndarray:
        """Encode a block to ids."""
        try:
            write_frame(self._process.stdin, json.dumps(chance).encode())
            write_frame(self._process.stdin, raw)
            answer = read_frame(self._process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise SeqgenError("a process that encodes text was killed; is there enough memory?")
        return np.frombuffer(answer, dtype=self._dtype)

    def close(self) -> None:
        """Stop the worker process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _in_parallel(
    work: Iterable[tuple[bytes, Any]], tokenizer: Tokenizer, cores: int
) -> Iterator[tuple[bytes, np.ndarray]]:
    with contextlib.ExitStack() as cleanup:
        workers: queue.Queue[Worker] = queue.Queue()
        for _ in range(cores):
            worker = Worker(tokenizer)
            cleanup.callback(worker.close)
            workers.put(worker)
        pool = cleanup.enter_context(ThreadPoolExecutor(cores))

        def encode(raw: bytes, chance: Any) -> np.ndarray:
            worker = workers.get()
            try:
                return worker.encode(raw, chance)
            finally:
                workers.put(worker)

        pending: deque[tuple[bytes, Future[np.ndarray]]] = deque()
        cleanup.callback(lambda: [future.cancel() for _, future in pending])
        for raw, chance in work:
            pending.append((raw, pool.submit(encode, raw, chance)))
            while len(pending) > 2 * cores or (pending and pending[0][1].done()):
                done, future = pending.popleft()
                yield done, future.result()
        while pending:
            done, future = pending.popleft()
            yield done, future.result()
