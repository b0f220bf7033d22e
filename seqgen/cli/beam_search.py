"""`seqgen beam-search`: find the likeliest texts."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
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
from seqgen.cli.prompts import check_prompts, given_or_piped

if TYPE_CHECKING:
    from seqgen.tasks.beam_search import Tree


def beam_search(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(help="What to go on from; several are several prompts.", show_default=False),
    ] = None,
    model: options.Model = None,
    prompt_file: options.PromptFile = None,
    beams: Annotated[int, typer.Option(help="Hypotheses that live side by side.")] = 5,
    nbest: Annotated[int, typer.Option(help="Texts to find for each prompt.")] = 1,
    length_norm: Annotated[
        str,
        typer.Option(
            help="Log-probability over L^alpha (avg), ((5 + L) / 6)^alpha (gnmt) or 1 (none)."
        ),
    ] = "avg",
    alpha: Annotated[float, typer.Option(help="From -10 to 10; above 0 favours long texts.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.")] = 100,
    min_tokens: options.MinTokens = 0,
    stop: options.Stop = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    groups: Annotated[int, typer.Option(help="Diverse beams: groups of BEAMS / GROUPS.")] = 1,
    diversity: Annotated[
        float, typer.Option(help="Nats off a token that an earlier group takes too.")
    ] = 0.5,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample BEAMS texts without replacement.")
    ] = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Try every text: tiny vocabularies only.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the tree of the search.")
    ] = False,
    echo: options.Echo = None,
    batch_size: options.BatchSize = 16,
    seed: options.Seed = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the likeliest texts by beam search.

    Filters apply in this order: what can never be written, min-tokens, no-repeat n-gram. The
    search stops when no live hypothesis can still beat the n-th best finished one.
    """
    from seqgen.configs import PRECISIONS, choice
    from seqgen.tasks import beam_search as task
    from seqgen.tasks.loaded import load

    check_prompts(prompts, prompt_file)
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    wanted = task.BeamOptions(
        beams=beams,
        nbest=nbest,
        length_norm=length_norm,
        alpha=alpha,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=[unescape(text) for text in stop or ()],
        no_repeat_ngram=no_repeat_ngram,
        groups=groups,
        diversity=diversity,
        stochastic=stochastic,
        exhaustive=exhaustive,
        seed=drawn,
        batch_size=batch_size,
    )
    loaded = load(model, device, choice("--precision", precision, PRECISIONS))
    if stochastic and seed is None and not quiet:
        say(f"seed {drawn}")
    texts, piped = given_or_piped(prompts, prompt_file, quiet)
    if explain:
        for tree in task.explain(loaded, texts, wanted):
            _put_tree(tree, json)
        return
    echoed = is_terminal(sys.stdout) if echo is None else echo
    raw = not piped and len(texts) == 1 and nbest == 1
    for record in task.beam_search(loaded, texts, wanted):
        text = record.prompt + record.text if echoed else record.text
        if json:
            put_record(record)
        elif raw:
            put(text + "\n" if is_terminal(sys.stdout) else text)
        else:
            of = f", rank {record.rank}, score {record.score:.4f}" if nbest > 1 else ""
            put(shown(text, f"prompt {record.index}{of}"))


STYLE = {"live": "", "finished": "bold green", "pruned": "dim"}
SIGN = {"live": "", "finished": "■ ", "pruned": "✗ "}


def _put_tree(found: Tree, json: bool) -> None:
    """Write a search as records of its candidates, or as the lectures draw it."""
    if json:
        for node in found.nodes:
            put_record(node)
        return
    from rich.text import Text
    from rich.tree import Tree as Drawing

    root = Drawing(Text(f"prompt {found.index}: {found.prompt!r}"))
    drawn = {0: root}
    for node in found.nodes:
        rank = "" if node.rank is None else f"  ← rank {node.rank}"
        group = f"group {node.group}: " if node.group else ""
        label = (
            f"{SIGN[node.fate]}{group}{node.text!r}  {node.logprob:.3f} → {node.total:.3f}{rank}"
        )
        drawn[node.node] = drawn[node.parent].add(Text(label, style=STYLE[node.fate]))
    out = console(standard_output())
    out.print(root)
    for beam in found.found:
        line = f"rank {beam.rank}: score {beam.score:.4f}, logprob {beam.logprob:.4f}, "
        out.print(line + f"{beam.finish_reason}: {beam.text!r}")
