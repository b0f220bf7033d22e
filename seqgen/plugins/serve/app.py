"""Web application of the server: endpoints read requests and send the engine's results."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import secrets
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, ClassVar, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from seqgen import hooks
from seqgen.engines.ops import ops_of, without_gradients
from seqgen.errors import SeqgenError, UsageError, ran_out_of_memory
from seqgen.generation.continuation import Continuation
from seqgen.generation.processors import normalise
from seqgen.generation.prompts import Prompt, open_sources
from seqgen.generation.text_batch import Row
from seqgen.limits import seconds_at_most
from seqgen.models.inference import LOGITS_AT_ONCE
from seqgen.plugins.serve import chat, embedding, protocol
from seqgen.plugins.serve.engine import (
    Busy,
    Engine,
    Event,
    Job,
    Late,
    TextPiece,
    TokenLogprob,
    Writing,
    note,
)
from seqgen.plugins.serve.protocol import Query, Refused
from seqgen.plugins.serve.settings import LOOPBACK, ServeOptions
from seqgen.plugins.serve.shelf import Damaged, Shelf, Unknown
from seqgen.scoring.surprisal import line_record, score_lines
from seqgen.settings.scoring import Scoring
from seqgen.settings.setting import shorten
from seqgen.store.loaded import LoadedModel

# Bytes of a body, and seconds that it may take to arrive.
MOST_BYTES, BODY_SECONDS = 4 << 20, 30.0
# Tokens of a prompt that are scored between two steps of the texts that are being written.
SCORED_BETWEEN = 256
# Events that a stream's client may be behind, seconds in which it must read something, and what it
# has of these after the deadline.
MOST_EVENTS, UNREAD_SECONDS, GRACE = 8192, 30.0, 5.0
# Seconds of processor time in which a request's pattern must be ready.
PATTERN_SECONDS = 2.0
# Texts that a request may ask for, prompts times candidates, and lines that it may have scored.
MOST_TEXTS, MOST_LINES = 1024, 10_000
RETRY_AFTER = "1"
# Seconds between two deliveries of what streams have written.
PACE = 0.02
# The rest of a choice that grows, without log-probabilities, as JSON.
UNFINISHED = json.dumps({"logprobs": None, **protocol.finish(None)})[1:-1]
PAGES = {"/": "page.html", "/chat": "chat.html"}
# Anybody may ask these, whatever the key.
OPEN = (*PAGES, "/health")
NO_KEY = Refused("give the server's key: Authorization: Bearer KEY", 401)
# A name or an address, and a port, as they stand in Host and Origin.
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+)(?::([0-9]{1,5}))?")
DEFAULT_PORTS = {"http": "80", "https": "443"}

T = TypeVar("T")
Endpoint = Callable[["Server", Request], Awaitable[Response]]
# Reads the fields of a request for a model, within the server's limits.
Parse = Callable[[dict[str, Any], LoadedModel, ServeOptions], Query]


class Server:
    """State shared by all endpoints: options, models, engine and counters.

    Attributes:
        options: the limits.
        shelf: the models.
        engine: writes.
        answers: how many, by status.
    """

    def __init__(self, shelf: Shelf, options: ServeOptions) -> None:
        self.options, self.shelf = options, shelf
        self.engine = Engine(options.batch_size, options.queue)
        self.answers: Counter[int] = Counter()
        self.first_token = [0, 0.0]  # how many, and seconds in total
        self.arriving: set[asyncio.Future[None]] = set()  # bodies
        self.ending = False
        self.preparing = 0  # requests that are not the engine's yet
        # One pattern after the other, so that they hold up each other alone.
        self.patterns = ThreadPoolExecutor(1, "patterns")
        folder = files("seqgen.plugins.serve")
        self.pages = {
            path: folder.joinpath(name).read_text("utf-8") for path, name in PAGES.items()
        }

    async def read(self, request: Request, known: Sequence[str]) -> dict[str, Any]:
        """Read and check the fields of a request's body.

        Raises:
            Refused: it is too large or too slow, or no JSON of such fields.
        """
        body = bytearray()

        async def arrived() -> None:
            async for chunk in request.stream():
                body.extend(chunk)
                if len(body) > MOST_BYTES:
                    raise Refused(f"the body is larger than {MOST_BYTES:,} bytes", 413)

        arriving = asyncio.ensure_future(arrived())
        self.arriving.add(arriving)
        try:
            await asyncio.wait_for(arriving, min(BODY_SECONDS, self.options.timeout))
        except asyncio.TimeoutError:
            raise Refused("the body took too long to arrive", 408) from None
        except asyncio.CancelledError:
            if self.ending:
                raise Refused("the server is ending", 503) from None
            raise
        finally:
            self.arriving.discard(arriving)
        return protocol.read_json(bytes(body), known)

    def end(self) -> None:
        """Stop waiting for request bodies that are still arriving."""
        self.ending = True
        for body in self.arriving:
            body.cancel()

    async def prepare(
        self, deadline: float, function: Callable[..., T], *args: Any, by: Executor | None = None
    ) -> T:
        """Call a function in a thread and wait for its result, up to the deadline.

        Raises:
            Busy: too many requests are waiting.
            Late: the deadline has passed.
        """
        if self.preparing + self.engine.waiting > self.options.queue:
            raise Busy
        self.preparing += 1
        try:
            called = asyncio.get_running_loop().run_in_executor(by, function, *args)
            return await asyncio.wait_for(called, deadline - time.monotonic())
        except asyncio.TimeoutError:
            raise Late from None
        finally:
            self.preparing -= 1

    async def model(self, fields: dict[str, Any]) -> LoadedModel:
        """Look up the model that a request names; the first one by default."""
        name = fields.get("model")
        name = None if name is None else protocol.typed("model", name, str)
        return await asyncio.to_thread(self.shelf.get, name)

    def deadline(self) -> float:
        """Compute the deadline of a request that arrives now."""
        return time.monotonic() + self.options.timeout


class Post:
    """Carrier of events from the engine's thread to an event loop, in batches for all requests.

    Waking the loop, and sending to a client, are system calls that take as long as much of a
    token. So what may wait is delivered `PACE` seconds after the last delivery, all of it at once;
    and at once if there was none before.
    """

    _of_loops: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Post]] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.proxy(loop)  # whose posts would keep it, in `_of_loops`
        self._waiting: deque[tuple[asyncio.Queue, Event]] = deque()
        self._woken = self._timed = False  # a delivery comes at once, or when the time has passed

    @classmethod
    def here(cls) -> Post:
        """Look up or create the `Post` of the running event loop."""
        loop = asyncio.get_running_loop()
        return cls._of_loops.get(loop) or cls._of_loops.setdefault(loop, cls(loop))

    def send(self, queue: asyncio.Queue, event: Event, may_wait: bool) -> None:
        """Queue an event for delivery; called in the engine's thread."""
        self._waiting.append((queue, event))
        if not (self._woken or (may_wait and self._timed)):
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    # Flags are cleared before looking, so that whatever is sent meanwhile is seen or wakes again.
    def _deliver(self) -> None:
        self._woken = False
        if self._waiting and not self._timed:
            self._timed = True
            self._loop.call_later(PACE, self._time_is_up)
        while self._waiting:
            queue, event = self._waiting.popleft()
            queue.put_nowait(event)

    def _time_is_up(self) -> None:
        self._timed = False
        self._deliver()


