"""Writing text with a trained model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from seqgen.configs import require
from seqgen.decoding import sampling
from seqgen.decoding.draw import Choose, CounterDraw, greedy
from seqgen.decoding.processors import Forbid, Processor, Temperature, TopK, TopP
from seqgen.decoding.sampling import Row
from seqgen.decoding.text import Continuation
from seqgen.errors import SeqgenError
from seqgen.tasks.loaded import LoadedModel


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How to write. `batch_size` changes speed and memory, never a text.

    Attributes:
        seed: sample j of prompt i draws its token t from hash(seed, i, j, t).
        temperature: divides log-probabilities; 0 is the argmax.
        top_k: keep the k most probable tokens.
        top_p: keep the smallest set of tokens whose mass reaches p.
        greedy: always the most probable token.
        max_tokens: at most so many tokens a text.
        num_samples: texts for each prompt.
        stop: texts that end a text, and are not part of it.
        batch_size: texts written side by side.
    """

    seed: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    greedy: bool = False
    max_tokens: int = 500
    num_samples: int = 1
    stop: Sequence[str] = ()
    batch_size: int = 32

    def __post_init__(self) -> None:
        require(self.max_tokens >= 0, f"--max-tokens is at least 0, not {self.max_tokens}")
        require(self.num_samples >= 1, f"--num-samples is at least 1, not {self.num_samples}")
        require(self.batch_size >= 1, f"--batch-size is at least 1, not {self.batch_size}")
        require(all(self.stop), "--stop needs a text that is not empty")
        self.filters()

    def filters(self) -> list[Processor]:
        """Return what the user asked for, in the order in which it applies."""
        wanted: list[Processor | None] = [
            Temperature(self.temperature) if self.temperature != 1 else None,
            TopK(self.top_k) if self.top_k is not None else None,
            TopP(self.top_p) if self.top_p != 1 else None,
        ]
        return [processor for processor in wanted if processor is not None]


@dataclass(frozen=True)
class Sample:
    """The keys of `seqgen sample --json`, in order."""

    index: int
    sample: int
    prompt: str
    text: str
    tokens: int
    logprob: float
    finish_reason: str
    seed: int
    model: str


@dataclass(frozen=True)
class Writer:
    """A model and the options it writes with."""

    loaded: LoadedModel
    options: SampleOptions

    @property
    def processors(self) -> list[Processor]:
        """Every filter in order: first what can never be written."""
        tokenizer = self.loaded.tokenizer
        never = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id]
        # A stream has no end; a line, which ends with EOS, holds no newline.
        stream = self.loaded.framing.end is None
        never.append(tokenizer.eos_id if stream else tokenizer.newline_id)
        return [Forbid(tuple(never)), *self.options.filters()]

    @property
    def choose(self) -> Choose:
        """How a token is picked."""
        return greedy if self.options.greedy else CounterDraw(self.options.seed)

    def row(self, index: int, sample: int, prompt: str) -> Row:
        """Return the work for one text.

        Raises:
            SeqgenError: the prompt has something the model does not know; says where.
        """
        unknown = self.loaded.tokenizer.first_unknown(prompt)
        if unknown is not None:
            at, piece = unknown
            line, column = prompt.count("\n", 0, at) + 1, at - prompt.rfind("\n", 0, at)
            raise SeqgenError(
                f"prompt {index}: the model does not know {piece!r} "
                f"(line {line}, column {column} of the prompt)"
            )
        ids = self.loaded.tokenizer.encode(prompt).tolist()
        return Row(index, sample, (self.loaded.framing.start, *ids))

    def begin(self, row: Row) -> Continuation:
        """Open a text."""
        decoder = self.loaded.tokenizer.decoder(row.tokens)
        options = self.options
        return Continuation(decoder, options.stop, options.max_tokens, self.loaded.framing.end)

    def steps(self, rows: Sequence[Row]) -> Iterator[sampling.Step]:
        """Write `rows` side by side; yield every token."""
        model = self.loaded.model
        return sampling.sample(model, rows, self.begin, self.processors, self.choose)


