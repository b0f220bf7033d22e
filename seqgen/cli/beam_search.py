"""`seqgen beam-search`: find the likeliest texts."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.completion import one_of
from seqgen.cli.continuous_cache import Cache, CacheFlatness, CacheStrength, cache_of
from seqgen.cli.help import LENGTH, OUTPUT, SEARCH
from seqgen.cli.output import (
    console,
    is_terminal,
    put,
    put_record,
    say,
    shown,
    standard_output,
    unescape,
)
from seqgen.cli.prompts import GivenPrompts, called, say_unknown
from seqgen.cli.source_attention import Shown, refuse_shown, source_options
from seqgen.cli.tables import figure

if TYPE_CHECKING:
    from seqgen.commands.writing.beam_search import Tree


def beam_search(
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
    beams: Annotated[
        int,
        typer.Option(
            help="Number of hypotheses to keep at each step.", metavar="N", rich_help_panel=SEARCH
        ),
    ] = 5,
    length_norm: Annotated[
        str,
        typer.Option(
            help="Divide the log-probability of a text of L tokens by L^alpha (avg), by "
            "((5 + L) / 6)^alpha (gnmt), or not at all (none).",
            metavar="avg|gnmt|none",
            rich_help_panel=SEARCH,
            autocompletion=one_of("avg", "gnmt", "none"),
        ),
    ] = "avg",
    alpha: Annotated[
        float,
        typer.Option(
            help="Exponent of --length-norm, from -10 to 10; above 0 favours longer texts.",
            metavar="X",
            rich_help_panel=SEARCH,
        ),
    ] = 1.0,
    groups: Annotated[
        int,
        typer.Option(
            help="Diverse beam search: divide the beams into this many groups.",
            metavar="N",
            rich_help_panel=SEARCH,
        ),
    ] = 1,
    diversity: Annotated[
        float,
        typer.Option(
            help="With --groups: subtract this many nats from a token that an earlier group takes.",
            metavar="X",
            rich_help_panel=SEARCH,
        ),
    ] = 0.5,
    coverage_penalty: Annotated[
        float,
        typer.Option(
            help="Lower the score of a finished text that leaves parts of its source unread: add "
            "BETA times the sum of log(min(coverage, 1)) over the source's tokens (Wu et al. "
            "2016).",
            metavar="BETA",
            rich_help_panel=SEARCH,
        ),
    ] = 0.0,
    stochastic: Annotated[
        bool,
        typer.Option(
            "--stochastic",
            help="Sample as many texts as there are beams, without replacement.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            help="Try every possible text; for tiny vocabularies only.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    nbest: Annotated[
        int,
        typer.Option(
            help="Number of texts to return for each prompt.", metavar="N", rich_help_panel=LENGTH
        ),
    ] = 1,
    max_tokens: Annotated[
        int,
        typer.Option(
            help="Largest number of tokens to write.", metavar="N", rich_help_panel=LENGTH
        ),
    ] = 100,
    min_tokens: options.MinTokens = 0,
    max_ratio: options.MaxRatio = None,
    stop: options.Stop = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    force: options.Force = None,
    copy_unknown: options.CopyUnknown = False,
    attention: options.Attention = False,
    plot: options.Plot = None,
    align: options.Align = False,
    align_words: options.AlignWords = False,
    layer: options.Layer = None,
    head: options.Head = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the search tree.", rich_help_panel=OUTPUT),
    ] = False,
    echo: options.Echo = None,
    batch_size: options.BatchSize = 16,
    seed: options.Seed = None,
    device: options.Device = "auto",
    precision: options.ReadingPrecision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the most probable continuations by beam search.

    A model of pairs takes sources instead of prompts, and writes their targets.

    Filters apply in this order: tokens that are never written, --min-tokens, --force,
    --no-repeat-ngram. The search stops when no live hypothesis can still beat the n-th best
    finished one.
    """
    from seqgen.commands.loading import load
    from seqgen.commands.writing import beam_search as task
    from seqgen.configs import READING_PRECISIONS, choice

    given = GivenPrompts(prompts, prompt_file, source, source_vectors)
    of_source = source_options(
        attention, align, align_words, layer, head, plot, max_ratio, copy_unknown
    )
    if explain:
        refuse_shown(of_source, "--explain")
    looks = Shown(of_source, plot, maps=not json and not quiet, inputs=given.files)
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    search = task.BeamOptions(
        beams=beams,
        nbest=nbest,
        length_norm=length_norm,
        alpha=alpha,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=[unescape(text) for text in stop or ()],
        no_repeat_ngram=no_repeat_ngram,
        force=unescape(force or ""),
        groups=groups,
        diversity=diversity,
        stochastic=stochastic,
        exhaustive=exhaustive,
        seed=drawn,
        batch_size=batch_size,
        coverage_penalty=coverage_penalty,
        of_source=of_source,
    )
    looked_up = cache_of(cache, cache_strength, cache_flatness)
    of_source.check_kind(model)
    loaded = load(model, device, choice("--precision", precision, READING_PRECISIONS), looked_up)
    loaded = loaded.with_labels(label or ())
    loaded.require_label()
    from_sources = given.are_sources(loaded, echo)
    if stochastic and seed is None and not quiet:
        say(f"seed {drawn}")
    texts, piped = given.texts(loaded, quiet)
    if explain:
        for tree in task.explain(loaded, texts, search):
            _put_tree(tree, called(loaded), json)
        return
    echoed = not from_sources and (is_terminal(sys.stdout) if echo is None else echo)
    raw = not piped and len(texts) == 1 and nbest == 1 and not (align or align_words)
    unknown = 0
    for record in task.beam_search(loaded, texts, search):
        text = loaded.echoed(record.prompt, record.text) if echoed else record.text
        if json:
            put_record(record.record())
        elif raw:
            put(text + "\n" if is_terminal(sys.stdout) else text)
        else:
            of = f", rank {record.rank}, score {figure(record.score)}" if nbest > 1 else ""
            put(shown(text, f"{called(loaded)} {record.index}{of}", record.alignment))
        looks.put(record.look, f"source {record.index}, rank {record.rank}")
        if from_sources and record.rank == 0:
            unknown += record.of_source.source_unknown
    say_unknown(unknown, quiet)


STYLE = {"live": "", "finished": "bold green", "pruned": "dim"}
SIGN = {"live": "", "finished": "■ ", "pruned": "✗ "}


def _put_tree(tree: Tree, what: str, json: bool) -> None:
    """Write a search as records of its candidates, or as the lectures draw it."""
    if json:
        for node in tree.nodes:
            put_record(node)
        return
    from rich.text import Text
    from rich.tree import Tree as Drawing

    root = Drawing(Text(f"{what} {tree.index}: {tree.prompt!r}"))
    drawn = {0: root}
    for node in tree.nodes:
        rank = "" if node.rank is None else f"  ← rank {node.rank}"
        group = f"group {node.group}: " if node.group else ""
        logprobs = f"{figure(node.logprob, 3)} → {figure(node.total, 3)}"
        label = f"{SIGN[node.fate]}{group}{node.text!r}  {logprobs}{rank}"
        drawn[node.node] = drawn[node.parent].add(Text(label, style=STYLE[node.fate]))
    out = console(standard_output())
    out.print(root)
    for beam in tree.hypotheses:
        line = f"rank {beam.rank}: score {figure(beam.score)}, logprob {figure(beam.logprob)}, "
        out.print(line + f"{beam.finish_reason}: {beam.text!r}")
