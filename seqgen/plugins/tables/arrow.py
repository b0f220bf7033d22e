"""Rows of Arrow files, which Hugging Face datasets writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.packages import require_packages


def read_arrow(
    path: Path, name: str, keys: Collection[str], columns: list[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of an Arrow stream or file; see `seqgen.hooks.Plugin.record_readers`.

    Raises:
        SeqgenError: the file is damaged, or pyarrow is not installed.
    """
    require_packages(name, "pyarrow")
    import pyarrow

    try:
        with pyarrow.memory_map(str(path)) as file:
            number = 0
            for batch in _batches(pyarrow, file, columns):
                read = [column for column in dict.fromkeys(columns) if column in keys]
                for row in batch.select(read).to_pylist() if read else ():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SeqgenError(f"{name} cannot be read as Arrow data: {error}") from None


def _batches(pyarrow: Any, file: Any, columns: list[str]) -> Iterator[Any]:
    """Yield the batches of a stream, which datasets writes, or of a file; note its columns."""
    try:
        stream = pyarrow.ipc.open_stream(file)
    except pyarrow.ArrowInvalid:
        file.seek(0)
        whole = pyarrow.ipc.open_file(file)
        columns += whole.schema.names
        yield from map(whole.get_batch, range(whole.num_record_batches))
        return
    columns += stream.schema.names
    yield from stream
