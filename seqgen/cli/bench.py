"""`seqgen bench`: what training on several ranks would hold and move."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from seqgen.cli import completion, options
from seqgen.cli.help import Command, Group, flag, value
from seqgen.cli.numbers import listed_numbers
from seqgen.cli.output import put_record, say
from seqgen.cli.tables import byte_size, count, number, put_table, short_count
from seqgen.configs import (
    MOST_LAYERS,
    MOST_TOKENS,
    MOST_WIDTH,
    choice,
    count_of,
    require,
)
from seqgen.configs.options import MACHINE, MEASURED, MODEL, OPTIMISATION

PRECISIONS = ("float32", "float64", "bf16")
MOST_RANKS = 1 << 20

app = typer.Typer(cls=Group, help="Plan training on several processes.", no_args_is_help=True)


@app.command("plan", cls=Command)
def plan(
    parameters: Annotated[
        int | None,
        value(
            "N",
            MODEL,
            "Number of parameters, such as 100M or 1e9; what is left open of the shape follows.",
            default=False,
            parser=partial(count_of, "--parameters"),
        ),
    ] = None,
    layers: Annotated[
        int | None, value("N", MODEL, "Number of blocks.", default=False, min=1, max=MOST_LAYERS)
    ] = None,
    hidden_size: Annotated[
        int | None, value("N", MODEL, "Width.", default=False, min=1, max=MOST_WIDTH)
    ] = None,
    heads: Annotated[
        int | None,
        value("N", MODEL, "Heads of attention.", default="64 wide or so", min=1, max=MOST_WIDTH),
    ] = None,
    vocab_size: Annotated[
        int, value("N", MODEL, "Tokens in the vocabulary.", min=1, max=MOST_TOKENS)
    ] = 32000,
    tie_weights: Annotated[
        bool, flag("--tie-weights", MODEL, "Embedding and softmax layer share their matrix.")
    ] = False,
    ranks: Annotated[
        str, value("N,N,...", MEASURED, "Numbers of processes, such as 1,8,64.")
    ] = "1,2,8,64",
    shard: Annotated[
        bool,
        flag("--shard", MEASURED, "Divide parameters, gradients and states by rank (FSDP2)."),
    ] = False,
    batch_size: Annotated[
        int,
        value("N", OPTIMISATION, "Rows of a step, of all ranks together.", min=1, max=MOST_TOKENS),
    ] = 512,
    seq_len: Annotated[
        int, value("N", OPTIMISATION, "Tokens of a row.", min=1, max=MOST_TOKENS)
    ] = 1024,
    accumulate: Annotated[
        int,
        value("N", OPTIMISATION, "Parts that a rank's rows are worked in.", min=1, max=MOST_TOKENS),
    ] = 1,
    optimizer: Annotated[
        str,
        value("KIND", OPTIMISATION, "Optimizer.", complete=completion.choices("optimizer")),
    ] = "adamw",
    precision: Annotated[
        str,
        value(
            "KIND",
            OPTIMISATION,
            "Number format: float32, float64 or bf16, which keeps parameters in float32.",
            complete=completion.one_of(*PRECISIONS),
        ),
    ] = "bf16",
    gflops: Annotated[
        float | None,
        value(
            "X",
            MACHINE,
            "Speed of a rank in 10^9 operations a second: also shows how long a step computes.",
            default=False,
            min=1e-3,
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        value(
            "X",
            MACHINE,
            "GB a second that a rank can send: also shows how long a step moves data.",
            default=False,
            min=1e-6,
        ),
    ] = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Calculate what training a transformer on several ranks holds and moves in a step.

    Nothing is trained. Memory is that of one rank; traffic is what one rank sends, and receives as
    much. docs/scale.md has the formulas and what was measured.
    """
    from seqgen.commands.bench_plan import STATES, Shape, Step
    from seqgen.commands.bench_plan import plan as planned

    choice("--optimizer", optimizer, STATES)
    choice("--precision", precision, PRECISIONS)
    shape = Shape.of(parameters, vocab_size, layers, hidden_size, heads, tie_weights)
    step = Step(
        batch_size=batch_size,
        seq_len=seq_len,
        precision=precision,
        optimizer=optimizer,
        accumulate=accumulate,
        gflops=gflops,
        bandwidth=bandwidth,
    )
    numbers = _ranks(ranks, batch_size)
    plans = [planned(shape, step, number, shard) for number in numbers]
    if json:
        for one in plans:
            put_record(one)
        return
    _put(plans)
    if not quiet:
        say(
            f"{short_count(shape.parameters)} parameters: {shape.layers} layers of width "
            f"{count(shape.hidden_size)}, {shape.heads} heads; {optimizer} in {precision}, "
            f"{count(batch_size * seq_len)} tokens a step"
        )


def _ranks(text: str, batch_size: int) -> list[int]:
    """Return the numbers of ranks.

    Raises:
        UsageError: there are none, or more ranks than rows.
    """
    numbers = listed_numbers("--ranks", text, MOST_RANKS, "1,8,64")
    require(
        max(numbers) <= batch_size,
        f"--batch-size {batch_size} has fewer rows than there are ranks, {count(max(numbers))}",
    )
    return numbers


# The columns of the table: what a record calls it, and the heading.
COLUMNS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "buckets": "buckets",
    "optimizer_states": "states",
    "gathered": "gathered",
    "activations": "activations",
    "logits": "logits",
    "held": "held in all",
    "moved": "sent",
}


def _put(plans: list) -> None:
    shown = {key: name for key, name in COLUMNS.items() if any(getattr(p, key) for p in plans)}
    names = ["ranks", *shown.values(), "GFLOP"]
    rows = [
        [count(p.ranks), *(byte_size(getattr(p, key)) for key in shown), number(p.flops / 1e9)]
        for p in plans
    ]
    for name, key in (("computing, s", "compute_seconds"), ("sending, s", "traffic_seconds")):
        if getattr(plans[0], key) is not None:
            names.append(name)
            rows = [[*row, number(getattr(p, key))] for row, p in zip(rows, plans, strict=True)]
    put_table(names, rows)
