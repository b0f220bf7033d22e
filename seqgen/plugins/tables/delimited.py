"""Rows of CSV and TSV files, whose first line names the columns (RFC 4180).

An empty field has no text, as in pandas.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from seqgen import limits
from seqgen.errors import SeqgenError
from seqgen.text.reading import decode_file, lines

# What separates the columns of a file that is called CSV: the most frequent in its first line that
# is not blank, outside quotes.
DELIMITERS = ",;\t|"
QUOTED = re.compile('"[^"]*"')
Row = tuple[int, dict[str, str | None]]


def read_csv(path: Path, name: str, keys: Collection[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows of a CSV file; see `seqgen.hooks.Plugin.record_readers`.

    Raises:
        SeqgenError: a field is longer than a line may be, a quote is never closed, or the file
            cannot be read.
    """
    return _rows(path, name, columns, DELIMITERS)


def read_tsv(path: Path, name: str, keys: Collection[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows of a TSV file; see `read_csv`."""
    return _rows(path, name, columns, "\t")


def _rows(path: Path, name: str, columns: list[str], delimiters: str) -> Iterator[Row]:
    most = csv.field_size_limit(limits.max_line_bytes())
    try:
        text = lines(decode_file(path), name)
        begin: list[str] = []
        while not begin or not begin[-1].strip("\r\n"):
            if (line := next(text, None)) is None:
                raise SeqgenError(f"{name} has only blank lines")
            begin.append(line)
        delimiter = max(delimiters, key=QUOTED.sub("", begin[-1]).count)
        read = _RowLines(chain(begin, text), name)
        reader = csv.reader(read, delimiter=delimiter)
        columns += next(filter(None, reader))
        read.begins = 0
        for number, row in enumerate(filter(None, reader), start=1):
            read.begins = 0
            yield (
                number,
                {column: value or None for column, value in zip(columns, row, strict=False)},
            )
    except csv.Error as error:
        cr = "its lines end with CR alone; convert it: tr '\\r' '\\n' < FILE"
        why = cr if "new-line character" in str(error) else error
        raise SeqgenError(f"{name} cannot be read as a table: {why}") from None
    finally:
        csv.field_size_limit(most)


@dataclass
class _RowLines:
    """Lines of a table, of which `csv.reader` asks for as many as a row has.

    If a quote is never closed, it would take the rest of the file as one field.

    Args:
        lines: of the file.
        name: of the file, for errors.

    Attributes:
        begins: the number, from 1, of the first line of the row that is read; 0 between rows, if
            the caller sets it so.
    """

    lines: Iterable[str]
    name: str
    begins: int = 0

    def __iter__(self) -> Iterator[str]:
        """Yield the lines.

        Raises:
            SeqgenError: the file ends inside quotes.
        """
        for number, line in enumerate(self.lines, start=1):
            if not self.begins and line.strip():
                self.begins = number
            yield line
        if self.begins:
            raise SeqgenError(
                f"{self.name} cannot be read as a table: a quote in the row that begins in line "
                f"{self.begins:,} is never closed; close it, or write it twice if it is text"
            )
