"""The engine: one thread that writes the texts of all requests, those of a model in one batch."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqgen.engines.arrays import each_row_alone
from seqgen.errors import SeqgenError, ran_out_of_memory
from seqgen.generation.continuation import Continuation
from seqgen.generation.processors import Processor, likeliest
from seqgen.generation.prompts import Prompt, opening
from seqgen.generation.sample import Writer
from seqgen.generation.sampling import BatchText, Manner, Row, TextBatch
from seqgen.models.inference import Reader
from seqgen.models.state import Opens
from seqgen.store.loaded import LoadedModel

# Tokens of prompts that are read between two steps of the texts that are being written.
READ_BETWEEN = 256
# Why a text ends whose request took too long.
TIME = "time"

log = logging.getLogger("seqgen.plugins.serve")


class Busy(Exception):  # noqa: N818
    """As many requests are waiting as may."""


class Late(SeqgenError):  # noqa: N818
    """A request took too long, and nothing of it can be sent."""

    def __init__(self) -> None:
        super().__init__("the request took longer than --timeout")


@dataclass(frozen=True)
class Noted:
    """A token that was drawn, with the likeliest in its place: ids and log-probabilities."""

    token: int
    logprob: float
    ids: Sequence[int]
    logprobs: Sequence[float]


@dataclass(frozen=True)
class TextPiece:
    """What a step added to a text.

    Attributes:
        row: which text.
        text: what became certain.
        noted: the tokens since the last piece, if they are wanted.
        finished: the whole text, if this is its end.
    """

    row: Row
    text: str
    noted: Sequence[Noted] = ()
    finished: Continuation | None = None


# A piece; what `Job.work` gives; an error; or None at the end.
Event = TextPiece | SeqgenError | BaseException | dict | list | None


@dataclass(eq=False)
class Job:
    """A request's work.

    Attributes:
        loaded: the model.
        put: takes its events, in the engine's thread.
        deadline: when it is to end, by `time.monotonic`.
        work: other work than writing, a step each; what it yields that is not None is an event.
    """

    loaded: LoadedModel
    put: Callable[[Event], None]
    deadline: float
    work: Iterator[Any] | None = None
    cancelled: bool = False


@dataclass(eq=False, kw_only=True)
class Writing(Job):
    """Texts to be written.

    Attributes:
        writer: how.
        prompts: after what.
        samples: how many texts for each.
        processors: the writer's, or more.
        top: how many likely tokens to note at each step; None to note nothing.
        streams: every piece is wanted, not just the finished texts.
    """

    writer: Writer
    prompts: Sequence[Prompt]
    samples: int
    processors: Sequence[Processor]
    top: int | None = None
    streams: bool = False
    noted: dict[Row, list[Noted]] = field(default_factory=dict)
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.prompts) * self.samples
        watch = None if self.top is None else self._note
        self.manner = Manner(self.processors, self.writer.choose, watch, self.writer.outcomes)

    def texts(self) -> Iterator[tuple[list[BatchText], Opens | None]]:
        """Yield the texts of one prompt after the other."""
        for prompt in self.prompts:
            opens, (handle,) = opening(self.loaded, [prompt])
            rows = [self.writer.row(prompt, sample, handle) for sample in range(self.samples)]
            yield [BatchText(row, self.writer.begin(row), self.manner) for row in rows], opens

    def _note(
        self, rows: Sequence[Row], _: int, stages: Sequence[np.ndarray], chosen: Sequence[int]
    ) -> None:
        for row, log_probs, token in zip(rows, stages[0], chosen, strict=True):
            self.noted.setdefault(row, []).append(note(log_probs, token, self.top))

    def piece(self, row: Row, text: str, continuation: Continuation) -> TextPiece | None:
        """Return what a step added, if that is wanted now."""
        finished = continuation if continuation.finish_reason else None
        self.left -= finished is not None
        if finished is None and not self.streams:
            return None
        return TextPiece(row, text, self.noted.pop(row, ()), finished)


def note(log_probs: np.ndarray, token: int, top: int) -> Noted:
    """Return a token with the `top` likeliest in its place, of the model's log_probs (V,)."""
    ids = likeliest(log_probs[None])[0, :top].tolist() if top else []
    return Noted(token, float(log_probs[token]), ids, log_probs[ids].tolist())


