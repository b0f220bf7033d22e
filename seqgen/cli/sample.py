"""`seqgen sample`: write text."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.continuous_cache import Cache, CacheFlatness, CacheStrength, cache_of
from seqgen.cli.help import FILTERS, LENGTH, OUTPUT, TEXT
from seqgen.cli.interactive import check_terminal, converse
from seqgen.cli.output import is_terminal, put, put_record, say, shown, unescape
from seqgen.cli.prompts import GivenPrompts, called, say_unknown
from seqgen.cli.source_attention import Shown, refuse_shown, source_options
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.writing.sample import SampleOptions


def sample(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text to continue; each argument is a prompt of its own. If text is piped in, "
            "each line is a prompt.",
            metavar="PROMPT",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    cache: Cache = None,
    cache_strength: CacheStrength = None,
    cache_flatness: CacheFlatness = None,
    prompt_file: options.PromptFile = None,
    source: options.SourceFile = None,
    source_vectors: options.SourceVectors = None,
    label: options.Label = None,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            "-i",
            help="Load the model once, then type prompts, one per line; Ctrl-D ends the session.",
            rich_help_panel=TEXT,
        ),
    ] = False,
    temperature: Annotated[
        float,
        typer.Option(
            help="Divide the logits by this: below 1 the text is more predictable, above 1 more "
            "varied; 0 is greedy.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="Keep only the N most probable tokens.",
            metavar="N",
            rich_help_panel=FILTERS,
            show_default=False,
        ),
    ] = None,
    top_p: Annotated[
        float,
        typer.Option(
            help="Keep the fewest most probable tokens whose total reaches this probability.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 1.0,
    min_p: Annotated[
        float,
        typer.Option(
            help="Keep tokens with at least this share of the most probable token's probability.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 0.0,
    typical: Annotated[
        float,
        typer.Option(
            help="Keep the tokens whose surprisal is nearest to the entropy, up to this total "
            "probability.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 1.0,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            help="Multiply the log-probability of every token seen before by this, 0.001 to 1000; "
            "above 1 discourages repetition. Hugging Face's penalty acts on logits instead.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 1.0,
    presence_penalty: Annotated[
        float,
        typer.Option(
            help="Subtract this many nats from every token written before, -1000 to 1000.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 0.0,
    frequency_penalty: Annotated[
        float,
        typer.Option(
            help="Subtract this many nats from a token for each time it was written, -1000 to "
            "1000.",
            metavar="X",
            rich_help_panel=FILTERS,
        ),
    ] = 0.0,
    no_repeat_ngram: options.NoRepeatNgram = None,
    ban: Annotated[
        list[str] | None,
        typer.Option(
            help=r"Never write this string, unless --force does; \n, \t and \\ are read as "
            "escapes. Can be repeated.",
            metavar="TEXT",
            rich_help_panel=FILTERS,
            show_default=False,
        ),
    ] = None,
    force: options.Force = None,
    copy_unknown: options.CopyUnknown = False,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy", help="Always write the most probable token.", rich_help_panel=FILTERS
        ),
    ] = False,
    max_tokens: Annotated[
        int,
        typer.Option(
            help="Largest number of tokens to write.", metavar="N", rich_help_panel=LENGTH
        ),
    ] = 500,
    min_tokens: options.MinTokens = 0,
    max_ratio: options.MaxRatio = None,
    num_samples: Annotated[
        int,
        typer.Option(
            help="Number of texts to write for each prompt.", metavar="N", rich_help_panel=LENGTH
        ),
    ] = 1,
    best_of: Annotated[
        int,
        typer.Option(
            help="Write this many candidates for each text and keep the one with the highest "
            "log-probability per token.",
            metavar="N",
            rich_help_panel=LENGTH,
        ),
    ] = 1,
    stop: options.Stop = None,
    attention: options.Attention = False,
    plot: options.Plot = None,
    align: options.Align = False,
    align_words: options.AlignWords = False,
    layer: options.Layer = None,
    head: options.Head = None,
    suggest: Annotated[
        int | None,
        typer.Option(
            help="Print only the N most probable next tokens, and write no text.",
            min=1,
            metavar="N",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show how each token was chosen.", rich_help_panel=OUTPUT),
    ] = False,
    echo: options.Echo = None,
    batch_size: options.BatchSize = 32,
    seed: options.Seed = None,
    device: options.Device = "auto",
    precision: options.ReadingPrecision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write text with a trained model.

    Without a prompt, the model writes from the start of a text. A model of pairs takes sources
    instead of prompts, and writes their targets.

    Filters apply in this order: tokens that are never written, --ban, --min-tokens, --force,
    repetition, presence and frequency penalties, --no-repeat-ngram, --temperature, --top-k,
    --top-p, --min-p, --typical. Then a token is drawn. A filter that would remove every token
    keeps the most probable one.
    """
    from seqgen.commands.loading import load
    from seqgen.commands.writing.prompts import unknown_in_source
    from seqgen.commands.writing.sample import SampleOptions, stream
    from seqgen.configs import READING_PRECISIONS, choice

    given = GivenPrompts(prompts, prompt_file, source, source_vectors)
    of_source = source_options(
        attention, align, align_words, layer, head, plot, max_ratio, copy_unknown
    )
    if interactive:
        _check_interactive(given, suggest, explain, num_samples, json)
    for flag, instead in (("--suggest", suggest), ("--explain", explain)):
        if instead:
            refuse_shown(of_source, flag)
    looks = Shown(of_source, plot, maps=not json and not quiet, inputs=given.files)
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    sampling = SampleOptions(
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
        of_source=of_source,
    )
    looked_up = cache_of(cache, cache_strength, cache_flatness)
    of_source.check_kind(model)
    loaded = load(model, device, choice("--precision", precision, READING_PRECISIONS), looked_up)
    loaded = loaded.with_labels(label or ())
    loaded.require_label()
    if echo and loaded.reads_sources:
        loaded.require_text("--echo")
    from_sources = not interactive and given.are_sources(loaded, echo)
    if seed is None and sampling.draws and not suggest and not quiet and not json:
        say(f"seed {drawn}")
    if interactive:
        # As if each prompt were a run of its own, with the next seed.
        def written(prompt: str, number: int) -> Iterable[str]:
            drawing = replace(sampling, seed=drawn + number)
            if looks.shows_something:
                return _looked(loaded, prompt, number, drawing, looks)
            pieces = stream(loaded, prompt, drawing)
            return _with_echo(loaded, prompt if echoes_prompt else "", pieces)

        echoes_prompt = echo is not False and not loaded.reads_sources
        converse(written, quiet)
        return
    texts, piped = given.texts(loaded, quiet)
    echoed = not from_sources and (is_terminal(sys.stdout) if echo is None else echo)
    aligned = align or align_words
    raw = not (json or piped or aligned) and len(texts) == num_samples == 1
    if suggest or explain:
        _put_reasons(loaded, texts, sampling, suggest, json)
    elif raw and not looks.shows_something:
        _put_one(loaded, texts[0], sampling, echoed)
        say_unknown(unknown_in_source(loaded, texts[0]), quiet)
    else:
        unknown = _put_records(loaded, texts, sampling, echoed, json, raw, looks)
        say_unknown(unknown, quiet)


