"""Sampling text from a trained model."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

import numpy as np

from seqgen.generation import text_batch
from seqgen.generation.backward import decoder_of
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import Choose, CounterDraw, greedy
from seqgen.generation.from_source import (
    SourceReader,
    check_sources,
)
from seqgen.generation.generator import Generator, cached_property_without_lock
from seqgen.generation.processors import (
    Ban,
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
from seqgen.generation.prompts import Prompt, Written, batches, open_sources
from seqgen.generation.text_batch import Row, SamplingPolicy, Watch
from seqgen.settings import MOST_TOKENS
from seqgen.settings.generation import SampleOptions

if TYPE_CHECKING:
    from seqgen.models.state import Opens
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Vectors

# Texts to write side by side where a token costs less than a call.
QUICK_ROWS = 256


def filters(
    options: SampleOptions, before_temperature: Iterable[Processor], last: Iterable[Processor]
) -> list[Processor]:
    """Make the sampling filters that the options request, in order of application.

    Args:
        options: what is requested of seqgen's own filters.
        before_temperature: filters of plugins that apply there.
        last: filters of plugins that apply after all others.
    """
    presence, frequency = options.presence_penalty, options.frequency_penalty
    ngram, penalty = options.no_repeat_ngram, options.repetition_penalty
    processors: list[Processor | None] = [
        RepetitionPenalty(penalty) if penalty != 1 else None,
        PresenceAndFrequency(presence, frequency) if presence or frequency else None,
        NoRepeatNgram(ngram) if ngram is not None else None,
        *before_temperature,
        Temperature(options.temperature) if options.temperature != 1 else None,
        TopK(options.top_k) if options.top_k is not None else None,
        TopP(options.top_p) if options.top_p != 1 else None,
        MinP(options.min_p) if options.min_p != 0 else None,
        Typical(options.typical) if options.typical != 1 else None,
        *last,
    ]
    return [processor for processor in processors if processor is not None]


@dataclass(frozen=True, repr=False)
class Sample(Written):
    """Record of one text from `seqgen sample --json`; see `Written.record`.

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


@dataclass(frozen=True)
class Writer(Generator):
    """Sampler: a loaded model with its sampling options.

    Raises:
        UsageError: it cannot do what is asked of it.
    """

    options: SampleOptions

    def __post_init__(self) -> None:
        check_sources(self.options.of_source, self.loaded)
        for filters in self.options.added_filters:
            object.__setattr__(self, "loaded", filters.prepare(self.loaded))

    @cached_property_without_lock
    def processors(self) -> list[Processor]:
        """All filters in order, beginning with tokens that are never generated."""
        options, processors = self.options, [self.possible]
        if options.ban:
            known = [t for t in options.ban if self.loaded.tokenizer.first_unknown(t) is None]
            processors.append(Ban(tuple(map(self.loaded.ids, known))))
        return [*processors, *self.formed, *self.added_filters, *self.samplers]

    @cached_property_without_lock
    def samplers(self) -> list[Processor]:
        """Filters from the penalties on, which apply after those that restrict the text."""
        added = self.options.added_filters
        early = (made for each in added for made in each.filters_before_temperature(self))
        last = (made for each in added for made in each.last_filters(self))
        return filters(self.options, early, last)

    @property
    def batch_size(self) -> int:
        """Number of texts generated in one batch."""
        quick = self.loaded.model.drawer and SamplingPolicy(self.processors, self.choose).is_plain
        return max(self.options.batch_size, QUICK_ROWS if quick else 1)

    @property
    def choose(self) -> Choose:
        """Function that picks a token from log-probabilities."""
        return greedy if self.options.greedy else CounterDraw(self.options.seed)

    @property
    def each(self) -> int:
        """Number of texts generated per prompt, including candidates that are discarded."""
        return self.options.num_samples * self.options.candidates

    def batches(
        self, prompts: Iterable[str | Vectors], size: int
    ) -> Iterator[tuple[list[Prompt], Iterator[Row], Opens | None]]:
        """Read prompts in batches of up to `size`, and describe the texts to generate for each.

        Yields:
            The prompts, their rows in order, and what opens states for the rows' handles.
        """
        for batch in self.prepare_prompts(batches(self.loaded, prompts, size)):
            opens, handles = open_sources(self.loaded, batch)
            rows = (
                self.row(prompt, handle, number)
                for prompt, handle in zip(batch, handles, strict=True)
                for number in range(self.each)
            )
            yield batch, rows, opens

    def begin(self, row: Row) -> Continuation:
        """Start an empty text after a row's prompt."""
        return self.open(decoder_of(self.loaded, row.tokens, row.overlap), row.max_tokens)

    @cached_property
    def weights(self) -> dict[Row, float]:
        """Log importance weight of each unfinished text: the mass that masks have kept."""
        return {}

    def weigh(
        self, rows: Sequence[Row], _: int, stages: Sequence[np.ndarray], chosen: Sequence[int]
    ) -> None:
        """Add the log mass kept by the masks of one step to each text's weight."""
        for number, (row, token) in enumerate(zip(rows, chosen, strict=True)):
            kept = float(stages[0][number, token]) - float(stages[-1][number, token])
            if token == self.constraint.dead_id:
                kept = -1e9  # it counts only beside others that could not go on either
            self.weights[row] = self.weights.get(row, 0.0) + kept

    def record(self, prompt: Prompt, row: Row, text: Continuation) -> Sample:
        """Make the record of a finished text."""
        shown, of_source = text.text, None
        if prompt.source is not None:
            reader = SourceReader(self.loaded, self.options.of_source)
            begin = functools.partial(self.open, limit=row.max_tokens)
            ((shown, of_source),) = reader.finish(prompt, [text.ids], begin)
        return Sample(
            index=row.prompt,
            sample=row.sample // self.options.candidates,
            prompt=prompt.text,
            text=shown,
            tokens=text.tokens,
            logprob=text.logprob,
            finish_reason=str(text.finish_reason),
            seed=self.options.seed if self.options.draws else None,
            model=self.loaded.stored.name,
            of_source=of_source,
            label=self.loaded.label,
            healed=row.overlap and row.overlap.text,
        )

    def steps(
        self, rows: Sequence[Row], watch: Watch | None = None, opens: Opens | None = None
    ) -> Iterator[text_batch.Step]:
        """Generate texts in one batch; yield every token."""
        processors = self.filters_for(row.overlap for row in rows)
        policy = SamplingPolicy(processors, self.choose, watch, self.outcomes)
        return text_batch.sample(self.loaded.model, rows, self.begin, policy, opens)