class Engine:
    """Writes for all models, a step of each in turn; requests join and leave at any step.

    Args:
        rows: most texts of a model that are written side by side.
        waiting: most requests that wait for their turn.
    """

    def __init__(self, rows: int, waiting: int) -> None:
        self.rows, self.most_waiting = rows, waiting
        self.tokens = self.texts = 0  # written since the start
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._submitted = 0  # in the inbox
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._batches: dict[int, tuple[TextBatch, dict[Continuation, Writing]]] = {}
        self._others: deque[Job] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return self._submitted + len(self._pending)

    @property
    def running(self) -> int:
        """How many texts are being written."""
        return sum(len(batch.texts) for batch, _ in list(self._batches.values()))

    def submit(self, task: Job) -> None:
        """Have a task worked on.

        Raises:
            Busy: too many are waiting.
        """
        with self._lock:
            if self._closing or self.waiting > self.most_waiting:
                raise Busy
            self._submitted += 1
        self._inbox.put(task)

    def close(self) -> None:
        """Finish what has been submitted, and stop."""
        self._closing = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            idle = not (self._pending or self._batches or self._others)
            if self._closing and idle and self._inbox.empty():
                return
            self._take(idle)
            self._end_late()
            self._admit()
            for key in list(self._batches):
                self._step(key)
            if self._others:
                self._work(self._others.popleft())

    def _take(self, block: bool) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._inbox.get(block)
                block = False
                if task is None:
                    continue
                with self._lock:
                    self._submitted -= 1
                    if task.work is not None:
                        self._others.append(task)
                    else:
                        self._pending.append(_Pending(task))

    def _end_late(self) -> None:
        """Drop what nobody waits for; end what has taken too long."""
        now = time.monotonic()
        for batch, tasks in self._batches.values():
            for text in batch.texts:
                task = tasks[text.continuation]
                text.dropped = task.cancelled or now > task.deadline
                if text.dropped and not task.cancelled:
                    text.continuation.finish_reason = TIME
                    task.put(task.piece(text.row, "", text.continuation))
                    self._end(task)
        for pending in list(self._pending):
            task = pending.task
            if task.cancelled:
                self._pending.remove(pending)
            elif now > task.deadline:
                self._pending.remove(pending)
                try:
                    self._end_unbegun(pending)
                except Exception as error:
                    self._fail(task, error)

    def _end_unbegun(self, pending: _Pending) -> None:
        """End what has not joined a batch; empty texts are alike, so one stands for all."""
        task, empty = pending.task, None
        for row in pending.rest():
            if empty is None:
                empty = task.writer.begin(row)
                empty.finish_reason = empty.finish_reason or TIME
            task.put(task.piece(row, "", empty))
        self._end(task)

    def _admit(self) -> None:
        """Let waiting texts join the batches, a prompt of each request in turn."""
        read, joining = 0, {}
        for pending in [*self._pending]:
            if read >= READ_BETWEEN:
                break
            task = pending.task
            model = task.loaded.model
            batch, _ = self._batches.get(id(model), (None, {}))
            others = [text for x in joining.values() if x.model is model for text in x.tasks]
            room = self.rows - len(others) - (0 if batch is None else len(batch.texts))
            if room <= 0:
                continue
            self._pending.remove(pending)
            try:
                texts, opens = pending.next(room)
            except Exception as error:
                self._fail(task, error)
                continue
            begun = [text for text in texts if not text.continuation.finish_reason]
            if begun:
                length = len(begun[0].row.tokens)
                together = opens is None and length <= model.most_together
                key = id(model) if together else id(pending)
                joining.setdefault(key, _Joining(model, opens)).tasks |= dict.fromkeys(begun, task)
                read += length
            for text in texts:
                if text not in begun:
                    task.put(task.piece(text.row, "", text.continuation))
            self._end(task)
            if not pending.empty:
                self._pending.append(pending)
        for one in joining.values():
            self._join(one)

    def _join(self, joining: _Joining) -> None:
        """Read the prompts of some texts of a model, which is at work on them from now on."""
        key = id(joining.model)
        batch, tasks = self._batches.get(key) or (TextBatch(joining.model), {})
        try:
            with each_row_alone():
                batch.join([*joining.tasks], joining.opens)
        except Exception as error:
            for task in {*joining.tasks.values()}:
                self._fail(task, error)
            return
        tasks.update((text.continuation, task) for text, task in joining.tasks.items())
        self._batches[key] = batch, tasks

    def _step(self, key: int) -> None:
        """Take a step with all texts of a model."""
        batch, tasks = self._batches[key]
        try:
            steps = batch.draw()
            self.tokens += len(steps)
            for step in steps:
                task = tasks[step.continuation]
                if task.cancelled or step.continuation.finish_reason == TIME:
                    continue
                piece = task.piece(*step)
                if piece is not None:
                    task.put(piece)
                if step.continuation.finish_reason:
                    self.texts += 1
                    self._end(task)
            with each_row_alone():
                batch.read()
        except Exception as error:
            for task in set(tasks.values()):
                self._fail(task, error)
            del self._batches[key]
            return
        self._batches[key] = batch, {t.continuation: tasks[t.continuation] for t in batch.texts}
        if not batch.texts:
            del self._batches[key]

    def _work(self, task: Job) -> None:
        """Take a step of other work than writing."""
        if task.cancelled:
            return
        try:
            if time.monotonic() > task.deadline:
                raise Late
            event = next(task.work)
        except StopIteration:
            task.put(None)
            return
        except Exception as error:
            self._fail(task, error)
            return
        if event is not None:
            task.put(event)
        self._others.append(task)

    def _end(self, task: Writing) -> None:
        if task.left == 0 and not task.cancelled:
            task.cancelled = True
            task.put(None)

    def _fail(self, task: Job, error: Exception) -> None:
        if not isinstance(error, SeqgenError) and not ran_out_of_memory(error):
            log.error("a request failed", exc_info=error)
        if not task.cancelled:
            task.cancelled = True
            task.put(error)


@dataclass
class _Joining:
    """Texts of a model that join its batch together, and whose each is."""

    model: Reader
    opens: Opens | None
    tasks: dict[BatchText, Writing] = field(default_factory=dict)


class _Pending:
    """What of a task has not joined a batch yet."""

    def __init__(self, task: Writing) -> None:
        self.task, self._prompts = task, task.texts()
        self._texts: list[BatchText] = []
        self._opens: Opens | None = None
        self._prompts_left = len(task.prompts)

    @property
    def empty(self) -> bool:
        """Whether all has joined."""
        return not (self._texts or self._prompts_left)

    def next(self, room: int) -> tuple[list[BatchText], Opens | None]:
        """Return up to `room` texts of the next prompt."""
        if not self._texts:
            self._texts, self._opens = next(self._prompts)
            self._prompts_left -= 1
        texts, self._texts = self._texts[:room], self._texts[room:]
        return texts, self._opens

    def rest(self) -> Iterator[Row]:
        """Yield every text that is left, without beginning it."""
        yield from (text.row for text in self._texts)
        for prompt in self.task.prompts[len(self.task.prompts) - self._prompts_left :]:
            for sample in range(self.task.samples):
                yield self.task.writer.row(prompt, sample, 0)
