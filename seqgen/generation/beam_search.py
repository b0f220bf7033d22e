"""Beam search with a trained model: from prompts to records of texts."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from seqgen import hooks
from seqgen.generation import beam
from seqgen.generation.backward import decoder_of
from seqgen.generation.beam_groups import (
    Ending,
    Ends,
    Fate,
    Penalty,
    Restrict,
    RestrictedGroup,
    SearchRules,
)
from seqgen.generation.from_source import (
    AttentionToSource,
    SourceReader,
    check_sources,
    coverage_penalty,
)
from seqgen.generation.generator import Generator, cached_property_without_lock
from seqgen.generation.hypotheses import Hypothesis
from seqgen.generation.processors import NoRepeatNgram, Processor
from seqgen.generation.prompts import Prompt, SourceFields, Written, batches, open_sources
from seqgen.generation.text_batch import Row
from seqgen.settings import require

if TYPE_CHECKING:
    from seqgen.generation.constraint import Requirement
    from seqgen.generation.continuation import Continuation
    from seqgen.settings.generation import BeamOptions
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Vectors
    from seqgen.text.tokenizers import Decoder


@dataclass(frozen=True, repr=False)
class Beam(Written):
    """Record of one text from `seqgen beam-search --json`; see `Written.record`.

    `seed` is None where none is used.
    """

    index: int
    rank: int
    prompt: str
    text: str
    tokens: int
    logprob: float
    score: float
    finish_reason: str
    model: str
    seed: int | None


@dataclass(frozen=True)
class Node:
    """Candidate of a search: a record of `seqgen beam-search --explain --json`.

    Attributes:
        index: the prompt's number.
        group: of diverse beams; 0 otherwise.
        step: how many tokens stand before it in the text.
        node: its own number, from 1 for each prompt; what it extends has number `parent`.
        parent: 0 is the prompt.
        token: its id.
        text: what a person sees of the token.
        logprob: of the token, in nats.
        total: of all tokens so far, in nats.
        fate: "live", "finished" or "pruned".
        rank: of the hypothesis it ends, among those found.
    """

    index: int
    group: int
    step: int
    node: int
    parent: int
    token: int
    text: str
    logprob: float
    total: float
    fate: str
    rank: int | None


@dataclass
class Tree:
    """Search tree of one prompt: its candidates in order, and the texts found."""

    index: int
    prompt: str
    nodes: list[Node] = field(default_factory=list)
    hypotheses: list[Beam] = field(default_factory=list)


@dataclass(frozen=True)
class Searcher(Generator):
    """Beam-search decoder: a loaded model with its search options.

    Raises:
        UsageError: it cannot do what is asked of it.
    """

    options: BeamOptions
    dead_ends = False

    def __post_init__(self) -> None:
        covers = self.options.coverage_penalty > 0
        if covers:
            self.loaded.conditioning.require_sources("--coverage-penalty")
        check_sources(self.options.of_source, self.loaded, attention=covers)

    @cached_property_without_lock
    def requirement(self) -> Requirement | None:
        """Requirement that texts must satisfy, or None."""
        made = (filters.requirement(self) for filters in self.options.added_filters)
        return next((one for one in made if one is not None), None)

    def restrict(self, prompts: Sequence[Prompt]) -> Restrict | None:
        """Make a function that creates the restricted beam of a prompt; None if not needed."""
        required, given = self.requirement, {prompt.index: prompt for prompt in prompts}
        if required is None:
            return None

        def restrict(source: Row, root: Hypothesis) -> RestrictedGroup | None:
            return required.group(given[source.prompt], root)

        return restrict

    @cached_property
    def processors(self) -> list[Processor]:
        """Filters of the search in order, beginning with tokens that are never generated."""
        processors, ngram = [self.possible, *self.formed], self.options.no_repeat_ngram
        if ngram is not None:
            processors.append(NoRepeatNgram(ngram))
        return [*processors, *self.added_filters]

    @property
    def ends(self) -> Ends | None:
        """Function that checks whether ids contain a stop string, or None without stop strings."""
        options, loaded = self.options, self.loaded
        if not options.stop:
            return None
        # A text that is written from right to left is decoded mirrored.
        stops = [stop[::-1] if loaded.backward else stop for stop in options.stop]

        def ends(source: Row, tokens: Sequence[int]) -> bool:
            decoder = decoder_of(loaded, source.tokens, source.overlap)
            pieces = [decoder.push(token) for token in tokens]
            if len(tokens) == source.max_tokens:
                pieces.append(decoder.flush())
            text = "".join(pieces[options.min_tokens :])
            return any(stop in text for stop in stops)

        return ends

    def penalty(self, prompts: Sequence[Prompt]) -> Penalty | None:
        """Make the function that computes the coverage penalty of a finished text, or None."""
        options, given = self.options, {prompt.index: prompt for prompt in prompts}
        if not options.coverage_penalty:
            return None

        @functools.cache
        def attention(number: int) -> AttentionToSource:
            return AttentionToSource(self.loaded, given[number].source_tokens)

        def penalty(source: Row, tokens: Sequence[int]) -> float:
            (weights,) = attention(source.prompt)([tokens])
            mean = options.of_source.heads.mean(weights)
            return coverage_penalty(mean[:, given[source.prompt].content], options.coverage_penalty)

        return penalty

    def search(
        self, prompts: Sequence[Prompt], watch: beam.Watch | None = None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Search texts for several prompts in a batch; see `seqgen.generation.beam.search`."""
        opens, handles = open_sources(self.loaded, prompts)
        given = zip(prompts, handles, strict=True)
        sources = [self.row(prompt, handle) for prompt, handle in given]
        rules = SearchRules(
            self.options,
            self.filters_for(prompt.overlap for prompt in prompts),
            reasons=self.reasons,
            ends=self.ends,
            penalty=self.penalty(prompts),
            outcomes=self.outcomes,
            restrict=self.restrict(prompts),
        )
        if not self.options.exhaustive:
            return beam.search(self.loaded.model, sources, rules, watch, opens)
        exhaustive = hooks.load_method("search", "exhaustive-search", "--exhaustive")
        return (
            (place, exhaustive(self.loaded.model, Ending(source, rules), opens))
            for place, source in enumerate(sources)
        )

    def beams(self, prompt: Prompt, hypotheses: list[Hypothesis]) -> list[Beam]:
        """Convert hypotheses of a prompt to records."""
        texts = zip(hypotheses, self._texts(prompt, hypotheses), strict=True)
        required = self.requirement
        return [
            Beam(
                index=prompt.index,
                rank=rank,
                prompt=prompt.text,
                text=text,
                tokens=len(hypothesis.tokens),
                logprob=hypothesis.logprob,
                score=hypothesis.score,
                finish_reason=hypothesis.finish_reason,
                model=self.loaded.stored.name,
                seed=self.options.seed if self.options.stochastic else None,
                of_source=of_source,
                missing=None if required is None else required.missing(prompt, text),
                label=self.loaded.label,
                healed=prompt.overlap and prompt.overlap.text,
            )
            for rank, (hypothesis, (text, of_source)) in enumerate(texts)
        ]

    def _texts(
        self, prompt: Prompt, hypotheses: Sequence[Hypothesis]
    ) -> Iterator[tuple[str, SourceFields | None]]:
        """Decode each hypothesis; yield its text and the fields about its source."""

        def begin(decoder: Decoder) -> Continuation:
            return self.open(decoder, self.limit(prompt))

        texts = [hypothesis.tokens for hypothesis in hypotheses]
        if prompt.source is not None:
            reader = SourceReader(self.loaded, self.options.of_source)
            yield from reader.finish(prompt, texts, begin)
            return
        for tokens in texts:
            text = begin(decoder_of(self.loaded, prompt.tokens, prompt.overlap))
            for token in tokens:
                text.push(token)
            yield text.text, None


