"""`seqgen beam-search`: find the most probable texts."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from seqgen.cli.flags import takes_options
from seqgen.cli.output import Output, console, put, put_record, shown, standard_output
from seqgen.cli.prompts import Echo, GivenPrompts, say_unknown
from seqgen.cli.reading import ReadModel
from seqgen.cli.source_attention import Picture, Shown
from seqgen.cli.tables import figure
from seqgen.configs import Options, Panel, setting
from seqgen.configs.decoding import BeamOptions

if TYPE_CHECKING:
    from seqgen.commands.writing.beam_search import Tree


class Explain(Options, panel=Panel.OUTPUT):
    """Whether the search is shown in place of its texts."""

    explain: bool = setting("Show the search tree.")


@takes_options
def beam_search(
    prompts: GivenPrompts,
    model: ReadModel,
    search: BeamOptions,
    tree: Explain,
    picture: Picture,
    echo: Echo,
    out: Output,
) -> None:
    """Find the most probable continuations by beam search.

    A model of pairs takes sources instead of prompts, and writes their targets.

    Filters apply in this order: tokens that are never written, --min-tokens, --force,
    --pattern, --no-repeat-ngram, --max-copy. The search stops when no live hypothesis can still
    beat the n-th best finished one.
    """
    search = replace(search, of_source=picture.of(search.of_source))
    if tree.explain:
        search.of_source.refuse_shown("--explain")
    looks = Shown(search.of_source, picture.plot, maps=out.draws, inputs=prompts.files)
    reported = search.stochastic and search.seed is None
    if search.seed is None:
        search = replace(search, seed=secrets.randbelow(1 << 31))
    loaded = model.load(search.of_source, search.beams, search.max_tokens)
    out.uses([loaded], search.seed)
    from seqgen.commands.writing import beam_search as searching

    from_sources = prompts.are_sources(loaded, echo.echo)
    if reported:
        out.announce_seed(search.seed)
    texts, piped = prompts.texts(loaded, out)
    if tree.explain:
        for found in searching.explain(loaded, texts, search):
            _put_tree(found, loaded.given.prompt, out)
        return
    echoed = not from_sources and echo.on_this_terminal
    aligned = search.of_source.align or search.of_source.align_words
    raw = not (piped or aligned) and len(texts) == search.nbest == 1
    unknown = 0
    for record in searching.beam_search(loaded, texts, search):
        text = loaded.echoed(record.prompt, record.text) if echoed else record.text
        if out.json:
            put_record(record.record())
        elif raw:
            put(text + "\n")
        else:
            of = f", rank {record.rank}, score {figure(record.score)}" if search.nbest > 1 else ""
            put(shown(text, f"{loaded.given.prompt} {record.index}{of}", record.alignment))
        looks.put(record.look, f"source {record.index}, rank {record.rank}")
        if record.missing:
            names = ", ".join(map(repr, record.missing))
            out.notice(f"{loaded.given.prompt} {record.index}, rank {record.rank} lacks {names}")
        if from_sources and record.rank == 0:
            unknown += record.of_source.source_unknown
    say_unknown(unknown, out)


STYLE = {"live": "", "finished": "bold green", "pruned": "dim"}
SIGN = {"live": "", "finished": "■ ", "pruned": "✗ "}


def _put_tree(tree: Tree, what: str, out: Output) -> None:
    """Write a search as records of its candidates, or as the lectures draw it."""
    if out.records(tree.nodes):
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
    screen = console(standard_output())
    screen.print(root)
    for beam in tree.hypotheses:
        line = f"rank {beam.rank}: score {figure(beam.score)}, logprob {figure(beam.logprob)}, "
        screen.print(line + f"{beam.finish_reason}: {beam.text!r}")
