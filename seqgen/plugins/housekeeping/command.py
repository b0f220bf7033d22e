"""`seqgen models cache`: list and clear the cache."""

from __future__ import annotations

from pathlib import Path

from seqgen import store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.output import Output, one_line, put
from seqgen.cli.shell.tables import byte_size, count
from seqgen.settings import Options, Panel, setting
from seqgen.wording import first_names, plural


class Clearing(Options, panel=Panel.OTHER):
    """Options of `seqgen models cache`: whether to empty the cache."""

    clear: bool = setting(
        "Delete encoded texts and measured speeds; they are made again when needed."
    )


@takes_options
def cache(clearing: Clearing, out: Output) -> None:
    """List the cache: encoded texts, texts from standard input, measured speeds.

    --clear keeps the texts from standard input, because --resume needs them, and also deletes
    what killed runs left behind.
    """
    if clearing.clear:
        sizes = dict(_sizes())
        gone = store.clear_cache()
        left = store.clean()
        size = sum(sizes.get(path, 0) for path in gone)
        out.record({"removed": len(gone), "bytes": size, "leftovers": len(left)})
        out.notice(f"removed {plural(len(gone), 'file')}, {byte_size(size)}")
        if left:
            out.notice(f"removed {plural(len(left), 'leftover')} of runs that were killed")
        _mention_foreign(out)
        return
    rows = [{"kind": path.parent.name, "bytes": size, "path": str(path)} for path, size in _sizes()]
    if out.records(rows):
        return
    for row in rows:
        put(f"{row['kind']:<7}  {count(row['bytes']):>15}  {row['path']}\n")
    if not rows:
        out.notice("the cache is empty")
    _mention_foreign(out)


def _mention_foreign(out: Output) -> None:
    """Report files in the cache folder that seqgen did not write and therefore keeps."""
    if foreign := [one_line(str(path)) for path in store.foreign_files()]:
        out.notice(f"not written by seqgen, or a link, so it stays: {first_names(foreign)}")


def _sizes() -> list[tuple[Path, int]]:
    files = [*store.cached_files(), *store.measurements()]
    return [(path, path.stat().st_size) for path in files]
