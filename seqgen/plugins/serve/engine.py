"""Engine of the server: one thread that generates for all requests, batched by model.

The rows of a batch are shared equally among the clients that have texts to write, and those of a
client among its requests: each row that is free goes to whoever has the fewest, and a text of
whoever has two more than that waits instead. It keeps its state, and goes on where it was.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seqgen.engines.arrays import each_row_alone
from seqgen.errors import SeqgenError, ran_out_of_memory
from seqgen.generation.continuation import Continuation
from seqgen.generation.processors import Processor, likeliest
from seqgen.generation.prompts import Prompt, open_sources
from seqgen.generation.sample import Writer
from seqgen.generation.text_batch import BatchText, Row, SamplingPolicy, TextBatch
from seqgen.models.inference import InferenceModel
from seqgen.models.state import Opens
from seqgen.store.loaded import LoadedModel

# Tokens of prompts that are read between two steps of the texts that are being written.
READ_BETWEEN = 256
# Why a text ends whose request took too long.
TIME = "time"

log = logging.getLogger("seqgen.plugins.serve")


class Busy(Exception):  # noqa: N818
    """Error: the queue of waiting requests is full."""


class Late(SeqgenError):  # noqa: N818
    """Error: a request timed out before any result could be sent."""

    def __init__(self) -> None:
        super().__init__("the request took longer than --timeout")


@dataclass(frozen=True)
class TokenLogprob:
    """Token with its log-probability and the most likely alternatives, by id."""

    token: int
    logprob: float
    ids: Sequence[int]
    logprobs: Sequence[float]


@dataclass(frozen=True)
class TextPiece:
    """Addition of one step to a text.

    Attributes:
        row: which text.
        text: what became certain.
        noted: the tokens since the last piece, if they are wanted.
        finished: the whole text, if this is its end.
    """

    row: Row
    text: str
    noted: Sequence[TokenLogprob] = ()
    finished: Continuation | None = None


# A piece; what `Job.work` gives; an error; or None at the end.
Event = TextPiece | SeqgenError | BaseException | dict | list | None


@dataclass(eq=False)
class Job:
    """Work of one request: generation, or any other work done in steps.

    Attributes:
        loaded: the model.
        put: takes its events, in the engine's thread.
        deadline: when it is to end, by `time.monotonic`.
        work: other work than writing, a step each; what it yields that is not None is an event.
        client: whose request it is.
    """

    loaded: LoadedModel
    put: Callable[[Event], None]
    deadline: float
    work: Iterator[Any] | None = None
    client: str = ""
    cancelled: bool = False


@dataclass(eq=False, kw_only=True)
class Writing(Job):
    """Job that generates texts.

    Attributes:
        writer: how.
        prompts: after what.
        prepares: change each prompt in its place before its texts begin, as options say. That may
            need the model, which only the engine's thread uses.
        samples: how many texts for each.
        processors: the writer's, or more.
        top: how many likely tokens to note at each step; None to note nothing.
        streams: every piece is wanted, not just the finished texts.
    """

    writer: Writer
    prompts: list[Prompt]
    prepares: bool
    samples: int
    processors: Sequence[Processor]
    top: int | None = None
    streams: bool = False
    noted: dict[Row, list[TokenLogprob]] = field(default_factory=dict)
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.prompts) * self.samples
        watch = None if self.top is None else self._note
        choose, outcomes = self.writer.choose, self.writer.outcomes
        self.policy = SamplingPolicy(self.processors, choose, watch, outcomes)

    def texts(self) -> Iterator[tuple[list[BatchText], Opens | None]]:
        """Yield the texts to generate, prompt by prompt."""
        for place, prompt in enumerate(self.prompts):
            if self.prepares:
                ((prompt,),) = self.writer.prepare_prompts([[prompt]])
                self.prompts[place] = prompt
            opens, (handle,) = open_sources(self.loaded, [prompt])
            rows = [self.writer.row(prompt, handle, sample) for sample in range(self.samples)]
            policy = self.policy
            if prompt.overlap is not None:
                policy = replace(policy, processors=[prompt.overlap.first_token, *self.processors])
            yield [BatchText(row, self.writer.begin(row), policy) for row in rows], opens

    def _note(
        self, rows: Sequence[Row], _: int, stages: Sequence[np.ndarray], chosen: Sequence[int]
    ) -> None:
        for row, log_probs, token in zip(rows, stages[0], chosen, strict=True):
            self.noted.setdefault(row, []).append(note(log_probs, token, self.top))

    def piece(self, row: Row, text: str, continuation: Continuation) -> TextPiece | None:
        """Build the piece that a step added; None if it need not be sent yet."""
        finished = continuation if continuation.finish_reason else None
        self.left -= finished is not None
        if finished is None and not self.streams:
            return None
        return TextPiece(row, text, self.noted.pop(row, ()), finished)


def note(log_probs: np.ndarray, token: int, top: int) -> TokenLogprob:
    """Record a token and its `top` most likely alternatives, from log_probs (V,)."""
    ids = likeliest(log_probs[None])[0, :top].tolist() if top else []
    return TokenLogprob(token, float(log_probs[token]), ids, log_probs[ids].tolist())


class Engine:
    """Scheduler that advances the batch of each model in turn; requests may join at any step.

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
        self._requests: list[_Request] = []  # for texts, in the order of their arrival
        self._turns = itertools.count()
        self._settled = True  # no row is free or due to another request
        self._batches: dict[int, tuple[TextBatch, dict[Continuation, Writing]]] = {}
        self._others: deque[Job] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return self._submitted + sum(not one.empty for one in list(self._requests))

    @property
    def running(self) -> int:
        """Number of texts in generation."""
        return sum(len(batch.texts) for batch, _ in list(self._batches.values()))

    def submit(self, task: Job) -> None:
        """Queue a job for the engine's thread.

        Raises:
            Busy: too many are waiting.
        """
        with self._lock:
            if self._closing or self.waiting > self.most_waiting:
                raise Busy
            self._submitted += 1
        self._inbox.put(task)

    def close(self) -> None:
        """Finish all submitted jobs, and stop the thread."""
        self._closing = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            idle = not (self._requests or self._batches or self._others)
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
                        self._requests.append(_Request(task, next(self._turns)))
                        self._settled = False

    def _end_late(self) -> None:
        """Drop cancelled work, and end work that is past its deadline."""
        now = time.monotonic()
        for batch, tasks in self._batches.values():
            for text in batch.texts:
                task = tasks[text.continuation]
                text.dropped = task.cancelled or now > task.deadline
                if text.dropped and not task.cancelled:
                    self._end_text(task, text)
        for request in self._requests:
            task = request.task
            if now > task.deadline and not (task.cancelled or request.empty):
                try:
                    self._end_waiting(request)
                except Exception as error:
                    self._fail(task, error)
        self._requests = [one for one in self._requests if not one.task.cancelled]

    def _end_text(self, task: Writing, text: BatchText) -> None:
        text.continuation.finish_reason = TIME
        task.put(task.piece(text.row, "", text.continuation))
        self._end(task)

    def _end_waiting(self, request: _Request) -> None:
        """End a request's texts outside the batch; those not begun share one empty result."""
        task, empty = request.task, None
        for text in request.held.texts:
            self._end_text(task, text)
        for row in request.rest():
            if empty is None:
                empty = task.writer.begin(row)
                empty.finish_reason = empty.finish_reason or TIME
            task.put(task.piece(row, "", empty))
        self._end(task)

    def _admit(self) -> None:
        """Admit waiting texts to the batches."""
        if self._settled:
            return
        self._settled, now = True, time.monotonic()
        waiting: dict[int, list[_Request]] = {}
        for request in self._requests:
            if request.empty:
                continue
            if now < request.rests_until and self._batches and len(self._requests) > 1:
                self._settled = False
            else:
                waiting.setdefault(id(request.task.loaded.model), []).append(request)
        for requests in waiting.values():
            self._share_rows(requests)

    def _share_rows(self, waiting: list[_Request]) -> None:
        """Divide a model's batch rows fairly: admit waiting texts, and pause others."""
        model = waiting[0].task.loaded.model
        batch, tasks = self._batches.get(id(model)) or (TextBatch(model), {})
        rows = _Rows(self.rows)
        for text in batch.texts:
            if not text.dropped:
                rows.add(tasks[text.continuation], text)
        joining: dict[object, _Joining] = {}
        leaving: dict[Writing, list[BatchText]] = {}
        again: list[tuple[BatchText, _Request, Any]] = []
        left, read, prompts = list(waiting), 0, set()
        while read < READ_BETWEEN:
            request, gives_up = rows.next(left)
            if request is None:
                break
            for task, text in gives_up:
                leaving.setdefault(task, []).append(text)
            request.turn = next(self._turns)
            try:
                text, opens = request.next()
            except Exception as error:
                self._fail(request.task, error)
                left.remove(request)
                continue
            if request.empty:
                left.remove(request)
            if text.continuation.finish_reason:
                request.task.put(request.task.piece(text.row, "", text.continuation))
                self._end(request.task)
                continue
            rows.add(request.task, text)
            if text.step == 0 and request.read is not None:
                again.append((text, request, request.read))
            elif text.step == 0:
                length = len(text.row.tokens)
                together = opens is None and length <= model.most_together
                prompt = id(request), text.row.prompt
                read += 0 if prompt in prompts else length
                prompts.add(prompt)
                key = None if together else prompt
                one = joining.setdefault(key, _Joining(model, opens, together))
                one.requests[text] = request
        self._settled &= read < READ_BETWEEN
        of_tasks = {request.task: request for request in self._requests} if leaving else {}
        for task, texts in leaving.items():
            waits = batch.split(texts)
            if task in of_tasks:  # else nobody waits for it any more
                of_tasks[task].held.merge(waits)
        for request in waiting:
            tasks |= {text.continuation: request.task for text in request.coming}
            batch.merge(request.come_back())
        for text, request, after in again:
            tasks[text.continuation] = request.task
            batch.join_after([text], after)
        if batch.texts:
            self._batches[id(model)] = batch, tasks
        for one in joining.values():
            self._join(one)

    def _join(self, joining: _Joining) -> None:
        """Read the prompts of texts of one model, and add the texts to its batch."""
        key, begun = id(joining.model), time.monotonic()
        batch, tasks = self._batches.get(key) or (TextBatch(joining.model), {})
        try:
            with each_row_alone():
                batch.join([*joining.requests], joining.opens)
        except Exception as error:
            requests = {*joining.requests.values()}
            for request in requests:
                if len(requests) == 1:
                    self._fail(request.task, error)
                    return
                own = {text: one for text, one in joining.requests.items() if one is request}
                self._join(replace(joining, requests=own))
            return
        # Others have as much time for their next tokens as a request for its prompt.
        now = time.monotonic()
        for text, request in joining.requests.items():
            tasks[text.continuation] = request.task
            request.rests_until = now + (now - begun)
        long = not joining.together and len(text.row.tokens) > READ_BETWEEN
        if long and request.has_more_of(text.row.prompt):
            request.read = batch.last_read()
        self._batches[key] = batch, tasks

    def _step(self, key: int) -> None:
        """Generate one token for each text in a model's batch."""
        batch, tasks = self._batches[key]
        try:
            before, steps = len(batch.texts), batch.draw()
            for text in batch.texts:
                if text.error is not None:
                    self._fail(tasks[text.continuation], text.error)
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
            self._settled = False
            return
        self._settled &= len(batch.texts) == before
        self._batches[key] = batch, {t.continuation: tasks[t.continuation] for t in batch.texts}
        if not batch.texts:
            del self._batches[key]

    def _work(self, task: Job) -> None:
        """Run one step of a job that does not generate texts."""
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
        if task.cancelled:
            return
        if not isinstance(error, SeqgenError) and not ran_out_of_memory(error):
            log.error("a request failed", exc_info=error)
        task.cancelled = True
        task.put(error)