def _put_reasons(
    loaded: LoadedModel,
    texts: Iterable[str],
    sampling: SampleOptions,
    suggest: int | None,
    json: bool,
) -> None:
    """Write the most probable next tokens, or how every token of a text was chosen."""
    from seqgen.cli import explanations
    from seqgen.commands.writing import explain as explaining

    if suggest:
        suggestions = explaining.suggest(loaded, texts, suggest, sampling.batch_size)
        explanations.put_suggestions(suggestions, json)
    else:
        tokens = explaining.explain(loaded, texts, sampling)
        explanations.put_explanations(tokens, called(loaded), json)


def _put_one(loaded: LoadedModel, prompt: str, sampling: SampleOptions, echoed: bool) -> None:
    """Write one text as it is, piece by piece."""
    from seqgen.commands.writing.sample import stream

    echo = prompt if echoed else ""
    for piece in _with_echo(loaded, echo, stream(loaded, prompt, sampling)):
        put(piece)
    if is_terminal(sys.stdout):
        put("\n")


def _looked(
    loaded: LoadedModel, prompt: str, number: int, options: SampleOptions, looks: Shown
) -> Iterator[str]:
    """Yield the text of one source, with its alignment if one is wanted; then show its attention.

    Attention is read when a text is finished, so that the text comes in one piece.
    """
    from seqgen.commands.writing.sample import sample as write

    (record,) = write(loaded, [prompt], options)
    yield record.text if record.alignment is None else f"{record.text}\n{record.alignment}"
    if looks.options.attention:
        yield "\n"
        looks.put(record.look, f"source {number}")


def _with_echo(loaded: LoadedModel, echo: str, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a text with its prompt, before the first or after the last."""
    pieces = iter(pieces)
    first = next(pieces, "")  # refuses a prompt before anything is shown
    yield first if loaded.backward else echo + first
    yield from pieces
    if loaded.backward:
        yield echo


def _put_records(
    loaded: LoadedModel,
    texts: Iterable[str],
    sampling: SampleOptions,
    echoed: bool,
    json: bool,
    raw: bool,
    looks: Shown,
) -> int:
    """Write texts, a line or a JSON record each; return the unknown tokens of sources.

    A raw one is written as it is.
    """
    from seqgen.commands.writing.sample import sample as write

    unknown = 0
    for record in write(loaded, texts, sampling):
        if json:
            put_record(record.record())
        else:
            of = f", sample {record.sample}" if sampling.num_samples > 1 else ""
            text = loaded.echoed(record.prompt, record.text) if echoed else record.text
            if raw:
                put(text + "\n" if is_terminal(sys.stdout) else text)
            else:
                heading = f"{called(loaded)} {record.index}{of}"
                put(shown(text, heading, record.alignment))
        looks.put(record.look, f"source {record.index}, sample {record.sample}")
        if loaded.reads_sources and record.sample == 0:
            unknown += record.of_source.source_unknown
    return unknown


def _check_interactive(
    prompts: GivenPrompts, suggest: int | None, explain: bool, num_samples: int, json: bool
) -> None:
    """Refuse what has no meaning with typed prompts.

    Raises:
        UsageError: names it, or says that there is no terminal.
    """
    given = {
        "PROMPT": bool(prompts.prompts),
        "--prompt-file": prompts.prompt_file is not None,
        "--source": prompts.source_file is not None,
        "--source-vectors": prompts.vectors is not None,
        "--suggest": suggest is not None,
        "--explain": explain,
        "--num-samples": num_samples > 1,
        "--json": json,
    }
    wrong = [name for name, there in given.items() if there]
    if wrong:
        raise UsageError(f"--interactive takes no {wrong[0]}")
    check_terminal()
