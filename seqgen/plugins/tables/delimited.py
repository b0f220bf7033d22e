"""Rows of CSV and TSV files, whose first line names the columns (RFC 4180).

An empty field has no text, as in pandas.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from pathlib import Path

from seqgen import limits
from seqgen.errors import SeqgenError
from seqgen.text.reading import decode_file, lines

# What separates the columns of a file that is called CSV: the most frequent in its first line.
DELIMITERS = ",;\t|"
Row = tuple[int, dict[str, str | None]]


def read_csv(path: Path, name: str, keys: Collection[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows of a CSV file; see `seqgen.hooks.Plugin.record_readers`.

    Raises:
        SeqgenError: a field is longer than a line may be, or the file cannot be read.
    """
    return _rows(path, name, columns, DELIMITERS)


def read_tsv(path: Path, name: str, keys: Collection[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows of a TSV file; see `read_csv`."""
    return _rows(path, name, columns, "\t")


def _rows(path: Path, name: str, columns: list[str], delimiters: str) -> Iterator[Row]:
    most = csv.field_size_limit(limits.max_line_bytes())
    try:
        text = lines(decode_file(path), name)
        first = next(text, "")
        delimiter = max(delimiters, key=first.count)
        reader = csv.reader(_with(first, text), delimiter=delimiter)
        columns += next(reader, [])
        for number, row in enumerate(filter(None, reader), start=1):
            yield (
                number,
                {column: value or None for column, value in zip(columns, row, strict=False)},
            )
    except csv.Error as error:
        raise SeqgenError(f"{name} cannot be read as a table: {error}") from None
    finally:
        csv.field_size_limit(most)


def _with(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