def beam_search(
    loaded: LoadedModel, prompts: Iterable[str | Vectors], options: BeamOptions
) -> Iterator[Beam]:
    """Search for the `options.nbest` best texts after each prompt; yield them in order.

    Prompts may come slowly: a batch takes those that are there and never waits to fill.

    Raises:
        SeqgenError: a prompt has something the model does not know; the texts of the prompts
            before it have been yielded.
        UsageError: an exhaustive search would have too much to try.
    """
    searcher = Searcher(loaded, options)
    for batch in searcher.prepare_prompts(batches(loaded, prompts, options.batch_size)):
        finished: dict[int, list[Beam]] = {}
        place = 0
        for at, hypotheses in searcher.search(batch):
            finished[at] = searcher.beams(batch[at], hypotheses)
            while place in finished:
                yield from finished.pop(place)
                place += 1


def explain(
    loaded: LoadedModel, prompts: Iterable[str | Vectors], options: BeamOptions
) -> Iterator[Tree]:
    """Search as `beam_search` does, one prompt at a time, and yield the tree of each search.

    Raises:
        UsageError: the search is exhaustive, and has no tree to prune.
        SeqgenError: a prompt has something the model does not know.
    """
    require(
        not options.exhaustive,
        "--explain cannot be combined with --exhaustive, which prunes nothing",
    )
    searcher = Searcher(loaded, options)
    for (prompt,) in searcher.prepare_prompts(batches(loaded, prompts, 1)):
        log: list[tuple[int, Sequence[Fate]]] = []
        searches = searcher.search([prompt], lambda _, group, fates: log.append((group, fates)))  # noqa: B023
        ((_, hypotheses),) = searches
        yield _tree(searcher, prompt, log, hypotheses)


def _tree(
    searcher: Searcher,
    prompt: Prompt,
    log: Sequence[tuple[int, Sequence[Fate]]],
    hypotheses: list[Hypothesis],
) -> Tree:
    options = searcher.options
    ranks = {hypothesis.tokens: rank for rank, hypothesis in enumerate(hypotheses)}
    limit = searcher.limit(prompt)
    given = prompt.text if prompt.source is None else prompt.source
    tree = Tree(prompt.index, given, hypotheses=searcher.beams(prompt, hypotheses))
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    for group, fates in log:
        for place, (parent, token, logprob, fate) in enumerate(fates):
            if fate == "pruned" and place >= 2 * options.beams:
                continue
            tokens = (*parent.tokens, token)
            finished = fate == "live" and len(tokens) == limit
            fate = "finished" if finished else fate
            numbers[group, tokens] = len(tree.nodes) + 1
            tree.nodes.append(
                Node(
                    index=prompt.index,
                    group=group,
                    step=len(parent.tokens),
                    node=len(tree.nodes) + 1,
                    parent=numbers[group, parent.tokens] if parent.tokens else 0,
                    token=token,
                    text=searcher.loaded.tokenizer.pieces([token])[0],
                    logprob=logprob,
                    total=parent.logprob + logprob,
                    fate=fate,
                    rank=ranks.get(tokens) if fate == "finished" else None,
                )
            )
    return tree
