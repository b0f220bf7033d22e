"""`seqgen import` and `seqgen export`: models in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqgen.cli import options
from seqgen.cli.inputs import file_name, file_path
from seqgen.cli.output import put_bytes, put_record, say
from seqgen.cli.outputs import check_out, check_replaced_model, is_arpa
from seqgen.errors import UsageError


def import_(
    file: Annotated[
        Path,
        typer.Argument(help="An ARPA file, or .arpa.gz.", parser=file_path, metavar="FILE"),
    ],
    name: Annotated[
        str | None, typer.Option(help="What to call the model.", show_default=False)
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="A model whose tokens these are; words between spaces if none.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model of that name.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read an n-gram model of KenLM, SRILM and others."""
    from seqgen.cli.models import describe
    from seqgen.tasks.exchange import import_model

    if overwrite:
        check_replaced_model(name, [file])
    stored = import_model(file, name=name, like=like, overwrite=overwrite)
    if json:
        put_record(describe(stored))
    if not quiet:
        say(f"{stored.name}: imported from {file}")


def export(
    name: Annotated[
        str | None, typer.Argument(help="A name or a path; the latest if none.", show_default=False)
    ] = None,
    file_format: Annotated[str, typer.Option("--format", help="arpa.")] = "arpa",
    out: Annotated[
        str,
        typer.Option(
            help="A file, or - for standard output; .gz packs it.",
            parser=file_name,
            metavar="FILE",
        ),
    ] = "-",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a model in a format that other tools read."""
    from seqgen.tasks.exchange import export_model, exported
    from seqgen.tasks.loaded import load

    if out == "-":
        if json:
            raise UsageError("--json needs --out FILE: standard output has the model")
        put_bytes(exported(load(name, "cpu"), file_format))
        return
    path = check_out(Path(out), [], overwrite, "an ARPA file", is_arpa)
    loaded = load(name, "cpu")
    export_model(loaded, file_format, path)
    if json:
        put_record({"name": loaded.stored.name, "format": file_format, "path": str(path)})
    if not quiet:
        say(f"{loaded.stored.name}: written to {out}")
