"""`seqgen import` and `seqgen export`: models in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqgen.cli import completion, options
from seqgen.cli.help import OUTPUT, SAVING, TEXT, flag, value
from seqgen.cli.output import put_record, say


def import_(
    file: Annotated[
        Path, typer.Argument(help="An ARPA file, or .arpa.gz.", metavar="FILE", show_default=False)
    ],
    name: Annotated[
        str | None, value("NAME", SAVING, "Name of the new model.", default="made from FILE")
    ] = None,
    like: Annotated[
        str | None,
        value(
            "NAME",
            TEXT,
            "Take the tokenizer of this model.",
            default="words between spaces",
            complete=completion.models,
        ),
    ] = None,
    overwrite: Annotated[
        bool, flag("--overwrite", SAVING, "Replace a model of that name.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read an n-gram model of KenLM, SRILM and others."""
    from seqgen.cli.models import describe
    from seqgen.tasks.exchange import import_model

    stored = import_model(file, name=name, like=like, overwrite=overwrite)
    if json:
        put_record(describe(stored))
    if not quiet:
        say(f"{stored.name}: imported from {file}")


def export(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Trained model: a name or a path; the latest if none is given.",
            metavar="[NAME]",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    file_format: Annotated[
        str,
        value(
            "arpa",
            OUTPUT,
            "Format to write.",
            "--format",
            complete=completion.one_of("arpa"),
        ),
    ] = "arpa",
    out: Annotated[
        str,
        value("FILE", OUTPUT, "File to write, compressed if it ends in .gz; - is standard output."),
    ] = "-",
    quiet: options.Quiet = False,
) -> None:
    """Write a model in a format that other tools read."""
    from seqgen.tasks.exchange import export_model
    from seqgen.tasks.loaded import load

    loaded = load(name, "cpu")
    export_model(loaded, file_format, out)
    if not quiet and out != "-":
        say(f"{loaded.stored.name}: written to {out}")
