"""`seqgen sample`: write text, or show how it comes about."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seqgen.cli.flags import takes_options
from seqgen.cli.output import (
    Output,
    console,
    is_terminal,
    one_line,
    put,
    put_record,
    say,
    shown,
    standard_output,
)
from seqgen.cli.prompts import Echo, GivenPrompts, say_unknown
from seqgen.cli.reading import ReadModel
from seqgen.cli.source_attention import Picture, Shown
from seqgen.cli.tables import MISSING, count, figure, table
from seqgen.configs import Options, Panel, setting
from seqgen.configs.decoding import SampleOptions
from seqgen.errors import SeqgenError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.writing.explain import Explanation, Suggestion


class Instead(Options, panel=Panel.OUTPUT):
    """What is shown in place of texts, and how prompts are typed."""

    interactive: bool = setting(
        "Load the model once, then type prompts, one per line; Ctrl-D ends the session.",
        names=("--interactive", "-i"),
        panel=Panel.TEXT,
        common=True,
    )
    suggest: int | None = setting(
        "Print only the N most probable next tokens, and write no text.", low=1
    )
    explain: bool = setting("Show how each token was chosen.")


@takes_options
def sample(
    prompts: GivenPrompts,
    model: ReadModel,
    sampling: SampleOptions,
    instead: Instead,
    picture: Picture,
    echo: Echo,
    out: Output,
) -> None:
    """Write text with a trained model.

    Without a prompt, the model writes from the start of a text. A model of pairs takes sources
    instead of prompts, and writes their targets.

    Filters apply in this order: tokens that are never written, --ban, --min-tokens, --force,
    --pattern, --max-copy, repetition, presence and frequency penalties, --no-repeat-ngram,
    --temperature, --top-k, --top-p, --min-p, --typical. Then a token is drawn. A filter that would
    remove every token keeps the most probable one; only --pattern and --max-copy end the text
    instead.
    """
    if instead.interactive:
        _check_interactive(prompts, instead, sampling, out)
    sampling = replace(sampling, of_source=picture.of(sampling.of_source))
    for flag in instead.given:
        if flag != "--interactive":
            sampling.of_source.refuse_shown(flag)
    if instead.suggest and (form := next(iter(sampling.form.given), None)):
        raise UsageError(f"--suggest writes no text, so it takes no {form}")
    looks = Shown(sampling.of_source, picture.plot, maps=out.draws, inputs=prompts.files)
    reported = sampling.seed is None and sampling.draws
    if sampling.seed is None:
        sampling = replace(sampling, seed=secrets.randbelow(1 << 31))
    rows = sampling.num_samples * sampling.best_of
    loaded = model.load(sampling.of_source, rows, sampling.max_tokens)
    out.uses([loaded], sampling.seed)
    from_sources = not instead.interactive and prompts.are_sources(loaded, echo.echo)
    if echo.echo and loaded.given.is_source:
        loaded.given.require_nothing("--echo")
    if reported and not instead.suggest:
        out.announce_seed(sampling.seed)
    if instead.interactive:
        _converse(loaded, sampling, looks, echo, out)
        return
    texts, piped = prompts.texts(loaded, out)
    if instead.suggest or instead.explain:
        _put_reasons(loaded, texts, sampling, instead.suggest, out)
        return
    echoed = not from_sources and echo.on_this_terminal
    aligned = sampling.of_source.align or sampling.of_source.align_words
    raw = not (out.json or piped or aligned) and len(texts) == sampling.num_samples == 1
    if raw and not looks.shows_something:
        _put_one(loaded, texts[0], sampling, echoed, out)
    else:
        _put_records(loaded, texts, sampling, _Form(echoed, raw, looks), out)


@dataclass(frozen=True)
class _Form:
    """How texts are written: with their prompts, as they are, beside their attention."""

    echoed: bool
    raw: bool
    looks: Shown


def _converse(
    loaded: LoadedModel, sampling: SampleOptions, looks: Shown, echo: Echo, out: Output
) -> None:
    """Take prompts from the terminal, each as if it were a run of its own, with the next seed."""

    def written(prompt: str, number: int) -> Iterable[str]:
        from seqgen.commands.writing.sample import stream

        drawing = replace(sampling, seed=sampling.seed + number)
        if looks.shows_something:
            return _looked(loaded, prompt, number, drawing, looks)
        pieces = stream(loaded, prompt, drawing)
        return _with_echo(loaded, prompt if echoes_prompt else "", pieces)

    echoes_prompt = echo.echo is not False and not loaded.given.is_source
    converse(written, out.quiet)


def _put_reasons(
    loaded: LoadedModel,
    texts: Iterable[str],
    sampling: SampleOptions,
    suggest: int | None,
    out: Output,
) -> None:
    """Write the most probable next tokens, or how every token of a text was chosen."""
    from seqgen.commands.writing import explain as explaining

    if suggest:
        suggestions = explaining.suggest(loaded, texts, suggest, sampling.batch_size)
        put_suggestions(suggestions, out)
    else:
        tokens = explaining.explain(loaded, texts, sampling)
        put_explanations(tokens, loaded.given.prompt, out)


def _put_one(
    loaded: LoadedModel, prompt: str, sampling: SampleOptions, echoed: bool, out: Output
) -> None:
    """Write one text as it is, piece by piece."""
    from seqgen.commands.writing.prompts import unknown_in_source
    from seqgen.commands.writing.sample import stream

    echo = prompt if echoed else ""
    for piece in _with_echo(loaded, echo, stream(loaded, prompt, sampling)):
        put(piece)
    put("\n")
    say_unknown(unknown_in_source(loaded, prompt), out)


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
    loaded: LoadedModel, texts: Iterable[str], sampling: SampleOptions, form: _Form, out: Output
) -> None:
    """Write texts, a line or a JSON record each; a raw one as it is."""
    from seqgen.commands.writing.sample import sample as write

    unknown = 0
    for record in write(loaded, texts, sampling):
        if out.json:
            put_record(record.record())
        else:
            of = f", sample {record.sample}" if sampling.num_samples > 1 else ""
            text = loaded.echoed(record.prompt, record.text) if form.echoed else record.text
            if form.raw:
                put(text + "\n")
            else:
                heading = f"{loaded.given.prompt} {record.index}{of}"
                put(shown(text, heading, record.alignment))
        form.looks.put(record.look, f"source {record.index}, sample {record.sample}")
        if loaded.given.is_source and record.sample == 0:
            unknown += record.of_source.source_unknown
    say_unknown(unknown, out)


def _check_interactive(
    prompts: GivenPrompts, instead: Instead, sampling: SampleOptions, out: Output
) -> None:
    """Refuse what has no meaning with typed prompts.

    Raises:
        UsageError: names it, or says that there is no terminal.
    """
    given = {
        "PROMPT": bool(prompts.prompts),
        "--prompt-file": prompts.prompt_file is not None,
        "--source": prompts.source is not None,
        "--source-vectors": prompts.source_vectors is not None,
        "--suggest": instead.suggest is not None,
        "--explain": instead.explain,
        "--num-samples": sampling.num_samples > 1,
        "--json": out.json,
    }
    wrong = [name for name, there in given.items() if there]
    if wrong:
        raise UsageError(f"--interactive takes no {wrong[0]}")
    check_terminal()


def put_suggestions(suggestions: Iterable[Suggestion], out: Output) -> None:
    """Write the likeliest next tokens: records, or lines of prompt number, probability, token."""
    for suggestion in suggestions:
        if not out.record(suggestion):
            put(
                f"{suggestion.index}\t{figure(suggestion.probability)}\t{one_line(suggestion.text)}\n"
            )


def put_explanations(explanations: Iterable[Explanation], what: str, out: Output) -> None:
    """Write how each token came about: records, or a table each.

    Args:
        explanations: a token each.
        what: they go on from, as "prompt".
        out: takes them.
    """
    for explanation in explanations:
        if out.record(explanation):
            continue
        screen = console(standard_output())
        which = f"{what} {explanation.index}, sample {explanation.sample}"
        screen.print(f"{which}, token {explanation.step}: {explanation.text!r}")
        screen.print(_candidates(explanation))
        for removed in explanation.removed:
            mass, tokens = figure(removed.mass), " ".join(map(repr, removed.tokens))
            screen.print(f"{removed.filter} removed {count(removed.count)} (mass {mass}): {tokens}")
        screen.print()


def _candidates(explanation: Explanation) -> Table:
    drawn = table(("", "token", "removed by", "model", "after filters"), left=3)
    for candidate in explanation.candidates:
        chosen = "*" if candidate.token == explanation.token else ""
        after = MISSING if candidate.removed_by else figure(candidate.after)
        text, removed_by = repr(candidate.text), candidate.removed_by or ""
        drawn.add_row(chosen, text, removed_by, figure(candidate.probability), after)
    return drawn


PROMPT = "> "
# Stands for a line that Ctrl-C discarded. Nobody can type it: a typed line has no newline.
DISCARDED = "\n"
# (prompt, its number in the session from 0) -> the pieces of the text that continues it.
Write = Callable[[str, int], Iterable[str]]


def check_terminal() -> None:
    """Refuse to start where nobody can type a prompt.

    Raises:
        UsageError: standard input or standard output is no terminal.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError("--interactive needs a terminal; pipe prompts in without it, one a line")


def converse(write: Write, quiet: bool) -> None:
    """Continue each prompt that is typed, until Ctrl-D.

    Ctrl-C stops the text that is being written, or discards the line that is being typed.

    Args:
        write: returns the pieces of a text.
        quiet: do not explain the keys.
    """
    if not quiet:
        say("Type a prompt. Ctrl-C stops a text; Ctrl-D ends.")
    for number, prompt in enumerate(_prompts()):
        try:
            for piece in write(prompt, number):
                put(piece)
        except KeyboardInterrupt:
            pass  # back to the prompt
        except SeqgenError as error:  # such as an unknown character; the session goes on
            say(f"seqgen: {error}")
        put("\n")


def _prompts() -> Iterator[str]:
    """Yield the lines that are typed; the arrow keys bring back earlier ones."""
    with contextlib.suppress(ImportError):  # Windows has history without it
        import readline  # noqa: F401
    while (line := _typed()) is not None:
        if line != DISCARDED:
            yield line


def _typed() -> str | None:
    """Return the next line: None for Ctrl-D, and `DISCARDED` for Ctrl-C."""
    try:
        return input(PROMPT)
    except KeyboardInterrupt:
        put("\n")
        return DISCARDED
    except EOFError:
        put("\n")
        return None