class Inbox:
    """Queue of a request's events from the engine to a coroutine.

    Args:
        full: called when the coroutine has begun to get and is `MOST_EVENTS` behind, because its
            client does not read; nothing but an error is put from then on.
    """

    def __init__(self, full: Callable[[], None] | None = None) -> None:
        self._post, self._queue = Post.here(), asyncio.Queue()
        self._begun = self._read = self._closed = False
        self._full = full

    def put(self, event: Event) -> None:
        """Put an event from the engine's thread; a stream's first piece and end are urgent."""
        if self._closed:
            return
        if self._full is not None and self._read and self._queue.qsize() > MOST_EVENTS:
            self._closed, event = True, SeqgenError("the client did not read its stream")
            self._full()
        may_wait = self._begun and isinstance(event, TextPiece) and event.finished is None
        self._begun = True
        self._post.send(self._queue, event, may_wait)

    async def batches(self) -> AsyncIterator[list[Any]]:
        """Yield lists of the events since the previous list, until the request ends.

        Raises:
            SeqgenError: the task has failed.
        """
        self._read = True
        while True:
            events = [await self._queue.get()]
            while not self._queue.empty():
                events.append(self._queue.get_nowait())
            last = events[-1]
            if last is None or isinstance(last, BaseException):
                events.pop()
            if events:
                yield events
            if isinstance(last, BaseException):
                raise last
            if last is None:
                return

    async def events(self) -> AsyncIterator[Any]:
        """Yield events one by one; see `batches`."""
        async for events in self.batches():
            for event in events:
                yield event