def stream(loaded: LoadedModel, prompt: str | Vectors, options: SampleOptions) -> Iterator[str]:
    """Sample one text; yield each piece as soon as it is certain.

    The best of several is certain only when all are written, and what stands for an unknown
    token when the whole text is.

    Raises:
        SeqgenError: the prompt has something the model does not know.
    """
    if options.candidates > 1 or options.of_source.copy_unknown:
        yield next(sample(loaded, [prompt], options)).text
        return
    writer = Writer(loaded, options)
    ((_, rows, opens),) = writer.batches([prompt], 1)
    for step in writer.steps([next(rows)], opens=opens):
        if step.text:
            yield step.text


def sample(
    loaded: LoadedModel, prompts: Iterable[str | Vectors], options: SampleOptions
) -> Iterator[Sample]:
    """Sample `options.num_samples` texts for each prompt; yield them in order.

    Prompts may come slowly: a batch takes those that are there and never waits to fill.

    Raises:
        SeqgenError: a prompt has something the model does not know; the texts of the prompts
            before it have been yielded.
    """
    writer = Writer(loaded, options)
    keep = _resampled if options.resampled > 1 else _best
    for batch, rows, opens in writer.batches(prompts, max(1, writer.batch_size // writer.each)):
        given = {prompt.index: prompt for prompt in batch}
        for row, text in keep(finished_texts(writer, rows, opens), options):
            yield writer.record(given[row.prompt], row, text)


def finished_texts(
    writer: Writer, rows: Iterable[Row], opens: Opens | None = None
) -> Iterator[tuple[Row, Continuation]]:
    """Generate texts in batches; yield finished ones in order.

    There may be many millions of rows: only those of one batch are in memory.
    """
    rows, weighed = iter(rows), writer.options.resampled > 1
    while batch := list(islice(rows, writer.batch_size)):
        done: dict[Row, Continuation] = {}
        waiting = iter(batch)
        row = next(waiting)
        for step in writer.steps(batch, writer.weigh if weighed else None, opens):
            if step.continuation.finish_reason is None:
                continue
            step.continuation.weight = writer.weights.pop(step.row, 0.0)
            done[step.row] = step.continuation
            while row in done:
                yield row, done.pop(row)
                row = next(waiting, row)


def _best(
    texts: Iterable[tuple[Row, Continuation]], options: SampleOptions
) -> Iterator[tuple[Row, Continuation]]:
    """Yield the most probable text, per token, of every `best_of` consecutive ones."""
    texts = iter(texts)
    for first in texts:
        # An iterator: of all these texts, only the best so far is kept.
        group = chain([first], islice(texts, options.best_of - 1))
        yield max(group, key=lambda candidate: candidate[1].logprob / max(1, candidate[1].tokens))


def _resampled(
    texts: Iterable[tuple[Row, Continuation]], options: SampleOptions
) -> Iterator[tuple[Row, Continuation]]:
    """Draw one of every `resampled` consecutive texts by importance weight, the mass kept."""
    texts = iter(texts)
    for first in texts:
        group = [first, *islice(texts, options.resampled - 1)]
        row = first[0]
        weights = np.array([[text.weight for _, text in group]])
        # Tokens draw with the steps from 0 on.
        place = [(row.prompt, row.sample // options.resampled)]
        (kept,) = CounterDraw(options.seed)(place, MOST_TOKENS + 1, weights - weights.max())
        yield group[kept]


def fixed_sample(
    loaded: LoadedModel,
    prompt: str | Vectors = "",
    tokens: int = 160,
    seconds: float = math.inf,
) -> str:
    """Sample a text from a fixed prompt and seed, to show training progress.

    Args:
        loaded: the model.
        prompt: what the text continues, or is written from.
        tokens: how many it has at most.
        seconds: after which no token is added.
    """
    end = time.monotonic() + seconds
    if loaded.labels is not None:
        loaded = loaded.with_labels(loaded.labels.names[:1])
    options = SampleOptions(seed=0, temperature=0.8, max_tokens=tokens)
    return "".join(takewhile(lambda piece: time.monotonic() < end, stream(loaded, prompt, options)))
