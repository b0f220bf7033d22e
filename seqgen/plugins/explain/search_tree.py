"""`seqgen beam-search --explain`: the tree of a search, drawn with characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgen.cli.shell.output import Output, console, standard_output
from seqgen.cli.shell.tables import figure

if TYPE_CHECKING:
    from seqgen.generation.beam_search import Tree

STYLE = {"live": "", "finished": "bold green", "pruned": "dim"}
SIGN = {"live": "", "finished": "■ ", "pruned": "✗ "}


def put_tree(tree: Tree, what: str, out: Output) -> None:
    """Print a search tree as JSON records of its candidates, or draw it with characters."""
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