async def until_gone(request: Request, work: Awaitable[Any]) -> Any:
    """Wait for a result, or cancel the work when the client disconnects.

    Raises:
        ClientDisconnect: it has.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def completions(server: Server, request: Request) -> Response:
    """Answer `POST /v1/completions`: generate texts."""
    begun, deadline = time.monotonic(), server.deadline()
    fields = await server.read(request, (*protocol.FILTERS, *protocol.OTHERS))
    return await texts(server, request, fields, protocol.read_completion, begun, deadline)


async def chat_completions(server: Server, request: Request) -> Response:
    """Answer `POST /v1/chat/completions`: answer conversations."""
    begun, deadline = time.monotonic(), server.deadline()
    fields = await server.read(request, chat.FIELDS)
    return await texts(server, request, fields, chat.read_chat, begun, deadline)


async def texts(
    server: Server,
    request: Request,
    fields: dict[str, Any],
    parse: Parse,
    begun: float,
    deadline: float,
) -> Response:
    """Write the texts that a request asks for.

    Args:
        server: has the models.
        request: asks.
        fields: of its body.
        parse: reads them.
        begun: when it arrived, by `time.monotonic`.
        deadline: when it is to end.
    """
    loaded = await server.model(fields)
    by = server.patterns if fields.keys() & {"pattern", "response_format"} else None
    read = server.prepare(deadline, parse_in_time, parse, fields, loaded, server.options, by=by)
    asked = await until_gone(request, read)
    number = len(asked.prompts) * asked.candidates
    if number > MOST_TEXTS:
        why = f"the request asks for {number:,} texts, and {MOST_TEXTS:,} is the most: send several"
        raise Refused(why, param="prompt")
    answer = Answer(server, asked, begun, deadline, client_of(request))
    if asked.stream:
        answer.submit()
        return StreamingResponse(answer.stream(), media_type="text/event-stream")
    return Response(await until_gone(request, answer.whole()), media_type="application/json")


def client_of(request: Request) -> str:
    """Read the client's address from a request."""
    return "" if request.client is None else request.client.host


def parse_in_time(
    parse: Parse, fields: dict[str, Any], loaded: LoadedModel, limits: ServeOptions
) -> Query:
    """Parse the fields of a request within a time limit."""
    with seconds_at_most(PATTERN_SECONDS):
        return parse(fields, loaded, limits)


