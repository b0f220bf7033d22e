"""Tables of how a text came about, or records with `--json`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from seqgen.cli.output import console, is_terminal, one_line, put, put_record, standard_output

if TYPE_CHECKING:
    from rich.table import Table

    from seqgen.tasks.writing.explain import Explanation, Suggestion


def put_suggestions(suggestions: Iterable[Suggestion], json: bool) -> None:
    """Write the likeliest next tokens: records, or lines of prompt number, probability, token."""
    for found in suggestions:
        if json:
            put_record(found)
        else:
            put(f"{found.index}\t{found.probability:.4f}\t{one_line(found.text)}\n")


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
            what = f"{removed.filter} removed {removed.count} (mass {removed.mass:.4f}): "
            out.print(what + " ".join(map(repr, removed.tokens)))
        out.print()


def _candidates(found: Explanation) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE if is_terminal(sys.stdout) else None, pad_edge=False)
    for name in ("", "token", "model", "after filters", "removed by"):
        right = name in ("model", "after filters")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for candidate in found.candidates:
        after = f"{candidate.after:.4f}" if candidate.removed_by is None else "-"
        chosen = "*" if candidate.token == found.token else ""
        text, removed = repr(candidate.text), candidate.removed_by or ""
        table.add_row(chosen, text, f"{candidate.probability:.4f}", after, removed)
    return table
