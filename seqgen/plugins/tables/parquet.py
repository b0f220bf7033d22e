"""Rows of parquet files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.packages import require_packages


def read_parquet(
    path: Path, name: str, keys: Collection[str], columns: list[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a parquet file; see `seqgen.hooks.Plugin.record_readers`.

    Raises:
        SeqgenError: the file is damaged, or pyarrow is not installed.
    """
    require_packages(name, "pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        columns += file.schema_arrow.names
        read = [column for column in dict.fromkeys(columns) if column in keys]
        batches = file.iter_batches(columns=read) if read else ()
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # names, or texts
        raise SeqgenError(f"{name} cannot be read as parquet: {error}") from None