@dataclass
class _Joining:
    """Texts that are about to join a model's batch, with their requests.

    They have one prompt, or several that are read `together`.
    """

    model: InferenceModel
    opens: Opens | None
    together: bool
    requests: dict[BatchText, _Request] = field(default_factory=dict)


class _Rows:
    """Allocation of a batch's rows to requests and clients."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts: dict[Writing, list[BatchText]] = {}
        self._of_clients: Counter[str] = Counter()

    def add(self, task: Writing, text: BatchText) -> None:
        """Assign a row to a text."""
        self._texts.setdefault(task, []).append(text)
        self._of_clients[task.client] += 1

    def next(
        self, waiting: Sequence[_Request]
    ) -> tuple[_Request | None, list[tuple[Writing, BatchText]]]:
        """Choose the request that gets the next row, and the text that gives up its row, if any."""
        full, tried = self._of_clients.total() >= self._most, set()
        for request in sorted(waiting, key=self._load):
            if not full:
                return request, []
            if request.task.client in tried:  # and had no fewer rows
                continue
            tried.add(request.task.client)
            if found := self._give_up(request.task):
                return request, found
        return None, []

    def _load(self, request: _Request) -> tuple[int, int, int]:
        task = request.task
        return self._of_clients[task.client], len(self._texts.get(task, ())), request.turn

    def _give_up(self, task: Writing) -> list[tuple[Writing, BatchText]]:
        """Free a row of the request with the most, if it has two more; return its text."""
        own, of_client = len(self._texts.get(task, ())), self._of_clients[task.client]

        def more(other: Writing) -> tuple[int, int]:
            has, same = len(self._texts[other]), other.client == task.client
            return has - own if same else self._of_clients[other.client] - of_client, has

        other = max(self._texts, key=more)
        if more(other)[0] < 2:
            return []
        self._of_clients[other.client] -= 1
        return [(other, self._texts[other].pop())]


class _Request:
    """Part of a request that is not in a batch.

    Args:
        task: its work.
        turn: when it last got a row, or came.

    Attributes:
        held: texts that have left the batch.
        rests_until: when it may have another prompt read, if others are there.
        read: what the model knows after a long prompt that more texts follow.
    """

    def __init__(self, task: Writing, turn: int) -> None:
        self.task, self.turn, self.rests_until = task, turn, 0.0
        self.held, self._coming = TextBatch(task.loaded.model), 0
        self._prompts = task.texts()
        self._texts: list[BatchText] = []
        self._opens: Opens | None = None
        self._prompts_left = len(task.prompts)
        self.read: Any = None

    @property
    def empty(self) -> bool:
        """True if no text is left to join a batch."""
        return not (self._texts or self._prompts_left or self._coming < len(self.held.texts))

    def next(self) -> tuple[BatchText, Opens | None]:
        """Take the next text: a paused one from `held`, or a new one."""
        if self._coming < len(self.held.texts):
            self._coming += 1
            return self.held.texts[self._coming - 1], None
        if not self._texts:
            self._prompts_left, self.read = self._prompts_left - 1, None
            self._texts, self._opens = next(self._prompts)
        return self._texts.pop(0), self._opens

    def has_more_of(self, prompt: int) -> bool:
        """Check whether texts of a prompt are left."""
        return bool(self._texts) and self._texts[0].row.prompt == prompt

    @property
    def coming(self) -> list[BatchText]:
        """Paused texts in `held` that are about to rejoin the batch."""
        return self.held.texts[: self._coming]

    def come_back(self) -> TextBatch:
        """Remove the texts of `coming` from `held`, and return them as a batch."""
        coming, self._coming = self.coming, 0
        return self.held.split(coming) if coming else TextBatch(self.held.model)

    def rest(self) -> Iterator[Row]:
        """Yield the rows of all remaining texts without starting them."""
        yield from (text.row for text in self._texts)
        for prompt in self.task.prompts[len(self.task.prompts) - self._prompts_left :]:
            for sample in range(self.task.samples):
                yield self.task.writer.row(prompt, 0, sample)
