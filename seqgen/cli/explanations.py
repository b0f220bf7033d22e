"""Tables of how a text came about, or records with `--json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from seqgen.cli.output import console, one_line, put, put_record, standard_output
from seqgen.cli.tables import MISSING, count, figure, table

if TYPE_CHECKING:
    from rich.table import Table

    from seqgen.tasks.writing.explain import Explanation, Suggestion


def put_suggestions(suggestions: Iterable[Suggestion], json: bool) -> None:
    """Write the likeliest next tokens: records, or lines of prompt number, probability, token."""
    for found in suggestions:
        if json:
            put_record(found)
        else:
            put(f"{found.index}\t{figure(found.probability)}\t{one_line(found.text)}\n")


def put_explanations(explanations: Iterable[Explanation], json: bool) -> None:
    """Write how each token came about: records, or a table each."""
    for found in explanations:
        if json:
            put_record(found)
            continue
        out = console(standard_output())
        heading = f"prompt {found.index}, sample {found.sample}, token {found.step}: "
        out.print(heading + repr(found.text))
        out.print(_candidates(found))
        for removed in found.removed:
            mass, tokens = figure(removed.mass), " ".join(map(repr, removed.tokens))
            out.print(f"{removed.filter} removed {count(removed.count)} (mass {mass}): {tokens}")
        out.print()


def _candidates(found: Explanation) -> Table:
    drawn = table(("", "token", "removed by", "model", "after filters"), left=3)
    for candidate in found.candidates:
        chosen = "*" if candidate.token == found.token else ""
        after = MISSING if candidate.removed_by else figure(candidate.after)
        text, removed_by = repr(candidate.text), candidate.removed_by or ""
        drawn.add_row(chosen, text, removed_by, figure(candidate.probability), after)
    return drawn
