"""Decoding against plain baselines: how many tokens a second, counting those really made."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from seqgen.packages import install_command

from . import cases_with, cells
from .shapes import BATCH, BEAMS, GPT2_MEDIUM, GPT2_SMALL, SMALL, SMALL_WORDS, Run, Shape
from .writing_cases import (
    Case,
    cell,
    lstm,
    name_of_transformer,
    name_of_translator,
    transformer,
    translator,
)

# Our precision, and what is beside it; see `transformer`.
FLOAT32 = ("float32", "float32")
PAIRS = [
    ("bf16", "float32"),
    ("int8", "float32"),
    ("bf16", "bf16"),
    ("int8", "bf16"),
    ("float32", "CTranslate2"),
    ("int8", "CTranslate2"),
]
BESIDE_LLAMA_CPP = [("float32", "llama.cpp"), ("int8", "llama.cpp")]
Clock = Callable[[], float]
# Ours in int4 beside ours in int8.
IN_4_BITS = [("int4", "int8")]
# Texts written at a time, and beams.
WRITTEN = [(1, 1), (BATCH, 1)]
SEARCHED = [(BATCH, BEAMS)]


@dataclass(frozen=True)
class Timing:
    """The keys of `python -m tests.benchmarks decode --json`, in order.

    `ratio` is the median of the ratios of neighbouring runs, the least and the largest of which
    are `least_ratio` and `most_ratio`. `bandwidth_fraction` is the speed
    over that at which every step would do nothing but read the weights and caches it needs from
    memory; small models live in the processor's cache and may be above 1.
    """

    case: str
    baseline: str
    tokens_per_second: float | None
    baseline_tokens_per_second: float | None
    ratio: float | None
    least_ratio: float | None
    most_ratio: float | None
    bandwidth_fraction: float | None
    runs: int
    threads: int
    skipped: str | None = None


def measure(
    tokens: int,
    repeats: int,
    only: str | None = None,
    clock: Clock = time.perf_counter,
) -> Iterator[Timing]:
    """Yield a timing for each case.

    Args:
        tokens: tokens of each text, from 1 to 255.
        repeats: alternated runs of each, after one that is not counted.
        only: cases whose name contains this; those of the cells where it begins with "cell".
        clock: tells seconds; that of the processor does not count what other work takes.
    """
    cases: dict[str, Callable[[int], Case]] = {
        "lstm 2 x 256, batch 1": lstm,
        **_of_transformers(SMALL, [*WRITTEN, *SEARCHED], [FLOAT32]),
        **_of_translators([(3, 256), (6, 512)], ["", "float32", "int8"]),
        **{
            f"lstm 2 x 256, batch 1, {kind}": partial(lstm, precision=kind)
            for kind in ("bf16", "int8")
        },
        **_of_transformers(SMALL, WRITTEN, PAIRS),
        **_of_transformers(SMALL, SEARCHED, PAIRS[-2:]),
        **_of_transformers(SMALL_WORDS, [*WRITTEN, *SEARCHED], [FLOAT32, *PAIRS[-2:]]),
        **_of_transformers(GPT2_SMALL, [*WRITTEN, *SEARCHED], [FLOAT32, *PAIRS]),
        **_of_transformers(GPT2_SMALL, WRITTEN, IN_4_BITS),
        **_of_transformers(GPT2_MEDIUM, WRITTEN, IN_4_BITS),
        **_of_transformers(SMALL, WRITTEN[:1], BESIDE_LLAMA_CPP),
        **_of_transformers(GPT2_SMALL, WRITTEN[:1], [*BESIDE_LLAMA_CPP, ("int4", "llama.cpp")]),
        **_of_transformers(GPT2_MEDIUM, WRITTEN[:1], [("int4", "llama.cpp")]),
    }
    if cells.names_cells(only):
        names = cells.recurrent_architectures()
        cases = {cells.name_of(name): partial(cell, name) for name in names}
    chosen = cases_with(only, list(cases))
    bandwidth = memory_bandwidth()
    for name in chosen:
        try:
            case = cases[name](tokens)
        except ImportError as error:
            library = error.name or "transformers"
            reason = f"{error}; {install_command(library)} to measure against it"
            none = (None,) * 6
            yield Timing(name, library, *none, 0, torch.get_num_threads(), reason)
            continue
        yield _timed(case, repeats, bandwidth, clock)


def _of_transformers(
    shape: Shape, kinds: Iterable[tuple[int, int]], pairs: Sequence[tuple[str, str]]
) -> dict[str, Callable[[int], Case]]:
    """Return the cases of a transformer by name.

    Args:
        shape: of the model.
        kinds: how many texts at a time, and beams.
        pairs: our precision, and what is beside it.
    """
    made = {}
    for (batch, beams), (precision, beside) in itertools.product(kinds, pairs):
        shared = {"batch": batch, "shape": shape, "precision": precision, "beside": beside}
        name = name_of_transformer(**shared, beams=beams)
        made[name] = partial(transformer, **shared, beams=beams)
    return made


def _of_translators(
    shapes: Iterable[tuple[int, int]], peers: Sequence[str]
) -> dict[str, Callable[[int], Case]]:
    """Return the cases of translators by name.

    Args:
        shapes: layers and width.
        peers: what is beside them; see `translator`.
    """
    return {
        name_of_translator(layers, size, peer): partial(translator, layers, size, beside=peer)
        for (layers, size), peer in itertools.product(shapes, peers)
    }


def _timed(case: Case, repeats: int, bandwidth: float, clock: Clock) -> Timing:
    case.ours()
    case.theirs()
    # Neighbours in time share what else the machine does, so each pair gives a ratio.
    pairs = [(_speed(case.ours, clock), _speed(case.theirs, clock)) for _ in range(repeats)]
    ratios = [a / b for a, b in pairs]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Timing(
        case=case.name,
        baseline=case.baseline,
        tokens_per_second=ours,
        baseline_tokens_per_second=theirs,
        ratio=statistics.median(ratios),
        least_ratio=min(ratios),
        most_ratio=max(ratios),
        bandwidth_fraction=ours * case.bytes_per_token / bandwidth,
        runs=repeats,
        threads=torch.get_num_threads(),
    )


def _speed(run: Run, clock: Clock) -> float:
    start = clock()
    made = run()
    return made / (clock() - start)


def memory_bandwidth(size: int = 1 << 28) -> float:
    """Return the bytes a second at which memory is read, the best of some passes over `size`."""
    block = torch.ones(size // 4)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        block.sum()
        best = max(best, size / (time.perf_counter() - start))
    return best
