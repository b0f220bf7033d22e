"""`seqgen inspect`: what a model does with a text, token by token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Input, Inputs, file_name, file_path, piped_input
from seqgen.cli.output import announce, put_record, say
from seqgen.cli.outputs import check_html
from seqgen.configs.panels import MEASURED, OUTPUT, TEXT
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.cli.inspected import View
    from seqgen.commands.inspect.passage import Passages
    from seqgen.commands.loaded import LoadedModel


def inspect(
    file: Annotated[
        str | None,
        typer.Argument(
            help="A text file, or - for standard input. Without one, the model's held-out text.",
            parser=file_name,
            metavar="[TEXT]",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    text: Annotated[
        str | None, value("STRING", TEXT, "Look at this text itself, not at a file.", default=False)
    ] = None,
    max_tokens: Annotated[
        int, value("N", TEXT, "Look at the first N tokens of the text.", min=1)
    ] = 1000,
    top: Annotated[
        int | None,
        value(
            "K",
            OUTPUT,
            "How many of the likeliest tokens, or of the units, to show.",
            default="5 tokens, 20 units",
            min=1,
        ),
    ] = None,
    steps: Annotated[
        bool,
        flag(
            "--steps",
            MEASURED,
            "Of a recurrent network: show every step, with its input, gates, state, logits, "
            "softmax and loss.",
        ),
    ] = False,
    units: Annotated[
        bool,
        flag(
            "--units",
            MEASURED,
            "Of a recurrent network: list its units by how long they remember, with what in the "
            "text they follow.",
        ),
    ] = False,
    unit: Annotated[
        int | None,
        value(
            "U",
            MEASURED,
            "Of a recurrent network: colour the text by the value of this unit, counted from 0.",
            default=False,
            min=0,
        ),
    ] = None,
    gate: Annotated[
        str | None,
        value(
            "NAME",
            MEASURED,
            "With --unit: a gate, as i, f, g or o of an lstm, or a part of the state.",
            default="the memory",
        ),
    ] = None,
    attention: Annotated[
        bool,
        flag(
            "--attention",
            MEASURED,
            "Of a transformer: show the entropy of each head, and with --token what heads read "
            "for a word.",
        ),
    ] = False,
    token: Annotated[
        str | None,
        value("WORD", MEASURED, "With --attention: a word of the text.", default=False),
    ] = None,
    layer: Annotated[
        int | None,
        value(
            "L",
            MEASURED,
            "With --unit or --attention: the layer, counted from 0.",
            default="0 with --unit, all with --attention, the last with --token",
            min=0,
        ),
    ] = None,
    head: Annotated[
        str | None,
        value(
            "H[,H]",
            MEASURED,
            "With --attention: these heads, counted from 0.",
            default="all",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        value(
            "FILE",
            OUTPUT,
            "Write a page into this .html file instead, where hovering shows each value.",
            default=False,
            parser=file_path,
        ),
    ] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what a model does with a text, token by token.

    By default that is the likeliest tokens at each place, of any model. Recurrent networks have
    --steps, --unit and --units, transformers --attention.
    """
    chosen = _chosen(steps, units, unit, attention)
    _check(chosen, top, gate, token, layer, head, json, html)
    heads = None if head is None else _numbers(head)
    inputs = Inputs(quiet)
    from seqgen.cli import inspected
    from seqgen.commands.inspect.passage import passages as passages_of
    from seqgen.commands.loading import load

    loaded = load(model, device)
    loaded.given.require_nothing("inspect")
    source = _source(inputs, file, text, loaded, quiet)
    if html is not None:
        html = check_html(html, [] if source is None else [source], "--html")
    chunks = [text] if source is None else source.chunks(loaded.data.newlines)
    passages = passages_of(loaded, chunks, max_tokens)
    if passages.cut and not quiet:
        announce(f"looking at the first {plural(max_tokens, 'token')}; --max-tokens takes more")
    views = {
        "predictions": lambda: inspected.predictions(passages, top or inspected.CANDIDATES),
        "--steps": lambda: inspected.steps(passages),
        "--units": lambda: inspected.units(passages, top or inspected.UNITS),
        "--unit": lambda: inspected.unit(passages, layer or 0, unit, gate),
        "--attention": lambda: inspected.attention(passages, layer, heads, token),
    }
    _put(views[chosen](), passages, html, json, quiet)


def _chosen(steps: bool, units: bool, unit: int | None, attention: bool) -> str:
    """Return what is asked for.

    Raises:
        UsageError: more than one thing is.
    """
    asked = {
        "--steps": steps,
        "--units": units,
        "--unit": unit is not None,
        "--attention": attention,
    }
    given = [name for name, is_asked in asked.items() if is_asked]
    if len(given) > 1:
        raise UsageError(f"give {given[0]} or {given[1]}, not both")
    return given[0] if given else "predictions"


def _check(
    chosen: str,
    top: int | None,
    gate: str | None,
    token: str | None,
    layer: int | None,
    head: str | None,
    json: bool,
    html: Path | None,
) -> None:
    """Refuse flags that say nothing about what is asked for."""
    belongs = {
        "--gate": (gate, ("--unit",)),
        "--token": (token, ("--attention",)),
        "--head": (head, ("--attention",)),
        "--layer": (layer, ("--unit", "--attention")),
    }
    for name, (given, with_) in belongs.items():
        if given is not None and chosen not in with_:
            raise UsageError(f"{name} goes with {' or '.join(with_)}")
    if top is not None and chosen not in ("predictions", "--units"):
        raise UsageError(f"--top has no meaning with {chosen}")
    if top is not None and chosen == "--units" and json:
        raise UsageError("--top has no meaning with --units --json, which gives every unit")
    if token == "":
        raise UsageError("--token needs a word that is not empty")
    if json and html is not None:
        raise UsageError("give --json or --html, not both")


def _numbers(heads: str) -> list[int]:
    """Return the heads that "5,6" names.

    Raises:
        UsageError: it names none.
    """
    parts = [part.strip() for part in heads.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--head takes numbers from 0 with commas between, not {heads!r}")
    return list(dict.fromkeys(int(part[:9]) for part in parts))


def _source(
    inputs: Inputs, file: str | None, text: str | None, loaded: LoadedModel, quiet: bool
) -> Input | None:
    """Return the file to look at; None for --text.

    Raises:
        UsageError: both are given, or the file is not there.
        SeqgenError: neither is given, and the model holds out nothing.
    """
    from seqgen.cli.pairs import held_out_by

    if text is not None:
        if file is not None:
            raise UsageError("give a file or --text, not both")
        return None
    if file is None and piped_input() is not None:
        file = "-"
    if file is None:
        if not quiet:
            announce(f"looking at the held-out text of {loaded.stored.name}")
        return held_out_by([loaded], quiet=True)
    if file != "-" and not Path(file).exists():
        raise UsageError(f"there is no file {file!r}; for a text itself, use --text {file!r}")
    return inputs.open_one(file)


def _put(view: View, passages: Passages, html: Path | None, json: bool, quiet: bool) -> None:
    """Write what was found: records, a page, or for a person."""
    if json:
        for record in view.records:
            put_record(record)
    elif html is not None:
        from seqgen.report.page import page, write_page

        name = passages.documents[0].loaded.stored.name
        write_page(html, page(f"{name}: a text token by token", [view.section()]))
        if not quiet:
            say(f"wrote {html}")
    else:
        view.show(quiet)
