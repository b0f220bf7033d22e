"""Tables of how a text came about, or records with `--json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from seqgen.cli.output import Output, console, one_line, put, standard_output
from seqgen.cli.tables import MISSING, count, figure, table

if TYPE_CHECKING:
    from rich.table import Table

    from seqgen.commands.writing.explain import Explanation, Suggestion


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
