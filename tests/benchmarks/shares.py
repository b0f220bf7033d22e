"""How near training comes to the machine's own matrix product, and where the rest of the time goes.

    python -m tests.benchmarks.shares [--seconds 2] [--repeats 3] [--threads 1] [--only lstm]

A table in Markdown: a row for each model of default size in float32 and in bf16. The machine should
be quiet, because the shares are of wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from seqgen import registry
from seqgen.cli.shell.output import put
from seqgen.engines.precision import parameter_type
from seqgen.settings.training import TrainingConfig
from seqgen.store.torch_models import choose_products
from seqgen.text.batches import Batch, training_batches
from seqgen.training.loop import Trainer
from seqgen.training.run import Hooks, Listener, Run
from seqgen.training.speed import speed

from . import cases_with
from .train import CASES, Case, flops_per_token, matmul_speed, model_of

NAMES = "lstm 2 x 256", "gru 2 x 256", "transformer 4 x 128, default form", "seq2seq gru 256"
NAMES += ("seq2seq-transformer 3 x 256, default form",)
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
PARTS = "products", "cells", "head", "optimizer", "data", "rest"
DATA, UPDATE, STEPS = "data", "update", 10
FUSED = "mkldnn_rnn_layer"
PRODUCTS = "mm", "bmm", "addmm", "baddbmm", "linear", "matmul"
SOFTMAX = "log_softmax", "nll_loss", "cross_entropy", "logsumexp"


class Marked(Listener):
    """Has a profile show updates, clipping included, as `UPDATE`."""

    def updating(self, run: Run, batch: Batch) -> AbstractContextManager[None]:
        """Return the mark of an update."""
        return record_function(UPDATE)


@cache
def product_seconds(length: int, rows: int, size: int, units: int, wide: int, kind: str) -> float:
    """Return the seconds that one pass of a recurrent layer takes for its products alone.

    Of `units`, with an input of `size`; `wide` is four a unit in an LSTM.
    """
    shapes = (length * rows, size), (rows, units), (size, wide), (units, wide)
    x, h, of_x, of_h = (torch.ones(shape, dtype=PRECISIONS[kind]) for shape in shapes)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        x @ of_x
        for _ in range(length):
            h @ of_h
        best = min(best, time.perf_counter() - began)
    return best


def part_of(event: Any, vocab: int) -> str:
    """Return which of `PARTS` the own time of a profiled event belongs to."""
    above, names, sizes = event, [], []
    while above is not None:
        names.append(above.name.removeprefix("aten::").rstrip("_"))
        sizes += [shape for shape in above.input_shapes if isinstance(shape, list)]
        above = above.cpu_parent
    if UPDATE in names or DATA in names:
        return "optimizer" if UPDATE in names else "data"
    if any(one.lstrip("_").startswith(SOFTMAX) for one in names):
        return "head"
    if any(one in PRODUCTS or "attention" in one for one in names):
        return "head" if any(vocab in shape for shape in sizes) else "products"
    return "cells" if event.name.startswith("aten::") else "rest"


def shares(events: list[Any], seconds: float, vocab: int, kind: str) -> dict[str, float]:
    """Return the share of each of `PARTS` in the seconds of a profiled training.

    A recurrent layer that is one operation counts as much for its products as these take alone.
    """
    spent: Counter[str] = Counter()
    for event in events:
        own, part = event.self_cpu_time_total / 1e6, part_of(event, vocab)
        if FUSED in event.name and part == "cells" and event.input_shapes:
            (length, rows, size), (wide, _), (_, units) = event.input_shapes[:3]
            passes = 2 if "backward" in event.name else 1
            of_products = min(own, passes * product_seconds(length, rows, size, units, wide, kind))
            spent["products"] += of_products
            own -= of_products
        spent[part] += own
    spent["rest"] += max(0.0, seconds - sum(spent.values()))
    return {part: spent[part] / sum(spent.values()) for part in PARTS}


def row(case: Case, kind: str, seconds: float, repeats: int) -> list[str]:
    """Return the figures of a model: speed, products a second, share of the peak, and `shares`."""
    recipe = registry.architecture(case.architecture).load_config().recipe
    training = TrainingConfig(**{**recipe, "batch_size": case.batch_size, "seq_len": case.seq_len})
    training = replace(training, precision=kind, minutes=seconds / 60)
    torch.manual_seed(0)
    model = model_of(case).to(dtype=parameter_type(kind))
    how = case.corpus(), "stream", model.carries_state, case.batch_size, case.seq_len
    batches = training_batches(*how, seed=0)
    _, *speeds = (speed(model, batches, training) for _ in range(1 + repeats))
    reached = statistics.median(speeds)
    hooks = Hooks(keep_best=bool, checkpoint=bool, report=lambda event: None, listener=Marked())
    batches.batch = record_function(DATA)(batches.batch)
    trainer = Trainer(model, batches, replace(training, minutes=None, steps=STEPS), hooks)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    gflops = reached * flops_per_token(model, case.seq_len) / 1e9
    peak = matmul_speed(PRECISIONS[kind], torch.device("cpu")) / 1e9
    parts = shares(profiled.events(), seconds, case.vocab_size, kind)
    figures = f"{reached:,.0f}", f"{gflops:.0f}", f"{peak:.0f}", f"{gflops / peak:.0%}"
    return [case.name, kind, *figures, *(f"{share:.0%}" for share in parts.values())]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    choose_products(torch.device("cpu"))
    cases = {case.name: case for case in CASES}
    titles = ["model", "precision", "tokens/s", "GFLOP/s", "peak", "of peak", *PARTS]
    put(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n")
    for name in cases_with(given.only, NAMES):
        for kind in PRECISIONS:
            put(f"| {' | '.join(row(cases[name], kind, given.seconds, given.repeats))} |\n")


if __name__ == "__main__":
    main()
