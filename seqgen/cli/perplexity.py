"""`seqgen perplexity`: score text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.output import console, input_bytes, piped_input, put, put_record, say
from seqgen.errors import SeqgenError

if TYPE_CHECKING:
    from seqgen.data.tokenfile import TokenFile
    from seqgen.tasks.loaded import LoadedModel
    from seqgen.tasks.perplexity import Perplexity


def perplexity(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text or token files, - for standard input; the model's held-out text if none.",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    documents: Annotated[
        str | None,
        typer.Option(help="stream or line; as the model was trained if none.", show_default=False),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            help="Find the weights of -m A+B on this text, and print the -m value to use.",
            show_default=False,
        ),
    ] = None,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score text: nats, perplexity, bits per character and byte, accuracy."""
    from seqgen.configs import DOCUMENTS, PRECISIONS, choice
    from seqgen.tasks.loaded import load
    from seqgen.tasks.perplexity import perplexity as score

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    loaded = load(model, device, choice("--precision", precision, PRECISIONS))
    if fit is not None:
        loaded = _fit(loaded, fit, documents, batch_size, json, quiet)
        if not files:
            return
    records = []
    for name, chunks in _texts(loaded, files, quiet):
        record = score(loaded, chunks, file=name, documents=documents, batch_size=batch_size)
        if json:
            put_record(record)
        records.append(record)
    if not json:
        _table(records, quiet)


def _fit(
    loaded: LoadedModel, file: str, documents: str | None, batch_size: int, json: bool, quiet: bool
) -> LoadedModel:
    """Find a mixture's weights; print them and return the mixture."""
    from seqgen.tasks.mix import fit

    chunks = (chunk for _, chunks in _texts(loaded, [file], quiet) for chunk in chunks)
    mixture, found = fit(loaded, chunks, documents=documents, batch_size=batch_size)
    if json:
        put_record(found)
    else:
        put(f"{found.model}\n")
    if not quiet:
        parts = zip(mixture.stored.parts, found.weights, found.components, strict=True)
        for part, weight, perplexity in parts:
            say(f"{part.name}: weight {weight:.4f}, perplexity {perplexity:.4f}")
        say(f"mixed: perplexity {found.perplexity:.4f} on {found.tokens:,} tokens of {file}")
    return mixture


def _texts(
    loaded: LoadedModel, files: list[str] | None, quiet: bool
) -> Iterator[tuple[str, Iterable[str] | TokenFile]]:
    from seqgen.data.text import Text, decode_blocks, text_files, unix_newlines
    from seqgen.data.tokenfile import is_token_file, open_token_file

    def opened(path: Path) -> Iterable[str] | TokenFile:
        return open_token_file(path) if is_token_file(path) else Text((path,), newlines).chunks()

    newlines = loaded.data.newlines
    if not files and piped_input() is not None:
        files = ["-"]
    if not files:
        held_out = loaded.stored.validation_text
        if held_out is None:
            raise SeqgenError(f"{loaded.stored.name} has no held-out text; give a FILE")
        if not quiet:
            say(f"scoring the held-out text of {loaded.stored.name}")
        yield "validation", opened(held_out)
    for name in files or ():
        if name == "-":
            chunks = decode_blocks(input_bytes(), "standard input")
            yield "-", unix_newlines(chunks) if newlines == "lf" else chunks
        else:
            for path in text_files([Path(name)]):
                yield str(path), opened(path)


COLUMNS = {
    "file": lambda r: r.file,
    "tokens": lambda r: f"{r.tokens:,}",
    "nats/token": lambda r: f"{r.nll_nats / r.tokens:.4f}",
    "perplexity": lambda r: f"{r.perplexity:.4f}",
    "bits/char": lambda r: f"{r.bits_per_char:.4f}",
    "bits/byte": lambda r: f"{r.bits_per_byte:.4f}",
    "accuracy": lambda r: f"{r.accuracy:.2%}",
    "oov": lambda r: f"{r.oov:,}",
}


def _table(records: list[Perplexity], quiet: bool) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE if sys.stdout.isatty() else None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "file" else "right", no_wrap=True)
    for record in records:
        table.add_row(*(show(record) for show in COLUMNS.values()))
    console(sys.stdout).print(table)
    if not quiet:
        say(f"{records[0].model}: {records[0].protocol}")
