"""`seqgen sample`: generate text, or explain how it was generated."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from seqgen import hooks
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.model_options import ReadModel
from seqgen.cli.shell.output import (
    RecordedOutput,
    is_terminal,
    one_line,
    put,
    say,
)
from seqgen.cli.shell.prompts import PROMPTS, GivenPrompts, say_unknown
from seqgen.cli.shell.source_attention import IN_PLACE_OF_ATTENTION, Picture
from seqgen.cli.shell.tables import figure
from seqgen.cli.shell.writing import Echo, TextWriter, lists_filters, with_drawn_seed
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import OptionRule, Options, Panel, setting
from seqgen.settings.generation import SampleOptions


class AlternativeOutput(Options, panel=Panel.OUTPUT):
    """Options of `seqgen sample`: --suggest, --explain, and prompts typed at the terminal."""

    interactive: bool = setting(
        "Load the model once, then type prompts, one per line; Ctrl-D ends the session.",
        names=("--interactive", "-i"),
        panel=Panel.TEXT,
        common=True,
        conflicts=OptionRule(
            (*PROMPTS, "--suggest", "--explain", "--num-samples", "--json"),
            "{flag} takes no {other}",
        ),
    )
    suggest: int | None = setting(
        "Print only the N most probable next tokens, and write no text.",
        low=1,
        conflicts=IN_PLACE_OF_ATTENTION,
    )
    explain: bool = setting("Show how each token was chosen.", conflicts=IN_PLACE_OF_ATTENTION)


@takes_options
@lists_filters(SampleOptions)
def sample(
    prompts: GivenPrompts,
    model: ReadModel,
    sampling: SampleOptions,
    instead: AlternativeOutput,
    picture: Picture,
    echo: Echo,
    out: RecordedOutput,
) -> None:
    """Write text with a trained model.

    Without a prompt, the model writes from the start of a text. A translation model takes
    sources instead of prompts, and writes their targets.

    Filters apply in this order: tokens that are never written, --ban, --min-tokens,
    --force{constraints}{filters}, repetition, presence and frequency penalties,
    --no-repeat-ngram{before_temperature}, --temperature, --top-k, --top-p, --min-p,
    --typical{last}. Then a token is drawn. A filter that would remove every token keeps the most
    probable one{endings}.
    """
    if instead.interactive and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError("--interactive needs a terminal; pipe prompts in without it, one per line")
    announced = sampling.seed is None and sampling.draws and not instead.suggest
    sampling = with_drawn_seed(sampling, picture)
    rows = sampling.num_samples * sampling.best_of
    given = None if instead.interactive else prompts
    writing = TextWriter.open(sampling, rows, model, given, picture, echo, out)
    if announced:
        out.announce_seed(sampling.seed)
    if instead.interactive:
        _converse(writing, sampling)
        return
    if instead.suggest:
        _put_suggestions(writing, sampling, instead.suggest)
        return
    if instead.explain:
        hooks.load_method("output", "explained-tokens", "--explain")(writing, sampling)
        return
    raw = writing.is_raw(sampling.num_samples)
    if raw and not sampling.of_source.shows_something:
        _put_one(writing, writing.texts[0], sampling)
    else:
        from seqgen.generation.sample import sample as write

        several = sampling.num_samples > 1
        records = write(writing.loaded, writing.texts, sampling)
        writing.put(records, raw, "sample", lambda r: f", sample {r.sample}" if several else "")
    for filters in sampling.added_filters:
        if out.explains and (said := filters.describe()) is not None:
            out.notice(said)


def _converse(writing: TextWriter, sampling: SampleOptions) -> None:
    """Continue prompts typed at the terminal, adding 1 to the seed for each."""

    def written(prompt: str, number: int) -> Iterable[str]:
        drawing = replace(sampling, seed=sampling.seed + number)
        if sampling.of_source.shows_something:
            return _looked(writing, prompt, number, drawing)
        return _streamed(writing, prompt, drawing)

    converse(written, writing.out.quiet)


def _put_suggestions(writing: TextWriter, sampling: SampleOptions, count: int) -> None:
    """Print the most probable next tokens of each prompt."""
    from seqgen.generation.suggest import suggest

    for token in suggest(writing.loaded, writing.texts, count, sampling.batch_size):
        if not writing.out.record(token):
            put(f"{token.index}\t{figure(token.probability)}\t{one_line(token.text)}\n")


def _put_one(writing: TextWriter, prompt: str, sampling: SampleOptions) -> None:
    """Stream one text to standard output as it is generated."""
    from seqgen.generation.prompts import unknown_in_source

    for piece in _streamed(writing, prompt, sampling):
        put(piece)
    put("\n")
    say_unknown(unknown_in_source(writing.loaded, prompt), writing.out)


def _looked(
    writing: TextWriter, prompt: str, number: int, sampling: SampleOptions
) -> Iterator[str]:
    """Generate from one source; yield text and alignment, then show the attention if requested.

    Attention is read when a text is finished, so that the text comes in one piece.
    """
    from seqgen.generation.sample import sample as write

    (record,) = write(writing.loaded, [prompt], sampling)
    yield record.text if record.alignment is None else f"{record.text}\n{record.alignment}"
    if sampling.of_source.attention:
        yield "\n"
        writing.attention_view.put(record.look, f"source {number}")


def _streamed(writing: TextWriter, prompt: str, sampling: SampleOptions) -> Iterator[str]:
    """Stream a text with its echoed prompt, which comes last for right-to-left models."""
    from seqgen.generation.sample import stream

    backward, echo = writing.loaded.backward, prompt if writing.echoed else ""
    pieces = stream(writing.loaded, prompt, sampling)
    first = next(pieces, "")  # refuses a prompt before anything is shown
    yield first if backward else echo + first
    yield from pieces
    if backward:
        yield echo


PROMPT = "> "
# (prompt, its number in the session from 0) -> the pieces of the text that continues it.
Write = Callable[[str, int], Iterable[str]]


def converse(write: Write, quiet: bool) -> None:
    """Prompt at the terminal and print continuations until Ctrl-D.

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
    """Yield lines typed at the terminal until Ctrl-D, with history on the arrow keys."""
    with contextlib.suppress(ImportError):  # Windows has history without it
        import readline  # noqa: F401
    while True:
        try:
            line = input(PROMPT)
        except KeyboardInterrupt:  # discards the line
            put("\n")
            continue
        except EOFError:
            put("\n")
            return
        yield line