class Answer:
    """Response to a completion request, whole or streamed."""

    def __init__(
        self, server: Server, asked: Query, begun: float, deadline: float, client: str
    ) -> None:
        self.server, self.asked, self.begun, self.deadline = server, asked, begun, deadline
        self.client = client
        self.inbox = Inbox(self.cancel if asked.stream else None)
        self.scores = Inbox()
        self.tasks: list[Job] = []
        self.offsets: dict[Row, protocol.TextOffsets] = {}  # of the choices that have begun
        form = asked.form
        self.about = {
            "id": f"{form.prefix}-{secrets.token_hex(12)}",
            "object": form.chunk if asked.stream else form.whole,
            "created": int(time.time()),
            "model": asked.loaded.name,
            "seed": asked.writer.options.seed,
        }
        self.head = json.dumps(self.about)[:-1]  # how every event of a stream begins
        self.tokens = 0

    def submit(self) -> None:
        """Submit the request's work to the engine.

        Raises:
            Busy: it has too much.
        """
        asked, deadline = self.asked, self.deadline
        writing = Writing(
            asked.loaded,
            self.inbox.put,
            deadline,
            client=self.client,
            writer=asked.writer,
            prompts=asked.prompts,
            prepares=asked.form.prepares_prompts,
            samples=asked.candidates,
            processors=asked.processors,
            top=asked.top,
            streams=asked.stream,
        )
        self.tasks = [writing]
        if asked.scores_prompts:
            self.tasks.append(Job(asked.loaded, self.scores.put, deadline, score_prompts(asked)))
        try:
            for task in reversed(self.tasks):
                self.server.engine.submit(task)
        except Busy:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Mark the request's work as cancelled."""
        for task in self.tasks:
            task.cancelled = True

    async def prompts(self) -> dict[int, list[TokenLogprob | int]]:
        """Wait for the scored tokens of every prompt; empty if they are not requested."""
        if not self.asked.scores_prompts:
            return {}
        return {number: noted async for number, noted in self.scores.events()}

    async def whole(self) -> str:
        """Generate the complete response as JSON."""
        self.submit()
        texts = {}
        try:
            scored = await self.prompts()
            async for piece in self.inbox.events():
                self.first()
                texts[piece.row] = piece.finished, piece.noted
                self.tokens += piece.finished.tokens
        finally:
            self.cancel()
        return await asyncio.to_thread(self.written, texts, scored)

    def written(
        self,
        texts: dict[Row, tuple[Continuation, Sequence[TokenLogprob]]],
        scored: dict[int, list[TokenLogprob | int]],
    ) -> str:
        """Build the complete response choice by choice, so that other threads get turns."""
        choices = []
        for index, row in protocol.best(texts, self.asked):
            continuation, noted = texts[row]
            text = protocol.text_of(self.asked, row, continuation)
            choice = self.choice(row, index, text, continuation.finish_reason, noted, scored)
            choices.append(json.dumps(choice))
        usage = json.dumps(self.usage)
        return f'{self.head}, "choices": [{", ".join(choices)}], "usage": {usage}}}'

    def choice(
        self,
        row: Row,
        index: int,
        text: str,
        reason: str | None,
        noted: Sequence[TokenLogprob],
        scored: dict[int, list[TokenLogprob | int]],
    ) -> dict[str, Any]:
        """Build one choice, or its next streamed piece."""
        asked, logprobs, known = self.asked, None, self.offsets
        prompt, first = asked.prompts[row.prompt], row not in known
        before = scored.get(row.prompt, ()) if first else ()
        if first:
            known[row] = protocol.TextOffsets(asked, prompt)
            text = asked.loaded.echoed(prompt.text, text) if asked.echo else text
        if asked.top is not None:
            logprobs = asked.form.logprobs(asked, [*before, *noted], known[row].push(before, noted))
        content = asked.form.content(text, first, asked.stream)
        return {**content, "index": index, "logprobs": logprobs, **protocol.finish(reason)}

    async def stream(self) -> AsyncIterator[str]:
        """Yield the server-sent events of a streamed response."""
        alike = self.asked.form.pieces_alike
        plain = alike and self.asked.top is None and not self.asked.echo
        try:
            scored = await self.prompts()
            async for pieces in self.inbox.batches():
                self.first()
                yield "".join(
                    self.growth(one)
                    if plain and one.finished is None
                    else self.event([self.piece(one, scored)])
                    for one in pieces
                )
            if self.asked.usage:
                yield self.event([], self.usage)
        except Exception as error:  # of any kind: the status of the response has been sent
            if not isinstance(error, SeqgenError | HTTPException):
                logging.getLogger(__name__).error("a stream failed", exc_info=error)
            yield f"data: {json.dumps(refusal(error).body)}\n\n"
        finally:
            self.cancel()
        yield "data: [DONE]\n\n"

    def piece(self, piece: TextPiece, scored: dict[int, Any]) -> dict[str, Any]:
        """Build the streamed piece of a choice."""
        row, reason = piece.row, None
        if piece.finished is not None:
            reason, self.tokens = piece.finished.finish_reason, self.tokens + piece.finished.tokens
        index = row.prompt * self.asked.choices + row.sample
        return self.choice(row, index, piece.text, reason, piece.noted, scored)

    def growth(self, piece: TextPiece) -> str:
        """Build the event of an unfinished text when only the text is requested."""
        index = piece.row.prompt * self.asked.choices + piece.row.sample
        choice = f'{{"text": {json.dumps(piece.text)}, "index": {index}, {UNFINISHED}}}'
        return f'data: {self.head}, "choices": [{choice}]}}\n\n'

    def event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        """Build a server-sent event from choices and usage."""
        of_this = {"choices": choices} | ({} if usage is None else {"usage": usage})
        return f"data: {self.head}, {json.dumps(of_this)[1:]}\n\n"

    def first(self) -> None:
        """Record the time to the first token."""
        if self.begun:
            self.server.first_token[0] += 1
            self.server.first_token[1] += time.monotonic() - self.begun
            self.begun = 0.0

    @property
    def usage(self) -> dict[str, int]:
        """Token counts of prompts and completions."""
        read = self.asked.prompt_tokens
        total = read + self.tokens
        return {"prompt_tokens": read, "completion_tokens": self.tokens, "total_tokens": total}


