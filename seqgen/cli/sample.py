"""`seqgen sample`: write text."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.output import (
    input_bytes,
    is_terminal,
    one_line,
    piped_input,
    put,
    put_record,
    say,
    unescape,
)
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.tasks.sample import Sample


def sample(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(help="What to go on from; several are several prompts.", show_default=False),
    ] = None,
    model: options.Model = None,
    prompt_file: Annotated[
        str | None,
        typer.Option(help="One prompt: a whole file, or - for standard input.", show_default=False),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Below 1 sharper, above 1 wilder; 0 is greedy.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(help="Keep the K likeliest tokens.", show_default=False)
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="Keep the likeliest tokens that reach this mass.")
    ] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.")] = 500,
    num_samples: Annotated[int, typer.Option(help="Texts for each prompt.")] = 1,
    stop: Annotated[
        list[str] | None,
        typer.Option(help=r"End a text before this; reads \n, \t, \\.", show_default=False),
    ] = None,
    echo: Annotated[
        bool | None,
        typer.Option(
            "--echo/--no-echo",
            help="The prompt first; the default on a terminal.",
            show_default=False,
        ),
    ] = None,
    batch_size: options.BatchSize = 32,
    seed: options.Seed = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write text.

    Without a prompt a text begins from nothing; piped lines are a prompt each. Filters apply in
    this order: what can never be written, temperature, top-k, top-p; then the draw.
    """
    from seqgen.configs import PRECISIONS, choice
    from seqgen.tasks.loaded import load
    from seqgen.tasks.sample import SampleOptions, stream
    from seqgen.tasks.sample import sample as write

    if prompts and prompt_file:
        raise UsageError("give prompts or --prompt-file, not both")
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    wanted = SampleOptions(
        seed=drawn,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        greedy=greedy,
        max_tokens=max_tokens,
        num_samples=num_samples,
        stop=[unescape(text) for text in stop or ()],
        batch_size=batch_size,
    )
    loaded = load(model, device, choice("--precision", precision, PRECISIONS))
    if seed is None and not greedy and not quiet and not json:
        say(f"seed {drawn}")
    piped = not prompts and not prompt_file and piped_input() is not None
    texts = _piped_prompts(quiet) if piped else _given_prompts(prompts, prompt_file)
    echoed = is_terminal(sys.stdout) if echo is None else echo
    raw = not json and not piped and len(texts) == 1 and num_samples == 1
    if raw:
        if echoed:
            put(texts[0])
        for piece in stream(loaded, texts[0], wanted):
            put(piece)
        if is_terminal(sys.stdout):
            put("\n")
        return
    for record in write(loaded, texts, wanted):
        if json:
            put_record(record)
        else:
            put(_shown(record, echoed, num_samples))


def _given_prompts(prompts: list[str] | None, prompt_file: str | None) -> list[str]:
    from seqgen.data.text import decode_blocks, decoded

    if prompt_file == "-":
        return ["".join(decode_blocks(input_bytes(), "standard input"))]
    if prompt_file:
        return ["".join(decoded(Path(prompt_file)))]
    # An argument may hold bytes that are not UTF-8; this says so.
    for number, prompt in enumerate(prompts or ()):
        "".join(decode_blocks([prompt.encode(errors="surrogateescape")], f"prompt {number}"))
    return prompts or [""]


def _piped_prompts(quiet: bool) -> Iterable[str]:
    from seqgen.data.text import decode_blocks, lines

    empty = True
    for line in lines(decode_blocks(input_bytes(), "standard input")):
        empty = False
        yield line.removesuffix("\n")
    if empty and not quiet:
        say("standard input is empty: no prompt, no text")


def _shown(record: Sample, echoed: bool, num_samples: int) -> str:
    text = record.prompt + record.text if echoed else record.text
    if not is_terminal(sys.stdout):
        return one_line(text) + "\n"
    of = f", sample {record.sample}" if num_samples > 1 else ""
    return f"── prompt {record.index}{of} ──\n{text}\n\n"