def stream(loaded: LoadedModel, prompt: str, options: SampleOptions) -> Iterator[str]:
    """Write one text; yield each piece of it as soon as it is certain.

    Raises:
        SeqgenError: the prompt has something the model does not know.
    """
    writer = Writer(loaded, options)
    for step in writer.steps([writer.row(0, 0, prompt)]):
        if step.text:
            yield step.text


def sample(loaded: LoadedModel, prompts: Iterable[str], options: SampleOptions) -> Iterator[Sample]:
    """Write `options.num_samples` texts for each prompt; yield them in order.

    Prompts may come slowly: a batch takes those that are there and never waits to fill.

    Raises:
        SeqgenError: a prompt has something the model does not know; the texts of the prompts
            before it have been yielded.
    """
    writer = Writer(loaded, options)
    numbered = ready(prompts, max(1, options.batch_size // options.num_samples))
    index = 0
    for batch in numbered:
        rows: list[tuple[Row, str]] = []
        problem: SeqgenError | None = None
        for prompt in batch:
            try:
                first = writer.row(index, 0, prompt)
            except SeqgenError as error:
                problem = error
                break
            rows += [(Row(index, j, first.tokens), prompt) for j in range(options.num_samples)]
            index += 1
        for at in range(0, len(rows), options.batch_size):
            yield from _in_order(writer, rows[at : at + options.batch_size])
        if problem is not None:
            raise problem


def _in_order(writer: Writer, rows: list[tuple[Row, str]]) -> Iterator[Sample]:
    """Write a batch; yield a text when it and all before it are finished."""
    finished: dict[Row, Continuation] = {}
    waiting = iter(rows)
    row, prompt = next(waiting)
    for step in writer.steps([r for r, _ in rows]):
        if step.continuation.finish_reason is None:
            continue
        finished[step.row] = step.continuation
        while row in finished:
            text = finished.pop(row)
            yield Sample(
                index=row.prompt,
                sample=row.sample,
                prompt=prompt,
                text=text.text,
                tokens=text.tokens,
                logprob=text.logprob,
                finish_reason=str(text.finish_reason),
                seed=writer.options.seed,
                model=writer.loaded.stored.name,
            )
            following = next(waiting, None)
            if following is None:
                return
            row, prompt = following


def ready(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of up to `size` items: those that are there, without waiting for more.

    A sequence is there at once. Anything else is read ahead in a thread, by a bounded amount.
    """
    if isinstance(items, Sequence):
        for at in range(0, len(items), size):
            yield list(items[at : at + size])
        return
    waiting: queue.Queue = queue.Queue(maxsize=4 * size)
    threading.Thread(target=_read_ahead, args=(items, waiting), daemon=True).start()
    while True:
        batch = [waiting.get()]
        while len(batch) < size and not waiting.empty():
            batch.append(waiting.get())
        end = next((i for i, item in enumerate(batch) if not isinstance(item, str)), None)
        if batch[:end]:
            yield batch[:end]
        if end is not None:
            if isinstance(batch[end], BaseException):
                raise batch[end]
            return


def _read_ahead(items: Iterable[str], waiting: queue.Queue) -> None:
    """Put every item, then None, or the error that ended the reading."""
    try:
        for item in items:
            waiting.put(item)
    except BaseException as error:  # raised again where the items are used
        waiting.put(error)
    else:
        waiting.put(None)


def first_line(loaded: LoadedModel, characters: int = 80) -> str:
    """Return a line that the model writes now, always from the same draws."""
    options = SampleOptions(seed=0, temperature=0.8, max_tokens=2 * characters)
    pieces = islice(stream(loaded, "", options), 2 * characters)
    text = "".join(pieces)
    line = next((line for line in text.split("\n") if line.strip()), "")
    return line[:characters]