def score_prompts(asked: Query) -> Iterator[tuple[int, list[TokenLogprob | int]] | None]:
    """Score the tokens of each prompt; yield (index, tokens), or None after a part."""
    for prompt in asked.prompts:
        noted: list[TokenLogprob | int] = []
        shown = asked.shown(prompt)
        if len(shown) == len(prompt.tokens):
            noted.append(shown[0])  # what it begins with has no probability
        for part in _scored(asked, prompt):
            noted += part
            yield None
        yield prompt.index, noted


def _scored(asked: Query, prompt: Prompt) -> Iterator[list[TokenLogprob]]:
    loaded, tokens = asked.loaded, np.array([prompt.tokens])
    opens, handles = open_sources(loaded, [prompt])
    state = loaded.model.start(1) if opens is None else opens(handles)
    size = max(1, min(SCORED_BETWEEN, LOGITS_AT_ONCE // loaded.model.vocab_size))
    for begin in range(0, tokens.shape[1] - 1, size):
        read, targets = tokens[:, begin : begin + size], tokens[0, begin + 1 : begin + size + 1]
        log_probs, state = _read(loaded, read, state)
        yield [note(row, int(t), asked.top) for row, t in zip(log_probs, targets, strict=False)]


@without_gradients
def _read(loaded: LoadedModel, tokens: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
    """Compute the log-probabilities (T, V) after each of tokens (1, T), and the new state."""
    logits, state = loaded.model(loaded.model.ids(tokens), state)
    return normalise(ops_of(logits).array(logits)[0]), state


def check_lengths(
    loaded: LoadedModel, lines: Sequence[str], sources: Sequence[str], most: int
) -> None:
    """Raise `Refused` if a line or source has more than `most` tokens."""
    lengths = {"lines": [len(loaded.tokenizer.encode(line)) for line in lines]}
    if sources:
        encoded = loaded.conditioning.encode(sources)
        lengths["sources"] = (encoded.ends - encoded.starts).tolist()
    for name, each in lengths.items():
        if max(each) > most:
            why = f"one of {name} has {max(each):,} tokens, and --max-prompt is {most:,}"
            raise Refused(why, param=name, code="context_length_exceeded")


async def score(server: Server, request: Request) -> Response:
    """Answer `POST /v1/score` with the records of `seqgen perplexity --per-line`."""
    deadline = server.deadline()
    fields = await server.read(request, protocol.SCORE_FIELDS)
    loaded = protocol.read_label(fields, await server.model(fields))
    lines, sources = (protocol.typed(x, fields.get(x, []), tuple) for x in ("lines", "sources"))
    if not lines or any("\n" in line for line in lines + sources):
        raise Refused("lines must be lines of text without newlines", param="lines")
    if len(lines) > MOST_LINES:
        raise Refused(f"lines may be {MOST_LINES:,} lines: send several requests", param="lines")
    pairs = loaded.conditioning.in_pairs and loaded.label is None
    if pairs and (len(sources) != len(lines) or any("\t" in source for source in sources)):
        instead = "" if loaded.conditioning.is_source else "; or give one label for all lines"
        why = f"sources must be as many as lines, without tabs{instead}"
        raise Refused(why, param="sources")
    if sources and not pairs:
        raise Refused(f"{loaded.name} has no sources", param="sources")
    most = server.options.max_prompt
    checked = server.prepare(deadline, check_lengths, loaded, lines, sources, most)
    await until_gone(request, checked)
    if pairs:
        lines = tuple(f"{a}\t{b}" for a, b in zip(sources, lines, strict=True))
    return await records_of(server, request, loaded, deadline, score_each(loaded, lines))


async def embeddings(server: Server, request: Request) -> Response:
    """Answer `POST /v1/embeddings`: vectors of texts."""
    deadline = server.deadline()
    fields = await server.read(request, embedding.FIELDS)
    loaded = await server.model(fields)
    read = server.prepare(deadline, embedding.read_inputs, fields, loaded, server.options)
    asked = await until_gone(request, read)
    return await records_of(server, request, loaded, deadline, asked.records(), usage=asked.usage)


async def records_of(
    server: Server,
    request: Request,
    loaded: LoadedModel,
    deadline: float,
    work: Iterator[dict[str, Any] | None],
    **more: Any,
) -> Response:
    """Run work that yields records in the engine, between texts of other requests; send them.

    None in the place of a record lets others go first. `more` is sent after the records.
    """
    inbox = Inbox()
    task = Job(loaded, inbox.put, deadline, work)
    server.engine.submit(task)

    async def all_of_them() -> list[dict[str, Any]]:
        return [record async for record in inbox.events()]

    try:
        records = await until_gone(request, all_of_them())
    finally:
        task.cancelled = True
    return JSONResponse({"object": "list", "model": loaded.name, "data": records, **more})


def endpoint_of(function: Callable[..., Iterator[Any]], known: Sequence[str]) -> Endpoint:
    """Create the endpoint of a plugin's route.

    Args:
        function: yields records; see `hooks.Route`.
        known: the fields that a request may have besides the model.
    """

    async def endpoint(server: Server, request: Request) -> Response:
        deadline = server.deadline()
        fields = await server.read(request, ("model", *known))
        loaded = await server.model(fields)
        work = function(loaded, **{name: fields.get(name) for name in known})
        return await records_of(server, request, loaded, deadline, work)

    return endpoint


def added_routes() -> dict[str, tuple[str, Endpoint]]:
    """Collect the routes of plugins by path; unusable ones are skipped."""
    found: dict[str, tuple[str, Endpoint]] = {}
    for path, (plugin, route) in hooks.by_name("routes").items():
        with plugin.guarded(f"its route {path}"):
            if path in ROUTES:
                raise UsageError("seqgen serve has one of this path")
            found[path] = "POST", endpoint_of(plugin.load(route.target), route.fields)
    return found


@dataclass(frozen=True)
class Line:
    """Text of a single line that can be read any number of times."""

    text: str

    def chunks(self) -> Iterator[str]:
        """Yield the line with its newline."""
        yield self.text + "\n"


def score_each(loaded: LoadedModel, lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Score lines one by one, and yield a record for each."""
    scoring = Scoring()
    for index, text in enumerate(map(Line, lines)):
        given = loaded.conditioning
        chunks = given.read(text, "lines") if given.in_pairs else text.chunks()
        for scored in score_lines(loaded, chunks, scoring):
            yield line_record(None, loaded, scored, scoring) | {"line": index}


async def models(server: Server, request: Request) -> Response:
    """Answer `GET /v1/models` and `GET /v1/models/NAME`: list or describe models."""
    shelf = server.shelf
    listed = [
        {
            "id": name,
            "object": "model",
            "created": int(written),
            "owned_by": "seqgen",
            "loaded": name in shelf.loaded,
        }
        for name, written in shelf.written().items()
    ]
    name = request.path_params.get("name")
    if name is None:
        return JSONResponse({"object": "list", "data": listed})
    found = next((model for model in listed if model["id"] == name), None)
    if found is None:
        raise Unknown(f"there is no model {name!r} here")
    return JSONResponse(found)


async def health(server: Server, request: Request) -> Response:
    """Answer `GET /health`."""
    return JSONResponse({"status": "ok"})


async def metrics(server: Server, request: Request) -> Response:
    """Answer `GET /metrics` in Prometheus's text format."""
    engine, (count, seconds) = server.engine, server.first_token
    answers = {f'{{status="{of}"}}': n for of, n in sorted(server.answers.items())}
    waited = {"_count": count, "_sum": f"{seconds:.6f}"}
    figures = {
        "tokens_total": ("counter", "Tokens written.", {"": engine.tokens}),
        "texts_total": ("counter", "Texts finished.", {"": engine.texts}),
        "running_texts": ("gauge", "Texts being written.", {"": engine.running}),
        "waiting_requests": ("gauge", "Requests that wait for their turn.", {"": engine.waiting}),
        "loaded_models": ("gauge", "Models in memory.", {"": len(server.shelf.loaded)}),
        "first_token_seconds": ("summary", "Seconds from a request to its first token.", waited),
        "answers_total": ("counter", "Answers, by status.", answers),
    }
    lines = []
    for name, (kind, text, values) in figures.items():
        lines += [f"# HELP seqgen_{name} {text}", f"# TYPE seqgen_{name} {kind}"]
        lines += [f"seqgen_{name}{which} {value}" for which, value in values.items()]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


async def page(server: Server, request: Request) -> Response:
    """Answer `GET /` and `GET /chat` with pages for trying the models."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    policy += "connect-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
    return HTMLResponse(server.pages[request.url.path], headers={"Content-Security-Policy": policy})


async def tokenizer_info(server: Server, request: Request) -> Response:
    """Answer `GET /tokenizer_info` like vLLM, as lm-evaluation-harness expects."""
    loaded = await server.model({})
    start = loaded.tokenizer.pieces([loaded.framing.start])[0]
    return JSONResponse({"bos_token": start, "eos_token": start, "chat_template": None})


async def tokenize(server: Server, request: Request) -> Response:
    """Answer `POST /tokenize` like vLLM; the start symbol's name encodes that symbol."""
    fields = await server.read(request, ("model", "prompt", "add_special_tokens"))
    loaded = await server.model(fields)
    text = protocol.typed("prompt", fields.get("prompt", ""), str)
    start = loaded.framing.start
    ids = [start]
    if [text] != loaded.tokenizer.pieces(ids):
        ids = (await server.prepare(server.deadline(), loaded.tokenizer.encode, text)).tolist()
    window = loaded.model.window or server.options.max_prompt
    return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": window})


async def detokenize(server: Server, request: Request) -> Response:
    """Answer `POST /detokenize` like vLLM."""
    fields = await server.read(request, ("model", "tokens"))
    loaded = await server.model(fields)
    ids, size = fields.get("tokens", []), loaded.tokenizer.vocab_size
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < size for i in ids):
        raise Refused(f"tokens must be a list of ids below {size:,}", param="tokens")
    text = await server.prepare(server.deadline(), loaded.tokenizer.decode, ids)
    return JSONResponse({"prompt": text})


ROUTES: dict[str, tuple[str, Endpoint]] = {
    **dict.fromkeys(PAGES, ("GET", page)),
    "/health": ("GET", health),
    "/metrics": ("GET", metrics),
    "/v1/models": ("GET", models),
    "/v1/models/{name:path}": ("GET", models),
    "/v1/completions": ("POST", completions),
    "/v1/chat/completions": ("POST", chat_completions),
    "/v1/embeddings": ("POST", embeddings),
    "/v1/score": ("POST", score),
    "/tokenizer_info": ("GET", tokenizer_info),
    "/tokenize": ("POST", tokenize),
    "/detokenize": ("POST", detokenize),
}


def refusal(error: Exception) -> Refused:
    """Convert an exception to an error response."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Busy):
        return Refused("the server is busy; try again later", 429, code="rate_limit_exceeded")
    if isinstance(error, Late):
        return Refused(str(error), 408)
    if isinstance(error, Unknown):
        return Refused(str(error), 404, "model", "model_not_found")
    if isinstance(error, Damaged):
        return Refused(str(error), 503, "model")
    if isinstance(error, HTTPException):
        return Refused(error.detail, error.status_code)
    if isinstance(error, RecursionError):
        return Refused("the body is nested too deeply")
    if isinstance(error, SeqgenError):
        return protocol.refused(error)
    if ran_out_of_memory(error):
        return Refused("the server has run out of memory: ask for fewer or shorter texts", 503)
    return Refused("the server has failed; its log says how", 500)


def hang_up(send: Send) -> None:
    """Abort the connection of a client that does not read; ASGI has no message for this."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)  # uvicorn's
    if transport is not None:
        transport.abort()


def address_of(text: str, port: str = "") -> tuple[str, str] | None:
    """Parse `name:port` or `name` into a lower-case name and a port; None if invalid."""
    match = ADDRESS.fullmatch(text)
    return None if match is None else (match[1].lower(), match[2] or port)


def values_of(scope: Scope, name: bytes) -> list[str]:
    """List all values of a request header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


class Guard:
    """Middleware that checks the host and origin of every request, and counts responses."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app, self.server = app, server
        options = server.options
        # A page of another site may give the loopback a name of its own; ours is asked by these.
        names = {f"[{name}]" if ":" in name else name for name in LOOPBACK}
        self.hosts = names if options.host in LOOPBACK else None
        self.origins = options.allow_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless its host or origin is refused."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        deadline, loop = self.server.deadline(), asyncio.get_running_loop()
        ends: float | None = None  # set at the first message that is sent after the deadline

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.server.answers[message["status"]] += 1
            nonlocal ends
            now = time.monotonic()
            if ends is None and now > deadline:
                ends = now + GRACE
            patience = (deadline + GRACE if ends is None else ends) - now
            timer = loop.call_later(max(0, min(patience, UNREAD_SECONDS)), hang_up, send)
            try:
                await send(message)
            finally:
                timer.cancel()

        problem = self._problem(scope)
        app = self.app if problem is None else _response(problem)
        await app(scope, receive, counted)

    def _problem(self, scope: Scope) -> Refused | None:
        hosts = values_of(scope, b"host")
        host = hosts[0] if len(hosts) == 1 else ""
        if self.hosts is not None and (address_of(host) or ("",))[0] not in self.hosts:
            return Refused("this server is for the machine that it runs on", 403)
        for origin in values_of(scope, b"origin") or self._unnamed_origins(scope):
            if origin not in self.origins and not _is_of(origin, host):
                why = (
                    f"pages of {shorten(origin)} may not use this server; --allow-origin allows it"
                )
                return Refused(why, 403)
        return None

    def _unnamed_origins(self, scope: Scope) -> list[str]:
        """List a placeholder if a browser does not name a page's foreign origin.

        It does so for what a page embeds, such as pictures.
        """
        sites = values_of(scope, b"sec-fetch-site")
        known = scope["path"] in OPEN or all(site in ("same-origin", "none") for site in sites)
        return [] if known else ["another origin"]


def _is_of(origin: str, host: str) -> bool:
    """Check whether an origin matches the host that a request was sent to."""
    scheme, _, address = origin.partition("://")
    port = DEFAULT_PORTS.get(scheme, "")
    asked = address_of(address, port)
    return port != "" and asked is not None and asked == address_of(host, port)


class Key:
    """Middleware that checks the API key of every request."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app, self.key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless its key is missing or wrong."""
        asked = scope["type"] == "http" and scope["path"] not in OPEN
        app = self.app if not asked or self._is_given(scope) else _response(NO_KEY)
        await app(scope, receive, send)

    def _is_given(self, scope: Scope) -> bool:
        scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(b" "), self.key)


def _response(problem: Refused) -> Response:
    headers = {"Retry-After": RETRY_AFTER} if problem.status == 429 else None
    # In ASCII: what a message quotes of a request may be no text that UTF-8 can hold.
    body = json.dumps(problem.body)
    return Response(body, problem.status, headers, media_type="application/json")


def make_app(server: Server) -> ASGIApp:
    """Create the ASGI application: routes, error handlers and middleware."""

    async def failed(request: Request, error: Exception) -> Response:
        return _response(refusal(error))

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # which nobody reads

    endpoints = {**ROUTES, **added_routes()}
    routes = [
        Route(path, partial(answer, server), methods=[method])
        for path, (method, answer) in endpoints.items()
    ]
    answered = HTTPException, SeqgenError, Busy, RecursionError, Exception
    handlers = {ClientDisconnect: gone, **dict.fromkeys(answered, failed)}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
    options = server.options
    if options.api_key is not None:
        app = Key(app, options.api_key)
    if options.allow_origin:
        methods = sorted({method for method, _ in endpoints.values()})
        app = CORSMiddleware(
            app, allow_origins=options.allow_origin, allow_methods=methods, allow_headers=["*"]
        )
    return Guard(app, server)
