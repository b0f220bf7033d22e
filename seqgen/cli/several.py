"""`seqgen train` as one of several processes that torchrun has started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from seqgen import ranks
from seqgen.configs.options import MACHINE
from seqgen.errors import Interrupted, UsageError

Shard = Annotated[
    bool,
    typer.Option(
        "--shard",
        help="Under torchrun: divide parameters, gradients and the states of optimizers among the "
        "processes (FSDP).",
        rich_help_panel=MACHINE,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Under torchrun: seconds that a process waits for another one, which may be "
        "validating alone, before it gives up.",
        min=1,
        metavar="X",
        rich_help_panel=MACHINE,
        show_default="1800",
    ),
]


def check_alone(flag: str) -> None:
    """Refuse what one process alone can do.

    Raises:
        UsageError: torchrun has started several.
    """
    if ranks.launched():
        raise UsageError(f"{flag} needs one process: run it without torchrun")


def check_files(data: Sequence[str]) -> None:
    """Refuse standard input where there are several processes to read it.

    Raises:
        UsageError: it was given, or nothing was.
    """
    if ranks.launched() and (not data or "-" in data):
        raise UsageError("several processes cannot share standard input: give DATA as files")


def leave_to_first(stopped: str | None) -> None:
    """End here on the ranks that have nothing to say."""
    if not ranks.leads():
        raise typer.Exit(Interrupted.exit_code if stopped == "interrupted" else 0)
