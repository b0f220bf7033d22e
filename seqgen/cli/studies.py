"""`seqgen tune --list` and `--delete`: the studies that are kept."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.cli.output import Output, put_record
from seqgen.cli.outputs import confirm_deleting
from seqgen.cli.tables import figure, put_table


def put_studies(out: Output) -> None:
    """Write a table of all studies, or a record for each."""
    from seqgen.commands.tuning.study import kept_studies

    found = list(kept_studies())
    if out.json:
        for record in found:
            put_record(record)
        return
    if not found:
        out.notice("there are no studies; seqgen tune DATA begins one")
        return
    rows = [
        [record.name, str(record.trials), str(record.complete), figure(record.val_loss)]
        if record.trials is not None
        else [record.name, "damaged", "", ""]
        for record in found
    ]
    put_table(["name", "trials", "complete", "val loss"], rows)


def delete_studies(names: Sequence[str], yes: bool, out: Output) -> None:
    """Delete studies, once that is confirmed."""
    from seqgen.commands.tuning.study import check_deletable, delete_study

    paths = {name: check_deletable(name) for name in dict.fromkeys(names)}
    confirm_deleting(paths.values(), yes)
    for name, path in paths.items():
        delete_study(path)
        if out.json:
            put_record({"name": name, "path": str(path)})
        out.notice(f"removed {path}")
