"""Rows of parquet files, and of the Arrow files that Hugging Face datasets writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.packages import require_packages

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Row = tuple[int, dict[str, Any]]
# The names of a table's columns, and what reads batches of some of them.
Table = tuple[list[str], Callable[[list[str]], Iterable["RecordBatch"]]]


def read_parquet(path: Path, name: str, keys: Collection[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows of a parquet file; see `seqgen.hooks.Plugin.record_readers`.

    Raises:
        SeqgenError: the file is damaged, or pyarrow is not installed.
    """
    return _rows(_open_parquet(path), name, "parquet", keys, columns)


def read_arrow(path: Path, name: str, keys: Collection[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows of an Arrow stream or file; see `read_parquet`."""
    return _rows(_open_arrow(path), name, "Arrow data", keys, columns)


def _rows(
    opened: AbstractContextManager[Table],
    name: str,
    kind: str,
    keys: Collection[str],
    columns: list[str],
) -> Iterator[Row]:
    require_packages(name, "pyarrow")
    import pyarrow

    try:
        with opened as (names, batches):
            columns += names
            read = [column for column in dict.fromkeys(names) if column in keys]
            rows = (row for batch in batches(read) for row in batch.to_pylist()) if read else ()
            yield from enumerate(rows, start=1)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SeqgenError(f"{name} cannot be read as {kind}: {error}") from None


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator[Table]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        yield file.schema_arrow.names, lambda read: file.iter_batches(columns=read)


@contextlib.contextmanager
def _open_arrow(path: Path) -> Iterator[Table]:
    """Open a stream, which datasets writes, or a file."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as file:
        try:
            table = batches = pyarrow.ipc.open_stream(file)
        except pyarrow.ArrowInvalid:
            file.seek(0)
            table = pyarrow.ipc.open_file(file)
            batches = map(table.get_batch, range(table.num_record_batches))
        yield table.schema.names, lambda read: (batch.select(read) for batch in batches)
