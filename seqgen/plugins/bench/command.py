"""`seqgen bench`: estimate the memory and traffic of training on several ranks."""

from __future__ import annotations

import typer

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import CommandGroup, CommandWithHelp
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.tables import count, declared_columns, number, put_columns, short_count
from seqgen.plugins.bench.plan import Planned, PlanStep, Shape
from seqgen.plugins.bench.plan import plan as planned
from seqgen.settings import Options, Panel, require, setting

app = typer.Typer(
    cls=CommandGroup, help="Plan training on several processes.", no_args_is_help=True
)


class Processes(Options, panel=Panel.MEASURED):
    """Options of `seqgen bench plan`: the number of ranks, and whether they shard the model."""

    ranks: tuple[int, ...] = setting(
        "Numbers of processes, such as 1,8,64.",
        (1, 2, 8, 64),
        low=1,
        high=1 << 20,
        listed=True,
        metavar="N,N,...",
    )
    shard: bool = setting("Divide parameters, gradients and states among the processes (FSDP2).")


@app.command("plan", cls=CommandWithHelp)
@takes_options
def plan(model: Planned, ranks: Processes, step: PlanStep, out: Output) -> None:
    """Estimate the memory and traffic of training a transformer on several ranks.

    Nothing is trained. Memory is per rank; traffic is what one rank sends in a step, and it
    receives as much. docs/scale.md has the formulas and measurements.
    """
    shape = Shape.of(model)
    most = max(ranks.ranks)
    fewer = f"--batch-size {step.batch_size} has fewer rows than there are ranks, {count(most)}"
    require(most <= step.batch_size, fewer)
    plans = [planned(shape, step, number, ranks.shard) for number in ranks.ranks]
    if out.records(plans):
        return
    in_billions = {"GFLOP": lambda plan: number(plan.flops / 1e9)}
    put_columns(declared_columns(plans) | in_billions, plans)
    out.notice(
        f"{short_count(shape.parameters)} parameters: {shape.layers} layers of width "
        f"{count(shape.hidden_size)}, {shape.heads} heads; {step.optimizer} in {step.precision}, "
        f"{count(step.batch_size * step.seq_len)} tokens a step"
    )
