"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from seqgen.cli.inputs import file_name
from seqgen.configs import MOST_ROWS, MOST_SEED, Bounds


def at_most(most: int) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """Return what refuses a number above `most`, which help need not spell out."""

    def check(param: typer.CallbackParam, value: int | None) -> int | None:
        Bounds(high=most).check(param.opts[0], value)
        return value

    return check


Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A trained model: a name or a path; A+B for a mixture; the latest if none.",
        show_default=False,
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        help="A trained model, as in every command; give it again for more.",
        show_default=False,
    ),
]
Documents = Annotated[
    str | None,
    typer.Option(help="stream or line; as the model was trained if none.", show_default=False),
]
Stride = Annotated[
    int | None,
    typer.Option(
        help="Tokens that a transformer's full window gives up at a time; half of it if none.",
        min=1,
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Precision = Annotated[str, typer.Option(help="auto, float32, float64 or bf16.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="For the same again; drawn and reported if none.",
        callback=at_most(MOST_SEED),
        min=0,
        show_default=False,
    ),
]
FixedSeed = Annotated[
    int,
    typer.Option(
        help="Of what is drawn; fixed, so that figures compare.",
        callback=at_most(MOST_SEED),
        min=0,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON Lines on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on standard error but errors.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier run has written there.")
]
BatchSize = Annotated[
    int,
    typer.Option(
        help="Texts side by side: speed and memory, never a result.",
        callback=at_most(MOST_ROWS),
        min=1,
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        help="No N tokens in a row twice, prompt included.", min=1, metavar="N", show_default=False
    ),
]
PromptFile = Annotated[
    str | None,
    typer.Option(
        help="One prompt: a whole file, or - for standard input.",
        parser=file_name,
        metavar="FILE",
        show_default=False,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(help=r"End a text before this; reads \n, \t, \\.", show_default=False),
]
MinTokens = Annotated[
    int, typer.Option(help="No end of a text, and no stop, before so many tokens.")
]
Echo = Annotated[
    bool | None,
    typer.Option(
        "--echo/--no-echo",
        help="The prompt first; the default on a terminal.",
        show_default=False,
    ),
]
