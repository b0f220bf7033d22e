"""Options that mean the same in every command."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seqgen import registry
from seqgen.cli import completion
from seqgen.cli.inputs import file_path
from seqgen.cli.process import MOST_THREADS, use_threads
from seqgen.cli.settings import option as setting
from seqgen.configs import MOST_SEED, count_of
from seqgen.configs.options import (
    MACHINE,
    OUTPUT,
    WHAT,
)

Parameters = Annotated[
    int | None,
    typer.Option(
        help="Choose the hidden size at which the model has about this many parameters, embedding "
        "and softmax layer included: 30000, 3e4, 100k, 1.5M.",
        parser=partial(count_of, "--parameters"),
        metavar="N",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        help="Learn labels on the model's features: classify reads text<TAB>label, a line each; "
        "tag reads columns, word<TAB>tag, with an empty line after each sentence. Then --model is "
        "bag, birnn (the default), encoder or a network that models text.",
        metavar="classify|tag",
        rich_help_panel=WHAT,
        show_default=False,
        autocompletion=completion.one_of(*(task.name for task in registry.ON_FEATURES)),
    ),
]
Features = Annotated[str | None, setting("features", "MODEL", WHAT, complete=completion.models)]
Device = Annotated[
    str,
    typer.Option(
        help="Where to compute; auto uses a GPU if there is one.",
        metavar="auto|cpu|cuda|mps",
        rich_help_panel=MACHINE,
        autocompletion=completion.devices,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        help="Number format: auto, float32, float64 or bf16.",
        metavar="KIND",
        rich_help_panel=MACHINE,
        autocompletion=completion.precisions,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Number of CPU threads.",
        min=1,
        max=MOST_THREADS,
        metavar="N",
        rich_help_panel=MACHINE,
        show_default="one per core",
        # Before torch is loaded, which reads the number of threads only once.
        callback=use_threads,
        is_eager=True,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Random seed; the same seed gives the same result.",
        min=0,
        max=MOST_SEED,
        metavar="N",
        rich_help_panel=MACHINE,
        show_default="random, and reported",
    ),
]
FixedSeed = Annotated[
    int,
    typer.Option(
        help="Random seed; fixed by default, so that figures can be compared.",
        min=0,
        max=MOST_SEED,
        metavar="N",
        rich_help_panel=MACHINE,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Write JSON Lines, with unrounded numbers.", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Write only errors to standard error.", rich_help_panel=OUTPUT
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="Draw the curves into an .svg or .png file as well. Needs matplotlib.",
        parser=file_path,
        metavar="FILE",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]


def typed(context: typer.Context) -> list[str]:
    """Return the names of the parameters that the user gave, in the order of the command's."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
