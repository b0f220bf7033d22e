"""Texts in records: a field of JSON Lines, or a column of a parquet file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, did_you_mean
from seqgen.packages import require_packages
from seqgen.text.file_kinds import JSON_LINES, PARQUET, ending_of_name
from seqgen.text.reading import lines
from seqgen.wording import plural

# Lines that a notice names.
NAMED = 5


def holds_records(path: Path) -> bool:
    """Check whether a file name is that of JSON Lines or parquet."""
    return ending_of_name(path) in {*JSON_LINES, PARQUET}


def is_parquet(path: Path) -> bool:
    """Check whether a file name is that of a parquet file."""
    return ending_of_name(path) == PARQUET


@dataclass
class Texts:
    """One-pass reader of the texts in one file of records.

    Attributes:
        name: of the file.
        key: where a record has its text.
        one_line: write each text on a line of its own, with spaces for its newlines.
        taken: texts read so far.
        left_out: records without a text, so far, and the first of their lines, from 1.
        known: the keys of the last record.
        is_empty: whether no record so far has anything at the key.
    """

    name: str
    key: str
    one_line: bool = False
    taken: int = 0
    left_out: int = 0
    first: list[int] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    is_empty: bool = True

    def of_json(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the texts of JSON Lines, each with a newline.

        Raises:
            SeqgenError: no record has a text.
        """
        for number, record in json_records(chunks, self.name):
            yield from self._of(record, number)
        self._check()

    def of_parquet(self, path: Path) -> Iterator[str]:
        """Yield the texts of a parquet file, batch by batch; see `of_json`.

        Raises:
            SeqgenError: there is no such column, it has no text, or the file is damaged.
        """
        known: list[str] = []
        for number, record in parquet_records(path, self.name, {self.key}, known):
            yield from self._of(record, number)
        self.known = known
        self._check()

    def _of(self, record: Any, number: int) -> Iterator[str]:
        text = record.get(self.key) if isinstance(record, dict) else None
        self.is_empty &= text is None
        if not isinstance(text, str) or has_surrogates(text):
            self.known = list(record) if isinstance(record, dict) and record else self.known
            self.left_out += 1
            self.first += [number] if len(self.first) < NAMED else []
            return
        self.taken += 1
        if self.one_line:
            text = text.removesuffix("\n").replace("\r\n", " ").replace("\n", " ")
        yield text if text.endswith("\n") else f"{text}\n"

    def _check(self) -> None:
        if not self.taken:
            keys = f"; its records have {', '.join(self.known[:8])}" if self.known else ""
            if self.key in self.known:
                what = "empty" if self.is_empty else "never text"
                raise SeqgenError(f"{self.key!r} in {self.name} is {what}{keys}")
            hint = did_you_mean(self.key, self.known) or keys
            raise SeqgenError(f"{self.name} has no record with a text {self.key!r}{hint}")

    @property
    def notice(self) -> str | None:
        """One-line notice of skipped records and ambiguous columns; None without any."""
        said = []
        if self.left_out:
            more = ", ..." if self.left_out > len(self.first) else ""
            said.append(
                f"{plural(self.left_out, 'record')} of {self.name} left out, without a text "
                f"{self.key!r}: {', '.join(map(str, self.first))}{more}"
            )
        if (columns := self.known.count(self.key)) > 1:  # of parquet
            said.append(f"{self.name} has {columns} columns {self.key!r}, and the last is read")
        return "; ".join(said) or None


def json_records(chunks: Iterable[str], name: str) -> Iterator[tuple[int, Any]]:
    """Yield the line number, from 1, and the value of each line of JSON Lines; None if damaged."""
    for number, line in enumerate(lines(chunks, name), start=1):
        if line.strip():
            yield number, _parsed(line)


def parquet_records(
    path: Path, name: str, keys: Collection[str], columns: list[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number, from 1, and the values of each row of a parquet file.

    Args:
        path: of the file.
        name: what errors call it.
        keys: of the columns that are read, as far as they exist.
        columns: filled with the names of all columns.

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


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def has_surrogates(text: str) -> bool:
    r"""Check for unpaired surrogates, which JSON can encode as `\ud800` but UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
