"""`seqgen sample`: write text."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from seqgen.cli import options
from seqgen.cli.output import is_terminal, put, put_record, say, shown, unescape
from seqgen.cli.prompts import check_prompts, given_or_piped


def sample(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(help="What to go on from; several are several prompts.", show_default=False),
    ] = None,
    model: options.Model = None,
    prompt_file: options.PromptFile = None,
    temperature: Annotated[
        float, typer.Option(help="Below 1 sharper, above 1 wilder; 0 is greedy.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(help="Keep the K likeliest tokens.", show_default=False)
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="Keep the likeliest tokens that reach this mass.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Keep tokens this many times as likely as the likeliest.")
    ] = 0.0,
    typical: Annotated[
        float, typer.Option(help="Keep this mass of tokens nearest to the entropy in surprisal.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            help="Multiplies log-probabilities of tokens seen; above 1 against repetition, "
            "from 0.001 to 1000. "
            "Hugging Face's acts on logits, and so on an arbitrary shift of them."
        ),
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Nats off a token that was written before; from -1000 to 1000.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float,
        typer.Option(help="Nats off a token for each time it was written; from -1000 to 1000."),
    ] = 0.0,
    no_repeat_ngram: options.NoRepeatNgram = None,
    ban: Annotated[
        list[str] | None,
        typer.Option(
            help=r"Never write this, unless forced; reads \n, \t, \\.", show_default=False
        ),
    ] = None,
    force: Annotated[
        str | None,
        typer.Option(help=r"Begin the text with this; reads \n, \t, \\.", show_default=False),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.")] = 500,
    min_tokens: options.MinTokens = 0,
    num_samples: Annotated[int, typer.Option(help="Texts for each prompt.")] = 1,
    best_of: Annotated[
        int, typer.Option(help="Write so many for each text; keep the likeliest by token.")
    ] = 1,
    suggest: Annotated[
        int | None,
        typer.Option(help="Only print the K likeliest next tokens.", min=1, show_default=False),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how every token came about.")
    ] = False,
    stop: options.Stop = None,
    echo: options.Echo = None,
    batch_size: options.BatchSize = 32,
    seed: options.Seed = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write text.

    Without a prompt a text begins from nothing; piped lines are a prompt each. Filters apply in
    this order: what can never be written, banned, min-tokens, forced, repetition, presence and
    frequency penalties, no-repeat n-gram, temperature, top-k, top-p, min-p, typical; then the
    draw. A filter that would leave nothing leaves the likeliest token.
    """
    from seqgen.configs import PRECISIONS, choice
    from seqgen.tasks.loaded import load
    from seqgen.tasks.sample import SampleOptions, stream
    from seqgen.tasks.sample import sample as write

    check_prompts(prompts, prompt_file)
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    wanted = SampleOptions(
        seed=drawn,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical=typical,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        no_repeat_ngram=no_repeat_ngram,
        ban=[unescape(text) for text in ban or ()],
        force=unescape(force or ""),
        greedy=greedy,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        num_samples=num_samples,
        best_of=best_of,
        stop=[unescape(text) for text in stop or ()],
        batch_size=batch_size,
    )
    loaded = load(model, device, choice("--precision", precision, PRECISIONS))
    if seed is None and wanted.draws and not suggest and not quiet and not json:
        say(f"seed {drawn}")
    texts, piped = given_or_piped(prompts, prompt_file, quiet)
    echoed = is_terminal(sys.stdout) if echo is None else echo
    if suggest or explain:
        from seqgen.cli import explanations
        from seqgen.tasks import explain as explaining

        if suggest:
            found = explaining.suggest(loaded, texts, suggest, batch_size)
            explanations.put_suggestions(found, json)
        else:
            explanations.put_explanations(explaining.explain(loaded, texts, wanted), json)
        return
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
            of = f", sample {record.sample}" if num_samples > 1 else ""
            text = record.prompt + record.text if echoed else record.text
            put(shown(text, f"prompt {record.index}{of}"))
