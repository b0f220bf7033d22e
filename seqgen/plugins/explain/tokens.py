"""`seqgen sample --explain`: how each token was chosen, and what each filter removed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqgen.cli.shell.output import Output, console, standard_output
from seqgen.cli.shell.tables import MISSING, count, figure, table
from seqgen.generation.processors import IMPOSSIBLE
from seqgen.generation.sample import SampleOptions, Writer
from seqgen.generation.suggest import most_probable, piece
from seqgen.generation.text_batch import Row
from seqgen.wording import ShortRepr

if TYPE_CHECKING:
    from rich.table import Table

    from seqgen.cli.shell.writing import TextWriter
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Vectors


@dataclass(frozen=True)
class Candidate:
    """Token that was possible at one step, with its probability before and after filters.

    Attributes:
        token: its id.
        text: what a person sees of it.
        probability: the model's own.
        after: what the filters left of it; 0 if one removed it.
        removed_by: that filter's name.
    """

    token: int
    text: str
    probability: float
    after: float
    removed_by: str | None


@dataclass(frozen=True)
class FilteredTokens:
    """Tokens that one filter removed: their number, mass and most probable members."""

    filter: str
    count: int
    mass: float
    tokens: list[str]


@dataclass(frozen=True, repr=False)
class Explanation(ShortRepr):
    """Record of `seqgen sample --explain --json`: one token of one text."""

    index: int
    sample: int
    step: int
    token: int
    text: str
    probability: float
    logprob: float
    candidates: list[Candidate]
    removed: list[FilteredTokens]
    seed: int
    model: str


def put_tokens(writing: TextWriter, sampling: SampleOptions) -> None:
    """Print how each token of the texts was chosen."""
    loaded = writing.loaded
    tokens = explain(loaded, writing.texts, sampling)
    put_explanations(tokens, loaded.conditioning.prompt, writing.out)


def put_explanations(explanations: Iterable[Explanation], what: str, out: Output) -> None:
    """Print how each token was chosen: JSON records, or one table per token.

    Args:
        explanations: a token each.
        what: they go on from, as "prompt".
        out: takes them.
    """
    for explanation in explanations:
        if out.record(explanation):
            continue
        screen = console(standard_output())
        which = f"{what} {explanation.index}, sample {explanation.sample}"
        screen.print(f"{which}, token {explanation.step}: {explanation.text!r}")
        screen.print(_candidates(explanation))
        for removed in explanation.removed:
            mass, tokens = figure(removed.mass), " ".join(map(repr, removed.tokens))
            screen.print(f"{removed.filter} removed {count(removed.count)} (mass {mass}): {tokens}")
        screen.print()


def _candidates(explanation: Explanation) -> Table:
    drawn = table(("", "token", "removed by", "model", "after filters"), left=3)
    for candidate in explanation.candidates:
        chosen = "*" if candidate.token == explanation.token else ""
        after = MISSING if candidate.removed_by else figure(candidate.after)
        text, removed_by = repr(candidate.text), candidate.removed_by or ""
        drawn.add_row(chosen, text, removed_by, figure(candidate.probability), after)
    return drawn


def explain(
    loaded: LoadedModel,
    prompts: Iterable[str | Vectors],
    options: SampleOptions,
    candidates: int = 10,
) -> Iterator[Explanation]:
    """Sample one text at a time, and yield an explanation of each token.

    Args:
        loaded: the model.
        prompts: what to go on from.
        options: how to write; of `best_of` texts every one is shown.
        candidates: how many of the likeliest tokens to show, before and after the filters.

    Raises:
        SeqgenError: a prompt has something the model does not know.
    """
    writer = Writer(loaded, options)
    for _, prompt_rows, opens in writer.batches(prompts, 1):
        for row in prompt_rows:
            seen: list[Explanation] = []

            def watch(rows: Sequence[Row], step: int, stages: Sequence, chosen: Sequence) -> None:
                one = [stage[0] for stage in stages]
                seen.append(_explained(writer, rows[0], step, one, chosen[0], candidates))  # noqa: B023

            for _ in writer.steps([row], watch, opens):
                yield from seen
                seen.clear()


def _explained(
    writer: Writer, row: Row, step: int, stages: Sequence[np.ndarray], token: int, count: int
) -> Explanation:
    """Explain one step from its log-probabilities (V,) before and after each filter."""
    model_log_probs, final = stages[0], stages[-1]
    removed_by: dict[int, str] = {}
    removed = []
    processors = writer.filters_for([row.overlap])
    for processor, before, after in zip(processors, stages, stages[1:], strict=False):
        gone = np.flatnonzero((before > IMPOSSIBLE) & (after == IMPOSSIBLE)).tolist()
        name = type(processor).name
        removed_by.update(dict.fromkeys(gone, name))
        if gone:
            first = sorted(gone, key=lambda v: (-before[v].item(), v))[:count]
            texts = [piece(writer.loaded, v) for v in first]
            mass = float(np.exp(before[gone]).sum())
            removed.append(FilteredTokens(name, len(gone), mass, texts))
    likely = [*most_probable(model_log_probs, count), *most_probable(final, count)]
    shown = dict.fromkeys([*likely, token])
    candidates = [
        Candidate(
            token=v,
            text=piece(writer.loaded, v),
            probability=math.exp(model_log_probs[v]),
            after=math.exp(final[v]),
            # What is forced comes back, whatever took it away before.
            removed_by=removed_by.get(v) if final[v] == IMPOSSIBLE else None,
        )
        for v in sorted(shown, key=lambda v: (-model_log_probs[v].item(), v))
    ]
    return Explanation(
        index=row.prompt,
        sample=row.sample,
        step=step,
        token=token,
        text=piece(writer.loaded, token),
        probability=math.exp(model_log_probs[token]),
        logprob=model_log_probs[token].item(),
        candidates=candidates,
        removed=removed,
        seed=writer.options.seed,
        model=writer.loaded.stored.name,
    )
