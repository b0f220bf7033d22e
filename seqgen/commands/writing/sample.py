"""Writing text with a trained model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.writing.filters import begin_and_end, check_limits
from seqgen.commands.writing.from_source import SourceOptions, SourceReader
from seqgen.commands.writing.prompts import Prompt, batches, opening
from seqgen.commands.writing.records import OfSource, Written
from seqgen.configs import MOST_ROWS, MOST_SEED, MOST_TOKENS, Bounds, texts
from seqgen.data.sources import Vectors
from seqgen.decoding import sampling
from seqgen.decoding.continuation import Continuation
from seqgen.decoding.draw import Choose, CounterDraw, greedy
from seqgen.decoding.processors import (
    Ban,
    Forbid,
    MinP,
    NoRepeatNgram,
    PresenceAndFrequency,
    Processor,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from seqgen.decoding.sampling import Opens, Row, Watch
from seqgen.tokenizers import Decoder

# The numbers of samples, and of the candidates of each, together fit the 64 bits that are hashed.
BOUNDS = {
    "seed": Bounds(low=0, high=MOST_SEED),
    "max_tokens": Bounds(low=0, high=MOST_TOKENS),
    "min_tokens": Bounds(low=0),
    "num_samples": Bounds(low=1, high=10**12),
    "best_of": Bounds(low=1, high=10**6),
    "batch_size": Bounds(low=1, high=MOST_ROWS),
}


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How to write. `batch_size` changes speed and memory, never a text.

    Attributes:
        seed: sample j of prompt i draws its token t from hash(seed, i, j, t).
        temperature: divides log-probabilities; 0 is the argmax.
        top_k: keep the k most probable tokens.
        top_p: keep the smallest set of tokens whose mass reaches p.
        min_p: keep tokens at least p times as probable as the likeliest.
        typical: keep the mass whose surprisal is nearest to the entropy.
        repetition_penalty: multiplies log-probabilities of tokens seen, in prompt or text;
            from 0.001 to 1000.
        presence_penalty: nats off each token written before; from -1000 to 1000.
        frequency_penalty: nats off each token for every time it was written; the same.
        no_repeat_ngram: no so many tokens in a row twice, prompt included.
        ban: a text, or several, that are never written, as the model's tokenizer would write
            them.
        force: what every text begins with, banned or not.
        greedy: always the most probable token.
        max_tokens: at most so many tokens a text.
        min_tokens: neither the end of a text nor a stop string before so many tokens.
        num_samples: texts for each prompt.
        best_of: each text is the best of so many by log-probability a token; candidate k of
            sample j draws as sample j x best_of + k.
        stop: a text, or several, that end a text, and are not part of it.
        batch_size: texts written side by side.
        of_source: what is asked of a model that writes from sources.
    """

    seed: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram: int | None = None
    ban: str | Sequence[str] = ()
    force: str = ""
    greedy: bool = False
    max_tokens: int = 500
    min_tokens: int = 0
    num_samples: int = 1
    best_of: int = 1
    stop: str | Sequence[str] = ()
    batch_size: int = 32
    of_source: SourceOptions = SourceOptions()

    def __post_init__(self) -> None:
        for name, bounds in BOUNDS.items():
            bounds.check(f"--{name.replace('_', '-')}", getattr(self, name))
        check_limits(self.min_tokens, self.max_tokens, self.force)
        object.__setattr__(self, "stop", texts("--stop", self.stop))
        object.__setattr__(self, "ban", texts("--ban", self.ban))
        self.filters()

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn: neither greedily nor at temperature 0."""
        return not self.greedy and self.temperature > 0

    def filters(self) -> list[Processor]:
        """Return the filters asked for that need no tokenizer, in the order they apply in."""
        presence, frequency = self.presence_penalty, self.frequency_penalty
        ngram = self.no_repeat_ngram
        processors: list[Processor | None] = [
            RepetitionPenalty(self.repetition_penalty) if self.repetition_penalty != 1 else None,
            PresenceAndFrequency(presence, frequency) if presence or frequency else None,
            NoRepeatNgram(ngram) if ngram is not None else None,
            Temperature(self.temperature) if self.temperature != 1 else None,
            TopK(self.top_k) if self.top_k is not None else None,
            TopP(self.top_p) if self.top_p != 1 else None,
            MinP(self.min_p) if self.min_p != 0 else None,
            Typical(self.typical) if self.typical != 1 else None,
        ]
        return [processor for processor in processors if processor is not None]


@dataclass(frozen=True)
class Sample(Written):
    """A text, and what `seqgen sample --json` says of it; see `Written.record`.

    `seed` is None where nothing is drawn.
    """

    index: int
    sample: int
    prompt: str
    text: str
    tokens: int
    logprob: float
    finish_reason: str
    seed: int | None
    model: str
    of_source: OfSource | None = None
    label: str | None = None


@dataclass(frozen=True)
class Writer:
    """A model and the options it writes with.

    Raises:
        UsageError: it cannot do what is asked of it.
    """

    loaded: LoadedModel
    options: SampleOptions

    def __post_init__(self) -> None:
        self.options.of_source.check(self.loaded)

    @cached_property
    def processors(self) -> list[Processor]:
        """Every filter in order, first the one for tokens that are never written."""
        options = self.options
        processors: list[Processor] = [Forbid(options.of_source.never(self.loaded))]
        if options.ban:
            known = [t for t in options.ban if self.loaded.tokenizer.first_unknown(t) is None]
            processors.append(Ban(tuple(map(self.loaded.ids, known))))
        processors += begin_and_end(self.loaded, options.min_tokens, options.force)
        return [*processors, *options.filters()]

    @property
    def choose(self) -> Choose:
        """What picks a token from log-probabilities."""
        return greedy if self.options.greedy else CounterDraw(self.options.seed)

    def row(self, prompt: Prompt, sample: int, handle: int) -> Row:
        """Return what identifies one of the texts to write, and where it begins."""
        limit = self.options.of_source.limit(prompt, self.options.max_tokens)
        return Row(prompt.index, sample, prompt.tokens, handle, limit)

    def begin(self, row: Row) -> Continuation:
        """Begin a text after its prompt."""
        return self.open(row, self.loaded.decoder(row.tokens))

    def open(self, row: Row, decoder: Decoder) -> Continuation:
        """Begin a text, whose tokens `decoder` turns into characters."""
        options = self.options
        limit = options.max_tokens if row.max_tokens is None else row.max_tokens
        return self.loaded.continuation(decoder, options.stop, limit, options.min_tokens)

    def record(self, prompt: Prompt, row: Row, text: Continuation) -> Sample:
        """Return the record of a finished text."""
        written, of_source = text.text, None
        if self.loaded.reads_sources:
            reader = SourceReader(self.loaded, self.options.of_source)
            begin = functools.partial(self.open, row)
            ((written, of_source),) = reader.finish(prompt, [text.ids], begin)
        return Sample(
            index=row.prompt,
            sample=row.sample // self.options.best_of,
            prompt=prompt.text,
            text=written,
            tokens=text.tokens,
            logprob=text.logprob,
            finish_reason=str(text.finish_reason),
            seed=self.options.seed if self.options.draws else None,
            model=self.loaded.stored.name,
            of_source=of_source,
            label=self.loaded.label,
        )

    def steps(
        self, rows: Sequence[Row], watch: Watch | None = None, opens: Opens | None = None
    ) -> Iterator[sampling.Step]:
        """Write `rows` side by side; yield every token."""
        how = (self.begin, self.processors, self.choose)
        return sampling.sample(self.loaded.model, rows, *how, watch, opens)


def stream(loaded: LoadedModel, prompt: str | Vectors, options: SampleOptions) -> Iterator[str]:
    """Write one text; yield each piece of it as soon as it is certain.

    The best of several is certain only when all are written, and what stands for an unknown
    token when the whole text is.

    Raises:
        SeqgenError: the prompt has something the model does not know.
    """
    if options.best_of > 1 or options.of_source.copy_unknown:
        yield next(sample(loaded, [prompt], options)).text
        return
    writer = Writer(loaded, options)
    ((prompt,),) = batches(loaded, [prompt], 1)
    opens, (handle,) = opening(loaded, [prompt])
    for step in writer.steps([writer.row(prompt, 0, handle)], opens=opens):
        if step.text:
            yield step.text


def sample(
    loaded: LoadedModel, prompts: Iterable[str | Vectors], options: SampleOptions
) -> Iterator[Sample]:
    """Write `options.num_samples` texts for each prompt; yield them in order.

    Prompts may come slowly: a batch takes those that are there and never waits to fill.

    Raises:
        SeqgenError: a prompt has something the model does not know; the texts of the prompts
            before it have been yielded.
    """
    writer = Writer(loaded, options)
    each = options.num_samples * options.best_of
    for batch in batches(loaded, prompts, max(1, options.batch_size // each)):
        opens, handles = opening(loaded, batch)
        rows = (
            writer.row(prompt, j, handle)
            for prompt, handle in zip(batch, handles, strict=True)
            for j in range(each)
        )
        given = {prompt.index: prompt for prompt in batch}
        for row, text in _best(_finished(writer, rows, opens), options.best_of):
            yield writer.record(given[row.prompt], row, text)


def _finished(
    writer: Writer, rows: Iterable[Row], opens: Opens | None
) -> Iterator[tuple[Row, Continuation]]:
    """Write rows, a batch at a time; yield a text when it and all before it are finished.

    There may be many millions of rows: only those of one batch are in memory.
    """
    rows = iter(rows)
    while batch := list(islice(rows, writer.options.batch_size)):
        finished: dict[Row, Continuation] = {}
        waiting = iter(batch)
        row = next(waiting)
        for step in writer.steps(batch, opens=opens):
            if step.continuation.finish_reason is None:
                continue
            finished[step.row] = step.continuation
            while row in finished:
                yield row, finished.pop(row)
                row = next(waiting, row)


def _best(
    texts: Iterable[tuple[Row, Continuation]], best_of: int
) -> Iterator[tuple[Row, Continuation]]:
    """Of every `best_of` texts in a row yield the likeliest by token; of equals the first."""
    texts = iter(texts)
    for first in texts:
        group = chain([first], islice(texts, best_of - 1))  # none of which is kept but the best
        yield max(group, key=lambda candidate: candidate[1].logprob / max(1, candidate[1].tokens))


def fixed_sample(loaded: LoadedModel, prompt: str | Vectors = "", tokens: int = 160) -> str:
    """Return a text that the model writes now, always from the same prompt and draws."""
    if loaded.labels is not None:
        loaded = loaded.with_labels(loaded.labels.names[:1])
    options = SampleOptions(seed=0, temperature=0.8, max_tokens=tokens)
    return "".join(islice(stream(loaded, prompt, options), tokens))
