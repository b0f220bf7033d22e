"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seqgen import registry
from seqgen.cli import completion
from seqgen.cli.inputs import file_name, file_path
from seqgen.cli.process import MOST_THREADS, use_threads
from seqgen.cli.settings import option as setting
from seqgen.configs import MOST_ROWS, MOST_SEED, count_of
from seqgen.configs.panels import (
    ATTENTION,
    FILTERS,
    LENGTH,
    MACHINE,
    MODEL,
    OUTPUT,
    SAVING,
    TEXT,
    WHAT,
)
from seqgen.errors import UsageError

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Trained model: a name or a path. A+B or A:0.7+B:0.3 mixes several.",
        metavar="NAME",
        rich_help_panel=MODEL,
        show_default="the latest",
        autocompletion=completion.models,
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        help="Trained model: a name or a path. A+B mixes several. Repeat the option to compare "
        "models.",
        metavar="NAME",
        rich_help_panel=MODEL,
        show_default="the latest",
        autocompletion=completion.models,
    ),
]
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
Documents = Annotated[
    str | None,
    typer.Option(
        help="Read the text as one continuous stream, or each line as a separate document.",
        metavar="stream|line",
        rich_help_panel=TEXT,
        show_default="as the model was trained",
        autocompletion=completion.one_of("stream", "line"),
    ),
]
Stride = Annotated[
    int | None,
    typer.Option(
        help="How many tokens a transformer's full context window moves on at a time.",
        min=1,
        metavar="N",
        rich_help_panel=MODEL,
        show_default="half the window",
    ),
]
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
ReadingPrecision = Annotated[
    str,
    typer.Option(
        help="Number format: auto (float32), float32, float64, or for matrices bf16 or int8.",
        metavar="KIND",
        rich_help_panel=MACHINE,
        autocompletion=completion.reading_precisions,
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
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Also show signatures, which record exactly how each figure was made.",
        rich_help_panel=OUTPUT,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace the output of an earlier run.", rich_help_panel=SAVING
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        help="Texts to process at once; affects speed and memory, not the result.",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        rich_help_panel=MACHINE,
    ),
]
Force = Annotated[
    str | None,
    typer.Option(
        help=r"Begin every text with this string; \n, \t and \\ are read as escapes.",
        metavar="TEXT",
        rich_help_panel=FILTERS,
        show_default=False,
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        help="Never repeat a sequence of N tokens, prompt included.",
        min=1,
        metavar="N",
        rich_help_panel=FILTERS,
        show_default=False,
    ),
]
PromptFile = Annotated[
    str | None,
    typer.Option(
        help="Use a whole file as one prompt; - is standard input.",
        parser=file_name,
        metavar="FILE",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]
SourceVectors = Annotated[
    str | None,
    typer.Option(
        help="The .npy or .safetensors file of the vectors that a model of vectors writes from.",
        parser=file_name,
        metavar="FILE",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]
Label = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        help="Of a model trained with --labels: the label of the text; give it again for a text "
        "with several.",
        metavar="NAME",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        help=r"End a text before this string; \n, \t and \\ are read as escapes. Can be repeated.",
        metavar="TEXT",
        rich_help_panel=LENGTH,
        show_default=False,
    ),
]
MinTokens = Annotated[
    int,
    typer.Option(
        help="Least number of tokens to write before a text may end.",
        metavar="N",
        rich_help_panel=LENGTH,
    ),
]
Echo = Annotated[
    bool | None,
    typer.Option(
        "--echo/--no-echo",
        help="Print the prompt before the text.",
        rich_help_panel=OUTPUT,
        show_default="on a terminal",
    ),
]
SourceFile = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="Read sources from this file, one a line, for a model that writes from sources; - is "
        "standard input.",
        parser=file_name,
        metavar="FILE",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]
Attention = Annotated[
    bool,
    typer.Option(
        "--attention",
        help="Show what each token read of its source: all layers and heads with --json, else a "
        "heat map on standard error.",
        rich_help_panel=ATTENTION,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Draw the heat map into an .svg or .png file as well; further texts get FILE-1, "
        "FILE-2 and so on. Needs matplotlib.",
        parser=file_path,
        metavar="FILE",
        rich_help_panel=ATTENTION,
        show_default=False,
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
Align = Annotated[
    bool,
    typer.Option(
        "--align",
        help="After each text and a tab, write pairs i-j: target token j reads source token i "
        "most. Both count from 0.",
        rich_help_panel=ATTENTION,
    ),
]
AlignWords = Annotated[
    bool,
    typer.Option(
        "--align-words",
        help="The same between words, which white space separates.",
        rich_help_panel=ATTENTION,
    ),
]
Layer = Annotated[
    int | None,
    typer.Option(
        help="Read the attention of this layer, counted from 0.",
        min=0,
        metavar="N",
        rich_help_panel=ATTENTION,
        show_default="the mean of all",
    ),
]
Head = Annotated[
    int | None,
    typer.Option(
        help="Read the attention of this head, counted from 0.",
        min=0,
        metavar="N",
        rich_help_panel=ATTENTION,
        show_default="the mean of all",
    ),
]
MaxRatio = Annotated[
    float | None,
    typer.Option(
        help="Write at most this many tokens for each token of the source; both counts include "
        "the end.",
        metavar="R",
        rich_help_panel=LENGTH,
        show_default=False,
    ),
]
CopyUnknown = Annotated[
    bool,
    typer.Option(
        "--copy-unknown",
        help="Allow <unk>, and put in its place the source word that it reads most.",
        rich_help_panel=FILTERS,
    ),
]


def typed(context: typer.Context) -> list[str]:
    """Return the names of the parameters that the user gave, in the order of the command's."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]


def refuse_without(owner: str, given: Mapping[str, object]) -> None:
    """Refuse options that say more about one that was not given.

    Args:
        owner: what they belong to, and what to do.
        given: their values by name; None and False for those that were not given.

    Raises:
        UsageError: names one that was.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            raise UsageError(f"{name} belongs to {owner}")
